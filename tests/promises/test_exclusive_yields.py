"""I6 for `exclusive`: it takes what nobody owns, and yields to whomever it can find, or not see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import upload_of
from tests.costly import costly_store
from tests.hadoops import leave_job
from tests.promises.hands import DEST, committed_task, killed, visible


def exclusive(s3: MemoryStore) -> mc.JobReport:
    """An exclusive job of one file, committed."""
    job = mc.start(DEST, exclusive=True)
    committed_task(job, "1", {"mine.csv": b"1"})
    return job.commit()


def told(report: mc.JobReport) -> str:
    """The one warning of a job that yields."""
    (warning,) = report.warnings
    assert warning.startswith("not swept exclusively: ")
    return warning


@pytest.mark.parametrize(
    "dest",
    ["s3://bucket", "s3://bucket/t", "s3://bucket/t/sub", "s3://bucket/t/sub/deeper"],
)
def test_it_yields_to_a_live_job_wherever_its_record_is(s3: MemoryStore, dest: str) -> None:
    """A job above, beside or below, with an upload of a name that its user chose: it stays open,
    the report names the job, and the job commits."""
    other = mc.start(dest, job_id="other")
    with other.task("1") as task:
        # Below the record, some directories deep; from above it must reach into the destination.
        f = task.open("t/x/y/theirs.csv" if dest == "s3://bucket" else "x/y/theirs.csv")
        f.write(b"2")
        upload_of(f)._sender.created()
        warning = told(exclusive(s3))
        f.close()
    assert "job 'other' lives under" in warning
    assert other.commit().files == 1
    theirs = {key: body for key, body in visible(s3).items() if "__magic" not in key}
    assert sorted(theirs.values()) == [b"1", b"2"]


def test_it_yields_only_to_jobs_that_may_own_what_it_takes(s3: MemoryStore) -> None:
    """A live job in a directory with no upload of it, beside the destination's uploads, is in
    nobody's way; nor is a closed one, nor one of a destination beside."""
    mc.start(f"{DEST}/empty", job_id="below")
    mc.start("s3://bucket/elsewhere", job_id="beside")
    mc.start(f"{DEST}/dir", job_id="closed").abort()
    s3.start_upload("t/dir/litter.bin")
    assert exclusive(s3).warnings == ()
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("release", ["3.3.4", "3.5.0"])
@pytest.mark.parametrize("dest", ["t/", "t/sub/"])
def test_it_yields_to_a_job_of_hadoop(s3: MemoryStore, release: str, dest: str) -> None:
    """Of either layout, at the destination or below: a directory without a record of ours is
    Hadoop's, and all its uploads stay open."""
    hadoops = leave_job(s3, release, dest=dest, unfinished=True)
    before = {u.upload_id for u in s3.open_uploads()}
    assert "adoop" in told(exclusive(s3))
    assert {u.upload_id for u in s3.open_uploads()} == before
    assert set(hadoops.uploads.values()) <= before


@pytest.mark.parametrize("error", [PermissionDenied("no", status=403), Unanswered("no answer")])
@pytest.mark.parametrize("verb", ["list", "get"])
@pytest.mark.parametrize("where", ["", "t/", "t/sub/"])
def test_what_cannot_be_looked_at_counts_as_somebody(
    s3: MemoryStore, where: str, verb: str, error: StoreError
) -> None:
    """A directory that may not be listed, or a record that may not be read, above, at or below the
    destination: nothing of others is taken, and the reason is told."""
    url = f"s3://bucket/{where}"
    mc.start(url, job_id="unseen").abort()  # closed: only the refusal can protect
    upload = s3.start_upload("t/sub/x.bin")

    def refuse(request: Request) -> None:
        listing = request.verb == "list" == verb and request.key == f"{where}__magic"
        reading = request.verb == "get" == verb and request.key == (
            f"{where}__magic_job-unseen/_job.json"
        )
        if listing or reading:
            raise error

    s3.before = refuse
    report = exclusive(s3)
    s3.before = None
    assert "cannot be told" in told(report)
    assert [u.upload_id for u in s3.open_uploads()] == [upload]
    assert exclusive(s3).warnings == ()
    assert s3.open_uploads() == ()


def test_a_record_of_a_newer_version_counts_as_somebody(s3: MemoryStore) -> None:
    """It cannot be read, so nothing is known of its job."""
    s3.put_object("t/sub/__magic_job-new/_job.json", json.dumps({"version": 99}).encode())
    upload = s3.start_upload("t/sub/x.bin")
    assert "cannot be told" in told(exclusive(s3))
    assert [u.upload_id for u in s3.open_uploads()] == [upload]


def sweeping(s3: MemoryStore, deed: Callable[[], Any], verb: str, key: str) -> list[bool]:
    """Do something before the first such request of the sweep."""
    done: list[bool] = []

    def hook(request: Request) -> None:
        if "t/_SUCCESS" in s3.keys() and (request.verb, request.key) == (verb, key) and not done:
            done.append(True)
            deed()

    s3.before = hook
    return done


def test_a_job_that_is_set_up_before_the_uploads_are_listed_is_seen(s3: MemoryStore) -> None:
    """Uploads first, records second (K1): a job that starts, and begins an upload, right before
    the sweep lists uploads is seen by its record, which is read after that."""
    s3.start_upload("t/litter.bin")
    other: list[mc.Job] = []

    def begin() -> None:
        other.append(mc.start(f"{DEST}/sub", job_id="late"))
        killed(other[0], "1", "theirs.csv")

    done = sweeping(s3, begin, "list_uploads", "t/")
    assert "job 'late' lives" in told(exclusive(s3))
    assert done
    assert "t/sub/theirs.csv" in [u.key for u in s3.open_uploads()]


def test_a_job_that_is_set_up_after_the_uploads_are_listed_loses_nothing(s3: MemoryStore) -> None:
    """Its uploads were not listed; when they are, in the next round, its record is seen too."""
    s3.start_upload("t/litter.bin")
    other: list[mc.Job] = []

    def begin() -> None:
        other.append(mc.start(DEST, job_id="late"))
        killed(other[0], "1", "theirs.csv")

    done = sweeping(s3, begin, "list", "t/__magic")
    exclusive(s3)
    assert done
    assert "t/theirs.csv" in [u.key for u in s3.open_uploads()]


def test_a_job_that_ends_after_the_uploads_are_listed_loses_no_object() -> None:
    """Its upload is listed, then it commits, and its record is gone when records are read: the
    upload is looked at first, and not aborted (on some stores that costs the object)."""
    with costly_store() as s3:
        other = mc.start(DEST, track="memory", accept="results")
        result = committed_task(other, "1", {"theirs.csv": b"2"})
        done = sweeping(s3, lambda: other.commit([result]), "list", "t/__magic")
        assert exclusive(s3).warnings == ()
        assert done
        assert s3.lost == []
        assert visible(s3) == {"t/mine.csv": b"1", "t/theirs.csv": b"2"}


def test_a_job_that_yields_once_takes_nothing_in_later_rounds(s3: MemoryStore) -> None:
    """The other job ends while the sweep goes on: what was listed while it lived is not taken, and
    the warning is told once."""
    other = mc.start(f"{DEST}/sub", job_id="other")
    killed(other, "1", "theirs.csv")
    job = mc.start(DEST, exclusive=True)
    killed(job, "2", "own.csv", unique=True)
    committed_task(job, "1", {"mine.csv": b"1"})

    def ends(request: Request) -> None:
        if request.verb == "abort_upload" and request.key.startswith("t/own"):
            s3.before = None
            s3.delete_object("t/sub/__magic_job-other/_job.json")

    s3.before = ends
    assert "job 'other'" in told(job.commit())
    assert [u.key for u in s3.open_uploads()] == ["t/sub/theirs.csv"]

"""I1 to I4: what is visible, when; and what is left."""

from __future__ import annotations

from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer import errors
from magic_committer.options import Accept, Mode, Track
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import (
    DEST,
    Crash,
    committed_task,
    job_of,
    killed,
    raising,
    refusing,
    visible,
)


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_job_leaves_its_files_and_its_marker_and_nothing_else(
    s3: MemoryStore, track: Track, accept: Accept
) -> None:
    """I1, I2, I4: nothing before the commit; then the files, byte for byte, and `_SUCCESS`."""
    job = mc.start(DEST, track=track, accept=accept)
    results = [committed_task(job, str(n), {f"d={n}/{n}.bin": bytes([n]) * n}) for n in range(4)]
    assert visible(s3) == {}
    report = job.commit(results if accept == "results" else None)
    assert visible(s3) == {f"t/d={n}/{n}.bin": bytes([n]) * n for n in range(4)}
    assert s3.keys() == tuple(sorted(["t/_SUCCESS", *visible(s3)]))
    assert s3.open_uploads() == ()
    assert (report.outcome, report.files, report.bytes, report.tasks) == ("committed", 4, 6, 4)
    assert report.warnings == ()


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("name", ["a.csv", "b.csv"])
def test_one_attempt_of_a_task_becomes_visible(s3: MemoryStore, name: str, track: Track) -> None:
    """I2, I9: the accepted one shows; the other, whose input was cut short, leaves nothing."""
    job = job_of({name: b"cut sho"}, accept="results", track=track)
    job.commit([committed_task(job, "1", {"a.csv": b"whole"})])
    assert visible(s3) == {"t/a.csv": b"whole"}
    assert s3.open_uploads() == ()


def test_a_listing_takes_the_newest_attempt_of_a_task(s3: MemoryStore, clock: PatientClock) -> None:
    """I2: without messages the newest attempt is taken, by the store's clock."""
    job = job_of({"a.csv": b"old", "old.csv": b""})
    clock.sleep(5)
    committed_task(job, "1", {"a.csv": b"new"})
    job.commit()
    assert visible(s3) == {"t/a.csv": b"new"}
    assert s3.open_uploads() == ()


def test_an_aborted_job_leaves_nothing_and_never_shows_anything(s3: MemoryStore) -> None:
    """I3, I4: committed and unfinished attempts go; a late one meets the fence, and goes too."""
    job = job_of({"a.csv": b"1"})
    unfinished = killed(job, "2", "b.csv", unique=True)
    late = job.task("3")
    file = late.open("late.csv")
    file.write(b"late")
    assert job.abort().outcome == "aborted"
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    unfinished.abort()
    file.close()
    with pytest.raises(mc.JobNotRunning) as raised:
        late.commit()
    assert raised.value.state == "absent"
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_file_that_is_still_open_is_an_error_and_publishes_nothing(s3: MemoryStore) -> None:
    """I9: a file that was not closed may be cut short: the job is aborted."""
    with pytest.raises(mc.FileStillOpen, match=r"a\.csv"), mc.write(DEST) as job:
        job.open("a.csv").write(b"1")
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_file_that_failed_fails_its_task_even_if_the_error_was_caught(s3: MemoryStore) -> None:
    """I9: an attempt that lost a file is never committed without it."""
    job = mc.start(DEST)
    bad = errors.InvalidRequest("bad digest", status=400, code="BadDigest")
    with refusing(s3, "put_part", bad):
        task = job.task("1")
        with pytest.raises(mc.UploadFailed), task.open("a.csv") as f:
            f.write(b"1")
    with pytest.raises(mc.TaskFailed, match=r"a\.csv"):
        task.commit()
    job.abort()
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_job_of_messages_is_never_committed_from_a_listing(s3: MemoryStore) -> None:
    """I9: `commit()` without results is refused where tasks can be cut short."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    with pytest.raises(mc.OptionError, match="results"):
        job.commit()
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


def test_missing_tasks_decide_nothing(s3: MemoryStore) -> None:
    """A commit that misses tasks raises, names them, and can be made again."""
    job = job_of({"a.csv": b"1"})
    with pytest.raises(mc.IncompleteJob) as raised:
        job.commit(expect=["1", "2"])
    assert raised.value.missing == ("2",)
    with pytest.raises(mc.IncompleteJob):
        job.commit(expect=2)
    committed_task(job, "2", {"b.csv": b"2"})
    assert job.commit(expect=["1", "2"]).tasks == 2
    assert set(visible(s3)) == {"t/a.csv", "t/b.csv"}


def test_an_empty_job_commits_and_marks(s3: MemoryStore) -> None:
    """A job without files is a job, decided and marked; a forgotten ``open`` is told."""
    with mc.write(DEST) as job:
        pass
    assert s3.keys() == ("t/_SUCCESS",)
    assert (job.report.outcome, job.report.files) == ("committed", 0)
    assert "the job published no file" in job.report.warnings


FILES = {"p=1/a.csv": b"1", "p=1/empty.csv": b"", "p=2/b.csv": b"22"}
MODES: list[Mode] = ["append", "fail", "fail_partitions", "replace", "replace_partitions"]


def requests_of_a_job(s3: MemoryStore, mode: Mode) -> list[Request]:
    """Run a job of small files whose driver dies in its commit, recover it, and give every request
    that was sent."""
    sent: list[Request] = []
    dies = raising("complete_upload */p=2/*", Crash)

    def note(request: Request) -> None:
        sent.append(request)
        dies(request)

    s3.before = note
    job = job_of(FILES, mode=mode, track="memory", accept="listing")
    with pytest.raises(Crash):
        job.commit()
    s3.before = sent.append
    assert mc.recover(DEST, job.id).outcome == "committed"
    s3.before = None
    assert visible(s3) == {f"t/{name}": body for name, body in FILES.items()}
    return sent


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_no_late_request_brings_a_file_back(mode: Mode, forgetful: bool) -> None:
    """A job is over, and its files were taken away: each request may land again, in any order."""
    with memory_store(forgetful_complete=forgetful) as s3:
        sent = requests_of_a_job(s3, mode)
        s3.delete(list(visible(s3)))
        for request in (*sent, *reversed(sent)):
            with suppress(mc.StoreError):
                request.effect()
            assert visible(s3) == {}
        completes = [one for one in sent if one.verb == "complete_upload"]
        assert {one.key for one in completes} >= {f"t/{name}" for name in FILES}

"""I1 to I4: what is visible, when; and what is left."""

from __future__ import annotations

import json
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
    half_completed,
    job_of,
    killed,
    raises,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import matching


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_job_leaves_its_files_and_marker(s3: MemoryStore, track: Track, accept: Accept) -> None:
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
    raises(mc.JobNotRunning, job.commit)
    unfinished.abort()
    file.close()
    raised = raises(mc.JobNotRunning, late.commit)
    assert raised.state == "absent"
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
    raises(mc.TaskFailed, task.commit, match=r"a\.csv")
    job.abort()
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_job_of_messages_is_never_committed_from_a_listing(s3: MemoryStore) -> None:
    """I9: `commit()` without results is refused where tasks can be cut short."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    raises(mc.OptionError, job.commit, match="results")
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


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
    """Every request of a job whose driver dies in its commit, and of its recovery."""
    sent: list[Request] = []
    dies = raising("complete_upload */p=2/*", Crash)

    def note(request: Request) -> None:
        sent.append(request)
        dies(request)

    s3.before = note
    job = job_of(FILES, mode=mode, track="memory", accept="listing")
    raises(Crash, job.commit)
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


def test_foreign_objects_and_uploads_are_never_touched(s3: MemoryStore) -> None:
    """I6: neither end takes another program's objects or uploads, here or in a directory beside."""
    s3.put_object("t/theirs.csv", b"theirs")
    s3.put_object("t/__magic_job-9/job-9/00/tasks/x/__base/y.csv.pending", b"Hadoop's")
    theirs = {
        s3.start_upload("t/open.csv"),
        s3.start_upload("t2/open.csv"),
        s3.start_upload(f"t/part-1-{'ab' * 16}.c000.csv"),
        s3.start_upload(f"t/part-1-mcj{'ab' * 16}.csv"),
    }
    for end in ("commit", "abort"):
        job = job_of({f"{end}.csv": b"1"})
        killed(job, "2", "left.csv", unique=True)
        job.commit() if end == "commit" else job.abort()
    assert {u.upload_id for u in s3.open_uploads()} == theirs
    assert s3.body("t/theirs.csv") == b"theirs"
    assert "t/__magic_job-9/job-9/00/tasks/x/__base/y.csv.pending" in s3.keys()


def test_two_jobs_in_one_directory_do_not_disturb_each_other(s3: MemoryStore) -> None:
    """I6: the sweep of one job leaves the other's pending uploads and control objects alone."""
    one, two = mc.start(DEST), mc.start(DEST)
    result = committed_task(two, "1", {"two.csv": b"2"})
    left = killed(two, "2", "slow.csv", unique=True)
    committed_task(one, "1", {"one.csv": b"1"})
    one.commit()
    left.write(b"still here")
    left.close()
    two.commit([result])
    assert visible(s3) == {"t/one.csv": b"1", "t/two.csv": b"2"}
    assert s3.open_uploads() == ()
    assert s3.keys("t/__magic") == ()


def test_uploads_that_nobody_can_attribute_are_counted_and_left(s3: MemoryStore) -> None:
    """I4, I6: a killed attempt's upload of a name that the user chose may be another program's."""
    job = mc.start(DEST)
    killed(job, "1", "killed.csv")
    report = job.commit(expect=0)
    assert report.unattributed == 1
    assert [u.key for u in s3.open_uploads()] == ["t/killed.csv"]


def test_two_thousand_five_hundred_uploads_are_swept_page_by_page(s3: MemoryStore) -> None:
    """I4: the sweep reads every page of the listing, and aborts all of its own and no other."""
    job = mc.start(DEST)
    for number in range(2500):
        s3.start_upload(f"t/part-{number:05d}-mcj{job.uuid}.csv")
    theirs = s3.start_upload("t/part-00007.csv")
    s3.requests.clear()
    job.abort()
    assert [u.upload_id for u in s3.open_uploads()] == [theirs]
    assert s3.requests["list_uploads"] == 4  # three pages, and one that shows none
    assert s3.requests["abort_upload"] == 2500


@pytest.mark.parametrize("body", [None, b"", b"{}", b"not json", b'{"name":"other"}'])
def test_an_earlier_marker_is_replaced(s3: MemoryStore, body: bytes | None) -> None:
    """I8: Hadoop's, anybody's, or ours within a second; a job that writes no marker leaves it."""
    if body is not None:
        s3.put_object("t/_SUCCESS", body)
    for number in range(2):
        with mc.write(DEST) as job, job.open(f"{number}.csv") as f:
            f.write(b"1")
        assert json.loads(s3.body("t/_SUCCESS"))["jobId"] == job.id
    marker = s3.body("t/_SUCCESS")
    job_of({"last.csv": b"1"}, mark_success=False).commit()
    assert s3.body("t/_SUCCESS") == marker


def test_an_append_that_is_listed_first_hides_no_other_job(s3: MemoryStore) -> None:
    """I6: a running append excludes nobody, and the look at the other jobs goes on behind it."""
    mc.start(DEST, job_id="a")
    mc.start(DEST, job_id="b", mode="replace")
    raises(mc.ConflictingJob, mc.start, DEST, job_id="c", mode="replace", match="job 'b'")


def test_another_jobs_spoilt_set_is_told_as_that_jobs(s3: MemoryStore) -> None:
    """I10: a replace beside a job that cannot be read names that job, and ends."""
    append = half_completed(s3)
    for key in matching(s3, "*.pendingset"):
        s3.put_object(key, b"{}", metadata=s3.head(key).metadata)
    replace = job_of({"new.csv": b"new"}, mode="replace")
    raises(mc.ConflictingJob, replace.commit, match=append.id)
    assert (replace.outcome, "t/new.csv" in visible(s3)) == ("aborted", False)

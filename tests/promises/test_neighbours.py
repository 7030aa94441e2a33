"""I6 and I8: nothing that is not the job's is touched, and the marker tells of the last job."""

from __future__ import annotations

import json

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    half_completed,
    job_of,
    killed,
    raising,
    visible,
)
from tests.promises.machine import matching


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
    with pytest.raises(mc.ConflictingJob, match="job 'b'"):
        mc.start(DEST, job_id="c", mode="replace")


def test_another_jobs_spoilt_set_is_told_as_that_jobs(s3: MemoryStore) -> None:
    """I10: a replace beside a job that cannot be read names that job, and ends."""
    append = half_completed(s3)
    for key in matching(s3, "*.pendingset"):
        s3.put_object(key, b"{}", metadata=s3.head(key).metadata)
    replace = job_of({"new.csv": b"new"}, mode="replace")
    with pytest.raises(mc.ConflictingJob, match=append.id):
        replace.commit()
    assert (replace.outcome, "t/new.csv" in visible(s3)) == ("aborted", False)


def replacing(s3: MemoryStore) -> mc.Job:
    """A job that will replace ``t/old.csv``, ready to commit."""
    s3.put_object("t/old.csv", b"old")
    return job_of({"new.csv": b"new"}, mode="replace")


@pytest.mark.parametrize("key", ["t/old.csv", "t/a.csv"], ids=["replaced", "undone"])
def test_what_is_written_between_look_and_delete_stays(s3: MemoryStore, key: str) -> None:
    """I6: a neighbour writes an old file, or one that is being undone, between HEAD and DELETE."""
    job = half_completed(s3) if key == "t/a.csv" else replacing(s3)
    at = At(s3, f"delete_one {key}", lambda: s3.put_object(key, b"!"))
    mc.abort(DEST, job.id, revert=True) if key == "t/a.csv" else job.commit()
    assert at.done
    assert visible(s3) == {key: b"!"} | ({} if key == "t/a.csv" else {"t/new.csv": b"new"})


def test_what_was_written_since_the_plan_is_not_asked_to_go(s3: MemoryStore) -> None:
    """I6: no DELETE is sent for what is another object by now: some stores ignore its condition."""
    job = replacing(s3)
    sent: list[tuple[str, str]] = []
    At(s3, "complete_upload", lambda: s3.put_object("t/old.csv", b"!"), after=True)
    s3.before = lambda request: sent.append((request.verb, request.key))
    job.commit()
    assert ("delete_one", "t/old.csv") not in sent
    assert s3.body("t/old.csv") == b"!"


def test_what_is_completed_while_it_is_undone_goes(s3: MemoryStore) -> None:
    """I3: a late Complete that lands before the revert's abort is seen by the look after it."""
    job = half_completed(s3)
    (upload,) = s3.open_uploads("t/b.csv")
    parts = s3.list_parts(upload.key, upload.upload_id)
    complete = lambda: s3.complete_upload(upload.key, upload.upload_id, parts)  # noqa: E731
    At(s3, "abort_upload t/b.csv", complete)
    mc.abort(DEST, job.id, revert=True)
    assert visible(s3) == {}


def test_a_revert_that_could_not_undo_all_is_done_again(s3: MemoryStore) -> None:
    """I3: a file that could not be looked at keeps the job from being called reverted."""
    job = half_completed(s3)
    s3.before = raising("head t/a.csv", mc.StoreError("not now"))
    with pytest.raises(mc.AbortIncomplete, match="not now"):
        mc.abort(DEST, job.id, revert=True)
    s3.before = None
    assert mc.attach(DEST, job.id).state == "reverting"
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}

"""I6: what a neighbour writes over an object that a job is about to delete stays."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, half_completed, job_of, raising, visible


def replacing(s3: MemoryStore) -> mc.Job:
    """A job that will replace ``t/old.csv``, ready to commit."""
    s3.put_object("t/old.csv", b"old")
    return job_of({"new.csv": b"new"}, mode="replace")


def deletion_of(key: str, request: Request) -> bool:
    """The DELETE of one object."""
    return (request.verb, request.key) == ("delete_one", key)


def test_what_is_written_between_look_and_delete_stays(s3: MemoryStore) -> None:
    """I6: a neighbour writes an old file anew between our HEAD and our DELETE: it stays."""
    job = replacing(s3)
    at = At(s3, lambda r: deletion_of("t/old.csv", r), lambda: s3.put_object("t/old.csv", b"!"))
    job.commit()
    assert at.done
    assert visible(s3) == {"t/old.csv": b"!", "t/new.csv": b"new"}


def test_what_was_written_since_the_plan_is_not_asked_to_go(s3: MemoryStore) -> None:
    """I6: a DELETE is not even sent for an object that is another by now: there are stores that
    ignore its condition."""
    job = replacing(s3)
    sent: list[str] = []

    def look(request: Request) -> None:
        if request.verb == "complete_upload":
            s3.before = note
            s3.put_object("t/old.csv", b"!")

    def note(request: Request) -> None:
        if request.verb == "delete_one":
            sent.append(request.key)

    s3.before = look
    job.commit()
    assert "t/old.csv" not in sent
    assert s3.body("t/old.csv") == b"!"


def test_what_is_written_over_a_file_that_is_undone_stays(s3: MemoryStore) -> None:
    """I6: a neighbour writes over a file of a job that is being reverted, between HEAD and DELETE:
    its object stays."""
    job = half_completed(s3)
    at = At(s3, lambda r: deletion_of("t/a.csv", r), lambda: s3.put_object("t/a.csv", b"!"))
    mc.abort(DEST, job.id, revert=True)
    assert at.done
    assert visible(s3) == {"t/a.csv": b"!"}


def test_what_is_completed_while_it_is_undone_goes(s3: MemoryStore) -> None:
    """I3: a late Complete that lands before the revert's abort is seen by the look after it."""
    job = half_completed(s3)
    (upload,) = [u for u in s3.open_uploads() if u.key == "t/b.csv"]
    parts = tuple(s3.list_parts(upload.key, upload.upload_id))

    def completes_late(request: Request) -> None:
        if request.verb == "abort_upload" and request.key == "t/b.csv":
            s3.before = None
            s3.complete_upload("t/b.csv", upload.upload_id, parts, length=1, checksum=None)

    s3.before = completes_late
    mc.abort(DEST, job.id, revert=True)
    assert visible(s3) == {}


def test_a_revert_that_could_not_undo_all_is_done_again(s3: MemoryStore) -> None:
    """I3: a file that could not be looked at keeps the job from being called reverted."""
    job = half_completed(s3)
    s3.before = raising(lambda r: (r.verb, r.key) == ("head", "t/a.csv"), mc.StoreError("not now"))
    with pytest.raises(mc.AbortIncomplete, match="not now"):
        mc.abort(DEST, job.id, revert=True)
    s3.before = None
    assert mc.attach(DEST, job.id).state == "reverting"
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}

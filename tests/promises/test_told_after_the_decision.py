"""I10: what a decided job says when one of its last steps fails: true, and with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.errors import FormatError, PermissionDenied
from magic_committer.protocol.rules import Marker, may_replace_marker
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, committed_task, control, failing, job_of, raising, visible


def refused() -> PermissionDenied:
    """The store's answer to a key that it protects."""
    return PermissionDenied("no", operation="delete_object", status=403, attempts=1)


def test_an_old_marker_that_cannot_be_deleted_is_told_as_an_unfinished_job(
    s3: MemoryStore,
) -> None:
    """The job is decided: who gets a bare 403 would take it for a refusal that left nothing."""
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"new.csv": b"new"}, mode="replace")

    failing(s3, "delete_one", "t/_SUCCESS", refused())
    with pytest.raises(mc.CommitIncomplete, match="the old _SUCCESS could not be deleted"):
        job.commit()
    s3.before = None
    assert job.commit().outcome == "committed"
    assert set(visible(s3)) == {"t/new.csv"}


def test_lost_and_unfinished_files_are_told_apart(s3: MemoryStore) -> None:
    """Of one the upload is gone for good, of another the store only did not answer: the first takes
    an operator, the second takes time."""
    job = job_of({"gone.csv": b"1", "slow.csv": b"2"})
    gone = next(u for u in s3.open_uploads() if "gone" in u.key)
    slow = next(u.key for u in s3.open_uploads() if "slow" in u.key)

    def before(request: Request) -> None:
        if request.verb == "put" and request.key.endswith("_job.json"):
            return
        if request.verb == "complete_upload" and request.key == gone.key:
            s3.abort_upload(gone.key, gone.upload_id)
        if request.verb == "complete_upload" and request.key == slow:
            raise refused()

    s3.before = before
    with pytest.raises(mc.CommitIncomplete) as raised:
        job.commit()
    s3.before = None
    told = str(raised.value)
    assert "1 file is lost (their uploads cannot be completed" in told
    assert "1 file is not completed yet" in told
    assert (raised.value.unresolved, raised.value.unfinished) == ((gone.key,), (slow,))
    with pytest.raises(mc.CommitIncomplete) as raised:
        job.commit()
    assert "not completed yet" not in str(raised.value)


def test_an_upload_that_an_operator_gave_up_and_that_stays_is_named(s3: MemoryStore) -> None:
    """I4: what is accepted as it is leaves no open upload without a word."""
    job = job_of({"a.csv": b"1"}, mode="fail")
    (upload,) = s3.open_uploads()

    s3.before = raising(lambda r: r.verb == "complete_upload", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        job.commit()
    s3.before = raising(lambda r: r.verb == "abort_upload" and r.key == upload.key, refused())
    s3.put_object(upload.key, b"theirs")
    report = mc.recover(DEST, job.id, accept=[upload.key]).report
    assert report is not None
    assert any(
        f"the upload of {upload.key} may be open still" in warning for warning in report.warnings
    )
    assert s3.body(upload.key) == b"theirs"


def test_a_file_that_was_given_up_and_comes_back_is_not_published(s3: MemoryStore) -> None:
    """I4: mode fail, a server that hides an upload, a neighbour's object at its key: the operator
    accepts the key, the server shows the upload again. It is aborted, and the report says so; the
    neighbour's object stays (seed 622548)."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"}, mode="fail")
    upload = next(one for one in s3.open_uploads() if one.key.endswith("a.csv"))

    def hidden(request: Request) -> None:
        if request.upload_id == upload.upload_id:
            if request.verb == "complete_upload" and upload.key not in s3.keys():
                s3.put_object(upload.key, b"theirs")
            raise mc.NotFound("gone", status=404, code="NoSuchUpload")

    s3.before = hidden
    with pytest.raises(mc.CommitIncomplete) as raised:
        job.commit()
    assert raised.value.unresolved == (upload.key,)
    s3.before = None
    report = mc.recover(DEST, job.id, accept=raised.value.unresolved).report
    assert report is not None
    said = "its upload was open and is aborted, so the job's file is not published"
    assert f"{upload.key} was accepted as it is: {said}" in report.warnings
    assert visible(s3) == {upload.key: b"theirs", upload.key.replace("a.csv", "b.csv"): b"2"}
    assert s3.open_uploads() == ()


def test_a_marker_that_can_never_be_written_does_not_hold_the_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: an error that is not the store's comes again each time: the job ends, with a warning."""

    def broken(*_: object, **__: object) -> str:
        raise FormatError("_SUCCESS", "filenames", "cannot be encoded")

    monkeypatch.setattr("magic_committer.commit.publish.write_marker", broken)
    job = job_of({"a.csv": b"1"})
    report = job.commit()
    assert any("_SUCCESS could not be written" in warning for warning in report.warnings)
    assert report.state == "absent"
    assert control(s3) == []


def test_a_marker_goes_by_its_time_where_the_record_names_none() -> None:
    """I8: a job that found no marker when it completed replaces an earlier one only."""
    assert may_replace_marker(Marker("e", "", 1.0, 1.0), None, completed=2.0)
    assert not may_replace_marker(Marker("e", "", 3.0, 3.0), None, completed=2.0)


def test_a_marker_that_names_fewer_files_than_it_could_is_told(s3: MemoryStore) -> None:
    """A set that cannot be read any more is no reason to leave `_SUCCESS` out, and no secret."""
    job = mc.start(DEST, job_id="j")
    task = committed_task(job, "1", {"a.csv": b"1"})

    failing(s3, "put", "t/_SUCCESS", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        job.commit()
    s3.before = None
    real = s3.get

    def garbled(key: str, **options: object) -> object:
        stored = real(key, **options)  # type: ignore[arg-type]
        return replace(stored, body=b"{}") if key == task.key else stored

    s3.get = garbled  # type: ignore[assignment, method-assign]
    report = mc.recover(DEST, "j").report
    assert report is not None
    assert any("_SUCCESS names 0 files" in warning for warning in report.warnings)
    assert "t/_SUCCESS" in s3.keys()

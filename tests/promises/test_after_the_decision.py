"""I2, I5: after the decision: what is called committed is there, and what is not is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.commit.outcome import UNREAD_AGAIN
from magic_committer.errors import InvalidRequest, PermissionDenied, Unanswered
from magic_committer.protocol.record import Marker, may_replace_marker
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    committed_task,
    control,
    dies_at,
    half_completed,
    job_of,
    raises,
    raising,
    record_of,
    refusing,
    remains,
    visible,
)

BOTH = {"t/a.csv": b"1", "t/b.csv": b"22"}


def decided(s3: MemoryStore) -> mc.Job:
    """A job whose driver died before its first Complete."""
    job = job_of({"a.csv": b"1"}, {"b.csv": b"22"})
    with refusing(s3, "complete_upload", Crash):
        raises(Crash, job.commit)
    return job


def test_accept_takes_no_file_whose_upload_is_open(s3: MemoryStore) -> None:
    """I2: a key is taken as it is if the operator named it and its upload is gone."""
    job = decided(s3)
    with refusing(s3, "complete_upload t/a.csv", Unanswered):
        raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, accept=["t/a.csv"])
        assert raised.unfinished == ("t/a.csv",)
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == BOTH
    job = decided(s3)
    for upload in s3.open_uploads():
        s3.drop_upload(upload.upload_id)
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, accept=["t/a.csv"])
    assert raised.unresolved == ("t/b.csv",)


def test_a_pendingset_that_is_gone_leaves_the_job_incomplete(s3: MemoryStore) -> None:
    """I2: a decided job of which a pendingset was deleted is never called committed."""
    job = decided(s3)
    s3.delete_one(next(key for key in control(s3) if key.endswith(".pendingset")))
    raises(mc.CommitIncomplete, mc.recover, DEST, job.id)
    assert mc.attach(DEST, job.id).state == "committing"


def test_a_failure_says_if_the_record_could_not_be_read_again(s3: MemoryStore) -> None:
    """I10: who fails at a file and cannot read the record says what it last knew."""
    job = decided(s3)

    def undo() -> None:
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
        expired = mc.PermissionDenied("its token has expired", operation="get_object")
        s3.before = raising(f"get {record_of(job)}", expired)

    At(s3, "complete_upload t/a.csv", undo)
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match=UNREAD_AGAIN)
    assert "its token has expired" in str(raised)
    s3.before = None
    assert raises(mc.JobNotRunning, mc.attach(DEST, job.id).commit).outcome == "reverted"
    assert visible(s3) == {}


def test_what_another_process_has_ended_meanwhile_is_told_as_ended(s3: MemoryStore) -> None:
    """I10: the store refuses "completed", another process ends the job: it is committed."""
    job = decided(s3)
    refused: list[str] = []

    def before(request: Request) -> None:
        if request.key == record_of(job) and (request.verb == "put" or refused):
            refused.append(request.verb)
            if request.verb == "put":
                raise InvalidRequest("not this one", status=400)
            if len(refused) == 3:  # the PUT, its read-back, and the last look
                s3.before = None
                assert mc.recover(DEST, job.id).outcome == "committed"

    s3.before = before
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert refused == ["put", "get", "get"]
    assert visible(s3) == BOTH


def test_an_old_marker_that_stays_is_told_as_an_unfinished_job(
    s3: MemoryStore,
) -> None:
    """The job is decided: who gets a bare 403 would take it for a refusal that left nothing."""
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"new.csv": b"new"}, mode="replace")
    with (
        refusing(s3, "delete_one t/_SUCCESS", PermissionDenied),
        pytest.raises(mc.CommitIncomplete, match="the old _SUCCESS could not be deleted"),
    ):
        job.commit()
    assert job.commit().outcome == "committed"
    assert set(visible(s3)) == {"t/new.csv"}


def test_lost_and_unfinished_files_are_told_apart(s3: MemoryStore) -> None:
    """A lost upload takes an operator; a store that did not answer takes time."""
    job = job_of({"gone.csv": b"1", "slow.csv": b"2"})
    (gone,) = s3.open_uploads("t/gone.csv")

    def before(request: Request) -> None:
        if request.verb == "complete_upload":
            if request.key == "t/slow.csv":
                raise PermissionDenied("no")
            s3.abort_upload(gone.key, gone.upload_id)

    s3.before = before
    raised = raises(mc.CommitIncomplete, job.commit)
    s3.before = None
    told = str(raised)
    assert "1 file is lost (their uploads cannot be completed" in told
    assert "1 file is not completed yet" in told
    assert (raised.unresolved, raised.unfinished) == (("t/gone.csv",), ("t/slow.csv",))
    assert "not completed yet" not in str(raises(mc.CommitIncomplete, job.commit))


@pytest.mark.parametrize("stays", [False, True])
def test_an_accepted_conflict_leaves_no_untold_upload(s3: MemoryStore, stays: bool) -> None:
    """I4: what is at the key is taken as it is; the job's own upload is not needed any more."""
    job = half_completed(s3, mode="fail")
    s3.put_object("t/b.csv", b"theirs")
    with refusing(s3, f"abort_upload t/{'b' if stays else '-'}.csv", PermissionDenied):
        recovery = mc.recover(DEST, job.id, accept=["t/b.csv"])
    assert recovery.report is not None
    told = "the upload of t/b.csv may be open still" in " ".join(recovery.report.warnings)
    assert (recovery.outcome, told, bool(s3.open_uploads())) == ("committed", stays, stays)
    assert stays or recovery.state == "closed"
    assert visible(s3) == {"t/a.csv": b"1", "t/b.csv": b"theirs"}


def test_a_file_that_was_given_up_and_comes_back_is_not_published(s3: MemoryStore) -> None:
    """I4: an upload that a server shows again after its key was accepted is aborted, and told."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"}, mode="fail")
    (upload,) = s3.open_uploads("t/a.csv")

    def hidden(request: Request) -> None:
        if request.upload_id == upload.upload_id:
            if request.verb == "complete_upload" and upload.key not in s3.keys():
                s3.put_object(upload.key, b"theirs")
            raise mc.NotFound("gone", status=404, code="NoSuchUpload")

    s3.before = hidden
    assert raises(mc.CommitIncomplete, job.commit).unresolved == ("t/a.csv",)
    s3.before = None
    report = mc.recover(DEST, job.id, accept=["t/a.csv"]).report
    assert report is not None
    said = "its upload was open and is aborted, so the job's file is not published"
    assert f"t/a.csv was accepted as it is: {said}" in report.warnings
    assert remains(s3)[:2] == ({"t/a.csv": b"theirs", "t/b.csv": b"2"}, [])


def test_a_marker_that_can_never_be_written_does_not_hold_the_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: an error that is not the store's comes again each time: the job ends, with a warning."""

    def broken(*_: object, **__: object) -> str:
        raise mc.FormatError("_SUCCESS", "filenames", "cannot be encoded")

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
    dies_at(s3, "put t/_SUCCESS", job.commit)
    real = s3.get

    def garbled(key: str, **options: object) -> object:
        stored = real(key, **options)  # type: ignore[arg-type]
        return replace(stored, body=b"{}") if key == task.key else stored

    s3.get = garbled  # type: ignore[assignment, method-assign]
    report = mc.recover(DEST, "j").report
    assert report is not None
    assert any("_SUCCESS names 0 files" in warning for warning in report.warnings)
    assert "t/_SUCCESS" in s3.keys()

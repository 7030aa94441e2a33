"""Files that the store will not complete: they are told apart, can be taken as they are, and their
job can be undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.errors import InvalidRequest, Unanswered
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, committed_task, control, failing, visible

FILES = {"1.csv": b"1", "2.csv": b"22"}


def refusing(key: str) -> Callable[[Request], None]:
    """The store calls each Complete of a key wrong, and keeps its upload."""

    def look(request: Request) -> None:
        if request.verb == "complete_upload" and request.key == key:
            raise InvalidRequest("the checksum is wrong", status=400, code="BadDigest")

    return look


@pytest.fixture
def job(s3: MemoryStore) -> mc.Job:
    """A job that is committed, and one of whose files the store will not complete."""
    started = mc.start(DEST)
    committed_task(started, "1", FILES)
    s3.before = refusing("t/2.csv")
    with pytest.raises(mc.CommitIncomplete):
        started.commit()
    return started


def test_a_refused_file_is_told_with_the_stores_words(s3: MemoryStore, job: mc.Job) -> None:
    """It is unresolved, for waiting does not mend it, and is no lost upload: the way out is said,
    and that a file which is taken as it is is never published."""
    with pytest.raises(mc.CommitIncomplete, match="the checksum is wrong") as raised:
        mc.recover(DEST, job.id)
    error = raised.value
    assert (error.unresolved, error.refused, error.unfinished) == (("t/2.csv",), ("t/2.csv",), ())
    assert "refused by the store" in error.message
    assert "never published" in error.hint
    assert "Somebody aborted" not in error.hint
    assert "accept=['t/2.csv']" in error.hint
    assert "revert=True" in error.hint


def test_a_refused_file_that_is_accepted_ends_the_job(s3: MemoryStore, job: mc.Job) -> None:
    """Its upload is aborted, all others are visible, and the report says that it is not."""
    done = mc.recover(DEST, job.id, accept=["t/2.csv"])
    assert (done.outcome, done.state) == ("committed", "closed")
    assert done.report is not None
    (told,) = (warning for warning in done.report.warnings if "t/2.csv" in warning)
    assert "not published" in told
    assert visible(s3) == {"t/1.csv": b"1"}
    assert not s3.open_uploads()


def test_an_accepted_file_is_not_called_unpublished_unseen(s3: MemoryStore, job: mc.Job) -> None:
    """Where the store does not tell what is there after the abort, the report says just that."""
    s3.after = lambda request, _: (
        failing(s3, "head", "t/2.csv", Unanswered("no answer"))
        if request.verb == "abort_upload"
        else None
    )
    done = mc.recover(DEST, job.id, accept=["t/2.csv"])
    assert done.state == "closed"
    assert done.report is not None
    told = [warning for warning in done.report.warnings if "t/2.csv" in warning]
    assert not any("not published" in warning for warning in told)
    assert any("cannot be told: no answer" in warning for warning in told)
    assert not s3.open_uploads()


def test_a_job_with_a_refused_file_can_be_undone(s3: MemoryStore, job: mc.Job) -> None:
    """Nothing of it stays visible, and nothing open."""
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert not visible(s3)
    assert not s3.open_uploads()
    assert len(control(s3)) == 1


def test_a_refused_file_is_finished_once_the_cause_is_mended(s3: MemoryStore, job: mc.Job) -> None:
    """Nothing was given up by itself: the next recover completes it."""
    s3.before = None
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == {"t/1.csv": b"1", "t/2.csv": b"22"}


def test_a_lost_file_beside_a_refused_one_is_told_apart(s3: MemoryStore, job: mc.Job) -> None:
    """Of both the keys are unresolved; one is refused, the other one's upload is gone."""
    s3.delete_object("t/1.csv")
    with pytest.raises(mc.CommitIncomplete) as raised:
        mc.recover(DEST, job.id)
    assert set(raised.value.unresolved) == {"t/1.csv", "t/2.csv"}
    assert raised.value.refused == ("t/2.csv",)
    assert "Somebody aborted" in raised.value.hint
    assert "will not complete" in raised.value.hint

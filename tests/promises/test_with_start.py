"""``with mc.start(...) as job:`` ends the job, whichever way the block is left."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer.errors import NotSupported, Unanswered
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, control, raises, raising, visible

A = {"a.csv": b"1"}
SEEN = {"t/a.csv": b"1"}


@pytest.mark.parametrize("error", [None, ValueError("later")])
def test_a_block_that_commits_is_left_alone(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    """I2: also by an exception, which gets no note; nothing is sent, and nothing is warned of."""
    with caplog.at_level(logging.WARNING), suppress(ValueError), mc.start(DEST) as job:
        report = job.commit([committed_task(job, "1", A)])
        s3.requests.clear()
        if error is not None:
            raise error
    assert (job.report, s3.requests.total(), visible(s3)) == (report, 0, SEEN)
    assert (caplog.text, hasattr(error, "__notes__")) == ("", False)


@pytest.mark.parametrize("on_purpose", [False, True])
def test_a_block_without_a_commit_aborts(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, on_purpose: bool
) -> None:
    """I3: nothing stays open, nothing is raised, and the log warns, unless it was on purpose."""
    with caplog.at_level(logging.WARNING), mc.start(DEST) as job:
        committed_task(job, "1", A)
        if on_purpose:
            job.abort()
    assert (job.outcome, visible(s3), control(s3), s3.open_uploads()) == ("aborted", {}, [], ())
    assert ("left without a commit" in caplog.text) is not on_purpose
    assert on_purpose is not bool(caplog.text)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_aborts_and_goes_on(s3: MemoryStore, error: type[BaseException]) -> None:
    """I3: the caller gets the exception, the job is aborted, its report says why."""
    with pytest.raises(error) as raised, mc.start(DEST) as job:
        committed_task(job, "1", A)
        raise error("boom")
    assert (job.outcome, visible(s3), s3.open_uploads()) == ("aborted", {}, ())
    assert job.report.error == f"{error.__name__}: boom"
    assert len(getattr(raised.value, "__notes__", [])) == (0 if error is ValueError else 1)


NO_COMPLETES = raising("complete_upload", Unanswered("no answer"))
SILENT = raising(lambda _: True, Unanswered("no answer"))


@pytest.mark.parametrize("caught", [False, True])
def test_a_commit_that_is_incomplete_is_never_aborted(
    s3: MemoryStore, caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: after `CommitIncomplete` no abort is tried, whether the block sees the error or not."""
    aborts: list[mc.Job] = []
    monkeypatch.setattr(mc.Job, "abort", aborts.append)
    with suppress(mc.CommitIncomplete), mc.start(DEST) as job:
        result = committed_task(job, "1", A)
        s3.before = NO_COMPLETES
        raised = raises(mc.CommitIncomplete, job.commit, [result])
        if not caught:
            raise raised
    assert (job.outcome, aborts) == ("committed", [])
    s3.before = None
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == SEEN


def test_the_incomplete_commit_of_another_job_aborts_this_one(s3: MemoryStore) -> None:
    """I3: the exception of a job inside the block says nothing of the block's own."""
    with pytest.raises(mc.CommitIncomplete), mc.start(DEST) as job:
        other = mc.start(DEST)
        result = committed_task(other, "1", A)
        s3.before = NO_COMPLETES
        other.commit([result])
    assert (job.outcome, mc.attach(DEST, other.id).outcome) == ("aborted", "committed")


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("outcome", ["committed", "aborted"])
def test_a_job_that_another_process_ended_stays_so(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, outcome: str, raises: bool
) -> None:
    """I2, I5, I10: nothing is raised or warned of; an exception gets a note if it is committed."""
    boom = ValueError("boom")
    with caplog.at_level(logging.WARNING), suppress(ValueError), mc.start(DEST, job_id="1") as job:
        committed_task(job, "1", A)
        mc.attach(DEST, "1").commit() if outcome == "committed" else mc.abort(DEST, "1")
        if raises:
            raise boom
    assert (job.outcome, job.state) == (outcome, "closed")
    assert visible(s3) == (SEEN if outcome == "committed" else {})
    if outcome == "committed":
        assert (job.report.error, caplog.text) == ("ValueError: boom" if raises else "", "")
        assert ["committed all the same" in note for note in getattr(boom, "__notes__", [])] == (
            [True] * raises
        )


def test_a_job_of_which_nothing_is_left_to_tell_is_unknown(s3: MemoryStore) -> None:
    """I10: its record is gone, no marker tells: leaving normally says that it cannot be told."""
    with pytest.raises(mc.OutcomeUnknown), mc.start(DEST, mark_success=False) as job:
        s3.delete_object(f"t/__magic_job-{job.id}/_job.json")
    assert job.outcome == ""


@pytest.mark.parametrize("boom", [False, True])
def test_an_abort_that_fails_is_raised_where_nothing_else_is(s3: MemoryStore, boom: bool) -> None:
    """I10: nobody is told "aborted"; the caller's exception goes on, and says how it is ended."""
    expected = ValueError if boom else (mc.OutcomeUnknown, mc.StoreError)
    with pytest.raises(expected) as raised, mc.start(DEST, job_id="1") as job:
        s3.before = SILENT
        if boom:
            raise ValueError("boom")
    s3.before = None
    assert (job.outcome, mc.attach(DEST, "1").state) == ("", "running")
    notes = " ".join(getattr(raised.value, "__notes__", []))
    assert not boom or "magic_committer.abort('s3://bucket/t/', '1')" in notes


@pytest.mark.parametrize("other", ["attached", "pickled", "by JSON", "of write"])
def test_a_handle_that_did_not_start_the_job_has_no_block(s3: MemoryStore, other: str) -> None:
    """A worker's ``with job:`` does not abort what others do, nor does ``with write(...).job``."""
    with mc.write(DEST) as writing:
        job = mc.start(DEST)
        ways: dict[str, Callable[[], mc.Job]] = {
            "attached": lambda: mc.attach(DEST, job.id),
            "pickled": lambda: pickle.loads(pickle.dumps(job)),
            "by JSON": lambda: mc.Job.from_dict(job.to_dict()),
            "of write": lambda: writing.job,
        }
        handle = ways[other]()
        raises(mc.MagicError, handle.__enter__, match="has not started")
        assert (handle.state, job.state) == ("running", "running")


def test_a_block_is_entered_once(s3: MemoryStore) -> None:
    """A second ``with`` of one handle is refused, inside the first and after it."""
    with mc.start(DEST) as job:
        raises(mc.MagicError, job.__enter__, match="once")
        job.commit(expect=0)
    raises(mc.MagicError, job.__enter__, match="once")


def test_a_job_in_its_block_is_kept_alive(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is silent for a day inside its block is not taken for dead."""
    ends: list[str] = []

    def keep_alive(job: mc.Job) -> Callable[[], None]:
        ends.append("begun")
        return lambda: ends.append("ended")

    monkeypatch.setattr(mc.Job, "keep_alive", keep_alive)
    with mc.start(DEST) as job:
        job.commit(expect=0)
        assert ends == ["begun"]
    assert ends == ["begun", "ended"]


def test_a_refused_start_leaves_no_live_job(s3: MemoryStore) -> None:
    """I4: the record cannot be deleted conditionally: it is closed, and shuts nobody out."""
    s3.put_object("t/old.csv", b"old")
    s3.before = raising(lambda r: r.verb == "delete_one" and r.if_match is not None, NotSupported)
    raises(mc.DestinationExists, mc.start, DEST, mode="fail")
    assert [found.state for found in mc.inspect(DEST)] == ["closed"]

"""I10: what a caller is told is true, whatever answers one request gets and when it lands."""

from __future__ import annotations

from itertools import count

import pytest

import magic_committer as mc
from magic_committer.errors import InvalidRequest, Unanswered, WriteConflict
from magic_committer.options import Mode
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    Fits,
    Nth,
    committed_task,
    failing,
    fitting,
    job_of,
    raises,
    raising,
    visible,
)
from tests.promises.machine import matching


def expired(attempts: int = 1) -> mc.PermissionDenied:
    """S3's answer to a token that has run out."""
    return mc.PermissionDenied("the token is expired", status=403, code="ExpiredToken",
                            attempts=attempts)  # fmt: skip


class Swallowed:
    """The first of some requests gets no answer, and may land later; the others are refused."""

    def __init__(self, store: MemoryStore, fits: Fits, *, within: bool) -> None:
        """``within``: the adapter has sent it twice by itself: one error, after two attempts."""
        fits = fitting(fits)
        self.requests: list[Request] = []

        def look(request: Request) -> None:
            if fits(request):
                self.requests.append(request)
                if len(self.requests) == 1:
                    raise expired(attempts=2) if within else Unanswered("no answer")
                raise expired()

        store.before = look


BUSY = WriteConflict("busy", status=409)


def swap(request: Request) -> bool:
    return request.verb == "put" and request.key.endswith("_job.json") and bool(request.if_match)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_refusal_after_no_answer_is_unknown(s3: MemoryStore, verb: str, within: bool) -> None:
    """I10: the first sending may land after the second was refused: "not decided" is not said."""
    job = job_of({"a.csv": b"1"})
    late = Swallowed(s3, swap, within=within)
    with pytest.raises(mc.OutcomeUnknown):
        job.commit() if verb == "commit" else job.abort()
    assert len(late.requests) > 1  # the case was met: a refusal that came after
    late.requests[0].effect()
    s3.before = None
    found = mc.attach(DEST, job.id)
    assert found.state == ("committing" if verb == "commit" else "aborting")
    mc.recover(DEST, job.id)
    assert set(visible(s3)) == ({"t/a.csv"} if verb == "commit" else set())


@pytest.mark.parametrize("within", [False, True])
def test_a_refusal_after_an_unanswered_setup_is_unknown(s3: MemoryStore, within: bool) -> None:
    """I10: the record may appear after the refusal: nobody says that there is none."""
    late = Swallowed(s3, "put *_job.json", within=within)
    raises(mc.OutcomeUnknown, mc.start, DEST)
    late.requests[0].effect()
    s3.before = None
    assert matching(s3, "*_job.json")


@pytest.mark.parametrize("error", [expired(), BUSY])
def test_a_failure_afterwards_undecides_nothing(s3: MemoryStore, error: mc.StoreError) -> None:
    """I10: each is `CommitIncomplete`, or a warning of a committed job, at any request."""

    def one(moment: int) -> bool:
        """Fail at one request after the decision; False if there are not so many."""
        failed: list[At] = []
        job = job_of({f"{moment}.csv": b"1"})
        At(s3, swap, lambda: failed.append(At(s3, Nth(moment), error)))
        try:
            assert job.commit().outcome == "committed"
        except mc.CommitIncomplete:
            assert job.outcome == "committed"
        s3.before = None
        mc.recover(DEST, job.id)
        assert f"t/{moment}.csv" in visible(s3)
        return failed[0].done

    assert next(number for number in count(1) if not one(number)) > 6


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    ("verb", "key", "error"),
    [
        ("delete_one", "t/old.csv", expired()),
        ("delete_one", "t/old.csv", BUSY),
        ("put", "t/_SUCCESS", expired()),
        ("put", "t/_SUCCESS", InvalidRequest("no", status=400)),
    ],
)
def test_what_a_replace_could_not_do_is_told_and_may_be_taken_as_it_is(
    s3: MemoryStore, verb: str, key: str, error: mc.StoreError, accepted: bool
) -> None:
    """I5, I8, I10: who finishes the job deletes the old file, or writes the marker anew."""
    for old in ("t/old.csv", "t/_SUCCESS"):
        s3.put_object(old, b"old")
    job = job_of({"new.csv": b"new"}, mode="replace")

    failing(s3, verb, key, error)
    raised = raises(mc.CommitIncomplete, job.commit)
    assert (raised.state, raised.outstanding) == ("completed", (key,))
    assert f"recover('s3://bucket/t/', {job.id!r}, accept=[{key!r}])" in str(raised)
    assert (job.state, job.outcome) == ("completed", "committed")
    assert ("t/old.csv" in s3.keys(), "t/_SUCCESS" in s3.keys()) == (verb != "put", False)
    if not accepted:
        s3.before = None
    recovery = mc.recover(DEST, job.id, accept=[key] if accepted else ())
    assert recovery.state == "closed"
    assert recovery.report is not None
    assert (f"{key} was accepted as it is" in recovery.report.warnings) is accepted
    assert ("t/old.csv" in visible(s3)) is (accepted and verb != "put")
    marked = "t/_SUCCESS" in s3.keys() and b"magic-committer" in s3.body("t/_SUCCESS")
    assert marked is not (accepted and verb == "put")


def test_a_generator_that_an_earlier_call_has_used_up_commits_nothing(s3: MemoryStore) -> None:
    """I10: one 503, then "call it again" with the same generator: the table is not emptied."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode="replace")
    done = [committed_task(job, "1", {"a.csv": b"1"})]
    results = (result for result in done)

    At(s3, "list_uploads", Unanswered("slow down", status=503))
    raises(mc.StoreError, job.commit, results)
    raises(mc.OptionError, job.commit, results, match="list")
    raises(mc.IncompleteJob, job.commit, iter(()), match=r"commit\(results=\[\], expect=0\)")
    assert set(visible(s3)) == {"t/old.csv"}
    assert job.commit(done).files == 1
    assert set(visible(s3)) == {"t/a.csv"}


def test_a_decided_job_is_finished_whatever_results_are_passed(s3: MemoryStore) -> None:
    """I10: the first call could not tell; the second has a used-up generator, and commits."""
    job = mc.start(DEST)
    results = iter([committed_task(job, "1", {"a.csv": b"1"})])

    def lose() -> None:
        s3.before = raising("*", expired())
        raise Unanswered("no answer")

    At(s3, swap, lose, after=True)
    raises(mc.OutcomeUnknown, job.commit, results)
    s3.before = s3.after = None
    assert job.commit(results).outcome == "committed"
    assert set(visible(s3)) == {"t/a.csv"}


@pytest.mark.parametrize("mode", ["append", "replace", "replace_partitions"])
def test_a_job_without_a_task_is_not_committed_by_accident(s3: MemoryStore, mode: Mode) -> None:
    """I10: the only task was killed, or never committed: nothing is decided, nothing is emptied."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode=mode)
    with job.task("1").open("a.csv") as f:
        f.write(b"1")
    raised = raises(mc.IncompleteJob, job.commit)
    assert "task.commit()" in str(raised)
    assert mc.attach(DEST, job.id).state == "running"
    assert set(visible(s3)) == {"t/old.csv"}


def test_a_job_that_is_said_to_be_empty_is_committed_and_says_so(s3: MemoryStore) -> None:
    """``expect=0`` is the caller's word; what it emptied is told."""
    s3.put_object("t/old.csv", b"old")
    report = mc.start(DEST, mode="replace").commit(expect=0)
    assert (report.outcome, report.files, visible(s3)) == ("committed", 0, {})
    assert report.warnings == ("the job published no file, and deleted what was there: 1 file",)


@pytest.mark.parametrize("wrong", [{"files": 1}, {"bytes": 1}])
def test_a_result_of_files_without_a_set_is_refused(s3: MemoryStore, wrong: dict[str, int]) -> None:
    """I2: its file would be dropped without a word."""
    job = mc.start(DEST)
    result = TaskCommit.from_dict({**TaskCommit(job.uuid, "1", "a").to_dict(), **wrong})
    raises(mc.OptionError, job.commit, [result], match="key is empty")
    assert mc.attach(DEST, job.id).state == "running"


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("job_id", [None, "j"])
def test_an_interrupted_start_leaves_no_live_job(
    s3: MemoryStore, job_id: str | None, landed: bool
) -> None:
    """I4: Ctrl-C at the record's PUT: the next ``replace`` is not told that a job lives."""
    At(s3, "put *_job.json", KeyboardInterrupt(), after=landed)
    raised = raises(KeyboardInterrupt, mc.start, DEST, mode="replace", job_id=job_id)
    assert any("magic_committer.abort('s3://bucket/t/'" in n for n in raised.__notes__)
    assert all(found.state == "closed" for found in mc.inspect(DEST))
    mc.start(DEST, mode="replace").abort()


@pytest.fixture
def refused(s3: MemoryStore) -> mc.Job:
    """A committed job, one of whose files the store calls wrong, and keeps the upload."""
    job = job_of({"1.csv": b"1", "2.csv": b"22"})
    wrong = InvalidRequest("the checksum is wrong", status=400, code="BadDigest")
    failing(s3, "complete_upload", "t/2.csv", wrong)
    raises(mc.CommitIncomplete, job.commit)
    return job


@pytest.mark.parametrize("lost", [False, True])
def test_a_refused_file_is_told_by_its_error(s3: MemoryStore, refused: mc.Job, lost: bool) -> None:
    """Waiting does not mend it, and it is no lost upload: the ways out are said."""
    if lost:
        s3.delete_object("t/1.csv")
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, refused.id, match="refused by the store")
    error = raised
    assert lost or "the checksum is wrong" in error.message
    assert set(error.unresolved) == {"t/2.csv"} | ({"t/1.csv"} if lost else set())
    assert (error.refused, error.unfinished) == (("t/2.csv",), ())
    assert "never published" in error.hint
    assert ("Somebody aborted" in error.hint) is lost
    assert "revert=True" in error.hint


@pytest.mark.parametrize("seen", [True, False])
def test_an_accepted_file_is_unpublished(s3: MemoryStore, refused: mc.Job, seen: bool) -> None:
    """Where the store does not tell what is there after the abort, the report says just that."""
    unread = lambda: failing(s3, "head", "t/2.csv", Unanswered("no answer"))  # noqa: E731
    At(s3, "abort_upload" if not seen else "none", unread, after=True)
    done = mc.recover(DEST, refused.id, accept=["t/2.csv"])
    assert (done.outcome, done.state) == ("committed", "closed")
    assert done.report is not None
    told = " ".join(warning for warning in done.report.warnings if "t/2.csv" in warning)
    assert ("not published" in told, "cannot be told: no answer" in told) == (seen, not seen)
    assert visible(s3) == {"t/1.csv": b"1"}
    assert not s3.open_uploads()

"""I10: what a caller is told is true, whatever answers one request gets and when it lands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import InvalidRequest, Unanswered, WriteConflict
from magic_committer.options import Mode
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, committed_task, control, failing, job_of, visible


def expired(attempts: int = 1) -> mc.PermissionDenied:
    """S3's answer to a token that has run out."""
    return mc.PermissionDenied("the token is expired", status=403, code="ExpiredToken",
                            attempts=attempts)  # fmt: skip


class Swallowed:
    """The first of some requests gets no answer, and lands when the test says so; those after it
    are refused."""

    def __init__(
        self, store: MemoryStore, fits: Callable[[Request], bool], *, within: bool
    ) -> None:
        """``within``: the adapter has sent it twice by itself: one error, after two attempts."""
        self._fits = fits
        self._within = within
        self.under_way: Request | None = None
        self.refused = 0
        store.before = self._look

    def _look(self, request: Request) -> None:
        if not self._fits(request):
            return
        if self.under_way is None:
            self.under_way = request
            if self._within:
                raise expired(attempts=2)
            raise Unanswered("no answer")
        self.refused += 1
        raise expired()

    def land(self) -> None:
        assert self.under_way is not None
        self.under_way.effect()


def swap(request: Request) -> bool:
    return request.verb == "put" and request.key.endswith("_job.json") and bool(request.if_match)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_refusal_after_an_unanswered_decision_is_unknown(
    s3: MemoryStore, verb: str, within: bool
) -> None:
    """I10: the first sending may land after the second was refused: "not decided" is not said."""
    job = job_of({"a.csv": b"1"})
    late = Swallowed(s3, swap, within=within)
    with pytest.raises(mc.OutcomeUnknown):
        job.commit() if verb == "commit" else job.abort()
    assert late.refused  # the case was met: a refusal that came after
    late.land()
    s3.before = None
    found = mc.attach(DEST, job.id)
    assert found.state == ("committing" if verb == "commit" else "aborting")
    mc.recover(DEST, job.id)
    assert set(visible(s3)) == ({"t/a.csv"} if verb == "commit" else set())


@pytest.mark.parametrize("within", [False, True])
def test_a_refusal_after_an_unanswered_setup_is_unknown(s3: MemoryStore, within: bool) -> None:
    """I10: the record may appear after the refusal: nobody says that there is none."""
    create = lambda r: r.verb == "put" and r.key.endswith("_job.json")  # noqa: E731
    late = Swallowed(s3, create, within=within)
    with pytest.raises(mc.OutcomeUnknown):
        mc.start(DEST)
    late.land()
    s3.before = None
    assert [key for key in control(s3) if key.endswith("_job.json")]


@pytest.mark.parametrize("status", [403, 409])
def test_a_store_that_fails_after_the_decision_never_says_that_nothing_was_decided(
    s3: MemoryStore, status: int
) -> None:
    """I10: from the deciding swap on every failure of any request is `CommitIncomplete`, or a
    warning of a committed job."""
    error: mc.StoreError = expired() if status == 403 else WriteConflict("busy", status=409)
    whole = 0

    def one(moment: int) -> bool:
        """Fail at one request after the decision; False if there are not so many."""
        job = job_of({f"{moment}.csv": b"1"})
        decided, seen = False, -1

        def before(request: Request) -> None:
            nonlocal decided, seen
            if decided:
                seen += 1
                if seen == moment:
                    raise error
            decided = decided or swap(request)

        s3.before = before
        try:
            assert job.commit().outcome == "committed"
        except mc.CommitIncomplete:
            assert job.outcome == "committed"
        s3.before = None
        mc.recover(DEST, job.id)
        assert f"t/{moment}.csv" in visible(s3)
        return seen >= moment

    while one(whole):
        whole += 1
    assert whole > 5


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("error", [expired(), WriteConflict("busy", status=409)])
def test_a_replaced_file_that_cannot_be_deleted_is_told(
    s3: MemoryStore, error: mc.StoreError, accepted: bool
) -> None:
    """I10: nobody is told "committed" while old data stays; who finishes the job deletes it. I5:
    one that can never be deleted (Object Lock) may be taken as it is."""
    s3.put_object("t/old.csv", b"old")
    job = job_of({"new.csv": b"new"}, mode="replace")

    failing(s3, "delete_one", "t/old.csv", error)
    with pytest.raises(mc.CommitIncomplete, match=r"t/old\.csv") as raised:
        job.commit()
    assert (raised.value.state, raised.value.outstanding) == ("completed", ("t/old.csv",))
    assert f"recover('s3://bucket/t/', {job.id!r}, accept=['t/old.csv'])" in str(raised.value)
    assert (job.state, job.outcome) == ("completed", "committed")
    assert set(visible(s3)) == {"t/old.csv", "t/new.csv"}
    if not accepted:
        s3.before = None
    recovery = mc.recover(DEST, job.id, accept=["t/old.csv"] if accepted else ())
    assert recovery.state == "closed"
    assert recovery.report is not None
    assert ("t/old.csv was accepted as it is" in recovery.report.warnings) is accepted
    assert ("t/old.csv" in visible(s3)) is accepted


@pytest.mark.parametrize("error", [expired(), InvalidRequest("no", status=400)])
def test_a_marker_that_was_taken_away_comes_back(s3: MemoryStore, error: mc.StoreError) -> None:
    """I8: ``replace`` has deleted the old `_SUCCESS`; one refusal at the new one leaves the job to
    be finished, and who finishes it writes it."""
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"new.csv": b"new"}, mode="replace")

    At(s3, "put t/_SUCCESS", error)
    with pytest.raises(mc.CommitIncomplete, match="_SUCCESS"):
        job.commit()
    assert "t/_SUCCESS" not in s3.keys()
    assert job.commit().outcome == "committed"
    assert b"magic-committer" in s3.body("t/_SUCCESS")


def test_a_generator_that_an_earlier_call_has_used_up_commits_nothing(s3: MemoryStore) -> None:
    """I10: one 503, then "call it again" with the same generator: the table is not emptied."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode="replace")
    done = [committed_task(job, "1", {"a.csv": b"1"})]
    results = (result for result in done)

    At(s3, "list_uploads", Unanswered("slow down", status=503))
    with pytest.raises(mc.StoreError):
        job.commit(results)
    with pytest.raises(mc.OptionError, match="list"):
        job.commit(results)
    with pytest.raises(mc.IncompleteJob, match=r"commit\(results=\[\], expect=0\)"):
        job.commit(iter(()))
    assert set(visible(s3)) == {"t/old.csv"}
    assert job.commit(done).files == 1
    assert set(visible(s3)) == {"t/a.csv"}


def test_what_an_iterator_left_after_an_error_is_not_the_whole_job(s3: MemoryStore) -> None:
    """I2: a pool's iterator raises for one task: the rest of it is a part of the job."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode="replace", accept="results")
    done = [committed_task(job, name, {f"{name}.csv": b"1"}) for name in ("0", "2")]

    class Results:
        """As ``multiprocessing.Pool.imap`` gives them: one fails, and it goes on."""

        def __init__(self) -> None:
            self._items: Iterator[Any] = iter([done[0], ValueError("task 1 failed"), done[1]])

        def __iter__(self) -> Results:
            return self

        def __next__(self) -> TaskCommit:
            item = next(self._items)
            if not isinstance(item, TaskCommit):
                raise item
            return item

    results = Results()
    with pytest.raises(ValueError, match="task 1"):
        job.commit(results)
    with pytest.raises(mc.OptionError, match="gives them once"):
        job.commit(results)
    assert set(visible(s3)) == {"t/old.csv"}
    assert mc.attach(DEST, job.id).state == "running"


def test_a_decided_job_is_finished_whatever_results_are_passed(s3: MemoryStore) -> None:
    """I10: the first call could not tell that it decided; the second has the used-up generator, and
    nobody says that nothing was decided."""
    job = mc.start(DEST)
    results = iter([committed_task(job, "1", {"a.csv": b"1"})])

    lost = False

    def lose(request: Request, reply: object) -> None:
        nonlocal lost
        if swap(request):
            lost = True
            raise Unanswered("no answer")

    def refuse(request: Request) -> None:
        if lost:
            raise expired()

    s3.after, s3.before = lose, refuse
    with pytest.raises(mc.OutcomeUnknown):
        job.commit(results)
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
    with pytest.raises(mc.IncompleteJob) as raised:
        job.commit()
    assert "task.commit()" in str(raised.value)
    assert mc.attach(DEST, job.id).state == "running"
    assert set(visible(s3)) == {"t/old.csv"}


def test_a_job_that_is_said_to_be_empty_is_committed_and_says_so(s3: MemoryStore) -> None:
    """``expect=0`` is the caller's word; what it emptied is told."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode="replace")
    report = job.commit(expect=0)
    assert (report.outcome, report.files) == ("committed", 0)
    assert report.warnings == ("the job published no file, and deleted what was there: 1 file",)
    assert visible(s3) == {}


@pytest.mark.parametrize("wrong", [{"files": 1}, {"bytes": 1}])
def test_a_result_that_names_no_pendingset_but_files_is_refused(
    s3: MemoryStore, wrong: dict[str, int]
) -> None:
    """I2: its file would be dropped without a word."""
    job = mc.start(DEST)
    result = TaskCommit.from_dict({**TaskCommit(job.uuid, "1", "a").to_dict(), **wrong})
    with pytest.raises(mc.OptionError, match="key is empty"):
        job.commit([result])
    assert mc.attach(DEST, job.id).state == "running"


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("job_id", [None, "j"])
def test_a_start_that_was_interrupted_leaves_no_live_job(
    s3: MemoryStore, job_id: str | None, landed: bool
) -> None:
    """I4: Ctrl-C at the record's PUT: the next ``replace`` is not told that a job lives."""

    def interrupt(request: Request, *_: object) -> None:
        if request.verb == "put" and request.key.endswith("_job.json"):
            s3.before = s3.after = None
            raise KeyboardInterrupt

    if landed:
        s3.after = interrupt
    else:
        s3.before = interrupt
    with pytest.raises(KeyboardInterrupt) as raised:
        mc.start(DEST, mode="replace", job_id=job_id)
    assert any("magic_committer.abort('s3://bucket/t/'" in n for n in raised.value.__notes__)
    assert all(found.state == "closed" for found in mc.inspect(DEST))
    mc.start(DEST, mode="replace").abort()

"""Rules that a reviewer could take away without any test failing: each has a test that fails."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.closed import forget_some
from magic_committer.errors import PermissionDenied, Unanswered, WriteConflict
from magic_committer.options import Mode
from magic_committer.protocol.record import JobRecord, State, Terms
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import DEST, At, committed_task, control, visible

SUCCESS = "t/_SUCCESS"


@pytest.fixture
def runtime(s3: MemoryStore) -> Runtime:
    """One process without threads of its own."""
    return Runtime(s3, pool=ThreadPool(0), clock=PatientClock())


def plans(store: MemoryStore) -> list[str]:
    """Keys of the plans that are stored."""
    return [key for key in control(store) if "/_plan-" in key]


# Announce, look, list -----------------------------------------------------------------------------


def test_a_job_that_ends_between_the_listing_and_the_look_is_not_missed(s3: MemoryStore) -> None:
    """I6: of two jobs of one partition one decides while the other is about to look at the plans:
    the other, which looks before it lists, finds its data and is refused."""
    at_decision, may_decide, has_ended = (threading.Event() for _ in range(3))
    first, second = (mc.start(DEST, mode="fail_partitions") for _ in range(2))
    committed_task(first, "1", {"p=1/first.csv": b"1"})
    committed_task(second, "1", {"p=1/second.csv": b"2"})

    def commit(job: mc.Job) -> str:
        try:
            return job.commit().outcome
        except mc.DestinationExists:
            return "refused"
        finally:
            if job is second:
                has_ended.set()

    def before(request: Request) -> None:
        name = threading.current_thread().name
        decides = request.verb == "put" and request.key.endswith("_job.json")
        if name.startswith("second") and decides and not at_decision.is_set():
            at_decision.set()  # it has announced, looked and listed
            assert may_decide.wait(300)
        looks = (request.verb, request.key) == ("list", "t/__magic_job-")
        if name.startswith("first") and looks and not may_decide.is_set():
            may_decide.set()
            assert has_ended.wait(300)

    s3.before = before
    with (
        ThreadPoolExecutor(1, "second") as one,
        ThreadPoolExecutor(1, "first") as other,
    ):
        seconds = one.submit(commit, second)
        assert at_decision.wait(300)
        firsts = other.submit(commit, first)
        assert (firsts.result(300), seconds.result(300)) == ("refused", "committed")
    s3.before = None
    assert visible(s3) == {"t/p=1/second.csv": b"2"}


@pytest.mark.parametrize("refused", [True, False])
def test_an_announcement_that_lands_after_an_abort_is_taken_back(
    s3: MemoryStore, refused: bool
) -> None:
    """I4: another process has aborted and swept the job by the time that its announcement is
    stored: the driver, refused or beaten, leaves no plan behind."""
    if refused:
        s3.put_object("t/p=1/old.csv", b"old")
    job = mc.start(DEST, mode="fail_partitions")
    committed_task(job, "1", {"p=1/a.csv": b"a"})
    at = At(
        s3,
        lambda r: r.verb == "put" and "/_plan-" in r.key,
        lambda: mc.abort(DEST, job.id),
    )
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    assert at.done
    assert plans(s3) == []
    assert s3.open_uploads() == ()


# List, look, list again ---------------------------------------------------------------------------


def test_an_append_that_rewrites_one_key_and_adds_another_is_not_halved(s3: MemoryStore) -> None:
    """I2: a replace has listed the old object of a key that an append then rewrites in place, and
    lists the file that it adds: both stay or both go."""
    s3.put_object("t/a.csv", b"old")
    s3.put_object("t/d=1/old.csv", b"old")
    append = mc.start(DEST)
    committed_task(append, "1", {"a.csv": b"appended", "d=1/b.csv": b"appended"})
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    at = At(s3, lambda r: r.verb == "list" and r.key == "t/d=1/", append.commit)
    assert replace.commit().outcome == "committed"
    assert at.done
    there = visible(s3)
    assert there.pop("t/r.csv") == b"r"
    assert there in ({}, {"t/a.csv": b"appended", "t/d=1/b.csv": b"appended"})


def test_a_replace_lists_as_often_as_appends_end_while_it_lists(s3: MemoryStore) -> None:
    """I2: of two appends one ends in the first listing of a replace and one in the next: neither is
    deleted by half."""
    s3.put_object("t/d=1/old.csv", b"old")
    appends = []
    for name in ("a", "b"):
        append = mc.start(DEST)
        committed_task(append, "1", {f"{name}.csv": b"1", f"d=1/{name}.csv": b"1"})
        appends.append(append)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    roots = 0

    def before(request: Request) -> None:
        nonlocal roots
        roots += (request.verb, request.key) == ("list", "t/")
        # The second listing of a round ends at the first file that is new.
        due = appends and roots == 5 - 2 * len(appends)
        if due and (request.verb, request.key) == ("list", "t/d=1/"):
            appends.pop(0).commit()

    s3.before = before
    assert replace.commit().outcome == "committed"
    s3.before = None
    assert appends == []
    there = set(visible(s3)) - {"t/r.csv"}
    for name in ("a", "b"):
        assert len(there & {f"t/{name}.csv", f"t/d=1/{name}.csv"}) in (0, 2), there


# After the decision -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["the decision", "the decision, unheard", "completed"])
def test_a_driver_whose_job_is_gone_and_who_cannot_read_the_marker_knows_nothing(
    s3: MemoryStore, at: str
) -> None:
    """I10: a decided job was finished by another process, its record was cleaned away, and the
    marker gives no answer: unknown (it may have been undone), and never "nothing decided"."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a"})
    record = f"t/__magic_job-{job.id}/_job.json"
    swaps = 0

    def finished(request: Request) -> None:
        s3.before = s3.after = None
        assert mc.recover(DEST, job.id, dead_after=0).outcome == "committed"
        s3.delete_object(record)
        s3.before = silent

    def before(request: Request) -> None:
        nonlocal swaps
        if request.verb == "put" and request.key == record:
            swaps += 1
            if swaps == 2 and at == "completed":
                finished(request)

    def after(request: Request, answer: object) -> None:
        if at != "completed" and request.verb == "put" and request.key == record:
            finished(request)
            if at == "the decision, unheard":
                raise Unanswered("the answer to the decision is lost")

    def silent(request: Request) -> None:
        if (request.verb, request.key) == ("get", SUCCESS):
            raise Unanswered("no answer")

    s3.before, s3.after = before, after
    with pytest.raises(mc.OutcomeUnknown):
        job.commit()
    s3.before = None
    assert swaps == (2 if at == "completed" else 1)
    assert visible(s3) == {"t/a.csv": b"a"}


def test_a_marker_that_may_not_be_written_is_accepted_by_its_key(s3: MemoryStore) -> None:
    """I8: a replace has deleted the old `_SUCCESS` and may not write its own: with that key in
    ``accept`` the job is finished without it, and says so."""
    s3.put_object(SUCCESS, b"")
    job = mc.start(DEST, mode="replace")
    committed_task(job, "1", {"a.csv": b"a"})

    def before(request: Request) -> None:
        if (request.verb, request.key) == ("put", SUCCESS):
            raise PermissionDenied("not this key", status=403)

    s3.before = before
    with pytest.raises(mc.CommitIncomplete) as raised:
        job.commit()
    assert raised.value.outstanding == (SUCCESS,)
    recovery = mc.recover(DEST, job.id, dead_after=0, accept=[SUCCESS])
    assert (recovery.outcome, recovery.state) == ("committed", "closed")
    assert recovery.report is not None
    assert f"{SUCCESS} was accepted as it is" in recovery.report.warnings


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_a_delete_that_is_a_conflict_three_times_is_sent_again(s3: MemoryStore, mode: Mode) -> None:
    """I7: the store answers 409 to three deletes of old data: the fourth is sent, and the job is
    committed without a word."""
    s3.put_object("t/p=1/old.csv", b"old")
    job = mc.start(DEST, mode=mode)
    committed_task(job, "1", {"p=1/new.csv": b"new"})
    left = 3

    def before(request: Request) -> None:
        nonlocal left
        if left and request.verb == "delete_one" and request.key == "t/p=1/old.csv":
            left -= 1
            raise WriteConflict("at the same time", status=409)

    s3.before = before
    report = job.commit()
    assert (report.outcome, report.warnings, left) == ("committed", (), 0)
    assert visible(s3) == {"t/p=1/new.csv": b"new"}


# Records ------------------------------------------------------------------------------------------


def test_an_unconditional_swap_that_was_sent_twice_is_read_back(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I10: without conditional writes the first sending of a decision lands unanswered and the
    second is refused: the swap has won."""
    record = JobRecord(
        id="j", uuid="0" * 32, state=State.RUNNING, nonce=runtime.ids(),
        terms=Terms(conditional_writes="off"), given_id=True, started=0.0,
    )  # fmt: skip
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record).seen

    def before(request: Request) -> None:
        if request.verb == "put":
            request.effect()
            raise PermissionDenied("the token has expired", status=403, attempts=2)

    s3.before = before
    swapped = records.swap(runtime, seen, seen.record.step(State.ABORTING, runtime.ids()))
    assert swapped.won
    assert swapped.now is not None
    assert swapped.now.record.state is State.ABORTING


def test_the_look_at_closed_records_goes_round_once(s3: MemoryStore, runtime: Runtime) -> None:
    """Each other record is read once, and one's own never."""
    jobs = [mc.start(DEST, mark_success=False) for _ in range(5)]
    for job in jobs:
        mc.abort(DEST, job.id)
    keys = sorted(f"t/__magic_job-{job.id}/_job.json" for job in jobs)
    read = Counter[str]()

    def before(request: Request) -> None:
        if request.verb == "get":
            read[request.key] += 1

    s3.before = before
    assert forget_some(runtime, keys[2]) == 0
    assert read == Counter([*keys[:2], *keys[3:]])

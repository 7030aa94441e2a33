"""I5, I10: the job record is decided once: what each answer to a swap means, and what not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.errors import (
    InvalidRequest,
    JobExists,
    NotSupported,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.options import ConditionalWrites
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, JobRecord, ObjectRef, State
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import At, raising

KEY = "t/__magic_job-j/_job.json"
REFUSALS = {InvalidRequest: 400, PermissionDenied: 403, NotSupported: 501}
"""What a gateway between us and the store may answer, with its status."""


@pytest.fixture
def runtime(s3: MemoryStore) -> Runtime:
    return Runtime(s3, pool=ThreadPool(0), clock=PatientClock())


def record_of(job_id: str, conditional_writes: ConditionalWrites = "on") -> JobRecord:
    """The first version of a job's record."""
    terms = structs.replace(USUAL_TERMS, conditional_writes=conditional_writes)
    return JobRecord.running(
        id=job_id, uuid="0" * 32, nonce="1" * 32, terms=terms, given_id=True, started=0.0
    )


def running(runtime: Runtime, conditional_writes: ConditionalWrites = "on") -> records.Seen:
    record = structs.replace(record_of("j", conditional_writes), nonce=runtime.ids())
    return records.create(runtime, KEY, record).seen


def to(runtime: Runtime, seen: records.Seen, state: State = State.ABORTING) -> records.Swapped:
    plan = ObjectRef("t/__magic_job-j/_plan-0.json", '"0"') if state is State.COMMITTING else None
    return records.swap(runtime, seen, seen.record.step(state, runtime.ids(), plan=plan))


def its_put(request: Request) -> bool:
    return (request.verb, request.key) == ("put", KEY)


def stored(runtime: Runtime) -> records.Seen:
    seen = records.read(runtime, KEY)
    assert seen is not None
    return seen


def test_who_is_slower_has_lost_also_to_one_who_decides_the_same(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I10: of two who swap to the same state one has won: the other's nonce is not stored."""
    seen = running(runtime)
    At(s3, its_put, lambda: to(runtime, seen))
    mine = to(runtime, seen)
    assert not mine.won
    assert mine.now is not None
    assert mine.now.etag == stored(runtime).etag


@pytest.mark.parametrize("answer", [WriteConflict, PreconditionFailed, Unanswered])
def test_an_error_behind_which_another_has_decided_is_a_lost_swap(
    s3: MemoryStore, runtime: Runtime, answer: type[WriteConflict]
) -> None:
    """I3, I10: after 409, 412 or no answer the stored record tells who has won."""
    seen = running(runtime)

    def rival_is_faster() -> None:
        to(runtime, seen, State.COMMITTING)
        raise answer("")

    At(s3, its_put, rival_is_faster)
    mine = to(runtime, seen)
    assert not mine.won
    assert mine.now is not None
    assert mine.now.record.state is State.COMMITTING


def test_a_conflict_with_nobody_is_sent_again(s3: MemoryStore, runtime: Runtime) -> None:
    """I10: a 409 while the old state is there decides nothing: the swap is sent again, and wins."""
    seen = running(runtime)

    At(s3, its_put, WriteConflict("try again"))
    assert to(runtime, seen).won
    assert stored(runtime).record.state is State.ABORTING


def test_a_store_that_wants_etags_without_quotes_is_understood(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """A 412 with the record unchanged: the ETag is sent in the other quoting (Ceph RGW)."""
    seen = running(runtime)
    s3.before = raising(
        lambda r: (r.if_match or "").startswith('"'),
        PreconditionFailed("it compares with the quotes"),
    )
    assert to(runtime, seen).won
    assert records.remove(runtime, stored(runtime))
    assert records.read(runtime, KEY) is None


@pytest.mark.parametrize(
    "told", [Unanswered(""), PermissionDenied("of the second try", status=403, attempts=2)]
)
def test_a_read_back_that_is_refused_leaves_the_swap_unknown(
    s3: MemoryStore, runtime: Runtime, told: StoreError
) -> None:
    """I10: it, or its first try, was not answered, and nothing can be read: it may have won."""
    seen = running(runtime)

    def fail(request: Request) -> None:
        if its_put(request):
            raise told
        raise PermissionDenied("the token has expired")

    s3.before = fail
    with pytest.raises(OutcomeUnknown, match=r"attach\('s3://bucket/t/', 'j'\)"):
        to(runtime, seen)


@pytest.mark.parametrize("state", [State.ABORTING, State.COMMITTING])
@pytest.mark.parametrize("error", REFUSALS)
def test_a_refusal_of_what_took_effect_is_recognised(
    s3: MemoryStore, runtime: Runtime, error: type[StoreError], state: State
) -> None:
    """I10: a gateway refuses a swap that the store has done: the record is read back, and tells."""
    seen = running(runtime)

    s3.after = raising(its_put, error("a gateway's", status=REFUSALS[error]))
    swapped = to(runtime, seen, state)
    assert (swapped.won, stored(runtime).record.state) == (True, state)


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("unread", [PermissionDenied, Unanswered])
def test_a_refusal_that_cannot_be_read_back(
    s3: MemoryStore, runtime: Runtime, error: type[StoreError], unread: type[StoreError]
) -> None:
    """I10: a swap is refused, and then the record cannot be read: it is unknown, also if both are
    denied: the gateway that denies them may have let the swap through."""
    seen = running(runtime)

    def refuse(request: Request) -> None:
        if its_put(request):
            raise error("refused", status=REFUSALS[error])
        raise unread("not to be read", status=403)

    s3.before = refuse
    with pytest.raises(OutcomeUnknown):
        to(runtime, seen)
    s3.before = None
    assert stored(runtime).etag == seen.etag


@pytest.mark.parametrize("error", REFUSALS)
def test_a_plain_refusal_costs_one_look(
    s3: MemoryStore, runtime: Runtime, error: type[StoreError]
) -> None:
    """A swap without effect that is refused: one PUT, one GET, and the refusal is told."""
    seen = running(runtime)
    before = s3.requests.copy()

    s3.before = raising(its_put, error("refused", status=REFUSALS[error]))
    with pytest.raises(error):
        to(runtime, seen)
    assert s3.requests - before == {"put": 1, "get": 1}


@pytest.mark.parametrize("why", ["moved on", "moves on just then", "refused", "always refused"])
def test_a_record_that_cannot_be_removed_stays_and_is_told(
    s3: MemoryStore, runtime: Runtime, why: str
) -> None:
    """I5: the record is removed as it was seen; where another has moved it on, or the store refuses
    the condition, that is no error."""
    seen = running(runtime)
    deletion: Callable[[Request], bool] = lambda r: r.verb == "delete_one"  # noqa: E731
    if why == "moved on":
        to(runtime, seen)
    elif why == "moves on just then":
        At(s3, deletion, lambda: to(runtime, seen))
    elif why == "refused":
        At(s3, deletion, NotSupported("no If-Match on DELETE"))
    else:
        s3.before = raising(deletion, PreconditionFailed("always"))
    assert records.remove(runtime, seen) is False
    assert (stored(runtime).record.state is State.ABORTING) == why.startswith("move")


def test_a_record_that_is_gone_is_removed(s3: MemoryStore, runtime: Runtime) -> None:
    """I4, I5: removing is repeatable, also where another has deleted it just then."""
    seen = running(runtime)

    def another() -> None:
        s3.delete_object(KEY)
        raise WriteConflict("another deletes it")

    At(s3, "delete_one", another)
    assert records.remove(runtime, seen) is True
    assert records.remove(runtime, seen) is True


def test_without_conditions_a_decision_that_can_be_read_is_obeyed(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """With ``conditional_writes="off"`` a driver reads before it decides: who decided is obeyed."""
    seen = running(runtime, "off")
    to(runtime, seen, State.COMMITTING)
    mine = to(runtime, seen)
    assert not mine.won
    assert stored(runtime).record.state is State.COMMITTING


def test_without_conditions_a_lost_reply_is_recognised(s3: MemoryStore, runtime: Runtime) -> None:
    """With ``conditional_writes="off"`` too one's own nonce in the record is one's own success."""
    seen = running(runtime, "off")

    At(s3, its_put, Unanswered(""), after=True)
    assert to(runtime, seen).won


@pytest.mark.parametrize("gone", [False, True])
def test_without_conditions_a_swap_that_left_no_trace_is_unknown(
    s3: MemoryStore, runtime: Runtime, gone: bool
) -> None:
    """I10: a PUT without an answer may still land, or have been written and deleted."""
    seen = running(runtime, "off")

    def lost() -> None:
        if gone:
            s3.delete_object(KEY)
        raise Unanswered("no answer")

    At(s3, its_put, lost)
    with pytest.raises(OutcomeUnknown):
        to(runtime, seen)


@pytest.mark.parametrize(("conditions", "lost"), [("on", False), ("on", True), ("off", False)])
def test_two_who_create_one_record_are_told_apart(
    s3: MemoryStore, runtime: Runtime, conditions: ConditionalWrites, lost: bool
) -> None:
    """I2: a job id is used once: of two creates the slower raises, also where its reply was lost,
    or the store knows no conditions."""
    first = running(runtime, conditions)
    s3.after = raising(lambda r: lost and its_put(r), Unanswered(""))
    with pytest.raises(JobExists):
        running(runtime, conditions)
    assert stored(runtime).record == first.record


def test_a_create_whose_reply_is_lost_is_its_own_but_not_undisturbed(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I10: a create that was sent twice may land again: its record is never simply deleted."""
    At(s3, its_put, Unanswered(""), after=True)
    created = records.create(runtime, KEY, record_of("j"))
    assert (created.seen.record, created.undisturbed) == (record_of("j"), False)


@pytest.mark.parametrize("conditional_writes", ["on", "off"])
def test_every_version_of_the_record_carries_the_jobs_token(
    s3: MemoryStore, runtime: Runtime, conditional_writes: ConditionalWrites
) -> None:
    """I6: by its token cleanup knows a control object as ours; the record has it in every state."""
    seen = running(runtime, conditional_writes)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}
    to(runtime, seen)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}


def creates(runtime: Runtime, seen: records.Seen) -> object:
    return records.create(runtime, "t/__magic_job-new/_job.json", record_of("new"))


def swaps(runtime: Runtime, seen: records.Seen) -> object:
    return records.swap(runtime, seen, seen.record.step(State.ABORTING, "2" * 32))


@pytest.mark.parametrize("write", [creates, swaps])
def test_a_record_that_is_written_again_is_waited_for_longer_each_time(
    s3: MemoryStore, write: Callable[[Runtime, records.Seen], object]
) -> None:
    """A store that does not answer is not pressed: half a second, then twice as long each time, and
    no wait behind the last try."""
    clock = PatientClock()
    runtime = Runtime(s3, pool=ThreadPool(0), clock=clock)
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record_of("j")).seen
    s3.before = raising("put", Unanswered("no answer"))
    with pytest.raises(OutcomeUnknown):
        write(runtime, seen)
    assert clock.ahead == 0.5 + 1 + 2 + 4 + 8


def test_an_unconditional_swap_that_was_sent_twice_is_read_back(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I10: without conditional writes the first sending of a decision lands unanswered and the
    second is refused: the swap has won."""
    seen = running(runtime, "off")
    expired = PermissionDenied("the token has expired", status=403, attempts=2)
    At(s3, its_put, expired, after=True)
    assert to(runtime, seen).won
    assert stored(runtime).record.state is State.ABORTING

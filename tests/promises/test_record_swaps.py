"""I5, I10: the job record is decided once: what each answer to a swap means, and what not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import magic_committer as mc
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
from magic_committer.protocol.record import JOB_METADATA, JobRecord, ObjectRef, State, Terms
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import At, raising

KEY = "t/__magic_job-j/_job.json"
REFUSALS = {InvalidRequest: 400, PermissionDenied: 403, NotSupported: 501}
"""What a gateway between us and the store may answer, with its status."""


@pytest.fixture
def runtime(s3: MemoryStore) -> Runtime:
    """One process."""
    return Runtime(s3, pool=ThreadPool(0), clock=PatientClock())


def running(runtime: Runtime, conditional_writes: ConditionalWrites = "on") -> records.Seen:
    """A record that says ``running``."""
    record = JobRecord(
        id="j", uuid="0" * 32, state=State.RUNNING, nonce=runtime.ids(),
        terms=Terms(conditional_writes=conditional_writes), given_id=True, started=0.0,
    )  # fmt: skip
    return records.create(runtime, KEY, record).seen


def to(runtime: Runtime, seen: records.Seen, state: State = State.ABORTING) -> records.Swapped:
    """Decide a running job."""
    plan = ObjectRef("t/__magic_job-j/_plan-0.json", '"0"') if state is State.COMMITTING else None
    return records.swap(runtime, seen, seen.record.step(state, runtime.ids(), plan=plan))


def its_put(request: Request) -> bool:
    """A PUT of the record."""
    return (request.verb, request.key) == ("put", KEY)


def stored(runtime: Runtime) -> records.Seen:
    """The record as it is stored."""
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

    def conflict() -> None:
        raise WriteConflict("try again")

    At(s3, its_put, conflict)
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
    """I10: a swap, or its first try, was not answered, and the record may not be read: it may have
    won."""
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

    def refuse(request: Request, _: object) -> None:
        if its_put(request):
            raise error("a gateway's", status=REFUSALS[error])

    s3.after = refuse
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

    def refuse(request: Request) -> None:
        if its_put(request):
            raise error("refused", status=REFUSALS[error])

    s3.before = refuse
    with pytest.raises(error):
        to(runtime, seen)
    assert s3.requests - before == {"put": 1, "get": 1}


def test_a_record_that_moved_on_is_not_removed(s3: MemoryStore, runtime: Runtime) -> None:
    """I5: the record is removed as it was seen; one that another has moved on stays, and it is told
    that it stays."""
    seen = running(runtime)
    to(runtime, seen)
    assert records.remove(runtime, seen) is False
    assert stored(runtime).record.state is State.ABORTING


def test_a_record_that_moves_on_at_the_last_moment_is_not_removed(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I5: another swaps the record right before the DELETE arrives: it stays."""
    seen = running(runtime)
    At(s3, lambda r: r.verb == "delete_one", lambda: to(runtime, seen))
    assert records.remove(runtime, seen) is False
    assert stored(runtime).record.state is State.ABORTING


def test_a_record_that_is_gone_is_removed(s3: MemoryStore, runtime: Runtime) -> None:
    """I5: removing is repeatable."""
    seen = running(runtime)
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

    def lose() -> None:
        raise Unanswered("")

    At(s3, its_put, lose, after=True)
    assert to(runtime, seen).won


def test_without_conditions_a_swap_that_did_not_land_is_unknown(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """With ``conditional_writes="off"`` a swap without answer and without trace may still land."""
    seen = running(runtime, "off")

    def lose() -> None:
        raise Unanswered("")

    At(s3, its_put, lose)
    with pytest.raises(OutcomeUnknown):
        to(runtime, seen)


def test_two_who_create_one_record_are_told_apart(s3: MemoryStore, runtime: Runtime) -> None:
    """A job id is used once: of two creates the slower raises, also where its reply was lost."""
    running(runtime)

    def lose(request: Request, reply: object) -> None:
        if its_put(request):
            raise Unanswered("")

    s3.after = lose
    with pytest.raises(JobExists):
        running(runtime)


def test_a_create_whose_reply_is_lost_is_its_own_but_not_undisturbed(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I10: a create that was sent twice may land again: its record is never simply deleted."""

    def lose() -> None:
        raise Unanswered("")

    At(s3, its_put, lose, after=True)
    record = JobRecord(
        id="j", uuid="0" * 32, state=State.RUNNING, nonce=runtime.ids(), terms=Terms(),
        given_id=True, started=0.0,
    )  # fmt: skip
    created = records.create(runtime, KEY, record)
    assert created.seen.record == record
    assert created.undisturbed is False


@pytest.mark.parametrize("conditional_writes", ["on", "off"])
def test_every_version_of_the_record_carries_the_jobs_token(
    s3: MemoryStore, runtime: Runtime, conditional_writes: ConditionalWrites
) -> None:
    """I6: by its token cleanup knows a control object as ours; the record has it in every state."""
    seen = running(runtime, conditional_writes)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}
    to(runtime, seen)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}


def test_a_store_that_refuses_conditional_deletes_keeps_the_record(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """A refused condition is no error: the record stays, and it is told that it stays."""
    seen = running(runtime)

    def refuse() -> None:
        raise NotSupported("no If-Match on DELETE")

    At(s3, lambda r: r.verb == "delete_one", refuse)
    assert records.remove(runtime, seen) is False
    assert stored(runtime).record == seen.record


def test_a_delete_that_is_always_refused_keeps_the_record(
    s3: MemoryStore, runtime: Runtime
) -> None:
    """I5: after some 412s with the record unchanged it is told that the record is there."""
    seen = running(runtime)
    s3.before = raising(lambda r: r.verb == "delete_one", PreconditionFailed("always"))
    assert records.remove(runtime, seen) is False
    assert stored(runtime).record == seen.record


def record_of(job_id: str) -> JobRecord:
    """The first version of a job's record."""
    return JobRecord(
        id=job_id, uuid="0" * 32, state=State.RUNNING, nonce="1" * 32, terms=Terms(),
        given_id=True, started=0.0,
    )  # fmt: skip


def creates(runtime: Runtime, seen: records.Seen) -> object:
    """A new record beside the one that is there."""
    return records.create(runtime, "t/__magic_job-new/_job.json", record_of("new"))


def swaps(runtime: Runtime, seen: records.Seen) -> object:
    """The record that is there moves on."""
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
    s3.before = raising(lambda r: r.verb == "put", Unanswered("no answer"))
    with pytest.raises(OutcomeUnknown):
        write(runtime, seen)
    assert clock.ahead == 0.5 + 1 + 2 + 4 + 8


def test_a_swap_without_conditions_whose_record_is_gone_is_unknown(s3: MemoryStore) -> None:
    """I10: with ``conditional_writes="off"`` a PUT gets no answer, and then there is no record: it
    may have been written and deleted."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    record = replace(record_of("j"), terms=Terms(conditional_writes="off"))
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record).seen

    def lost() -> None:
        s3.delete_object(seen.key)
        raise Unanswered("no answer")

    At(s3, lambda r: r.verb == "put", lost)
    with pytest.raises(OutcomeUnknown):
        swaps(runtime, seen)


def test_without_conditions_too_a_record_is_created_once(s3: MemoryStore) -> None:
    """I2: with ``conditional_writes="off"`` the record that is there is read first, and another run
    of the id does not overwrite it."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    record = replace(record_of("j"), terms=Terms(conditional_writes="off"))
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record).seen
    with pytest.raises(mc.JobExists):
        records.create(runtime, seen.key, replace(record, uuid="3" * 32, nonce="4" * 32))
    now = records.read(runtime, seen.key)
    assert now is not None
    assert now.record.uuid == record.uuid


def test_a_record_that_another_has_deleted_is_gone(s3: MemoryStore) -> None:
    """I4: a delete that meets a conflict, and then finds no record, has come to its end."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record_of("j")).seen

    def another() -> None:
        s3.delete_object(seen.key)
        raise WriteConflict("another deletes it")

    At(s3, lambda r: r.verb == "delete_one", another)
    assert records.remove(runtime, seen)


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

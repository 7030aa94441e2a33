"""I5, I8, I10: each answer to a swap of the record or a PUT of `_SUCCESS` is read aright."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec import structs

import magic_committer as mc
from magic_committer.commit import register
from magic_committer.commit.register import marker_ref, write_marker
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    PreconditionFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.documents import SUCCESS_BYTES_MAX, new_success
from magic_committer.options import ConditionalWrites
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, JobRecord, ObjectRef, State
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import At, fitting, noted, raises, raising, refusing
from tests.promises.machine import Machine

KEY = "t/__magic_job-j/_job.json"
EXPIRED = mc.PermissionDenied("of the second try", status=403, attempts=2)
UNANSWERED = Unanswered("")
REFUSALS: dict[str, mc.StoreError] = {
    "400": InvalidRequest("refused", status=400),
    "403": mc.PermissionDenied("refused", status=403),
    "501": NotSupported("refused", status=501),
}
"""What a gateway between us and the store may answer."""


@pytest.fixture
def runtime(s3: MemoryStore) -> Runtime:
    return Runtime(s3, pool=ThreadPool(0), clock=PatientClock())


def record_of(job_id: str, conditional_writes: ConditionalWrites = "on") -> JobRecord:
    """The first version of a job's record."""
    terms = structs.replace(USUAL_TERMS, conditional_writes=conditional_writes)
    return JobRecord.running(
        id=job_id, uuid="0" * 32, nonce="1" * 32, terms=terms, given_id=True, started=0.0
    )


def running(runtime: Runtime, conditional_writes: ConditionalWrites = "on") -> register.Seen:
    record = structs.replace(record_of("j", conditional_writes), nonce=runtime.ids())
    return register.create(runtime, KEY, record)[0]


def to(runtime: Runtime, seen: register.Seen, state: State = State.ABORTING) -> register.Swapped:
    plan = ObjectRef("t/__magic_job-j/_plan-0.json", '"0"') if state is State.COMMITTING else None
    return register.swap(runtime, seen, seen.record.step(state, runtime.ids(), plan=plan))


def its_put(request: Request) -> bool:
    return (request.verb, request.key) == ("put", KEY)


def stored(runtime: Runtime) -> register.Seen:
    seen = register.read(runtime, KEY)
    assert seen is not None
    return seen


@pytest.mark.parametrize("answer", [None, WriteConflict, PreconditionFailed, Unanswered])
def test_who_is_slower_has_lost_also_to_one_who_decides_the_same(
    s3: MemoryStore, runtime: Runtime, answer: type[WriteConflict] | None
) -> None:
    """I3, I10: whatever the answer to its own swap is, the stored nonce tells who has won."""
    seen = running(runtime)
    state = State.COMMITTING if answer else State.ABORTING

    def rival_is_faster() -> None:
        to(runtime, seen, state)
        if answer:
            raise answer("")

    At(s3, its_put, rival_is_faster)
    mine = to(runtime, seen)
    assert not mine.won
    assert mine.now is not None
    assert (mine.now.record.state, mine.now.etag) == (state, stored(runtime).etag)


def test_a_conflict_with_nobody_is_sent_again(s3: MemoryStore, runtime: Runtime) -> None:
    """I10: a 409 while the old state is there decides nothing: the swap is sent again, and wins."""
    seen = running(runtime)
    At(s3, its_put, WriteConflict("try again"))
    assert to(runtime, seen).won
    assert stored(runtime).record.state is State.ABORTING


def test_a_store_of_etags_without_quotes_is_understood(s3: MemoryStore, runtime: Runtime) -> None:
    """A 412 with the record unchanged: the ETag is sent in the other quoting (Ceph RGW)."""
    seen = running(runtime)
    s3.before = raising(lambda r: (r.if_match or "").startswith('"'), PreconditionFailed("quotes"))
    assert to(runtime, seen).won
    assert register.remove(runtime, stored(runtime))
    assert register.read(runtime, KEY) is None


@pytest.mark.parametrize("unread", [mc.PermissionDenied, Unanswered])
@pytest.mark.parametrize("told", REFUSALS | {"none": UNANSWERED, "expired": EXPIRED})
def test_a_swap_that_cannot_be_read_back_is_unknown(
    s3: MemoryStore, runtime: Runtime, told: str, unread: type[mc.StoreError]
) -> None:
    """I10: whatever it was told, also if both are denied: a gateway may have let it through."""
    seen = running(runtime)
    error = (REFUSALS | {"none": UNANSWERED, "expired": EXPIRED})[told]

    def fail(request: Request) -> None:
        raise error if its_put(request) else unread("not to be read", status=403)

    s3.before = fail
    raises(mc.OutcomeUnknown, to, runtime, seen, match=r"attach\('s3://bucket/t/', 'j'\)")
    s3.before = None
    assert stored(runtime).etag == seen.etag


@pytest.mark.parametrize("state", [State.ABORTING, State.COMMITTING])
@pytest.mark.parametrize(
    ("conditions", "error"),
    [*(("on", error) for error in REFUSALS.values()), ("off", UNANSWERED), ("off", EXPIRED)],
    ids=[*REFUSALS, "off, unanswered", "off, sent twice"],
)
def test_a_failure_of_what_took_effect_is_recognised(
    s3: MemoryStore, runtime: Runtime, conditions: ConditionalWrites, error: mc.StoreError,
    state: State,
) -> None:  # fmt: skip
    """I10: a swap that the store has done is told as failed: the record is read back, and tells."""
    seen = running(runtime, conditions)
    At(s3, its_put, error, after=True)
    assert (to(runtime, seen, state).won, stored(runtime).record.state) == (True, state)


@pytest.mark.parametrize("why", ["moved on", "moves on just then", "refused", "always refused"])
def test_a_record_that_cannot_be_removed_stays(s3: MemoryStore, runtime: Runtime, why: str) -> None:
    """I5: it is removed as it was seen: one that moved on, or whose condition is refused, stays."""
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
    assert register.remove(runtime, seen) is False
    assert (stored(runtime).record.state is State.ABORTING) == why.startswith("move")


def test_a_record_that_is_gone_is_removed(s3: MemoryStore, runtime: Runtime) -> None:
    """I4, I5: removing is repeatable, also where another has deleted it just then."""
    seen = running(runtime)

    def another() -> None:
        s3.delete_object(KEY)
        raise WriteConflict("another deletes it")

    At(s3, "delete_one", another)
    assert register.remove(runtime, seen) is True
    assert register.remove(runtime, seen) is True


def test_without_conditions_a_decision_is_obeyed(s3: MemoryStore, runtime: Runtime) -> None:
    """With ``conditional_writes="off"`` a driver reads before it decides: who decided is obeyed."""
    seen = running(runtime, "off")
    to(runtime, seen, State.COMMITTING)
    assert not to(runtime, seen).won
    assert stored(runtime).record.state is State.COMMITTING


@pytest.mark.parametrize("gone", [False, True])
def test_without_conditions_it_is_unknown(s3: MemoryStore, runtime: Runtime, gone: bool) -> None:
    """I10: a PUT without an answer may still land, or have been written and deleted."""
    seen = running(runtime, "off")

    def lost() -> None:
        if gone:
            s3.delete_object(KEY)
        raise Unanswered("no answer")

    At(s3, its_put, lost)
    raises(mc.OutcomeUnknown, to, runtime, seen)


@pytest.mark.parametrize(("conditions", "lost"), [("on", False), ("on", True), ("off", False)])
def test_two_who_create_one_record_are_told_apart(
    s3: MemoryStore, runtime: Runtime, conditions: ConditionalWrites, lost: bool
) -> None:
    """I2: the slower one raises, also if its reply was lost, or the store knows no conditions."""
    first = running(runtime, conditions)
    s3.after = raising(lambda r: lost and its_put(r), Unanswered(""))
    raises(mc.JobExists, running, runtime, conditions)
    assert stored(runtime).record == first.record


def test_a_create_without_a_reply_is_not_undisturbed(s3: MemoryStore, runtime: Runtime) -> None:
    """I10: a create that was sent twice may land again: its record is never simply deleted."""
    At(s3, its_put, Unanswered(""), after=True)
    seen, undisturbed = register.create(runtime, KEY, record_of("j"))
    assert (seen.record, undisturbed) == (record_of("j"), False)


@pytest.mark.parametrize("conditional_writes", ["on", "off"])
def test_every_version_of_the_record_carries_the_jobs_token(
    s3: MemoryStore, runtime: Runtime, conditional_writes: ConditionalWrites
) -> None:
    """I6: by its token cleanup knows a control object as ours; the record has it in every state."""
    seen = running(runtime, conditional_writes)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}
    to(runtime, seen)
    assert s3.head(KEY).metadata == {JOB_METADATA: "0" * 32}


def creates(runtime: Runtime, seen: register.Seen) -> object:
    return register.create(runtime, "t/__magic_job-new/_job.json", record_of("new"))


def swaps(runtime: Runtime, seen: register.Seen) -> object:
    return register.swap(runtime, seen, seen.record.step(State.ABORTING, "2" * 32))


@pytest.mark.parametrize("write", [creates, swaps])
def test_a_record_that_is_written_again_is_waited_for_longer_each_time(
    s3: MemoryStore, write: Callable[[Runtime, register.Seen], object]
) -> None:
    """Half a second, then twice as long each time, and no wait behind the last try."""
    clock = PatientClock()
    runtime = Runtime(s3, pool=ThreadPool(0), clock=clock)
    seen, _ = register.create(runtime, "t/__magic_job-j/_job.json", record_of("j"))
    s3.before = raising("put", Unanswered("no answer"))
    raises(mc.OutcomeUnknown, write, runtime, seen)
    assert clock.ahead == 0.5 + 1 + 2 + 4 + 8


MARKER = "t/_SUCCESS"


class Finishing:
    """A job whose record says ``completed``, about to mark its destination."""

    def __init__(self, machine: Machine, just_now: bool, *, before: bool = False) -> None:
        """``before``: the destination had a marker when the job completed."""
        if before:
            machine.s3.put_object(MARKER, b"older")
        self.s3 = machine.s3
        self.machine = machine
        self.just_now = just_now
        self.runtime = machine.runtime
        self.seen = running(self.runtime)
        self.swap(State.COMMITTING, plan=ObjectRef("t/__magic_job-j/_plan-0.json", '"0"'))
        ref = marker_ref(self.runtime, MARKER)
        self.swap(State.COMPLETED, marker=ref)

    def swap(self, state: State, **changes: Any) -> None:
        record = structs.replace(self.seen.record, state=state, nonce=self.runtime.ids(), **changes)
        now = register.swap(self.runtime, self.seen, record).now
        assert now is not None
        self.seen = now

    def mark(self) -> str:
        success = new_success(job_id="j", timestamp_ms=0, diagnostics={})
        return write_marker(self.runtime, MARKER, self.seen, success, just_now=self.just_now)

    def is_ours(self) -> bool:
        try:
            return bool(json.loads(self.s3.body(MARKER))["jobId"] == "j")
        except (KeyError, ValueError):
            return False


@pytest.fixture(params=["who completed it", "another process"])
def by(request: pytest.FixtureRequest) -> bool:
    return "who" in request.param


@pytest.fixture
def job(machine: Machine, by: bool) -> Finishing:
    """A job about to mark a destination without a marker."""
    return Finishing(machine, by)


@pytest.fixture
def after_another(machine: Machine, by: bool) -> Finishing:
    """A job about to mark a destination that had a marker when it completed."""
    return Finishing(machine, by, before=True)


PUT = f"put {MARKER}"


@pytest.mark.parametrize(
    "body", [b"not ours", b"x" * (SUCCESS_BYTES_MAX + 1)], ids=["short", "large"]
)
@pytest.mark.parametrize("after_look", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_marker_of_after_our_completion_stays(
    machine: Machine, by: bool, before: bool, after_look: bool, body: bytes
) -> None:
    """I8: it counts by its own time, also when it comes between our look and our PUT."""
    job = Finishing(machine, by, before=before)
    machine.later(10)
    comes = partial(machine.s3.put_object, MARKER, body)
    if after_look:
        At(machine.s3, PUT, comes)
    else:
        comes()
    assert "completed later" in job.mark()
    assert machine.s3.body(MARKER) == body


CLOSED: dict[str, Any] = {"state": State.CLOSED, "outcome": "committed"}
ENDS: dict[str, Callable[[Finishing], object]] = {
    "finished": lambda job: job.swap(**CLOSED),
    "finished between the looks": lambda job: At(
        job.s3,
        lambda r: (r.verb, r.key) == ("get", KEY if job.just_now else MARKER),
        partial(job.swap, **CLOSED),
        after=not job.just_now,
    ),
    "no record": lambda job: job.s3.delete_one(KEY),
    "the next job's record": lambda job: job.s3.put_object(
        KEY, job.s3.body(KEY).replace(b"0" * 32, b"1" * 32)
    ),
}
"""What another process has made of a completed job."""


@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_another_finished_marks_no_more(job: Finishing, end: str) -> None:
    """I8: whoever deleted the marker since has begun a job of its own, which marks itself."""
    ENDS[end](job)
    assert "finished by somebody else" in job.mark()
    assert MARKER not in job.s3.keys()


def test_the_clock_of_this_machine_does_not_count(job: Finishing) -> None:
    """I8: the marker says when its job completed by the store's clock, not by this machine's."""
    ahead = PatientClock()
    ahead.ahead = 86_400
    job.runtime = replace(job.runtime, clock=ahead)
    job.mark()
    told = json.loads(job.s3.body(MARKER))["diagnostics"]["magic-committer.completed"]
    assert float(told) == job.s3.head(KEY).last_modified


@pytest.mark.parametrize(
    ("error", "landed"), [(WriteConflict, False), (Unanswered, False), (Unanswered, True)]
)
def test_a_put_without_a_clear_answer_counts(
    job: Finishing, error: type[mc.StoreError], landed: bool
) -> None:
    """I8: it is written once: sent again if it is not there. A store that never answers is told."""
    with refusing(job.s3, PUT, Unanswered("down")), pytest.raises(Unanswered, match="down"):
        job.mark()
    At(job.s3, PUT, error(""), after=landed)
    job.s3.requests.clear()
    assert job.mark() == ""
    assert (job.s3.requests["put"], job.is_ours()) == (1 if landed else 2, True)


@pytest.mark.parametrize(
    "error", [mc.PermissionDenied("it is refused", status=403), InvalidRequest("odd")]
)
def test_a_marker_that_is_refused_is_told(after_another: Finishing, error: mc.StoreError) -> None:
    """I8: a GET that is refused tells nothing of the marker: nothing is written over it."""
    s3 = after_another.s3
    with refusing(s3, f"get {MARKER}", error), pytest.raises(type(error), match=error.message):
        after_another.mark()
    assert s3.body(MARKER) == b"older"


@pytest.mark.parametrize("age", ["older", "newer"])
def test_a_marker_of_a_customers_key_is_foreign(after_another: Finishing, age: str) -> None:
    """I8: GET answers 400 for ever (Hadoop with SSE-C): a listing tells its age."""
    s3 = after_another.s3
    if age == "newer":
        after_another.machine.clock.ahead += 60
        s3.put_object(MARKER, b"newer")
    wants_a_key = InvalidRequest("it wants a key", status=400, code="InvalidRequest")
    with refusing(s3, f"get|head {MARKER}", wants_a_key):
        told = after_another.mark()
    assert (told == "", s3.body(MARKER) == b"newer") == (age == "older", age == "newer")


def test_a_store_that_wants_etags_without_quotes_is_marked(after_another: Finishing) -> None:
    """The marker's ETag is sent in the other quoting once the same marker was refused."""
    put = fitting(PUT)
    after_another.s3.before = raising(
        lambda r: put(r) and (r.if_match or "").startswith('"'),
        PreconditionFailed("it compares with the quotes"),
    )
    assert after_another.mark() == ""
    assert after_another.is_ours()


@pytest.mark.parametrize(
    ("just_now", "before", "looks"), [(True, False, 0), (False, False, 1), (True, True, 1)]
)
def test_who_has_just_seen_no_marker_does_not_look_for_it_again(
    machine: Machine, just_now: bool, before: bool, looks: int
) -> None:
    """One that was there is read again: it may be another one with the same bytes."""
    job = Finishing(machine, just_now, before=before)
    asked = noted(machine.s3, f"get {MARKER}")
    assert job.mark() == ""
    assert (len(asked), job.is_ours()) == (looks, True)

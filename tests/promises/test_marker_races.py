"""I8: `_SUCCESS` is ours to write or it is not, whatever happens between the looks and the PUT."""

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
from magic_committer.errors import InvalidRequest, PreconditionFailed, Unanswered, WriteConflict
from magic_committer.hadoop.documents import SUCCESS_BYTES_MAX, new_success
from magic_committer.protocol.record import USUAL_TERMS, JobRecord, ObjectRef, State
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.testing import PatientClock
from tests.promises.hands import At, fitting, noted, raising, refusing
from tests.promises.machine import Machine

MARKER = "t/_SUCCESS"
RECORD = "t/__magic_job-j/_job.json"


class Finishing:
    """A job whose record says ``completed``, about to mark its destination."""

    def __init__(self, machine: Machine, just_now: bool) -> None:
        self.s3 = machine.s3
        self.machine = machine
        self.just_now = just_now
        self.runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
        record = JobRecord.running(
            id="j", uuid="0" * 32, nonce=self.runtime.ids(), terms=USUAL_TERMS,
            given_id=True, started=0.0,
        )  # fmt: skip
        self.seen = register.create(self.runtime, RECORD, record).seen
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
    machine.s3.put_object(MARKER, b"older")
    return Finishing(machine, by)


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
    if before:
        machine.s3.put_object(MARKER, b"older")
    job = Finishing(machine, by)
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
        lambda r: (r.verb, r.key) == ("get", RECORD if job.just_now else MARKER),
        partial(job.swap, **CLOSED),
        after=not job.just_now,
    ),
    "no record": lambda job: job.s3.delete_one(RECORD),
    "the next job's record": lambda job: job.s3.put_object(
        RECORD, job.s3.body(RECORD).replace(b"0" * 32, b"1" * 32)
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
    assert float(told) == job.s3.head(RECORD).last_modified


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
    if before:
        machine.s3.put_object(MARKER, b"older")
    job = Finishing(machine, just_now)
    asked = noted(machine.s3, f"get {MARKER}")
    assert job.mark() == ""
    assert (len(asked), job.is_ours()) == (looks, True)

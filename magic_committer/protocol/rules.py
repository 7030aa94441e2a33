"""The rules that decide, pure: the next step for a record, and what may be undone.

Every process that reads a record obeys it: the driver that decided, another driver, a recovery, an
abort. So one function, `next_step`, says what follows from a state. Each of its steps is
repeatable, and several processes may do it at once (protocol.md, "The job record").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from magic_committer.options import Accept
from magic_committer.protocol.record import HANDS_OFF, ObjectRef, State


class Step(Enum):
    """What to do with a stored record."""

    DECIDE = "decide"
    """The job runs: a driver may commit it, anyone may abort it."""
    COMPLETE = "complete"
    """Complete the plan's uploads, then swap to ``completed``."""
    FINISH = "finish"
    """Delete what is replaced, write `_SUCCESS`, sweep; then delete the record or close it."""
    REVERT = "revert"
    """Undo the plan's uploads, then swap to ``reverted``."""
    SWEEP = "sweep"
    """Abort what is left; then delete the record or close it."""
    TELL = "tell"
    """The job has ended: tell its outcome."""
    ASK_MARKER = "ask marker"
    """There is no record: only `_SUCCESS` may tell the outcome (I10)."""


_STEPS = {
    State.RUNNING: Step.DECIDE,
    State.COMMITTING: Step.COMPLETE,
    State.COMPLETED: Step.FINISH,
    State.REVERTING: Step.REVERT,
    State.REVERTED: Step.SWEEP,
    State.ABORTING: Step.SWEEP,
    State.CLOSED: Step.TELL,
    State.ABSENT: Step.ASK_MARKER,
}


def next_step(state: State) -> Step:
    """The next step for a record in a state; `State.ABSENT` means: no record. Pure."""
    return _STEPS[state]


def may_take_claim(state: State) -> bool:
    """Whether the next run of a streaming query may take the ledger's claim from a job: nothing of
    that job will be published. Pure. ``state``: of the claimant's record, read *after* the ledger;
    `State.ABSENT`: there is none. A job that has committed has changed the ledger before its record
    was closed, so the swap of the ledger fails then."""
    return state in (State.ABORTING, State.REVERTED, State.CLOSED, State.ABSENT)


class Phase(Enum):
    """How far an attempt is. The ways: open → sent → committed, and open or sent → aborted."""

    OPEN = "open"
    SENT = "sent"
    """Its pendingset is stored, may be stored, or may still be stored by a late request."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Found(Enum):
    """What a look finds at the key of an attempt's pendingset."""

    NOTHING = "nothing"
    """Nothing. A set may still come."""
    SET = "set"
    """The attempt's set."""
    CLAIMED = "claimed"
    """A tombstone: no set was there, and none can come any more."""
    FOREIGN = "foreign"
    """An object of another run under the same job id."""


def may_undo(phase: Phase, *, sole: bool, accept: Accept, found: Found, late: State | None) -> bool:
    """Whether an attempt may be undone: its uploads aborted, its pendingset deleted. Pure.
    ``sole``: no other handle uses the attempt's name. ``late``: the state by which the fence called
    the attempt late; None if it did not."""
    if late is not None and late not in HANDS_OFF:
        return True  # everything that was accepted is completed or undone by now
    if phase is Phase.COMMITTED:
        return False
    if found is Found.CLAIMED:
        return True  # nobody has committed it, and nobody can
    if accept == "results" and (sole or found is Found.NOTHING):
        return True  # nobody ever got a result of it
    return phase is not Phase.SENT and found is Found.NOTHING


class Candidate(Protocol):
    """The pendingset of an attempt that may be chosen for its task. ``uuid``: its job's, "" if
    Hadoop wrote it. ``last_modified`` is by the store's clock."""

    @property
    def key(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def last_modified(self) -> float: ...


C = TypeVar("C", bound=Candidate)


def choose_attempts(candidates: Iterable[C], uuid: str) -> list[C]:
    """Choose one attempt for each task: the newest; for equal times, by key. Pure.

    The rule is fixed, so that all drivers that list the same sets make the same choice. ``uuid``:
    the job's UUID. Sets of another UUID never count; "" is the UUID of Hadoop's sets. Gives the
    chosen ones, in the order of their tasks."""
    newest: dict[str, C] = {}
    for candidate in candidates:
        if candidate.uuid != uuid:
            continue
        best = newest.get(candidate.task)
        if best is None or _recency(candidate) > _recency(best):
            newest[candidate.task] = candidate
    return [newest[task] for task in sorted(newest)]


def _recency(candidate: Candidate) -> tuple[float, str]:
    return candidate.last_modified, candidate.key


@dataclass(frozen=True, slots=True)
class Marker:
    """A `_SUCCESS` as it is stored. Every empty one has the same ETag. ``uuid``: its job's, "" if
    another program wrote it. ``completed``: when its job completed, and ``modified``: its
    Last-Modified, both in seconds by the store's clock."""

    etag: str
    uuid: str
    completed: float
    modified: float


def may_replace_marker(marker: Marker, named: ObjectRef | None, completed: float) -> bool:
    """Whether a job's `_SUCCESS` may replace another one. Pure. ``named``: the one that the job's
    record names: it was there when the job completed, so the job is the later one."""
    if named is not None and named.is_same(marker.etag, marker.modified):
        return True
    return marker.completed < completed

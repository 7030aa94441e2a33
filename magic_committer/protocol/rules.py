"""The rules that decide, pure: what a record asks for next, and what may be undone.

A record is obeyed by whoever reads it: the driver that decided, another driver, a recovery, an
abort. So what follows from a state is one function, `next_step`; each of its steps may be done
again, and by several at once (protocol.md, "The job record").
"""

from __future__ import annotations

from enum import Enum

from magic_committer.options import Accept
from magic_committer.protocol.record import HANDS_OFF, State


class Step(Enum):
    """What a stored record asks for."""

    DECIDE = "decide"
    """It runs: a driver may commit it, anybody may abort it."""
    COMPLETE = "complete"
    """Complete the plan's uploads, then swap to ``completed``."""
    FINISH = "finish"
    """Delete what is replaced, write `_SUCCESS`, sweep; then the record goes, or is closed."""
    REVERT = "revert"
    """Undo the plan's uploads, then swap to ``reverted``."""
    SWEEP = "sweep"
    """Abort what is left; then the record goes, or is closed."""
    TELL = "tell"
    """It has ended: its outcome is told."""
    ASK_MARKER = "ask marker"
    """There is no record: `_SUCCESS` may tell, nothing else can (I10)."""


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
    """What a record of a state asks for; `State.ABSENT` is no record. Pure."""
    return _STEPS[state]


class Phase(Enum):
    """What an attempt is. The ways: open → sent → committed, and open or sent → aborted."""

    OPEN = "open"
    SENT = "sent"
    """Its pendingset is, or may be, or may still be stored."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Found(Enum):
    """What is at the key of an attempt's pendingset."""

    NOTHING = "nothing"
    """Nothing: as far as a look can tell, a set may come yet."""
    SET = "set"
    """The attempt's set."""
    CLAIMED = "claimed"
    """A tombstone: no set was there, and none can come."""
    FOREIGN = "foreign"
    """An object of another run under the same job id."""


def may_undo(phase: Phase, *, sole: bool, accept: Accept, found: Found, late: State | None) -> bool:
    """Whether an attempt may be undone: its uploads aborted, its pendingset deleted. Pure.

    Args:
        sole: no other handle goes by the attempt's name.
        found: what is at the key of its pendingset. late: the state by which the fence called the
            attempt late, None if it did not.
    """
    if late is not None and late not in HANDS_OFF:
        return True  # whatever was accepted is completed or undone by now
    if phase is Phase.COMMITTED:
        return False
    if found is Found.CLAIMED:
        return True  # nobody has committed it, and nobody can
    if accept == "results" and (sole or found is Found.NOTHING):
        return True  # no result of it was ever given to anybody
    return phase is not Phase.SENT and found is Found.NOTHING

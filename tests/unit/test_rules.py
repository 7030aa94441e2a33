"""The rules of the protocol that are pure: what a record asks for next."""

from __future__ import annotations

import pytest

from magic_committer.protocol.record import OUTCOMES, TRANSITIONS, State
from magic_committer.protocol.rules import Step, next_step

LEADS_TO = {
    Step.DECIDE: {State.COMMITTING, State.ABORTING, State.ABSENT},
    Step.COMPLETE: {State.COMPLETED, State.REVERTING},
    Step.FINISH: {State.CLOSED, State.ABSENT},
    Step.REVERT: {State.REVERTED},
    Step.SWEEP: {State.CLOSED, State.ABSENT},
}
"""The states to which what a step does may lead."""


@pytest.mark.parametrize("state", State)
def test_every_state_asks_for_something(state: State) -> None:
    """A record of any state, and none, has a next step: nobody who reads it stands still."""
    assert next_step(state) in Step


@pytest.mark.parametrize("state", [s for s in State if s not in (State.ABSENT, State.CLOSED)])
def test_a_step_leads_along_the_table_of_moves(state: State) -> None:
    """What a step does moves the record by arrows that there are, and by all of them."""
    arrows = set(TRANSITIONS[state])
    assert arrows <= LEADS_TO[next_step(state)]
    assert arrows


def test_who_is_at_the_end_only_tells() -> None:
    """A closed record and no record change nothing: an outcome is told, or asked of the marker."""
    assert next_step(State.CLOSED) is Step.TELL
    assert next_step(State.ABSENT) is Step.ASK_MARKER


def test_only_what_is_decided_publishes_or_undoes() -> None:
    """No step but the decision is asked for by a record without an outcome."""
    undecided = {state for state in TRANSITIONS if state not in OUTCOMES}
    assert {next_step(state) for state in undecided} == {Step.DECIDE, Step.TELL, Step.ASK_MARKER}

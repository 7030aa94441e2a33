"""The rules of the protocol that are pure: what a record asks for next."""

from __future__ import annotations

import random

import pytest

from magic_committer.commit.load import LoadedSet, SetRef
from magic_committer.protocol.record import OUTCOMES, TRANSITIONS, State
from magic_committer.protocol.rules import Step, choose_attempts, next_step

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


UUID = "0" * 32


def loaded(task: str, key: str, last_modified: float, uuid: str = UUID) -> LoadedSet:
    return LoadedSet(
        ref=SetRef(key), etag='"0"', task=task, attempt=key, uuid=uuid,
        last_modified=last_modified, files=0, bytes=0, offset=0, packed_bytes=0,
    )  # fmt: skip


def chosen(*sets: LoadedSet) -> list[str]:
    return [one.ref.key for one in choose_attempts(sets, UUID)]


def test_the_newest_attempt_of_a_task_is_chosen() -> None:
    """The newest counts, whatever the attempts are called."""
    assert chosen(loaded("1", "a", 20.0), loaded("1", "b", 10.0)) == ["a"]
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 20.0)) == ["b"]


def test_of_attempts_of_one_second_the_last_key_is_chosen() -> None:
    """A tie is broken by the key, not by the order of the listing."""
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 10.0)) == ["b"]
    assert chosen(loaded("1", "b", 10.0), loaded("1", "a", 10.0)) == ["b"]


def test_another_runs_attempts_never_count() -> None:
    """A newer set of another UUID is passed over, and so is a task that has no other."""
    newer = loaded("1", "z", 99.0, uuid="1" * 32)
    assert chosen(loaded("1", "a", 10.0), newer, loaded("2", "y", 1.0, uuid="")) == ["a"]


def test_the_choice_does_not_depend_on_the_order(chance: random.Random) -> None:
    """Any driver that lists the same sets makes the same choice, in the order of the tasks."""
    sets = [
        loaded(str(chance.randrange(4)), f"k{number}", float(chance.randrange(3)))
        for number in range(20)
    ]
    first = chosen(*sets)
    for _ in range(20):
        chance.shuffle(sets)
        assert chosen(*sets) == first
    assert [one.task for one in choose_attempts(sets, UUID)] == sorted({one.task for one in sets})

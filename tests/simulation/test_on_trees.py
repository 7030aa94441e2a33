"""The same schedules where the store is a directory of this machine."""

from __future__ import annotations

from tests.simulation.drawing import Focus
from tests.simulation.tally import quietly, story

SCHEDULES = 120


def test_every_promise_is_kept_on_a_directory() -> None:
    """No schedule breaks a promise, whoever dies or waits between two verbs of the store."""
    states = set[str]()
    for result in quietly(0, SCHEDULES, Focus(tree=True)):
        assert not result.violations, story(result)
        states |= set(result.states)
    assert states >= {"running", "committing", "completed", "reverting", "aborting", "closed"}

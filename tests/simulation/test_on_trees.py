"""The same schedules where the store is a directory of this machine."""

from __future__ import annotations

from collections import Counter

from tests.simulation.cases import CASES
from tests.simulation.drawing import Focus
from tests.simulation.tally import quietly, story

SCHEDULES = 200


def test_every_promise_is_kept_on_a_directory() -> None:
    """No schedule breaks a promise, whoever dies or waits between two verbs of the store."""
    states = set[str]()
    seen = Counter[str]()
    for result in quietly(0, SCHEDULES, Focus(tree=True)):
        assert not result.violations, story(result)
        states |= set(result.states)
        seen.update(result.cases)
    few = [name for name, case in CASES.items() if case.least >= 100 and seen[name] < 5]
    assert not few, few
    assert states >= {"running", "committing", "completed", "reverting", "aborting", "closed"}

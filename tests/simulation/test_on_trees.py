"""The same schedules where the store is a directory of this machine: its jobs are of uploads, or of
files that wait and are renamed."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest

from tests.nightly import most
from tests.simulation.drawing import Focus
from tests.simulation.judge import CASES
from tests.simulation.tally import quietly, story

SCHEDULES = most(400, 100)


@pytest.mark.parametrize("tree", ["uploads", "renames"])
def test_every_promise_is_kept_on_a_directory(tree: Literal["uploads", "renames"]) -> None:
    """No schedule breaks a promise, whoever dies or waits between two verbs of the store."""
    states = set[str]()
    seen = Counter[str]()
    for result in quietly(0, SCHEDULES, Focus(tree=tree)):
        assert not result.violations, story(result)
        states |= set(result.states)
        seen.update(result.cases)
    few = [name for name, case in CASES.items() if case.least >= 100 and seen[name] < 5]
    assert not few, few
    assert states >= {"running", "committing", "completed", "reverting", "aborting", "closed"}

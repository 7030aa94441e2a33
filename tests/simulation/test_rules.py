"""The simulation bites: without any one of the protocol's rules a named promise breaks."""

from __future__ import annotations

import os

import pytest

from tests.simulation.bite import Bite, all_bites
from tests.simulation.rule import Rule
from tests.simulation.rules import RULES


@pytest.fixture(scope="module")
def bites() -> dict[str, Bite]:
    """Each rule taken away in turn, on all cores."""
    return {found.rule: found for found in all_bites(os.cpu_count() or 1)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_taken_away_is_missed(rule: Rule, bites: dict[str, Bite]) -> None:
    """Within the stated number of seeds a promise breaks that holds at the same seed with the rule
    in place."""
    found = bites[rule.name]
    assert found.seed is not None, f"{rule.words}: nothing broke in {rule.seeds_max} seeds"
    assert found.clean, f"seed {found.seed} breaks a promise with the rule in place, too"

"""Each rule, taken away from production's text, breaks a named promise; while it is there, nothing
is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.configurations import CONFIGURATIONS
from tests.model.rules import NOT_SEARCHED, RULES, Rule
from tests.simulation import rules as simulated

TURNS_MAX = 3
"""No rule needs more changes of turn to be missed."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_taken_away_is_missed(rule: Rule) -> None:
    """Without the rule the search breaks the promise that the table names. (That nothing is broken
    with it: test_search.)"""
    result = rule.search(turns=TURNS_MAX)
    assert result.promise == rule.promise, str(result)


FAULTY = [rule for rule in RULES if rule.faults]


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.name)
def test_a_rule_is_searched_with_no_fault_too_many(rule: Rule) -> None:
    """A rule that is said to need a fault is not missed without one, in as many changes of turn;
    and its configuration is searched with as many while it is in place."""
    assert rule.faults <= CONFIGURATIONS[rule.configuration]().faults
    found = rule.search(turns=TURNS_MAX)
    assert not rule.search(rule.faults - 1, found.turns).violation


def test_the_page_counts_the_rules_as_they_are() -> None:
    """docs/proof.md says how many rules the search and the simulation take away, and how many
    neither can see."""
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text(encoding="utf-8")
    page = " ".join(page.split())
    alone = [rule for rule in simulated.ALL if rule.searched and not rule.seeds_max]
    unseen = [name for name in simulated.NOT_SEEN_HERE if name not in {r.name for r in alone}]
    assert f"{len(simulated.RULES)} of them a seed of the simulation misses" in page
    assert f"{len(RULES)} the search" in page
    assert f"**{len(simulated.RULES) + len(alone)} rules are taken out of" in page
    assert [len(NOT_SEARCHED), len(unseen)] == [7, 2]
    assert "the seven that the search cannot see" in page

"""Each rule, taken away, breaks a named promise; while it is there, nothing is broken."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.model.actors import conflict, driver, job, others, task
from tests.model.configurations import CONFIGURATIONS
from tests.model.rules import NOT_SEARCHED, RULES, Rule
from tests.simulation import rules as simulated


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_taken_away_is_missed(rule: Rule) -> None:
    """Without the rule the search breaks the promise that the table names, by a trace as long as
    the table says. (That nothing is broken with it: test_search.)"""
    result = rule.search()
    assert (result.promise, result.requests) == (rule.promise, rule.requests), str(result)


def test_a_rule_is_searched_with_no_fault_too_many() -> None:
    """A rule that is said to need a fault is not missed without one; and where it is searched with
    faults, its configuration is searched with as many while it is in place."""
    assert any(rule.faults for rule in RULES)
    for rule in RULES:
        assert rule.faults <= CONFIGURATIONS[rule.configuration](frozenset()).faults
        if rule.faults:
            assert not rule.search(rule.faults - 1).violation


def test_every_rule_of_the_model_is_in_the_registry() -> None:
    """The actors ask for no rule that nobody takes away, and the registry has none besides."""
    modules = (job, task, driver, conflict, others)
    source = "".join(inspect.getsource(module) for module in modules)
    asked = set(re.findall(r'keeps\("([^"]+)"\)', source))
    assert 'keeps(f"hands off while {record.state}")' in source
    asked |= {f"hands off while {state}" for state in job.HANDS_OFF}
    assert asked == {rule.name for rule in RULES}


def test_the_page_counts_the_rules_as_they_are() -> None:
    """docs/proof.md says how many rules the search and the simulation take away, and how many
    neither can see."""
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text(encoding="utf-8")
    words = ("seven", "eight")
    assert f"**{len(RULES)} rules are taken away from the model.**" in page
    assert f"**{len(simulated.RULES)} rules are taken out of the production code**" in page
    assert [len(NOT_SEARCHED), len(simulated.NOT_SEEN_HERE)] == [7, 8]
    assert all(f"the {word} that" in page or f"the {word} rules that" in page for word in words)

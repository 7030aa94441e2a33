"""The simulation bites: without any one of the protocol's rules a named promise breaks."""

from __future__ import annotations

import time

import pytest

from tests.nightly import most
from tests.simulation.rules import ALL, RULES, Rule, bite

SECONDS_MAX = most(1800.0, 60.0)
"""Then only the seeds that are known are tried; `--table` tries all."""


@pytest.fixture(scope="module")
def end() -> float:
    """When no more seeds are looked for."""
    return time.monotonic() + SECONDS_MAX


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_taken_away_is_missed(rule: Rule, end: float) -> None:
    """At the known seed, or within the stated number of seeds, a promise breaks that holds at the
    same seed with the rule in place."""
    late = time.monotonic() > end
    found = bite(rule.name, known_only=late)
    if found.seed is None and late:
        pytest.skip(f"its seed is another one, and is not looked for after {SECONDS_MAX:.0f} s")
    assert found.seed is not None, f"{rule.words}: nothing broke in {rule.seeds_max} seeds"
    assert found.clean, f"seed {found.seed} breaks a promise with the rule in place, too"


@pytest.mark.parametrize("rule", [rule for rule in ALL if rule.changes], ids=lambda rule: rule.name)
def test_a_rule_still_has_its_places(rule: Rule) -> None:
    """The old text of each change is in the code, the new one is another, and goes when the rule is
    back."""
    functions = [change.function() for change in rule.changes]
    before = [function.__code__ for function in functions]
    with rule.removed():
        assert all(f.__code__ != code for f, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before

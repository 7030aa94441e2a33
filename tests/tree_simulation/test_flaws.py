"""The simulation bites: without a rule of jobs of renames the checker for it says so."""

from __future__ import annotations

import pytest

from tests.simulation.rule import takes_other_arguments
from tests.tree_simulation.flaws import FLAWS, Flaw, caught
from tests.tree_simulation.truth import Violation

SEEDS = 75
"""So many show half of the flaws within seconds; `--flaws` runs as many as each one needs."""
SEEN_MIN = 15


@pytest.fixture(scope="module")
def found() -> dict[str, Violation]:
    """Each rule taken away in turn, for some seeds."""
    seen = {flaw.rule: caught(flaw, 0, SEEDS) for flaw in FLAWS}
    return {rule: shown[1] for rule, shown in seen.items() if shown is not None}


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.rule)
def test_a_rule_that_is_taken_away_is_missed(flaw: Flaw, found: dict[str, Violation]) -> None:
    """By the checker that is named, and its promise."""
    if flaw.rule not in found:
        pytest.skip(f"not shown by the first {SEEDS} seeds")
    violation = found[flaw.rule]
    assert (violation.promise, flaw.says in violation.what) == (flaw.promise, True)


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.rule)
def test_what_stands_for_a_rule_takes_its_arguments(flaw: Flaw) -> None:
    """Else it would be "missed" by a TypeError, or by nothing."""
    assert not takes_other_arguments(flaw.replacements())


def test_enough_rules_were_missed(found: dict[str, Violation]) -> None:
    """Half of them, at least."""
    assert len(found) >= SEEN_MIN

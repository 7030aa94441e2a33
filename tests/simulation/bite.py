"""Runs schedules without one rule until a promise breaks, and says after how many seeds."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulation.promises import Violation
from tests.simulation.rule import Rule
from tests.simulation.rules import NOT_SEEN_HERE, RULES
from tests.simulation.tally import quietly
from tests.simulation.tree_rules import on_trees

EVERYWHERE = (*RULES, *on_trees(RULES))
"""Those of the table."""


@dataclass(frozen=True)
class Bite:
    """How a removed rule was caught: at which seed, by which broken promise. ``clean``: that seed
    breaks nothing when the rule is in place."""

    rule: str
    seed: int | None
    violation: Violation | None
    clean: bool


def bite(name: str, first: int = 0, last: int | None = None) -> Bite:
    """Remove one rule and look for a seed that shows it: from the first to before the last; None:
    as many as the rule allows."""
    rule = next(rule for rule in EVERYWHERE if rule.name == name)
    end = rule.seeds_max if last is None else min(last, rule.seeds_max)
    seed, violation = _caught(rule, range(first, end))
    if seed is None:
        return Bite(name, None, None, clean=True)
    (green,) = quietly(seed, 1, rule.focus)
    return Bite(name, seed, violation, clean=not green.violations)


def _caught(rule: Rule, seeds: range) -> tuple[int | None, Violation | None]:
    with rule.removed():
        for result in quietly(seeds.start, len(seeds), rule.focus):
            for violation in result.violations:
                if "raised TypeError" in violation.what or "raised Attribute" in violation.what:
                    raise AssertionError(f"what stands for {rule.name!r} fails: {violation}")
                if violation.promise in rule.promises:
                    return result.seed, violation
    return None, None


def all_bites(processes: int) -> list[Bite]:
    """Remove each rule in turn."""
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(bite, [rule.name for rule in EVERYWHERE]))


def print_table(processes: int) -> int:
    """Print the table; 0 if every rule bites."""
    bites = all_bites(processes)
    print(f"{'rule taken away':<38} {'seeds':>7} {'cap':>7}  the promise that breaks")
    failed = 0
    for rule, found in zip(EVERYWHERE, bites, strict=True):
        if found.seed is None:
            failed += 1
            print(f"{rule.name:<38} {'-':>7} {rule.seeds_max:>7,}  NOT CAUGHT")
            continue
        note = "" if found.clean else "  (this seed breaks a promise with the rule, too!)"
        failed += not found.clean
        print(f"{rule.name:<38} {found.seed + 1:>7,} {rule.seeds_max:>7,}  {found.violation}{note}")
    for name, why in NOT_SEEN_HERE.items():
        print(f"{name}: not seen here: {why}")
    return 1 if failed else 0

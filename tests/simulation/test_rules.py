"""The simulation bites: without any one of the protocol's rules a named promise breaks."""

from __future__ import annotations

import os
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import pairwise

import pytest

from tests.nightly import most
from tests.simulation.rules import RULES, Bite, Rule, bite

SECONDS_MAX = most(1800.0, 60.0)
"""What is not tried by then is skipped, and says so; `--table` tries all."""
TRIED_MIN = 20
"""So many rules are tried however long it takes."""
ROUNDS = (0, 100, 400, 1600, 12000)
"""The seeds of a round: from one of these to before the next."""


@pytest.fixture(scope="module")
def bites() -> dict[str, Bite]:
    """Each rule taken away in turn, on all cores, while there is time: a few seeds of every rule,
    then more of those that nothing has shown yet."""
    found: dict[str, Bite] = {}
    end = time.monotonic() + SECONDS_MAX
    pool = ProcessPoolExecutor(os.cpu_count())
    try:
        for first, last in pairwise(ROUNDS):
            left = [
                rule
                for rule in RULES
                if rule.seeds_max > first
                and (rule.name not in found or found[rule.name].seed is None)
            ]
            running = {pool.submit(bite, rule.name, first, last): rule for rule in left}
            while running:
                if time.monotonic() > end and len(found) >= TRIED_MIN:
                    raise TimeoutError
                for future in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    one, rule = future.result(), running.pop(future)
                    if one.seed is not None or last >= rule.seeds_max:
                        found[one.rule] = one
    except TimeoutError:
        pass  # those that are missing are skipped below
    finally:
        processes = list(pool._processes.values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_taken_away_is_missed(rule: Rule, bites: dict[str, Bite]) -> None:
    """Within the stated number of seeds a promise breaks that holds at the same seed with the rule
    in place."""
    found = bites.get(rule.name)
    if found is None:
        pytest.skip(f"not tried within {SECONDS_MAX:.0f} s")
    assert found.seed is not None, f"{rule.words}: nothing broke in {rule.seeds_max} seeds"
    assert found.clean, f"seed {found.seed} breaks a promise with the rule in place, too"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_still_has_its_places(rule: Rule) -> None:
    """The old text of each change is in the code, the new one is another, and goes when the rule is
    back."""
    functions = [change.function() for change in rule.changes]
    before = [function.__code__ for function in functions]
    with rule.removed():
        assert all(f.__code__ != code for f, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before

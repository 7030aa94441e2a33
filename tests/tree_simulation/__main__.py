"""Run schedules of jobs of renames: ``--seeds A-B`` runs many, ``--seeds A`` replays one;
``--flaws`` takes each rule away in turn."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.tree_simulation import tally as tallies
from tests.tree_simulation import tree
from tests.tree_simulation.flaws import FLAWS, NOT_SEEN_HERE, caught
from tests.tree_simulation.truth import Violation


def main() -> int:
    """0 if no promise was broken, and each checker had its cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.tree_simulation", description=__doc__)
    parser.add_argument("--seeds", default="0", help="the first, or the first and the last: A-B")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no more after that")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbs", type=int, default=40, help="verbs that a failure prints")
    parser.add_argument("--flaws", action="store_true", help="what each checker catches")
    options = parser.parse_args()
    if options.flaws:
        return print_flaws(options.processes)
    tree.Faults.KEPT = options.verbs
    first, _, last = options.seeds.partition("-")
    if not last:
        (result,) = tallies.quietly(int(first), int(first) + 1)
        print(tallies.story(result))
        return 1 if result.violations else 0
    began = time.monotonic()
    tally = tallies.run_many(int(first), int(last) + 1, options.processes, options.seconds)
    for failure in tally.failures:
        print(tallies.story(failure), end="\n\n")
    print(tallies.table(tally))
    print(tallies.closing(tally, time.monotonic() - began))
    for few in tally.too_few:
        print(few)
    return 1 if tally.violations or tally.too_few else 0


def print_flaws(processes: int) -> int:
    """Print at which seed each flaw is seen, and how; 0 if each is."""
    missed = 0
    with ProcessPoolExecutor(processes) as pool:
        for flaw, seen in zip(FLAWS, pool.map(seen_within, range(len(FLAWS))), strict=True):
            missed += seen is None
            told = f"{seen[0]:>6,}  {seen[1]}" if seen is not None else "     -  NOT SEEN"
            print(f"{flaw.rule:<54}{told}")
    for rule, why in NOT_SEEN_HERE.items():
        print(f"{rule}: not seen here: {why}")
    return 1 if missed else 0


def seen_within(number: int) -> tuple[int, Violation] | None:
    """What shows the flaw of that number."""
    return caught(FLAWS[number])


if __name__ == "__main__":
    sys.exit(main())

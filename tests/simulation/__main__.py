"""Run schedules: ``python -m tests.simulation --seed N`` replays one,
``--runs N`` or ``--seconds S`` runs many; ``--table`` prints what each removed rule costs."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation import tally as tallies


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; alone: replay just this one")
    parser.add_argument("--runs", type=int, help="how many schedules")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--calls", type=int, default=30, help="calls that a failure prints")
    parser.add_argument("--all-cells", action="store_true", help="fail if a cell is never struck")
    parser.add_argument("--table", action="store_true", help="remove each rule in turn")
    options = parser.parse_args()
    if options.table:
        from tests.simulation.rules import print_table

        return print_table(options.processes)
    if options.runs is None and options.seconds is None:
        return replay(options.seed or 0, options.calls)
    started = time.monotonic()
    count = options.runs if options.runs is not None else 2**40
    tally = tallies.run_many(options.seed or 0, count, options.processes, options.seconds)
    for failure in tally.failures:
        print(tallies.story(failure), end="\n\n")
    print(tallies.table(tally))
    print(tallies.cases(tally))
    print(tallies.closing(tally, time.monotonic() - started))
    for few in tally.too_few:
        print(few)
    missed = options.all_cells and bool(tally.never_struck)
    if missed:
        print(f"never struck: {tally.never_struck}")
    return 1 if tally.violations or tally.too_few or missed else 0


def replay(seed: int, calls: int) -> int:
    from tests.simulation import faults

    faults.CALLS_KEPT = calls
    (result,) = tallies.quietly(seed, 1)
    print(tallies.story(result))
    verdict = f"{len(result.violations)} violations" if result.violations else "no violation"
    print(f"{verdict}, {result.requests} requests, trace {result.trace}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())

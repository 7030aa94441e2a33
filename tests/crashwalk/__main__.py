"""Walk every case, two deep: ``python -m tests.crashwalk [--depth 1] [--only WORD]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.crashwalk.walk import CASES, Case, Walk, walk
from tests.simulation.tally import quiet


def quiet_walk(depth: int, case: Case) -> Walk:
    """Walk one case without its log."""
    with quiet():
        return walk(case, depth)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashwalk", description=__doc__)
    parser.add_argument("--depth", type=int, default=2, choices=(1, 2))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name holds it")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in str(case)]
    if not cases:
        parser.error(f"no case's name holds {options.only!r}")
    started = time.monotonic()
    points = failures = 0
    with ProcessPoolExecutor(options.processes) as pool:
        walks = pool.map(partial(quiet_walk, options.depth), cases)
        for case, walked in zip(cases, walks, strict=True):
            points += walked.points
            failures += len(walked.failures)
            print(f"{walked.points:>7,} crash points: {case}", flush=True)
            for kills, end in walked.failures[:3]:
                print(f"  {kills}", *end.violations, *end.calls, sep="\n    ")
    print(
        f"{points:,} crash points, {options.depth} deep, {len(cases)} cases, {failures} failures,"
        f" {time.monotonic() - started:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

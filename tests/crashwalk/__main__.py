"""Walk every case, two deep: ``python -m tests.crashwalk [--depth 1]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.crashwalk.walk import CASES, Walk, walk
from tests.simulation.tally import quiet


def quiet_walk(depth: int, number: int) -> Walk:
    """Walk one case without its log."""
    with quiet():
        return walk(CASES[number], depth)


def main() -> int:
    """0 if no promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashwalk", description=__doc__)
    parser.add_argument("--depth", type=int, default=2, choices=(1, 2))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    points = failures = 0
    with ProcessPoolExecutor(options.processes) as pool:
        walks = pool.map(partial(quiet_walk, options.depth), range(len(CASES)))
        for case, walked in zip(CASES, walks, strict=True):
            points += walked.points
            failures += len(walked.failures)
            print(f"{walked.points:>7,} crash points: {case}", flush=True)
            for kills, end in walked.failures[:3]:
                print(f"  {kills}", *end.violations, *end.calls, sep="\n    ")
    print(
        f"{points:,} crash points, {options.depth} deep, {len(CASES)} cases, {failures} failures,"
        f" {time.monotonic() - started:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

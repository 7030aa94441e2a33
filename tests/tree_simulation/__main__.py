"""Run schedules of jobs of renames: ``--seeds A-B`` runs many, ``--seeds A`` replays one."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.tree_simulation import tally as tallies
from tests.tree_simulation import tree


def main() -> int:
    """0 if no promise was broken, and each checker had its cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.tree_simulation", description=__doc__)
    parser.add_argument("--seeds", default="0", help="the first, or the first and the last: A-B")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no more after that")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbs", type=int, default=40, help="verbs that a failure prints")
    options = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())

"""Measure this library beside others, on this machine.

python -m benchmarks                    all: twenty minutes
python -m benchmarks --quick            the most important, in two minutes
python -m benchmarks --only streaming   or commit, small, requests, disk; or commit-20ms
python -m benchmarks --write-docs       all, and put it into docs/performance.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import report, rounds, server
from benchmarks.measure import PEERS, machine
from benchmarks.plan import plan
from benchmarks.rounds import QUICK, Settings


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small amounts")
    parser.add_argument("--only", default="", metavar="NAMES")
    parser.add_argument("--rounds", type=int, metavar="N", help="5; 3 with --quick")
    parser.add_argument("--minutes", type=float, metavar="N", help="fewer rounds, to end in time")
    parser.add_argument("--large", action="store_true", help="commits of 100,000 files, not 10,000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results")
    parser.add_argument("--write-docs", action="store_true", help="into docs/performance.md")
    parser.add_argument("--from", type=Path, dest="kept", metavar="FILE", help="measure nothing")
    chosen = parser.parse_args(argv)
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds is at least 1")
    try:
        chosen.measurements = rounds.pick(plan(), chosen.only, quick=chosen.quick)
    except ValueError as error:
        parser.error(str(error))
    return chosen


def settings_of(chosen: argparse.Namespace) -> Settings:
    """How much is done."""
    given = QUICK if chosen.quick else Settings()
    return replace(
        given,
        rounds=chosen.rounds or given.rounds,
        budget_seconds=chosen.minutes * 60 if chosen.minutes else given.budget_seconds,
        scale=10 if chosen.large else 1,
    )


def main(argv: Sequence[str]) -> int:
    chosen = arguments(argv)
    failed = False
    if chosen.kept is not None:
        result = json.loads(chosen.kept.read_text(encoding="utf-8"))
    else:
        say = partial(print, file=sys.stderr, flush=True)
        with server.fast() as store, machine(store, PEERS) as on:
            outcomes = rounds.measure_all(on, chosen.measurements, settings_of(chosen), say)
        result, failed = report.results(outcomes), any(outcome.failed for outcome in outcomes)
    print(report.terminal(result))
    if chosen.json:
        report.keep(result, chosen.json)
    if chosen.write_docs:
        report.write_docs(result)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except server.NoGo as missing:
        sys.exit(f"The server is in Go: {missing}")

"""Chaos: victims are struck at moments, on stores, and a judge reads what is there.

    python -m tests.chaos soak [--minutes 5] [--seed 1] [--transport both]
    python -m tests.chaos network [--only WORD]
    python -m tests.chaos streams [--kills 200] [--minutes 25] [--seed 1]

``soak``: mixed jobs on a real server; drivers, workers and the server are killed. ``--transport
both`` runs it twice, by boto3 and by the fast way, each for that long. ``network``: every fault in
every phase of a job. ``streams``: queries in real Spark drivers that are killed. The exit code is 1
if anything was wrong, or too little happened.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from magic_committer.options import Transport
from tests.chaos.network import cells, run_cells
from tests.chaos.soak import soak


def soaked(chosen: argparse.Namespace) -> bool:
    """Whether nothing was wrong in a soak."""
    ways: tuple[Transport, ...] = (chosen.transport,)
    if chosen.transport == "both":
        ways = ("boto3", "fast")
    wrong = False
    for way in ways:
        kind = f"seed {chosen.seed}, by {way}"
        print(f"soak: {kind}, {chosen.minutes:g} minutes", flush=True)
        figures = soak(chosen.seed, chosen.minutes * 60, transport=way)
        print(f"soak: {kind}, ended", *figures.lines(), sep="\n", flush=True)
        wrong = wrong or bool(figures.wrong) or not figures.jobs
    return not wrong


def networked(chosen: argparse.Namespace) -> bool:
    """Whether every promise was kept behind a hostile network, and every fault struck."""
    drawn = cells(chosen.only, every_way=True)
    if not drawn:
        sys.exit(f"no cell's name holds {chosen.only!r}")
    began = time.monotonic()
    run_cells(drawn)
    for cell in drawn:
        print(f"{cell}: struck {cell.struck}, {cell.told.outcome}, {cell.seconds:.1f} s")
    wrong = [cell for cell in drawn if cell.broken or not cell.struck]
    for cell in wrong:
        never = [] if cell.struck else ["the fault never struck"]
        print(f"\nWRONG: {cell}: told {cell.told}", *cell.broken, *never, sep="\n  ")
    print(
        f"{len(drawn)} cells, {sum(cell.struck for cell in drawn)} faults struck, {len(wrong)}"
        f" wrong, slowest {max(cell.seconds for cell in drawn):.0f} s;"
        f" {time.monotonic() - began:.0f} s"
    )
    return not wrong


def streamed(chosen: argparse.Namespace) -> bool:
    """Whether each row of killed streams was there once, and enough were killed in time."""
    from tests.chaos.streams import Tally, kills

    print(f"killed streams: seed {chosen.seed}, {chosen.kills} kills", flush=True)
    began = time.monotonic()

    def tell(tally: Tally) -> None:
        print(f"{time.monotonic() - began:6.0f} s: {next(tally.lines())}", flush=True)

    with tempfile.TemporaryDirectory(prefix="magic-committer-streams-") as folder:
        try:
            tally = kills(
                chosen.seed, chosen.kills, Path(folder), seconds_max=chosen.minutes * 60, tell=tell
            )
        except AssertionError as error:
            print(f"WRONG (seed {chosen.seed}): {error}")
            return False
    print(*tally.lines(), sep="\n")
    return bool(tally.kills.total() >= chosen.kills)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    kinds = parser.add_subparsers(required=True)
    for name, what in (("soak", soaked), ("network", networked), ("streams", streamed)):
        kind = kinds.add_parser(name)
        kind.set_defaults(what=what)
        seed = random.SystemRandom().randrange(2**31)
        kind.add_argument("--seed", type=int, default=seed, help="drawn, if not given")
        kind.add_argument("--minutes", type=float, default=25.0 if name == "streams" else 5.0)
        kind.add_argument("--transport", choices=("auto", "boto3", "fast", "both"), default="auto")
        kind.add_argument("--only", default="", metavar="WORD", help="cells whose name holds it")
        kind.add_argument("--kills", type=int, default=200, help="how many (%(default)s)")
    chosen = parser.parse_args(given)
    return 0 if chosen.what(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

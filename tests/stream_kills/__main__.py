"""Streams in real Spark drivers that are killed with -9 at drawn requests, and a judge.

    python -m tests.stream_kills [--kills 200] [--minutes 25] [--seed 1]

Prints the seed, a line for each stream, and what was met; the exit code is 1 if a row was missing
or there twice, or if the time was over before the kills were made.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.stream_kills.processes import DriverFailed
from tests.stream_kills.runner import LIVES, Tally, Wrong, kills


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stream_kills")
    parser.add_argument("--kills", type=int, default=200, help="how many (%(default)s)")
    parser.add_argument("--minutes", type=float, default=25.0, help="at most (%(default)s)")
    parser.add_argument("--lives", type=int, default=LIVES, help="of a stream (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="drawn, if not given")
    chosen = parser.parse_args(given)
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    print(f"killed streams: seed {seed}, {chosen.kills} kills", flush=True)
    began = time.monotonic()

    def tell(tally: Tally) -> None:
        seconds = time.monotonic() - began
        print(
            f"{seconds:6.0f} s: {tally.streams} streams, {tally.kills.total()} kills,"
            f" {tally.twins.total()} twins",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="magic-committer-streams-") as folder:
        try:
            tally = kills(
                seed, chosen.kills, Path(folder),
                seconds_max=chosen.minutes * 60, lives=chosen.lives, tell=tell,
            )  # fmt: skip
        except (Wrong, DriverFailed) as error:
            print(f"WRONG (seed {seed}): {error}")
            return 1
    for line in tally.lines():
        print(line)
    if tally.kills.total() < chosen.kills:
        print(f"too few kills within {chosen.minutes:g} minutes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

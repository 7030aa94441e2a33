"""Mixed jobs on a real server, with drivers, workers and the server killed; and a judge.

    python -m tests.soak [--minutes 5] [--seed 1]

Prints the seed and the figures; the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.soak.soak import soak


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn, if not given")
    parser.add_argument("--samples", action="store_true", help="print each job's memory too")
    arguments = parser.parse_args()
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(2**31)
    print(f"soak: seed {seed}, {arguments.minutes:g} minutes", flush=True)
    started = time.monotonic()
    figures = soak(seed, arguments.minutes * 60)
    print(f"soak: seed {seed}, {time.monotonic() - started:.0f} s")
    for line in figures.lines():
        print(line)
    if arguments.samples:
        for sample in figures.steady:
            print(f"{sample.rss_bytes / 2**20:.0f} MiB, {sample.descriptors} descriptors")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mixed jobs on a real server, with drivers, workers and the server killed; and a judge.

    python -m tests.soak [--minutes 5] [--seed 1] [--transport both] [--weather]

``--transport both`` runs it twice, by boto3 and by the fast way, each for that long. ``--weather``
puts resets, bursts of 503 and slow answers between the library and the server. Prints the seed and
the figures; the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from magic_committer.options import Transport
from tests.soak.soak import soak


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn, if not given")
    parser.add_argument(
        "--transport", choices=("auto", "boto3", "fast", "both"), default="auto", help="what sends"
    )
    parser.add_argument("--weather", action="store_true", help="a network that fails")
    parser.add_argument("--samples", action="store_true", help="print each job's memory too")
    arguments = parser.parse_args(given)
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(2**31)
    ways: tuple[Transport, ...] = (arguments.transport,)
    if arguments.transport == "both":
        ways = ("boto3", "fast")
    wrong = False
    for way in ways:
        kind = f"seed {seed}, by {way}{', in bad weather' if arguments.weather else ''}"
        print(f"soak: {kind}, {arguments.minutes:g} minutes", flush=True)
        started = time.monotonic()
        figures = soak(seed, arguments.minutes * 60, transport=way, stormy=arguments.weather)
        print(f"soak: {kind}, {time.monotonic() - started:.0f} s")
        for line in figures.lines():
            print(line, flush=True)
        if arguments.samples:
            for sample in figures.steady:
                print(f"{sample.rss_bytes / 2**20:.0f} MiB, {sample.descriptors} descriptors")
        wrong = wrong or bool(figures.wrong)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""The command line: one round that verifies, then interleaved rounds that are measured.

python -m benchmarks
python -m benchmarks --mib 256 --rounds 3 magic-committer smart_open
python -m benchmarks --profile profile.txt
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks import report
from benchmarks.measure import Failed, Run, measure
from benchmarks.server import Server, running
from benchmarks.writers import WRITERS, MiB

OURS = "magic-committer"
VERIFY_BYTES_MAX = 128 * MiB
"""The verifying round takes at most this: it is about bytes, not about time."""
SIGNING = {"default": (False,), "unsigned": (True,), "both": (False, True)}
TITLES = {
    False: "## Payloads signed as each does by itself over HTTP",
    True: "## Payloads not signed, as over HTTPS",
}


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("writers", nargs="*", metavar="WRITER", help=f"of {', '.join(WRITERS)}")
    parser.add_argument("--mib", type=int, default=1024, help="size of the file (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each runs (%(default)s)")
    parser.add_argument("--peer", default="smart_open", help="ratios are to it (%(default)s)")
    parser.add_argument("--payload", choices=SIGNING, default="both", help="signing (%(default)s)")
    parser.add_argument("--profile", metavar="FILE", help="only profile ours, into FILE")
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.writers) - WRITERS.keys():
        parser.error(f"no writer {', '.join(sorted(unknown))}; there are {', '.join(WRITERS)}")
    if chosen.mib < 1 or chosen.rounds < 1:
        parser.error("--mib and --rounds are at least 1")
    chosen.writers = chosen.writers or list(WRITERS)
    return chosen


def compare(
    server: Server, writers: Sequence[str], size: int, rounds: int, *, unsigned: bool
) -> list[Run]:
    """Verify every writer once, then run them in rounds, each round in the order turned by one."""
    for name in writers:
        measure(server, name, min(size, VERIFY_BYTES_MAX), unsigned=unsigned, verify=True)
    runs: list[Run] = []
    for number in range(rounds):
        turn = number % len(writers)
        for name in (*writers[turn:], *writers[:turn]):
            run = measure(server, name, size, unsigned=unsigned)
            print(f"  {number + 1}/{rounds} {name}: {run.mb_per_second:.0f} MB/s", file=sys.stderr)
            runs.append(run)
    return runs


def main(argv: Sequence[str]) -> int:
    """Run what the command line asks for and print it."""
    chosen = arguments(argv)
    size = chosen.mib * MiB
    with running() as server:
        if chosen.profile:
            path = os.path.abspath(chosen.profile)
            unsigned = chosen.payload == "unsigned"
            measure(server, OURS, size, unsigned=unsigned, profile_to=path)
            with open(path, encoding="utf-8") as file:
                print(file.read())
            return 0
        print(report.machine(size, chosen.rounds))
        print(report.versions(chosen.writers), flush=True)
        for unsigned in SIGNING[chosen.payload]:
            runs = compare(server, chosen.writers, size, chosen.rounds, unsigned=unsigned)
            print(f"\n{TITLES[unsigned]}\n\n{report.table(runs, chosen.peer)}")
            print(f"\nRequests:\n{report.requests(runs)}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as failed:
        sys.exit(str(failed))

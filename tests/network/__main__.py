"""Run the hostile network: ``python -m tests.network [--only WORD]``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.network.cells import cells, run


def main() -> int:
    """0 if every promise was kept and every fault struck."""
    parser = argparse.ArgumentParser(prog="python -m tests.network", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="cells whose name holds it")
    options = parser.parse_args()
    drawn = cells(options.only, every_way=True)
    if not drawn:
        parser.error(f"no cell's name holds {options.only!r}")
    began = time.monotonic()
    run(drawn)
    for cell in drawn:
        print(f"{cell}: struck {cell.struck}, {cell.told}, {cell.seconds:.1f} s; {cell.settled}")
    wrong = [cell for cell in drawn if cell.broken or not cell.struck]
    for cell in wrong:
        print(
            f"\n{cell}: told {cell.told!r} ({cell.why})", *cell.broken, sep="\n  ", file=sys.stderr
        )
        if not cell.struck:
            print("  the fault never struck", file=sys.stderr)
    struck, slowest = sum(cell.struck for cell in drawn), max(cell.seconds for cell in drawn)
    print(
        f"{len(drawn)} cells, {struck} faults struck, {len(wrong)} wrong,"
        f" slowest {slowest:.0f} s; {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

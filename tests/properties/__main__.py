"""Compare committers: ``python -m tests.properties [--only WORD] [--write]``.

Prints the table, and a schedule for each *no*. ``--write`` puts the table into docs/committers.md.
"""

from __future__ import annotations

import argparse
import sys

from tests.properties import table
from tests.properties.comparison import undecided
from tests.properties.subjects import FOILS, OURS
from tests.properties.together import decide, on_all_cores


def main() -> int:
    """0 if every cell was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="committers with it in the name")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    chosen = [name for name in (*OURS, *FOILS) if options.only in name]
    if not chosen:
        parser.error(f"no committer's name holds {options.only!r}")
    if options.write and options.only:
        parser.error("the page shows all committers: leave --only out")
    columns = []
    with on_all_cores() as start:
        for name, future in start(decide, chosen).items():
            decided = future.result()
            columns.append(decided.column)
            told = f"{decided.column.schedules:,} schedules, {decided.seconds:.1f} s"
            print(f"{name}: {told}", flush=True)
    for column in columns:
        for name, cell in column.cells.items():
            if cell.witness is not None:
                print("", *table.witness_lines(name, cell.witness), sep="\n")
    print("", table.generated(columns), sep="\n")
    if options.write:
        page = table.PAGE.read_text(encoding="utf-8")
        table.PAGE.write_text(table.page_with(table.generated(columns), page), encoding="utf-8")
    empty = undecided(columns)
    print(*(f"nobody tried to break {cell}" for cell in empty), sep="\n", end="\n" if empty else "")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())

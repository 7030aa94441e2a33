"""Compare committers: ``python -m tests.properties [--only WORD] [--write]``.

Prints the table, and a schedule for each *no*. ``--write`` puts the table into docs/committers.md.
"""

from __future__ import annotations

import argparse
import sys

from tests.properties.comparison import (
    FOILS,
    OURS,
    PAGE,
    decide,
    generated,
    on_all_cores,
    page_with,
)


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
            column, seconds = future.result()
            columns.append(column)
            print(f"{name}: {column.schedules:,} schedules, {seconds:.1f} s", flush=True)
    empty = []
    for column in columns:
        empty += [f"{column.name}: {name}" for name in column.undecided]
        for name, cell in column.cells.items():
            if cell.witness is not None:
                print("", *cell.witness.lines(name), sep="\n")
    print("", generated(columns), sep="\n")
    if options.write:
        page = page_with(generated(columns), PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(page, encoding="utf-8")
    for cell_name in empty:
        print(f"nobody tried to break {cell_name}")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())

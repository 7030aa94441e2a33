"""What a job of Hadoop's and one of ours ask of the store, counted side by side."""

from __future__ import annotations

from tests.interop import table
from tests.interop.jars import RELEASES
from tests.interop.jvm import Jvm
from tests.interop.lake import Lake
from tests.interop.wire import Wire


def columns(names: list[str]) -> dict[str, list[str]]:
    """The cells of some columns of the table in the docs, by row."""
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in table.documented().splitlines()]
    at = [rows[0].index(name) for name in names]
    return {row[0]: [row[n] for n in at] for row in rows[2:]}


def nonzero(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """Rows in which something is counted."""
    return {name: cells for name, cells in rows.items() if set(cells) != {"0"}}


def held(counts: table.Counts) -> None:
    """Compare with the docs."""
    rows = [line.split("|")[1:-1] for line in table.text(counts).splitlines()]
    measured = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}
    assert measured, "no request was counted"
    assert nonzero(columns(list(counts))) == measured, "python -m tests.interop.table writes it"


def test_hadoop_sends_what_the_docs_say(hadoop: Jvm, wired: Wire, lake: Lake) -> None:
    """A job of four tasks with five files each: every kind of request, as docs/hadoop.md has it."""
    held(table.measured(hadoop.release, hadoop, wired, lake))


def test_we_send_what_the_docs_say_and_fewer(wired: Wire, lake: Lake) -> None:
    """The same job by us, tracked either way: as docs/hadoop.md has it, and fewer in all than the
    newest Hadoop sends when it keeps track in the same way."""
    counts = table.ours_measured(wired, lake)
    held(counts)
    newest = f"Hadoop {RELEASES[0]}"
    theirs = columns([newest, f"{newest}, in memory"])["**all**"]
    for one, total in zip(counts.values(), theirs, strict=True):
        assert one.total() < int(total.strip("*"))

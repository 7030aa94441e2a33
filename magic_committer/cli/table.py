"""Tables for people: as wide as the terminal, and a key in one piece. Pure.

* The last column is the key (or what else names a row). It is never cut, wrapped or padded, so that
  it can be copied. Where it does not fit beside the others it gets a line of its own.
* Where a table is too wide, its least important columns are left out first; the last line names
  them.
* A column without anything in it is left out.
* A column of reasons shows a number; the reasons stand below the table, each once.
* A last column of prose is wrapped between words.
* Without a width (a file, a pipe) nothing is left out and nothing wrapped. No line ends in padding.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

GAP = "  "
"""Between two columns."""
PROSE_COLUMNS_MIN = 30
"""Places on the screen, the least in which prose is wrapped."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        field: of the row. title: above the column; "" is the field's name.
        words: how a value reads for people. right: numbers stand to the right.
        spare: how early it is left out where the table is too wide, the greatest first; 0: never.
        reason: the cells are numbers, and the words stand below the table.
        prose: of the last column: it may be wrapped between words.
    """

    field: str
    title: str = ""
    words: Callable[[Any], str] = str
    right: bool = False
    spare: int = 0
    reason: bool = False
    prose: bool = False


@dataclass(frozen=True, slots=True)
class _Filled:
    """A column with its cells, the title first, and the places on the screen that it needs."""

    column: Column
    cells: tuple[str, ...]
    width: int

    @classmethod
    def of(cls, column: Column, cells: Sequence[str]) -> _Filled:
        widest = max(map(cell_len, cells))
        needed = min(PROSE_COLUMNS_MIN, widest) if column.prose else widest
        return cls(column, tuple(cells), needed)

    def padded(self, line: int, *, last: bool) -> str:
        """One cell, as wide as the column; the last one of a line without padding."""
        cell = self.cells[line]
        padding = " " * (self.width - cell_len(cell))
        if self.column.right:
            return padding + cell
        return cell if last else cell + padding


def render(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    width: int | None,
    clean: Callable[[object], str] = str,
) -> list[str]:
    """The lines of a table.

    Args:
        columns: the last one names a row. rows: at least one.
        width: places of a line on the screen; None: no limit.
        clean: what makes a text fit to be printed.
    """
    reasons: dict[str, int] = {}

    def cell(column: Column, row: Mapping[str, Any]) -> str:
        told = clean(column.words(row.get(column.field, "")))
        if not (column.reason and told):
            return told
        return f"[{reasons.setdefault(told, len(reasons) + 1)}]"

    filled = [
        _Filled.of(column, [column.title or column.field, *(cell(column, row) for row in rows)])
        for column in columns
    ]
    filled = [one for one in filled[:-1] if any(one.cells[1:])] + filled[-1:]
    shown, apart = _fitting(filled, width)
    lines = _lines(shown, apart, width, len(rows) + 1)
    for told, number in reasons.items():
        lines += wrapped(f"[{number}] ", told, width)
    if left_out := [one.cells[0] for one in filled if one not in shown]:
        told = f"Left out, for they do not fit: {', '.join(left_out)}. --format jsonl has all"
        lines += wrapped("", told, width)
    return lines


def _fitting(filled: list[_Filled], width: int | None) -> tuple[list[_Filled], bool]:
    """The columns that are shown, and whether the last gets lines of its own."""
    if width is None:
        return filled, False
    shown = _thinned(filled, width)
    if _width(shown) <= width:
        return shown, False
    beside = _thinned(filled[:-1], width)
    return [*beside, filled[-1]], len(filled) > 1


def _thinned(filled: list[_Filled], width: int) -> list[_Filled]:
    """Without the columns that are spare, as many as it takes to fit."""
    shown = list(filled)
    while _width(shown) > width and any(one.column.spare for one in shown):
        shown.remove(max(shown, key=lambda one: one.column.spare))
    return shown


def _width(filled: Sequence[_Filled]) -> int:
    return sum(one.width for one in filled) + len(GAP) * (len(filled) - 1)


def _lines(shown: Sequence[_Filled], apart: bool, width: int | None, count: int) -> list[str]:
    *beside, last = shown
    lines: list[str] = []
    for number in range(count):
        told = last.cells[number]
        if apart:
            lines.append(_row(beside, number))
            lines += wrapped(GAP, told, width) if last.column.prose else [_alone(told, width)]
        elif last.column.prose and width is not None:
            before = "".join(f"{one.padded(number, last=False)}{GAP}" for one in beside)
            lines += wrapped(before, told, width)
        else:
            lines.append(_row(shown, number))
        if number == 0:
            widest = max(map(cell_len, lines)) if width is not None and apart else 0
            rule = _width(beside) if apart else _rule(shown)
            lines.append("─" * max(1, min(max(rule, widest), width or rule)))
    return lines


def _alone(told: str, width: int | None) -> str:
    """A key on a line of its own; one that would be too long by the indent has none."""
    fits_without = width is not None and width - len(GAP) < cell_len(told) <= width
    return told if fits_without else f"{GAP}{told}"


def _rule(shown: Sequence[_Filled]) -> int:
    """How wide the line below the titles is."""
    longest = max(map(cell_len, shown[-1].cells))
    return _width(shown) - shown[-1].width + longest


def _row(filled: Sequence[_Filled], number: int) -> str:
    """One line; empty cells at its end are left out with their padding."""
    used = len(filled)
    while used and not filled[used - 1].cells[number]:
        used -= 1
    return GAP.join(
        one.padded(number, last=place == used) for place, one in enumerate(filled[:used], 1)
    )


def beside(name: str, told: str, width: int | None, *, prose: bool) -> list[str]:
    """The lines of a name and what is told of it; below the name where it does not fit beside it.

    Args:
        prose: it may be wrapped.
    """
    before = f"{name}{GAP}"
    if width is None or cell_len(before + told) <= width:
        return [f"{before}{told}"]
    if prose and cell_len(before) + PROSE_COLUMNS_MIN <= width:
        return wrapped(before, told, width)
    return [name.rstrip(), *(wrapped(GAP, told, width) if prose else [_alone(told, width)])]


def wrapped(before: str, told: str, width: int | None) -> list[str]:
    """The lines of prose after what stands before it, wrapped between words; each is indented as
    far."""
    if width is None or cell_len(before) + cell_len(told) <= width or not told:
        return [f"{before}{told}" if told else before.rstrip()]
    if max(map(cell_len, told.split())) > width - cell_len(before) and not before.strip():
        before = ""  # of a key that would be cut
    lines = textwrap.wrap(
        told, max(PROSE_COLUMNS_MIN, width - cell_len(before)),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    indent = " " * cell_len(before)
    return [f"{indent if number else before}{line}" for number, line in enumerate(lines)]

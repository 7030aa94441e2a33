"""What commands print: rows and documents, in formats with one versioned schema.

* ``table``: for people. rich lays it out as wide as the terminal; in a pipe nothing is wrapped, and
  each row is a line. A key is never cut: where it does not fit it has a line of its own. Reasons
  stand below a table, by number.
* ``json``: one document, ``{"schema": 1, "type": "uploads", "rows": […], "summary": {…}}``.
* ``jsonl``: a line for each row as it is found, ``{"schema": 1, "type": "upload", …}``, and one for
  the summary, ``"type": "uploads.summary"``.
* ``csv``: a header and the rows; the summary goes to stderr.

A field keeps its name and meaning within a version of the schema; new fields may come. Times are
seconds since the epoch, ages and durations seconds, sizes bytes; what is not known is null
(empty in CSV). Rows are written as they come, and a table has the first `ROWS_MAX`: memory does not
grow with their number.

What a store says is shown, never obeyed, in every format (docs/security.md): control and format
characters (escape sequences, marks that turn the direction of writing round) are escaped. In JSON
the escape is JSON's, so that a program reads the very value. In CSV a text that a spreadsheet would
take for a formula begins with ``'``.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, TextIO

import orjson

from magic_committer.cli.app import Format, clean, note
from magic_committer.cli.values import time_words
from magic_committer.errors.messages import age_words, bytes_words

SCHEMA = 1
"""Of all formats for programs together; raised when a field changes its meaning or goes."""
ROWS_MAX = 1000
"""Rows of a table; of the others it shows the number."""
SCREEN_LINES = 40
"""Below a longer table stands what stands above it, too."""
PIPE_COLUMNS = 1_000_000
"""The width of what is no terminal: no line is wrapped."""
FORMULA_STARTS = frozenset("=+-@＝＋－＠\t\r\n")
"""What a spreadsheet computes begins with one of these (OWASP, "CSV Injection")."""
ITEMS_MAX = 20
"""Items and counters of one field of a document that people are shown."""
TIMES = ("created", "saved", "timestamp", "started")
"""Fields that are times, in seconds since the epoch."""
UNITS: Mapping[str, Callable[[Any], str]] = {
    "age": age_words, "bytes": bytes_words, "seconds": "{:.1f}".format,
}  # fmt: skip
PROSE = ("did", "problem", "warning", "warnings", "why", "would")
"""Fields that are sentences."""

Row = Mapping[str, Any]

BARS: list[Any] = []
"""The progress bars on the terminal. They are stopped before anything else is written there; the
next step shows them again."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. One without anything in it is left out.

    Attributes:
        field: of the row. title: above the column; "" is the field's name.
        words: how a value reads for people. right: numbers stand to the right.
        reason: the cells are numbers, and the words stand below the table.
        prose: it may be wrapped between words.
    """

    field: str
    title: str = ""
    words: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    right: bool = False
    reason: bool = False
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    Attributes:
        given: None: the process's stdout at the time of each call.
        changes: the command changes something: it goes on if nobody can read what it prints.
        lost: why something could not be printed; nothing more is printed then.
    """

    format: Format
    given: TextIO | None = None
    changes: bool = False
    lost: list[OSError] = field(default_factory=list)

    @property
    def stream(self) -> TextIO:
        stream = self.given if self.given is not None else sys.stdout
        for bars in BARS if stream.isatty() else ():
            bars.stop()
        return stream

    def write(self, text: str) -> None:
        """Print a text. What the encoding of stdout does not have is escaped as JSON does it, or as
        the stream was set up (`cli.main`)."""
        stream = self.stream
        if self.format in ("json", "jsonl") and not text.isascii():
            try:
                text.encode(stream.encoding or "utf-8")
            except UnicodeEncodeError:
                text = _escaped(text, str.isascii)
        try:
            if not self.lost:
                stream.write(text)
        except OSError as error:
            self.lost.append(error)

    def flush(self) -> None:
        """Hand on what was printed. What could not be printed is not tried again at the end of the
        process."""
        try:
            if not self.lost:
                self.stream.flush()
        except OSError as error:
            self.lost.append(error)
        if self.lost:
            with suppress(OSError), open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self.stream.fileno())

    def rows(
        self,
        kind: str,
        columns: Sequence[Column],
        rows: Iterable[Row],
        *,
        fields: Sequence[str],
        summary: Callable[[], Row] = dict,
        closing: Callable[[], str] = str,
    ) -> None:
        """Print rows of a ``kind``: a table of ``columns``, or the ``fields`` for programs. If
        their iterator fails, those that it gave are printed first. ``summary`` and ``closing``, a
        sentence above the table, are asked after the last row; that is the first that could not be
        printed, but for a command that changes something."""
        read = takewhile(lambda _: self.changes or not self.lost, rows)
        chosen = ({name: row.get(name) for name in fields} for row in read)
        if self.format == "jsonl":
            for row in chosen:
                self._line(_typed(kind, row))
            self._line(_typed(f"{kind}s.summary", summary()))
        elif self.format == "json":
            self._whole(f"{kind}s", chosen, summary)
        elif self.format == "csv":
            writer = csv.writer(self, lineterminator="\n")
            writer.writerow(fields)
            for row in chosen:
                writer.writerow(map(_cell, row.values()))
                self.flush()
            if told := closing():
                note(told)
        else:
            self._table(columns, rows, closing)

    def _whole(self, kind: str, rows: Iterator[Row], summary: Callable[[], Row]) -> None:
        head = f'{{\n  "schema": {SCHEMA},\n  "type": "{kind}",\n  "rows": ['
        before, failed = head, True
        try:
            for row in rows:
                self.write(f"{before}\n    {_json(row)}")
                before = ","
            failed = False
        finally:
            if before != head or not failed:  # a document that was begun is ended
                start = head if before == head else "\n  "
                self.write(f'{start}],\n  "summary": {_json(summary())}\n}}\n')

    def _table(
        self, columns: Sequence[Column], rows: Iterable[Row], closing: Callable[[], str]
    ) -> None:
        first: list[Row] = []
        count, told = 0, ""
        try:
            for row in rows:
                count += 1
                if count <= ROWS_MAX:
                    first.append(row)
            told = closing()
        finally:
            lines = self._lines(columns, first) if first else []
            if count > ROWS_MAX:
                lines.append(f"and {count - ROWS_MAX:,} more: --format jsonl has all")
            if told:
                self.text(told)
            self.write("".join(f"{line}\n" for line in lines))
            if told and len(lines) > SCREEN_LINES:
                self.text(told)

    def _lines(self, columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
        """The lines of a table, then the reasons. A key that does not fit beside the rest has a
        line of its own."""
        reasons: dict[str, int] = {}

        def cell(column: Column, row: Row) -> str:
            told = clean(column.words(row.get(column.field, "")))
            if not (column.reason and told):
                return told
            return f"[{reasons.setdefault(told, len(reasons) + 1)}]"

        cells = [[cell(column, row) for row in rows] for column in columns]
        *beside, last = zip(columns, cells, strict=True)
        shown = [(column, told) for column, told in beside if any(told)]
        told, fits = self._laid_out([*shown, last])
        if not fits and not any(column.prose for column, _ in (*shown, last)):
            lines = self._laid_out(shown)[0] if shown else [""] * (len(rows) + 1)
            keys = (last[0].title or last[0].field, *last[1])
            told = [lines[0], f"  {keys[0]}"]
            for line, key in zip(lines[1:], keys[1:], strict=True):
                told += [line, _alone(key, self._width())]
        for reason, number in reasons.items():
            told += wrapped(f"[{number}] ", reason, self._width())
        return told

    def _laid_out(self, filled: Sequence[tuple[Column, Sequence[str]]]) -> tuple[list[str], bool]:
        """The lines of some columns with their cells, and whether the stream is wide enough."""
        from rich.console import Console  # late: only tables need it
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column, _ in filled:
            side: Literal["right", "left"] = "right" if column.right else "left"
            title = Text(column.title or column.field)
            table.add_column(title, justify=side, no_wrap=not column.prose)
        for row in zip(*(cells for _, cells in filled), strict=True):
            table.add_row(*map(Text, row))
        laid_out = io.StringIO()  # the stream may be full
        console = Console(
            file=laid_out, force_terminal=self.stream.isatty() or None, width=self._width(),
            markup=False, highlight=False,
        )  # fmt: skip
        console.print(table)
        wide = console.options.update(max_width=PIPE_COLUMNS)
        fits = console.measure(table, options=wide).maximum <= console.width
        return [line.rstrip() for line in laid_out.getvalue().splitlines()], fits

    def document(self, kind: str, value: Row, shown: Row | None = None) -> None:
        """Print one value. People see what is ``shown`` of it: name and words on a line each, the
        words below the name where they do not fit beside it."""
        if self.format == "table":
            pairs, width = [pair for pair in _described(shown or {}) if pair[1]], self._width()
            most = max((len(name) for name, _ in pairs), default=0)
            for name, words in pairs:
                before, told = f"{clean(name):<{most}}  ", clean(words)
                lines = [f"{before}{told}"]
                if name in PROSE:
                    lines = wrapped(before, told, width)
                elif len(lines[0]) > width:
                    lines = [before.rstrip(), _alone(told, width)]
                self.write("".join(f"{line}\n" for line in lines))
        elif self.format == "csv":
            writer = csv.writer(self, lineterminator="\n")
            writer.writerows([value.keys(), [_cell(one) for one in value.values()]])
        elif self.format == "jsonl":
            self._line(_typed(kind, value))
        else:
            self.write(_json(_typed(kind, value), orjson.OPT_INDENT_2) + "\n")

    def text(self, line: str, *, indent: str = "", prose: bool = True) -> None:
        """A line for people, wrapped if it is prose; nothing in the other formats."""
        if self.format == "table":
            for part in wrapped(indent, clean(line), self._width() if prose else PIPE_COLUMNS):
                self.write(f"{part}\n")

    def _width(self) -> int:
        """Of the terminal that is written to."""
        return shutil.get_terminal_size().columns if self.stream.isatty() else PIPE_COLUMNS

    def _line(self, value: Row) -> None:
        self.write(_json(value) + "\n")
        self.flush()


def _described(value: Row, before: str = "") -> Iterator[tuple[str, str]]:
    """A document for people: name and words of each field that holds something, by its name in the
    other formats; a line for each item of a list."""
    for number, (name, held) in enumerate(value.items()):
        words = f"{before}{name if before else name.replace('_', ' ')}"
        if before and number >= ITEMS_MAX:
            break
        if isinstance(held, Mapping):
            counters = {inner: told for inner, told in sorted(held.items()) if told}
            yield from _described(counters, f"{words}: ")
        elif isinstance(held, list | tuple):
            for one in held[:ITEMS_MAX]:
                told = str(next(iter(one.values()))) if isinstance(one, Mapping) else str(one)
                yield words, told
            if (more := len(held) - ITEMS_MAX) > 0:
                yield words, f"and {more:,} more"
        elif isinstance(held, bool):
            yield words, "yes" if held else "no"
        elif not before and name in TIMES and held and isinstance(held, int | float):
            yield words, time_words(held)
        elif not before and name in UNITS and isinstance(held, int | float):
            yield words, UNITS[name](held)
        elif held not in (None, ""):
            yield words, str(held)


def _alone(key: str, width: int) -> str:
    """A key on a line of its own; one that would be too long by the indent has none."""
    from rich.cells import cell_len

    return key if width - 2 < cell_len(key) <= width else f"  {key}"


def wrapped(before: str, told: str, width: int) -> list[str]:
    """The lines of prose after what stands before it, wrapped between words; each is indented as
    far, but where a word would not fit then."""
    if told and max(map(len, told.split())) > width - len(before) and not before.strip():
        before = ""
    indent = " " * len(before)
    lines = textwrap.wrap(
        told, max(1, width), initial_indent=before, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines or [before.rstrip()]


def _json(value: Any, option: int = 0) -> str:
    """A value as JSON, with JSON's own escapes for control and format characters; the new lines of
    a laid out document stay."""
    document = orjson.dumps(value, default=str, option=option).decode()
    if document.isprintable():
        return document
    return _escaped(document, lambda c: c.isprintable() or c == "\n")


def _escaped(document: str, stays: Callable[[str], bool]) -> str:
    return "".join(c if stays(c) else json.dumps(c)[1:-1] for c in document)


def _typed(kind: str, value: Row) -> dict[str, Any]:
    told = {"schema": SCHEMA, "type": kind, **value}
    assert len(told) == len(value) + 2, "a field has the name of what every document says"
    return told


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return _json(value)
    if value is None or isinstance(value, int | float):
        return value  # None is written as nothing
    told = clean(value)
    return f"'{told}" if str(value)[:1] in FORMULA_STARTS else told

"""What commands print: rows and documents, in four formats with one versioned schema.

* ``table``: for people (`magic_committer.cli.table`).
* ``json``: one document, ``{"schema": 1, "type": "uploads", "rows": […], "summary": {…}}``.
* ``jsonl``: a line for each row as it is found, ``{"schema": 1, "type": "upload", …}``, and one for
  the summary, ``"type": "uploads.summary"``.
* ``csv``: a header and the rows; the summary goes to stderr.

A field keeps its name and meaning within a version of the schema; new fields may come. Times are
seconds since the epoch, ages and durations seconds, sizes bytes; what is not known is null
(empty in CSV).

What a store says is shown, never obeyed, in every format (docs/security.md): control and format
characters (escape sequences, marks that turn the direction of writing round) are escaped. In JSON
the escape is JSON's, so that a program reads the very value. In CSV a text that a spreadsheet would
take for a formula begins with ``'``.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

import orjson

from magic_committer.cli.plain import Format, clean, note
from magic_committer.cli.progress import hide_progress
from magic_committer.cli.table import Column, beside, render, wrapped

SCHEMA = 1
"""Of all formats for programs together; raised when a field changes its meaning or goes."""

SCREEN_LINES = 40
"""Below a longer table stands what stands above it, too."""

FORMULA_STARTS = frozenset("=+-@＝＋－＠\t\r\n")
"""What a spreadsheet computes begins with one of these (OWASP, "CSV Injection")."""


class Prose(str):
    """Words of a document that may be wrapped; what else it has stays on one line, as a key."""


def clean_json(document: str) -> str:
    """The same JSON, with JSON's own escapes for control and format characters; the new lines of a
    laid out document stay."""
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


class Output:
    """Where results go.

    Args:
        stream: None: the process's stdout at the time of each call.
    """

    def __init__(self, how: Format, stream: TextIO | None = None) -> None:
        self.format = how
        self._stream = stream

    @property
    def stream(self) -> TextIO:
        hide_progress()  # results never run into a bar
        return self._stream if self._stream is not None else sys.stdout

    def rows(
        self,
        kind: str,
        columns: Sequence[Column],
        rows: Iterable[Mapping[str, Any]],
        *,
        fields: Sequence[str],
        summary: Callable[[], Mapping[str, Any]] | None = None,
        closing: Callable[[], str] | None = None,
        empty: str = "",
    ) -> None:
        """Print rows as they come (``jsonl`` and ``csv``) or together.

        Args:
            kind: of one row, e.g. ``"upload"``; its plural names the whole.
            columns: of the table. fields: of the other formats, in order, for each row.
            summary: asked after the last row, for programs. closing: the same, in a sentence; it
                stands above a table.
            empty: the sentence for a table without rows, if there is no ``closing``.
        """
        told = summary or dict
        if self.format == "jsonl":
            for row in rows:
                self._line(_typed(kind, _chosen(row, fields)))
            self._line(_typed(f"{kind}s.summary", told()))
        elif self.format == "json":
            listed = [_chosen(row, fields) for row in rows]
            self._document(_typed(f"{kind}s", {"rows": listed, "summary": told()}))
        elif self.format == "csv":
            writer = csv.writer(self.stream, lineterminator="\n")
            writer.writerow(fields)
            for row in rows:
                writer.writerow([_cell(row.get(name)) for name in fields])
                self.stream.flush()
            if closing is not None:
                note(closing())
        else:
            found = list(rows)
            lines = render(columns, found, self._width(), clean) if found else []
            told_of = closing() if closing is not None else "" if found else empty
            if told_of:
                self.text(told_of)
            for line in lines:
                self.stream.write(f"{line}\n")
            if told_of and len(lines) > SCREEN_LINES:
                self.text(told_of)

    def document(
        self, kind: str, value: Mapping[str, Any], lines: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Print one value: for people, name and words on a line each."""
        if self.format == "table":
            pairs = [(name, words) for name, words in lines if words]
            width = max((len(name) for name, _ in pairs), default=0)
            for name, words in pairs:
                prose = isinstance(words, Prose)
                name = f"{clean(name):<{width}}"
                for line in beside(name, clean(words), self._width(), prose=prose):
                    self.stream.write(f"{line}\n")
        elif self.format == "csv":
            writer = csv.writer(self.stream, lineterminator="\n")
            writer.writerows([value.keys(), [_cell(one) for one in value.values()]])
        elif self.format == "jsonl":
            self._line(_typed(kind, value))
        else:
            self._document(_typed(kind, value))

    def text(self, line: str, *, indent: str = "", prose: bool = True) -> None:
        """A line for people, wrapped if it is prose; nothing in the other formats."""
        if self.format == "table":
            for part in wrapped(indent, clean(line), self._width() if prose else None):
                self.stream.write(f"{part}\n")

    def _width(self) -> int | None:
        """Of the terminal that is written to; None: it is none."""
        return shutil.get_terminal_size().columns if self.stream.isatty() else None

    def _line(self, value: Mapping[str, Any]) -> None:
        self.stream.write(clean_json(orjson.dumps(value, default=str).decode()) + "\n")
        self.stream.flush()

    def _document(self, value: Mapping[str, Any]) -> None:
        document = orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()
        self.stream.write(clean_json(document) + "\n")


def _typed(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    told = {"schema": SCHEMA, "type": kind, **value}
    assert len(told) == len(value) + 2, "a field has the name of what every document says"
    return told


def _chosen(row: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in fields}


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return clean_json(orjson.dumps(value, default=str).decode())
    if isinstance(value, int | float):
        return value
    told = str(value)
    return f"'{clean(told)}" if told[:1] in FORMULA_STARTS else clean(told)

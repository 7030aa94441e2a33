"""The rows of a stored plan: found in its bytes, and read when they are needed. Pure.

Anyone who may write below the destination may have written a plan (docs/security.md), and a plan
may belong to a job that replaces a million files. JSON that is parsed as a whole takes up to 35
times its size in Python objects. So a plan is never parsed as a whole. A pattern walks over its
bytes, notes where each row begins (4 bytes for each row), and refuses everything that is not a row.
Iteration makes objects of `ROWS_A_SLICE` rows at a time.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any, TypeVar, overload

import orjson

from magic_committer.errors import FormatError

T = TypeVar("T")

ROW_BYTES_MAX = 8 * 1024
"""Bytes of one row, or of one value beside the rows. A key has at most 1,024 bytes, an id 128."""
ROWS_A_SLICE = 512
"""How many rows are objects at the same time: at most 4 MiB of JSON."""

# Possessive (Python 3.11): no input makes them try again what they have passed.
SPACE = rb"[ \t\n\r]*+"
TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
NUMBER = rb"-?+[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"

_END = ord("]")


class Rows(Sequence[T]):
    """Rows in the bytes of their document. Equal to every sequence of equal rows. ``starts``: where
    each row begins. The last item is the place behind the closing bracket."""

    def __init__(self, data: bytes, starts: array[int], make: Callable[[Any], T]) -> None:
        self._data = data
        self._starts = starts
        self._make = make

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index]
        return self._make(self._parsed(at, at + 1)[0])

    def __iter__(self) -> Iterator[T]:
        for rows in self.slices():
            yield from map(self._make, rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"

    def slices(self) -> Iterator[list[Any]]:
        """Give the rows as JSON values, `ROWS_A_SLICE` at a time. Raises JSONDecodeError: a row is
        no JSON although it looks so (an escape, UTF-8)."""
        for at in range(0, len(self), ROWS_A_SLICE):
            yield self._parsed(at, min(at + ROWS_A_SLICE, len(self)))

    def _parsed(self, first: int, end: int) -> list[Any]:
        rows: list[Any] = orjson.loads(
            b"[%b]" % self._data[self._starts[first] : self._starts[end] - 1]
        )
        return rows


def row_of(*cells: bytes, last: bytes = b"") -> re.Pattern[bytes]:
    """The pattern of a row, made of the patterns of its cells; ``last``: a cell that may be
    missing."""
    more = b"(?:,%b)?+" % spaced(last) if last else b""
    return re.compile(rb"\[%b%b\]" % (b",".join(map(spaced, cells)), more))


def spaced(token: bytes) -> bytes:
    """The pattern of a token with white space around it."""
    return SPACE + b"(?:%b)" % token + SPACE


_EMPTY = re.compile(rb"\[%b\]" % SPACE)


def find_rows(
    data: bytes,
    at: int,
    row: re.Pattern[bytes],
    what: str,
    field: str,
    source: str,
    rows_max: int,
    make: Callable[[Any], T],
) -> tuple[Rows[T], int]:
    """Find the rows of a list that begins at ``at``. Gives the rows, and the place behind the list.
    Raises FormatError: there is no list, it holds something else, or it has more than ``rows_max``
    rows."""
    if data[at : at + 1] != b"[":
        raise FormatError(source, field, "is not a list")
    starts = array("I")
    if empty := _EMPTY.match(data, at):
        return Rows(data, array("I", (empty.end(),)), make), empty.end()
    at += 1
    match = re.compile(spaced(row.pattern)).match
    while True:
        found = match(data, at)
        end = found.end() if found is not None else 0
        if not end or data[end : end + 1] not in (b",", b"]"):
            raise FormatError(source, f"{field}[{len(starts)}]", f"is not {what}")
        if end - at > ROW_BYTES_MAX:
            reason = f"has {end - at} bytes, at most {ROW_BYTES_MAX} are read"
            raise FormatError(source, f"{field}[{len(starts)}]", reason)
        if len(starts) == rows_max:
            raise FormatError(source, field, f"has more than {rows_max} rows")
        starts.append(at)
        at = end + 1
        if data[end] == _END:
            starts.append(at)
            break
    rows = Rows(data, starts, make)
    try:
        for _ in rows.slices():
            continue
    except orjson.JSONDecodeError as error:
        raise FormatError(source, field, f"is not JSON: {error}") from None
    return rows, at


def write_rows(file: BytesIO, rows: Iterable[Any]) -> int:
    """Append a list of rows to a file, as compact JSON. Only a few rows are objects at the same
    time."""
    longest = 0
    opening = b"["
    for row in rows:
        written = orjson.dumps(row)
        longest = max(longest, len(written))
        file.write(opening)
        file.write(written)
        opening = b","
    file.write(b"]" if opening == b"," else b"[]")
    return longest

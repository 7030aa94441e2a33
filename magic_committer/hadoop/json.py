"""Strict JSON objects: `magic_committer.hadoop.formats` reads and writes them, field by field.

Invariants:

* For any bytes, `parse` and the field readers raise only `Invalid`, which names field and reason.
  Size, depth and the number of values have limits.
* While it is read, a document takes at most some 18 times its size in memory (measured:
  docs/security.md). It has at most one value for every `BYTES_A_VALUE_MIN` bytes; this is counted
  before it is parsed. ``[],[],[]`` would take 37 times its size.
* What `parse` accepts has one meaning: no field appears twice (readers disagree on which one
  counts), and no number lost digits.
* A *sealed* document ends in the SHA-256 of all its other fields, written compactly. Every change
  is refused, even one that leaves the document well-formed: a missing commit, a changed letter of
  an upload id. Hadoop ignores the field, and its own files have none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

DEPTH_MAX = 16
"""How deep objects and lists may be nested. Hadoop's deepest file, a pendingset, has six levels."""
BYTES_A_VALUE_MIN = 16
"""The least size of a value on average, if a document has more than `VALUES_FREE` values. Values of
committers have 24 bytes and more: names, ids and ETags are long."""
VALUES_FREE = 10_000
"""A document may have this many values, however short they are."""
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
SEAL = "contentSha256"
_SEAL_BYTES = len(f',"{SEAL}":""}}') + 64
"""Bytes of a seal that comes last, with the bracket behind it."""

# Up to the beginning of the next value. Possessive: no input makes it try again what it has passed.
_VALUE = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^",\[{])*+[,\[{]', re.DOTALL)

_ESCAPE = re.compile(rb'\\[^"]')

Document = dict[str, Any]
Unknown = tuple[tuple[str, Any], ...]
REQUIRED: Any = object()
"""The default of a field that must be there, and not null."""
IF_THERE: Any = object()
"""The default of a field that may be missing, but not null."""


class Rule(NamedTuple):
    """What a field of a document may hold.

    Attributes:
        attribute: its name in Python; "": it is checked, but its value is not kept.
        kind: the type of its value.
        default: the value if it is missing or null.
        read: checks the value, and gives it as it is kept. Raises `Invalid`.
    """

    attribute: str
    kind: type
    default: Any = REQUIRED
    read: Callable[[Any], Any] | None = None


class Fields(dict[str, Rule]):
    """A kind of document: the rule of each field, in the order of writing. ``values_of``: the
    fields of a value in that order; for one whose value is not kept, anything."""

    def __init__(self, **rules: Rule) -> None:
        super().__init__(rules)
        self.values_of = attrgetter(*(rule.attribute or "order" for rule in rules.values()))


class Invalid(Exception):
    """A field cannot be trusted. The formats turn it into a `FormatError` that names the object.

    Attributes:
        field: JSON path; "" for the whole document.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def within(self, parent: str) -> Invalid:
        """The same error, with the path from the document that holds ``parent``."""
        dot = "." if self.field and not self.field.startswith("[") else ""
        return Invalid(f"{parent}{dot}{self.field}", self.reason)


# Bytes --------------------------------------------------------------------------------------------


def parse(data: bytes, bytes_max: int) -> tuple[Document, bool]:
    """Read one JSON object. Gives the object without its seal, and whether it had one. Raises
    Invalid: it is too large, too deep, has too many values, is not UTF-8, not JSON, not an object,
    or ambiguous, or its seal does not match."""
    if len(data) > bytes_max:
        raise Invalid("", f"has {len(data)} bytes, at most {bytes_max} are read")
    if not data:
        raise Invalid("", "has no data (0 bytes)")
    refuse_crowded(data)
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Invalid("", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid("", f"is {_kind(document)}, not an object")
    check_depth(document)
    # If writing a document gives the same bytes, it holds no name twice and no inexact number. Only
    # other documents (pretty-printed, other escapes) need the slower look.
    if orjson.dumps(document) != data:
        _check_unambiguous(data, document)
    if SEAL not in document:
        return document, False
    seal = document.pop(SEAL)
    if seal != _digest(orjson.dumps(document)):
        raise Invalid(SEAL, "does not match: the document was changed after it was written")
    return document, True


def parse_plain(data: bytes, bytes_max: int) -> tuple[Document, bool] | None:
    """Read one JSON object quickly, if it is plain: as this library and Hadoop write it. None: use
    `parse`, which accepts it or says what is wrong.

    Plain means: compact; ASCII; no escapes but ``\\"``, so no text has a control character or a
    backslash; no name twice and no inexact number; the seal, if there is one, comes last and
    matches. **The depth is not checked**: the caller must know each level that it accepts.
    """
    if not 0 < len(data) <= bytes_max or not has_plain_texts(data):
        return None
    try:
        refuse_crowded(data)
        document = orjson.loads(data)
        if type(document) is not dict or orjson.dumps(document) != data:
            return None
    except (Invalid, orjson.JSONDecodeError, orjson.JSONEncodeError):  # the last one: too deep
        return None
    if SEAL not in document:
        return document, False
    if next(reversed(document)) != SEAL:
        return None
    seal = document.pop(SEAL)
    digest = hashlib.sha256(memoryview(data)[:-_SEAL_BYTES])
    digest.update(b"}")
    return (document, True) if seal == digest.hexdigest() else None


def has_plain_texts(data: bytes) -> bool:
    """Whether a compact document is ASCII, and no text in it has a control character or a
    backslash."""
    return data.isascii() and b"\x7f" not in data and not _ESCAPE.search(data)


def refuse_crowded(data: bytes) -> None:
    """Refuse a document with very many, very short values before it is parsed: each takes some 60
    to 240 bytes of memory, whatever it takes in the file. Raises Invalid: it has more than
    `VALUES_FREE` values, with less than `BYTES_A_VALUE_MIN` bytes for each."""
    most = VALUES_FREE + len(data) // BYTES_A_VALUE_MIN
    if _values_at_most(data) <= most:
        return
    # Commas and brackets inside texts do not count: go through them one by one, as far as
    # necessary.
    values, place = 1, _VALUE.match(data)
    while place is not None and values <= most:
        values, place = values + 1, _VALUE.match(data, place.end())
    if values > most:
        raise Invalid("", f"has over {most} values in {len(data)} bytes: no more are read")


def _values_at_most(data: bytes) -> int:
    return 1 + len(data) - len(data.translate(None, b",[{"))


def serialise(document: Document, bytes_max: int, *, sealed: bool, shallow: bool = False) -> bytes:
    """Write one JSON object compactly, with its seal if ``sealed``. NaN becomes null. ``shallow``:
    the caller looks at its depth. Raises Invalid: it is too large, too deep, or holds something
    that JSON cannot hold."""
    if not shallow:
        check_depth(document)
    try:
        data = orjson.dumps(document)
        if sealed:
            data = b'%s,"%s":"%s"}' % (data[:-1], SEAL.encode(), _digest(data).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("", f"cannot be written as JSON: {error}") from None
    if len(data) > bytes_max:
        raise Invalid("", f"would have {len(data)} bytes, at most {bytes_max} are read")
    refuse_crowded(data)
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_depth(document: Document) -> None:
    """Refuse what is nested deeper than `DEPTH_MAX` (`Invalid`)."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise Invalid("", f"is nested deeper than {DEPTH_MAX} levels")


def _check_unambiguous(data: bytes, document: Document) -> None:
    def once(pairs: list[tuple[str, Any]]) -> None:
        names = set()
        for name, _ in pairs:
            if name in names:
                raise Invalid(name, "appears twice in one object")
            names.add(name)

    def exact(digits: str) -> int:
        # Longer ones are not converted: the time for that grows with the square of their length.
        value = int(digits) if len(digits) <= 20 else UINT64_MAX + 1
        if not INT64_MIN <= value <= UINT64_MAX:
            field = next(_fields_holding(document, float(digits), ""), "")
            raise Invalid(field, f"is a number beyond 64 bits ({digits[:24]})")
        return value

    json.loads(data.decode(), object_pairs_hook=once, parse_int=exact)


def _fields_holding(value: Any, number: float, field: str) -> Iterator[str]:
    """The JSON paths of a number that was too large for an integer."""
    if isinstance(value, float) and value == number:
        yield field
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _fields_holding(child, number, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _fields_holding(child, number, f"{field}[{index}]")


# Objects ------------------------------------------------------------------------------------------


def read_fields(fields: Fields, document: Document) -> dict[str, Any]:
    """The values of a document by their names in Python. Also ``unknown`` (fields that no rule
    names) and ``order`` (of the fields in the document, () for the rules' order)."""
    values: dict[str, Any] = {}
    for name, (attribute, kind, default, read) in fields.items():
        value = document.get(name)
        if value is None:
            if default is REQUIRED or (default is IF_THERE and name in document):
                raise _wrong(document, name, kind)
            value = default
        elif type(value) is not kind and (kind is int or not isinstance(value, kind)):
            raise _wrong(document, name, kind)
        elif read is not None:
            try:
                value = read(value)
            except Invalid as error:
                raise error.within(name) from None
        if attribute:
            values[attribute] = value
    order = tuple(document)
    if order != tuple(fields):
        values["order"] = order
        values["unknown"] = tuple((n, v) for n, v in document.items() if n not in fields)
    return values


def write_fields(fields: Fields, value: Any, computed: Mapping[str, Any]) -> Document:
    """The document of a value that `read_fields` could have made. ``computed`` are the fields that
    are derived, or are written in another form. A field that was missing is added only if its value
    says more than its absence."""
    known = dict(zip(fields, fields.values_of(value), strict=True))
    known.update(computed)
    if not value.order:
        return known | dict(value.unknown) if value.unknown else known
    every = known | dict(value.unknown)
    document = {name: every.pop(name) for name in value.order if name in every}
    for name, content in every.items():
        if name not in computed and (name not in fields or content != fields[name].default):
            document[name] = content
    return document


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _wrong(document: Mapping[str, Any], name: str, kind: type) -> Invalid:
    if name not in document:
        return Invalid(name, "is missing")
    return Invalid(name, f"is {_kind(document[name])}, not {_WORDS[kind]}")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return (_WORDS | {int: "a number", float: "a fraction"}).get(
        type(value), f"a Python {type(value).__name__}"
    )

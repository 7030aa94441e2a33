"""Strict JSON objects: `magic_committer.hadoop.formats` says what each holds, msgspec reads and
writes them.

Invariants:

* For any bytes, `parse` raises only `Invalid`, which names field and reason. Size, depth and the
  number of values have limits.
* While it is read, a document takes at most some 18 times its size in memory (measured:
  docs/security.md). It has at most one value for every `BYTES_A_VALUE_MIN` bytes; this is counted
  before it is parsed. ``[],[],[]`` would take 37 times its size.
* What `parse` accepts has one meaning: no field appears twice (readers disagree on which one
  counts), and no number lost digits. A document that is written again as it was read has one.
* A *sealed* document ends in the SHA-256 of what is before it. Every change is refused, even one
  that leaves the document well-formed: a missing commit, a changed letter of an upload id. Hadoop
  ignores the field, and its own files have none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from magic_committer._hints import UPGRADE
from magic_committer.errors import MagicError

T = TypeVar("T")
Document = dict[str, Any]
"""A JSON object of any kind."""

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
"""Bytes of a seal, which comes last, with the bracket behind it."""
_MARK = f',"{SEAL}":'.encode()
_SEALED = re.compile(rb'"%s"\s*:' % SEAL.encode())

# Up to the beginning of the next value. Possessive: no input makes it try again what it has passed.
_VALUE = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^",\[{])*+[,\[{]', re.DOTALL)


def _plain(value: object) -> str | int:
    """What msgspec does not know: a text or number of a class of its own, as numpy's."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_READERS: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Any, Document)
}


def readable(kind: type[T]) -> type[T]:
    """Decorate a kind of document: its reader is made now, as the module is imported. Two threads
    that make one at once crash the process (msgspec looks at a kind's fields in Python)."""
    _READERS[kind] = msgspec.json.Decoder(kind)
    return kind


class Invalid(Exception):
    """A field cannot be trusted. The formats turn it into a `FormatError` that names the object.

    Attributes:
        field: JSON path; "" for the whole document.
        hint: what to do; "" if nothing is to be said.
    """

    def __init__(self, field: str, reason: str, hint: str = "") -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason
        self.hint = hint

    def within(self, parent: str) -> Invalid:
        """The same error, with the path from the document that holds ``parent``."""
        dot = "." if self.field and not self.field.startswith("[") else ""
        return Invalid(f"{parent}{dot}{self.field}", self.reason, self.hint)


def parse(data: bytes, kind: type[T], bytes_max: int) -> T:
    """Read one JSON object of a kind. Raises Invalid: it is too large, too deep, has too many
    values, is not UTF-8, not JSON, not of the kind, or ambiguous, or its seal does not match."""
    if len(data) > bytes_max:
        raise Invalid("", f"has {len(data)} bytes, at most {bytes_max} are read")
    if not data:
        raise Invalid("", "has no data (0 bytes)")
    refuse_crowded(data)
    body = _unsealed(data)
    value = _read(body, kind)
    if (kind is Document or _ENCODER.encode(value) != body) and SEAL in _unambiguous(body):
        raise Invalid(SEAL, "is not the last field, or stands twice")
    return value


def _unsealed(data: bytes) -> bytes:
    if not (data[-_SEAL_BYTES:].startswith(_MARK) or _SEALED.search(data)):
        return data
    body = data[:-_SEAL_BYTES] + b"}"
    if data[-_SEAL_BYTES:] == _seal(body) and body != b"{}":
        return body
    document = _unambiguous(data)  # perhaps somebody has changed its white space
    if not isinstance(document, dict) or SEAL not in document:
        return data  # the name of the field is a text in it
    seal = document.pop(SEAL)
    body = _ENCODER.encode(document)
    if seal != hashlib.sha256(body).hexdigest():
        raise Invalid(SEAL, "does not match: the document was changed after it was written")
    return body


def convert(document: Document, kind: type[T]) -> T:
    """Read JSON values as one of a kind that is `readable`. Raises `Invalid`; its cause is the
    error of the kind's own check, if that refused them."""
    assert kind in _READERS
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        wrong, own = _wrong(str(error), document), error.__cause__
        if isinstance(own, MagicError):
            wrong.reason, wrong.hint = own.message, own.hint
        raise wrong from own


def serialise(value: object, bytes_max: int, *, sealed: bool) -> bytes:
    """Write one JSON object compactly, with its seal if ``sealed``. NaN becomes null. Raises
    Invalid: it is what `parse` would refuse, or holds something that JSON cannot hold."""
    try:
        body = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid("", f"cannot be written as JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    data = body[:-1] + _seal(body) if sealed else body
    if len(data) > bytes_max:
        raise Invalid("", f"would have {len(data)} bytes, at most {bytes_max} are read")
    refuse_crowded(data)
    _read(body, type(value))
    return data


def _seal(body: bytes) -> bytes:
    return b'%s"%s"}' % (_MARK, hashlib.sha256(body).hexdigest().encode())


def _read(body: bytes, kind: type[T]) -> T:
    try:
        value: T = _READERS[kind].decode(body)
        return value
    except msgspec.ValidationError as error:
        raise _wrong(str(error), _unambiguous(body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None


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


def check_map(document: object, field: str, above: int = 1) -> None:
    """Refuse a field that is nested deeper than `DEPTH_MAX`, ``above`` levels of the whole document
    being above it, or has a number beyond 64 bits (`Invalid`)."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX + 1 - above):
        for one in level:
            if type(one) is int and not INT64_MIN <= one <= UINT64_MAX:
                raise Invalid(field, f"has the number {one:.8g}, which is beyond 64 bits")
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    raise _too_deep(field)


def check_raw(data: msgspec.Raw, field: str, above: int) -> None:
    """`check_map` for a field that was not read: a map or null, which has one meaning."""
    try:
        if not isinstance(_unambiguous(bytes(data), above), dict | None):
            raise Invalid("", "is not an object")
    except Invalid as error:
        raise error.within(field) from None


def _fits(number: int) -> bool:
    return INT64_MIN <= number <= UINT64_MAX


def _too_deep(field: str = "") -> Invalid:
    return Invalid(field, f"is nested deeper than {DEPTH_MAX} levels")


# What is wrong ------------------------------------------------------------------------------------


def _values(body: bytes) -> Any:
    try:
        return _READERS[Any].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None


def _unambiguous(body: bytes, above: int = 0) -> Any:
    """The values of a document, which has one meaning. They are made last: the look before takes as
    much memory."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        names = set()
        for name, _ in pairs:
            if name in names:
                raise Invalid(name, "appears twice in one object")
            names.add(name)

    def exact(digits: str) -> None:
        # Longer ones are not converted: the time for that grows with the square of their length.
        if len(digits) > 20 or not _fits(int(digits)):
            field = next(_beyond(_values(body), ""), "")
            raise Invalid(field, f"is a number beyond 64 bits ({digits:.24})")

    try:
        json.loads(body, object_pairs_hook=once, parse_int=exact)
    except (ValueError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None
    document = _values(body)
    check_map(document, "", above)
    return document


def _beyond(value: Any, field: str) -> Iterator[str]:
    """The JSON paths of numbers that nobody can keep."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _beyond(child, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _beyond(child, f"{field}[{index}]")
    elif type(value) is int and not _fits(value):
        yield field


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_int64(value: object) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a fraction",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}
_PLACE = re.compile(r"(.*) - at `\$((?:\.\w+|\[\d+\]|\[\.\.\.\])*)`", re.DOTALL)
_NAMED = re.compile(r"Object (missing required|contains unknown) field `(.*?)`?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")


def _wrong(message: str, document: Any) -> Invalid:
    """What msgspec says of a document, as field and reason. Its paths do not name what is wrong in
    a map, of texts or of numbers."""
    found = _PLACE.fullmatch(message)  # the last one: an unknown word is quoted before
    what, path = found.groups() if found else (message, "")
    field, value = "", document
    for name, index, anything in _STEP.findall(path):
        if anything:
            right = _is_text if "Expected `str`" in what else _is_int64
            name = next((n for n, v in value.items() if not right(v)), "")
        field += f"[{index}]" if index else f".{name}"
        try:
            value = value[int(index) if index else name]
        except (LookupError, TypeError):  # it is missing; or an unknown field's name looks so
            value = None
    if named := _NAMED.fullmatch(what):
        field = f"{field}.{named[2]}".removeprefix(".")
        if named[1] == "missing required":
            return Invalid(field, "is missing")
        return Invalid(field, "is unknown to this version", UPGRADE)
    reason = re.search(r"\(\?#(.+?)\)", what) or re.match("(.+?)(?:, got|$)", what)
    assert reason is not None
    wanted = re.sub(r"\w+", lambda one: _WORDS.get(one[0], one[0]), reason[1])
    wanted = wanted.replace("`", "").replace(" | ", " or ")
    told = f"is {msgspec.json.encode(value).decode():.64}"
    if isinstance(value, dict | list):  # it may hold what is nobody's to see
        told = f"is {'an object' if isinstance(value, dict) else 'a list'}"
    hint = ""
    if wanted.startswith("Invalid enum"):
        wanted, hint = "which this library does not know", UPGRADE
    return Invalid(field.removeprefix("."), f"{told}, {wanted[:1].lower()}{wanted[1:]}", hint)

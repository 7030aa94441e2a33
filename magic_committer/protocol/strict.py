"""Reading and writing the library's own JSON: records, plans, results. A dataclass is its own table
of fields; each must have the type of its annotation. The reader is strict: it refuses an unknown
field, because it might be a field that must not be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from enum import EnumType
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from magic_committer._hints import UPGRADE
from magic_committer.errors import FormatError, OptionError, PathError, WrongType

T = TypeVar("T")


LATE = {"late": True}
"""Of a field that earlier versions did not know: it is left out where it has its default, so that
they can read all other documents. Another mark is ``name``: what the field is called in JSON."""


def read_document(data: bytes, source: str, bytes_max: int, version: int) -> dict[str, Any]:
    """Parse one of our JSON objects, and take its version out."""
    if len(data) > bytes_max:
        raise FormatError(source, "", f"has {len(data)} bytes, more than {bytes_max}")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(source, "", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise FormatError(source, "", "is not a JSON object")
    check_version(document, source, version, UPGRADE)
    return document


def check_version(document: dict[str, Any], source: str, version: int, hint: str) -> None:
    """Take the version out of a document, and refuse another one."""
    if "version" not in document:
        raise FormatError(source, "version", "is missing")
    found = _value(document.pop("version"), (int,), {}, source, "version", ())
    if found != version:
        reason = f"is {found}, this library knows {version}"
        raise FormatError(source, "version", reason, hint=hint)


def given_dict(values: object, what: str) -> dict[str, Any]:
    """Check what a caller passed to ``from_dict``. Raises WrongType: it is not a dict. The value is
    not shown, because it is long."""
    if isinstance(values, Mapping):
        return dict(values)
    text = isinstance(values, str | bytes)
    raise WrongType(
        f"{what}.from_dict takes a dict, not {type(values).__name__}",
        hint=f"Read the JSON first: {what}.from_dict(json.loads(text))"
        if text
        else f"Pass what {what}.to_dict() gave",
    )


def read_fields(
    kind: Callable[..., T],
    values: Mapping[str, Any],
    source: str,
    prefix: str = "",
    *,
    optional: Collection[object] = (),
) -> T:
    """Read a dataclass, and those in its fields. ``prefix``: the path of ``values`` in their
    document, for errors. ``optional``: dataclasses whose missing fields have their defaults. Raises
    FormatError: a field is missing, unknown, of the wrong type, or impossible."""
    table, found = _table(kind), dict[str, Any]()
    for name, (attribute, kinds, words, is_late) in table.items():
        if name in values:
            value = values[name]
            if isinstance(value, str) and value in words:
                value = words[value]
            elif type(value) not in kinds:
                value = _value(value, kinds, words, source, prefix + name, optional)
            found[attribute] = value
        elif not is_late and kind not in optional:
            raise FormatError(source, prefix + name, "is missing")
    for name in values:
        if name not in table:
            raise FormatError(source, prefix + name, "is unknown to this version", hint=UPGRADE)
    try:
        return kind(**found)
    except (OptionError, PathError) as error:
        raise FormatError(source, prefix[:-1], error.message, hint=error.hint) from error


def _value(
    value: Any,
    kinds: Sequence[Any],
    words: Collection[str],
    source: str,
    where: str,
    optional: Collection[object],
) -> Any:
    """A JSON value as one of the types that its field may have; ``words``: the texts."""
    for kind in kinds:
        if type(value) is kind:
            return value
        if kind == _PAIRS:
            return _pairs(value, source, where)
        if hasattr(kind, "__dataclass_fields__"):
            if isinstance(value, dict):
                return read_fields(kind, value, source, f"{where}.", optional=optional)
        elif kind is float and type(value) is int:
            return float(value)
    if words and isinstance(value, str):
        raise FormatError(source, where, f"is {value!r}, none of {', '.join(words)}", hint=UPGRADE)
    raise FormatError(source, where, f"has the wrong type: {type(value).__name__}")


def _pairs(value: Any, source: str, where: str) -> tuple[tuple[str, str], ...]:
    pairs: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    for pair in pairs:
        right = isinstance(pair, list | tuple) and len(pair) == 2
        if not right or not all(isinstance(text, str) for text in pair):
            raise FormatError(source, where, "is no list of pairs of texts")
    return tuple((pair[0], pair[1]) for pair in pairs)


_PAIRS = tuple[tuple[str, str], ...]


def _kinds(hint: Any) -> list[Any]:
    """The types of an annotation, and the texts of a `Literal` or of an enum."""
    if get_origin(hint) in (Union, UnionType):
        return [kind for one in get_args(hint) for kind in _kinds(one)]
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return list(hint) if isinstance(hint, EnumType) else [hint]


@cache
def _table(kind: Any) -> dict[str, tuple[str, list[Any], dict[str, Any], bool]]:
    """For each name in JSON: the attribute, the types that it may have, the texts that it may have
    with what they stand for, and whether it is late."""
    hints, table = get_type_hints(kind), {}
    for one in fields(kind):
        kinds = _kinds(hints[one.name])
        words = {str(word): word for word in kinds if isinstance(word, str)}
        name = one.metadata.get("name", one.name)
        table[name] = one.name, kinds, words, "late" in one.metadata
    return table


def plain(value: Any) -> Any:
    """A dataclass, and those in its fields, as JSON values."""
    written = {}
    for one in getattr(value, "__dataclass_fields__", {}).values():
        held = getattr(value, one.name)
        if "late" not in one.metadata or held != one.default:
            inner = hasattr(held, "__dataclass_fields__")
            written[one.metadata.get("name", one.name)] = plain(held) if inner else held
    return written

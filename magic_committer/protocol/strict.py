"""Reading and writing the library's own JSON: records, plans, results. The reader is strict: it
refuses an unknown field, because it might be a field that must not be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from magic_committer._hints import UPGRADE
from magic_committer.errors import FormatError, WrongType

E = TypeVar("E", bound=StrEnum)


def read_document(data: bytes, source: str, bytes_max: int) -> dict[str, Any]:
    """Parse one of our JSON objects."""
    if len(data) > bytes_max:
        raise FormatError(source, "", f"has {len(data)} bytes, more than {bytes_max}")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(source, "", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise FormatError(source, "", "is not a JSON object")
    return document


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


class Reader:
    """Takes fields out of a JSON object one by one. A field that is left over is unknown and is
    refused: it may be a field that this version must not drop."""

    def __init__(self, values: dict[str, Any], source: str, prefix: str = "") -> None:
        self._values = dict(values)
        self._source = source
        self._prefix = prefix

    def take(self, name: str, kind: type | tuple[type, ...]) -> Any:
        if name not in self._values:
            raise FormatError(self._source, self._prefix + name, "is missing")
        value = self._values.pop(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise FormatError(
                self._source, self._prefix + name, f"has the wrong type: {type(value).__name__}"
            )
        return value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def refused(self, name: str, why: str) -> FormatError:
        return FormatError(self._source, self._prefix + name, why)

    def one_of(self, name: str, allowed: Sequence[str]) -> Any:
        value = self.take(name, str)
        if value not in allowed:
            raise FormatError(
                self._source, self._prefix + name, f"is {value!r}, none of {', '.join(allowed)}",
                hint=UPGRADE,
            )  # fmt: skip
        return value

    def choice(self, name: str, enum: type[E]) -> E:
        return enum(self.one_of(name, [member.value for member in enum]))

    def optional(self, name: str, read: Any) -> Any:
        if self._values.get(name, 0) is None:
            del self._values[name]
            return None
        return read(Reader(self.take(name, dict), self._source, f"{self._prefix}{name}."))

    def nothing_left(self) -> None:
        for name in self._values:
            raise FormatError(
                self._source, self._prefix + name, "is unknown to this version",
                hint=UPGRADE,
            )  # fmt: skip


def plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value

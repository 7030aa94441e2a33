"""Reading and writing the library's own JSON: records, ledgers, results. A `Struct` says what a
document holds. The reader is strict: it refuses a wrong type, a field that is missing, and an
unknown one, because it might be a field that must not be dropped.

A field with a default is one that earlier versions did not know: it is left out where it has its
default, so that they can read all other documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec
import orjson

from magic_committer._hints import UPGRADE
from magic_committer.errors import FormatError, WrongType
from magic_committer.hadoop import json

T = TypeVar("T")
_JSON_ONLY = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS


class OwnDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of what this library writes as JSON, and of the values in it. Decorate each with
    `json.readable`."""


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
    found = document.pop("version")
    if type(found) is not int or found != version:
        reason = f"is {found!r:.40}, this library knows {version}"
        raise FormatError(source, "version", reason, hint=hint)


def given_dict(values: object, what: str) -> dict[str, Any]:
    """The JSON values that a caller passed to ``from_dict``. Raises WrongType: it is not a dict.
    Raises FormatError: it holds what is no JSON. The value is not shown, because it is long."""
    if isinstance(values, Mapping):
        try:
            given: dict[str, Any] = orjson.loads(orjson.dumps(dict(values), option=_JSON_ONLY))
        except orjson.JSONEncodeError as error:
            raise FormatError(f"{what}.from_dict", "", f"is no JSON: {error}") from None
        return given
    text = isinstance(values, str | bytes)
    raise WrongType(
        f"{what}.from_dict takes a dict, not {type(values).__name__}",
        hint=f"Read the JSON first: {what}.from_dict(json.loads(text))"
        if text
        else f"Pass what {what}.to_dict() gave",
    )


def read_fields(kind: type[T], values: dict[str, Any], source: str) -> T:
    """Read JSON values as one of a kind. Raises FormatError: a field is missing, unknown, of the
    wrong type, or impossible."""
    try:
        read = json.convert(values, kind)
    except json.Invalid as error:
        raise FormatError(source, error.field, error.reason, hint=error.hint) from error.__cause__
    for name, held in values.items():
        part = getattr(read, name, None)
        if is_dataclass(part):  # msgspec passes over what they do not have
            known = {one.name for one in fields(part)}
            for inner in held:
                if inner not in known:
                    reason = "is unknown to this version"
                    raise FormatError(source, f"{name}.{inner}", reason, hint=UPGRADE)
    return read


def refuse_missing(kind: type[msgspec.Struct], values: Mapping[str, Any], source: str) -> None:
    """Refuse a value that lacks a field of a kind, whatever its default: where one was lost,
    another is not guessed."""
    for name in kind.__struct_fields__:
        if name not in values:
            raise FormatError(source, name, "is missing")


def plain(value: Any) -> dict[str, Any]:
    """A document as JSON values."""
    values: dict[str, Any] = msgspec.to_builtins(value)
    return values

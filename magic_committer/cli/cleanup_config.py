"""What `cleanup` cleans, and from which ages on: the command line, and a TOML file for cron.

::

    [defaults]
    dead_after = "36h"

    [[destinations]]
    path = "s3://bucket/table"
    forget_after = "7d"
    recursive = true

What the command line says wins, then what the destination says, then ``[defaults]``, then the
library's own limits. A key that nobody knows is refused: a limit that is misspelt is no limit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from magic_committer.cli.places import Place, place
from magic_committer.cli.quantities import parse_duration
from magic_committer.committers.registry import is_file_tree
from magic_committer.errors import MagicError, OptionError
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    FORGET_AFTER_SECONDS,
    FORGET_GIVEN_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
)

LIMITS = Limits(
    dead_after=DEAD_AFTER_SECONDS,
    leftover_after=LEFTOVER_AFTER_SECONDS,
    forget_after=FORGET_AFTER_SECONDS,
    forget_given_after=FORGET_GIVEN_AFTER_SECONDS,
)
"""What holds where nobody says anything: those of `magic_committer.cleanup`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A destination to be cleaned, and its limits.

    Attributes:
        deep: the destinations below it are cleaned too.
    """

    dest: Place
    limits: Limits
    deep: bool = False


def targets_of(
    paths: tuple[Place, ...], given: Mapping[str, Any], deep: bool = False
) -> list[Target]:
    """What a command line without a file asks for.

    Args:
        given: limits, by the names of `Limits`. deep: the destinations below each path too.
    """
    return [Target(dest, replace(LIMITS, **given), deep) for dest in dict.fromkeys(paths)]


def read_config(file: str, given: Mapping[str, Any], deep: bool = False) -> list[Target]:
    """What a file asks for, with what the command line says in its place.

    Raises:
        OptionError: the file cannot be read, or is wrong; the message says where.
    """
    try:
        with open(file, "rb") as stream:
            return _targets(tomllib.load(stream), given, deep)
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{file} is no TOML: {error}") from error
    except _WrongValue as error:
        raise OptionError(f"{file}: {error}") from error


class _WrongValue(Exception):
    """Something in the file is not as it should be."""


def _duration(value: Any) -> float:
    if not isinstance(value, str):
        raise _WrongValue(f'a duration is text like "36h", not {value!r}')
    return parse_duration(value)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue(f"it is true or false, not {value!r}")
    return value


_KEYS: dict[str, Callable[[Any], Any]] = {
    "dead_after": _duration,
    "leftover_after": _duration,
    "forget_after": _duration,
    "forget_given_after": _duration,
    "finish": _yes_or_no,
}
"""Keys of the file, which are the names in `Limits`, and how each is read."""
DEEP = "recursive"
"""The key that is no limit."""


def _targets(config: Mapping[str, Any], given: Mapping[str, Any], deep: bool) -> list[Target]:
    _only(config, ("defaults", "destinations"), "the file")
    defaults = config.get("defaults", {})
    if not isinstance(defaults, dict):
        raise _WrongValue("defaults is a table: [defaults]")
    _only(defaults, (*_KEYS, DEEP), "[defaults]")
    usual = _limits(defaults, "[defaults]")
    tables = config.get("destinations")
    if not isinstance(tables, list) or not tables:
        raise _WrongValue("it names no destinations: each is a table [[destinations]] with a path")
    targets: dict[Place, Target] = {}
    for number, table in enumerate(tables, 1):
        where = f"destination {number}"
        if not isinstance(table, dict):
            raise _WrongValue(f"{where} is no table: [[destinations]]")
        _only(table, ("path", *_KEYS, DEEP), where)
        dest = _path(table, where)
        if dest in targets:
            raise _WrongValue(f"{where}: {dest.url} is there twice")
        limits = {**usual, **_limits(table, where), **given}
        also_below = deep or _deep(table, where, _deep(defaults, "[defaults]", False))
        targets[dest] = Target(dest, replace(LIMITS, **limits), also_below)
    return list(targets.values())


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise _WrongValue(f"{where}: {', '.join(unknown)} is not known; known: {', '.join(known)}")


def _path(table: Mapping[str, Any], where: str) -> Place:
    path = table.get("path")
    if not isinstance(path, str):
        raise _WrongValue(f'{where} has no path: path = "s3://bucket/table"')
    try:
        return place(path) if is_file_tree(path) else Destination.parse(path)
    except MagicError as error:
        raise _WrongValue(f"{where}, path: {error}") from error


def _deep(table: Mapping[str, Any], where: str, default: bool) -> bool:
    try:
        return _yes_or_no(table.get(DEEP, default))
    except _WrongValue as error:
        raise _WrongValue(f"{where}, {DEEP}: {error}") from error


def _limits(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            continue
        try:
            limits[key] = _KEYS[key](value)
        except (OptionError, _WrongValue) as error:
            raise _WrongValue(f"{where}, {key}: {error}") from error
    return limits

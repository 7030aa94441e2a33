"""What callers of several engines pass, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magic_committer._arguments import shown
from magic_committer.errors import OptionError, WrongType


def whole_number(name: str, given: object, example: str = "3") -> int:
    """A number of things, 1 or more."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongType(f"{name} is a whole number, not {shown(given)}", hint=f"{name}={example}")
    if given < 1:
        raise OptionError(f"{name}={given}: it is 1 or more")
    return given


def seconds(name: str, given: object) -> float:
    """A number of seconds, or of times, above 0."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WrongType(f"{name} is a number, not {shown(given)}", hint=f"Pass {name}=3.0")
    if not given > 0:
        raise OptionError(f"{name}={given}: it is more than 0")
    return float(given)


def column_names(name: str, given: object) -> tuple[Any, ...]:
    """Columns that become directories."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise WrongType(
            f"{name} is a list of columns, not {shown(given)}", hint=f"Pass [{given!r}]"
        )
    return tuple(given)

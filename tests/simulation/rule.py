"""One rule of the protocol, and how it is taken away."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulation.drawing import EVERYTHING, Focus

Replacement = tuple[Any, str, Any]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        words: as protocol.md says it. promises: one of them breaks, within ``seeds_max`` seeds.
        focus: what the schedules go for, where those of all kinds show it too rarely.
    """

    name: str
    words: str
    promises: tuple[str, ...]
    seeds_max: int
    replacements: Callable[[], list[Replacement]]
    focus: Focus = EVERYTHING

    @contextmanager
    def removed(self) -> Iterator[None]:
        """The library without the rule."""
        with ExitStack() as stack:
            for target, name, value in self.replacements():
                put: AbstractContextManager[Any] = patch.object(target, name, value)
                stack.enter_context(put)
            yield


def takes_other_arguments(replacements: Iterable[Replacement]) -> list[str]:
    """Functions that take other arguments than what they stand for, or are no generators as those
    are. A rule that got one argument more would be "missed" by a TypeError, or by nothing."""
    other = []
    for target, name, value in replacements:
        real = getattr(target, name)
        if not inspect.isfunction(real) or not inspect.isfunction(value):
            continue
        if inspect.isgeneratorfunction(real) and not inspect.isgeneratorfunction(value):
            other.append(f"{name}: {value}")
        mine = inspect.signature(value).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in mine):
            continue
        theirs = inspect.signature(real).parameters.values()
        if [p.kind for p in mine] != [p.kind for p in theirs]:
            other.append(f"{name}: {value}")
    return other

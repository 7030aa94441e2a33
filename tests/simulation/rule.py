"""One rule of the protocol, and how it is taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

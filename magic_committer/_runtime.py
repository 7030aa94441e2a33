"""What the mechanisms run on: store, pool, clock, ids and progress, handed in as one value.

Components are arguments, never options and never globals: a test or a simulator hands in its own.
`SystemClock` and `new_id` are the only places that read the time, sleep, or draw random ids.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from magic_committer._pool import Pool, ThreadPool
from magic_committer.stores.base import ObjectStore


class Clock(Protocol):
    """Time, as far as the library needs it. Nothing is decided by it: ages of objects are the
    store's clock alone."""

    def now(self) -> float:
        """Seconds since the epoch, for timestamps in reports."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """This machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def new_id() -> str:
    """32 lower-case hexadecimal digits of a random UUID."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a long step.

    Attributes:
        phase: ``"load"``, ``"check"``, ``"complete"`` or ``"sweep"``.
        done, total: in ``unit``s; ``total`` is None while it is not known.
        unit: ``"tasks"``, ``"files"``, ``"uploads"``.
    """

    phase: str
    done: int
    total: int | None
    unit: str


ProgressFunction = Callable[[Progress], None]


def no_progress(progress: Progress) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The components of one job in one process. Never pickled."""

    store: ObjectStore
    pool: Pool = field(default_factory=ThreadPool)
    clock: Clock = field(default_factory=SystemClock)
    ids: Callable[[], str] = new_id
    progress: ProgressFunction = no_progress

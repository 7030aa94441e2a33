"""What all mechanisms work with: store, pool, clock, ids and progress, passed as one value.

Components are arguments, never options and never globals, so that a test or a simulator can pass
its own. Only `SystemClock` and `new_id` read the time, sleep, or draw random ids.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from magic_committer.runtime.threads import Outcome, Pool, ThreadPool
from magic_committer.stores.base import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


class Clock(Protocol):
    """Time, as far as the library needs it. It decides nothing: ages of objects come from the
    store's clock alone."""

    def now(self) -> float:
        """Seconds since the epoch, for timestamps in reports."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""


class SystemClock:
    """This machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def again(clock: Clock, times: int, pause: float) -> Iterator[int]:
    """The numbers of the tries of one thing, with a pause before each but the first. It doubles
    each time."""
    for number in range(times):
        if number:
            clock.sleep(pause * 2 ** (number - 1))
        yield number


def new_id() -> str:
    """Draw the 32 lower-case hexadecimal digits of a random UUID."""
    random = os.urandom(16).hex()
    return f"{random[:12]}4{random[13:16]}{'89ab'[int(random[16], 16) % 4]}{random[17:]}"


class Progress(NamedTuple):
    """How far a long step has come.

    Attributes:
        phase: ``"load"``, ``"check"``, ``"complete"`` or ``"sweep"``; before them, in Spark,
            ``"write"``: its tasks; in a task with a local directory ``"upload"``: its files;
            ``"put"``: files of this machine; ``"run"``: items of `run`.
        done, total: numbers of ``unit``; ``total`` is None if it is not known.
        unit: ``"tasks"``, ``"files"``, ``"uploads"``, ``"items"``.
    """

    phase: str
    done: int
    total: int | None
    unit: str


ProgressFunction = Callable[[Progress], None]


def no_progress(progress: Progress) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The components of one job in one process. Never pickled. ``in_flight``: how many requests
    for one purpose are under way at once."""

    store: ObjectStore
    pool: Pool = field(default_factory=ThreadPool)
    clock: Clock = field(default_factory=SystemClock)
    ids: Callable[[], str] = new_id
    progress: ProgressFunction = no_progress
    in_flight: int = 64

    def each(
        self, function: Callable[[T], R], items: Iterable[T]
    ) -> Generator[Outcome[T, R], None, None]:
        """Do many requests at once: see `Pool.each`."""
        return self.pool.each(function, items, in_flight=self.in_flight)

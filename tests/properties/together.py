"""All columns, decided on all cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from tests.properties.comparison import Column, compare
from tests.properties.subjects import EVERYBODY
from tests.simulation.tally import quiet

R = TypeVar("R")


def decide(name: str) -> tuple[Column, float]:
    """One committer by all properties, without the library's log; and the seconds that it took."""
    started = time.monotonic()
    with quiet():
        column = compare(name, EVERYBODY[name])
    return column, time.monotonic() - started


@contextmanager
def on_all_cores() -> Iterator[Callable[[Callable[[str], R], Iterable[str]], dict[str, Future[R]]]]:
    """Gives a function that starts a call for each of some names, in this order, on all cores. At
    the end of the block what has not begun never will."""
    pool = ProcessPoolExecutor(os.cpu_count())
    try:
        yield lambda call, names: {name: pool.submit(call, name) for name in names}
    finally:
        pool.shutdown(cancel_futures=True)

"""Pages of a listing that are requested ahead."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import pytest

from magic_committer._patience import errand
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit.steps import Ahead
from magic_committer.errors import PermissionDenied, StoreError
from magic_committer.stores.memory import MemoryStore

SECONDS = 300.0


class Pages:
    """Numbered pages that say when they are asked for."""

    def __init__(self, many: int, error: StoreError | None = None) -> None:
        self.asked = threading.Semaphore(0)
        self.number = 0
        self.most = 0
        """How many were asked for before the caller had taken them."""
        self.taken = 0
        self._many = many
        self._error = error

    def __iter__(self) -> Iterator[int]:
        for number in range(self._many):
            self.number += 1
            self.most = max(self.most, self.number - self.taken)
            self.asked.release()
            yield number
        if self._error is not None:
            raise self._error


@pytest.fixture
def runtime() -> Generator[Runtime, None, None]:
    """Components with threads."""
    pool = ThreadPool(4)
    yield Runtime(MemoryStore(), pool=pool)
    pool.close()


@pytest.mark.parametrize("many", [0, 1, 2, 7])
def test_all_pages_come_in_order_and_once(runtime: Runtime, many: int) -> None:
    """As without asking ahead."""
    with Ahead(runtime, Pages(many).__iter__) as pages:
        assert list(pages) == list(range(many))


def test_the_next_page_is_asked_for_while_the_caller_works(runtime: Runtime) -> None:
    """Before the caller takes it; and never more than one."""
    pages = Pages(6)
    with Ahead(runtime, pages.__iter__) as coming:
        for number in coming:
            pages.taken = number + 1
            assert pages.asked.acquire(timeout=SECONDS)
            if number < 5:  # this one, and the next one
                assert pages.asked.acquire(timeout=SECONDS)
                pages.asked.release()
    assert pages.most <= 2


def test_the_error_of_a_page_comes_after_the_pages_before_it(runtime: Runtime) -> None:
    """A page that cannot be had hides none of those that could, and nothing is asked after it."""
    pages = Pages(3, PermissionDenied("not allowed"))
    told: list[int] = []
    with Ahead(runtime, pages.__iter__) as coming, pytest.raises(PermissionDenied):
        told.extend(coming)
    assert told == [0, 1, 2]


def test_a_caller_who_stops_gives_up_the_page_under_way(runtime: Runtime) -> None:
    """The request that was sent ahead is told to end, its error is nobody's, and no other is
    sent."""
    under_way, ended = threading.Event(), threading.Event()
    asked = 0

    def pages() -> Iterator[int]:
        nonlocal asked
        asked += 1
        yield 0
        asked += 1
        under_way.set()
        mine = errand()
        while mine is None or not mine.over:
            assert not ended.wait(0.01)
        raise PermissionDenied("given up")

    with Ahead(runtime, pages) as coming:
        assert next(iter(coming)) == 0
        assert under_way.wait(SECONDS)
    assert asked == 2


def test_without_threads_the_pages_come_too() -> None:
    """A pool that runs everything at once asks for the next page first."""
    runtime = Runtime(MemoryStore(), pool=ThreadPool(0))
    with Ahead(runtime, Pages(4).__iter__) as pages:
        assert list(pages) == [0, 1, 2, 3]


def test_pages_are_asked_for_before_the_caller_takes_the_first(runtime: Runtime) -> None:
    """As many as may wait, and no more."""
    pages = Pages(9)
    with Ahead(runtime, pages.__iter__, pages_max=3) as coming:
        for _ in range(3):
            assert pages.asked.acquire(timeout=SECONDS)
        assert pages.number == 3
        assert list(coming) == list(range(9))

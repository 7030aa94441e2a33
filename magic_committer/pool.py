"""The only starter of threads: bounded submission, results as they come, aborts out of finalizers.

Invariants:

* At most ``threads_max`` functions run at once, and `each` never has more than ``in_flight`` items
  (or ``weight_max`` of weight) taken and not yet given back: memory is bounded by the caller's
  numbers, whatever the length of the input.
* A function's exception is a value here (`Outcome.error`), never lost and never raised in a thread.
* Callers wait by `Future.result` or by iterating `each`, never by a lock held over I/O. So a
  scheduler may stand in for the pool: the protocols below are all it must offer.
* A forked child starts threads of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future as StdFuture
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

THREADS_MAX = 64
"""Threads of a process's default pool: enough for 2,000 requests a second of 30 ms."""


class Future(Protocol[R_co]):
    """A function's result to come."""

    def result(self) -> R_co:
        """Wait for it; raises what the function raised."""
        ...

    def done(self) -> bool:
        """Whether `result` would return at once."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """What became of one item of `Pool.each`: a result, or the error that the function raised."""

    item: T
    result: R | None = None
    error: BaseException | None = None

    def unwrap(self) -> R:
        """The result; raises the error if there was one."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Pool(Protocol):
    """Runs functions beside the caller."""

    def submit(self, function: Callable[[], R]) -> Future[R]:
        """Run ``function`` soon. Never blocks; bounding is the caller's (it holds the futures)."""
        ...

    def each(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        in_flight: int,
        weigh: Callable[[T], int] | None = None,
        weight_max: int = 0,
    ) -> Iterator[Outcome[T, R]]:
        """Run ``function`` on every item; yield outcomes as they come, in no order.

        Items are taken from the iterable only when there is room, in the caller's thread. An item
        heavier than ``weight_max`` runs alone. Leaving the iteration early waits for what is in
        flight and takes no more.
        """
        ...

    def later(self, function: Callable[[], object]) -> None:
        """Run ``function`` when a thread is free; its outcome is nobody's. May be called from
        ``__del__`` in any thread: takes no lock and starts nothing."""
        ...


class ThreadPool:
    """The pool of real threads. ``threads_max=0`` runs everything in the calling thread."""

    def __init__(self, threads_max: int = THREADS_MAX, *, name: str = "magic-committer") -> None:
        if threads_max < 0:
            raise ValueError("threads_max is 0 (no threads) or more")
        self.threads_max = threads_max
        self._name = name
        self._lock = threading.Lock()
        self._pid = 0
        self._executor: ThreadPoolExecutor | None = None
        self._late: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def __repr__(self) -> str:
        return f"ThreadPool(threads_max={self.threads_max})"

    def submit(self, function: Callable[[], R]) -> StdFuture[R]:
        if self.threads_max == 0:
            return _run_now(function)
        return self._running().submit(function)

    def each(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        in_flight: int,
        weigh: Callable[[T], int] | None = None,
        weight_max: int = 0,
    ) -> Iterator[Outcome[T, R]]:
        finished: SimpleQueue[tuple[T, int, StdFuture[R]]] = SimpleQueue()
        flying = weight = 0
        source = iter(items)
        held: tuple[T, int] | None = None
        exhausted = False
        try:
            while True:
                while not exhausted and flying < in_flight:
                    if held is None:
                        try:
                            item = next(source)
                        except StopIteration:
                            exhausted = True
                            break
                        held = (item, weigh(item) if weigh else 0)
                    item, grams = held
                    if flying and weigh and weight + grams > weight_max:
                        break
                    held = None
                    flying, weight = flying + 1, weight + grams
                    future = self.submit(lambda item=item: function(item))  # type: ignore[misc]
                    future.add_done_callback(
                        lambda f, item=item, grams=grams: finished.put((item, grams, f))  # type: ignore[misc]
                    )
                if not flying:
                    return
                done, grams, future = finished.get()
                flying, weight = flying - 1, weight - grams
                yield _outcome(done, future)
        finally:
            while flying:
                finished.get()
                flying -= 1

    def later(self, function: Callable[[], object]) -> None:
        self._late.put(function)

    def ready_for_late(self) -> None:
        """Make sure that a thread drains `later`. Call it where objects with finalizers are made:
        a finalizer itself must not start threads."""
        if self.threads_max:
            self._running()

    def every(self, seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        """Call ``function`` every so many seconds, in a thread of its own, until it returns False.
        A pool without threads never calls it.

        Returns:
            What ends it: the thread at once, a call that is under way when it is done. It never
            blocks and takes no lock: it may be called from ``__del__``, and in a forked child,
            where no such thread runs.
        """
        bell: SimpleQueue[None] = SimpleQueue()
        if self.threads_max:
            threading.Thread(
                target=_tick,
                args=(bell, seconds, function),
                name=f"{self._name}-every",
                daemon=True,
            ).start()
        return lambda: bell.put(None)

    def close(self) -> None:
        """Wait for what runs, then stop the threads. The pool may be used again: it starts anew."""
        with self._lock:
            executor, self._executor = self._executor, None
            alive = self._pid == os.getpid()
        if executor is not None and alive:
            self._late.put(None)
            executor.shutdown(wait=True)

    def _running(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._late = SimpleQueue()
                self._executor = ThreadPoolExecutor(self.threads_max, self._name)
                threading.Thread(
                    target=_drain, args=(self._late,), name=f"{self._name}-late", daemon=True
                ).start()
            return self._executor


def _tick(bell: SimpleQueue[None], seconds: float, function: Callable[[], bool]) -> None:
    goes_on = True
    while goes_on:
        try:
            bell.get(timeout=seconds)
            return
        except Empty:
            pass
        try:
            goes_on = function()
        except Exception:  # nobody waits for it; the next call may do better
            _log_lost(function)


def _drain(queue: SimpleQueue[Callable[[], object] | None]) -> None:
    while (function := queue.get()) is not None:
        try:
            function()
        except Exception:  # the contract of `later`: it has no one to tell
            _log_lost(function)


def _log_lost(function: Callable[[], object]) -> None:
    import logging

    logging.getLogger("magic_committer").warning(
        "what ran in the background failed: %r", function, exc_info=True
    )


def _run_now(function: Callable[[], R]) -> StdFuture[R]:
    future: StdFuture[R] = StdFuture()
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
    return future


def _outcome(item: T, future: StdFuture[R]) -> Outcome[T, R]:
    error = future.exception()
    return (
        Outcome(item, error=error) if error is not None else Outcome(item, result=future.result())
    )

"""Many requests of one thread at once: the same works, retries and answers as one by one.

The caller's thread sends and receives; while it does something else, nothing happens but what the
kernel does. Invariants:

* No more than ``in_flight`` works are begun and not ended, and no more requests are under way than
  the `Window` allows, which is fewer while the store asks for fewer.
* A request that waits for its next try holds its work, and no connection.
* **Nothing under way is given up**: who leaves early waits for its answers, after Ctrl-C for
  `GRACE_SECONDS`. Some stores lose an upload whose client hangs up during Complete
  (docs/stores.md).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Generic, TypeVar

from magic_committer._patience import GRACE_SECONDS, SLICE_SECONDS, was_interrupted
from magic_committer._runtime import Clock
from magic_committer.errors import StoreError
from magic_committer.stores.s3.answers import Refused, Reply, read
from magic_committer.stores.s3.fast import Fast
from magic_committer.stores.s3.http import Answer, Failure, Loop, Outcome
from magic_committer.stores.s3.requests import Call
from magic_committer.stores.s3.retry import Attempts

T = TypeVar("T")
R = TypeVar("R")

Work = Generator[Call, tuple[Reply, int], R]
"""What one verb asks: it yields requests, is sent each reply with how often it was asked for, or is
thrown the error, and returns the verb's result."""

_SLOWER = frozenset((429, 503))
"""Statuses by which a store asks for fewer requests (RFC 9110, RFC 6585; S3: ``SlowDown``)."""


class Window:
    """How many requests may be under way: from 1 to ``most``. Pure.

    S3 answers 503 ``SlowDown`` when a prefix gets more requests than it takes, and takes more after
    a while. So the window is halved when the store asks for fewer requests, and grows by one when a
    whole window of requests was answered with success. This is what TCP does, for the same reason:
    many clients who do so share a store fairly, and none has to know its limit.

    A store that is too busy answers many requests with 503 at once. All of them were sent before
    the window was halved, so together they are one reason to halve it: the window is not halved
    again until as many answers have come as were under way then.

    Args:
        most: the largest number, and the first one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = most
        self._successes = 0
        self._sent_before = 0
        """Answers that are still to come to requests that were sent before it was halved."""

    def answered(self, failure: BaseException | None) -> None:
        """Note an answer; None: a success."""
        before, self._sent_before = self._sent_before, max(0, self._sent_before - 1)
        if failure is None and self.size < self._most:
            self._successes += 1
            if self._successes >= self.size:
                self.size += 1
                self._successes = 0
        elif isinstance(failure, Refused) and failure.status in _SLOWER and not before:
            self._sent_before = self.size - 1  # this one has been answered
            self.size = max(1, self.size // 2)
            self._successes = 0


class _Flight(Generic[T]):
    """A work that is under way, with its present request."""

    __slots__ = ("attempts", "call", "tag", "work")

    def __init__(self, tag: T, work: Work[Any]) -> None:
        self.tag = tag
        self.work = work
        self.call: Call
        self.attempts: Attempts


class _Doing(Generic[T]):
    """Works that are under way, and the results that were not given yet (``ended``)."""

    def __init__(
        self, way: Fast, clock: Clock, attempts_of: Callable[[Call], Attempts], in_flight: int
    ) -> None:
        self._way = way
        self._clock = clock
        self._attempts_of = attempts_of
        self._in_flight = max(1, in_flight)
        self._window = Window(self._in_flight)
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, _Flight[T], Failure]] = []
        self.loop = Loop(way.http)
        self.held = 0
        self.ended: list[tuple[T, Any]] = []

    @property
    def has_room(self) -> bool:
        return self.held < self._in_flight and self.loop.flying < self._window.size

    def begin(self, tag: T, work: Work[Any]) -> None:
        self.held += 1
        self._go_on(_Flight(tag, work), next, work)

    def try_again(self) -> None:
        """Send what has waited long enough."""
        waiting = self._waiting
        while waiting and self.loop.flying < self._window.size:
            due, _, flight, error = waiting[0]
            ended = flight.attempts.broken_off
            if not ended and due > self._clock.monotonic():
                return
            heapq.heappop(waiting)
            if ended:
                self._go_on(flight, flight.work.throw, flight.attempts.error(error))
            else:
                self._send(flight)

    def wait(self, seconds: float) -> None:
        """Wait so long for an answer, or until something is to be sent again."""
        if self._waiting:
            seconds = min(seconds, max(0.0, self._waiting[0][0] - self._clock.monotonic()))
            if not self.loop.flying:
                self._waiting[0][2].attempts.sleep(seconds)
                return
        for flight, outcome in self.loop.wait(seconds):
            self._answered(flight, outcome)

    def _send(self, flight: _Flight[T]) -> None:
        try:
            deadline = flight.attempts.begin()
        except StoreError as refused:
            self._go_on(flight, flight.work.throw, refused)
            return
        try:
            request = self._way.request(flight.call)
        except Failure as error:
            self._failed(flight, error)
        else:
            self.loop.start(flight, request, deadline)

    def _answered(self, flight: _Flight[T], outcome: Outcome) -> None:
        try:
            if not isinstance(outcome, Answer):
                raise outcome
            reply = read(flight.call.operation, outcome)
        except Failure as error:
            self._window.answered(error)
            self._failed(flight, error)
        else:
            self._window.answered(None)
            flight.attempts.answered()
            self._go_on(flight, flight.work.send, (reply, flight.attempts.count))

    def _failed(self, flight: _Flight[T], error: Failure) -> None:
        if (wait := flight.attempts.failed(error)) is None:
            self._go_on(flight, flight.work.throw, flight.attempts.error(error))
        else:
            due = self._clock.monotonic() + wait
            heapq.heappush(self._waiting, (due, next(self._numbers), flight, error))

    def _go_on(self, flight: _Flight[T], step: Callable[[Any], Call], given: Any) -> None:
        """Let a work go on, to its next request or to its end."""
        result: Any
        try:
            flight.call = step(given)
        except StopIteration as end:
            result = end.value
        except StoreError as error:
            result = error.with_traceback(None)
        else:
            flight.attempts = self._attempts_of(flight.call)
            self._send(flight)
            return
        self.held -= 1
        self.ended.append((flight.tag, result))


def ask_each(
    way: Fast,
    clock: Clock,
    next_work: Callable[[], tuple[T, Work[R]] | None],
    attempts_of: Callable[[Call], Attempts],
    in_flight: int,
    look_seconds: float,
) -> Generator[tuple[T, R | StoreError], None, None]:
    """Do many works at once, as `magic_committer.stores.base.Many.ask_each` says of requests.
    ``attempts_of`` gives the tries of a request."""
    doing: _Doing[T] = _Doing(way, clock, attempts_of, in_flight)
    try:
        while True:
            doing.try_again()
            while doing.has_room and (new := next_work()) is not None:
                doing.begin(*new)
            if not doing.ended:
                if not doing.held:
                    return
                doing.wait(look_seconds)
            ended, doing.ended = doing.ended, []
            yield from ended
    finally:
        until = monotonic() + GRACE_SECONDS if was_interrupted() else None
        while doing.loop.flying and (until is None or monotonic() < until):
            for _ in doing.loop.wait(SLICE_SECONDS):
                continue
        doing.loop.close()

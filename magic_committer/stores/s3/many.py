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
import selectors
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar

from magic_committer.errors import StoreError
from magic_committer.runtime.components import Clock
from magic_committer.runtime.threads import (
    GRACE_SECONDS,
    SLICE_SECONDS,
    renewed_in_children,
    was_interrupted,
)
from magic_committer.stores.s3.http import (
    READ,
    WRITE,
    Connection,
    Http,
    Origin,
    Waits,
    unwritten,
)

T = TypeVar("T")
R = TypeVar("R")

_SLOWER = frozenset((429, 503))
"""Statuses by which a store asks for fewer requests (RFC 9110, RFC 6585; S3: ``SlowDown``)."""


class Window:
    """How many requests may be under way: from 1 to ``most``, which is the first number. Pure.

    S3 answers 503 ``SlowDown`` when a prefix gets too many requests, and serves more after a
    while. So the window is halved when the store asks for fewer requests, and grows by one when a
    whole window of requests was answered with success. This is what TCP does, for the same reason:
    many clients who do so share a store fairly, and none has to know its limit.

    A store that is too busy answers many requests with 503 at once. All of them were sent before
    the window was halved, so together they are one reason to halve it: the window is not halved
    again until as many answers have come as were under way then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = most
        self._successes = 0
        self._sent_before = 0  # answers to come, to requests that were sent before it was halved

    def answered(self, status: int) -> None:
        """Note an answer; 0: there was none that counts."""
        before = self._sent_before
        if before:
            self._sent_before -= 1
        if 200 <= status < 300 and self.size < self._most:
            self._successes += 1
            if self._successes >= self.size:
                self.size += 1
                self._successes = 0
        elif status in _SLOWER and not before:
            self._sent_before = self.size - 1  # this one has been answered
            self.size = max(1, self.size // 2)
            self._successes = 0


@dataclass(eq=False, slots=True)
class _Flight(Generic[T]):
    """A work that is under way, and the connection that it waits for."""

    tag: T
    work: Waits[Any]
    connection: Connection | None = None


class Loop(Http, Generic[T]):
    """Does works at once, in the thread that uses it, over connections that ``http`` lends. Nothing
    happens between two calls but what the kernel does.

    Attributes:
        held: how many works have begun and not ended.
        ended: the results, or errors, of works that were not given yet.
        leaves: nothing new is sent.
    """

    may_block = False

    def __init__(self, http: Http, clock: Clock, in_flight: int) -> None:
        super().__init__(http.network)
        self._http = http
        self._clock = clock
        self._in_flight = max(1, in_flight)
        self._window = Window(self._in_flight)
        self.answered = self._window.answered
        try:
            self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        except OSError:  # there is no descriptor left: this one needs none
            self._selector = selectors.PollSelector()
        self._busy: set[_Flight[T]] = set()
        self._asleep: list[tuple[float, int, _Flight[T]]] = []
        self._numbers = itertools.count()
        self._look_at = 0.0
        self.held = 0
        self.ended: list[tuple[T, Any]] = []
        self.leaves = False
        renewed_in_children(self, Loop._begin_again)

    def _begin_again(self) -> None:
        """In a forked child: the selector is the parent's, and all connections are closed."""
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._idle.clear()

    @property
    def flying(self) -> int:
        """How many works wait for connections."""
        return len(self._busy)

    @property
    def has_room(self) -> bool:
        return self.held < self._in_flight and len(self._busy) < self._window.size

    def start(self, tag: T, work: Waits[Any]) -> None:
        """Begin a work; ``tag`` is what the caller knows it by."""
        self.held += 1
        self._resume(_Flight(tag, work), 0)

    def wake(self) -> None:
        """Go on with works that have slept long enough, as far as there is room."""
        asleep = self._asleep
        while asleep and self.flying < self._window.size:
            if asleep[0][0] > self._clock.monotonic():
                return
            self._resume(heapq.heappop(asleep)[2], 0)

    def wait(self, seconds: float) -> None:
        """Wait so long for connections, or until a work has slept."""
        if self._asleep:
            seconds = min(seconds, max(0.0, self._asleep[0][0] - self._clock.monotonic()))
            if not self._busy:
                self._clock.sleep(seconds)
                return
        for key, ready in self._selector.select(max(0.0, min(seconds, SLICE_SECONDS))):
            connection: Connection = key.data
            if connection.flight is not None:
                self._resume(connection.flight, ready)
            else:  # the server has closed it; a work before may have found that out
                with suppress(KeyError, ValueError):
                    self._idle[connection.origin].remove(connection)
                self.leave(connection)
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + SLICE_SECONDS
            for flight in list(self._busy):
                one = flight.connection  # None: Ctrl-C came before it was noted
                # A forked child has closed its connection, of which the work hears now.
                self._resume(flight, READ | WRITE if one is not None and one.sock is None else 0)

    def close(self) -> None:
        """Give up what is under way, and give the idle connections back."""
        for flight in [*self._busy, *(flight for _, _, flight in self._asleep)]:
            flight.work.close()
        for connections in self._idle.values():
            for connection in connections:
                self._forget(connection)
                self._http.give_back(connection)
        self._idle.clear()
        self._selector.close()

    def take(self, origin: Origin) -> Connection:
        if self.leaves:
            raise unwritten("nobody waits for its answer")
        return super().take(origin) if self._idle.get(origin) else self._http.take(origin)

    def give_back(self, connection: Connection) -> None:
        if connection.is_open:
            self._watch(connection, READ, None)
            self._idle.setdefault(connection.origin, []).append(connection)
        else:
            self.leave(connection)

    def _resume(self, flight: _Flight[T], ready: int) -> None:
        """Let a work go on, until it must wait again or has ended. It counts as under way before
        it sends anything: who is interrupted then waits for it."""
        self._busy.add(flight)
        result: Any
        try:
            wanted = flight.work.send(ready) if ready else next(flight.work)
        except StopIteration as end:
            result = end.value
        except StoreError as error:
            result = error.with_traceback(None)
        else:
            if isinstance(wanted, float):
                flight.connection = None
                self._busy.discard(flight)
                due = self._clock.monotonic() + wanted
                heapq.heappush(self._asleep, (due, next(self._numbers), flight))
            else:
                flight.connection = wanted[0]
                self._watch(*wanted, flight)
            return
        self._busy.discard(flight)
        self.held -= 1
        self.ended.append((flight.tag, result))

    def _watch(self, connection: Connection, wanted: int, flight: _Flight[T] | None) -> None:
        sock = connection.sock
        if sock is None:  # closed in a forked child
            return
        if sock is connection.watched:
            if wanted != connection.wanted:
                self._selector.modify(connection.number, wanted, connection)
        else:  # another address, or TLS
            self._forget(connection)
            connection.number = sock.fileno()
            self._selector.register(connection.number, wanted, connection)
            connection.watched = sock
        connection.wanted, connection.flight = wanted, flight

    def leave(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        """Take a socket out of the selector. It may be closed, and in a forked child its number may
        be another one's."""
        connection.flight = connection.watched = None
        key = (self._selector.get_map() or {}).get(connection.number)
        if key is not None and key.data is connection:
            self._selector.unregister(connection.number)


def each_result(
    loop: Loop[T], next_work: Callable[[], tuple[T, Waits[R]] | None], look_seconds: float
) -> Generator[tuple[T, R | StoreError], None, None]:
    """Do many works at once, as `magic_committer.stores.base.Many.ask_each` says of requests."""
    try:
        while True:
            loop.wake()
            while loop.has_room and (new := next_work()) is not None:
                loop.start(*new)
            if not loop.ended:
                if not loop.held:
                    return
                loop.wait(look_seconds)
            ended, loop.ended = loop.ended, []
            yield from ended
    finally:
        loop.leaves = True
        until = monotonic() + GRACE_SECONDS if was_interrupted() else None
        while loop.flying and (until is None or monotonic() < until):
            loop.wait(SLICE_SECONDS)
        loop.close()

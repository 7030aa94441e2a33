"""Who drives the loops of libcurl: threads of their own, which callers wait for.

* One shared thread sends all small requests.
* A request with a large body has a loop, and a thread, of its own while it is sent, taken from a
  free list: parts use all cores, and find open connections.
* So has each iteration of `Curl.send_each`.

**Callers never drive libcurl themselves.** A signal handler runs in the main thread. What it raises
there, while libcurl calls back, would be printed by pycurl and lost. As it is, Ctrl-C ends a wait
for an answer, as everywhere else.

Invariants:

* A verb ends only when its request has ended: nothing uses a caller's buffer afterwards, whatever
  ended the verb.
* Threads are daemons. A thread without work ends after `IDLE_SECONDS`, and its connections with it.
* A forked child makes its own threads. It touches nothing of its parent's: closing a connection of
  TLS says goodbye on it, in the parent's name. The parent's loops stay referenced by the frames of
  its threads, which no longer run in the child and are never taken apart.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from magic_committer._pool import renewed_in_children
from magic_committer.stores.base import FileSlice, PartBody
from magic_committer.stores.s3.curl import LARGE_BODY_BYTES, CurlLoop, CurlSettings
from magic_committer.stores.s3.http import Cause, HTTPAnswer, HTTPRequest, NoAnswer, Sent
from magic_committer.stores.s3.sockets import Deadline

T = TypeVar("T")

IDLE_SECONDS = 30.0
"""After this time without work a thread ends. Its connections are too old then to be used again."""
EACH_CONNECTIONS_MAX = 1024
"""Connections of one `Curl.send_each` at a time. Its caller says how many it needs."""
LOOK_SECONDS = 1.0
"""A waiting caller looks up so often: a Ctrl-C just before a wait does not end the wait."""
CLOSE_SECONDS_MAX = 2.0
"""How long `Curl.close` waits for the threads."""


@dataclass(slots=True, eq=False, repr=False)
class _Call:
    """A request on its way to a loop, and where its outcome goes.

    ``cancelled`` is set by the caller. ``ended`` is set by the loop's thread, which has no more to
    do with the request then, and lets go of it: the body's memory is to be used again, and a thread
    that waits for its next request still knows its last call.
    """

    request: HTTPRequest
    deadline: Deadline
    outcomes: SimpleQueue[tuple[_Call, HTTPAnswer | Exception]]
    key: Any = None
    driver: _Driver | None = None
    cancelled: bool = False
    ended: bool = False

    def end(self, outcome: HTTPAnswer | Exception) -> None:
        """Give the outcome to the caller."""
        self.ended = True
        del self.request
        self.outcomes.put((self, outcome))


class _Driver:
    """A thread with a loop.

    Attributes:
        failure: why it has ended, if that is a mistake of ours, or the system is out of something.
    """

    def __init__(self, settings: CurlSettings) -> None:
        self._inbox: deque[_Call | None] = deque()
        self._loop = CurlLoop(settings, self._inbox)
        self._lock = threading.Lock()
        self._ended = False
        self.failure: NoAnswer | None = None
        self._thread = threading.Thread(
            target=self._drive, args=(self._loop,), name="magic-committer-curl", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the thread runs. Not so in a forked child, or at the interpreter's end."""
        return self._thread.is_alive() and not sys.is_finalizing()

    @property
    def ended(self) -> bool:
        """Whether it takes no more requests."""
        return self._ended or not self.alive

    def put(self, call: _Call | None) -> bool:
        """Send a request, or end it if it is cancelled. None: cancel everything and end.

        Returns:
            False: this thread has ended.
        """
        if not self.alive:
            return False  # the lock may be held for ever, by a thread that is not in this process
        with self._lock:
            if self._ended:
                return False
            self._inbox.append(call)
        self._loop.wake()
        return True

    def join(self, seconds: float) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _drive(self, loop: CurlLoop) -> None:
        flying: set[_Call] = set()
        reason = NoAnswer(Cause.TIME, Sent.PERHAPS, "the client was closed")
        try:
            while self._take_in(loop, flying):
                for call, outcome in loop.turn(IDLE_SECONDS):
                    flying.discard(call)
                    call.end(outcome)
        except BaseException as error:
            why = f"the thread that sends requests has failed: {error!r}"
            self.failure = reason = NoAnswer(Cause.BROKEN, Sent.PERHAPS, why)
            reason.__cause__ = error
            raise
        finally:
            with self._lock:
                self._ended = True
            try:
                loop.close()
            finally:
                for call in (*flying, *self._inbox):
                    if call is not None and not call.ended:
                        call.end(reason)

    def _take_in(self, loop: CurlLoop, flying: set[_Call]) -> bool:
        """Start and end what callers ask for. False: there is no more to do."""
        if not flying and loop.idle_seconds >= IDLE_SECONDS:
            with self._lock:
                self._ended = not self._inbox
            if self._ended:
                return False
        while self._inbox:
            call = self._inbox.popleft()
            if call is None:
                return False
            if call.ended:
                continue
            if not call.cancelled:
                flying.add(call)
                loop.start(call, call.request, call.deadline)
            elif call in flying:
                loop.cancel(call)
            else:
                call.end(NoAnswer(Cause.TIME, Sent.NEVER, "the request was given up"))
        return True


class Curl:
    """Sends HTTP requests by libcurl. Many threads may use it at the same time.

    Args:
        settings: how it connects.
    """

    def __init__(self, settings: CurlSettings) -> None:
        self._settings = settings
        self._begin_again()
        renewed_in_children(self, Curl._begin_again)

    def _begin_again(self) -> None:
        """Forget all threads: at first, and in a forked child."""
        self._lock = threading.Lock()
        self._shared: _Driver | None = None
        self._free: list[_Driver] = []
        self._closed = False

    def send(self, request: HTTPRequest, deadline: Deadline) -> HTTPAnswer:
        """Send a request once, and wait for its answer. The caller may send it again.

        Args:
            request: the request.
            deadline: it ends by then, at the latest a slice later.

        Returns:
            The answer, whatever its status.

        Raises:
            NoAnswer: there is none. It says whether the request was sent.
            EOFError, OSError: the body's file is too short, or cannot be read. Nothing was sent.
            ValueError: it is no HTTP request. Nothing was sent.
        """
        call = _Call(request, deadline, SimpleQueue())
        large = _length(request.body) >= LARGE_BODY_BYTES
        try:
            self._put(call, self._borrow if large else self._shared_driver)
            outcome = _next_outcome([call])[1]
        finally:
            _end_all([call])
            if large and call.driver is not None:
                self._give_back(call.driver)
        if isinstance(outcome, HTTPAnswer):
            return outcome
        raise outcome

    def send_each(
        self,
        requests: Iterable[tuple[T, HTTPRequest]],
        *,
        in_flight: Callable[[], int],
        deadline: Callable[[], Deadline],
    ) -> Generator[tuple[T, HTTPAnswer | NoAnswer], None, None]:
        """Send many small requests, each once, and give what became of them, in the order of their
        ends. If the iteration is left early, requests in flight are ended: they may have arrived.

        Args:
            requests: the requests, each with what the caller knows it by. Taken when there is room,
                in the caller's thread.
            in_flight: how many may be in flight now; asked before each one. At least one is, and no
                more than `EACH_CONNECTIONS_MAX`.
            deadline: makes the deadline of a request; called when it is sent.

        Raises:
            EOFError, OSError, ValueError: as `send`. All others in flight are ended.
            NoAnswer: the iteration goes on in a forked child, to which its requests do not belong.
        """
        flying: dict[_Call, None] = {}
        outcomes: SimpleQueue[tuple[_Call, HTTPAnswer | Exception]] = SimpleQueue()
        source = iter(requests)
        driver: _Driver | None = None
        more = True
        try:
            while True:
                while more and len(flying) < max(1, min(in_flight(), EACH_CONNECTIONS_MAX)):
                    item = next(source, None)
                    if item is None:
                        more = False
                        break
                    call = _Call(item[1], deadline(), outcomes, item[0], driver)
                    flying[call] = None
                    if driver is None or not driver.put(call):
                        try:
                            driver = self._put(call, self._borrow)
                        except NoAnswer as error:
                            call.end(error)
                if not flying:
                    break
                call, outcome = _next_outcome(flying)
                del flying[call]
                if not isinstance(outcome, HTTPAnswer | NoAnswer):
                    raise outcome
                yield call.key, outcome
        finally:
            _end_all(flying)
            if driver is not None:
                self._give_back(driver)

    def close(self) -> None:
        """End all requests, threads and connections. Repeatable. Later requests are refused."""
        with self._lock:
            self._closed = True
            drivers = [*self._free, *([self._shared] if self._shared is not None else [])]
            self._free, self._shared = [], None
        for driver in drivers:
            driver.put(None)
        until = monotonic() + CLOSE_SECONDS_MAX
        for driver in drivers:
            driver.join(max(0.0, until - monotonic()))

    def _put(self, call: _Call, driver_for: Callable[[], _Driver]) -> _Driver:
        """Hand a request to a thread that has not ended."""
        while True:
            try:
                call.driver = driver_for()
            except OSError as error:  # the system is out of descriptors
                why = error.strerror or str(error)
                raise NoAnswer(Cause.CONNECT, Sent.NEVER, why[0].lower() + why[1:]) from error
            if call.driver.put(call):
                return call.driver
            if call.driver.failure is not None:
                raise NoAnswer(Cause.BROKEN, Sent.NEVER, str(call.driver.failure))

    def _shared_driver(self) -> _Driver:
        with self._lock:
            self._refuse_if_closed()
            if self._shared is None or self._shared.ended:
                self._shared = _Driver(self._settings)
            return self._shared

    def _borrow(self) -> _Driver:
        """A thread for the caller alone. The one that was used last has the best connections."""
        with self._lock:
            self._refuse_if_closed()
            while self._free:
                driver = self._free.pop()
                if not driver.ended:
                    return driver
            return _Driver(replace(self._settings, connections_max=EACH_CONNECTIONS_MAX))

    def _give_back(self, driver: _Driver) -> None:
        if driver.ended:
            return
        with self._lock:
            if not self._closed:
                self._free = [one for one in self._free if not one.ended]
                self._free.append(driver)
                return
        driver.put(None)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NoAnswer(Cause.TIME, Sent.NEVER, "the client was closed")


def _length(body: bytes | PartBody) -> int:
    if isinstance(body, FileSlice):
        return body.length
    return len(body) if isinstance(body, bytes) else body.nbytes


def _next_outcome(calls: Iterable[_Call]) -> tuple[_Call, HTTPAnswer | Exception]:
    """Wait for the end of one of the calls, which share a thread and a queue.

    Raises:
        NoAnswer: there is no such thread any more: this is a forked child, or the interpreter ends.
    """
    one = next(iter(calls))
    while True:
        try:
            return one.outcomes.get(timeout=LOOK_SECONDS)
        except Empty:
            if one.driver is None or not one.driver.alive:
                if one.ended:
                    continue
                raise NoAnswer(
                    Cause.BROKEN, Sent.PERHAPS, "the thread that sends requests is gone"
                ) from None


def _end_all(calls: Iterable[_Call]) -> None:
    """End the requests, and wait until they have ended. A Ctrl-C must wait so long."""
    while True:
        try:
            for call in calls:
                call.cancelled = True
                if not call.ended and call.driver is not None:
                    call.driver.put(call)
            for call in calls:
                while not call.ended and call.driver is not None and call.driver.alive:
                    with suppress(Empty):
                        call.outcomes.get(timeout=LOOK_SECONDS)
            return
        except KeyboardInterrupt:
            continue

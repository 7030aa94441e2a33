"""The starter of threads: bounded submission, results in the order of their end, aborts from
finalizers.

Invariants:

* At most ``threads_max`` functions run at once. `each` draws no item while it holds ``in_flight``
  items (or ``weight_max`` of weight) that are taken and not yet given back. So the caller's numbers
  bound the memory, whatever the length of the input.
* A function's exception is a value here (`Outcome.error`). It is never lost and never raised in a
  thread.
* Callers wait by a `Future` or by iterating `each`, never by a lock that is held over I/O. So
  a scheduler may replace the pool: it must offer only the protocols below.
* **The end of a wait is a value, never an exception.** What a signal handler raises in a wait, a
  TimeoutError too, is the caller's, and leaves it.
* Ctrl-C ends every wait. What is in flight then gets `GRACE_SECONDS`; a thread that does not end is
  left alone. **No thread keeps the interpreter from ending**: all are daemons. So code that must
  not lose anything at exit waits for it there (`upload.sender`).
* What the caller's context says (`patience`) holds in the threads too.
* A forked child starts its own threads. No lock is held over what waits, and those that another
  thread may have held at the fork are made anew (`renewed_in_children`).
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import thread as _thread  # noqa: F401 (impossible later, at the end)
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from types import CodeType
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

# How long to wait, and how a wait is broken off ---------------------------------------------------
#
# All requests for one purpose share a `Patience`, in all threads. **A phase ends when the store has
# been silent for so long**, however many requests it still has to send. Every answer, even a
# refusal, starts the wait again, so that no phase is cut short while the store works. The adapter
# says how many seconds each kind of patience has (`magic_committer.stores.s3.retry`).
#
# An `Errand` is what one caller has under way in threads of the pool. Ctrl-C reaches the main
# thread only. The main thread then ends the errand, and its requests end within `SLICE_SECONDS`.
#
# The requests find both by themselves (`contextvars`, which the pool passes to its threads), so
# that the functions between a caller and the store need not pass them on. A store without sockets
# need not know them.


SLICE_SECONDS = 0.2
"""After how many seconds a waiting thread of the pool looks whether its errand has ended."""
GRACE_SECONDS = 0.5
"""Seconds for the answers to what is under way at Ctrl-C: with an answer its effect is known."""
LEAVE_SECONDS = 0.3
"""Seconds after that. Threads that do not end then are left alone, for example in the lookup of a
name."""

HURRY_SECONDS = 3.0
"""A clean-up that follows another one within this many seconds, after Ctrl-C, belongs to the same
Ctrl-C."""
VERB_SECONDS = 5.0
"""Seconds for a verb whose phase has waited too long for other verbs."""
LATE_TRIES_MAX = 10
"""Requests of a verb in a row that are tried once each when the time of their phase is used up."""


class Kind(Enum):
    """The purpose of a wait."""

    USUAL = "usual"
    DECIDED = "decided"
    """Finish a decided job, even if the store is away for long, within reason."""
    CLEANING = "cleaning"
    """Clean up after a failure. This must not keep the error from the caller for long."""
    HURRIED = "hurried"
    """Somebody has pressed Ctrl-C and waits for the prompt."""


class Patience:
    """The silences of a store, as the requests of one phase see them. Safe for many threads."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._since: dict[str, float] = {}
        self._late: dict[str, int] = {}

    def left(self, verb: str, now: float, seconds_max: float) -> float:
        """How many seconds a request may still wait. 0 or less: give it up.

        The store may be silent for ``seconds_max``, to all verbs or to one. After that a verb that
        was not tried during the silence gets a short look: a process that has lost the answer to a
        PUT must read what is there."""
        whole = seconds_max - (now - self._since.setdefault("", now))
        waited = now - self._since.setdefault(verb, now)
        look = 0.0 if self.kind is Kind.HURRIED else min(VERB_SECONDS, seconds_max / 4)
        return min(seconds_max - waited, max(whole, look - waited))

    def answered(self, verb: str) -> None:
        """Note that the store has answered a request with that verb."""
        self._since.pop("", None)
        self._since.pop(verb, None)
        self._late.pop(verb, None)

    def failed(self, verb: str, *, silent: bool) -> None:
        """Note that a request failed: the store was silent, or answered by an error of its own."""
        if silent:
            self._late.pop(verb, None)
        else:
            self._late.setdefault(verb, LATE_TRIES_MAX)

    def may_be_late(self, verb: str) -> bool:
        """Whether a request may be tried once though the time is used up: an error for one key must
        not keep the others from being finished."""
        left = self._late.get(verb, 0)
        self._late[verb] = max(0, left - 1)
        return left > 0


_hurry: tuple[Patience, float] | None = None
"""The patience of the last clean-up in a hurry, and when it began or ended. One Ctrl-C is cleaned
up in several places, one after the other (the file, the task, the job, the interpreter's end). They
share it."""
_patience: ContextVar[Patience | None] = ContextVar("magic_committer_patience", default=None)
_interrupted = False


def patience() -> Patience | None:
    """The patience of the present work; None: each request has its own."""
    return _patience.get()


@contextmanager
def patient(kind: Kind = Kind.USUAL) -> Iterator[None]:
    """Give all requests of the block one patience. If blocks are nested, the outer one holds.
    Exceptions: an inner block for a decided job (longer), or in a hurry (shorter)."""
    global _hurry
    outer = _patience.get()
    if outer is not None and (outer.kind in (kind, Kind.HURRIED) or kind is Kind.USUAL):
        yield
        return
    mine = Patience(kind)
    if kind is Kind.HURRIED:
        if _hurry is not None and time.monotonic() - _hurry[1] <= HURRY_SECONDS:
            mine = _hurry[0]
        _hurry = (mine, time.monotonic())
    before = _patience.set(mine)
    try:
        yield
    finally:
        _patience.reset(before)
        if kind is Kind.HURRIED:
            _hurry = (mine, time.monotonic())


@contextmanager
def cleaning_up(error: BaseException | None) -> Iterator[None]:
    """`patient`, for work because of ``error``: only briefly after Ctrl-C."""
    global _interrupted
    hurried = isinstance(error, KeyboardInterrupt)
    _interrupted = _interrupted or hurried
    with patient(Kind.HURRIED if hurried else Kind.CLEANING):
        yield


def hurried() -> bool:
    """Whether the present work follows a Ctrl-C."""
    now = _patience.get()
    return now is not None and now.kind is Kind.HURRIED


@contextmanager
def ending() -> Iterator[None]:
    """`patient`, for work at the end of the interpreter."""
    by_interrupt = _interrupted or isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    with patient(Kind.HURRIED if by_interrupt else Kind.CLEANING):
        yield


# Errands ------------------------------------------------------------------------------------------


class Errand:
    """What one caller has under way in threads of the pool. If its maker has an errand itself, this
    one belongs to that one and ends with it."""

    __slots__ = ("_age", "_ends", "_outer")

    def __init__(self) -> None:
        self._ends: float | None = None
        self._outer = _errand.get()
        self._age = _age

    @contextmanager
    def here(self) -> Iterator[None]:
        """Everything that is handed to the pool in this block belongs to this errand."""
        before = _errand.set(self)
        try:
            yield
        finally:
            _errand.reset(before)

    def enter(self, context: Context) -> None:
        """Let all work in this context belong to this errand."""
        context.run(_errand.set, self)

    def end(self, after_seconds: float) -> None:
        """Give its requests this many more seconds, and start no new ones."""
        ends = time.monotonic() + after_seconds
        self._ends = ends if self._ends is None else min(self._ends, ends)

    @property
    def ended(self) -> bool:
        """Whether nothing of it may start any more."""
        if self._ends is not None or self._age != _age:
            return True
        return self._outer is not None and self._outer.ended

    @property
    def over(self) -> bool:
        """Whether nothing of it may go on."""
        if self._age != _age or (self._ends is not None and time.monotonic() >= self._ends):
            return True
        return self._outer is not None and self._outer.over


_errand: ContextVar[Errand | None] = ContextVar("magic_committer_errand", default=None)
_age = 0
"""Errands of an earlier age are over."""


def errand() -> Errand | None:
    """The errand of this thread; None in the thread of a caller."""
    return _errand.get()


def end_all() -> None:
    """End every errand of the process, because the interpreter ends."""
    global _age
    _age += 1


def of_handler(
    error: BaseException | None, before: BaseException | None = None
) -> BaseException | None:
    """What a signal handler has raised, where an error is that, or was made of it; None: it was
    not. To the SDK every TimeoutError is its socket's, and it puts other errors into its own.
    ``before``: the exception that was handled when the work began: it is no part of this."""
    if threading.current_thread() is not threading.main_thread():
        return None  # handlers run in the main thread only
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    seen = [before]
    while codes and error is not None and not any(error is one for one in seen):
        seen.append(error)
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in codes:
                return error
            traceback = traceback.tb_next
        error = error.__cause__ or error.__context__
    return None


_OURS = __name__.partition(".")[0] + "."


def pass_on(error: BaseException) -> None:
    """Raise an error again that a signal handler has raised itself: it is no answer of the system
    to a call, and nothing may be tried again, or gone on with, because of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        trace = trace.tb_next  # to look at all handlers takes longer than the call did
    if trace is not None and of_handler(error, error.__context__) is not None:
        raise error


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004 (an object's own)
        code = getattr(function, "__code__", None)  # a bound method has its function's
        if isinstance(code, CodeType):
            return code
    return None


def was_interrupted() -> bool:
    """Whether the present exception is a Ctrl-C or comes from one. True for everything that a
    signal handler raises; False for what the library raises."""
    error = sys.exception()
    while error is not None:
        if not isinstance(error, Exception | GeneratorExit):
            return True
        error = error.__context__
    return False


# The pool -----------------------------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_log = logging.getLogger("magic_committer")

THREADS_MAX = 64
"""Threads of a process's default pool: enough for 2,000 requests of 30 ms each in a second."""
LOOK_SECONDS = 1.0
"""A wait for what is in flight looks up after this many seconds, for two reasons. The interpreter
may be ending, and its threads with it. And a Ctrl-C just before the start of a wait without a limit
does not end that wait."""
EXIT_SECONDS = 0.5
"""How many seconds the interpreter's end waits for threads that shall end."""


class Future(Protocol[R_co]):
    """The future result of a function."""

    def wait(self, seconds: float) -> bool:
        """Wait for its end, ``seconds`` at most; without limit if time is not real. Gives whether
        it has ended."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> R_co:
        """Wait for the end without a limit, and hear Ctrl-C. Gives the result; raises what the
        function raised."""

    def exception(self) -> BaseException | None:
        """What the function raised, after the end; None: nothing."""


def beside(function: Callable[[], R], errand: Errand) -> R:
    """Call ``function``, from the main thread in another one. A signal handler may raise in that
    one at any instant, and the SDK believes that a TimeoutError is its socket's, or loses it: so
    the main thread only waits. What ends the wait ends the errand too: nothing has effect after
    what the caller does next."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    work = [function]
    del function

    def unless_over() -> R:
        if errand.over:
            raise InterruptedError("its caller has given it up")
        try:
            return work.pop()()  # what it was given is let go before the caller goes on
        except BaseException as error:
            raise error.with_traceback(None) from error.__cause__

    future = BESIDE.submit(unless_over)
    try:
        return future.result()
    finally:
        if not future.done():
            errand.end(0.0)
            future.wait(GRACE_SECONDS)
        del future  # its error has this frame


def taken(queue: SimpleQueue[T], seconds: float) -> T | None:
    """The next item of a queue; None: there was none for ``seconds``."""
    try:
        return queue.get(timeout=seconds)
    except Empty as empty:
        traceback = empty.__traceback__
        if traceback is not None and traceback.tb_next is not None:
            raise  # not the queue's: a signal handler has raised it
        return None


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

    def submit(self, function: Callable[[], R], errand: Errand | None = None) -> Future[R]:
        """Run ``function`` soon, as a part of an errand; None: of the caller's own. Never blocks.
        The caller limits how many: it holds the futures."""

    def each(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        in_flight: int,
        weigh: Callable[[T], int] | None = None,
        weight_max: int = 0,
    ) -> Generator[Outcome[T, R], None, None]:
        """Run ``function`` on every item. Yields each outcome when its function ends, in no fixed
        order.

        Items are taken from the iterable only when there is room, in the caller's thread. An item
        heavier than ``weight_max`` runs alone. If the iteration is left early, it waits for what is
        in flight and draws no more items; after Ctrl-C it waits for a second at most.
        ``in_flight``: how many items at once, at least one. ``weight_max``: the weight of all items
        at once."""

    def later(self, function: Callable[[], object]) -> None:
        """Run ``function`` when a thread is free. Nobody gets its outcome. May be called from
        ``__del__`` in any thread: it acquires no lock and starts nothing."""


class Handed(Generic[R]):
    """A future whose waits take no lock: a signal handler that raises between two steps of
    `concurrent.futures.wait` would keep the lock, and the thread that works would wait for it.
    ``then`` is called with it at its end."""

    def __init__(self, then: Callable[[Handed[R]], object] | None = None) -> None:
        self.handed = False  # a thread has it, or will have it
        self._ended = False
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._then = then
        self.value: R | None = None
        self.error: BaseException | None = None

    def run(self, function: Callable[[], R]) -> None:
        """Call a function, and end as it does."""
        try:
            result = function()
        except BaseException as error:
            self.set_exception(error)
            del self  # the error holds this frame
        else:
            self.set_result(result)

    def set_result(self, result: R | None) -> None:
        """End it well."""
        self.value = result
        self._end()

    def set_exception(self, error: BaseException) -> None:
        """End it with an error."""
        self.error = error
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._bell.put(True)
        if self._then is not None:
            self._then(self)

    def done(self) -> bool:
        return self._ended

    def wait(self, seconds: float) -> bool:
        if not self._ended and taken(self._bell, seconds):
            self._bell.put(True)  # for the next one who waits
        return self._ended

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> R:
        try:
            while not self.wait(LOOK_SECONDS):
                continue
            if self.error is not None:
                raise self.error
            return self.value  # type: ignore[return-value]
        finally:
            del self  # its error has this frame


class ThreadPool:
    """The pool of real threads. ``threads_max=0`` runs everything in the calling thread.

    A thread is started when there is work and none is idle. It holds the queues, and not the pool,
    which ends its threads when it is dropped. The standard library's executor would not do: there
    the end of the interpreter waits for all threads, without a limit, and ignores Ctrl-C.
    """

    def __init__(self, threads_max: int = THREADS_MAX, *, name: str = "magic-committer") -> None:
        if threads_max < 0:
            raise ValueError("threads_max is 0 (no threads) or more")
        self.threads_max = threads_max
        self._name = name
        self._begin()
        renewed_in_children(self, ThreadPool._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._late: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._renew()

    def _renew(self) -> None:
        self._begun = False  # a thread works off `_late`
        self._stopped = False
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle: deque[None] = deque()  # for each idle thread
        self._count = 0
        self._started: list[threading.Thread] = []

    def submit(self, function: Callable[[], R], errand: Errand | None = None) -> Handed[R]:
        """Have a function run by a thread, or now: a pool without threads runs it now, and so does
        a thread of this very pool. If that one waited for another thread, all of them might wait
        for one another, for ever."""
        future: Handed[R] = Handed()
        self._hand_over(function, future, errand)
        return future

    def _hand_over(
        self, function: Callable[[], R], future: Handed[R], errand: Errand | None = None
    ) -> None:
        context = contextvars.copy_context()
        if errand is not None:
            errand.enter(context)
        if not self.threads_max or getattr(_of_thread, "work", None) is self._work:
            future.run(lambda: context.run(function))
            return
        if not self._begun:
            self.ready_for_late()
        with self._lock:
            work, idle, started = self._work, self._idle, self._started
            if not self._stopped:
                work.put(lambda: future.run(lambda: context.run(function)))
                future.handed = True
                if idle:
                    idle.pop()
                    return
                if self._count >= self.threads_max:
                    return
                name = f"{self._name}_{self._count}"
                self._count += 1
        if not future.handed:  # it is stopped, as the interpreter ends: nobody else does it
            future.run(lambda: context.run(function))
            return
        thread = _start(_work_off, (work, idle), name)
        if thread is not None:
            started.append(thread)
            return
        with self._lock:
            if work is self._work:
                self._count -= 1
        with suppress(Empty):  # another thread has taken it
            if (waiting := work.get_nowait()) is not None:
                waiting()

    def each(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        in_flight: int,
        weigh: Callable[[T], int] | None = None,
        weight_max: int = 0,
    ) -> Generator[Outcome[T, R], None, None]:
        finished: SimpleQueue[tuple[T, Handed[R]]] = SimpleQueue()
        errand = Errand()
        flying: dict[Handed[R], int] = {}
        weighed = ((item, weigh(item) if weigh else 0) for item in items)
        held: tuple[T, int] | None = None
        exhausted = False
        try:
            while True:
                while not exhausted and len(flying) < max(1, in_flight):
                    if held is None and (held := next(weighed, None)) is None:
                        exhausted = True
                        break
                    item, grams = held
                    if flying and weigh and sum(flying.values()) + grams > weight_max:
                        break
                    held = None
                    future = Handed[R](lambda f, item=item: finished.put((item, f)))  # type: ignore[misc]
                    flying[future] = grams  # before a thread has it: a signal may come in between
                    try:
                        self._hand_over(lambda item=item: function(item), future, errand)  # type: ignore[misc]
                    except BaseException:
                        if not future.handed:
                            del flying[future]
                        raise
                if not flying:
                    return
                if (ended := taken(finished, LOOK_SECONDS)) is None:
                    continue
                done, future = ended
                del flying[future]
                yield Outcome(done, future.value, future.error)
        finally:
            if flying:
                _leave(flying, finished, errand)

    def later(self, function: Callable[[], object]) -> None:
        self._late.put(function)

    def ready_for_late(self) -> None:
        """Make sure that a thread runs the functions of `later`. Call it when objects with
        finalizers are made: a finalizer itself must not start threads."""
        with self._lock:
            if self._begun or not self.threads_max:
                return
            self._begun = True
            late = self._late
            _alive.add(self)
        _start(_drain, (late,), f"{self._name}-late")

    def every(self, seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        """Call ``function`` every ``seconds`` seconds, in a thread of its own, until it returns
        False. A pool without threads never calls it. Gives a function that ends it: the thread ends
        at once, or after a call that is under way. The function never blocks, acquires no lock, and
        may be called from ``__del__``, and in a forked child, where no such thread runs."""
        bell: SimpleQueue[None] = SimpleQueue()
        if self.threads_max:
            _start(_tick, (bell, seconds, function), f"{self._name}-every")
        return lambda: bell.put(None)

    def close(self) -> None:
        """Wait for what runs, then stop the threads. The pool may be used again: it starts new
        threads."""
        with self._lock:
            if not self._begun:
                return
            self._late.put(None)
            self._late = SimpleQueue()  # what comes from now on waits for new threads
            self._end_work()
            started = self._started
            self._renew()
        _join(started)

    def stop(self) -> None:
        """Let each thread end after all submitted work is done; what comes now runs at once."""
        with self._lock:
            self._stopped = True
            self._end_work()

    def join(self, until: float) -> None:
        """Wait for the end of the threads."""
        _join(self._started, until)

    def _end_work(self) -> None:
        for _ in range(self._count):
            self._work.put(None)

    def __del__(self) -> None:
        if hasattr(self, "_count"):
            self._end_work()  # nobody holds it any more, so nobody can submit: no lock is needed


# Threads ------------------------------------------------------------------------------------------

_Work = Callable[[], None]


def _join(threads: Iterable[threading.Thread], until: float | None = None) -> None:
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(None if until is None else max(0.0, until - monotonic()))


_alive: WeakSet[ThreadPool] = WeakSet()
"""Those that have threads."""
_renewed: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renewed_in_children(one: T, begin: Callable[[T], None]) -> None:
    """Call ``begin(one)`` in each forked child, before anything else runs there: another thread of
    the parent may have held its lock, and be in the middle of a change."""
    _renewed[one] = begin


def _in_child() -> None:
    _alive.clear()
    for one, begin in list(_renewed.items()):
        begin(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

BESIDE = ThreadPool(name="magic-committer-beside")
"""Does what the main thread, or a loop, only waits for."""

_of_thread = threading.local()
"""``work``: the queue that this thread works off."""


def _start(
    target: Callable[..., None], arguments: tuple[Any, ...], name: str
) -> threading.Thread | None:
    """Start a daemon thread; None, and a warning: the system has no more, or the interpreter ends
    (from 3.12 on it allows none then)."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        _log.warning("%s: its work is done without it", error)
        return None
    return thread


def _work_off(work: SimpleQueue[_Work | None], idle: deque[None]) -> None:
    _of_thread.work = work
    while (function := work.get()) is not None:
        function()
        del function  # it holds the arguments of its call
        idle.append(None)


@atexit.register
def _end_threads() -> None:
    """End all threads: none may run while the interpreter is taken apart. Runs after
    `upload.sender` has aborted open uploads, because it was registered before."""
    end_all()
    pools = tuple(_alive)
    for one in pools:
        one.stop()
    ends = monotonic() + EXIT_SECONDS
    for one in pools:
        one.join(ends)


def _leave(flying: Iterable[Handed[Any]], finished: SimpleQueue[Any], errand: Errand) -> None:
    """Wait until nothing of an iteration is in flight; only briefly if it was interrupted. The
    futures say it, not what was taken of the queue: a signal handler may have raised just then."""
    if was_interrupted():
        errand.end(GRACE_SECONDS)
    until = monotonic() + GRACE_SECONDS + LEAVE_SECONDS
    try:
        while not sys.is_finalizing() and any(not future.done() for future in flying):
            if errand.ended and monotonic() > until:
                return
            taken(finished, LEAVE_SECONDS / 3 if errand.ended else LOOK_SECONDS)
    except BaseException:  # another signal
        errand.end(0.0)
        raise


def _tick(bell: SimpleQueue[None], seconds: float, function: Callable[[], bool]) -> None:
    while True:
        with suppress(Empty):  # no signal to end: it is time for a call
            bell.get(timeout=seconds)
            return
        try:
            if not function():
                return
        except Exception:  # nobody waits for it; the next call may succeed
            _log_lost(function)


def _drain(queue: SimpleQueue[Callable[[], object] | None]) -> None:
    while (function := queue.get()) is not None:
        try:
            function()
        except Exception:  # the contract of `later`: nobody gets its outcome
            _log_lost(function)


def _log_lost(function: Callable[[], object]) -> None:
    _log.warning("what ran in the background failed: %r", function, exc_info=True)

"""How long the library waits for the store, and how a wait is broken off.

All requests for one purpose share a `Patience`, in all threads. **A phase ends when the store has
been silent for so long**, however many requests it still has to send. Every answer, even a refusal,
starts the wait again, so that no phase is cut short while the store works. The adapter says how
many seconds each kind of patience has (`magic_committer.stores.s3.retry`).

An `Errand` is what one caller has under way in threads of the pool. Ctrl-C reaches the main thread
only. The main thread then ends the errand, and its requests end within `SLICE_SECONDS`.

The requests find both by themselves (`contextvars`, which the pool passes to its threads), so that
the functions between a caller and the store need not pass them on. A store without sockets need not
know them.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from enum import Enum
from functools import partial
from types import CodeType
from typing import Any

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
LOOK_SECONDS = 5.0
"""Seconds for a verb whose phase has waited too long for other verbs."""


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

    def left(self, verb: str, now: float, seconds_max: float) -> float:
        """How many seconds a request may still wait. 0 or less: give it up.

        The store may be silent for ``seconds_max``, to all verbs or to one. After that a verb that
        was not tried during the silence gets a short look: a process that has lost the answer to a
        PUT must read what is there."""
        whole = seconds_max - (now - self._since.setdefault("", now))
        waited = now - self._since.setdefault(verb, now)
        look = 0.0 if self.kind is Kind.HURRIED else min(LOOK_SECONDS, seconds_max / 4)
        return min(seconds_max - waited, max(whole, look - waited))

    def answered(self, verb: str) -> None:
        """Note that the store has answered a request with that verb."""
        self._since.pop("", None)
        self._since.pop(verb, None)


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
    not. The SDK takes every TimeoutError for its socket's, and puts other errors into its own.
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

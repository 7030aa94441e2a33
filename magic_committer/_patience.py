"""How long somebody waits for the store, and how a wait is broken off.

`Patience` is shared by all requests that are made for one purpose, in whatever thread: **a phase
ends when the store has been silent for so long**, however many requests it still has to send. An
answer, a refusal too, begins the wait anew, so that no phase is cut short while the store works.
How many seconds each kind of patience has, the adapter says (`magic_committer.stores.s3.asking`).

`Errand` is what one caller has under way in threads of the pool. Ctrl-C reaches the main thread
only; the main thread then ends the errand, and its requests end within `SLICE_SECONDS`.

Both are found by the requests themselves (`contextvars`, which the pool hands on to its threads),
so that no function between a caller and the store has to pass them on. A store without sockets
need not know of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

SLICE_SECONDS = 0.2
"""How long a thread of the pool waits before it looks whether its errand has ended."""
GRACE_SECONDS = 0.5
"""What is under way at Ctrl-C gets so long to be answered: then it is known what became of it."""
LEAVE_SECONDS = 0.3
"""After that, threads that do not end are left alone: one that is looking up a name, say."""

HURRY_SECONDS = 3.0
"""What is cleaned up so soon after what was cleaned up before, after Ctrl-C, is of the same one."""
LOOK_SECONDS = 5.0
"""What a verb gets whose phase has waited for others for too long."""


class Kind(Enum):
    """For what somebody waits."""

    USUAL = "usual"
    DECIDED = "decided"
    """A job that is decided is finished, however long the store is away: within reason."""
    CLEANING = "cleaning"
    """What is cleaned up after a failure is no reason to keep the caller from hearing of it."""
    HURRIED = "hurried"
    """Somebody has pressed Ctrl-C and waits for the prompt."""


class Patience:
    """The silences of a store, as the requests of one phase meet them. Safe from many threads."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._since: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Patience {self.kind.value}>"

    def left(self, verb: str, now: float, seconds_max: float) -> float:
        """How long a request may still wait; not above 0: it is to be given up.

        The store may be silent for ``seconds_max``, as a whole or to one verb. After that a verb
        that was not tried in the silence gets a short look, for the truth's sake: who has lost the
        answer to a PUT reads what is there.
        """
        whole = seconds_max - (now - self._since.setdefault("", now))
        waited = now - self._since.setdefault(verb, now)
        look = 0.0 if self.kind is Kind.HURRIED else min(LOOK_SECONDS, seconds_max / 4)
        return min(seconds_max - waited, max(whole, look - waited))

    def answered(self, verb: str) -> None:
        """The store has answered a request of that verb."""
        self._since.pop("", None)
        self._since.pop(verb, None)


class _Hurry:
    """The patience of whoever hurries. One Ctrl-C is cleaned up in several places, one after the
    other (the file, the task, the job, the interpreter's end): they share it."""

    def __init__(self) -> None:
        self._last: Patience | None = None
        self._left_at = 0.0

    def enter(self) -> Patience:
        if self._last is None or time.monotonic() - self._left_at > HURRY_SECONDS:
            self._last = Patience(Kind.HURRIED)
        self._left_at = time.monotonic()
        return self._last

    def leave(self) -> None:
        self._left_at = time.monotonic()


_hurry = _Hurry()
_patience: ContextVar[Patience | None] = ContextVar("magic_committer_patience", default=None)
_interrupted = False


def patience() -> Patience | None:
    """The patience of what is being done now; None: each request has its own."""
    return _patience.get()


@contextmanager
def patient(kind: Kind = Kind.USUAL) -> Iterator[None]:
    """Give all requests of the block one patience. In a block within a block the outer one holds,
    unless the inner one is of a decided job (longer) or of somebody who hurries (shorter)."""
    outer = _patience.get()
    if outer is not None and (outer.kind in (kind, Kind.HURRIED) or kind is Kind.USUAL):
        yield
        return
    before = _patience.set(_hurry.enter() if kind is Kind.HURRIED else Patience(kind))
    try:
        yield
    finally:
        _patience.reset(before)
        if kind is Kind.HURRIED:
            _hurry.leave()


@contextmanager
def cleaning_up(error: BaseException | None) -> Iterator[None]:
    """`patient`, for what is done because of ``error``: briefly after Ctrl-C."""
    global _interrupted
    hurried = isinstance(error, KeyboardInterrupt)
    _interrupted = _interrupted or hurried
    with patient(Kind.HURRIED if hurried else Kind.CLEANING):
        yield


def hurried() -> bool:
    """Whether what is being done now follows a Ctrl-C."""
    now = _patience.get()
    return now is not None and now.kind is Kind.HURRIED


@contextmanager
def ending() -> Iterator[None]:
    """`patient`, for what is done as the interpreter ends."""
    by_interrupt = _interrupted or isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    with patient(Kind.HURRIED if by_interrupt else Kind.CLEANING):
        yield


# Errands ------------------------------------------------------------------------------------------


class Errand:
    """What one caller has under way in threads of the pool. Belongs to the errand of its maker, if
    that has one: it ends with it."""

    __slots__ = ("_age", "_ends", "_outer")

    def __init__(self) -> None:
        self._ends: float | None = None
        self._outer = _errand.get()
        self._age = _age

    @contextmanager
    def here(self) -> Iterator[None]:
        """What is handed to the pool in this block is of this errand."""
        before = _errand.set(self)
        try:
            yield
        finally:
            _errand.reset(before)

    def end(self, after_seconds: float) -> None:
        """Let its requests have so many seconds more, and begin none."""
        ends = time.monotonic() + after_seconds
        self._ends = ends if self._ends is None else min(self._ends, ends)

    @property
    def ended(self) -> bool:
        """Whether nothing of it may begin any more."""
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
    """The errand that this thread is on; None in the thread of a caller."""
    return _errand.get()


def end_all() -> None:
    """End every errand that there is in the process: the interpreter ends."""
    global _age
    _age += 1


def was_interrupted() -> bool:
    """Whether the exception that is being handled is a Ctrl-C, or comes of one: of a signal's
    handler in any case, of nothing that the library raises."""
    error = sys.exception()
    while error is not None:
        if not isinstance(error, Exception | GeneratorExit):
            return True
        error = error.__context__
    return False

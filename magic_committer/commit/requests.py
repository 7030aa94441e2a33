"""Works of several requests that follow from one another; one at a time, or many at once.

To complete an upload, to see what it is, or to remove it needs several requests, each of which
depends on the answer before. Such a work is a generator, `Steps`: it yields a request, is sent the
answer, or is thrown the store's error, and returns its result. It yields a `Pause` where it has to
wait. So its rules are written once, and who asks the store is not its matter: `by_verbs` asks one
request after the other; `each` does many works, at once in the caller's thread where the store can
do that (`magic_committer.stores.base.Many`), otherwise in the pool's threads.

**No abort is sent on an old look.** Between a look and its abort the caller may pause, or a listing
may wait for its page. A work whose last answer came more than `LOOK_SECONDS_MAX` ago sends no
abort: it is thrown `OldLookError`, and begins anew (`anew`).

**Not for threads of the pool**: where a store cannot send many requests at once, `each` waits for
the pool's threads, and if all of them wait, for ever.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

from magic_committer.errors import OptionError, StoreError
from magic_committer.runtime.components import Clock, Runtime
from magic_committer.runtime.threads import (
    SLICE_SECONDS,
    THREADS_MAX,
    Errand,
    Future,
    was_interrupted,
)
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    Many,
    ObjectStore,
    ask_by_verb,
    many_of,
    run,
    transport_of,
)

T = TypeVar("T")
R = TypeVar("R")

QUICK_WORKS = 256
"""Works done in the caller's thread before their time is looked at, where the store says that it is
quick."""
QUICK_SECONDS = 0.01
"""Seconds for a work, up to which threads only hinder each other: a local disk needs a fifth of
that, a network file system more."""

LOOK_SECONDS_MAX = 2.0
"""So old, in seconds, may the last answer of a work be when it sends an abort."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A work goes on after that time."""

    seconds: float


Steps = Generator[Ask | Pause, Any, R]
"""A work: it yields requests and is sent their answers."""


class OldLookError(Exception):
    """The work would abort on an old look. ``aborted``: an earlier abort may have taken effect."""

    def __init__(self, aborted: bool) -> None:
        super().__init__(aborted)
        self.aborted = aborted


def anew(begin: Callable[[bool], Steps[R]]) -> Steps[R]:
    """A work that begins anew if its look is old, with whether an abort may have taken effect."""
    aborted = False
    while True:
        try:
            return (yield from begin(aborted))
        except OldLookError as old:
            aborted = old.aborted


def refuse_threads(store: ObjectStore, commit_threads: int) -> None:
    """Refuse more requests in flight than the process has threads, if the store could send them
    from one thread, but not as it is set up."""
    if commit_threads > THREADS_MAX and transport_of(store) and many_of(store) is None:
        raise OptionError(
            f"commit_threads={commit_threads} is more than the {THREADS_MAX} threads of a process,"
            " and boto3 sends each request in a thread",
            hint=f"Options(commit_threads={THREADS_MAX}); a report's transport says why the"
            " requests go by boto3",
        )


def by_verbs(runtime: Runtime, steps: Steps[R]) -> R:
    """Do a work by the store's verbs. Gives its result; raises what it raises."""
    return run(steps, _asker(runtime))


def _asker(runtime: Runtime) -> Callable[[Ask | Pause], Answer | None]:
    store, sleep = runtime.store, runtime.clock.sleep

    def answer(ask: Ask | Pause) -> Answer | None:
        if type(ask) is Pause:
            sleep(ask.seconds)
            return None
        return ask_by_verb(store, ask)  # type: ignore[arg-type]

    return answer


def each(
    runtime: Runtime, works: Iterable[tuple[T, Steps[R]]], *, in_flight: int | None = None
) -> Generator[tuple[T, R], None, None]:
    """Do many works. Close the generator: it then begins nothing new, and waits for what is in
    flight; after Ctrl-C only briefly. Gives what the caller knows each work by, with its result, in
    no fixed order. Works are collected when there is room, in the caller's thread; what ``works``
    raises comes when the works before have ended."""
    works, in_flight = iter(works), in_flight or runtime.in_flight
    many = many_of(runtime.store)
    if many is not None:
        yield from AtOnce(runtime.clock, many, partial(next, works, None), in_flight).run()
        return

    ask = _asker(runtime)

    def one(work: tuple[T, Steps[R]]) -> R:
        return run(work[1], ask)

    quick = bool(getattr(runtime.store, "quick", False))
    while quick:
        began, count = runtime.clock.monotonic(), 0
        for work in itertools.islice(works, QUICK_WORKS):
            count += 1
            yield work[0], one(work)
        quick = runtime.clock.monotonic() - began <= QUICK_SECONDS * count
        if count < QUICK_WORKS:
            return
    with closing(runtime.pool.each(one, works, in_flight=in_flight)) as outcomes:
        for outcome in outcomes:
            yield outcome.item[0], outcome.unwrap()


class _Work(Generic[T, R]):
    """A work that has begun. ``aborts``: an abort of it was sent, or may have been."""

    __slots__ = ("aborts", "answered_at", "ask", "item", "steps")

    def __init__(self, item: T, steps: Steps[R]) -> None:
        self.item = item
        self.steps = steps
        self.ask: Ask
        self.answered_at: float | None = None
        self.aborts = False


class AtOnce(Generic[T, R]):
    """Works whose requests are sent at once, in the caller's thread. ``new`` gives the next work;
    None: there is none now. It is called when there is room, and after ``look_seconds`` without an
    answer."""

    def __init__(
        self,
        clock: Clock,
        many: Many,
        new: Callable[[], tuple[T, Steps[R]] | None],
        in_flight: int,
        look_seconds: float = SLICE_SECONDS,
    ) -> None:
        self._clock = clock
        self._many = many
        self._new = new
        self._look_seconds = look_seconds
        self._in_flight = max(1, in_flight)
        self._numbers = itertools.count()
        self._ready: deque[_Work[T, R]] = deque()  # works whose next request is not sent yet
        self._paused: list[tuple[float, int, _Work[T, R]]] = []
        self._ended: deque[tuple[T, R]] = deque()
        self._begun = 0  # works that have not ended
        self._broken: Exception | None = None

    def run(self) -> Generator[tuple[T, R], None, None]:
        """Do works until there is none."""
        try:
            while True:
                asked = self._many.ask_each(
                    self._next, in_flight=self._in_flight, look_seconds=self._look_seconds
                )
                with closing(asked) as answers:
                    for work, answer in answers:
                        self._go_on(work, answer)
                        while self._ended:
                            yield self._ended.popleft()
                while self._ended:
                    yield self._ended.popleft()
                if not self._paused:
                    break
                self._clock.sleep(max(0.0, self._paused[0][0] - self._clock.monotonic()))
        finally:  # if it was left early
            self._new, self._ready, self._paused = lambda: None, deque(), []
        if self._broken is not None:
            raise self._broken

    def _next(self) -> tuple[_Work[T, R], Ask] | None:
        """The next request: of a work that goes on, otherwise of a new one."""
        while self._paused and self._paused[0][0] <= self._clock.monotonic():
            self._step(heapq.heappop(self._paused)[2], None)
        while not self._ready:
            if not self._begin():
                return None
        work = self._ready.popleft()
        since = self._clock.monotonic() - (work.answered_at or 0.0)
        if isinstance(work.ask, AbortUpload) and work.answered_at and since > LOOK_SECONDS_MAX:
            work.answered_at = None
            self._step(work, OldLookError(work.aborts))
            return self._next()
        return work, work.ask

    def _begin(self) -> bool:
        """Begin a work. False: there is none, or no room. An error of the source is kept until what
        is in flight was answered."""
        if self._begun >= self._in_flight:
            return False
        try:
            new = self._new()
        except Exception as error:
            new, self._broken, self._new = None, error, lambda: None
        if new is None:
            return False
        self._begun += 1
        self._step(_Work(*new), None)
        return True

    def _go_on(self, work: _Work[T, R], answer: Answer) -> None:
        work.answered_at = self._clock.monotonic()
        if isinstance(work.ask, AbortUpload):
            work.aborts = work.aborts or not isinstance(answer, StoreError) or answer.sent
        self._step(work, answer)

    def _step(self, work: _Work[T, R], answer: Answer | OldLookError | None) -> None:
        """Let a work go on, to its next request, its next pause, or its end."""
        try:
            if isinstance(answer, StoreError | OldLookError):
                ask = work.steps.throw(answer)
            else:
                ask = work.steps.send(answer)
        except StopIteration as end:
            self._begun -= 1
            self._ended.append((work.item, end.value))
            return
        if isinstance(ask, Pause):
            due = self._clock.monotonic() + ask.seconds
            heapq.heappush(self._paused, (due, next(self._numbers), work))
        else:
            work.ask = ask
            self._ready.append(work)


# Pages of a listing -------------------------------------------------------------------------------


P = TypeVar("P")


class Ahead(Generic[P]):
    """The pages of a listing, for one loop in a ``with`` block. From the block's begin on a thread
    of the pool requests them. The block's end gives a request under way up, and nothing more is
    requested, also not by what waits for a thread.

    For callers who read a listing to its end: a store needs as long for a page of 1,000 uploads
    as the caller. A caller that works long on a page would get the next one when it is old. The
    loop raises the listing's `StoreError` after all pages before it."""

    def __init__(
        self, runtime: Runtime, pages: Callable[[], Iterator[P]], *, pages_max: int = 1
    ) -> None:
        self._pool = runtime.pool
        self._list = pages
        self._pages: Iterator[P] | None = None
        self._pages_max = pages_max
        self._errand = Errand()
        self._there: deque[P] = deque()
        self._ended = self._working = False
        self._failure: StoreError | None = None
        self._coming: Future[None]

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Request nothing more. The end of the block does it. Repeatable."""
        if not self._coming.done():
            self._errand.end(0.0)
            if self._working and not was_interrupted():
                self._coming.result()

    def __iter__(self) -> Iterator[P]:
        while not self._ended or self._there:  # in this order: the last page comes before the end
            if not self._there or self._coming.done():
                self._coming.result()
            page = self._there.popleft() if self._there else None
            if not self._ended and self._coming.done():
                self._begin()
            if page is not None:
                yield page
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        self._working = False
        self._coming = self._pool.submit(self._request, self._errand)

    def _request(self) -> None:
        """Request pages until there are enough."""
        self._working = True  # first this, then the look: `close` does it the other way round
        while not self._ended and len(self._there) < self._pages_max:
            try:
                if self._pages is None:
                    self._pages = self._list()
                page = None if self._errand.over else next(self._pages, None)
            except StoreError as error:
                page, self._failure = None, error
            if page is None:
                self._ended = True
            else:
                self._there.append(page)

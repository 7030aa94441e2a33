"""Requests that follow from one another, for many uploads at once.

To see what an upload is, or to remove it, takes several requests, each of which depends on the
answer before (`magic_committer.commit.upload_state`). Such a work is a generator, `Steps`. It
yields a request, is sent the answer, or is thrown the store's error, and returns its result. So its
rules are written once, and two drivers ask for it: `by_verbs` by the store's verbs, and `each`,
where the store can do that, for many works from one thread (`magic_committer.stores.base.Batch`).

**In a batch only plain answers are believed** (`is_plain`): a success that was sent once, and an
exact "there is no such upload", "there is no such object". Parts that are still there after an
abort are not plain: somebody has to wait. After every other answer the work goes on by verbs, in
the pool's threads, where requests are sent again and refusals are known: the same request is asked
once more. Not so if it was an abort: on some stores the abort of a completed upload deletes its
object, and the look before it is old by then. So that work begins anew, with a look if it has one,
and is told whether its abort may have taken effect.

**No abort is sent on an old look.** Between a look and its abort other works may be tried again,
the caller may pause, a listing may wait for its page. A work whose last request was handed out
more than `LOOK_SECONDS_MAX` ago sends no abort: it begins anew, by verbs, where nothing comes in
between.

A batch goes on past failures. It takes no more works when `FAILED_MAX`, or `FAILED_RUN_MAX` in a
row, have failed: the store may be down, and memory has a limit. Then the answers to what is in
flight are awaited, the failures go by verbs, and the next batch begins. If no work has ended
plainly in `VAIN_MAX` such batches, there is no next one: all others go by verbs.
**Not for threads of the pool**: where a batch goes by verbs it waits for the pool's threads, and if
all of them wait, for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from magic_committer._patience import was_interrupted
from magic_committer._runtime import Runtime
from magic_committer.commit.window import Window
from magic_committer.errors import NotFound, StoreError
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    Batch,
    Head,
    ListParts,
    ObjectStore,
    Written,
    ask_by_verb,
    batch_of,
)

T = TypeVar("T")
R = TypeVar("R")

Steps = Generator[Ask, Any, R]
"""A work: it yields requests and is sent their answers."""
Start = Callable[[bool], Steps[R]]
"""Begins a work. True: an abort of an earlier try may have taken effect."""

FAILED_MAX = 256
"""After this many failures a batch takes no more works."""
FAILED_RUN_MAX = 16
"""The same for failures without a work in between that ended plainly."""
VAIN_MAX = 2
"""Batches in a row in which no work ended plainly. One may be a moment in which connections were
reset."""
LOOK_SECONDS_MAX = 2.0
"""So old, in seconds, may the last request of a work be when an abort follows from its answer."""
NO_UPLOAD = "NoSuchUpload"
NO_OBJECT = "NoSuchKey"


def by_verbs(store: ObjectStore, steps: Steps[R], ask: Ask | None = None) -> R:
    """Do a work by the store's verbs. Gives its result; raises what it raises.

    Args:
        store: the store.
        steps: the work.
        ask: the request that it has given last, and that has no answer yet; None: it has not begun.
    """
    try:
        ask = next(steps) if ask is None else ask
        while True:
            try:
                answer = ask_by_verb(store, ask)
            except StoreError as error:
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


def is_plain(ask: Ask, answer: Answer, *, aborted: bool = False) -> bool:
    """Whether an answer of a batch is believed as it is. Pure.

    Args:
        ask, answer: a request and its answer.
        aborted: the request is the proof of an abort.
    """
    if isinstance(answer, Written):
        return answer.attempts == 1
    if not isinstance(answer, StoreError):
        return not (aborted and isinstance(ask, ListParts))
    if not isinstance(answer, NotFound) or answer.status != 404:
        return False
    if isinstance(ask, ListParts):
        return answer.code == NO_UPLOAD
    return isinstance(ask, Head) and answer.code == NO_OBJECT


@dataclass(slots=True, eq=False)
class _Work(Generic[T, R]):
    """A work.

    Attributes:
        steps, ask: it has begun, and this is its next request, or the one that is in flight.
        asked_at: when its last request was handed out; None: there was none.
        aborts: an abort of it was sent, or may have been.
    """

    item: T
    start: Start[R]
    steps: Steps[R] | None = None
    ask: Ask | None = None
    asked_at: float | None = None
    aborts: bool = False


def each(
    runtime: Runtime, works: Iterable[tuple[T, Start[R]]], *, in_flight: int
) -> Generator[tuple[T, R], None, None]:
    """Do many works. Close the generator: it then begins nothing new, and waits for what is in
    flight; after Ctrl-C only briefly.

    Args:
        runtime: the components.
        works: each with what the caller knows it by. Taken when there is room, in the caller's
            thread.
        in_flight: how many requests at once, at most. In a batch they are fewer while the store
            asks for fewer (`Window`); by verbs, no more than the pool has threads.

    Returns:
        What the caller knows each work by, with its result, in no fixed order.

    Raises:
        Exception: what ``works`` raises, when the works that it gave before have ended.
    """
    left: Iterator[_Work[T, R]] = (_Work(item, start) for item, start in works)
    batch = batch_of(runtime.store)
    if batch is not None:
        doing: _Batches[T, R] = _Batches(runtime, batch, left, Window(in_flight))
        yield from doing.run(in_flight)
        if doing.exhausted:
            return
        left = doing.rest()
    yield from _each_by_verbs(runtime, left, in_flight)


def _each_by_verbs(
    runtime: Runtime, works: Iterable[_Work[T, R]], in_flight: int
) -> Generator[tuple[T, R], None, None]:
    def one(work: _Work[T, R]) -> R:
        if work.steps is None or isinstance(work.ask, AbortUpload):  # its look is old
            return by_verbs(runtime.store, work.start(work.aborts))
        return by_verbs(runtime.store, work.steps, work.ask)

    with closing(runtime.pool.each(one, works, in_flight=in_flight)) as outcomes:
        for outcome in outcomes:
            yield outcome.item.item, outcome.unwrap()


class _Batches(Generic[T, R]):
    """Works, done in batches.

    Attributes:
        exhausted: all works were taken, and have ended.
    """

    def __init__(
        self, runtime: Runtime, batch: Batch, works: Iterator[_Work[T, R]], window: Window
    ) -> None:
        self._runtime = runtime
        self._batch = batch
        self._source = works
        self._window = window
        self._ready: deque[_Work[T, R]] = deque()  # works whose next request is not sent yet
        self._doubtful: list[_Work[T, R]] = []
        self._run = 0  # failures since the last work that ended plainly
        self._stopped = self._taken = False
        self._broken: Exception | None = None
        self.exhausted = False

    def run(self, in_flight: int) -> Generator[tuple[T, R], None, None]:
        """Do batch after batch, until all works have ended, or batches were in vain."""
        vain = 0
        while True:
            ended = yield from self._in_batch()
            if self._ready and not self._is_over:
                continue
            vain = vain + 1 if not ended and self._run >= FAILED_RUN_MAX else 0
            doubtful, self._doubtful, self._run = self._doubtful, [], 0
            yield from _each_by_verbs(self._runtime, doubtful, in_flight)
            if (self._taken or self._broken is not None) and not self._ready:
                break
            if vain >= VAIN_MAX:
                return
        if self._broken is not None:
            raise self._broken
        self.exhausted = True

    def rest(self) -> Iterator[_Work[T, R]]:
        """The works that have not ended."""
        yield from chain(self._ready, self._source)
        if self._broken is not None:
            raise self._broken

    @property
    def _is_over(self) -> bool:
        """Whether the batch takes no more works."""
        return len(self._doubtful) >= FAILED_MAX or self._run >= FAILED_RUN_MAX

    def _in_batch(self) -> Generator[tuple[T, R], None, int]:
        """One batch. Gives how many works ended plainly."""
        ended, window = 0, self._window
        answers = self._batch.ask_each(self._asks(), in_flight=lambda: window.size)
        with closing(answers):
            try:
                for work, answer in answers:
                    assert work.ask is not None
                    plain = is_plain(work.ask, answer, aborted=work.aborts)
                    error = answer if isinstance(answer, StoreError) and not plain else None
                    window.answered(error)
                    if isinstance(work.ask, AbortUpload):
                        work.aborts = work.aborts or error is None or error.sent
                    if not plain:
                        self._run += 1
                        self._doubtful.append(work)
                        continue
                    if (end := self._go_on(work, answer)) is not None:
                        self._run = 0
                        ended += 1
                        yield work.item, end.value
            finally:
                self._stopped = True
                if not was_interrupted():
                    for _ in answers:
                        continue
                self._stopped = False
        return ended

    def _go_on(self, work: _Work[T, R], answer: Answer) -> StopIteration | None:
        """Give a work its answer. Gives its end, if this was the last one; not by a ``yield`` where
        it is caught, for there a Ctrl-C would not be seen (`was_interrupted`)."""
        assert work.steps is not None
        try:
            if isinstance(answer, StoreError):
                work.ask = work.steps.throw(answer)
            else:
                work.ask = work.steps.send(answer)
        except StopIteration as end:
            return end
        self._ready.append(work)
        return None

    def _asks(self) -> Iterator[tuple[_Work[T, R], Ask]]:
        """The next request of each work that has one, and then of new works."""
        while not self._stopped:
            work = self._ready.popleft() if self._ready else self._new()
            if work is None:
                return
            assert work.ask is not None
            now = self._runtime.clock.monotonic()
            old = work.asked_at is not None and now - work.asked_at > LOOK_SECONDS_MAX
            if old and isinstance(work.ask, AbortUpload):
                self._doubtful.append(work)
                continue
            work.asked_at = now
            yield work, work.ask

    def _new(self) -> _Work[T, R] | None:
        """Begin a work. None: there is no more, or no more are taken. An error of the source is
        kept until what is in flight was answered."""
        if self._is_over or self._taken or self._broken is not None:
            return None
        try:
            work = next(self._source, None)
        except Exception as error:
            self._broken = error
            return None
        if work is None:
            self._taken = True
            return None
        work.steps = work.start(False)
        work.ask = next(work.steps)
        return work

"""Completing all uploads of a decided job: many from one thread, where the store can do that.

Two ways lead to the same end. **By verbs**: `complete.complete` in the pool's threads, which sends
again, looks at what became of an upload, and settles conflicts. **In a batch**
(`magic_committer.stores.base.Batch`): one thread sends each Complete once, for a fraction of the
work. The batch decides nothing but this: a plain 200 to a Complete that was sent once is done, as
it is for `complete`. All other answers go by verbs, and a 200 is then looked after (``distrust``),
because the upload was sent before.

Rounds: a batch goes on past failures. It takes no more uploads

* when a conditional Complete met a conflict: that may undo the whole job, so it is settled at once,
  before anything else is sent;
* when `FAILED_MAX` uploads, or `FAILED_RUN_MAX` in a row, have failed: the store may be down, and
  memory has a limit.

Then the answers to what is in flight are awaited, the failures go by verbs, and the next round
begins. **Nothing in flight is given up**, except after Ctrl-C: some stores lose an upload whose
client hangs up during Complete (docs/stores.md).

Where every 200 must be looked after, there is no batch: the look is a second request, and its
answer may say that the first one is to be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from magic_committer._patience import was_interrupted
from magic_committer._pool import THREADS_MAX
from magic_committer._runtime import Runtime
from magic_committer.commit.complete import Completion, as_request, complete, conflicts
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.window import Window
from magic_committer.errors import OptionError, StoreError
from magic_committer.hadoop import statistics as stats
from magic_committer.hadoop.statistics import Statistics
from magic_committer.stores.base import Batch, CompleteUpload, ObjectStore, Written, batch_of

FAILED_MAX = 256
"""After this many failures a batch takes no more uploads."""
FAILED_RUN_MAX = 16
"""The same for failures without a success in between."""

Completed = tuple[ReadyUpload, Completion, StoreError | None]
"""An upload, what became of it, and the reason, unless it is done."""


def _never() -> bool:
    return False


def refuse_threads(store: ObjectStore, commit_threads: int) -> None:
    """Refuse more requests in flight than the process has threads, if the store cannot send them
    from one thread.

    Raises:
        OptionError: it cannot.
    """
    if commit_threads > THREADS_MAX and batch_of(store) is None:
        raise OptionError(
            f"commit_threads={commit_threads} is more than the {THREADS_MAX} threads of a process,"
            " and this store cannot send many requests from one thread as it is set up",
            hint=f"Options(commit_threads={THREADS_MAX}), or install the fast transport:"
            " pip install 'magic-committer[fast]'",
        )


@dataclass(slots=True)
class _Round:
    """One batch: what it takes from the uploads, and what has failed."""

    source: Iterator[ReadyUpload]
    conflicting: list[tuple[ReadyUpload, StoreError | None]] = field(default_factory=list)
    doubtful: list[tuple[ReadyUpload, StoreError | None]] = field(default_factory=list)
    """Uploads that were not plainly completed, with the store's error; None: it says that it sent
    the request more than once."""
    run: int = 0
    """Failures since the last success."""
    stopped: bool = False
    exhausted: bool = False
    broken: Exception | None = None
    """The uploads could not be read."""

    @property
    def is_over(self) -> bool:
        """Whether it takes no more uploads."""
        return (
            self.stopped
            or bool(self.conflicting)
            or len(self.doubtful) >= FAILED_MAX
            or self.run >= FAILED_RUN_MAX
        )

    def take(self) -> Iterator[ReadyUpload]:
        """Uploads, as long as it is not over. An error of theirs is kept until what is in flight
        was answered."""
        while not self.is_over:
            try:
                upload = next(self.source)
            except StopIteration:
                self.exhausted = True
                return
            except Exception as error:
                self.broken = error
                return
            yield upload


class Completing:
    """Completes uploads, each as `complete` does.

    Args:
        runtime: the components.
        if_none_match: for mode ``fail``: never replace an object.
        distrust: look at the object after every 200.
        in_flight: how many requests at once, at most. In a batch they are fewer while the store
            asks for fewer (`Window`); by verbs, no more than the pool has threads.
        statistics: takes the durations.
        gives_up: whether to leave the rest for the next try. Asked before an upload is sent again.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        if_none_match: bool,
        distrust: bool,
        in_flight: int,
        statistics: Statistics,
        gives_up: Callable[[], bool] = _never,
    ) -> None:
        self._runtime = runtime
        self._if_none_match = if_none_match
        self._distrust = distrust
        self._in_flight = in_flight
        self._statistics = statistics
        self._gives_up = gives_up
        self._window = Window(in_flight)

    def each(self, uploads: Iterable[ReadyUpload]) -> Generator[Completed, None, None]:
        """Complete every upload. Close the generator: it then sends nothing new, and waits for what
        is in flight; after Ctrl-C only briefly.

        Returns:
            Each upload with what became of it, in no fixed order.
        """
        batch = None if self._distrust else batch_of(self._runtime.store)
        if batch is None:
            yield from self._by_verbs(uploads, self._in_flight, distrust=self._distrust)
            return
        source = iter(uploads)
        while True:
            now = _Round(source)
            yield from self._in_batch(batch, now)
            yield from self._again(now.conflicting, 1)
            yield from self._again(now.doubtful, self._in_flight)
            if now.broken is not None:
                raise now.broken
            if now.exhausted:
                return

    def _in_batch(self, batch: Batch, now: _Round) -> Generator[Completed, None, None]:
        clock, window = self._runtime.clock, self._window

        def asks() -> Iterator[tuple[tuple[ReadyUpload, float], CompleteUpload]]:
            for upload in now.take():
                yield (upload, clock.monotonic()), as_request(upload, self._if_none_match)

        with closing(batch.ask_each(asks(), in_flight=lambda: window.size)) as answers:
            try:
                for (upload, began), answer in answers:
                    error = answer if isinstance(answer, StoreError) else None
                    window.answered(error)
                    if isinstance(answer, Written) and answer.attempts == 1:
                        self._statistics.lasted(stats.MATERIALIZE_FILE, began, clock)
                        now.run = 0
                        yield upload, Completion.DONE, None
                        continue
                    now.run += 1
                    meets = error is not None and conflicts(error, self._if_none_match)
                    (now.conflicting if meets else now.doubtful).append((upload, error))
            finally:
                now.stopped = True
                if not was_interrupted():
                    for _ in answers:
                        continue

    def _again(
        self, failed: list[tuple[ReadyUpload, StoreError | None]], in_flight: int
    ) -> Generator[Completed, None, None]:
        """Send what the batch could not complete again, by verbs."""
        left: list[Completed] = []

        def trying() -> Iterator[ReadyUpload]:
            for upload, error in failed:
                if self._gives_up():
                    left.append((upload, Completion.UNFINISHED, error))
                else:
                    yield upload

        yield from self._by_verbs(trying(), in_flight, distrust=True)
        yield from left

    def _by_verbs(
        self, uploads: Iterable[ReadyUpload], in_flight: int, *, distrust: bool
    ) -> Generator[Completed, None, None]:
        def one(upload: ReadyUpload) -> tuple[Completion, StoreError | None]:
            with self._statistics.timed(stats.MATERIALIZE_FILE, self._runtime.clock):
                return complete(
                    self._runtime, upload, if_none_match=self._if_none_match, distrust=distrust
                )

        with closing(self._runtime.pool.each(one, uploads, in_flight=in_flight)) as outcomes:
            for outcome in outcomes:
                completion, error = outcome.unwrap()
                yield outcome.item, completion, error

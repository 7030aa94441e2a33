"""`run`: a function for each item, on somebody's executor. Invariants, beside those of `items`:

* Each try of an item is an attempt in the process that the executor chose.
* Futures are heard by their callbacks, which put a try into a queue and do nothing else. So any
  executor does whose futures have callbacks. Every wait is a wait for that queue, ends after a
  second at the latest, and hears Ctrl-C.
* A worker that was killed breaks a process pool. Nobody can tell whose fault it was: each item that
  was in flight has failed once more. With an executor of the caller, which is left as it is, the
  call then ends; where the caller has passed a function that makes one, another one goes on.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from queue import SimpleQueue
from statistics import median
from typing import Any, TypeVar, Unpack, cast

import tenacity
from tenacity import BaseRetrying

from magic_committer.api import start
from magic_committer.engines.items import (
    AcceptResult,
    ItemWriter,
    Returned,
    RunReport,
    commit_items,
    monotonic,
    refuse_lazy_function,
    seconds,
    whole_number,
)
from magic_committer.errors import IncompleteJob, JobNotRunning, OptionError, TaskFailed, WrongType
from magic_committer.errors.messages import name_some
from magic_committer.job import Task
from magic_committer.options import Mode, Options, S3Options, S3Place, SparkMode, shown
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Progress, ProgressFunction, no_progress
from magic_committer.runtime.threads import LOOK_SECONDS, taken

Item = TypeVar("Item")

DOUBLE_AFTER = 3
"""Tries that must have ended well before one is called slow."""
DOUBLE_SECONDS_MIN = 0.5
"""Seconds before which no try is called slow."""
STOP_SECONDS = 1.0
"""Seconds for tries that run when a run fails. Ctrl-C reaches local workers, too: they then have
aborted their uploads themselves. Tries that take longer are left alone, and abort theirs later."""


@dataclass(eq=False, slots=True)
class OpenItem:
    """An item, by its place in the iterable: what the policy knows of it (``state``), how many
    tries have failed and are in flight, whether one was doubled, and one has ended well."""

    number: int
    item: Any
    state: tenacity.RetryCallState
    failures: int = 0
    flying: int = 0
    doubled: bool = False
    accepted: bool = False


@dataclass(eq=False, slots=True)
class Try:
    """One try of an item, in flight. Its future and executor are the caller's."""

    of: OpenItem
    future: Any = None
    executor: Any = None


@dataclass(eq=False)
class Tries:
    """Which item is tried next, which try counts, and when an item is given up. Pure, but for the
    caller's iterable and policy; time is an argument. Invariants:

    * **One try of each item is accepted: the first that ends well.**
    * No item is passed over: at the end each has an accepted try, or one is given up.
    * At most ``in_flight`` tries are in flight, and as many items are known: an item is taken from
      the iterable only when there is room. So items may be a generator of millions.
    * An item has at most ``tries_max`` failed tries, whatever the policy says.
    * Nobody says when an executor begins a try. So all that are in flight are slow when for
      ``slow`` times the median (None: never) none has ended, and none was handed over (``moved``):
      what waits in a queue is then no longer behind another. A try is doubled only when no item is
      left to begin, at most once for each item. A wrong guess costs one run, and nothing else.

    ``taken`` counts the items that were taken from the iterable, ``accepted`` those that are done,
    ``begun`` the tries.
    """

    items: Iterable[Any]
    in_flight: int
    tries_max: int
    policy: BaseRetrying
    slow: float | None
    taken: int = 0
    accepted: int = 0
    begun: int = 0
    moved: float = 0.0
    flying: list[Try] = field(default_factory=list)
    _due: list[tuple[float, int, OpenItem]] = field(default_factory=list)
    _exhausted: bool = False
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def __post_init__(self) -> None:
        self._source = iter(self.items)
        self.policy = self.policy.copy()
        self.policy.begin()

    @property
    def done(self) -> bool:
        """Whether each item has an accepted try."""
        return self._exhausted and self.accepted == self.taken

    def next(self, now: float) -> Try | None:
        """What to hand to the executor now; None: nothing, for the present."""
        if len(self.flying) >= self.in_flight:
            return None
        if self._due and self._due[0][0] <= now:
            self.moved = now
            return self._begin(heappop(self._due)[2])
        if not self._exhausted and len(self.flying) + len(self._due) < self.in_flight:
            for item in self._source:
                self.moved = now
                self.taken += 1
                state = tenacity.RetryCallState(self.policy, None, (item,), {})
                return self._begin(OpenItem(self.taken - 1, item, state))
            self._exhausted = True
        # No room for items, but what waits for its pause: nothing is doubled now.
        if not self._due and now - self.moved > self._slow_seconds():
            for one in self.flying:
                if one.of.flying == 1 and not one.of.doubled and not one.of.accepted:
                    one.of.doubled = True
                    return self._begin(one.of)
        return None

    def _begin(self, item: OpenItem) -> Try:
        self.begun += 1
        item.flying += 1
        self.flying.append(Try(item))
        return self.flying[-1]

    def _slow_seconds(self) -> float:
        if self.slow is None or len(self._durations) < DOUBLE_AFTER:
            return float("inf")
        return max(DOUBLE_SECONDS_MIN, self.slow * median(self._durations))

    def wait_seconds(self, now: float, longest: float) -> float:
        """For how long there is nothing to hand out if no try ends, ``longest`` at most."""
        until = now + longest
        if self._due:
            until = min(until, self._due[0][0])
        elif len(self.flying) < self.in_flight and not all(one.of.doubled for one in self.flying):
            until = min(until, self.moved + self._slow_seconds())
        return max(0.0, until - now)

    def ended_well(self, one: Try, seconds: float, now: float) -> bool:
        """Note that a try has ended well. Whether it counts: its twin may have been faster."""
        self._end(one, now)
        self._durations.append(seconds)
        if one.of.accepted:
            return False
        one.of.accepted = True
        self.accepted += 1
        return True

    def ended_badly(self, one: Try, error: BaseException, now: float, *, ask: bool) -> bool:
        """Note that a try has failed. Whether its item goes on: it is tried again, another try of
        it is in flight, or it is accepted already. Without ``ask`` the failure says nothing about
        the item: the policy is not asked, it is tried again at once, as often as it may fail."""
        self._end(one, now)
        item = one.of
        if item.accepted:
            return True
        item.failures += 1
        if item.flying:
            return True
        if item.failures >= self.tries_max:
            return False
        seconds = self._pause(item, error) if ask else 0.0
        if seconds is None:
            return False
        heappush(self._due, (now + seconds, item.number, item))
        return True

    def _end(self, one: Try, now: float) -> None:
        self.moved = now
        self.flying.remove(one)
        one.of.flying -= 1

    def _pause(self, item: OpenItem, error: BaseException) -> float | None:
        """After how many seconds the policy wants another try; None: it wants none."""
        item.state.set_exception((type(error), error, error.__traceback__))
        try:
            said = self.policy.iter(item.state)
        except BaseException as raised:
            if raised is error or isinstance(raised, tenacity.RetryError):
                return None
            raise
        if not isinstance(said, tenacity.DoSleep):
            return None  # what a `retry_error_callback` gave
        item.state.prepare_for_next_attempt()
        return float(said)


def run(
    dest: str,
    fn: Callable[[Task, Item], Returned],
    items: Iterable[Item],
    *,
    executor: Executor | Callable[[], Executor],
    in_flight: int = 64,
    tries_max: int = 3,
    retry: BaseRetrying | None = None,
    speculate: float | None = None,
    quiet_seconds_max: float = 24 * 3600.0,
    mode: Mode | SparkMode = "append",
    committer: str | None = None,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> RunReport[Returned]:
    r"""Call a function for each item on an executor, each as a task of one job, and commit: the
    files of all items appear, or none::

        >>> from concurrent.futures import ThreadPoolExecutor
        >>> def write_day(task, day):
        ...     with task.open(f"day={day}/part.csv", "w", unique=True) as file:
        ...         return file.write("1,2,3\n")
        >>> report = mc.run(
        ...     "s3://bucket/table", write_day, ["mon", "tue"], executor=ThreadPoolExecutor
        ... )
        >>> report.outcome, report.files, report.returned
        ('committed', 2, (6, 6))

    Threads, processes (fork, spawn and forkserver), loky, ``client.get_executor()`` of Dask: any
    `concurrent.futures.Executor`. To processes ``fn`` and the items are pickled, so ``fn`` stands
    at the top of a module. Credentials in ``s3`` do not travel; there the environment, a profile or
    a role supplies them. Repeatable: each call is another job. After a ``kill -9`` of this process
    nothing is visible; `recover` and `cleanup` end the job.

    Args:
        dest: as for `start`. A directory of a disk (``file:///…``) must be there for all workers.
        fn: gets a `Task` and an item, opens files with ``task.open(name, unique=True)``, no name in
            two items, and returns what the report shall hold. If it raises, the item is tried
            again. ``task.task_id`` is the item's number, from 0 on.
        items: the items, also a generator. Each is one task. They are taken as there is room.
        executor: an executor, which stays as it is; or a function that makes one (a class, too),
            which is shut down at the end, and replaced when it breaks because a worker was killed.
        in_flight: tries that are handed to the executor at once, 64 by default. Give at least the
            number of workers, on a large cluster two for each.
        tries_max: failed tries of an item after which the call gives up, 3 by default.
        retry: a policy of tenacity, ``tenacity.Retrying(wait=…, retry=…, stop=…)``, which says
            which errors are tried again, and when. None (default): every error, after 0.5 s, then
            twice as long each time, 30 s at most. ``tries_max`` holds in any case.
        speculate: when no item is left to begin, and no try ends for this many times the median,
            those in flight are tried a second time; the first to end counts. 3.0 is usual. None
            (default): never.
        quiet_seconds_max: the call gives up if no try ends for this long. 24 h by default.
        mode, committer, mark_success, s3, options, place: as for `start`.
        progress: as for `start`; also called for each item that is done (phase ``"run"``).

    Returns:
        What became of the job, with what ``fn`` returned, 64 MiB of it at most, pickled.

    Raises:
        WrongType, OptionError: an argument cannot be used, or ``fn`` is a generator or a coroutine.
            Nothing was started.
        TaskFailed: an item has failed finally, and the error of ``fn`` is the ``__cause__``; or the
            executor broke, and cannot be replaced; or no try has ended for so long; or what ``fn``
            returned is too large. The job is aborted.
        IncompleteJob: there is no item. The job is aborted.
        CommitIncomplete: as `Job.commit`. Its ``report``, if it has one, has what ``fn`` returned.

        What ``items`` and ``executor`` raise. The job is aborted.

        Otherwise as `start` and `Job.commit`. Tries that still run when the call raises end by
        themselves: they publish nothing, and abort their uploads when they commit.
    """
    refuse_lazy_function(fn)
    given = _is_executor(executor) and not isinstance(executor, type)
    if not (given or callable(executor)):
        raise _no_executor(executor)
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise WrongType(f"items is a list of items, not {shown(items)}", hint="Pass [item]")
    whole_number("in_flight", in_flight)
    whole_number("tries_max", tries_max)
    if speculate is not None and seconds("speculate", speculate) < 1:
        raise OptionError(f"speculate={speculate}: it is 1 or more, times the median of all tries")
    if retry is None:
        retry = tenacity.Retrying(wait=tenacity.wait_exponential(multiplier=0.5, max=30))
    if not isinstance(retry, tenacity.Retrying):
        raise WrongType(
            f"retry is a tenacity.Retrying, not {shown(retry)}",
            hint="Pass retry=tenacity.Retrying(wait=tenacity.wait_fixed(5))",
        )
    quiet = seconds("quiet_seconds_max", quiet_seconds_max)
    tries = Tries(items, in_flight, tries_max, retry, speculate)
    total = len(items) if isinstance(items, Sized) else None
    report = wiring.harmless(progress)
    make: Any = (lambda: executor) if given else executor
    engine = Executors(
        make, not given, tries, quiet, lambda done: report(Progress("run", done, total, "items"))
    )
    try:
        job = start(
            dest, mode=mode, committer=committer, accept="results", track="memory",
            mark_success=mark_success, s3=s3, options=options, progress=progress, **place,
        )  # fmt: skip
        done = commit_items(engine.run, ItemWriter(job, fn), tries=lambda: tries.begun)
        return cast(RunReport[Returned], done)
    finally:
        engine.close(wait=not tries.flying)


def _is_executor(given: object) -> bool:
    """Whether it can be worked with: Dask's executor only looks like one."""
    return callable(getattr(given, "submit", None))


def _no_executor(given: object) -> WrongType:
    return WrongType(
        f"executor is an Executor or a function that makes one, not {shown(given)}",
        hint="Pass executor=lambda: concurrent.futures.ProcessPoolExecutor(8)",
    )


@dataclass(eq=False)
class Executors:
    """The engine that executors of `concurrent.futures` are. ``make`` gives one; unless it is
    ``ours``, it stays as it is. ``tell`` gets the number of items that are done."""

    make: Callable[[], Executor]
    ours: bool
    tries: Tries
    quiet: float
    tell: Callable[[int], None]
    executor: Executor | None = None
    _ended: SimpleQueue[Try] = field(default_factory=SimpleQueue)

    def run(self, work: ItemWriter, accept: AcceptResult) -> int:
        """Run all items. After an error nothing runs that could be stopped."""
        self._job_id = work.job.id
        try:
            while not self._begin(work):
                wait = max(0.001, self.tries.wait_seconds(monotonic(), LOOK_SECONDS))
                if (one := taken(self._ended, wait)) is not None:
                    self._hear(one, accept)
                elif self.tries.flying and monotonic() - self.tries.moved > self.quiet:
                    there = sorted({one.of.number for one in self.tries.flying})
                    raise TaskFailed(
                        f"no try has ended for {self.quiet:,.0f} s; in flight: items"
                        f" {name_some([*map(str, there)])}",
                        job_id=self._job_id,
                        hint="If they may take longer, give quiet_seconds_max",
                    )
            if not self.tries.taken:
                raise IncompleteJob(
                    "there is no item to run: a job without tasks would publish nothing, or empty"
                    " what it replaces",
                    job_id=self._job_id,
                    hint="Check the items; if none is right, do not call run()",
                )
        except BaseException:
            self._stop(STOP_SECONDS)
            raise
        self._stop(0.0)  # the slower tries of items that are done
        return self.tries.taken

    def close(self, *, wait: bool) -> None:
        """Shut down what was made here. ``wait``: nothing runs in it any more."""
        if self.ours and self.executor is not None:
            executor, self.executor = self.executor, None
            executor.shutdown(wait=wait)  # loky's knows no `cancel_futures`; nothing is left

    def _begin(self, work: ItemWriter) -> bool:
        """Hand out what there is room for. Whether all is done."""
        while (one := self.tries.next(monotonic())) is not None:
            try:
                if self.executor is None:
                    if not _is_executor(made := self.make()):
                        raise _no_executor(made)
                    self.executor = made
                one.executor = self.executor
                one.future = self.executor.submit(work, one.of.number, one.of.item)
            except BrokenExecutor as broken:
                self._broke(one, broken)
            else:
                one.future.add_done_callback(lambda _, one=one: self._ended.put(one))
        return self.tries.done

    def _hear(self, one: Try, accept: AcceptResult) -> None:
        future, one.future = one.future, None
        try:
            error = future.exception()
        except BaseException as cancelled:  # by somebody else: `CancelledError`
            error = cancelled
        if isinstance(error, BrokenExecutor):
            self._broke(one, error)
        elif error is not None:
            self._failed(one, error)
        elif self.tries.ended_well(one, future.result().seconds, monotonic()):
            for other in self.tries.flying:
                if other.of is one.of:
                    other.future.cancel()
            accept(one.of.number, future.result())
            self.tell(self.tries.accepted)

    def _failed(self, one: Try, error: BaseException) -> None:
        item = one.of
        ended = isinstance(error, JobNotRunning) and error.job_id == self._job_id
        if isinstance(error, KeyboardInterrupt) or (ended and not item.accepted):
            # Ctrl-C reaches the workers of a terminal, perhaps before us; or the job was ended.
            raise error
        unsendable = isinstance(error, pickle.PicklingError) or (
            isinstance(error, AttributeError | TypeError) and "pickle" in str(error)
        )
        goes_on = self.tries.ended_badly(one, error, monotonic(), ask=not ended)
        if item.accepted or (goes_on and isinstance(error, Exception) and not unsendable):
            return
        times = "once" if item.failures == 1 else f"{item.failures} times"
        raise TaskFailed(
            f"item {item.number} ({shown(item.item)}) failed {times}:"
            f" {type(error).__name__}: {error}",
            job_id=self._job_id,
            hint="Functions and items are pickled on their way to a process: write fn at the top of"
            " a module, not inside another function"
            if unsendable
            else "Nothing was published. Repair the cause and call run() again",
        ) from error

    def _broke(self, one: Try, broken: BrokenExecutor) -> None:
        """The executor broke while a try was in flight: one of its workers was killed."""
        if one.executor is self.executor:  # each call of the broken one says so
            self.close(wait=False)
        item = one.of
        goes_on = self.tries.ended_badly(one, broken, monotonic(), ask=False)
        if (goes_on and self.ours) or (item.accepted and self.tries.done):
            return
        why = f"item {item.number} ({shown(item.item)}) was in flight {item.failures} times when"
        why += " a worker was killed or could not start"
        hint = "Look for the reason: too little memory, a crash in a library"
        if not self.ours:
            why = "the executor broke: a worker was killed or could not start"
            hint += "; or pass a function that makes executors, executor=lambda:"
            hint += " ProcessPoolExecutor(8), and a new one goes on"
        why = f"{why}: {type(broken).__name__}: {broken}".rstrip(": ")
        raise TaskFailed(why, job_id=self._job_id, hint=hint) from broken

    def _stop(self, most: float) -> None:
        """Cancel what has not begun, and wait for what runs, ``most`` seconds."""
        running = [one.future for one in self.tries.flying if one.future is not None]
        for future in running:
            future.cancel()
        until = monotonic() + most
        while running and (left := until - monotonic()) > 0:
            if taken(self._ended, left) is None:
                return
            running.pop()

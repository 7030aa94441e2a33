"""`run`: a function for each item, on somebody's executor: an engine of `items`.

Invariants, beside those of `items`:

* Each item is a task of one job (``accept="results"``, ``track="memory"``), each try of it an
  attempt in the process that the executor chose. The first result of an item counts.
* Futures are heard by their callbacks, which put a number into a queue and do nothing else. So any
  executor does whose futures have callbacks. Every wait is a wait for that queue, ends after a
  second at the latest, and hears Ctrl-C.
* A worker that was killed breaks a process pool. Nobody can tell whose fault it was: each item that
  was in flight has failed once more. With an executor of the caller, which is left as it is, the
  call then ends; where the caller has told how to make one, another one goes on.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar, Unpack, cast

import tenacity
from tenacity import BaseRetrying

from magic_committer import _wiring
from magic_committer._arguments import shown
from magic_committer._modes import SparkMode
from magic_committer._pool import LOOK_SECONDS, taken
from magic_committer._quantities import name_some
from magic_committer._runtime import Progress, ProgressFunction, SystemClock, no_progress
from magic_committer.api import start
from magic_committer.engines.arguments import seconds, whole_number
from magic_committer.engines.items import (
    AcceptResult,
    ItemWriter,
    RunReport,
    commit_items,
    refuse_lazy_function,
)
from magic_committer.engines.tries import Tries, Try
from magic_committer.errors import IncompleteJob, JobNotRunning, OptionError, TaskFailed, WrongType
from magic_committer.job import Task
from magic_committer.options import Mode, Options, S3Options, S3Place

monotonic = SystemClock().monotonic

Item = TypeVar("Item")
Returned = TypeVar("Returned")

STOP_SECONDS = 1.0
"""Seconds for tries that run when a run fails. Ctrl-C reaches local workers, too: they then have
aborted their uploads themselves. Tries that take longer are left alone, and abort theirs later."""


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
    a role supplies them.

    Repeatable: each call is another job. After a ``kill -9`` of this process nothing is visible;
    `recover` and `cleanup` end the job.

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
        quiet_seconds_max: the call gives up if no try ends for so many seconds. 24 h by default.
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
        CommitIncomplete: the job is committed, but not all files are visible yet. The error says
            how to finish it. Its ``report``, if it has one, holds what ``fn`` returned.

        What ``items`` and ``executor`` raise. The job is aborted.

        Otherwise as `start` and `Job.commit`. Tries that still run when the call raises end by
        themselves: they publish nothing, and abort their uploads when they commit.
    """
    refuse_lazy_function(fn)
    # Dask's executor only looks like one.
    given = callable(getattr(executor, "submit", None)) and not isinstance(executor, type)
    if not (given or callable(executor)):
        raise WrongType(
            f"executor takes an executor, not {shown(executor)}",
            hint="Pass executor=lambda: concurrent.futures.ProcessPoolExecutor(8)",
        )
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise WrongType(f"items is a list of items, not {shown(items)}", hint="Pass [item]")
    whole_number("in_flight", in_flight)
    whole_number("tries_max", tries_max)
    if speculate is not None and seconds("speculate", speculate) < 1:
        raise OptionError(f"speculate={speculate}: it is 1 or more, times the median of all tries")
    if retry is None:
        wait = tenacity.wait_exponential(multiplier=0.5, max=30)
        retry = tenacity.Retrying(wait=wait, stop=tenacity.stop_never)
    if not isinstance(retry, tenacity.Retrying):
        raise WrongType(
            f"retry takes a tenacity.Retrying, not {shown(retry)}",
            hint="Pass retry=tenacity.Retrying(wait=tenacity.wait_fixed(5))",
        )
    quiet = seconds("quiet_seconds_max", quiet_seconds_max)
    tries = Tries(items, in_flight, tries_max, retry, speculate)
    total = len(items) if isinstance(items, Sized) else None
    report = _wiring.harmless(progress)
    maker: Any = None if given else executor
    there: Any = executor if given else None
    engine = Executors(
        maker, there, tries, quiet, lambda done: report(Progress("run", done, total, "items"))
    )
    try:
        job = start(
            dest, mode=mode, committer=committer, accept="results", track="memory",
            mark_success=mark_success, s3=s3, options=options, progress=progress, **place,
        )  # fmt: skip
        done = commit_items(job, engine.run, ItemWriter(job, fn), tries=lambda: tries.begun)
        return cast(RunReport[Returned], done)
    finally:
        engine.close(wait=not tries.flying)


@dataclass(eq=False)
class Executors:
    """The engine that executors of `concurrent.futures` are. ``make`` makes one, also when one
    broke; None: there is only ``executor``. ``tell`` gets the number of items that are done."""

    make: Callable[[], Executor] | None
    executor: Executor | None
    tries: Tries
    quiet: float
    tell: Callable[[int], None]
    _ended: SimpleQueue[Try] = field(default_factory=SimpleQueue)

    def run(self, work: ItemWriter, accept: AcceptResult) -> int:
        """Run all items. After an error nothing runs that could be stopped."""
        self._job_id = work.job.id
        try:
            while True:
                self._begin(work)
                if self.tries.done:
                    break
                wait = max(0.001, self.tries.wait_seconds(monotonic(), LOOK_SECONDS))
                one = taken(self._ended, wait)
                if one is not None:
                    self._hear(one, accept)
                elif self.tries.flying and monotonic() - self.tries.moved > self.quiet:
                    there = map(str, sorted({one.of.number for one in self.tries.flying}))
                    raise TaskFailed(
                        f"no try has ended for {self.quiet:,.0f} s; in flight: items"
                        f" {name_some(list(there))}",
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
        if self.make is not None and self.executor is not None:
            executor, self.executor = self.executor, None
            executor.shutdown(wait=wait)  # loky's knows no `cancel_futures`; nothing is left

    def _begin(self, work: ItemWriter) -> None:
        while (one := self.tries.next(monotonic())) is not None:
            try:
                if self.executor is None:
                    assert self.make is not None
                    self.executor = self.make()
                one.executor = self.executor
                one.future = self.executor.submit(work, one.of.number, one.of.item)
            except BrokenExecutor as broken:
                self._broke(one, broken)
            else:
                one.future.add_done_callback(lambda _, one=one: self._ended.put(one))

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
        if (goes_on and self.make is not None) or (item.accepted and self.tries.done):
            return
        why = f"item {item.number} ({shown(item.item)}) was in flight {item.failures} times when"
        why += " a worker was killed or could not start"
        hint = "Look for the reason: too little memory, a crash in a library"
        if self.make is None:
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

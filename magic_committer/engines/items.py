"""We call the engine: a function for each item, each as a task of one job, then one commit.

Executors, Dask, Spark's RDDs and DataFrames are engines, each an adapter of one function, an
`Engine`. Invariants, whichever it is:

* **What an attempt wrote counts if the engine gave its result**, and one result of an item counts.
  So a worker may be killed, an item tried twice, and a lost try may end whenever it likes: it can
  publish nothing, and finds out at its own commit that the job is over.
* The caller's process drives the job: it gives signs of life, commits exactly what was accepted
  when each item has a result, and aborts if anything else ends the call, Ctrl-C too
  (`Job.__enter__`). A decided job is never aborted.
* What the function returned travels with the attempt's result. It is pickled before the attempt
  commits: a value that cannot be sent, or is too large, fails the try. It is read, and all of it
  bounded, before the job commits: nobody gets an error about it for a committed job.
* A process that has heard Ctrl-C begins no other try of that job. A process pool holds calls in
  advance that nobody can cancel any more; it would run them, each to its end.
* An error that could not be read at the other end is replaced by one that can: a process pool
  breaks when it cannot unpickle an error.
"""

from __future__ import annotations

import inspect
import pickle
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from magic_committer.errors import CommitIncomplete, JobReport, OptionError, TaskFailed, WrongType
from magic_committer.job import Job, Task
from magic_committer.options import shown
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import TaskCommit
from magic_committer.runtime.components import SystemClock

monotonic = SystemClock().monotonic

Returned = TypeVar("Returned")
Write = Callable[[Task, Any], object]
"""A function that writes an item into files of a task."""

RETURNED_BYTES_MAX = 64 * 1024**2
"""Bytes of all that the function returned, pickled: it passes through the caller's process."""

_interrupted: deque[str] = deque(maxlen=100)
"""UUIDs of jobs in whose tries this process has heard Ctrl-C."""


@dataclass(frozen=True, slots=True)
class RunReport(JobReport, Generic[Returned]):
    """What became of a job of `run`, and what its function returned.

    Attributes:
        returned: what the function returned for each item, in the order of the items. Only accepted
            tries count. Empty if nothing was done (``skipped``).
        tries: how many tries there were: the items, those that failed, and those that were doubled.
            0: the engine does not tell.
    """

    returned: tuple[Returned, ...] = ()
    tries: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain JSON values, without ``returned``, which may be anything."""
        values = JobReport.to_dict(self)
        del values["returned"]
        return values


class TryResult(NamedTuple):
    """What a try sends back: ``returned``, pickled, and how many ``seconds`` it took."""

    result: TaskCommit
    returned: bytes = b""
    seconds: float = 0.0


AcceptResult = Callable[[int, TryResult], None]
"""Accepts the one result of an item that counts; raises when all that was returned is too large."""
Engine = Callable[["ItemWriter", AcceptResult], int | Iterable[str]]
"""Calls ``work(number, item)`` for each item, wherever, and accepts one result of each. Gives the
tasks that there must be: their ids, or how many."""


def commit_items(
    engine: Engine,
    work: ItemWriter,
    *,
    batch: StreamBatch | None = None,
    tries: Callable[[], int] = lambda: 0,
) -> JobReport:
    """Run a job that was just started: each item, then the commit, or an abort. The report, that of
    `CommitIncomplete` too, is a `RunReport`, unless what the function returns is dropped."""
    results: list[TaskCommit] = []
    returned: dict[int, object] = {}
    size = 0

    def accept(number: int, one: TryResult) -> None:
        nonlocal size
        size += len(one.returned)
        if size > RETURNED_BYTES_MAX:
            raise too_large(work.caller, f"{size:,} bytes")
        returned[number] = pickle.loads(one.returned) if one.returned else None
        results.append(one.result)

    def reported(report: JobReport) -> JobReport:
        if work.bytes_max == 0:
            return report
        return with_returned(report, (returned[number] for number in sorted(returned)), tries())

    try:
        with work.job as job:
            expect = engine(work, accept)
            report = job.commit(results, expect=expect, batch=batch)
    except CommitIncomplete as error:
        if error.report is not None:
            error.report = reported(error.report)
        raise
    return reported(report)


def with_returned(
    report: JobReport, returned: Iterable[Any] = (), tries: int = 0
) -> RunReport[Any]:
    """The report of a job, with what the function returned."""
    told = {field.name: getattr(report, field.name) for field in fields(JobReport)}
    return RunReport(**told, returned=tuple(returned), tries=tries)


@dataclass(frozen=True)
class ItemWriter:
    """One try of one item, as an attempt. Only its fields travel. What the function returns has at
    most ``bytes_max`` bytes, pickled; None: `RETURNED_BYTES_MAX`, 0: it is dropped."""

    job: Job
    fn: Write
    caller: str = "run()"
    bytes_max: int | None = None
    attempt: Callable[[Job, int], Task] = Job.task
    dumps: Callable[[Any], bytes] = pickle.dumps

    def __call__(self, number: int, item: object) -> TryResult:
        try:
            return self._write(number, item)
        except Exception as error:
            try:
                pickle.loads(self.dumps(error))
            except Exception as refusal:
                told = TaskFailed(
                    f"{type(error).__name__}: {error} (an error that cannot be sent as it is:"
                    f" {type(refusal).__name__}: {refusal})",
                    job_id=self.job.id,
                )
                told.add_note("".join(traceback.format_exception(error)))
            else:
                raise
        raise told

    def _write(self, number: int, item: object) -> TryResult:
        if self.job.uuid in _interrupted:
            raise KeyboardInterrupt
        began = monotonic()
        try:
            with self.attempt(self.job, number) as task:
                returned = self.fn(task, item)
                kind, pickled = type(returned).__name__, b""
                if isinstance(returned, Iterator | Awaitable | AsyncIterator):
                    raise lazy(self.caller, kind)
                try:
                    if self.bytes_max != 0:
                        pickled = self.dumps(returned)
                except Exception as error:
                    raise TaskFailed(
                        f"the function given to {self.caller} returned a {kind} that cannot be"
                        f" pickled: {error}",
                        job_id=self.job.id,
                        hint="Return plain values (numbers, texts, lists, dicts), or nothing",
                    ) from error
                if len(pickled) > (self.bytes_max or RETURNED_BYTES_MAX):
                    told = f"a {kind} of {len(pickled):,} bytes"
                    raise too_large(self.caller, told, self.bytes_max)
        except KeyboardInterrupt:
            _interrupted.append(self.job.uuid)
            raise
        return TryResult(task.result, pickled, monotonic() - began)


def too_large(caller: str, what: str, share: int | None = None) -> TaskFailed:
    """The error for values that do not fit through the caller's process."""
    each = "" if share is None else f", each {share:,} of them"
    return TaskFailed(
        f"the function given to {caller} returned {what}; all items together may return"
        f" {RETURNED_BYTES_MAX:,} bytes, pickled{each}",
        hint="Write it into a file of the task, and return the file's name",
    )


def refuse_lazy_function(fn: Callable[..., object], caller: str = "run()") -> None:
    """Raise now what each try would raise: it is no function, or its body would never run."""
    if not callable(fn):
        raise WrongType(
            f"{caller} needs a function, not {type(fn).__name__}: {fn!r:.80}",
            hint="Pass it by its name, without parentheses",
        )
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_lazy(fn) for is_lazy in kinds):
        raise lazy(caller, "generator or coroutine")


def lazy(caller: str, kind: str) -> WrongType:
    """The error for a function whose body nobody runs."""
    return WrongType(
        f"the function given to {caller} returns a {kind}, whose body nobody runs",
        hint="Write the files inside the function, without yield or await",
    )


def whole_number(name: str, given: object, example: str = "3") -> int:
    """A number of things, 1 or more."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongType(f"{name} is a whole number, not {shown(given)}", hint=f"{name}={example}")
    if given < 1:
        raise OptionError(f"{name}={given}: it is 1 or more")
    return given


def seconds(name: str, given: object) -> float:
    """A number of seconds, or of times, above 0."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WrongType(f"{name} is a number, not {shown(given)}", hint=f"Pass {name}=3.0")
    if not given > 0:
        raise OptionError(f"{name}={given}: it is more than 0")
    return float(given)


def column_names(name: str, given: object) -> list[Any]:
    """Columns that become directories."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        hint = f"Pass [{given!r}]"
        raise WrongType(f"{name} is a list of columns, not {shown(given)}", hint=hint)
    return list(given)

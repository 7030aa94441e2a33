"""What runs in a worker: one try of one item, as an attempt of a task of its own.

Invariants:

* The value that the function returned travels with the attempt's result, in one message. It is
  pickled before the attempt commits: a value that cannot be sent, or is too large, fails the try.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from magic_committer._runtime import SystemClock
from magic_committer.errors import TaskFailed, WrongType
from magic_committer.job import Job, Task
from magic_committer.protocol.record import TaskCommit

_interrupted: deque[str] = deque(maxlen=100)
"""UUIDs of jobs in whose tries this process has heard Ctrl-C."""


class TryResult(NamedTuple):
    """What a try sends back.

    Attributes:
        returned: what the function returned, pickled.
        seconds: how long it took.
    """

    result: TaskCommit
    returned: bytes
    seconds: float


@dataclass(frozen=True)
class ItemWriter:
    """The function and its job. It is a class, so that only its fields travel.

    Attributes:
        returned_bytes_max: bytes that the function may return, pickled.
    """

    job: Job
    fn: Callable[[Task, Any], object]
    returned_bytes_max: int

    def __call__(self, number: int, item: object) -> TryResult:
        try:
            return self._write(number, item)
        except Exception as error:
            unreadable = _unreadable(error)
            if not unreadable:
                raise
            lines = "".join(traceback.format_exception(error))
            told = TaskFailed(
                f"{type(error).__name__}: {error} (an error that cannot be sent as it is:"
                f" {unreadable})",
                job_id=self.job.id,
            )
            told.add_note(lines)
        raise told

    def _write(self, number: int, item: object) -> TryResult:
        if self.job.uuid in _interrupted:
            raise KeyboardInterrupt
        clock = SystemClock()
        began = clock.monotonic()
        try:
            with self.job.task(number) as task:
                returned = self.fn(task, item)
                if isinstance(returned, Iterator | Awaitable | AsyncIterator):
                    raise lazy(type(returned).__name__)
                pickled = self._pickled(returned)
        except KeyboardInterrupt:
            _interrupted.append(self.job.uuid)
            raise
        return TryResult(task.result, pickled, clock.monotonic() - began)

    def _pickled(self, returned: object) -> bytes:
        kind = type(returned).__name__
        try:
            pickled = pickle.dumps(returned)
        except Exception as error:
            raise TaskFailed(
                f"the function given to run() returned a {kind} that cannot be pickled: {error}",
                job_id=self.job.id,
                hint="Return plain values (numbers, texts, lists, dicts), or nothing",
            ) from error
        if len(pickled) > self.returned_bytes_max:
            raise too_large(f"a {kind} of {len(pickled):,} bytes", self.returned_bytes_max)
        return pickled


def too_large(what: str, bytes_max: int) -> TaskFailed:
    """The error for values that do not fit through the caller's process."""
    return TaskFailed(
        f"the function given to run() returned {what}; all items together may return"
        f" {bytes_max:,} bytes, pickled",
        hint="Write it into a file of the task, and return the file's name",
    )


def refuse_lazy_function(fn: Callable[..., object]) -> None:
    """Raise now what each try would raise.

    Raises:
        WrongType: it is no function, or its body would never run.
    """
    if not callable(fn):
        raise WrongType(
            f"run() takes a function, not {type(fn).__name__}: {fn!r:.80}",
            hint="Pass it by its name, without parentheses: run(dest, write_item, items, ...)",
        )
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_lazy(fn) for is_lazy in kinds):
        raise lazy("generator or coroutine")


def lazy(kind: str) -> WrongType:
    """The error for a function whose body nobody runs."""
    return WrongType(
        f"the function given to run() returns a {kind}, whose body nobody runs",
        hint="Write the files inside the function, without yield or await",
    )


def _unreadable(error: Exception) -> str:
    """Why an error does not come through a pipe as it is; "" if it does."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return ""

"""`Writing`: one job of one task in one process, for ``with write(...)``.

Invariants:

* Leaving ``with`` normally commits, by any exception aborts; a decided job is never aborted.
* It belongs to the process that entered it. A forked child that leaves ``with``, is collected or
  ends, neither commits nor aborts anything.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

from magic_committer.errors import (
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.handles import Job, Task
from magic_committer.job import JobReport
from magic_committer.patience import cleaning_up


class Writing:
    """What ``with write(...) as job`` gives: one job of one task, in one process.

    It does not pickle, and a forked child can do nothing with it: opening, writing and closing
    raise there, and leaving ``with`` neither commits nor aborts.
    """

    def __init__(self, start: Callable[[], Job]) -> None:
        self._start = start
        self._pid = os.getpid()
        self._job: Job | None = None
        self._task: Task | None = None
        self._end_life: Callable[[], None] = _nothing

    def __repr__(self) -> str:
        return f"<Writing {self._job!r}>"

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            "what magic_committer.write(...) gives writes its files in one process and does not"
            f" travel. {WrongProcess.hint}"
        )

    def __del__(self) -> None:
        self._end_life()  # one that is entered and dropped is not alive for ever

    @property
    def job(self) -> Job:
        """The job, to read: its id, uuid, dest, state and report. Only inside and after ``with``.
        It takes no tasks, does not pickle, and no other process can commit or abort it."""
        if self._job is None:
            raise MagicError("the job is not started", hint="Use it as `with write(...) as job:`")
        return self._job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def report(self) -> JobReport | None:
        """What the job came to, also when it failed; None inside ``with``."""
        return self.job.report

    def open(self, name: str, mode: str = "wb", **options: Any) -> Any:
        """As `Task.open`."""
        if self._task is None:
            raise MagicError("the job is not started", hint="Use it as `with write(...) as job:`")
        opener: Callable[..., Any] = self._task.open
        return opener(name, mode, **options)

    def __enter__(self) -> Writing:
        if self._job is not None:
            raise MagicError("a job is used once", hint="Call write(...) again")
        self._pid = os.getpid()
        self._job = self._start()
        self._task = self._job.task("0")
        self._end_life = self._job.keep_alive()
        self._job.keep_at_home()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            self._leave_alone(error)
            return
        try:
            self._end(error)
        finally:
            self._end_life()

    def _leave_alone(self, error: BaseException | None) -> None:
        """A forked child has left ``with``: the job is its parent's."""
        message = (
            f"job {self.id!r} belongs to process {self._pid}, this is process {os.getpid()}: it was"
            " neither committed nor aborted here"
        )
        if error is None:
            raise TaskFailed(message, job_id=self.id, hint=WrongProcess.hint)
        error.add_note(message)

    def _end(self, error: BaseException | None) -> None:
        assert self._task is not None
        if error is not None:
            self._give_up(error)
            return
        try:
            result = self._task.commit()
            self.job.commit([result])
        except CommitIncomplete:
            raise  # decided: never to be aborted
        except BaseException as failure:
            self._give_up(failure)
            raise

    def _give_up(self, error: BaseException) -> None:
        if self.job.outcome == "committed" and not isinstance(error, Exception):
            return  # Ctrl-C after the decision: it has been told how to finish it
        try:
            with cleaning_up(error):
                self._undo(error)
        except BaseException as interrupt:  # a second Ctrl-C
            interrupt.add_note(_may_be_running(self.job))
            raise

    def _undo(self, error: BaseException) -> None:
        assert self._task is not None
        if not self._task.committed and self.job.outcome not in ("aborted", "reverted"):
            try:
                self._task.abort()
            except MagicError as failure:
                error.add_note(f"aborting the files of job {self.id!r} failed too: {failure}")
        give_up(self.job, error)


def give_up(job: Job, error: BaseException) -> None:
    """Abort a job because of ``error``; what the abort has to say becomes a note on it. Not for
    `CommitIncomplete`, which must never be aborted."""
    if job.outcome in ("aborted", "reverted"):
        return
    if job.outcome == "committed" and not isinstance(error, Exception):
        return  # Ctrl-C after the decision: it has been told how to finish it
    with cleaning_up(error):
        _abort(job, error)


def _abort(job: Job, error: BaseException) -> None:
    failed = job.report
    try:
        job.abort()
        if not isinstance(error, Exception):
            error.add_note(f"job {job.id!r} is aborted: nothing of it is visible")
    except JobNotRunning as decided:
        if decided.outcome == "committed":
            error.add_note(
                f"job {job.id!r} is committed all the same. Finish it:"
                f" magic_committer.recover({job.dest!r}, {job.id!r})"
            )
    except MagicError as failure:
        error.add_note(f"aborting job {job.id!r} failed too: {failure}")
        error.add_note(_may_be_running(job))
    if job.report is not None:
        reason = failed.error if failed is not None else f"{type(error).__name__}: {error}"
        job.report = replace(job.report, error=reason)


def _may_be_running(job: Job) -> str:
    return (
        f"job {job.id!r} may be running still. This ends it, or says that it is committed:"
        f" magic_committer.abort({job.dest!r}, {job.id!r})"
    )


def _nothing() -> None:
    """No sign of life is being given."""

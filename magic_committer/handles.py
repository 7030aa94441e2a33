"""The handles that users hold: `Job` and `Task`; ``writing.py`` has `Writing`, which is both.

A `Job` is a value: it pickles, holds no client, no lock and no secret, and finds its store again in
every process that it reaches, through that process's environment. A `Task` is one attempt of one
task in one process.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, overload

from magic_committer import wiring
from magic_committer.commit.outcome import ended
from magic_committer.committers.magic import Attempt, MagicCommitter
from magic_committer.committers.magic.alive import ALIVE_SECONDS, SignOfLife
from magic_committer.errors import (
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    OptionError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.job import JobReport, StartedJob, State, TaskCommit
from magic_committer.options import Options, S3Options
from magic_committer.paths import Destination
from magic_committer.patience import cleaning_up
from magic_committer.runtime import ProgressFunction, no_progress
from magic_committer.store import Attributes
from magic_committer.upload import TextUpload, UploadStream


class Task:
    """One attempt of one task. Use it as a context manager: leaving normally commits the attempt,
    leaving by exception aborts it.

    With ``track="s3"`` it pickles: it may be written in one process and committed in another. The
    handle itself belongs to the process that made it: in a forked child `open`, `commit` and
    `abort` raise, and leaving ``with`` sends nothing.
    """

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job = job
        self._attempt = attempt

    def __repr__(self) -> str:
        return f"<Task {self._attempt!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._attempt.result is not None:
            return _committed_task, (self._job, self._attempt.result)
        if self._attempt.has_files and self._job.track == "memory":
            raise pickle.PicklingError(
                "a task that has opened files keeps them in this process: commit it here, or start"
                " the job with track='s3'"
            )
        if self._job.track == "memory":
            return _new_task, (self._job, self.task_id, None)
        self._attempt.share()
        return _new_task, (self._job, self.task_id, self.attempt_id)

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._attempt.task

    @property
    def attempt_id(self) -> str:
        """The attempt's name, unique in the job. For logs: to let others commit the attempt pickle
        the task, or give `Job.task` a name, so that its files look whether somebody has."""
        return self._attempt.attempt

    @property
    def committed(self) -> bool:
        """Whether the attempt is committed. That alone makes nothing visible."""
        return self._attempt.result is not None

    @property
    def result(self) -> TaskCommit:
        """What `commit` returned: pass it to `Job.commit`. Small, picklable, JSON by ``to_dict``.

        Raises:
            MagicError: the attempt is not committed.
        """
        if self._attempt.result is None:
            raise MagicError(
                f"attempt {self.attempt_id!r} is not committed",
                hint="Leave `with task:` normally first, or call task.commit()",
            )
        return self._attempt.result

    @overload
    def open(
        self,
        name: str,
        mode: Literal["wb", "xb"] = "wb",
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> UploadStream: ...
    @overload
    def open(
        self,
        name: str,
        mode: Literal["w", "x", "wt", "xt"],
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> TextUpload: ...
    def open(
        self,
        name: str,
        mode: str = "wb",
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> UploadStream | TextUpload:
        """Open a file for writing; it becomes visible as ``<destination>/<name>`` when the job
        commits, and only if this attempt is accepted.

        Args:
            name: relative path; Hive partitions like ``"dt=2026-11-21/a.csv"`` are fine.
            mode: ``"wb"`` for bytes, ``"w"`` for text (UTF-8 unless ``encoding`` says otherwise).
            unique: put the job's UUID into the name, before its first dot: two jobs never collide,
                and uploads of killed tasks are recognised and swept. Tasks of one job still need
                names of their own.
            attributes: content type, user metadata, storage class and so on of the object.

        Raises:
            TaskFailed: the attempt has ended, is being committed or aborted by another thread, can
                never be committed (its file's close failed, and another handle may know of it), or
                this is a forked child of its process.
            PathError, ValueError (mode). The upload's own failure shows at the next call on the
            file; in a forked child that is `WrongProcess`.
        """
        text = text_options(mode, encoding, errors, newline)
        stream = self._attempt.open(
            name, unique=unique, attributes=attributes if attributes is not None else Attributes()
        )
        return stream if text is None else TextUpload(stream, **text)

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads so that the job can accept them. Nothing becomes visible.
        Repeatable.

        Raises:
            FileStillOpen, TaskFailed, JobNotRunning, StoreError: the attempt does not count. One
                that was aborted, under any handle, never will: give the next one another name.
                TaskFailed too where another thread commits or aborts it now: nothing was done.
        """
        return self._attempt.commit()

    def abort(self) -> None:
        """Abort the attempt's uploads. Repeatable; a missing attempt aborts well. Nobody can commit
        an attempt of that name afterwards.

        A job that has ended leaves nothing to abort, nor a trace of its attempts: this returns
        well then, also where another handle had committed the attempt and the job has published
        it. What is published stays: `Job.outcome` and the job's report tell.

        Raises:
            TaskFailed: it is committed, or may be, is being committed by another thread, or belongs
                to another process: nothing was done.
            StoreError, FormatError: not all could be undone; call it again. What stays is swept
                when the job ends.
        """
        self._attempt.abort()

    def __enter__(self) -> Task:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._attempt.commit()
            return
        try:
            with cleaning_up(error):
                self._attempt.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt_id!r} failed too: {failure}")


def _committed_task(job: Job, result: TaskCommit) -> Task:
    return job.committed_task(result)


def _new_task(job: Job, task: str, attempt: str | None) -> Task:
    return job.task(task, attempt=attempt)


class Job:
    """A started job, in any of its processes. Pickles; holds no secret, no client, no lock.

    Attributes:
        id: names the job's directory. uuid: names the job in tokens and unique names.
        dest: the destination's URL.
        report: what `commit` or `abort` came to, also when it failed; None before.
    """

    def __init__(
        self,
        started: StartedJob,
        options: Options,
        s3: S3Options,
        *,
        state: State = State.RUNNING,
        outcome: str = "",
        progress: ProgressFunction = no_progress,
    ) -> None:
        self._started = started
        self._options = options
        self._s3 = s3
        self._state = state
        self._outcome = outcome
        self._progress = progress
        self._used: list[Iterator[TaskCommit]] = []
        self._pid = os.getpid()
        self._at_home = False
        self.report: JobReport | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self.dest} {self.state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._at_home and self._state is State.RUNNING:
            raise pickle.PicklingError(
                f"job {self.id!r} is one of magic_committer.write(...), whose files are written in"
                f" one process: it does not travel. {WrongProcess.hint}"
            )
        # Progress stays behind, and the right to delete the record: the copy is another process.
        copy = replace(self._started, undisturbed=False)
        return _job, (copy, self._options, self._s3, self._state, self._outcome)

    @property
    def id(self) -> str:
        """Names the job's directory."""
        return self._started.id

    @property
    def uuid(self) -> str:
        """Names the job in tokens and unique names: 32 hex digits."""
        return self._started.uuid

    @property
    def dest(self) -> str:
        """The destination's URL, with its trailing slash."""
        return self._started.dest

    @property
    def track(self) -> str:
        """``"s3"`` or ``"memory"``: where an attempt keeps what completes its files."""
        return self._started.terms.track

    @property
    def state(self) -> str:
        """The record's last state that this handle saw; ``"absent"`` once it is gone."""
        return self._state.value

    @property
    def outcome(self) -> str:
        """``"committed"``, ``"aborted"``, ``"reverted"``, or "" while undecided."""
        return self._outcome

    def task(self, task: str | int, *, attempt: str | None = None) -> Task:
        """One attempt of a task, here. Each call without ``attempt`` is an attempt of its own.

        Args:
            task: the task's id, the same for all its attempts: ``[A-Za-z0-9._=-]{1,128}``.
            attempt: a name, unique in the job, for an attempt that several processes share; needs
                ``track="s3"``. After an abort the name cannot be used again.

        Raises:
            JobNotRunning: the job is decided.
            TaskFailed: the job is one of `write`, which commits what its own ``open`` gave.
        """
        self._check_running()
        return Task(self, self._committer().attempt(str(task), attempt))

    def sole_task(self, task: str, attempt: str) -> Task:
        """An attempt that only this handle opens and commits, under a name that the caller knows to
        be unique in the job; with either ``track``: for engines that name their attempts."""
        self._check_running()
        return Task(self, self._committer().attempt(task, attempt, sole=True))

    def attempt_by_path(self, attempt: str) -> Attempt:
        """An attempt whose files are closed here and which others commit: for `open_magic`."""
        self._check_running()
        return self._committer().attempt(attempt, attempt)

    def committed_task(self, result: TaskCommit) -> Task:
        """The handle of an attempt that is committed: for one that travelled."""
        return Task(self, self._committer().committed_attempt(result))

    def keep_at_home(self) -> None:
        """From now on the job takes no task, does not pickle while it runs, and no other process
        ends it: it has all that its process will commit. For `Writing`, which hands it out."""
        self._at_home = True

    def _check_at_home(self, doing: str) -> None:
        if self._at_home and self._pid != os.getpid():
            raise TaskFailed(
                f"job {self.id!r} is one of magic_committer.write(...) in process {self._pid}, this"
                f" is process {os.getpid()}: it is not {doing} here",
                job_id=self.id,
                hint=WrongProcess.hint,
            )

    def _check_running(self) -> None:
        if self._at_home:
            raise TaskFailed(
                f"job {self.id!r} is one of magic_committer.write(...): it commits the files that"
                " its own open(...) gave, and takes no tasks",
                job_id=self.id,
                hint=WrongProcess.hint,
            )
        if self._state is not State.RUNNING:
            raise ended(self.id, self._state, self._outcome, ", it takes no more tasks")

    def commit(
        self,
        results: Iterable[TaskCommit] | None = None,
        *,
        expect: int | Iterable[str] | None = None,
    ) -> JobReport:
        """Make the job's files visible: all of one attempt of each task, or none. Repeatable: from
        any process, as often as it takes.

        Args:
            results: exactly the attempts to accept. None: what the tasks left on the store.
            expect: how many tasks there must be, or their ids.

        Raises:
            IncompleteJob, OptionError: nothing was decided, the job is still running. A job without
                any task is incomplete, unless ``expect=0`` says that this is right.
            CommitRefused, DestinationExists: a check said no; the job is aborted.
            CommitIncomplete: committed, but not all is visible yet; call it again.
            JobNotRunning: it was aborted.
            OutcomeUnknown: it cannot be told.
            StoreError: a check could not be made; this call decided nothing, and what the job is
                its record tells: call it again.
            TaskFailed: the job is one of `write`, in another process. Nothing was done.
        """
        self._check_at_home("committed")
        wanted = self._whole(results) if isinstance(results, Iterator) else results
        return self._ended("committed") or self._reported(
            lambda: self._committer().commit_job(wanted, expect)
        )

    def _whole(self, results: Iterator[TaskCommit]) -> Iterable[TaskCommit]:
        """An iterator gives its items once: what an earlier call took, or left after an error, is a
        part of the results. It is refused when they are asked for, for a job that is decided does
        not need them."""
        if not any(results is used for used in self._used):
            self._used.append(results)
            return results

        def refuse() -> Iterator[TaskCommit]:
            raise OptionError(
                f"an earlier commit of job {self.id!r} has used up a part of these results, or all:"
                f" {type(results).__name__} gives them once",
                hint="Pass a list: results = list(...); job.commit(results)",
            )
            yield

        return refuse()

    def abort(self) -> JobReport:
        """Make sure that nothing of the job is visible, now or later. Repeatable.

        Raises:
            JobNotRunning: it is committed.
            OutcomeUnknown: it cannot be told.
            TaskFailed: the job is one of `write`, in another process. Nothing was done.
        """
        self._check_at_home("aborted")
        return self._ended("aborted", "reverted") or self._reported(
            lambda: self._committer().abort_job()
        )

    def keep_alive(self) -> Callable[[], None]:
        """Say on the store now and then that the job is alive, so that no cleanup takes it for dead
        while nothing else of it changes. For the process that drives a job of `start` which may be
        silent for hours; `write` and the Spark faces do it themselves.

        Returns:
            What ends it; call it when the job has ended. Never blocks.
        """
        sign = SignOfLife(self._committer().runtime, self._started)
        return wiring.pool.every(ALIVE_SECONDS, sign.give)

    def _ended(self, *outcomes: str) -> JobReport | None:
        """The report of a job that this handle has seen to its end; raises if it was another end
        than those. None while there is something left to do."""
        if self.report is None or self._state not in (State.ABSENT, State.CLOSED):
            return None
        if self.report.outcome in outcomes:
            return self.report
        if self._outcome == "":
            return None
        raise ended(self.id, self._state, self._outcome)

    def _reported(self, step: Callable[[], JobReport]) -> JobReport:
        try:
            self._saw(step())
        except BaseException as error:
            known = getattr(error, "report", None)
            if isinstance(known, JobReport):
                self._saw(known)
            elif isinstance(error, CommitIncomplete):
                self._state, self._outcome = State(error.state), "committed"
            elif isinstance(error, JobNotRunning):
                self._state, self._outcome = State(error.state), error.outcome
            self.report = JobReport(
                job_id=self.id,
                uuid=self.uuid,
                dest=self.dest,
                mode=self._started.terms.mode,
                outcome=self._outcome,
                state=self.state,
                error=f"{type(error).__name__}: {error}",
            )
            raise
        assert self.report is not None
        return self.report

    def _saw(self, report: JobReport) -> None:
        self.report = report
        self._state, self._outcome = State(report.state), report.outcome

    def _committer(self) -> MagicCommitter:
        bucket = Destination.parse(self.dest).bucket
        runtime = wiring.runtime_for(bucket, self._s3, self._progress)
        started = self._started
        if self._pid != os.getpid():  # a fork is a copy, as one that was pickled
            started = replace(started, undisturbed=False)
        return MagicCommitter(runtime, started, self._options, wiring.blocks)


def _job(started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str) -> Job:
    return Job(started, options, s3, state=state, outcome=outcome)


def text_options(
    mode: str, encoding: str | None, errors: str | None, newline: str | None
) -> dict[str, str | None] | None:
    """What a text file is made with; None for a binary one."""
    if mode in ("wb", "xb"):
        if encoding is not None or errors is not None or newline is not None:
            raise ValueError("encoding, errors and newline are for text: open it with mode 'w'")
        return None
    if mode in ("w", "x", "wt", "xt"):
        return {"encoding": encoding, "errors": errors, "newline": newline}
    raise ValueError(f"mode {mode!r}: a file of a job is written once, by 'wb' or 'w'")

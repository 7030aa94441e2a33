"""What users hold: `Job`, `Task`, and `Writing`, which is both for ``with write(...)``.

A `Job` is a value: it pickles, holds no client, no lock and no secret, and finds its store again in
every process that it reaches, through that process's environment. A `Task` is one attempt of one
task in one process. Invariants of leaving ``with``:

* Of a `Writing` normally: it commits. Of a `Job` normally: what was not committed is aborted.
* By an exception: the job is aborted, and what the abort has to say is a note on that exception. A
  job that is decided as committed is never aborted, whoever decided.
* In a forked child nothing is done: not when it leaves ``with``, is collected or ends. The job is
  its parent's.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, NoReturn, overload

from magic_committer import _wiring
from magic_committer._arguments import (
    attributes_of,
    expected_of,
    name_of,
    options_of,
    results_of,
    s3_of,
    task_id_of,
)
from magic_committer._job_json import TravellingJob, from_values, to_values
from magic_committer._patience import cleaning_up
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.commit.alive import ALIVE_SECONDS, SignOfLife
from magic_committer.commit.outcome import end, ended, finish
from magic_committer.committers.magic import Attempt, MagicCommitter
from magic_committer.errors import (
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    OptionError,
    TaskFailed,
    WrongProcess,
    WrongType,
)
from magic_committer.hadoop.elements import name_text
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Options, S3Options, Track
from magic_committer.protocol.record import JobReport, StartedJob, State, TaskCommit
from magic_committer.remedy import Remedy, add_note
from magic_committer.stores.base import Attributes
from magic_committer.upload import TextUpload, UploadStream

logger = logging.getLogger("magic_committer")

BinaryMode = Literal["wb", "xb"]
"""What `open` takes for a file of bytes. ``"xb"`` is the same as ``"wb"``."""
TextMode = Literal["w", "x", "wt", "xt"]
"""What `open` takes for a file of text. All four are the same."""

# A job --------------------------------------------------------------------------------------------


class Job:
    """A started job, in any of its processes. `start` and `attach` give it. It pickles, and is JSON
    by `to_dict`; it holds no secret, no client and no lock.

    ``with start(...) as job:`` makes sure that the job ends: what was not committed when the block
    is left is aborted (`__enter__`).

    Attributes:
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
        starter: bool = False,
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
        self._starter = starter
        self._entered = False
        self._end_life: Callable[[], None] = _nothing
        self.report: JobReport | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self.dest} {self.state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._at_home and self._state is State.RUNNING:
            raise pickle.PicklingError(f"{self._does_not_travel()}. {WrongProcess.advice}")
        # Progress stays behind, and the right to delete the record: the copy is another process.
        copy = replace(self._started, undisturbed=False)
        return _job, (copy, self._options, self._s3, self._state, self._outcome)

    def _does_not_travel(self) -> str:
        return (
            f"job {self.id!r} is one of magic_committer.write(...), whose files are written in"
            " one process: it does not travel"
        )

    def __del__(self) -> None:
        end_life: Callable[[], None] = self.__dict__.get("_end_life", _nothing)
        end_life()  # one that is entered and dropped is not alive for ever

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
    def track(self) -> Track:
        """``"s3"`` or ``"memory"``: where an attempt keeps what completes its files."""
        return self._started.terms.track

    @property
    def state(self) -> State:
        """The record's last state that this handle saw, a text like ``"running"``; ``"absent"``
        once it is gone. Asks nobody."""
        return self._state

    @property
    def outcome(self) -> str:
        """``"committed"``, ``"aborted"``, ``"reverted"``, or "" while undecided."""
        return self._outcome

    def task(self, task: str | int, *, attempt: str | None = None) -> Task:
        """One attempt of a task, here. Each call without ``attempt`` is an attempt of its own. It
        sends nothing::

            >>> job = mc.start("s3://bucket/table")
            >>> with job.task(7) as task:
            ...     with task.open("part-7.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            >>> job.commit([task.result]).files
            1

        Args:
            task: the task's id, the same for all its attempts: ``[A-Za-z0-9._=-]{1,128}``. 7 is
                ``"7"``.
            attempt: a name, unique in the job, for an attempt that several processes share; needs
                ``track="s3"``. After an abort the name cannot be used again. None: one is drawn.

        Raises:
            JobNotRunning: the job is decided.
            TaskFailed: the job is one of `write`, which commits what its own ``open`` gave.
            PathError: an id that cannot be used. WrongType: one that is neither text nor a number.
            OptionError: an attempt's name in a job with ``track="memory"``.
        """
        self._check_running()
        name = name_of("attempt", attempt)
        return Task(self, self._committer().attempt(task_id_of(task), name))

    # For the library's own faces: `open_magic`, `write`, Spark, pickles ---------------------------

    def _sole_task(self, task: str, attempt: str) -> Task:
        """An attempt that only this handle opens and commits, under a name that the caller knows to
        be unique in the job; with either ``track``: for engines that name their attempts."""
        self._check_running()
        return Task(self, self._committer().attempt(task, attempt, sole=True))

    def _attempt_by_path(self, attempt: str) -> Attempt:
        """An attempt whose files are closed here and which others commit: for `open_magic`."""
        self._check_running()
        return self._committer().attempt(attempt, attempt)

    def _committed_task(self, result: TaskCommit) -> Task:
        """The handle of an attempt that is committed: for one that travelled."""
        return Task(self, self._committer().committed_attempt(result))

    def _keep_at_home(self) -> None:
        """From now on the job takes no task, does not pickle while it runs, and no other process
        ends it: it has all that its process will commit. For `Writing`, which hands it out."""
        self._at_home = True

    def _check_at_home(self, doing: str) -> None:
        if self._at_home and self._pid != os.getpid():
            raise TaskFailed(
                f"job {self.id!r} is one of magic_committer.write(...) in process {self._pid}, this"
                f" is process {os.getpid()}: it is not {doing} here",
                job_id=self.id,
                hint=WrongProcess.advice,
            )

    def _check_running(self) -> None:
        if self._at_home:
            raise TaskFailed(
                f"job {self.id!r} is one of magic_committer.write(...): it commits the files that"
                " its own open(...) gave, and takes no tasks",
                job_id=self.id,
                hint=WrongProcess.advice,
            )
        if self._state is not State.RUNNING:
            raise ended(self.dest, self.id, self._state, self._outcome, ", it takes no more tasks")

    # Its end --------------------------------------------------------------------------------------

    def commit(
        self,
        results: Iterable[TaskCommit] | None = None,
        *,
        expect: int | Iterable[str | int] | None = None,
    ) -> JobReport:
        """Make the job's files visible: all of one attempt of each task, or none. Repeatable: from
        any process, as often as it takes::

            >>> job = mc.start("s3://bucket/table")
            >>> results = []
            >>> for number in range(2):
            ...     with job.task(number) as task, task.open(f"{number}.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            ...     results.append(task.result)
            >>> print(job.commit(results, expect=2))
            job ... committed in s3://bucket/table/: 2 files of 2 tasks, 10 bytes, ... s

        Args:
            results: exactly the attempts to accept: `Task.result` of each task. None: what the
                tasks left on the store; only in a job with ``accept="listing"``.
            expect: how many tasks there must be, or their ids; None: any number but none.

        Returns:
            What became of the job.

        Raises:
            WrongType: one result instead of a list, ``expect="10"`` and the like. Nothing was done.
            IncompleteJob, OptionError: nothing was decided, the job is still running. A job without
                any task is incomplete, unless ``expect=0`` says that this is right.
            CommitRefused, DestinationExists, ConflictingJob: a check said no; the job is aborted.
            CommitIncomplete: committed, but not all is visible yet; call it again.
            JobNotRunning: it was aborted.
            OutcomeUnknown: it cannot be told.
            StoreError: a check could not be made; this call decided nothing, and what the job is
                its record tells: call it again.
            TaskFailed: the job is one of `write`, in another process. Nothing was done.
        """
        tasks = expected_of(expect)
        results = results_of(results)
        self._check_at_home("committed")
        wanted = self._whole(results) if isinstance(results, Iterator) else results
        if self._ended("committed") is None:
            with self._telling():
                self._saw(self._committer().commit_job(wanted, tasks))
        assert self.report is not None
        return self.report

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
        """Make sure that nothing of the job is visible, now or later. Repeatable, by anyone::

            >>> job = mc.start("s3://bucket/table")
            >>> job.abort().outcome
            'aborted'

        Returns:
            What became of the job.

        Raises:
            JobNotRunning: it is committed.
            OutcomeUnknown: it cannot be told.
            TaskFailed: the job is one of `write`, in another process. Nothing was done.
        """
        self._check_at_home("aborted")
        if self._ended("aborted", "reverted") is None:
            with self._telling():
                self._saw(self._committer().abort_job())
        assert self.report is not None
        return self.report

    def keep_alive(self) -> Callable[[], None]:
        """Say on the store now and then that the job is alive, so that no cleanup takes it for dead
        while nothing else of it changes. For the process that drives a job of `start` which may be
        silent for hours; `write` and the Spark faces do it themselves.

        ``with start(...) as job:`` does it as well.

        Returns:
            A function that stops it; call it when the job has ended. Never blocks.
        """
        sign = SignOfLife(self._committer().runtime, self._started)
        return _wiring.pool.every(ALIVE_SECONDS, sign.give)

    def __enter__(self) -> Job:
        """Begin a block at whose end the job is over, one way or the other::

            >>> with mc.start("s3://bucket/table") as job:
            ...     with job.task(1) as task, task.open("a.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            ...     report = job.commit([task.result])
            >>> report.outcome
            'committed'

        The block commits the job itself, by `commit`. When it is left

        * after a commit or an abort, nothing more is done. A commit that raised `CommitIncomplete`
          is one: the job is decided, and is never aborted;
        * by an exception, Ctrl-C included: the job is aborted, and the exception goes on. What the
          abort has to say is a note on it;
        * normally, with nothing committed: the job is aborted, with a warning in the log, and
          nothing is raised. If the abort fails, its error is raised;
        * and another process has committed the job: it stays committed, nothing is raised. Where
          it cannot be told, `OutcomeUnknown` is;
        * in a forked child: nothing is done, and `TaskFailed` is raised if the child leaves it
          without an exception.

        Inside the block the job is kept alive, as by `keep_alive`.

        Raises:
            MagicError: this handle did not start the job (`attach`, a pickle, `from_dict`): leaving
                the block would abort what other processes are working on. Or it is entered a second
                time, or is one of `write`.
        """
        if not self._starter or self._at_home or self._pid != os.getpid():
            raise MagicError(
                f"this handle has not started job {self.id!r}, and `with job:` would abort it when"
                " the block is left",
                hint="Use it without `with`, and call job.commit(...) or job.abort()",
            )
        if self._entered:
            raise MagicError(
                f"job {self.id!r} is used in one `with`, once",
                hint="Start another: with magic_committer.start(...) as job:",
            )
        self._entered = True
        self._end_life = self.keep_alive()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            leave_alone(self, self._pid, error)
            return
        try:
            if error is None:
                abort_uncommitted(self)
            elif not is_over(self) and not self._is_decided_by(error):
                try:
                    give_up(self, error)
                except BaseException as interrupt:  # a second Ctrl-C
                    add_note(interrupt, *may_be_running(self))
                    raise
        finally:
            self._end_life()

    def _is_decided_by(self, error: BaseException) -> bool:
        return isinstance(error, CommitIncomplete) and error.job_id == self.id

    # Its way to other processes -------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The job as plain JSON values, for schedulers that pass those (Airflow's XCom)::

            >>> import json
            >>> text = json.dumps(mc.start("s3://bucket/table", job_id="nightly").to_dict())
            >>> mc.Job.from_dict(json.loads(text))
            <Job 'nightly' s3://bucket/table/ running>

        It holds what a pickle holds, and no secret: keys, tokens and passwords in ``s3`` stay
        behind; ``progress`` does, too. Asks nobody.

        Raises:
            MagicError: the job is one of `write`, and runs: it does not travel.
        """
        if self._at_home and self._state is State.RUNNING:
            raise MagicError(self._does_not_travel(), hint=WrongProcess.advice)
        return to_values(
            TravellingJob(self._started, self._options, self._s3, self._state, self._outcome)
        )

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        *,
        s3: S3Options | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
    ) -> Job:
        """The handle that `to_dict` described, in this process. Asks nobody, repeatable.

        Args:
            values: what `to_dict` gave, also after a way through JSON.
            s3: the way to the store from here; None: as the dict says. Secrets are not in the dict:
                they come from this process's environment, or from here.
            options: sizes and numbers; None: as the dict says.
            progress: told of long steps; called from this process's threads.

        Raises:
            WrongType: ``values`` is no dict; JSON text, say.
            FormatError: a field is missing, unknown, of another type, or cannot be; or another
                version of the library wrote it. The message names the field.
        """
        job = from_values(values)
        return cls(
            job.started,
            options_of(options) if options is not None else job.options,
            s3_of(s3) if s3 is not None else job.s3,
            state=job.state,
            outcome=job.outcome,
            progress=progress,
        )

    def _ended(self, *outcomes: str) -> JobReport | None:
        """The report of a job that this handle has seen to its end; raises if it was another end
        than those. None while there is something left to do."""
        if self.report is None or self._state not in (State.ABSENT, State.CLOSED):
            return None
        if self.report.outcome in outcomes:
            return self.report
        if self._outcome == "":
            return None
        raise ended(self.dest, self.id, self._state, self._outcome)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """An error in the block tells what became of the job: it is kept in the report."""
        try:
            yield
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
                state=self._state.value,
                error=f"{type(error).__name__}: {error}",
            )
            raise

    def _saw(self, report: JobReport) -> None:
        self.report = report
        self._state, self._outcome = State(report.state), report.outcome

    def _committer(self) -> MagicCommitter:
        bucket = Destination.parse(self.dest).bucket
        runtime = _wiring.runtime_for(bucket, self._s3, self._progress)
        started = self._started
        if self._pid != os.getpid():  # a fork is a copy, as one that was pickled
            started = replace(started, undisturbed=False)
        return MagicCommitter(runtime, started, self._options, _wiring.blocks)


def _job(started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str) -> Job:
    return Job(started, options, s3, state=state, outcome=outcome)


def _nothing() -> None:
    """No sign of life is being given."""


# A task -------------------------------------------------------------------------------------------


class Task:
    """One attempt of one task. Use it as a context manager: leaving normally commits the attempt,
    leaving by exception aborts it. `Job.task` gives it.

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
        mode: BinaryMode = "wb",
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> UploadStream: ...
    @overload
    def open(
        self,
        name: str,
        mode: TextMode,
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
        r"""Open a file for writing. It becomes visible as ``<destination>/<name>`` when the job
        commits, and only if this attempt is accepted::

            >>> job = mc.start("s3://bucket/table")
            >>> with job.task("7") as task, task.open("dt=2026-11-21/part-7.csv", "w") as file:
            ...     _ = file.write("1,2,3\n")
            >>> task.result.files
            1

        Not repeatable: a name is opened once in an attempt.

        Args:
            name: relative to the destination; Hive partitions like ``"dt=2026-11-21/a.csv"`` are
                fine.
            mode: ``"wb"`` for bytes, ``"w"`` for text.
            unique: put the job's UUID into the name, before its first dot: two jobs never collide,
                and uploads of killed tasks are recognised and swept. Tasks of one job still need
                names of their own.
            encoding, errors, newline: of a text file, as Python's ``open`` takes them; None: UTF-8,
                strict, and line ends as the system writes them.
            attributes: content type, user metadata, storage class and so on of the object; None:
                nothing special.

        Returns:
            A file that is closed, or left by ``with``, before the attempt is committed. It belongs
            to one thread at a time. Leaving its ``with`` by exception gives the file up.

        Raises:
            TaskFailed: the attempt has ended, is being committed or aborted by another thread, can
                never be committed (its file's close failed, and another handle may know of it), or
                this is a forked child of its process.
            PathError: a name that cannot be used; the message says which rule it breaks.
            ValueError: a mode that is none of these, or ``encoding``, ``errors`` or ``newline`` of
                a file of bytes.
            WrongType: ``name`` is a `Path`, or ``attributes`` a dict.

            The upload's own failure shows at the next call on the file; in a forked child that is
            `WrongProcess`.
        """
        return self._open(name, mode, unique, encoding, errors, newline, attributes)

    def _open(
        self,
        name: str,
        mode: str,
        unique: bool,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        attributes: Attributes | None,
    ) -> UploadStream | TextUpload:
        text = text_options(mode, encoding, errors, newline)
        stream = self._attempt.open(
            name_text(name), unique=unique, attributes=attributes_of(attributes)
        )
        return stream if text is None else TextUpload(stream, **text)

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads so that the job can accept them. Nothing becomes visible.
        Repeatable. Leaving ``with`` normally does it::

            >>> task = mc.start("s3://bucket/table").task("7")
            >>> with task.open("part-7.csv", "w") as file:
            ...     _ = file.write("1,2,3")
            >>> task.commit().bytes
            5

        Returns:
            What the driver passes to `Job.commit`: send it there, by pickle or `to_dict`.

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
    return job._committed_task(result)


def _new_task(job: Job, task: str, attempt: str | None) -> Task:
    return job.task(task, attempt=attempt)


def text_options(
    mode: str, encoding: str | None, errors: str | None, newline: str | None
) -> dict[str, str | None] | None:
    """What a text file is made with; None for a binary one.

    Raises:
        WrongType: the mode is no text.
        ValueError: it is no mode of a file that is written, or the others are of no use with it.
    """
    if mode in ("wb", "xb"):
        if encoding is not None or errors is not None or newline is not None:
            raise ValueError("encoding, errors and newline are for text: open it with mode 'w'")
        return None
    if mode in ("w", "x", "wt", "xt"):
        return {"encoding": encoding, "errors": errors, "newline": newline}
    if not isinstance(mode, str):
        raise WrongType(f"a file's mode is text, not {mode!r:.80}", hint="Pass 'wb' or 'w'")
    raise ValueError(f"mode {mode!r}: a file of a job is written once, by 'wb' or 'w'")


# One job of one task in one process ---------------------------------------------------------------


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
            f" travel. {WrongProcess.advice}"
        )

    def __del__(self) -> None:
        self._end_life()  # one that is entered and dropped is not alive for ever

    @property
    def job(self) -> Job:
        """The job, to read: its id, uuid, dest, state and report. Only inside and after ``with``.
        It takes no tasks, does not pickle, and no other process can commit or abort it."""
        if self._job is None:
            raise _not_started()
        return self._job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def report(self) -> JobReport | None:
        """What the job came to, also when it failed; None inside ``with``."""
        return self.job.report

    @overload
    def open(
        self,
        name: str,
        mode: BinaryMode = "wb",
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> UploadStream: ...
    @overload
    def open(
        self,
        name: str,
        mode: TextMode,
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
        r"""Open a file for writing; it becomes visible when the block is left normally::

            >>> with mc.write("s3://bucket/table") as job:
            ...     with job.open("dt=2026-11-21/a.csv", "w", newline="") as file:
            ...         _ = file.write("1,2,3\n")

        Arguments, result and errors are those of `Task.open`.

        Raises:
            MagicError: outside of ``with``.
        """
        if self._task is None:
            raise _not_started()
        return self._task._open(name, mode, unique, encoding, errors, newline, attributes)

    def __enter__(self) -> Writing:
        if self._job is not None:
            raise MagicError("a job is used once", hint="Call write(...) again")
        self._pid = os.getpid()
        self._job = self._start()
        self._task = self._job.task("0")
        self._end_life = self._job.keep_alive()
        self._job._keep_at_home()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            leave_alone(self.job, self._pid, error)
            return
        try:
            self._end(error)
        finally:
            self._end_life()

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
            add_note(interrupt, *may_be_running(self.job))
            raise

    def _undo(self, error: BaseException) -> None:
        assert self._task is not None
        if not self._task.committed and self.job.outcome not in ("aborted", "reverted"):
            try:
                self._task.abort()
            except MagicError as failure:
                error.add_note(f"aborting the files of job {self.id!r} failed too: {failure}")
        give_up(self.job, error)


def _not_started() -> MagicError:
    return MagicError("the job is not started", hint="Use it as `with write(...) as job:`")


# Leaving `with` -----------------------------------------------------------------------------------


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
            add_note(error, f"job {job.id!r} is committed all the same", finish(job.dest, job.id))
    except MagicError as failure:
        error.add_note(f"aborting job {job.id!r} failed too: {failure}")
        add_note(error, *may_be_running(job))
    if job.report is not None:
        reason = failed.error if failed is not None else f"{type(error).__name__}: {error}"
        job.report = replace(job.report, error=reason)


def abort_uncommitted(job: Job) -> None:
    """Abort a job whose block has ended well, without a commit of it.

    Raises:
        What `Job.abort` raises; not if another process has committed the job.
    """
    if job.outcome:
        return
    try:
        job.abort()
    except JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        if job.report is not None:  # that it could not be aborted is no failure here
            job.report = replace(job.report, error="")
        logger.info("job %s: another process has committed it", job.id)
        return
    logger.warning(
        "job %s: `with` was left without a commit: the job is aborted, nothing of it is visible",
        job.id,
    )


def leave_alone(job: Job, owner: int, error: BaseException | None) -> None:
    """A forked child has left the block.

    Raises:
        TaskFailed: it has left it without an exception; else a note says the same.
    """
    message = (
        f"job {job.id!r} belongs to process {owner}, this is process {os.getpid()}: it was"
        " neither committed nor aborted here"
    )
    if error is None:
        raise TaskFailed(message, job_id=job.id, hint=WrongProcess.advice)
    error.add_note(message)


def is_over(job: Job) -> bool:
    """Whether nothing is left to be done for a job, as far as this handle has seen."""
    return bool(job.outcome) and job.state in (State.ABSENT, State.CLOSED)


def may_be_running(job: Job) -> tuple[str, Remedy]:
    """For whoever could not end a job: what is known, and what may be done."""
    return (
        f"job {job.id!r} may be running still",
        end(job.dest, job.id, "this ends it, or says that it is committed"),
    )

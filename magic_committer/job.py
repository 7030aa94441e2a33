"""What users hold: `Job` and `Task`. (`api` has what is both in one.)

A `Job` is a value. It pickles; it holds no client, no lock and no secret. In every process it finds
its store again through that process's environment. A `Task` is one attempt of one task in one
process. Invariants at the end of a ``with`` block:

* If a block of a `Writing` ends normally, the job commits. If a block of a `Job` ends normally, a
  job that is not committed is aborted.
* If an exception ends the block, the job is aborted. Messages of the abort become a note on that
  exception. A job that any process decided as committed is never aborted.
* A forked child does nothing: not when it leaves ``with``, when the object is collected, or when
  the process ends. The job belongs to the parent.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from msgspec import structs

from magic_committer.commit.fence import ALIVE_SECONDS, give_sign_of_life
from magic_committer.commit.outcome import end, ended, finish
from magic_committer.committers.base import JobCommitter, TaskAttempt, named
from magic_committer.errors import (
    CommitIncomplete,
    FormatError,
    JobNotRunning,
    JobReport,
    MagicError,
    OptionError,
    PathError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.errors.messages import SAME_VERSION, Remedy, add_note, no_attribute
from magic_committer.filesystem.calls import FileCalls
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import (
    check_version,
    given_dict,
    plain,
    read_fields,
    refuse_missing,
)
from magic_committer.hadoop.paths import Destination, check_id, is_s3_url
from magic_committer.options import (
    SECRET_FIELDS,
    Options,
    S3Options,
    S3Place,
    Track,
    name_of,
    options_of,
    s3_of,
)
from magic_committer.protocol.ledger import StreamBatch, batch_of
from magic_committer.protocol.record import (
    StartedJob,
    State,
    TaskCommit,
    expected_of,
    result_of,
    results_of,
    task_id_of,
)
from magic_committer.runtime import wiring
from magic_committer.runtime.components import ProgressFunction, Runtime, no_progress
from magic_committer.runtime.threads import cleaning_up
from magic_committer.stores.base import transport_of
from magic_committer.upload.file import nothing

T = TypeVar("T")

logger = logging.getLogger("magic_committer")

# A job --------------------------------------------------------------------------------------------


class Job:
    """A started job. Each of its processes has a handle like this, from `start`, `attach`, a pickle
    or `from_dict`. It holds no secret, no client and no lock.

    ``with start(...) as job:`` makes sure that the job ends: if the job is not committed at the end
    of the block, it is aborted (`__enter__`).
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
        held: wiring.Held | None = None,
    ) -> None:
        self._held = {} if held is None else held
        self._started = started
        self._options = options
        self._s3 = s3
        self._state = state
        self._outcome = outcome
        self._progress = progress
        self._used: list[Iterator[Any]] = []
        self._pid = os.getpid()
        self._at_home = False  # `Writing` commits all of it itself, and nobody else ends it
        self._starter = starter
        self._entered = False
        self._end_life: Callable[[], None] = nothing
        self._report: JobReport | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self.dest} {self.state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._at_home and self._state is State.RUNNING:
            raise pickle.PicklingError(f"{self._does_not_travel()}. {WrongProcess.advice}")
        # The copy is in another process: it reports no progress and may not delete the record.
        copy = structs.replace(self._started, undisturbed=False)
        state, outcome = self._state, self._outcome
        return partial(Job, copy, self._options, self._s3, state=state, outcome=outcome), ()

    def _does_not_travel(self) -> str:
        return (
            f"job {self.id!r} is one of magic_committer.write(...), whose files are written in"
            " one process: it does not travel"
        )

    def __del__(self) -> None:
        # A block that is entered and then dropped must not stay alive for ever.
        self.__dict__.get("_end_life", nothing)()

    @property
    def id(self) -> str:
        """The job's id. It names the job's directory."""
        return self._started.id

    @property
    def uuid(self) -> str:
        """32 hex digits that name the job in tokens and unique names."""
        return self._started.uuid

    @property
    def dest(self) -> str:
        """The destination's URL, with its trailing slash."""
        return self._started.dest

    @property
    def committer(self) -> str:
        """The name of the protocol that makes its files visible: ``"magic"`` and so on."""
        return self._started.terms.committer

    @property
    def track(self) -> Track:
        """``"s3"`` or ``"memory"``: where an attempt keeps what completes its files."""
        return self._started.terms.track

    @property
    def state(self) -> State:
        """The last state of the record that this handle saw, a text like ``"running"``;
        ``"absent"`` if the record is gone. Sends nothing."""
        return self._state

    @property
    def outcome(self) -> str:
        """``"committed"``, ``"aborted"``, ``"reverted"``, or "" if the job is undecided."""
        return self._outcome

    @property
    def report(self) -> JobReport:
        """What `commit` or `abort` returned; after a failure, what is known of the job.

        Raises:
            MagicError: neither was called yet.
        """
        if self._report is None:
            raise MagicError(
                f"job {self.id!r} has no report yet",
                hint="Read it after the `with` block, or after job.commit(...) or job.abort()",
            )
        return self._report

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            call = f"{name}(...)" if hasattr(Task, name) else ""
            raise no_attribute(self, name, call, " of a task: `with job.task(1) as task:`")

    def task(self, task: str | int, *, attempt: str | None = None) -> Task:
        """Make an attempt of a task, in this process. It sends nothing. Repeatable: each call
        without ``attempt`` makes another attempt; each call with the same ``attempt`` makes
        another handle of that attempt::

            >>> job = mc.start("s3://bucket/table")
            >>> with job.task(7) as task:
            ...     with task.open("part-7.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            >>> job.commit([task.result]).files
            1

        Args:
            task: the task's id, the same for all its attempts, in the form of a job's id (`start`).
                The number 7 means ``"7"``.
            attempt: a name, unique in the job, for an attempt that several processes share. It
                needs ``track="s3"``. After an abort the name cannot be used again. None (default):
                a random name.

        Returns:
            The attempt. Open its files with `Task.open`.

        Raises:
            JobNotRunning: the job is decided.
            TaskFailed: the job belongs to a `write` block: open its files with the block's
                ``open``.
            PathError: the id cannot be used.
            WrongType: the id is neither text nor a number.
            OptionError: ``attempt`` in a job with ``track="memory"``.
        """
        self._check_running()
        name = name_of("attempt", attempt)
        return Task(self, self._committer().attempt(task_id_of(task), name))

    # For the library's own faces: `open_magic`, `write`, Spark, pickles ---------------------------

    def _sole_task(self, task: str, attempt: str) -> Task:
        """Make an attempt that only this handle opens and commits, with either ``track``. For
        engines that name their attempts: the caller knows that the name is unique in the job."""
        self._check_running()
        return Task(self, self._committer().attempt(task, attempt, sole=True))

    def _attempt_by_path(self, attempt: str) -> TaskAttempt:
        """Make an attempt whose files are closed here and which others commit: for `open_magic`."""
        self._check_running()
        return self._committer().attempt(attempt, attempt)

    def _committed_task(self, result: TaskCommit) -> Task:
        """Give the handle of a committed attempt, for a task that was pickled."""
        return Task(self, self._committer().committed_attempt(result))

    def _hand_over(self) -> Callable[[], Job]:
        """Give the job away: a function that pickles, and makes the handle of the one process that
        ends the job in place of this one. That handle may delete the record, as this one may have:
        a handle from a pickle of the job itself may not, because this process could end the job
        too. After this call it must not. Tasks may use the function as well."""
        self._check_running()
        return partial(Job, self._started, self._options, self._s3)

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
                " its own open(...) gave, and accepts no tasks",
                job_id=self.id,
                hint=WrongProcess.advice,
            )
        if self._state is not State.RUNNING:
            raise ended(self.dest, self.id, self._state, self._outcome, ", it accepts no tasks")

    # Its end --------------------------------------------------------------------------------------

    def commit(
        self,
        results: Iterable[TaskCommit | Mapping[str, Any]] | None = None,
        *,
        expect: int | Iterable[str | int] | None = None,
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """Make the job's files visible: all files of one attempt of each task, or none. Repeatable,
        also from other processes::

            >>> job = mc.start("s3://bucket/table")
            >>> results = []
            >>> for number in range(2):
            ...     with job.task(number) as task, task.open(f"{number}.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            ...     results.append(task.result)
            >>> print(job.commit(results, expect=2))
            job ... committed in s3://bucket/table/: 2 files of 2 tasks, 10 bytes, ... s

        A streaming query may run a micro-batch again, and two of its drivers may run at once. Name
        the batch, and it is published once, by whichever run is first. Each run is a job of its
        own. A call that returns means that the batch is published::

            >>> for run in range(2):
            ...     job = mc.start("s3://bucket/events", checkpoint="s3://bucket/checkpoint")
            ...     with job.task(0) as task, task.open(f"run-{run}.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            ...     report = job.commit([task.result], batch=mc.StreamBatch("query-1", 7))
            ...     print(report.outcome, report.skipped)
            committed False
            aborted True

        Args:
            results: the `Task.result` of each attempt to accept, or its ``to_dict``, one for each
                task. None (default): accept what the tasks left on the store; only for a job with
                ``accept="listing"``.
            expect: the number of tasks that there must be, or their ids. None (default): any number
                of tasks, but at least one.
            batch: the micro-batch of a streaming query that the job publishes. None (default): the
                job belongs to no query. A job with a ``checkpoint`` needs one.

        Returns:
            What became of the job. With ``batch``: ``skipped`` says that another run has published
            the batch before; then this job is aborted.

        Raises:
            WrongType: one result instead of a list, ``expect="10"``, and so on. Nothing was done.
            IncompleteJob, OptionError: nothing was decided, and the job still runs. A job without
                tasks is incomplete, unless you pass ``expect=0``.
            BatchUnsettled: with ``batch``: an earlier run of the query has begun to publish, and
                can neither be finished nor aborted now: call it again. Or the batch was published
                from another checkpoint. Nothing was decided.
            ConditionsNotSupported: with ``batch``: the job has ``conditional_writes="off"``.
                Nothing was decided.
            CommitRefused, DestinationExists, ConflictingJob: a check failed; the job is aborted.
            CommitIncomplete: the job is committed, but not all files are visible yet. Call it
                again.
            JobNotRunning: the job was aborted. With ``batch``: perhaps by another run of the query,
                which has not published the batch yet.
            OutcomeUnknown: the store does not say whether the job is committed.
            StoreError: a check could not be made. This call decided nothing; the job's record says
                what the job is. Call it again.
            TaskFailed: the job belongs to a `write` block of another process. Nothing was done.
        """
        tasks = expected_of(expect)
        results = results_of(results)
        batch = batch_of(batch) if batch is not None else None
        self._check_at_home("committed")
        if isinstance(results, Iterator):
            results = self._once(results)
        wanted: Iterable[TaskCommit] | None = None if results is None else map(result_of, results)
        if batch is not None or self._ended("committed") is None:
            with self._telling():
                committer = self._committer()
                if wanted is not None and isinstance(results, list | tuple):
                    wanted = list(wanted)  # they are all there: see `Driver`
                self._saw(committer.driver().commit(wanted, tasks, batch))
        assert self._report is not None
        return self._report

    def _once(self, results: Iterator[T]) -> Iterator[T]:
        """Refuse an iterator that an earlier call has used. An iterator gives its items once: what
        is left of it is only a part of the results. A job that is decided does not read them."""
        if any(results is used for used in self._used):
            raise OptionError(
                f"an earlier commit of job {self.id!r} has used up a part of these results, or all:"
                f" {type(results).__name__} gives them once",
                hint="Pass a list: results = list(...); job.commit(results)",
            )
        self._used.append(results)
        yield from results

    def abort(self) -> JobReport:
        """Make sure that nothing of the job is visible, now or later. Repeatable, from any
        process::

            >>> job = mc.start("s3://bucket/table")
            >>> job.abort().outcome
            'aborted'

        Returns:
            What became of the job.

        Raises:
            JobNotRunning: the job is committed.
            OptionError: this handle's terms are not those of the job's record. Nothing was done.
            AbortIncomplete: a revert of the job has not removed everything yet. Call it again.
            StoreError: the store refused a request, or cannot be reached. Call it again.
            OutcomeUnknown: the store does not say whether the job is committed.
            TaskFailed: the job belongs to a `write` block of another process. Nothing was done.
        """
        self._check_at_home("aborted")
        if self._ended("aborted", "reverted") is None:
            with self._telling():
                self._saw(self._committer().driver().abort())
        assert self._report is not None
        return self._report

    def keep_alive(self) -> Callable[[], None]:
        """Write a sign of life to the store every 5 minutes, so that a cleanup does not take the
        job for dead. Call it in the process that drives a job of `start` if the job may be silent
        for hours. `write`, ``with start(...) as job:`` and the Spark functions do it themselves.
        Returns a function that stops the signs; call it when the job has ended. It never blocks.
        """
        give = partial(give_sign_of_life, self._committer().runtime, self._started)
        return wiring.pool.every(ALIVE_SECONDS, give)

    def __enter__(self) -> Job:
        """Begin a block. When the block ends, the job is over::

            >>> with mc.start("s3://bucket/table") as job:
            ...     with job.task(1) as task, task.open("a.csv", "w") as file:
            ...         _ = file.write("1,2,3")
            ...     report = job.commit([task.result])
            >>> report.outcome
            'committed'

        The job commits only by a call of `commit` in the block. At the end of the block:

        * The job was committed or aborted: nothing more happens. A commit that raised
          `CommitIncomplete` counts: the job is decided, and is never aborted.
        * An exception, also Ctrl-C, ends the block: the job is aborted, and the exception goes on.
          Messages of the abort become a note on it.
        * The block ends normally without a commit: the job is aborted, with a warning in the log.
        * Another process has committed the job: it stays committed. If the store does not say so,
          `OutcomeUnknown` is raised.
        * A forked child leaves the block: nothing happens to the job. If no exception ended the
          child's block, `TaskFailed` is raised.

        Inside the block the job gives signs of life, as with `keep_alive`.

        Raises:
            MagicError: this handle did not start the job (it is from `attach`, a pickle or
                `from_dict`): the end of the block would abort what other processes are working on.
                Also: the block is entered a second time, or the job belongs to a `write` block.
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._pid != os.getpid():
            leave_alone(self, self._pid, error)
            return
        over = self.outcome and self.state in (State.ABSENT, State.CLOSED)  # nothing is left to do
        decided = isinstance(error, CommitIncomplete) and error.job_id == self.id
        try:
            if error is None:
                abort_uncommitted(self)
            elif not (over or decided):
                give_up(self, error)
        finally:
            self._end_life()

    # Its way to other processes -------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Describe the job as plain JSON values, for schedulers that pass JSON (Airflow's XCom)::

            >>> import json
            >>> text = json.dumps(mc.start("s3://bucket/table", job_id="nightly").to_dict())
            >>> mc.Job.from_dict(json.loads(text))
            <Job 'nightly' s3://bucket/table/ running>

        The dict, for `from_dict`, holds what a pickle holds, and no secret: keys, tokens and
        passwords in ``s3`` are left out; ``progress`` too. Sends nothing. Repeatable. Raises
        MagicError: the job belongs to a `write` block that still runs.
        """
        if self._at_home and self._state is State.RUNNING:
            raise MagicError(self._does_not_travel(), hint=WrongProcess.advice)
        return _to_values(self._started, self._options, self._s3, self._state, self._outcome)

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        *,
        s3: S3Options | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
        **place: Unpack[S3Place],
    ) -> Job:
        """Make a handle in this process from what `to_dict` gave. Sends nothing. Repeatable.

        Args:
            values: the dict that `to_dict` gave, also after a way through JSON.
            s3, options: None (default): as the dict says. The dict holds no secrets: they come from
                ``s3`` or from this process's environment.
            progress, place: as for `start`.

        Returns:
            The job. ``with`` does not take it, as for `attach`.

        Raises:
            WrongType: ``values`` is not a dict, for example JSON text.
            FormatError: a field is unknown, of the wrong type, impossible or missing (but a missing
                option has its default), or another version of the library wrote it.
        """
        job = _from_values(values)
        options = job.options if options is None else options_of(options)
        s3 = s3_of(s3, place) if s3 is not None or place else job.s3
        state, outcome = job.state, job.outcome
        return cls(job.started, options, s3, state=state, outcome=outcome, progress=progress)

    def _ended(self, *outcomes: str) -> JobReport | None:
        """Give the report if this handle has seen the job end in one of ``outcomes``; None if there
        is still work to do. Raises if the job ended in another way."""
        if self._report is None or self._state not in (State.ABSENT, State.CLOSED):
            return None
        if self._report.outcome in outcomes:
            return self._report
        if self._outcome == "":
            return None
        raise ended(self.dest, self.id, self._state, self._outcome)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Put an error of the block into the report: it says what became of the job."""
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
            transport = ""
            with suppress(MagicError):  # the error that is being reported comes first
                transport = transport_of(self._committer().runtime.store)
            self._report = JobReport(
                self.id, self.uuid, self.dest, self._started.terms.mode, self._outcome,
                self._state.value, error=f"{type(error).__name__}: {error}", transport=transport,
            )  # fmt: skip
            if isinstance(error, CommitIncomplete) and error.report is None:
                error.report = self._report
            raise

    def _saw(self, report: JobReport) -> None:
        self._report = report
        self._state, self._outcome = State(report.state), report.outcome

    def _runtime(self, bucket: str) -> Runtime:
        return wiring.runtime_for(bucket, self._s3, self._progress, self._held)

    def _sink(self, attempt: TaskAttempt) -> Sink:
        return Sink(attempt, self._runtime, self._options.block_bytes)

    def _committer(self) -> JobCommitter:
        started = self._started
        if self._pid != os.getpid():  # a forked copy counts like a pickled one
            started = structs.replace(started, undisturbed=False)
        runtime = self._runtime(started.paths.dest.bucket)
        kind = named(started.terms.committer)
        return kind(runtime, started, self._options, wiring.blocks)


# A task -------------------------------------------------------------------------------------------


class Task(FileCalls):
    """One attempt of one task, from `Job.task`. Use it with ``with``: if the block ends normally,
    the attempt commits; if an exception ends it, the attempt aborts.

    With ``track="s3"`` it pickles: one process may write it and another commit it. The handle
    belongs to the process that made it. In a forked child `open`, `commit` and `abort` raise, and
    the end of the ``with`` block sends nothing.
    """

    def __init__(self, job: Job, attempt: TaskAttempt) -> None:
        self._job = job
        self._attempt = self._of = attempt
        self._make_sink = job._sink

    def __repr__(self) -> str:
        return f"<Task {self._attempt!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._attempt.result is not None:
            return self._job._committed_task, (self._attempt.result,)
        if self._attempt.has_files and self._job.track == "memory":
            raise pickle.PicklingError(
                "a task that has opened files keeps them in this process: commit it here, or start"
                " the job with track='s3'"
            )
        if self._job.track == "memory":
            return self._job.task, (self.task_id,)
        self._attempt.share()
        return partial(self._job.task, self.task_id, attempt=self.attempt_id), ()

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._attempt.task

    @property
    def attempt_id(self) -> str:
        """The attempt's name, unique in the job. For logs. To let another process commit the
        attempt, pickle the task or give `Job.task` a name: its files then check whether another
        process has committed it. With ``track="s3"`` each copy of a pickled task is this attempt,
        which closes a file of one name once: what may run twice gets the job, and calls `Job.task`
        itself."""
        return self._attempt.attempt

    @property
    def committed(self) -> bool:
        """Whether the attempt is committed. A committed attempt alone makes nothing visible."""
        return self._attempt.result is not None

    @property
    def result(self) -> TaskCommit:
        """What `commit` returned, for `Job.commit`. It is small, pickles, and is JSON by
        ``to_dict``.

        Raises:
            MagicError: the attempt is not committed.
        """
        if self._attempt.result is None:
            raise MagicError(
                f"attempt {self.attempt_id!r} is not committed",
                hint="Leave `with task:` normally first, or call task.commit()",
            )
        return self._attempt.result

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads, so that the job can accept them. Nothing becomes visible.
        Waits for closed files that are still being sent. Repeatable. The normal end of a ``with``
        block calls it::

            >>> task = mc.start("s3://bucket/table").task("7")
            >>> with task.open("part-7.csv", "w") as file:
            ...     _ = file.write("1,2,3")
            >>> task.commit().bytes
            5

        Returns:
            The result to pass to `Job.commit`. Send it to the driver by pickle or by its
            ``to_dict``.

        Raises:
            FileStillOpen, JobNotRunning, StoreError: the attempt does not count.
            UploadFailed: a file that was closed could not be stored; a note names it. The attempt
                does not count.
            TaskFailed: the attempt does not count. If it was aborted, by any handle, it never will:
                give the next attempt another name. Also raised if another thread commits or aborts
                it now: then nothing was done.
        """
        return self._attempt.commit()

    def abort(self) -> None:
        """Abort the attempt's uploads. Repeatable; a missing attempt is no error. Afterwards nobody
        can commit an attempt of that name.

        When the job has ended, there is nothing to abort and no trace of its attempts. The call
        then returns normally, even if another handle had committed the attempt and the job has
        published it. Published files stay; `Job.outcome` and the job's report say so.

        Raises:
            TaskFailed: the attempt is committed or may be committed, another thread is committing
                it, or it belongs to another process. Nothing was done.
            StoreError, FormatError: not everything could be undone. Call it again. The end of the
                job sweeps the rest.
        """
        self._attempt.abort()

    def __enter__(self) -> Task:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._attempt.commit()
            return
        try:
            with cleaning_up(error):
                self._attempt.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt_id!r} failed too: {failure}")


# Leaving `with` -----------------------------------------------------------------------------------


def give_up(
    job: Job, error: BaseException, before: Callable[[BaseException], object] = nothing
) -> None:
    """Abort a job because of ``error``, after a call of ``before``. Messages of the abort become a
    note on it. Not for `CommitIncomplete`: that job must never be aborted."""
    if job.outcome == "committed" and not isinstance(error, Exception):
        return  # Ctrl-C after the decision: a note says how to finish the job
    try:
        with cleaning_up(error):
            before(error)
            if job.outcome not in ("aborted", "reverted"):
                _abort(job, error)
    except BaseException as interrupt:  # a second Ctrl-C
        add_note(interrupt, *_may_be_running(job))
        raise


def _abort(job: Job, error: BaseException) -> None:
    failed = job._report
    try:
        job.abort()
        if not isinstance(error, Exception):
            error.add_note(f"job {job.id!r} is aborted: nothing of it is visible")
    except JobNotRunning as decided:
        if decided.outcome == "committed":
            add_note(error, f"job {job.id!r} is committed all the same", finish(job.dest, job.id))
    except MagicError as failure:
        error.add_note(f"aborting job {job.id!r} failed too: {failure}")
        add_note(error, *_may_be_running(job))
    if job._report is not None:
        reason = failed.error if failed is not None else f"{type(error).__name__}: {error}"
        job._report = replace(job._report, error=reason)


def _may_be_running(job: Job) -> tuple[str, Remedy]:
    return (
        f"job {job.id!r} may be running still",
        end(job.dest, job.id, "this ends it, or says that it is committed"),
    )


def abort_uncommitted(job: Job) -> None:
    """Abort a job whose block ended normally without a commit; one that another process has
    committed stays. Raises what `Job.abort` raises."""
    if job.outcome:
        return
    try:
        job.abort()
    except JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        if job._report is not None:  # a failed abort of a committed job is no failure here
            job._report = replace(job._report, error="")
        logger.info("job %s: another process has committed it", job.id)
        return
    logger.warning(
        "job %s: `with` was left without a commit: the job is aborted, nothing of it is visible",
        job.id,
    )


def leave_alone(job: Job, owner: int, error: BaseException | None) -> None:
    """Do nothing to the job: a forked child has left the block. Raises TaskFailed: the block ended
    normally. Otherwise a note on ``error`` says the same."""
    message = (
        f"job {job.id!r} belongs to process {owner}, this is process {os.getpid()}: it was"
        " neither committed nor aborted here"
    )
    if error is None:
        raise TaskFailed(message, job_id=job.id, hint=WrongProcess.advice)
    error.add_note(message)


# A job as JSON ----------------------------------------------------------------------------------

_VERSION = 1
"""The version of this form. A reader knows exactly this one, and is strict: another version or a
person may have written the text."""
_SOURCE = "Job.from_dict"
"""The place of a mistake, as errors name it."""
_UUID = re.compile(r"[0-9a-f]{32}")
_HERE_ONLY = "undisturbed"
"""What does not travel of a `StartedJob`: another process did not write the record."""


@documents.readable
class _TravellingJob(StartedJob, frozen=True, kw_only=True):
    """The fields of a job's handle. An option that is missing has its default: the version that
    wrote the text did not know it. Terms are those of the record, and none is guessed."""

    state: State
    outcome: Literal["", "committed", "aborted", "reverted"]
    options: Options
    s3: S3Options

    @property
    def started(self) -> StartedJob:
        """The job, for a process that has not started it."""
        return StartedJob(*(getattr(self, name) for name in StartedJob.__struct_fields__))


def _to_values(
    started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str
) -> dict[str, Any]:
    """Give plain JSON values; of ``s3`` without the secrets and the defaults, which the reader has
    of its own."""
    default = S3Options()
    given = {
        name: list(map(list, value)) if name == "tags" else value
        for name, value in s3.travelling().items()
        if value != getattr(default, name)
    }
    values = {"version": _VERSION, **plain(started), "state": state.value, "outcome": outcome}
    del values[_HERE_ONLY]
    return {**values, "options": plain(options), "s3": given}


def _from_values(values: object) -> _TravellingJob:
    """Read what `_to_values` gave. Raises WrongType: the value is not a dict. Raises FormatError: a
    field is missing, unknown, of the wrong type, or impossible."""
    document = given_dict(values, "Job")
    check_version(document, _SOURCE, _VERSION, SAME_VERSION)
    for name in document["s3"] if isinstance(document.get("s3"), dict) else ():
        if name in SECRET_FIELDS:
            told = "is unknown and is never part of this: a secret does not travel"
            raise FormatError(_SOURCE, f"s3.{name}", told)
    if _HERE_ONLY in document:
        raise FormatError(_SOURCE, _HERE_ONLY, "is unknown to this version")
    document[_HERE_ONLY] = False
    refuse_missing(StartedJob, document, _SOURCE)
    job = read_fields(_TravellingJob, document, _SOURCE)
    if not _UUID.fullmatch(job.uuid):
        raise FormatError(_SOURCE, "uuid", f"is {job.uuid!r}, not 32 hexadecimal digits")
    if job.adopted and not is_s3_url(job.dest):
        raise FormatError(_SOURCE, "adopted", f"is {job.adopted!r}: the job is not on S3")
    checks: list[tuple[str, Callable[[], object]]] = [
        ("id", lambda: check_id("job id", job.id)),
        ("dest", lambda: Destination.parse(job.dest)),
        ("adopted", lambda: job.paths),
    ]
    for name, check in checks:
        try:
            check()
        except PathError as error:
            raise FormatError(_SOURCE, name, error.message, hint=error.hint) from error
    if Destination.parse(job.dest).url != job.dest:
        raise FormatError(_SOURCE, "dest", f"is {job.dest!r}, not as a job writes it")
    return job

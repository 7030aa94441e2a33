"""Start here: `write` in one process; `start` and `attach` from many; `open_magic` for a path.

This is where the parts are wired together, once: the only module that knows stores by name. A `Job`
is a value: it pickles, holds no client and no lock, and finds the store again in every process that
it reaches, through that process's environment.

::

    with mc.write("s3://bucket/table") as job:           # leaves normally: commit; else: abort
        with job.open("year=2026/part-0.csv", "w") as f:
            f.write("1,2,3\\n")

    job = mc.start("s3://bucket/table")                   # many processes
    with job.task("7") as task:                           # in any of them, as often as it takes
        with task.open("part-7.csv", "w") as f: ...
    report = job.commit([task.result])                    # in one
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, overload

from magic_committer.commit import records
from magic_committer.committers.magic import Attempt, MagicCommitter, open_plain
from magic_committer.errors import (
    CommitIncomplete,
    JobNotFound,
    JobNotRunning,
    MagicError,
    OptionError,
    PathError,
)
from magic_committer.job import OUTCOMES, JobReport, StartedJob, State, TaskCommit, Terms
from magic_committer.options import Accept, Mode, Options, S3Options, Track
from magic_committer.paths import Destination, JobPaths, MagicPath, parse_magic_path
from magic_committer.pool import ThreadPool
from magic_committer.runtime import ProgressFunction, Runtime, no_progress
from magic_committer.store import Attributes, ObjectStore
from magic_committer.upload import BlockSource, TextUpload, UploadStream

logger = logging.getLogger("magic_committer")

_pool = ThreadPool()
_blocks = BlockSource()
_registered: dict[str, ObjectStore] = {}


def register_store(store: ObjectStore) -> None:
    """Use ``store`` for its bucket in this process, in place of S3: for tests (see
    `magic_committer.testing`) and for stores of one's own."""
    _registered[store.bucket] = store


def unregister_store(store: ObjectStore) -> None:
    """Undo `register_store`."""
    _registered.pop(store.bucket, None)


def _runtime(bucket: str, s3: S3Options, progress: ProgressFunction) -> Runtime:
    store = _registered.get(bucket)
    if store is None:
        from magic_committer.s3.client import connect  # late: boto3 takes a while to import

        store = connect(bucket, s3)
    _pool.ready_for_late()
    return Runtime(store=store, pool=_pool, progress=progress)


class Task:
    """One attempt of one task. Use it as a context manager: leaving normally commits the attempt,
    leaving by exception aborts it.

    With ``track="s3"`` it pickles: it may be written in one process and committed in another.
    """

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job = job
        self._attempt = attempt

    def __repr__(self) -> str:
        return f"<Task {self._attempt!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._attempt.has_files and self._job.track == "memory":
            raise pickle.PicklingError(
                "a task that has opened files keeps them in this process: commit it here, or start"
                " the job with track='s3'"
            )
        if self._job.track == "memory":
            return _new_task, (self._job, self.task_id, None)
        return _new_task, (self._job, self.task_id, self.attempt_id)

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._attempt.task

    @property
    def attempt_id(self) -> str:
        """The attempt's name, unique in the job."""
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
                and uploads of killed tasks are recognised and swept.
            attributes: content type, user metadata, storage class and so on of the object.

        Raises:
            PathError, TaskFailed, ValueError (mode). The upload's own failure shows at the next
            call on the file.
        """
        text = _text_options(mode, encoding, errors, newline)
        stream = self._attempt.open(
            name, unique=unique, attributes=attributes if attributes is not None else Attributes()
        )
        return stream if text is None else TextUpload(stream, **text)

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads so that the job can accept them. Nothing becomes visible.
        Repeatable.

        Raises:
            FileStillOpen, TaskFailed, JobNotRunning, StoreError: the attempt does not count.
        """
        return self._attempt.commit()

    def abort(self) -> None:
        """Abort the attempt's uploads. Repeatable; a missing attempt aborts well."""
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
            self._attempt.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt_id!r} failed too: {failure}")


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
        self.report: JobReport | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self.dest} {self.state}>"

    def __reduce__(self) -> tuple[Any, ...]:
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
                ``track="s3"``.

        Raises:
            JobNotRunning: the job is decided.
        """
        self._check_running()
        return Task(self, self._committer().attempt(str(task), attempt))

    def attempt_by_path(self, attempt: str) -> Attempt:
        """An attempt whose files are closed here and which others commit: for `open_magic`."""
        self._check_running()
        return self._committer().attempt(attempt, attempt, by_path=True)

    def _check_running(self) -> None:
        if self._state is not State.RUNNING:
            raise JobNotRunning(
                f"job {self.id!r} is {self.state}, it takes no more tasks",
                job_id=self.id,
                state=self._state,
                outcome=self._outcome,
                hint="Start a new job",
            )

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
            IncompleteJob, OptionError: nothing was decided, the job is still running.
            CommitRefused, DestinationExists: a check said no; the job is aborted.
            CommitIncomplete: committed, but not all is visible yet; call it again.
            JobNotRunning: it was aborted.
            OutcomeUnknown: it cannot be told.
            StoreError: a check could not be made; nothing was decided.
        """
        if self.report is not None and self.report.outcome == "committed" and self._finished:
            return self.report
        return self._reported(lambda: self._committer().commit_job(results, expect))

    def abort(self) -> JobReport:
        """Make sure that nothing of the job is visible, now or later. Repeatable.

        Raises:
            JobNotRunning: it is committed.
            OutcomeUnknown: it cannot be told.
        """
        if self.report is not None and self.report.outcome == "aborted" and self._finished:
            return self.report
        return self._reported(lambda: self._committer().abort_job())

    @property
    def _finished(self) -> bool:
        return self._state in (State.ABSENT, State.CLOSED)

    def _reported(self, step: Any) -> JobReport:
        try:
            report: JobReport = step()
        except BaseException as error:
            if isinstance(error, JobNotRunning):
                self._outcome = error.outcome
                self._state = State(error.state) if error.state else self._state
            if isinstance(error, CommitIncomplete):
                self._state, self._outcome = State.COMMITTING, "committed"
            self.report = JobReport(
                job_id=self.id,
                uuid=self.uuid,
                dest=self.dest,
                mode=self._started.terms.mode,
                outcome=self._outcome,
                state=self._state,
                error=f"{type(error).__name__}: {error}",
            )
            raise
        self.report = report
        self._state, self._outcome = State(report.state), report.outcome
        return report

    def _committer(self) -> MagicCommitter:
        bucket = Destination.parse(self.dest).bucket
        runtime = _runtime(bucket, self._s3, self._progress)
        return MagicCommitter(runtime, self._started, self._options, _blocks)


def _job(started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str) -> Job:
    return Job(started, options, s3, state=state, outcome=outcome)


def start(
    dest: str,
    *,
    mode: Mode = "append",
    accept: Accept = "listing",
    track: Track = "s3",
    job_id: str | None = None,
    exclusive: bool = False,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Job:
    """Start a job whose tasks run in many processes.

    Args:
        dest: ``s3://bucket/prefix`` (``s3a://`` and ``s3n://`` are read alike).
        mode: ``"append"``: beside what is there. ``"fail"``: only if nothing is there.
        accept: ``"listing"``: `Job.commit` may take what the tasks left on the store.
            ``"results"``: only what is passed to it; for engines whose tasks can be cut short.
        track: ``"s3"``: each closed file is saved, any process may commit the attempt.
            ``"memory"``: the handle that opened the files commits them; the fewest requests.
        job_id: a name for the job's directory, used once; None: one is drawn.
        exclusive: nobody else writes under ``dest``: sweep every open upload there.
        mark_success: write `_SUCCESS`.
        s3: the way to the store; None: the environment.
        options: sizes and numbers; None: the defaults.
        progress: told of long steps; called from this process's threads.

    Raises:
        PathError, OptionError, JobExists, DestinationExists, ConflictingJob,
        ConditionsNotSupported, OutcomeUnknown, StoreError. None leaves anything behind.
    """
    options = options if options is not None else Options()
    s3 = s3 if s3 is not None else S3Options()
    destination = Destination.parse(dest)
    terms = Terms(
        mode=mode,
        accept=accept,
        track=track,
        exclusive=exclusive,
        mark_success=mark_success,
        checksum=options.checksum,
        etag_form=options.etag_form,
        conditional_writes=options.conditional_writes,
    )
    runtime = _runtime(destination.bucket, s3, progress)
    committer = MagicCommitter.setup(runtime, destination, terms, options, _blocks, job_id)
    return Job(committer.job, options, s3, progress=progress)


def attach(
    dest: str,
    job_id: str,
    *,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Job:
    """A handle on a job that knows only the names. One GET; never creates anything.

    A running job takes tasks and commits; a decided one has `Job.state` and `Job.outcome`, and its
    `Job.commit` or `Job.abort` finishes what was decided.

    Raises:
        JobNotFound: there is no record: it may have committed, been aborted, or never been.
    """
    options = options if options is not None else Options()
    s3 = s3 if s3 is not None else S3Options()
    destination = Destination.parse(dest)
    runtime = _runtime(destination.bucket, s3, progress)
    seen = records.read(runtime, JobPaths(destination, job_id).record)
    if seen is None:
        raise JobNotFound(
            f"there is no job {job_id!r} under {destination.url}",
            job_id=job_id,
            hint="It may have ended, either way, or never been: look at the destination",
        )
    record = seen.record
    running = record.state is State.RUNNING
    started = StartedJob(
        id=record.id,
        uuid=record.uuid,
        dest=destination.url,
        terms=record.terms,
        given_id=record.given_id,
        fence_etag=seen.etag if running else "",
        undisturbed=False,
    )
    outcome = record.outcome or OUTCOMES.get(record.state, "")
    return Job(started, options, s3, state=record.state, outcome=outcome, progress=progress)


class Writing:
    """What ``with write(...) as job`` gives: one job of one task, in one process."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._job: Job | None = None
        self._task: Task | None = None

    def __repr__(self) -> str:
        return f"<Writing {self._job!r}>"

    @property
    def job(self) -> Job:
        """The job. Only inside and after ``with``."""
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
        self._job = start(**self._arguments)
        self._task = self._job.task("0")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Abort because of ``error``; what the abort has to say becomes a note on it."""
        assert self._task is not None
        if self.job.outcome in ("aborted", "reverted"):
            return
        failed = self.job.report
        try:
            if not self._task.committed:
                self._task.abort()
            self.job.abort()
        except JobNotRunning as decided:
            if decided.outcome == "committed":
                error.add_note(
                    f"job {self.id!r} is committed all the same. Finish it:"
                    f" magic_committer.attach({self.job.dest!r}, {self.id!r}).commit()"
                )
        except MagicError as failure:
            error.add_note(f"aborting job {self.id!r} failed too: {failure}")
        if self.job.report is not None:
            reason = failed.error if failed is not None else f"{type(error).__name__}: {error}"
            self.job.report = replace(self.job.report, error=reason)


def write(
    dest: str,
    *,
    mode: Mode = "append",
    exclusive: bool = False,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Writing:
    """Write files from one process, all or none::

        with write("s3://bucket/table") as job:
            with job.open("a.csv", "w") as f:
                f.write("1,2,3\\n")
        print(job.report)

    Leaving ``with`` normally commits; leaving it by any exception aborts, and a failure of the
    abort is a note on that exception. The arguments are those of `start`.

    Raises:
        As `start` on entering and `Job.commit` on leaving; `FileStillOpen` for a file that was not
        closed. Before the decision the job is aborted; after it `CommitIncomplete` names the call
        that finishes it, and nothing is ever aborted.
    """
    return Writing(
        {
            "dest": dest,
            "mode": mode,
            "accept": "results",
            "track": "memory",
            "exclusive": exclusive,
            "mark_success": mark_success,
            "s3": s3,
            "options": options,
            "progress": progress,
        }
    )


def open_magic(
    path: str,
    mode: str = "wb",
    *,
    fence: bool = True,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
) -> UploadStream | TextUpload:
    """Open a file by its magic path; a path of a started job is enough::

        start("s3://bucket/t", job_id="1")
        open_magic("s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv")

    The task's attempt is committed by whoever knows the names:
    ``attach("s3://bucket/t", "1").task("a", attempt="a_0").commit()``.

    Args:
        fence: False: a plain Hadoop-shaped upload on any legal magic path, without a job of ours:
            S3A's guarantees only; Hadoop's committer commits it.

    Raises:
        JobNotRunning: there is no running job of that id; says which call starts it.
        PathError: not a magic path of a job, or one that would lose data.
        OptionError: the job tracks in memory: its attempts cannot be shared.
    """
    options = options if options is not None else Options()
    s3 = s3 if s3 is not None else S3Options()
    text = _text_options(mode, encoding, errors, newline)
    parsed = parse_magic_path(path)
    attributes = attributes if attributes is not None else Attributes()
    runtime = _runtime(parsed.dest.bucket, s3, no_progress)
    if not fence:
        stream = open_plain(runtime, parsed, options, _blocks, attributes)
    else:
        stream = _open_fenced(path, parsed, options, s3, attributes)
    return stream if text is None else TextUpload(stream, **text)


def _open_fenced(
    path: str, parsed: MagicPath, options: Options, s3: S3Options, attributes: Attributes
) -> UploadStream:
    if parsed.job_id is None or parsed.attempt is None:
        raise PathError(
            f"{path} does not name a job and an attempt",
            hint="Write .../__magic_job-<id>/job-<id>/00/tasks/<attempt>/__base/<name>, or pass"
            " fence=False for the older Hadoop shapes",
        )
    try:
        job = attach(parsed.dest.url, parsed.job_id, s3=s3, options=options)
    except JobNotFound as error:
        raise JobNotRunning(
            f"there is no job {parsed.job_id!r} under {parsed.dest.url}",
            job_id=parsed.job_id,
            state=State.ABSENT,
            hint=f"Start it first: magic_committer.start({parsed.dest.url!r},"
            f" job_id={parsed.job_id!r})",
        ) from error
    if job.track == "memory":
        raise OptionError(
            f"job {job.id!r} was started with track='memory': its files are opened by its tasks",
            hint="Start the job with track='s3' to open files by path",
        )
    return job.attempt_by_path(parsed.attempt).open(
        parsed.name, unique=False, attributes=attributes
    )


def _text_options(
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

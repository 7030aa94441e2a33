"""Start here: `write` in one process; `start` and `attach` from many; `open_magic` for a path.

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

from typing import overload

from magic_committer import _wiring
from magic_committer._arguments import attributes_of, name_of, options_of, s3_of
from magic_committer._hints import ENDED_OR_NEVER
from magic_committer._modes import SparkMode, mode_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.commit import records
from magic_committer.commit.outcome import outcome_of
from magic_committer.committers.magic import MagicCommitter, open_plain
from magic_committer.errors import JobNotFound, JobNotRunning, OptionError, PathError
from magic_committer.hadoop.paths import Destination, JobPaths, MagicPath, parse_magic_path
from magic_committer.job import BinaryMode, Job, TextMode, Writing, text_options
from magic_committer.options import Accept, Mode, Options, S3Options, Track
from magic_committer.protocol.record import StartedJob, State, Terms
from magic_committer.remedy import Remedy
from magic_committer.stores.base import Attributes
from magic_committer.upload import TextUpload, UploadStream


def start(
    dest: str,
    *,
    mode: Mode | SparkMode = "append",
    accept: Accept = "listing",
    track: Track = "s3",
    job_id: str | None = None,
    exist_ok: bool = False,
    exclusive: bool = False,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Job:
    """Start a job whose tasks run in many processes::

        >>> with mc.start("s3://bucket/table", mode="overwrite") as job:
        ...     with job.task(1) as task, task.open("a.csv", "w") as file:
        ...         _ = file.write("1,2,3")
        ...     report = job.commit([task.result])
        >>> report.outcome, report.files
        ('committed', 1)

    A start task that may be retried gives an id, and takes the job that is there already::

        >>> first = mc.start("s3://bucket/table", job_id="2026-11-21", exist_ok=True)
        >>> again = mc.start("s3://bucket/table", job_id="2026-11-21", exist_ok=True)
        >>> again.uuid == first.uuid
        True

    Repeatable without an id: each call is a job of its own. With one, see ``exist_ok``.

    Args:
        dest: ``s3://bucket/prefix`` (``s3a://`` and ``s3n://`` are read alike).
        mode: what the job does where there is data. ``"append"``: writes beside it. ``"fail"``:
            raises. ``"replace"``: replaces all of it. ``"fail_partitions"``,
            ``"replace_partitions"``: the same for the partitions that it writes. Spark's words are
            understood too, all in any case: ``"error"``, ``"errorifexists"``, ``"overwrite"``,
            ``"overwrite_partitions"``.
        accept: ``"listing"``: `Job.commit` may take what the tasks left on the store.
            ``"results"``: only what is passed to it; for engines whose tasks can be cut short.
        track: ``"s3"``: each closed file is saved, any process may commit the attempt.
            ``"memory"``: the handle that opened the files commits them; the fewest requests. With
            either a forked child cannot use a task of its parent: send the job, and let it run
            ``with job.task(id)`` itself.
        job_id: a name for the job's directory, used once, ``[A-Za-z0-9._=-]{1,128}``; None: one is
            drawn.
        exist_ok: a running job of that ``job_id`` is taken, if it was started with the same terms
            (``mode``, ``accept``, ``track``, ``exclusive``, ``mark_success``, and of ``options``
            ``checksum``, ``etag_form``, ``conditional_writes``). Of two calls at once one starts
            the job, the other takes it. All checks of a start are made again; one that says no
            leaves the job as it is. If the call that started it takes it back, it is aborted for
            both. False: a job that exists is `JobExists`.
        exclusive: nobody else writes under ``dest``: sweep every open upload there.
        mark_success: write `_SUCCESS`.
        s3: the way to the store; None: the environment.
        options: sizes and numbers; None: the defaults.
        progress: told of long steps; called from this process's threads.

    Returns:
        The job, running. ``with`` aborts what is not committed when the block ends.

    Raises:
        WrongType: a `Path` for ``dest``, a dict for ``s3`` and the like. Nothing was sent.
        PathError, OptionError: an argument cannot be used. Nothing was sent.
        JobExists: the id was used before; with ``exist_ok``: by a job with other terms, or it left
            objects without a record.
        JobNotRunning: with ``exist_ok``: the job of that id is decided; its ``outcome`` tells how.
        DestinationExists: mode ``fail``, and there is data.
        ConflictingJob: a live job excludes this one, or the reverse.
        ConditionsNotSupported: the store does not keep what the job rests on.
        OutcomeUnknown: the store gave no clear answer. With ``exist_ok`` call it again.
        StoreError: the store refused a request, or cannot be reached.

        FormatError: with ``exist_ok``: the job's record cannot be read.

        After an error nothing of the job will become visible, unless it was there before, or
        another call with ``exist_ok`` has taken it: then its record tells. A job that this call
        began is taken back; its given id stays ``closed``, and cannot be used again. Only where no
        record came about (JobExists, most StoreErrors, OutcomeUnknown) can the id still be used.
    """
    options, s3 = options_of(options), s3_of(s3)
    job_id = name_of("job_id", job_id)
    if exist_ok and job_id is None:
        raise OptionError(
            "exist_ok=True needs a job_id: without one each call draws another",
            hint="Give what the retry gives too: job_id='2026-11-21'",
        )
    destination = Destination.parse(dest)
    terms = Terms(
        mode=mode_of(mode),
        accept=accept,
        track=track,
        exclusive=exclusive,
        mark_success=mark_success,
        checksum=options.checksum,
        etag_form=options.etag_form,
        conditional_writes=options.conditional_writes,
    )
    runtime = _wiring.runtime_for(destination.bucket, s3, progress)
    committer = MagicCommitter.setup(
        runtime, destination, terms, options, _wiring.blocks, job_id, said_mode=mode, join=exist_ok
    )
    return Job(committer.job, options, s3, progress=progress, starter=True)


def attach(
    dest: str,
    job_id: str,
    *,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Job:
    """A handle on a job of which only the names are known. One GET; never creates anything.
    Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> mc.attach("s3://bucket/table", "nightly").state == "running"
        True

    A running job takes tasks and commits; a decided one has `Job.state` and `Job.outcome`, and its
    `Job.commit` or `Job.abort` finishes what was decided.

    Args:
        dest: the destination that the job was started with.
        job_id: the id that it was started with, or `Job.id`.
        s3: the way to the store; None: the environment.
        options: sizes and numbers; None: the defaults. What the job's record says goes before.
        progress: told of long steps; called from this process's threads.

    Raises:
        JobNotFound: there is no record: it may have committed, been aborted, or never been.
        FormatError: the record cannot be read, or a newer version wrote it.
        WrongType, PathError, OptionError: as `start`. StoreError: the store did not tell.
    """
    options, s3 = options_of(options), s3_of(s3)
    destination = Destination.parse(dest)
    paths = JobPaths(destination, name_of("job_id", job_id) or "")
    runtime = _wiring.runtime_for(destination.bucket, s3, progress)
    seen = records.read(runtime, paths.record)
    if seen is None:
        raise JobNotFound(
            f"there is no job {job_id!r} under {destination.url}",
            job_id=job_id,
            hint=ENDED_OR_NEVER,
        )
    record = seen.record
    return Job(
        StartedJob.attached(record, destination.url, seen.etag),
        options,
        s3,
        state=record.state,
        outcome=outcome_of(record),
        progress=progress,
    )


def write(
    dest: str,
    *,
    mode: Mode | SparkMode = "append",
    exclusive: bool = False,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Writing:
    r"""Write files from one process, all or none::

        >>> with mc.write("s3://bucket/table") as job:
        ...     with job.open("a.csv", "w") as file:
        ...         _ = file.write("1,2,3\n")
        >>> print(job.report)
        job ... committed in s3://bucket/table/: 1 file of 1 task, 6 bytes, ... s

    Leaving ``with`` normally commits; leaving it by any exception aborts, and a failure of the
    abort is a note on that exception. The job starts when ``with`` is entered.

    Args:
        dest, mode, exclusive, mark_success, s3, options, progress: those of `start`.

    Returns:
        What ``with`` takes: see `Writing`. Each is used once.

    Raises:
        WrongType, PathError, OptionError: at once, as `start`. What else `start` raises comes when
        ``with`` is entered, what `Job.commit` raises when it is left.
    """
    Destination.parse(dest)
    mode_of(mode)
    options, s3 = options_of(options), s3_of(s3)

    def begin() -> Job:
        return start(
            dest,
            mode=mode,
            accept="results",
            track="memory",
            exclusive=exclusive,
            mark_success=mark_success,
            s3=s3,
            options=options,
            progress=progress,
        )

    return Writing(begin)


@overload
def open_magic(
    path: str,
    mode: BinaryMode = "wb",
    *,
    fence: bool = True,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
) -> UploadStream: ...
@overload
def open_magic(
    path: str,
    mode: TextMode,
    *,
    fence: bool = True,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
) -> TextUpload: ...
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

        >>> job = mc.start("s3://bucket/t", job_id="1")
        >>> path = "s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv"
        >>> with mc.open_magic(path, "w") as file:
        ...     _ = file.write("1,2,3")

    The task's attempt is committed by whoever knows the names::

        >>> mc.attach("s3://bucket/t", "1").task("a", attempt="a_0").commit().files
        1

    Not repeatable: a name is opened once in an attempt.

    Args:
        path: ``<dest>/__magic_job-<id>/job-<id>/00/tasks/<attempt>/__base/<name>``.
        mode, encoding, errors, newline, attributes: as for `Task.open`.
        fence: False: a plain Hadoop-shaped upload on any legal magic path, without a job of ours:
            S3A's guarantees only; Hadoop's committer commits it.
        s3: the way to the store; None: the environment.
        options: sizes and numbers; None: the defaults.

    Raises:
        TaskFailed: from the file's ``close``: the attempt was committed, or aborted, before the
            file was closed; it will not be published.
        JobNotRunning: there is no running job of that id; says which call starts it.
        PathError: not a magic path of a job, or one that would lose data.
        OptionError: the job tracks in memory: its attempts cannot be shared.
        ValueError: as `Task.open`. WrongType: a `Path`, a dict and the like. StoreError: the store
            did not tell of the job.
    """
    options, s3 = options_of(options), s3_of(s3)
    text = text_options(mode, encoding, errors, newline)
    parsed = parse_magic_path(path)
    attributes = attributes_of(attributes)
    runtime = _wiring.runtime_for(parsed.dest.bucket, s3, no_progress)
    if not fence:
        stream = open_plain(runtime, parsed, options, _wiring.blocks, attributes)
    else:
        stream = _open_fenced(path, parsed, options, s3, attributes)
    return stream if text is None else TextUpload(stream, **text)


def _open_fenced(
    path: str, parsed: MagicPath, options: Options, s3: S3Options, attributes: Attributes
) -> UploadStream:
    if parsed.layout != "job" or parsed.job_id is None or parsed.attempt is None:
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
            remedies=(Remedy("start", parsed.dest.url, parsed.job_id, "start it first"),),
        ) from error
    if job.track == "memory":
        raise OptionError(
            f"job {job.id!r} was started with track='memory': its files are opened by its tasks",
            hint="Start the job with track='s3' to open files by path",
        )
    return job._attempt_by_path(parsed.attempt).open(
        parsed.name, unique=False, attributes=attributes
    )

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

from typing import Literal, overload

from magic_committer import wiring
from magic_committer.commit import records
from magic_committer.commit.outcome import outcome_of
from magic_committer.committers.magic import MagicCommitter, open_plain
from magic_committer.errors import (
    JobNotFound,
    JobNotRunning,
    OptionError,
    PathError,
)
from magic_committer.handles import Job, text_options
from magic_committer.job import StartedJob, State, Terms
from magic_committer.options import Accept, Mode, Options, S3Options, Track
from magic_committer.paths import Destination, JobPaths, MagicPath, parse_magic_path
from magic_committer.runtime import ProgressFunction, no_progress
from magic_committer.store import Attributes
from magic_committer.upload import TextUpload, UploadStream
from magic_committer.writing import Writing


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
            ``"memory"``: the handle that opened the files commits them; the fewest requests. With
            either a forked child cannot use a task of its parent: send the job, and let it run
            ``with job.task(id)`` itself.
        job_id: a name for the job's directory, used once; None: one is drawn.
        exclusive: nobody else writes under ``dest``: sweep every open upload there.
        mark_success: write `_SUCCESS`.
        s3: the way to the store; None: the environment.
        options: sizes and numbers; None: the defaults.
        progress: told of long steps; called from this process's threads.

    Raises:
        PathError, OptionError, JobExists, DestinationExists, ConflictingJob,
        ConditionsNotSupported, OutcomeUnknown, StoreError. Nothing of the job will become visible;
        a given id stays ``closed``.
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
    runtime = wiring.runtime_for(destination.bucket, s3, progress)
    committer = MagicCommitter.setup(runtime, destination, terms, options, wiring.blocks, job_id)
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
    runtime = wiring.runtime_for(destination.bucket, s3, progress)
    seen = records.read(runtime, JobPaths(destination, job_id).record)
    if seen is None:
        raise JobNotFound(
            f"there is no job {job_id!r} under {destination.url}",
            job_id=job_id,
            hint="It may have ended, either way, or never been: look at the destination",
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

    All files are written by the process that entered ``with``, in any of its threads. A forked
    child (a multiprocessing pool) gets `TaskFailed` from ``job.open`` and `WrongProcess` from a
    file, and can neither commit nor abort the job, also not by ``job.job``, which takes no tasks
    and does not pickle: use `start` for many processes.

    Raises:
        As `start` on entering and `Job.commit` on leaving; `FileStillOpen` for a file that was not
        closed. Before the decision the job is aborted; after it `CommitIncomplete` names the call
        that finishes it, and nothing is ever aborted.
    """

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
    mode: Literal["wb", "xb"] = "wb",
    *,
    fence: bool = True,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
) -> UploadStream: ...
@overload
def open_magic(
    path: str,
    mode: Literal["w", "x", "wt", "xt"],
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

        start("s3://bucket/t", job_id="1")
        open_magic("s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv")

    The task's attempt is committed by whoever knows the names:
    ``attach("s3://bucket/t", "1").task("a", attempt="a_0").commit()``.

    Args:
        fence: False: a plain Hadoop-shaped upload on any legal magic path, without a job of ours:
            S3A's guarantees only; Hadoop's committer commits it.

    Raises:
        TaskFailed: from the file's ``close``: the attempt was committed, or aborted, before the
            file was closed; it will not be published.
        JobNotRunning: there is no running job of that id; says which call starts it.
        PathError: not a magic path of a job, or one that would lose data.
        OptionError: the job tracks in memory: its attempts cannot be shared.
    """
    options = options if options is not None else Options()
    s3 = s3 if s3 is not None else S3Options()
    text = text_options(mode, encoding, errors, newline)
    parsed = parse_magic_path(path)
    attributes = attributes if attributes is not None else Attributes()
    runtime = wiring.runtime_for(parsed.dest.bucket, s3, no_progress)
    if not fence:
        stream = open_plain(runtime, parsed, options, wiring.blocks, attributes)
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

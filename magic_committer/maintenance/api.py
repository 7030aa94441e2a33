"""For operators: `inspect`, `recover`, `abort`, `force_abort`, `adopt`, `cleanup`. By anyone, from
any machine, as often as it takes.

::

    for job in mc.inspect("s3://bucket/table"):
        print(job.id, job.state, job.would)
    mc.recover("s3://bucket/table", job.id)      # finish what was decided, abort what was not
    mc.cleanup("s3://bucket/table")              # from cron: dead jobs, and what is left of others
"""

from __future__ import annotations

from collections.abc import Collection

from magic_committer import _wiring
from magic_committer._arguments import options_of, s3_of
from magic_committer._hints import ENDED_OR_NEVER
from magic_committer._patience import patient
from magic_committer._runtime import ProgressFunction, Runtime, no_progress
from magic_committer.commit import records
from magic_committer.errors import JobNotFound
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.adopt import Adoption, adopt_job
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.force import force_abort as _force_abort
from magic_committer.maintenance.giving_up import GivenUp
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.recover import abort_job, recover_job
from magic_committer.maintenance.reports import (
    CLOSED_SECONDS,
    DEAD_SECONDS,
    LEFTOVER_SECONDS,
    Age,
    CleanupReport,
    FoundJob,
    JobKind,
    Recovery,
    seconds,
)
from magic_committer.options import Options, S3Options
from magic_committer.protocol.record import JobReport

__all__ = [
    "Adoption",
    "Age",
    "CleanupReport",
    "FoundJob",
    "GivenUp",
    "JobKind",
    "Recovery",
    "abort",
    "adopt",
    "cleanup",
    "force_abort",
    "inspect",
    "recover",
]


@patient()
def inspect(
    dest: str, *, older_than: Age = DEAD_SECONDS, s3: S3Options | None = None
) -> list[FoundJob]:
    """Look at every job that has a directory under a destination; changes nothing.

    Args:
        dest: ``s3://bucket/prefix``, as for `start`; jobs of destinations below are not seen.
        older_than: from which age ``would`` takes a running job for dead.

    Raises:
        StoreError: the directories could not be listed. What cannot be read of one of them is in
            its ``problem``.
    """
    runtime, destination = _reach(dest, s3, no_progress)
    return list(inspect_all(runtime, destination, seconds("older_than", older_than)))


@patient()
def recover(
    dest: str,
    job_id: str,
    *,
    older_than: Age = DEAD_SECONDS,
    accept: Collection[str] = (),
    leave_visible: bool = False,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> Recovery:
    """Finish a job whose driver is dead: roll forward what was decided, back what was not.

    ``running``: aborted, if nothing of it has changed for ``older_than``. ``committing`` and
    ``completed``: its files are completed, the destination is marked, the rest swept.
    ``reverting``, ``reverted`` and ``aborting``: undone. ``closed``: nothing is left to do.
    No record: nothing is done, and the outcome is "" (it cannot be told), unless `_SUCCESS` tells
    that the job has committed; that is no error, so that recovering twice is none.

    Args:
        older_than: a `timedelta` or seconds, by the store's clock. 0 is your word that the driver
            is dead; should it live all the same, it is told that its job was aborted.
        accept: keys that an earlier call named as unresolved: what is there now is right.
        leave_visible: of a Hadoop job that was adopted: as of `abort`.
        dry_run: change nothing; say in ``did`` what would be done.

    Raises:
        JobTooYoung: it is running and may be alive: wait.
        AlreadyVisible: see ``leave_visible``. Nothing was decided; `Job.commit` finishes it.
        CommitIncomplete: not all is visible yet. ``unfinished``: recover again. ``unresolved``:
            nobody can tell whether these files were published: see ``accept``, or
            `abort` with ``revert=True``.
        AbortIncomplete: not all is undone yet: recover again.
        OutcomeUnknown: the store gives no clear answer: recover again.
        FormatError: a newer version wrote the record.
    """
    runtime, destination = _reach(dest, s3, progress)
    return recover_job(
        runtime,
        destination,
        job_id,
        older_than=seconds("older_than", older_than),
        accept=accept,
        leave_visible=leave_visible,
        dry_run=dry_run,
        options=options,
    )


@patient()
def abort(
    dest: str,
    job_id: str,
    *,
    revert: bool = False,
    leave_visible: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> JobReport:
    """Make sure that nothing of a job is visible, now or later, however old it is. Repeatable.

    Args:
        revert: also if it was decided to commit but has not completed: its uploads are aborted, and
            what is visible of it is deleted. **What it wrote over does not come back**: where one
            of its files is visible at a key that held another object, that object is gone. Refused
            once it has completed, for then it may have deleted what it replaces.
        leave_visible: also a Hadoop job that was adopted and of which files are visible, because
            its JVM died while it committed: the others are aborted, and **what is visible stays**:
            the table is torn for good. `Job.commit` finishes it instead.

    Raises:
        AlreadyVisible: see ``leave_visible``. Nothing was decided.
        JobNotFound: there is no record: it may have committed, been aborted, or never been.
        JobNotRunning: it is committed, or is committing and ``revert`` is not given.
        AbortIncomplete: not all is undone yet: call it again.
        OutcomeUnknown: the store gives no clear answer.
    """
    runtime, destination = _reach(dest, s3, progress)
    seen = records.read(runtime, JobPaths(destination, job_id).record)
    if seen is None:
        raise JobNotFound(
            f"there is no job {job_id!r} under {destination.url}",
            job_id=job_id,
            hint=ENDED_OR_NEVER,
        )
    return abort_job(
        runtime, destination, seen,
        revert=revert, leave_visible=leave_visible, options=options,
    )  # fmt: skip


@patient()
def force_abort(
    dest: str,
    job_id: str,
    *,
    older_than: Age = LEFTOVER_SECONDS,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> GivenUp:
    """End a job that can be neither finished nor undone: its plan is gone, its record cannot be
    read, or the store refuses what undoing it takes. The last way out; `recover` and
    `abort` with ``revert=True`` lose less, and this tries the latter first. Repeatable.

    What cannot be undone is given up: uploads that cannot be aborted stay open, files that cannot
    be deleted stay visible, and the record is deleted, so that nobody can finish or undo the job
    any more. What that is, the report names. A ``completed`` job keeps its files; what it replaces
    may be there still, and `_SUCCESS` be missing. Nothing is touched outside the destination, nor
    of another job.

    Args:
        older_than: a `timedelta` or seconds, by the store's clock, of a job whose record cannot be
            read or is ``completed``: refused if something of it has changed since. 0 is your word
            that its driver is dead.
        dry_run: change nothing; tell what is open and visible.

    Raises:
        JobNotFound: it has no record.
        JobTooYoung: see ``older_than``.
        JobError: another process has changed the record meanwhile: look at it, and do it again.
        OutcomeUnknown, StoreError: the store gives no clear answer, or refuses the record's change:
            nothing is given up yet; do it again.
    """
    runtime, destination = _reach(dest, s3, progress)
    return _force_abort(
        runtime,
        destination,
        job_id,
        older_than=seconds("older_than", older_than),
        dry_run=dry_run,
        options=options,
    )


@patient()
def adopt(
    dest: str,
    job_id: str,
    *,
    older_than: Age = LEFTOVER_SECONDS,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
) -> Adoption:
    """Give a record to a Hadoop magic job whose JVM is dead, of either layout (3.4 and later; up to
    3.3). That it is dead is your word: nothing on the store can tell.

    It is a running job afterwards, which tasks of this library cannot join:
    ``attach(dest, job_id).commit()`` publishes what its tasks committed, `abort` aborts all uploads
    that it names, and `inspect`, `recover` and `cleanup` treat it as any other: do one of the two
    soon, for a cleanup aborts it when nothing of it has changed for a day. A commit that finds
    something wrong with it decides nothing (`CommitRefused`, and the job stays). Where its JVM made
    files visible before it died, `abort` refuses (`AlreadyVisible`): they would stay. A job that
    `_SUCCESS` names has committed: adopted it cannot be aborted, and a commit sweeps what it left.

    Args:
        older_than: a `timedelta` or seconds: refused if something of it has changed since: what a
            JVM sent as it died may still land for some minutes. 0: you know that it cannot.
        dry_run: change nothing; say what would be adopted.

    Raises:
        JobNotFound: nothing lies there.
        JobExists: it has a record: it needs no adoption. Also if another process was faster.
        JobError: objects with a token of this library lie there: no Hadoop job, but litter of ours.
        JobTooYoung: see ``older_than``.
        ConditionsNotSupported: the store cannot decide a job once. Nothing was changed.
        OutcomeUnknown: no clear answer came: adopt it again.
    """
    runtime, destination = _reach(dest, s3, no_progress)
    limit = seconds("older_than", older_than)
    return adopt_job(
        runtime, destination, job_id, older_than=limit, dry_run=dry_run, options=options
    )


@patient()
def cleanup(
    dest: str,
    *,
    older_than: Age = DEAD_SECONDS,
    leftover_older_than: Age = LEFTOVER_SECONDS,
    closed_older_than: Age = CLOSED_SECONDS,
    forget_given: bool = False,
    finish: bool = True,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
) -> CleanupReport:
    """Take away what dead jobs left under a destination. For cron: harmless beside live jobs,
    beside other programs' files and uploads, and beside itself. Repeatable.

    Args:
        older_than: a running job of which nothing has changed for so long is aborted.
        leftover_older_than: from which age decided jobs are finished, and uploads and control
            objects are taken whose job is over. Uploads without an age stay.
        closed_older_than: from which age closed records are deleted.
        forget_given: also those of jobs whose id was given. It is your word that no process of
            these jobs lives: their ids can be used again, and a process that was paused since the
            first use would write into the second.
        finish: False: decided jobs that nobody finishes are only told of, in ``unfinished``.
        dry_run: change nothing, and report what would be done.

    Raises:
        StoreError: the jobs could not be listed. All else that fails is in ``report.errors``.
    """
    runtime, destination = _reach(dest, s3, progress)
    limits = Limits(
        dead=seconds("older_than", older_than),
        leftover=seconds("leftover_older_than", leftover_older_than),
        closed=seconds("closed_older_than", closed_older_than),
        forget_given=forget_given,
        finish=finish,
    )
    options = options_of(options)
    return Cleaning(runtime, destination, limits, dry_run=dry_run, options=options).run()


def _reach(
    dest: str, s3: S3Options | None, progress: ProgressFunction
) -> tuple[Runtime, Destination]:
    destination = Destination.parse(dest)
    return _wiring.runtime_for(destination.bucket, s3_of(s3), progress), destination

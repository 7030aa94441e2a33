"""For operators: `inspect`, `recover`, `abort`, `force_abort`, `adopt`, `uploads`, `cleanup`.
Anyone may call them, from any machine, as often as needed. docs/recovery.md has the loop that ends
each job of a destination.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

from magic_committer.commit import register
from magic_committer.commit.driver import runs_of
from magic_committer.commit.stream import read_ledger
from magic_committer.committers.base import driver_of
from magic_committer.errors import (
    JobNotRunning,
    JobReport,
    NotSupported,
    OptionError,
    OutcomeUnknown,
    PathError,
    StoreError,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.doctor import ROLES, Diagnosis, Role, diagnose
from magic_committer.maintenance.doctor import policy as policy_of
from magic_committer.maintenance.ending import Ending
from magic_committer.maintenance.inspect import inspect_all, jobs_below
from magic_committer.maintenance.lifecycle import ensure, merge
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    Adoption,
    Age,
    CleanupReport,
    FoundJob,
    GivenUp,
    Recovery,
    StreamState,
    seconds,
    together,
)
from magic_committer.maintenance.uploads import Filters, OpenUploads
from magic_committer.options import Options, S3Options, S3Place, options_of, s3_of
from magic_committer.protocol.ledger import StreamBatch, checkpoint_of
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import State
from magic_committer.runtime import wiring
from magic_committer.runtime.components import ProgressFunction, Runtime, no_progress
from magic_committer.runtime.threads import patient
from magic_committer.stores.urls import is_tree

logger = logging.getLogger("magic_committer")


@patient()
def inspect(
    dest: str,
    *,
    dead_after: Age = DEAD_AFTER_SECONDS,
    below: bool = False,
    s3: S3Options | None = None,
    **place: Unpack[S3Place],
) -> list[FoundJob]:
    """Look at every job that has a directory under a destination. Changes nothing. Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> [(job.id, str(job.state)) for job in mc.inspect("s3://bucket/table")]
        [('nightly', 'running')]

    Each job has the calls that end it: `FoundJob.recover`, `abort`, `commit`, `adopt` and
    `give_up`. They give an `ActionPlan`.

    Args:
        dest: ``s3://bucket/prefix``, as for `start`.
        dead_after: a running job without a change for this long counts as dead, in ``would`` and
            for `FoundJob.recover`. A `timedelta` or seconds; 24 hours by default.
        below: True: also the jobs of all directories below ``dest``, found by one listing of its
            objects. False by default.
        s3, place: the connection to the store, as for `start`.

    Returns:
        What was found, one item for each job. With ``below``, also one for each place that could
        not be looked at: its ``id`` is "", and ``problem`` says why.

    Raises:
        StoreError: the directories could not be listed. If one job cannot be read, its ``problem``
            says so.
        WrongType, PathError, OptionError: as for `start`.
    """
    limit = seconds("dead_after", dead_after)
    runtime, destination = _reach(dest, s3_of(s3, place), no_progress)
    dests, problems = jobs_below(runtime, destination) if below else ((destination,), ())
    jobs = [_unread(destination, why) for why in problems]
    for one in dests:
        try:
            jobs.extend(inspect_all(runtime, one, limit))
        except StoreError as error:
            if not below:
                raise
            jobs.append(_unread(one, str(error)))
    return [replace(job, _s3=s3_of(s3, place), _dead_after=limit) for job in jobs]


def _unread(dest: Destination, why: str) -> FoundJob:
    """What stands for the jobs of a place that could not be looked at."""
    return FoundJob("", dest.url, "unreadable", problem=why, would="nothing: it cannot be read")


@patient()
def uploads(
    path: str,
    *,
    older_than: Age | None = None,
    job: str | None = None,
    key_glob: str | None = None,
    sizes: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> OpenUploads:
    """Look at the open uploads under a path, of whatever program: who owns each, how old it is, and
    what would be done with it. Changes nothing. Repeatable::

        >>> job = mc.start("s3://bucket/table", job_id="nightly")
        >>> with job.task("0") as task, task.open("a.csv", "w") as file:
        ...     _ = file.write("1,2")
        >>> [(one.key, one.owner_class, one.would) for one in mc.uploads("s3://bucket/table")]
        [('table/a.csv', 'live', 'leave it: its job is running')]

    Args:
        path: ``s3://bucket/prefix``: a directory. All uploads below it are looked at.
        older_than: only uploads that began so long ago, by the store's clock. A `timedelta` or
            seconds; None (default): all.
        job: only uploads of the job with this id or UUID; None (default): all.
        key_glob: only keys that match, from ``path`` on; ``*`` matches ``/`` too. None (default):
            all.
        sizes: True: ask for ``parts`` and ``bytes``, a request for each upload. False by default.
        s3, place, options, progress: as for `start`.

    Returns:
        The uploads, to be iterated, and aborted (`OpenUploads.abort`).

    Raises:
        NotSupported: the store has no listing of uploads.
        StoreError: they could not be listed.
        WrongType, PathError, OptionError: as for `start`.
    """
    dest = _on_s3(path, "no uploads")
    runtime = wiring.runtime_for(dest.bucket, s3_of(s3, place), progress)
    age = None if older_than is None else seconds("older_than", older_than)
    filters = Filters(age, job, key_glob)
    return OpenUploads(runtime, dest, filters, sizes=sizes, options=options_of(options))


@patient()
def recover(
    dest: str,
    job_id: str,
    *,
    dead_after: Age = DEAD_AFTER_SECONDS,
    accept: Collection[str] = (),
    leave_visible: bool = False,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> Recovery:
    """Finish a job whose driver is dead: complete it if it was decided, abort it if it was not.
    Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> mc.recover("s3://bucket/table", "nightly", dead_after=0).outcome
        'aborted'

    A ``running`` job is aborted, if nothing of it has changed for ``dead_after``. One that is
    ``committing`` or ``completed`` is finished: its files are completed, the destination is marked,
    the rest is swept. One that is ``reverting``, ``reverted`` or ``aborting`` is undone. Without a
    record nothing is done. The outcome is then "" (unknown), unless `_SUCCESS` says that the job
    has committed. This is no error, so that a second call is none.

    Args:
        dest, job_id: the destination and the id of the job.
        dead_after: a `timedelta` or seconds, by the store's clock; 24 hours by default. 0 means:
            you promise that the driver is dead. If it lives all the same, it gets an error that its
            job was aborted.
        accept: keys that an earlier call named as unresolved: you promise that their present
            objects are right. None by default.
        leave_visible: for an adopted Hadoop job: as for `abort`. False by default.
        dry_run: True: change nothing, and say in ``did`` what would be done. False by default.
        s3, place, options, progress: as for `start`.

    Returns:
        What was found and done, and the outcome.

    Raises:
        JobTooYoung: the job runs and may be alive: wait.
        JobError: it is a Hadoop job: `adopt` it first.
        AlreadyVisible: see ``leave_visible``. Nothing was decided; `Job.commit` finishes the job.
        CommitIncomplete: not all files are visible yet. For files in ``unfinished``, recover again.
            For files in ``unresolved`` nobody can tell whether they were published: use ``accept``,
            or `abort` with ``revert=True``.
        AbortIncomplete: not everything is undone yet. Recover again.
        OutcomeUnknown: the store gives no clear answer. Recover again.
        FormatError: the record cannot be read, or a newer version wrote it.
        StoreError, WrongType, PathError, OptionError: as for `start`.
    """
    ending = Ending(
        *_reach(dest, s3_of(s3, place), progress), job_id,
        dead_after=seconds("dead_after", dead_after), options=options_of(options),
    )  # fmt: skip
    return ending.recover_now(accept, leave_visible, dry_run=dry_run)


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
    **place: Unpack[S3Place],
) -> JobReport:
    """Make sure that nothing of a job is visible, now or later, however old the job is.
    Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> mc.abort("s3://bucket/table", "nightly").outcome
        'aborted'

    Args:
        dest, job_id: the destination and the id of the job.
        revert: True: abort the job even if it was decided to commit but has not completed. Its open
            uploads are aborted, its visible files are deleted. **Objects that its files replaced do
            not come back**. A completed job is refused, because it may have deleted the objects
            that it replaces. False (default): a committed job is refused.
        leave_visible: for an adopted Hadoop job with visible files, whose JVM died during its
            commit. True: abort the other files. **The visible files stay**: the table holds only a
            part of the job for ever. False (default): refuse; `Job.commit` finishes the job
            instead.
        s3, place, options, progress: as for `start`.

    Returns:
        What became of the job.

    Raises:
        AlreadyVisible: see ``leave_visible``. Nothing was decided.
        JobNotFound: the job has no record. It has committed, was aborted, or never existed.
        JobError: it is a Hadoop job: `adopt` it first.
        JobNotRunning: the job is committed, or it is committing and ``revert`` is False.
        AbortIncomplete: not everything is undone yet. Call it again.
        OutcomeUnknown: the store gives no clear answer. Call it again.
        FormatError: the record cannot be read, or a newer version wrote it.
        StoreError, WrongType, PathError, OptionError: as for `start`.
    """
    ending = Ending(
        *_reach(dest, s3_of(s3, place), progress), job_id, options=options_of(options)
    )  # fmt: skip
    return ending.abort_now(revert, leave_visible)


@patient()
def force_abort(
    dest: str,
    job_id: str,
    *,
    dead_after: Age = LEFTOVER_AFTER_SECONDS,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> GivenUp:
    """End a job that can be neither finished nor undone: its plan is gone, its record cannot be
    read, or the store refuses a request that is needed to undo it. Repeatable. Use it last:
    `recover` and `abort` with ``revert=True`` lose less. This call tries the second one first::

        >>> _ = mc.start("s3://bucket/table", job_id="broken")
        >>> plan = mc.force_abort("s3://bucket/table", "broken", dry_run=True)

    It gives up what cannot be undone. Uploads that cannot be aborted stay open. Files that cannot
    be deleted stay visible. The record is deleted, so that nobody can finish or undo the job any
    more. The report names all of this. A ``completed`` job keeps its files; objects that it
    replaces may still be there, and `_SUCCESS` may be missing. Nothing outside the destination is
    touched, and nothing of another job.

    Args:
        dest, job_id: the destination and the id of the job.
        dead_after: a `timedelta` or seconds, by the store's clock; 1 hour by default. It matters
            for a job that is ``completed`` or whose record cannot be read: if something of the job
            is younger, the call is refused. 0 means: you promise that the driver is dead.
        dry_run: True: change nothing, and report what is open and visible. False by default.
        s3, place, options, progress: as for `start`.

    Returns:
        What was undone, and what was given up.

    Raises:
        JobNotFound: the job has no record.
        JobTooYoung: see ``dead_after``.
        JobError: another process has changed the record meanwhile. Look at the job, and call it
            again. Also for a Hadoop job: `adopt` it first.
        OutcomeUnknown, StoreError: the store gives no clear answer, or refuses to change the
            record. Nothing is given up yet. Call it again.
        WrongType, PathError, OptionError: as for `start`.
    """
    ending = Ending(
        *_reach(dest, s3_of(s3, place), progress), job_id,
        dead_after=seconds("dead_after", dead_after), options=options_of(options),
    )  # fmt: skip
    return ending.give_up_now(dry_run=dry_run)


@patient()
def adopt(
    dest: str,
    job_id: str,
    *,
    dead_after: Age = LEFTOVER_AFTER_SECONDS,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> Adoption:
    """Give a record to a Hadoop magic job whose JVM is dead. Both layouts are understood (Hadoop
    3.4 and later; up to 3.3). You promise that the JVM is dead: nothing on the store can tell.

    The job is then a running job, but tasks of this library cannot join it.

    * ``attach(dest, job_id).commit()`` publishes what its tasks committed. `abort` aborts all
      uploads that it names. Do one of the two soon: a cleanup aborts the job when nothing of it has
      changed for a day. `inspect`, `recover` and `cleanup` treat it like every other job.
    * If a commit finds something wrong with the job, it decides nothing: `CommitRefused`, and the
      job stays.
    * If its JVM made files visible before it died, `abort` refuses (`AlreadyVisible`): they would
      stay.
    * If `_SUCCESS` names the job, it has committed. It can then be adopted but not aborted, and a
      commit sweeps its leftovers.

    Not repeatable: a second call raises `JobExists`.

    Args:
        dest, job_id: the destination of the Hadoop job, and the id in its directory's name.
        dead_after: a `timedelta` or seconds; 1 hour by default. If something of the job is younger,
            the call is refused: requests that the JVM sent last may still arrive for some minutes.
            0 means: you know that none can arrive.
        dry_run: True: change nothing, and say what would be adopted. False by default.
        s3, place, options: as for `start`.

    Returns:
        What was adopted.

    Raises:
        JobNotFound: there is no such job.
        JobExists: the job has a record and needs no adoption. Also if another process was faster.
        JobError: the directory holds objects with a token of this library: it is no Hadoop job, but
            leftovers of a job of ours.
        JobTooYoung: see ``dead_after``.
        ConditionsNotSupported: the store cannot decide a job once. Nothing was changed.
        OutcomeUnknown: the store gave no clear answer. Adopt it again.
        StoreError, WrongType, PathError, OptionError: as for `start`.
    """
    ending = Ending(
        *_reach(dest, s3_of(s3, place), no_progress), job_id,
        dead_after=seconds("dead_after", dead_after), options=options_of(options),
    )  # fmt: skip
    return ending.adopt_now(dry_run=dry_run)


@patient()
def cleanup(
    dest: str,
    *,
    dead_after: Age = DEAD_AFTER_SECONDS,
    leftover_after: Age = LEFTOVER_AFTER_SECONDS,
    forget_after: Age = register.FORGET_AFTER_SECONDS,
    forget_given_after: Age = register.FORGET_GIVEN_AFTER_SECONDS,
    finish: bool = True,
    below: bool = False,
    dry_run: bool = False,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> CleanupReport:
    """Remove what dead jobs left under a destination. For cron: it does no harm to live jobs, to
    files and uploads of other programs, or to another cleanup. Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> mc.cleanup("s3://bucket/table").errors
        ()

    Args:
        dest: ``s3://bucket/prefix``, as for `start`.
        dead_after: abort a running job if nothing of it has changed for this long. A `timedelta` or
            seconds, by the store's clock; 24 hours by default.
        leftover_after: finish decided jobs that are older, and remove older uploads and
            control objects of jobs that are over. A `timedelta` or seconds; 1 hour by default.
            Uploads without an age stay.
        forget_after: delete closed records that are older. A `timedelta` or seconds; 24 hours
            by default.
        forget_given_after: the same for jobs whose id was given; 30 days by default. After that the
            id starts a new job. With less you promise that no process of those jobs lives: one that
            was paused since the first use could attach to the second job.
        finish: True (default): finish decided jobs that nobody finishes. False: only name them in
            ``unfinished``.
        below: True: clean also the destinations of all jobs below ``dest``, found by one listing of
            its objects. A place that fails does not stop the others. False by default: jobs of
            destinations below are not seen.
        dry_run: True: change nothing, and report what would be done. False by default. To find out
            whether the store shows all open uploads, two are created and aborted all the same;
            not on AWS S3, which does.
        s3, place, options, progress: as for `start`.

    Returns:
        What was found and done; with ``below``, in all places together.

    Raises:
        StoreError: the jobs could not be listed. All other failures are in ``report.errors``.
        WrongType, PathError, OptionError: as for `start`.
    """
    limits = Limits(
        dead_after=seconds("dead_after", dead_after),
        leftover_after=seconds("leftover_after", leftover_after),
        forget_after=seconds("forget_after", forget_after),
        forget_given_after=seconds("forget_given_after", forget_given_after),
        finish=finish,
    )
    runtime, destination = _reach(dest, s3_of(s3, place), progress)
    chosen = options_of(options)
    dests, problems = jobs_below(runtime, destination) if below else ((), ())
    reports, errors, counted = list[CleanupReport](), [*problems], KeySet()
    for one in dict.fromkeys((destination, *dests)):
        cleaning = Cleaning(
            runtime, one, limits, dry_run=dry_run, options=chosen, counted=counted
        )  # fmt: skip
        try:
            reports.append(cleaning.run())
        except StoreError as error:
            if not below:
                raise
            errors.append(f"{one.url}: {error}")
    return together(CleanupReport(destination.url, dry_run, errors=tuple(errors)), reports)


@patient()
def doctor(dest: str, *, s3: S3Options | None = None, **place: Unpack[S3Place]) -> Diagnosis:
    """Try what a job may and can do under a destination, and say what is promised there. Some 80
    requests in a job's directory of its own, which is deleted again. Repeatable::

        >>> found = mc.doctor("s3://bucket/table")
        >>> [one.action for one in found.permissions if one.answer == "denied"], found.left
        ([], ())

    Args:
        dest: ``s3://bucket/prefix``, as for `start`.
        s3, place: the connection to the store, as for `start`.

    Returns:
        What was found out.

    Raises:
        StoreError: there is no such bucket, the credentials are wrong, or the store cannot be
            reached. Every other refusal is in ``permissions``.
        WrongType, PathError, OptionError: as for `start`.
    """
    destination, way = _on_s3(dest, "no permissions to try"), s3_of(s3, place)
    settings = None
    with suppress(NotSupported):
        settings = wiring.bucket_settings(destination.bucket, way)
    runtime = wiring.runtime_for(destination.bucket, way, no_progress)
    return diagnose(runtime, destination, settings)


def policy(dest: str, role: Role) -> dict[str, Any]:
    """Make the least IAM policy for a role under a destination. Asks nothing. Repeatable::

        >>> mc.policy("s3://bucket/table", "writer")["Statement"][0]["Resource"]
        'arn:aws:s3:::bucket/table/*'

    Args:
        dest: ``s3://bucket/prefix``, as for `start`.
        role: ``"writer"`` only runs tasks of jobs that others started; ``"committer"`` also starts,
            commits, aborts and recovers jobs; ``"cleaner"`` calls `cleanup`.

    Returns:
        The policy, as JSON for IAM.

    Raises:
        OptionError: there is no such role.
        WrongType, PathError: as for `start`.
    """
    if role not in ROLES:
        raise OptionError(f"role={role!r} is none of {', '.join(ROLES)}")
    return policy_of(role, _on_s3(dest, "no policies of IAM"))


@patient()
def lifecycle(
    dest: str,
    *,
    days: int | None = None,
    dry_run: bool = False,
    s3: S3Options | None = None,
    **place: Unpack[S3Place],
) -> dict[str, Any]:
    """Read a bucket's lifecycle; or make sure that a rule of it aborts open uploads below a
    destination, which ends what no program can know. Other rules stay. Repeatable.

    S3 has no condition on this write: what another program changes in the same second may be lost.
    So what is stored is read back.

    Args:
        dest: ``s3://bucket/prefix``, as for `start`.
        days: add a rule that aborts uploads this many days after they began, or change ours;
            nothing is written where another rule is as early. None (default): only read.
        dry_run: True: change nothing, and give what would be stored. False by default.
        s3, place: the connection to the store, as for `start`.

    Returns:
        The configuration that is stored in the end, as S3's API has it: ``{"Rules": [...]}``.

    Raises:
        MagicError: something else is stored afterwards. Look at it, and call it again.
        FormatError: there are rules that would be lost. Nothing was written.
        NotSupported: the store has no lifecycle.
        StoreError, WrongType, PathError, OptionError: as for `start`.
    """
    destination, way = _on_s3(dest, "no lifecycle rules"), s3_of(s3, place)
    settings = wiring.bucket_settings(destination.bucket, way)
    if days is None:
        return dict(settings.lifecycle())
    if dry_run:
        return dict(merge(settings.lifecycle(), destination.prefix, days).configuration)
    clock = wiring.runtime_for(destination.bucket, way, no_progress).clock
    return dict(ensure(settings, destination.prefix, days, clock).configuration)


@patient()
def read_stream(
    dest: str, query: str, *, s3: S3Options | None = None, **place: Unpack[S3Place]
) -> StreamState | None:
    """Read the ledger of a streaming query: which batch is published, and which job may publish the
    next one. Changes nothing. Repeatable::

        >>> job = mc.start("s3://bucket/events")
        >>> with job.task(0) as task, task.open("part-0.csv", "w") as file:
        ...     _ = file.write("1,2,3")
        >>> _ = job.commit([task.result], batch=mc.StreamBatch("query-1", 7))
        >>> mc.read_stream("s3://bucket/events", "query-1").done
        7

    It is only a look: the next moment may bring another batch. That a batch is published once is
    the work of `Job.commit` with ``batch``.

    Args:
        dest: the destination that the query writes to.
        query: the query's id, as in `StreamBatch`.
        s3, place: the connection to the store, as for `start`.

    Returns:
        What the ledger says; None if no batch of the query was ever committed there.

    Raises:
        FormatError: the ledger cannot be read, or a newer version wrote it.
        StoreError, WrongType, PathError, OptionError: as for `start`.
    """
    query = StreamBatch(query, 0).query
    runtime, destination = _reach(dest, s3_of(s3, place), no_progress)
    stored = read_ledger(runtime, destination, query)
    if not stored.etag:
        return None
    ledger = stored.ledger
    by, number = ("", None) if ledger.claim is None else (ledger.claim.job_id, ledger.claim.number)
    return StreamState(
        query, destination.url, ledger.done, ledger.done_by, by, number, ledger.checkpoint
    )


@patient()
def abort_stream(
    dest: str,
    checkpoint: str,
    *,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> tuple[JobReport, ...]:
    """Abort the running jobs of a streaming query whose jobs are not known by id. Repeatable::

        >>> _ = mc.start("s3://bucket/events", checkpoint="s3://bucket/checkpoint")
        >>> [r.outcome for r in mc.abort_stream("s3://bucket/events", "s3://bucket/checkpoint")]
        ['aborted']

    Jobs that are decided are left: the next run of the query finishes them. If another run of the
    query has begun meanwhile, its job is aborted too: that run fails, and is run again. Nothing is
    lost, and nothing is written twice.

    Args:
        dest: the destination that the query writes to.
        checkpoint: the text that `start` was given as ``checkpoint``.
        s3, place, options, progress: as for `start`.

    Returns:
        What became of each job that was aborted.

    Raises:
        OutcomeUnknown: the store gives no clear answer. Call it again.
        WrongType, PathError, OptionError: as for `start`.
        StoreError: the store refused a request, or cannot be reached. Call it again.
    """
    runtime, destination = _reach(dest, s3_of(s3, place), progress)
    digest = checkpoint_of(checkpoint)
    return tuple(abort_jobs_of(runtime, destination, digest, options_of(options)))


def abort_jobs_of(
    runtime: Runtime, dest: Destination, checkpoint: str, options: Options
) -> list[JobReport]:
    """Abort the running jobs of a query, by the hash of its checkpoint.

    It may come without any message of a task (`pyspark` calls so when a task has failed, or the
    query is stopped): then only the checkpoint is known, of which the jobs' records hold a hash.
    """
    reports = []
    for seen in list(runs_of(runtime, dest, checkpoint)):
        if seen.record.state not in (State.RUNNING, State.ABORTING):
            continue
        try:
            reports.append(driver_of(runtime, dest, seen, options).abort())
        except JobNotRunning as error:  # decided meanwhile, or ended
            logger.info("job %s was not aborted: %s", seen.record.id, error.message)
        except OutcomeUnknown as error:
            if not _has_ended(runtime, seen):
                raise
            logger.info("job %s has ended meanwhile: %s", seen.record.id, error.message)
    return reports


def _has_ended(runtime: Runtime, seen: register.Seen) -> bool:
    """Whether a job's own process has ended it, and deleted its record, since it was seen."""
    return register.read_own(runtime, seen.key, seen.record.uuid) is None


def _on_s3(dest: str, lacks: str) -> Destination:
    """A destination on S3. PathError: it is on a file system, which has none of what is meant."""
    destination = Destination.parse(dest)
    if is_tree(destination.bucket):
        raise PathError(f"{dest} is on a file system: there are {lacks}", hint="Pass a path on S3")
    return destination


def _reach(dest: str, s3: S3Options, progress: ProgressFunction) -> tuple[Runtime, Destination]:
    destination = Destination.parse(dest)
    return wiring.runtime_for(destination.bucket, s3, progress), destination

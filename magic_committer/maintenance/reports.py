"""What the operator's calls take and give: limits, ages, reports. Plain values.

Every age comes from the store: the newest Last-Modified against the Date of the same reply. No
clock of this machine is used, so a wrong clock does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from magic_committer.errors import JobError, JobReport, JobTooYoung, OptionError, Told
from magic_committer.errors.messages import Remedy, age_words, counted, name_some
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Options, S3Options, options_of
from magic_committer.protocol.record import State
from magic_committer.runtime import wiring
from magic_committer.runtime.components import ProgressFunction, no_progress
from magic_committer.runtime.threads import patient

if TYPE_CHECKING:
    from magic_committer.maintenance.ending import Ending

T = TypeVar("T")

OVER = frozenset({State.ABSENT, State.CLOSED})
"""The states in which nothing is left of a job."""

DEAD_AFTER_SECONDS = 24 * 3600.0
"""A running job is dead if nothing of it has changed for this long."""
LEFTOVER_AFTER_SECONDS = 3600.0
"""What has not changed for so long, no request that was sent can change any more: a late one begins
within 15 minutes (Signature V4). The default of all that goes by it: what `cleanup` and `uploads
abort` leave alone, and when a job may be adopted or given up."""
PASSED_OVER_NAMED_MAX = 3
"""How many directories of older application attempts a sentence names."""

JobKind = Literal["ours", "hadoop", "litter", "unreadable"]
"""What a job's directory holds. ``"ours"``: a record. ``"hadoop"``: a job of Hadoop's committer (no
record, no token of ours). ``"litter"``: no record, but tokens of ours. ``"unreadable"``: a record
that this version cannot read."""

Age = timedelta | float
"""A duration: a `timedelta`, or seconds."""


def seconds(name: str, value: Age) -> float:
    """Give a limit in seconds; raise `OptionError` if it is no duration, or below 0."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise OptionError(f"{name} is a timedelta or seconds from 0 on, not {value!r}")
    return float(number)


def refuse_younger(job_id: str, age: float, limit: float, why: str, *ways: Remedy) -> None:
    """Raise `JobTooYoung` if something of a job changed lately; ``ways``: out, beside waiting."""
    if age < limit:
        told = f"job {job_id!r} changed {age_words(age)} ago, less than {age_words(limit)}: {why}"
        raise JobTooYoung(told, job_id=job_id, age=age, limit=limit, hint="Wait", remedies=ways)


def unfinished(job_id: str, state: str, report: JobReport | None) -> str:
    """What is left of a job that was ended, in a sentence; "" if nothing is. Pure."""
    why = f": {report.warnings[0]}" if report is not None and report.warnings else ""
    return "" if state in OVER else f"job {job_id} is still {state}{why}"


@dataclass(frozen=True, slots=True)
class ActionPlan(Generic[T]):
    """What a call would do. It was looked at, and nothing is changed until `run`::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> (job,) = mc.inspect("s3://bucket/table")
        >>> plan = job.abort()
        >>> [row["state"] for row in plan.rows]
        ['running']
        >>> plan.run().outcome
        'aborted'

    Attributes:
        question: what to ask a person before `run`; "" if nothing is left to do, or to change.
        rows: what it is about, as plain JSON values: one row for a job, one for each upload.
        warning: what the question presupposes, or what is lost; "" if there is nothing.
    """

    question: str
    rows: Iterable[Mapping[str, Any]]
    warning: str
    _run: Callable[[], T] = field(repr=False)

    @patient()
    def run(self) -> T:
        """Do what was planned.

        Returns:
            What the call of that name returns at once.

        Raises:
            MagicError: as that call.
        """
        return self._run()


@dataclass(frozen=True, slots=True)
class FoundJob(Told):
    """One job's directory, as `inspect` found it.

    Attributes:
        id: the job's id, the name of the directory; "" for jobs below a path that could not be
            looked at.
        dest: the destination's URL.
        kind: what the directory holds (`JobKind`).
        state: the record's state; ``"absent"`` without a record.
        outcome: as in `JobReport`.
        uuid, mode, accept, track: as the job was started; "" without a readable record.
        given_id: whether the caller of `start` chose the id.
        started: when the job was started, by the starter's clock, in seconds since the epoch; 0 if
            not known.
        age: seconds, at least, since the last change in the directory, by the store's clock.
        role, host, pid: the process that decided the job; while the job runs, the process that last
            gave a sign of life.
        objects: how many control objects are in the directory, with the record.
        tasks, files, bytes: what is waiting to be published, as the plan says; without a plan, as
            the tasks left it.
        visible: for a ``committing`` job: how many planned files are visible already; otherwise
            None.
        missing: for a ``committing`` job: how many files `recover` will not resolve by itself;
            otherwise None.
        problem: why the record or another object in the directory cannot be read.
        would: what `recover` would do, in one sentence.
        directory: where the tasks' results are, below the destination.
        adopted: for an adopted Hadoop job: where its pendingsets are, below the destination.
        missing_keys: the first keys of ``missing``.
        query, batch: what a decided job of a streaming query publishes: the query's id, and the
            number of the batch; "" and None for all other jobs.
        checkpoint: for a job of a streaming query: the hash of the query's checkpoint; else "".
    """

    id: str
    dest: str
    kind: JobKind
    uuid: str = ""
    state: str = "absent"
    outcome: str = ""
    mode: str = ""
    accept: str = ""
    track: str = ""
    given_id: bool = False
    started: float = 0.0
    age: float = 0.0
    role: str = ""
    host: str = ""
    pid: int = 0
    objects: int = 0
    tasks: int = 0
    files: int = 0
    bytes: int = 0
    visible: int | None = None
    missing: int | None = None
    problem: str = ""
    would: str = ""
    directory: str = ""
    adopted: str = ""
    missing_keys: tuple[str, ...] = ()
    query: str = ""
    batch: int | None = None
    checkpoint: str = ""
    _s3: S3Options | None = field(default=None, repr=False, compare=False)
    _dead_after: float | None = field(default=None, repr=False, compare=False)

    @patient()
    def recover(
        self,
        *,
        accept: Collection[str] = (),
        leave_visible: bool = False,
        adopt: bool = False,
        dead_after: Age | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
    ) -> ActionPlan[Recovery]:
        """Plan to finish the job if its driver is dead, as `magic_committer.recover` does at once.
        Repeatable; so is the run.

        Args:
            accept, leave_visible: as for `magic_committer.recover`.
            adopt: True: you promise that the JVM of a Hadoop job is dead. It is adopted first.
            dead_after: as for `magic_committer.recover`; for a Hadoop job as for
                `magic_committer.adopt`. None (default): of a job with a record what `inspect` was
                given, so that the plan does what ``would`` says; otherwise the default of `adopt`.
            options, progress: as for `start`, for the plan and its run.

        Returns:
            The plan. Its row has what would be done in ``would``, and ``unresolved`` keys.

        Raises:
            JobError: the job cannot be ended in this way; the error says why, and what can be done.
            StoreError: the store refused a request, or cannot be reached.
        """
        if dead_after is None and self.kind == "ours":
            dead_after = self._dead_after
        return self._end(adopt, dead_after, options, progress).recover(accept, leave_visible)

    @patient()
    def abort(
        self,
        *,
        revert: bool = False,
        leave_visible: bool = False,
        adopt: bool = False,
        dead_after: Age | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
    ) -> ActionPlan[JobReport]:
        """Plan to abort the job, as `magic_committer.abort` does at once. Repeatable; so is the
        run.

        Args:
            revert, leave_visible: as for `magic_committer.abort`.
            adopt, dead_after: for a Hadoop job, as for `recover`.
            options, progress: as for `recover`.

        Returns:
            The plan.

        Raises:
            JobError, StoreError: as for `recover`.
        """
        return self._end(adopt, dead_after, options, progress).abort(revert, leave_visible)

    @patient()
    def commit(
        self,
        *,
        expect: int | Collection[str] | None = None,
        accept: Collection[str] = (),
        adopt: bool = False,
        dead_after: Age | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
    ) -> ActionPlan[JobReport]:
        """Plan to commit what the job's tasks left, as `Job.commit` does at once. Repeatable; so
        is the run.

        Args:
            expect, accept: as for `Job.commit`.
            adopt, dead_after: for a Hadoop job, as for `recover`.
            options, progress: as for `recover`.

        Returns:
            The plan. Its row names the ``tasks``, and counts ``files`` and ``bytes``.

        Raises:
            JobError, StoreError: as for `recover`.
        """
        return self._end(adopt, dead_after, options, progress).commit(expect, accept)

    @patient()
    def adopt(
        self, *, dead_after: Age | None = None, options: Options | None = None
    ) -> ActionPlan[Adoption]:
        """Plan to adopt a Hadoop job, as `magic_committer.adopt` does at once. Repeatable; the run
        is not.

        Args:
            dead_after, options: as for `magic_committer.adopt`.

        Returns:
            The plan.

        Raises:
            JobError, StoreError: as for `magic_committer.adopt`.
        """
        return self._end(True, dead_after, options, no_progress).adopting()

    @patient()
    def give_up(
        self,
        *,
        dead_after: Age | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
    ) -> ActionPlan[GivenUp]:
        """Plan to give the job up, as `magic_committer.force_abort` does at once. Repeatable; so is
        the run.

        Args:
            dead_after, options, progress: as for `magic_committer.force_abort`.

        Returns:
            The plan. Its row has the fields of `GivenUp`.

        Raises:
            JobError, StoreError: as for `magic_committer.force_abort`.
        """
        return self._end(False, dead_after, options, progress).give_up()

    def _end(
        self,
        adopt: bool,
        dead_after: Age | None,
        options: Options | None,
        progress: ProgressFunction,
    ) -> Ending:
        from magic_committer.maintenance.ending import Ending  # late: it imports these values

        if self._s3 is None:
            raise OptionError("this job was not found by `inspect`: only its values are known")
        if not self.id:  # it stands for the jobs of a place
            raise JobError(f"{self.dest}: {self.problem}")
        limit = None if dead_after is None else seconds("dead_after", dead_after)
        dest = Destination.parse(self.dest)
        runtime = wiring.runtime_for(dest.bucket, self._s3, progress)
        return Ending(runtime, dest, self.id, adopt, limit, options_of(options))


@dataclass(frozen=True, slots=True)
class Recovery(Told):
    """What `recover` found and did.

    Attributes:
        job_id, uuid: the job's id and UUID.
        dest: the destination's URL.
        found: the record's state before; ``"absent"``: no record.
        state: the record's state afterwards. ``"closed"``: everything is done. Another state: see
            ``report.warnings``, and recover again.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" for "unknown".
        did: what was done, in one sentence; with ``dry_run``, what would be done.
        dry_run: whether nothing was changed.
        unresolved: with ``dry_run``, the first keys that the operator must accept (``accept``).
        report: the report of the commit or abort; None if there was none.
    """

    job_id: str
    dest: str
    found: str
    state: str
    outcome: str
    did: str
    uuid: str = ""
    dry_run: bool = False
    unresolved: tuple[str, ...] = ()
    report: JobReport | None = None


@dataclass(frozen=True, slots=True)
class Adoption(Told):
    """A Hadoop job as it was adopted; with ``dry_run``, as it would be.

    Attributes:
        job_id: the job's id, the name of its directory.
        dest: the destination's URL.
        uuid: drawn for the record; "" with ``dry_run``.
        pendingsets: where the pendingsets are that a commit accepts, below the destination.
        tasks: how many tasks have such a pendingset.
        passed_over: directories of older application attempts whose pendingsets will be aborted.
        passed_over_tasks: how many tasks these attempts had committed.
        committed: whether `_SUCCESS` names the job: Hadoop has then committed all of it. After the
            adoption it cannot be aborted, and a commit only sweeps its leftovers.
        age: seconds, at least, since the last change of the job, by the store's clock.
        files, bytes: numbers of files and bytes that the job left, in all attempts.
        problem: what cannot be read.
    """

    job_id: str
    dest: str
    pendingsets: str
    tasks: int
    passed_over: tuple[str, ...]
    age: float
    files: int
    bytes: int
    problem: str = ""
    uuid: str = ""
    passed_over_tasks: int = 0
    committed: bool = False

    def older(self) -> str:
        """What happens to older application attempts, in a sentence; "" if there are none. Pure."""
        if not self.passed_over:
            return ""
        tasks = counted(self.passed_over_tasks, "task")
        where = name_some(self.passed_over, PASSED_OVER_NAMED_MAX)
        return f"its older application attempts had committed {tasks}, which are aborted: {where}"


@dataclass(frozen=True, slots=True)
class GivenUp(Told):
    """What was given up of a job; with ``dry_run``, what would be.

    Attributes:
        job_id: the job's id.
        dest: the destination's URL.
        found: the record's state before; ``"unreadable"`` if the record cannot be read.
        state: the record's state afterwards; ``"absent"``: it is deleted.
        outcome: ``"aborted"`` or ``"reverted"`` if the job could be undone after all;
            ``"committed"`` if it had committed; "" if it was given up. For "", ``visible`` says
            what is visible, as far as that is known.
        why: why the job cannot be undone, in words; "" if it can.
        visible: keys of the job's files that stay and are visible, or may be (the store does not
            say); of many only the first.
        visible_files: how many such files there are.
        open: with ``dry_run``: how many uploads are open.
        aborted: how many uploads were aborted.
        deleted: how many visible files were deleted.
        left_open: uploads that may still be open, as ``key uploadId``: a lifecycle rule removes
            them.
        unread: control objects that could not be read or deleted, or that name uploads of others.
            The uploads that they name are left alone.
        dry_run: whether nothing was changed.
        report: the report of the abort, if the job could be undone; otherwise None.
    """

    job_id: str
    dest: str
    found: str
    state: str
    outcome: str = ""
    why: str = ""
    visible: tuple[str, ...] = ()
    visible_files: int = 0
    open: int = 0
    aborted: int = 0
    deleted: int = 0
    left_open: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    dry_run: bool = False
    report: JobReport | None = None


@dataclass(frozen=True, slots=True)
class CleanupReport(Told):
    """What `cleanup` did; with ``dry_run``, what it would do.

    Attributes:
        dest: the destination's URL.
        dry_run: whether nothing was changed.
        recovered: the jobs that were aborted or finished.
        jobs_left: directories that were left as they are: live jobs, and Hadoop's jobs.
        uploads_aborted: uploads of jobs that are over, found by name or named by litter.
        uploads_left: uploads of such jobs that were left: they are too young, have no age, their
            job could not be looked for, or they could not be removed (``errors`` says why).
        uploads_nameless: open uploads that tell no job by their names and are older than a
            week: those of other programs, above all.
        objects_deleted: control objects that a job left behind.
        records_deleted: closed records.
        did: a line for each thing done; of many of one kind only the first.
        errors: what failed. A failure did not stop the rest; the next cleanup tries again. Also:
            why uploads may be open that no listing of the store shows.
        unfinished: with ``finish=False``: what `recover` would do with decided jobs that nobody
            finishes.
    """

    dest: str
    dry_run: bool
    recovered: tuple[Recovery, ...] = ()
    jobs_left: int = 0
    uploads_aborted: int = 0
    uploads_left: int = 0
    objects_deleted: int = 0
    records_deleted: int = 0
    did: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    unfinished: tuple[Recovery, ...] = ()
    uploads_nameless: int = 0


def together(whole: CleanupReport, parts: Sequence[CleanupReport]) -> CleanupReport:
    """Add the reports of a path and of the places below it to that of all. Pure."""
    added = {
        one.name: sum((getattr(part, one.name) for part in parts), getattr(whole, one.name))
        for one in fields(whole)
        if one.name not in ("dest", "dry_run")
    }
    return replace(whole, **added)


@dataclass(frozen=True, slots=True)
class StreamState(Told):
    """What the ledger of a streaming query says.

    Attributes:
        query: the query's id.
        dest: the destination's URL.
        done: the number of the last batch that is published; None: none is.
        done_by: the UUID of the job that has published it; "" if none is.
        claim: the id of the job that has claimed the next batch; "": no job has.
        claimed: the number of the claimed batch; None: none is claimed.
        checkpoint: the hash of the checkpoint from which ``done`` was published; "": not known.
    """

    query: str
    dest: str
    done: int | None = None
    done_by: str = ""
    claim: str = ""
    claimed: int | None = None
    checkpoint: str = ""

"""One driver for a job of renames: it moves the record, and has done what each state asks for.

It is the state machine of `commit.job_commit`, over a file tree: the stored record says what comes
next (`rules.next_step`), and whoever reads it obeys: the driver that decides, a slower driver, a
recovery, an abort. `gather` reads what the tasks left, `publish` makes a decided job's files
visible, `undo` takes it back and leaves nothing behind; they move no record.

* Everything is checked and the plan is stored before the one create that decides.
* In ``committing`` the files are renamed. What the job replaces is deleted in ``completed``: from
  there nothing is taken back.
* A failure after the decision is `CommitIncomplete` until all files are visible and what the job
  replaces is gone. Every step may be done again, by anyone, after any crash.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from magic_committer._patience import Kind, patient
from magic_committer._quantities import counted
from magic_committer.commit.batches import (
    Claimant,
    batch_needed,
    claim_batch,
    published_by,
    refuse_other_batch,
    say_published,
    settle_claim,
)
from magic_committer.commit.conflict import destination_exists
from magic_committer.commit.outcome import (
    committed,
    deciding,
    ended,
    ended_by_record,
    half_aborted,
    incomplete,
    interrupted,
    not_all_visible,
    not_undone,
    undecided,
    unknown,
    unread,
)
from magic_committer.commit.prepare import Prospect, wanted_results
from magic_committer.commit.setup import decider
from magic_committer.commit.success_marker import DIAGNOSTIC_STARTED
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.gather import check_files, drop_plan, gather, write_plan
from magic_committer.committers.manifest.ledgers import TreeLedgers
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.plan import PlanWriter, RenamePlan, load_plan
from magic_committer.committers.manifest.publish import (
    Renamed,
    delete_replaced,
    directories_of,
    marker_ref,
    publish_all,
    read_marker,
    write_marker,
)
from magic_committer.committers.manifest.undo import forget_some, remove_job, sweep, undo_all
from magic_committer.errors import (
    CommitIncomplete,
    CommitRefused,
    DestinationExists,
    FormatError,
    JobError,
    JobNotRunning,
    MagicError,
    NotFound,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.hadoop import statistics as stats
from magic_committer.hadoop.formats import SuccessData, new_success
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import FAILING
from magic_committer.protocol.ledger import Claim, StreamBatch
from magic_committer.protocol.record import (
    Decider,
    JobRecord,
    JobReport,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.protocol.rules import Step, next_step
from magic_committer.remedy import Remedy

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True, slots=True)
class _End:
    """What a step from ``completed`` to the end found."""

    state: State
    warnings: tuple[str, ...] = ()


class TreeJobCommit:
    """One process that commits, finishes, aborts or reverts one job.

    Args:
        parts, job: the components and the job.
        role: who decides, for the record: ``"driver"`` or ``"recovery"``.
        accept: names that the operator takes as they are: unresolved ones, and replaced ones that
            cannot be deleted.
    """

    def __init__(
        self, parts: Parts, job: StartedJob, role: str = "driver", accept: Collection[str] = ()
    ) -> None:
        self.parts = parts
        self.job = job
        self.role = role
        self.accept = accept
        self.batch: StreamBatch | None = None
        """What the job publishes of a streaming query, as far as this process knows."""
        self.paths = TreeJobPaths(job.uuid)
        self.ledgers = TreeLedgers(parts)
        self.statistics = Statistics()
        self._started = parts.clock.monotonic()

    # What callers ask -----------------------------------------------------------------------------

    def commit(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """Commit the job, or finish what another process decided. Repeatable.

        Args:
            results, expect: as for `Job.commit`.
            batch: what the job publishes of a streaming query; None: it belongs to none. If the
                batch is published already, the job is aborted, and the report says ``skipped``.

        Raises:
            IncompleteJob, OptionError, ConflictingJob: nothing was decided.
            BatchUnsettled: the run before cannot be settled now. Nothing was decided.
            CommitRefused, DestinationExists: a check failed; the job is aborted.
            CommitIncomplete: the job is committed, but not all of it is visible yet, or what it
                replaces is still there. Call it again.
            JobNotRunning: the job was aborted, or is being undone.
            OutcomeUnknown: the job's record is gone, or the file system gives no clear answer.
            StoreError: a check could not be made. Nothing was decided by this call.
        """
        self.batch = batch
        with patient(), interrupted(unread(self.job)):
            try:
                seen = self._read()
                if seen is None or next_step(seen.record.state) is not Step.DECIDE:
                    return self._obey(seen)
                with interrupted(self._undecided()):
                    return self._commit_running(seen, results, expect)
            except JobNotRunning as error:  # another run of the batch may have settled this one
                told = self._published(error.outcome)
                if told is None:
                    raise
                return replace(told, state=error.state)

    def _commit_running(
        self,
        seen: records.SeenVersion,
        results: Iterable[TaskCommit] | None,
        expect: int | Iterable[str] | None,
    ) -> JobReport:
        """Commit a job that was seen running."""
        if seen.record.checkpoint and self.batch is None:
            raise batch_needed(self.job)
        wanted = wanted_results(self.job, results)
        if self.batch is not None:
            with self.statistics.timed(stats.CLAIM_BATCH, self.parts.clock):
                if not self._claim(self.batch):
                    return self._skip(seen)
        with self.statistics.timed(stats.COMMIT_JOB, self.parts.clock):
            try:
                plan, directories = self._prepare(wanted, expect)
            except (JobError, StoreError) as error:
                with interrupted(unread(self.job)):  # another process may have decided
                    return self._refused(seen, error)
            with interrupted(deciding(self.job)):
                now = self._decide(seen, plan)
                if now is None or now.record.state is not State.COMMITTING:
                    return self._obey(now)
                if now.record.plan != plan.ref:
                    return self._obey(now)
                return self._publish(now, plan, directories, may_remove=True)

    def look(self, expect: int | Iterable[str] | None = None) -> Prospect:
        """What `commit` without results would decide now. Only reads, and writes a plan that is
        deleted again."""
        with PlanWriter(self.parts, self.paths) as writer:
            try:
                found = gather(self.parts, self.job, None, writer.publish)
                check_files(self.parts, self.paths, writer.sofar(), found)
            finally:
                drop_plan(self.parts, writer.path)
        return Prospect(tuple(sorted(found.tasks)), found.files, found.bytes, tuple(found.problems))

    def abort(self, *, revert: bool = False) -> JobReport:
        """Abort a running job; undo a committing one, if told to; finish one that is being aborted
        or undone. Repeatable.

        Raises:
            JobNotRunning: the job is or was committed; its data stays.
            AbortIncomplete: not everything is gone. Call it again.
            OutcomeUnknown: the job's record is gone, or the file system gives no clear answer.
        """
        with patient(), interrupted(half_aborted(self.job)):
            seen = self._read()
            if seen is None:
                raise self._gone()
            decided_here = False
            if seen.record.state is State.RUNNING:
                aborting = seen.record.step(
                    State.ABORTING, self.parts.ids(), decider=decider(self.role)
                )
                swapped = records.swap(self.parts, seen, aborting)
                decided_here, now = swapped.won, swapped.now
                if now is None:
                    raise self._gone()
                seen = now
            if seen.record.state is State.COMMITTING and revert:
                reverting = self._swap_to(seen, State.REVERTING)
                if reverting is None:
                    raise self._gone()
                seen = reverting
            return self._abandon(seen, may_remove=decided_here)

    def settle(self, state: State) -> JobReport:
        """Settle a job instead of its driver: finish it if it is decided to commit, otherwise abort
        or undo it. Repeatable."""
        if next_step(state) not in (Step.COMPLETE, Step.FINISH):
            return self.abort()
        try:
            return self.commit()
        except DestinationExists as conflict:  # mode `fail`: the job was reverted instead
            if isinstance(conflict.report, JobReport):
                return conflict.report
            raise

    # A batch of a streaming query -----------------------------------------------------------------

    def _claim(self, batch: StreamBatch) -> bool:
        """Claim the batch; False: it is published already. Raises as `claim_batch`."""

        def settle(claim: Claim) -> bool:
            return settle_claim(self.job, batch, claim, self._claimant)

        return claim_batch(self.ledgers, self.parts.ids, self.job, batch, settle)

    def _claimant(self, claim: Claim) -> Claimant | None:
        seen = records.read(self.parts, TreeJobPaths(claim.uuid))
        if seen is None:
            return None
        state = seen.record.state
        job = StartedJob.taken_over(seen.record, self.job.dest, seen.record.nonce)
        other = TreeJobCommit(self.parts, job, "recovery")
        return Claimant(state, lambda: other.settle(state))

    def _skip(self, seen: records.SeenVersion) -> JobReport:
        """The batch is published already: abort this run of it."""
        aborting = seen.record.step(State.ABORTING, self.parts.ids(), decider=decider(self.role))
        with interrupted(half_aborted(self.job)):
            swapped = records.swap(self.parts, seen, aborting)
            if not swapped.won or swapped.now is None:
                return self._obey(swapped.now)
            report = self._abandon(swapped.now, may_remove=True)
        return replace(report, skipped=True)

    def _published(self, outcome: str) -> JobReport | None:
        """What the ledger says about the batch of a job that will not publish it any more: a
        report, or None if the batch is not published, or nobody can tell."""
        who = published_by(self.ledgers, self.job, self.batch) if self.batch is not None else ""
        if who == "it":
            return self._report("committed", State.ABSENT)
        return replace(self._report(outcome, State.ABSENT), skipped=True) if who else None

    # The decision ---------------------------------------------------------------------------------

    def _undecided(self) -> tuple[str, Remedy]:
        """What an interrupted commit says that has not decided."""
        return undecided(self.job)

    def _prepare(
        self, wanted: list[TaskCommit] | None, expect: int | Iterable[str] | None
    ) -> tuple[RenamePlan, Collection[str]]:
        """Make the plan that is to be decided, and the directories that its files need. Raises as
        `write_plan`."""
        plan, found = write_plan(self.parts, self.job, wanted, expect)
        return plan, found.directories

    def _read(self) -> records.SeenVersion | None:
        return records.read(self.parts, self.paths)

    def _decide(self, seen: records.SeenVersion, plan: RenamePlan) -> records.SeenVersion | None:
        """Decide *commit*. The loser deletes its plan."""
        committing = seen.record.step(
            State.COMMITTING,
            self.parts.ids(),
            decider=decider("driver"),
            plan=plan.ref,
            batch=self.batch,
        )
        with self.statistics.timed(stats.DECIDE, self.parts.clock):
            swapped = records.swap(self.parts, seen, committing)
        if swapped.won:
            logger.info("job %s: committed, %d files", self.job.id, plan.totals.files)
        else:
            drop_plan(self.parts, plan.ref.key)
        return swapped.now

    def _refused(self, seen: records.SeenVersion, error: MagicError) -> JobReport:
        """A check failed, or could not be made. What looked wrong may have been another driver's
        work: the record is read again before the job is aborted, or the error is raised."""
        now = self._read()
        if now is None or now.version != seen.version:
            return self._obey(now)
        if isinstance(error, CommitRefused | DestinationExists):
            aborting = seen.record.step(
                State.ABORTING, self.parts.ids(), decider=decider(self.role)
            )
            with interrupted(half_aborted(self.job)):
                swapped = records.swap(self.parts, seen, aborting)
                if not swapped.won:
                    return self._obey(swapped.now)
                assert swapped.now is not None
                error.report = self._abandon(swapped.now, may_remove=True)
        raise error

    def _obey(self, seen: records.SeenVersion | None) -> JobReport:
        """Do what the record says, for a caller that wants the job committed."""
        if seen is None:
            return self._without_record()
        step, record = next_step(seen.record.state), seen.record
        refuse_other_batch(record, self.batch)
        if step in (Step.COMPLETE, Step.FINISH):
            return self._publish_stored(seen)
        if step is Step.TELL and record.outcome == "committed":
            return self._report("committed", State.CLOSED, record.decider)
        raise ended_by_record(self.job.dest, record)

    def _without_record(self) -> JobReport:
        """There is no record: only the marker may tell, and the ledger."""
        try:
            marker = read_marker(self.parts)
        except StoreError as error:  # no refusal: this call may have decided
            raise unknown(self.job) from error
        if marker is not None and marker.uuid == self.job.uuid:
            return self._report("committed", State.ABSENT)
        if (told := self._published("")) is not None:
            return told
        raise unknown(self.job)

    def _gone(self) -> MagicError:
        try:
            self._without_record()
        except OutcomeUnknown as error:
            return error
        return ended(self.job.dest, self.job.id, State.ABSENT, "committed")

    def _swap_to(
        self, seen: records.SeenVersion, state: State, **changes: object
    ) -> records.SeenVersion | None:
        """Move the record on, and give it as it is then; None: it is gone."""
        record = seen.record.step(state, self.parts.ids(), **changes)
        return records.swap(self.parts, seen, record).now

    # Forward --------------------------------------------------------------------------------------

    @patient(Kind.DECIDED)
    def _publish_stored(self, seen: records.SeenVersion) -> JobReport:
        """Go on by the stored plan, from ``committing`` or ``completed``."""
        record = seen.record
        assert record.plan is not None
        self.batch = record.batch
        plan: RenamePlan | None = None
        directories: set[str] = set()
        try:
            with interrupted(committed(self.job)):
                plan = load_plan(self.parts.tree, record.plan)
                directories = directories_of(plan)
        except NotFound as error:
            now = self._read()
            if now is None or now.version != seen.version:
                return self._obey(now)
            if record.state is not State.COMPLETED:
                raise self._incomplete(seen, "its plan is gone", error) from error
            plan = None  # only the end is left
        except (FormatError, StoreError) as error:
            raise self._incomplete(seen, "its plan cannot be read", error) from error
        return self._publish(seen, plan, directories, may_remove=False)

    def _publish(
        self,
        seen: records.SeenVersion,
        plan: RenamePlan | None,
        directories: Collection[str],
        *,
        may_remove: bool,
    ) -> JobReport:
        """Do all steps from the present state of the record to the end."""
        report = self._report("committed", seen.record.state)
        names: Sequence[str] = ()
        now: records.SeenVersion | None = seen
        with patient(Kind.DECIDED), interrupted(committed(self.job), report):
            if seen.record.state is State.COMMITTING:
                assert plan is not None
                try:
                    renamed = publish_all(
                        self.parts, self.paths, plan, directories,
                        over=self.job.terms.mode not in FAILING, accept=self.accept,
                    )  # fmt: skip
                    names = renamed.names
                    self.statistics.add(stats.BYTES_COMMITTED, plan.totals.bytes)
                    self.statistics.add(stats.COMMITS_COMPLETED, plan.totals.files)
                    now = self._after_renames(seen, renamed)
                except (StoreError, FormatError, OutcomeUnknown) as error:
                    now = self._moved_on(seen, error, "not all of it is visible")
            if now is None:
                return self._without_record()
            try:
                end = self._finish_committed(now, plan, may_remove)
            except (StoreError, FormatError) as error:
                now = self._moved_on(now, error, "not all that it replaces is gone")
                if now is None:
                    return self._without_record()
                end = self._finish_committed(now, None, may_remove=False)
        return self._report("committed", end.state, now.record.decider, end.warnings, plan, names)

    def _moved_on(
        self, seen: records.SeenVersion, error: MagicError, what: str
    ) -> records.SeenVersion | None:
        """The record, if another process has moved it on: then an error of this one, which found a
        plan or a directory gone, says nothing.

        Raises:
            CommitIncomplete: it is as it was.
        """
        now: records.SeenVersion | None = seen
        with suppress(StoreError):
            now = self._read()
        if now is not None and now.version == seen.version:
            raise self._incomplete(seen, what, error) from error
        return now

    def _incomplete(
        self, seen: records.SeenVersion, what: str, error: MagicError
    ) -> CommitIncomplete:
        """The error that says how far the record is: only a ``committing`` job can be undone."""
        told = incomplete(self.job, what, error)
        told.state = str(seen.record.state)
        return told

    def _after_renames(
        self, seen: records.SeenVersion, renamed: Renamed
    ) -> records.SeenVersion | None:
        """The record after the renames: ``completed``, or what another process has made of it.

        Raises:
            CommitIncomplete: not all files are visible, and the job is ``committing`` still.
            DestinationExists: mode ``fail`` met another program's file; the job is reverted.
        """
        if not (renamed.failed or renamed.unresolved or renamed.conflict):
            return self._swap_to(seen, State.COMPLETED, marker=marker_ref(self.parts))
        now = self._read()
        if now is None or now.version != seen.version:
            return now
        if renamed.conflict:
            raise self._revert_after(now, renamed.conflict)
        cause: MagicError = JobError(
            f"{counted(len(renamed.unresolved), 'file')} cannot be told", job_id=self.job.id
        )
        if renamed.failed:
            cause = next(iter(renamed.failed.values()))
        raise not_all_visible(
            self.job, cause, (), renamed.unresolved, (), sorted(renamed.failed)
        ) from cause

    def _revert_after(self, seen: records.SeenVersion, name: str) -> DestinationExists:
        """Revert a job of a mode ``fail``, because another program's file is in the way: nothing
        was there before, so undoing takes back everything."""
        conflict = destination_exists(self.job, f"{self.job.dest}{name}")
        with interrupted(half_aborted(self.job)):
            reverting = self._swap_to(seen, State.REVERTING)
            if reverting is None:
                raise self._gone()
            conflict.report = self._abandon(reverting, may_remove=False)
        return conflict

    def _finish_committed(
        self, seen: records.SeenVersion, plan: RenamePlan | None, may_remove: bool
    ) -> _End:
        """From ``completed`` to the end."""
        record = seen.record
        if record.state is State.CLOSED and record.outcome == "committed":
            return _End(State.CLOSED)
        if record.state is not State.COMPLETED:
            raise ended_by_record(self.job.dest, record)
        warnings: list[str] = []
        if plan is not None:
            try:
                failed = delete_replaced(self.parts, self.paths, plan, self.accept)
            except NotFound:
                failed = {}  # another process has come to the sweep: it has deleted them
            if failed:
                cause = next(iter(failed.values()))
                raise incomplete(
                    self.job,
                    f"{counted(len(failed), 'file')} that it replaces could not be deleted",
                    cause,
                    outstanding=tuple(failed),
                ) from cause
            self._mark(seen, plan, warnings)
        self._say_published(record, warnings)
        return self._end(seen, "committed", may_remove, warnings)

    def _say_published(self, record: JobRecord, warnings: list[str]) -> None:
        """Tell the ledger, before the job's record is finished. Raises as `say_published`."""
        if record.batch is None:
            return
        told = say_published(self.ledgers, self.parts.ids, self.job, record.batch, self.accept)
        if told:
            warnings.append(told)

    def _mark(self, seen: records.SeenVersion, plan: RenamePlan, warnings: list[str]) -> None:
        if not self.job.terms.mark_success:
            return
        completed = seen.modified or self._modified(seen)
        try:
            why = write_marker(
                self.parts, self.paths, self.job.uuid, seen.record.marker, completed,
                self._success(seen, plan),
            )  # fmt: skip
        except StoreError as error:
            why = error.message
        if why:
            warnings.append(f"_SUCCESS was not written: {why}")

    def _modified(self, seen: records.SeenVersion) -> float:
        entry = self.parts.tree.stat(self.paths.record(seen.version))
        return entry.modified if entry is not None else 0.0

    def _success(self, seen: records.SeenVersion, plan: RenamePlan) -> SuccessData:
        document = self.statistics.to_dict()
        names = [f"/{file.name}" for file, _ in zip(plan.files(), range(100), strict=False)]
        return new_success(
            timestamp_ms=int(self.parts.clock.now() * 1000),
            hostname=socket.gethostname(),
            committer=self.job.terms.committer,
            description=f"magic-committer job {self.job.id}",
            job_id=self.job.id,
            job_id_source="magic-committer",
            metrics=document["counters"],
            diagnostics={
                "magic-committer.files": str(plan.totals.files),
                "magic-committer.bytes": str(plan.totals.bytes),
                "magic-committer.tasks": str(plan.totals.tasks),
                DIAGNOSTIC_STARTED: repr(seen.record.started),
            },
            filenames=tuple(names),
            iostatistics=document,
        )

    # Back -----------------------------------------------------------------------------------------

    def _abandon(self, seen: records.SeenVersion, *, may_remove: bool) -> JobReport:
        """From ``aborting``, ``reverting`` or ``reverted`` to the end."""
        if seen.record.state is State.REVERTING:
            seen = self._undo(seen)
        record = seen.record
        if record.state is State.CLOSED and record.outcome in ("aborted", "reverted"):
            return self._report(record.outcome, State.CLOSED, record.decider)
        if record.state not in (State.ABORTING, State.REVERTED):
            raise ended_by_record(self.job.dest, record)
        what = "aborted" if record.state is State.ABORTING else "reverted"
        end = self._end(seen, what, may_remove, [])
        logger.info("job %s: %s", self.job.id, what)
        return self._report(what, end.state, None, end.warnings)

    def _undo(self, seen: records.SeenVersion) -> records.SeenVersion:
        """Undo every file of a ``reverting`` job, then write ``reverted``. Repeatable."""
        assert seen.record.plan is not None
        failure: MagicError | None
        try:
            plan = load_plan(self.parts.tree, seen.record.plan)
            failure = undo_all(self.parts, self.paths, plan)
            if failure is None:
                reverted = self._swap_to(seen, State.REVERTED)
                if reverted is None:
                    raise self._gone()
                return reverted
        except (StoreError, FormatError) as error:
            failure = error
        now: records.SeenVersion | None = seen
        with suppress(StoreError):  # who cannot look again tells of the first failure
            now = self._read()
        if now is None:
            raise self._gone()
        if now.version != seen.version:
            return now
        raise not_undone(self.job, failure) from failure

    # The end --------------------------------------------------------------------------------------

    def _end(
        self, seen: records.SeenVersion, outcome: str, may_remove: bool, warnings: list[str]
    ) -> _End:
        """Sweep, then remove the job's directory or close its record. Failures are warnings: the
        record stays as it is, and recovery does it."""
        removes = may_remove and self.job.undisturbed and not self.job.given_id
        removes = removes and self.parts.tree.promises.directories
        state = seen.record.state
        try:
            if removes:
                remove_job(self.parts, self.paths)
                return _End(State.ABSENT, tuple(warnings))
            sweep(self.parts, self.paths)
            closed = seen.record.step(State.CLOSED, self.parts.ids(), outcome=outcome, marker=None)
            now = records.swap(self.parts, seen, closed).now
            state = now.record.state if now is not None else State.ABSENT
            if self.role == "driver" and not self.parts.tree.promises.directories:
                forget_some(self.parts, self.paths)
        except (StoreError, OutcomeUnknown) as error:
            warnings.append(f"what is left of the job could not be removed: {error.message}")
        for warning in warnings:
            logger.warning("job %s: %s", self.job.id, warning)
        return _End(state, tuple(warnings))

    def _report(
        self,
        outcome: str,
        state: State,
        decider: Decider | None = None,
        warnings: Sequence[str] = (),
        plan: RenamePlan | None = None,
        names: Sequence[str] = (),
    ) -> JobReport:
        totals = plan.totals if plan is not None else None
        return JobReport(
            job_id=self.job.id,
            uuid=self.job.uuid,
            dest=self.job.dest,
            mode=self.job.terms.mode,
            outcome=outcome,
            state=str(state),
            tasks=totals.tasks if totals else 0,
            files=totals.files if totals else 0,
            bytes=totals.bytes if totals else 0,
            filenames=tuple(names),
            decider=decider,
            warnings=tuple(warnings),
            seconds=self.parts.clock.monotonic() - self._started,
            statistics=self.statistics.to_dict(),
            query=self.batch.query if self.batch is not None else "",
            batch=self.batch.number if self.batch is not None else None,
        )

"""One driver for a job: it commits, finishes, aborts or reverts the job, step by step.

The stored record says what comes next (`rules.next_step`), and the process that holds a `JobCommit`
does it: the driver that decides, a slower driver, a recovery, an abort. They differ only in where
they begin. The order of requests is the protocol (protocol.md, "Job commit" and "Abort, revert").

Before the decision:

* Everything is checked and the plan is stored before the one swap that decides. If a check fails,
  the decision is *abort*. If a check cannot be made, or an argument is wrong, it raises, and the
  job runs on.
* A process that finds that another one was faster obeys the record. What looked wrong may have been
  the other's work: so the record is read again before anything is called wrong.

After the decision:

* A failure is `CommitIncomplete` until three things are done: all files are visible, what the job
  replaces is deleted, and a marker that it deleted is written again (mode ``replace``). The job is
  decided, and is never aborted. No caller is told "committed" while old data stays.
* The record leaves ``completed`` only when all of that is done, in every mode with `_SUCCESS`: the
  process that finishes the job does the rest. Failures of the sweep are warnings.
* Every step may be done again, by anyone, after any crash.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace

from magic_committer._patience import Kind, cleaning_up, patient
from magic_committer._quantities import counted, name_some
from magic_committer._runtime import Progress, Runtime
from magic_committer.commit import records
from magic_committer.commit.check import Checked, check_uploads, expected, spooled
from magic_committer.commit.closed import finish
from magic_committer.commit.complete import Completion, complete
from magic_committer.commit.conflict import (
    destination_exists,
    partitions_of,
    refuse_overlapping_plans,
)
from magic_committer.commit.deletes import delete_if_same
from magic_committer.commit.load import LoadedSet, Source, Spool, SpooledSource, StoredSource
from magic_committer.commit.outcome import (
    committed,
    committed_by_marker,
    deciding,
    ended,
    ended_by_record,
    half_aborted,
    incomplete,
    interrupted,
    not_all_visible,
    undecided,
    unknown,
)
from magic_committer.commit.plans import drop_plan, load_plan, store_plan
from magic_committer.commit.prepare import (
    Prospect,
    announcement,
    load_sets,
    make_plan,
    refusal,
    wanted_results,
    whose_they_are_is_lost,
)
from magic_committer.commit.probe import known, need
from magic_committer.commit.published import refuse_if_published
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.revert import not_undone, undo
from magic_committer.commit.setup import decider
from magic_committer.commit.success_marker import marker_ref, success_data, write_marker
from magic_committer.commit.sweep import Swept, nothing_spared, sweep
from magic_committer.commit.upload_state import Removal, UploadName, UploadRemover
from magic_committer.errors import (
    AlreadyVisible,
    CommitIncomplete,
    ConflictingJob,
    DestinationExists,
    FormatError,
    IncompleteJob,
    JobError,
    MagicError,
    NotFound,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.hadoop import statistics as stats
from magic_committer.hadoop.formats import SUCCESS_FILENAMES_MAX, SuccessData
from magic_committer.hadoop.paths import Destination
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import BY_PARTITION, FAILING
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.plan import Plan
from magic_committer.protocol.record import (
    Decider,
    JobReport,
    ObjectRef,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.protocol.rules import Step, choose_attempts, next_step

logger = logging.getLogger("magic_committer")

UNANSWERED_RUN_MAX = 64
"""After this many Completes in a row without an answer the store counts as down. The rest is left
for the next try."""


class Conflict(Exception):
    """Another writer's object is at a key of a job of mode ``fail``. The argument is the key."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decided job publishes.

    Attributes:
        may_remove: the record may be deleted: this process alone decided, undisturbed, a job whose
            id was drawn. Otherwise it is left ``closed``.
        decider: the process that decided, for the report; None: this process.
    """

    plan: Plan
    source: Source
    may_remove: bool = False
    decider: Decider | None = None


class JobCommit:
    """One process that commits, finishes, aborts or reverts one job.

    Args:
        runtime, job: the components and the job.
        in_flight: how many requests at once.
        role: who decides, for the record: ``"driver"`` or ``"recovery"``. Only a driver deletes old
            closed records of other jobs as well (`closed`); an operator's cleanup does that once
            for all jobs.
        accept: keys that the operator takes as they are: unresolved keys, replaced keys that cannot
            be deleted, a `_SUCCESS` that cannot be written.
    """

    def __init__(
        self,
        runtime: Runtime,
        job: StartedJob,
        in_flight: int,
        role: str = "driver",
        accept: Collection[str] = (),
    ) -> None:
        self.runtime = runtime
        self.job = job
        self.in_flight = in_flight
        self.role = role
        self.accept = accept
        self.dest = Destination.parse(job.dest)
        self.paths = job.paths
        self.statistics = Statistics()
        self.names = KeySet()
        self.knows_all = False
        """``names`` holds every upload of the plan: this process has completed them."""
        self.filenames: list[str] = []
        self.warnings: list[str] = []
        self._started = runtime.clock.monotonic()

    @property
    def may_remove(self) -> bool:
        """Whether the record may be deleted once this process has decided: see
        `StartedJob.undisturbed`."""
        return self.job.undisturbed and not self.job.given_id

    # What callers ask -----------------------------------------------------------------------------

    def commit(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
    ) -> JobReport:
        """Commit the job, or finish what another process decided. Repeatable.

        Args:
            results: exactly the attempts to accept; None: what the tasks left on the store.
            expect: how many tasks there must be, or their ids.

        Raises:
            IncompleteJob, OptionError: nothing was decided. A job without tasks is incomplete,
                unless ``expect`` says that there are none (``expect=0``).
            CommitRefused: a check failed; the job is aborted, unless it was adopted.
            CommitIncomplete: the job is committed, but not all files are visible yet, or what it
                replaces is still there. Call it again.
            JobNotRunning: the job was aborted, or is being undone.
            OutcomeUnknown: the job's record is gone, or the store gives no clear answer.
            StoreError: a check could not be made. This call decided nothing; the job's record says
                what the job is. Call it again.
        """
        with patient(), interrupted(undecided(self.job)):
            seen = self._own_record()
            if seen is None or next_step(seen.record.state) is not Step.DECIDE:
                return self._obey(seen)
            wanted = wanted_results(self.job, results)
            with self._timed(stats.COMMIT_JOB), Spool() as spool:
                return self._commit_running(seen, wanted, expect, spool)

    def look(self, expect: int | Iterable[str] | None = None) -> Prospect:
        """What `commit` without results would decide now. Only reads. The job need not be started:
        a Hadoop job may be looked at before it is adopted.

        Raises:
            IncompleteJob: the tasks are not the expected ones.
            StoreError: a check could not be made.
        """
        with Spool() as spool:
            loaded = load_sets(self.runtime, self.job, None, spool)
            chosen, problems = self._choose(loaded.sets), loaded.problems
            problems += [f"{key}: says nowhere whose it is" for key in loaded.nobodys]
            if not problems:
                if expect is not None:  # a look may find that there is nothing
                    expected(self.job, [one.task for one in chosen], expect)
                problems = self._check(chosen, spool).problems
        return Prospect(
            tasks=tuple(one.task for one in chosen),
            files=sum(one.files for one in chosen),
            bytes=sum(one.bytes for one in chosen),
            problems=tuple(problems),
        )

    def abort(self, *, revert: bool = False, leave_visible: bool = False) -> JobReport:
        """Abort a running job; undo a committing one, if told to; finish one that is being aborted
        or undone. Repeatable.

        Args:
            revert: undo a committing job too.
            leave_visible: abort also a Hadoop job with visible files: they stay.

        Raises:
            AlreadyVisible: see ``leave_visible``. Nothing was decided.
            JobNotRunning: the job is or was committed; its data stays.
            AbortIncomplete: not everything is gone. Call it again.
            OutcomeUnknown: the job's record is gone, or the store gives no clear answer.
        """
        with patient(), interrupted(half_aborted(self.job)):
            seen = self._own_record()
            if seen is None:
                self._without_record()
                raise ended(self.job.dest, self.job.id, State.ABSENT, "committed")
            if seen.record.state is State.RUNNING:
                try:
                    stays = self._refuse_if_published(leave_visible)
                except AlreadyVisible:
                    now = records.read(self.runtime, seen.key)
                    if now is not None and now.record.nonce == seen.record.nonce:
                        raise
                    seen = now  # not the JVM's doing: another process has decided the job
                else:
                    swapped = self._swap_to_aborting(seen)
                    lost = swapped.now if not swapped.won else None
                    if lost is None or lost.record.state is not State.COMMITTING or not revert:
                        report = self._abandon(swapped.now, swapped.won and self.may_remove)
                        return replace(report, warnings=(*report.warnings, *stays))
                    seen = lost  # a driver was faster: the job is to be reverted then
            if seen is not None and seen.record.state is State.COMMITTING and revert:
                seen = self._swap_to_reverting(seen)
            return self._abandon(seen, False)

    # Obeying the record ---------------------------------------------------------------------------

    def _own_record(self) -> records.Seen | None:
        """The stored record, if it is this job's: an id may have been used again."""
        seen = records.read(self.runtime, self.paths.record)
        return seen if seen is not None and seen.record.uuid == self.job.uuid else None

    def _obey(self, seen: records.Seen | None) -> JobReport:
        """Do what the stored record asks for, or say what became of the job."""
        if seen is None:
            return self._without_record()
        record = seen.record
        if next_step(record.state) in (Step.COMPLETE, Step.FINISH):
            return self._execute_stored(seen)
        if record.state is State.CLOSED and record.outcome == "committed":
            return self._report("committed", State.CLOSED, record.decider)
        raise ended_by_record(self.job.dest, record)

    def _without_record(self) -> JobReport:
        """The record is gone: only the marker may tell the outcome (I10)."""
        if committed_by_marker(self.runtime, self.job):
            return self._report("committed", State.ABSENT)
        raise unknown(self.job)

    # The decision ---------------------------------------------------------------------------------

    def _commit_running(
        self,
        seen: records.Seen,
        wanted: list[TaskCommit] | None,
        expect: int | Iterable[str] | None,
        spool: Spool,
    ) -> JobReport:
        if wanted is not None:
            tasks = [result.task for result in wanted]
            expected(self.job, tasks, expect, by_results=True)
        with self._timed(stats.LOAD_SETS):
            loaded = load_sets(self.runtime, self.job, wanted, spool)
        accepted, problems = self._choose(loaded.sets), loaded.problems
        if loaded.nobodys:
            return self._unless_decided(seen, whose_they_are_is_lost(self.job, loaded.nobodys))
        if wanted is None and (accepted or not problems or expect is not None):
            try:
                expected(self.job, [one.task for one in accepted], expect)
            except IncompleteJob as error:
                return self._unless_decided(seen, error)
        elif wanted is not None and len(accepted) < len(loaded.sets):
            problems.append("a pendingset is of another job")
        checked = Checked()
        if not problems:
            with self._timed(stats.CHECK_UPLOADS):
                checked = self._check(accepted, spool)
            problems = checked.problems
        if problems and self.job.adopted:  # nobody can run it again: a person decides
            return self._unless_decided(seen, refusal(self.job, problems))
        if problems:
            return self._refuse(seen, refusal(self.job, problems))
        self.statistics.add(stats.TASKS_COMPLETED, len(accepted))
        return self._decide(seen, accepted, checked, spool)

    def _decide(
        self, seen: records.Seen, accepted: Sequence[LoadedSet], checked: Checked, spool: Spool
    ) -> JobReport:
        """Steps 3 and 4: store the plan, swap the record, and go on as the record then says."""
        if checked.files:  # another process may have started the job, and asked for itself
            need(self.runtime, self.paths, seen, {"true_complete"})
        announced = ""
        try:
            with self._timed(stats.SAVE_PLAN):
                partitions: tuple[str, ...] | None = None
                if self.job.terms.mode in BY_PARTITION:
                    partitions = partitions_of(self.dest, spooled(accepted, spool))
                    announced = self._announce(partitions)
                    refuse_overlapping_plans(self.runtime, self.job, self.dest, partitions)
                plan = make_plan(
                    self.runtime, self.job, self.in_flight, accepted, checked, spool, partitions
                )
                ref = store_plan(self.runtime, self.job, plan)
        except BaseException as error:
            # An aborter may have swept before the plan was stored; and nobody decides by it.
            with cleaning_up(error):
                drop_plan(self.runtime, self.job, announced)
            if isinstance(error, ConflictingJob | DestinationExists):
                return self._refuse(seen, error)
            raise
        with interrupted(deciding(self.job)):
            with self._timed(stats.DECIDE):
                swapped = self._swap_to_committing(seen, ref, plan.files)
                if not swapped.won:
                    drop_plan(self.runtime, self.job, announced)
            if not swapped.won or swapped.now is None:
                return self._obey(swapped.now)
            self.names = checked.names
            work = Decided(plan, SpooledSource(accepted, spool), self.may_remove)
            return self._execute(swapped.now, work)

    def _announce(self, partitions: tuple[str, ...]) -> str:
        plan = announcement(self.runtime, self.job, partitions)
        return store_plan(self.runtime, self.job, plan).key

    def _unless_decided(self, seen: records.Seen, error: JobError) -> JobReport:
        """Raise, unless a faster driver has swept what is missed: then obey that driver."""
        now = records.read(self.runtime, seen.key)
        if now is None or now.record.nonce != seen.record.nonce:
            return self._obey(now)
        raise error

    def _choose(self, loaded: list[LoadedSet]) -> list[LoadedSet]:
        return choose_attempts(loaded, "" if self.job.adopted else self.job.uuid)

    def _check(self, accepted: Sequence[LoadedSet], spool: Spool) -> Checked:
        return check_uploads(
            self.runtime, self.job, self.dest, accepted, spool, self.in_flight, self.accept
        )

    def _refuse(self, seen: records.Seen, why: JobError) -> JobReport:
        """A check failed: decide *abort*, then raise the reason. If another driver was faster, obey
        it: what looked wrong may have been its work."""
        try:
            swapped = self._swap_to_aborting(seen)
        except (StoreError, OutcomeUnknown) as error:
            error.add_note(f"The job was to be aborted, for it cannot be committed: {why}")
            raise
        if not swapped.won:
            return self._obey(swapped.now)
        aborted = self._abandon(swapped.now, self.may_remove)
        for warning in aborted.warnings:
            why.add_note(warning)
        why.report = aborted
        raise why

    def _refuse_if_published(self, leave_visible: bool) -> list[str]:
        """For a Hadoop job: what its JVM made visible, which an abort would leave."""
        if not self.job.adopted:
            return []
        stays = refuse_if_published(
            self.runtime, self.job, self.in_flight, leave_visible=leave_visible
        )
        return [stays] if stays else []

    # Swaps ----------------------------------------------------------------------------------------

    def _swap_to_committing(
        self, seen: records.Seen, plan: ObjectRef, files: int
    ) -> records.Swapped:
        """Decide *commit*. The loser of the swap deletes its plan."""
        committing = seen.record.step(
            State.COMMITTING, self.runtime.ids(), decider=decider("driver"), plan=plan
        )
        # If this raises, the plan stays: the swap may have won, or may still win.
        swapped = records.swap(self.runtime, seen, committing)
        if swapped.won:
            logger.info("job %s: committed, %d files to complete", self.job.id, files)
        elif swapped.now is None or not _names(swapped.now, plan.key):
            drop_plan(self.runtime, self.job, plan.key)
        return swapped

    def _swap_to_aborting(self, seen: records.Seen) -> records.Swapped:
        """Decide *abort*."""
        aborting = seen.record.step(State.ABORTING, self.runtime.ids(), decider=decider(self.role))
        return records.swap(self.runtime, seen, aborting)

    def _swap_to_reverting(self, seen: records.Seen) -> records.Seen | None:
        reverting = seen.record.step(State.REVERTING, self.runtime.ids())
        return records.swap(self.runtime, seen, reverting).now

    def _swap_to_completed(self, seen: records.Seen) -> records.Swapped:
        try:
            marks = self.job.terms.mark_success
            done = seen.record.step(
                State.COMPLETED,
                self.runtime.ids(),
                marker=marker_ref(self.runtime, self.dest.success_key) if marks else None,
            )
            return records.swap(self.runtime, seen, done)
        except (StoreError, OutcomeUnknown) as error:
            raise incomplete(
                self.job, "though all its files are visible its record does not say so yet", error
            ) from error

    # Forward: steps 5 to 8 ------------------------------------------------------------------------

    @patient(Kind.DECIDED)
    def _execute_stored(self, seen: records.Seen) -> JobReport:
        """Go on by the stored plan, from ``committing`` or ``completed``."""
        record = seen.record
        completed = record.state is State.COMPLETED
        plan: Plan | None = None
        try:
            plan = self._stored_plan(seen)
        except NotFound:
            if not completed:
                return self._obey(records.read(self.runtime, seen.key))
        if plan is None:  # in `completed` that means: only the sweep is left
            swept = self._sweep(look_first=True)
            warnings = list(swept.warnings)
            state = State.COMPLETED
            if not swept.again:
                state = self._finish(seen, "committed", False, warnings)
            return self._report("committed", state, record.decider, swept, warnings)
        source = StoredSource(self.runtime, self.job, plan, missing_is_fine=completed)
        return self._execute(seen, Decided(plan, source, decider=record.decider))

    def _stored_plan(self, seen: records.Seen) -> Plan:
        """The plan that the record names.

        Raises:
            NotFound: the plan is gone, and the record has moved on or is ``completed``.
            CommitIncomplete: the plan cannot be read.
        """
        assert seen.record.plan is not None
        try:
            return load_plan(self.runtime, self.job, seen.record.plan)
        except (StoreError, FormatError) as error:
            if isinstance(error, NotFound):
                now = records.read(self.runtime, seen.key)
                moved = now is None or now.record.nonce != seen.record.nonce
                if moved or seen.record.state is State.COMPLETED:
                    raise
            raise incomplete(self.job, "its plan cannot be read", error) from error

    @patient(Kind.DECIDED)
    def _execute(self, seen: records.Seen, work: Decided) -> JobReport:
        """Do all steps from the present state of the record to the end.

        Raises:
            CommitIncomplete: not everything is done. Call it again.
            DestinationExists: mode ``fail`` met another writer's object; the job is reverted.
        """
        if not work.plan.files:
            gone = len(work.plan.deletes)
            replaced = f", and deleted what was there: {counted(gone, 'file')}" if gone else ""
            self.warnings.append(f"the job published no file{replaced}")
        try:
            with interrupted(committed(self.job), self._report("committed", seen.record.state)):
                state, swept = self._go_on(seen, work)
        except Conflict as conflict:
            return self._revert_after(str(conflict), seen, work.source)
        except StoreError as error:  # the job is decided: never "this call decided nothing"
            raise incomplete(self.job, "what became of it cannot be read", error) from error
        return self._report(
            "committed", state, work.decider, swept, self.warnings, work.plan, self.filenames
        )

    def _go_on(self, seen: records.Seen, work: Decided) -> tuple[State, Swept]:
        """Do the steps that are left.

        Returns:
            The last state that was seen, and what the sweep found.

        Raises:
            CommitIncomplete: not everything is visible yet. Do it again.
            Conflict: mode ``fail`` met another writer's object: the job is to be reverted.
            JobNotRunning: the job is being reverted.
        """
        if next_step(seen.record.state) is Step.COMPLETE:
            if work.plan.marker is not None:
                self._delete_old_marker(work.plan.marker)
            if not self._complete_all(seen, work):
                return self._moved_on(records.read(self.runtime, seen.key), work)
            self.knows_all = True
            swapped = self._swap_to_completed(seen)
            if not swapped.won or swapped.now is None:
                return self._moved_on(swapped.now, work)
            seen = swapped.now
        return self._after_completed(seen, work)

    def _moved_on(self, now: records.Seen | None, work: Decided) -> tuple[State, Swept]:
        """Another process moved the record on while this process completed."""
        if now is None:
            if committed_by_marker(self.runtime, self.job):
                return State.ABSENT, Swept()
            raise unknown(self.job)
        state = now.record.state
        if state is State.COMPLETED:
            return self._after_completed(now, work)
        if state is State.CLOSED and now.record.outcome == "committed":
            return state, Swept()
        raise ended_by_record(self.job.dest, now.record)

    def _distrusts(self, source: Source) -> bool:
        """Whether a 200 to Complete is not enough. There are two cases: the store is not known to
        tell the truth; or somebody may have begun to complete what a stored plan names, and a
        server that was killed meanwhile answers falsely from then on. What this process has just
        decided is touched by nobody else, except by somebody who does not wait until it is dead
        (docs/recovery.md)."""
        stored = isinstance(source, StoredSource)
        return stored or known(self.runtime.store.identity).true_complete is not True

    def _delete_old_marker(self, marker: ObjectRef) -> None:
        """Delete the marker before a whole directory is replaced: readers that look for `_SUCCESS`
        then wait until it is back."""
        try:
            delete_if_same(self.runtime, marker.key, marker.etag, modified=marker.modified)
        except StoreError as error:
            raise incomplete(self.job, "the old _SUCCESS could not be deleted", error) from error

    def _complete_all(self, seen: records.Seen, work: Decided) -> bool:
        """Step 5. False if the record has left ``committing`` meanwhile."""
        if_none_match = self.job.terms.mode in FAILING
        distrust = self._distrusts(work.source)
        left: dict[Completion, list[str]] = {each: [] for each in Completion}
        done = unanswered_run = 0
        first_error: MagicError | None = None

        def one(upload: ReadyUpload) -> tuple[Completion, StoreError | None]:
            with self.statistics.timed(stats.MATERIALIZE_FILE, self.runtime.clock):
                return complete(
                    self.runtime, upload, if_none_match=if_none_match, distrust=distrust
                )

        def remaining() -> Iterator[ReadyUpload]:
            for upload in self._uploads(work.source):
                if unanswered_run >= UNANSWERED_RUN_MAX:
                    left[Completion.UNFINISHED].append(upload.key)
                else:
                    yield upload

        try:
            completing = self.runtime.pool.each(one, remaining(), in_flight=self.in_flight)
            with closing(completing) as outcomes:
                for outcome in outcomes:
                    (completion, error), key = outcome.unwrap(), outcome.item.key
                    if completion is Completion.DONE:
                        done, unanswered_run = done + 1, 0
                        self.runtime.progress(Progress("complete", done, work.plan.files, "files"))
                        continue
                    if completion is Completion.CONFLICT and key not in self.accept:
                        raise Conflict(key)
                    if completion is not Completion.UNFINISHED and key in self.accept:
                        self._take_as_it_is(outcome.item)
                        continue
                    first_error = first_error or error
                    left[completion].append(key)
                    unanswered_run += completion is Completion.UNFINISHED
        except (StoreError, FormatError) as error:  # a pendingset of the plan cannot be read
            first_error = error
        self.statistics.add(stats.COMMITS_COMPLETED, done)
        self.statistics.add(stats.COMMITS_FAILED, sum(map(len, left.values())))
        if first_error is None:
            self.statistics.add(stats.BYTES_COMMITTED, work.plan.data_bytes)
            return True
        with suppress(StoreError):  # the first error tells more
            now = records.read(self.runtime, seen.key)
            if now is None or now.record.state is not State.COMMITTING:
                return False
        raise not_all_visible(
            self.job,
            first_error,
            left[Completion.LOST],
            left[Completion.UNRESOLVED],
            left[Completion.REFUSED],
            left[Completion.UNFINISHED],
        ) from first_error

    def _take_as_it_is(self, upload: ReadyUpload) -> None:
        """Abort the job's own upload of a key that an operator takes as it is: the upload is not
        needed any more, and the sweep would spare it, because the plan names it."""
        removed = UploadRemover(self.runtime).remove(UploadName.of(upload))
        aborted = removed.removal is Removal.ABORTED and removed.error is None
        lost = ": its upload was open and is aborted, so the job's file is not published"
        self.warnings.append(f"{upload.key} was accepted as it is{lost if aborted else ''}")
        if removed.removal is Removal.LEFT:
            self.warnings.append(f"the upload of {upload.key} may be open still: {removed.why}")
        elif removed.why:
            self.warnings.append(f"the upload of {upload.key} is aborted; {removed.why}")

    def _uploads(self, source: Source) -> Iterator[ReadyUpload]:
        for uploads, statistics in source.uploads():
            self.statistics.merge(statistics)
            for upload in uploads:
                self.names.add(upload.name)
                if len(self.filenames) < SUCCESS_FILENAMES_MAX:
                    self.filenames.append(f"/{upload.key}")
                yield upload

    def _after_completed(self, seen: records.Seen, work: Decided) -> tuple[State, Swept]:
        """Steps 6 to 8. Everything is visible.

        Raises:
            CommitIncomplete: what the job replaces is still there, or the marker that it deleted is
                still missing.
        """
        self._delete_replaced(work.plan)
        if self.job.terms.mark_success and not self._mark(seen, work):
            return State.COMPLETED, Swept()
        swept = sweep(
            self.runtime,
            self.job,
            spared=self.names.__contains__,
            accepted={self.paths.tree + planned.name for planned in work.plan.sets},
            in_flight=self.in_flight,
            look_first=not self.knows_all or bool(self.job.adopted),
            accepted_attempts={planned.task: planned.attempt for planned in work.plan.sets},
        )
        self.warnings += swept.warnings
        if swept.again:
            return State.COMPLETED, swept
        state = self._finish(seen, "committed", work.may_remove, self.warnings)
        return state, swept

    def _delete_replaced(self, plan: Plan) -> None:
        """Step 6: delete what the plan names, each object only if it is still the planned
        version."""
        failures: dict[str, StoreError] = {}

        def one(replaced: ObjectRef) -> None:
            delete_if_same(self.runtime, replaced.key, replaced.etag, modified=replaced.modified)

        total = len(plan.deletes)
        if not total:
            return
        deleting = self.runtime.pool.each(one, plan.deletes, in_flight=self.in_flight)
        with (
            self.statistics.timed(stats.DELETE_REPLACED, self.runtime.clock),
            closing(deleting) as outcomes,
        ):
            for number, outcome in enumerate(outcomes, 1):
                if isinstance(outcome.error, StoreError):
                    if outcome.item.key in self.accept:
                        self.warnings.append(f"{outcome.item.key} was accepted as it is")
                    else:
                        failures[outcome.item.key] = outcome.error
                    continue
                outcome.unwrap()
                self.runtime.progress(Progress("replace", number, total, "files"))
        if failures:
            first = next(iter(failures.values()))
            raise incomplete(
                self.job,
                f"{counted(len(failures), 'file')} that it replaces could not be deleted yet:"
                f" {name_some(sorted(failures))}",
                first,
                outstanding=tuple(sorted(failures)),
            ) from first

    def _mark(self, seen: records.Seen, work: Decided) -> bool:
        """Step 7: write the marker. False if the store failed: the record and the plan stay, so
        that the process that finishes the job writes it.

        Raises:
            CommitIncomplete: it failed, and the job has deleted the old marker.
        """
        if self.dest.success_key in self.accept:
            self.warnings.append(f"{self.dest.success_key} was accepted as it is")
            return True
        try:
            self._read_names(work.source)
            left = write_marker(
                self.runtime, self.dest.success_key, seen.key, self._success_data(seen, work.plan)
            )
        except StoreError as error:
            if work.plan.marker is not None:
                what = "_SUCCESS could not be written, and the old one is deleted"
                marker = (self.dest.success_key,)
                raise incomplete(self.job, what, error, outstanding=marker) from error
            self.warnings.append(
                f"_SUCCESS could not be written; commit() again writes it: {error}"
            )
            return False
        except MagicError as error:  # its content cannot be made: nobody can write it
            self.warnings.append(f"_SUCCESS could not be written: {error}")
            return True
        if left:
            self.warnings.append(f"_SUCCESS was left as it is: {left}")
        return True

    def _read_names(self, source: Source) -> None:
        """Read the first names for `_SUCCESS`, if this process has completed nothing. They are for
        people: if a set cannot be trusted any more, the marker is written all the same."""
        if self.names:
            return
        try:
            for _ in zip(range(SUCCESS_FILENAMES_MAX), self._uploads(source), strict=False):
                continue
        except FormatError as error:
            self.warnings.append(f"_SUCCESS names {counted(len(self.filenames), 'file')}: {error}")

    def _success_data(self, seen: records.Seen, plan: Plan) -> SuccessData:
        self.statistics.add(stats.JOBS_COMPLETED)
        now = self.runtime.clock.now()
        return success_data(
            self.job.id, plan, self.statistics, self.filenames, seen.record.started, now
        )

    # Back -----------------------------------------------------------------------------------------

    def _abandon(self, seen: records.Seen | None, may_remove: bool) -> JobReport:
        """From ``aborting``, ``reverting`` or ``reverted`` to the end."""
        if seen is not None and seen.record.state is State.REVERTING:
            seen = self._undo_stored(seen)
        if seen is None:
            raise unknown(self.job)
        record = seen.record
        if record.state is State.CLOSED and record.outcome in ("aborted", "reverted"):
            return self._report(record.outcome, State.CLOSED, record.decider)
        if record.state not in (State.ABORTING, State.REVERTED):
            raise ended_by_record(self.job.dest, record)
        what = "aborted" if record.state is State.ABORTING else "reverted"
        # The uploads of a reverted job may have been completed before.
        swept = self._sweep(look_first=bool(self.job.adopted) or what == "reverted")
        warnings = list(swept.warnings)
        state: State = record.state
        if not swept.again:
            state = self._finish(seen, what, may_remove, warnings)
        logger.info("job %s: %s, %d uploads aborted", self.job.id, what, swept.aborted)
        return self._report(what, state, None, swept, warnings)

    def _undo_stored(self, seen: records.Seen) -> records.Seen | None:
        try:
            try:
                plan = self._stored_plan(seen)
            except NotFound:
                return records.read(self.runtime, seen.key)
        except CommitIncomplete as error:
            cause = error.__cause__ if isinstance(error.__cause__, MagicError) else error
            raise not_undone(self.job, cause) from cause
        except (StoreError, FormatError) as error:
            raise not_undone(self.job, error) from error
        source = StoredSource(self.runtime, self.job, plan, missing_is_fine=False)
        return undo(self.runtime, self.job, seen, source, self.in_flight)

    def _revert_after(self, key: str, seen: records.Seen, source: Source) -> JobReport:
        """Revert a job of mode ``fail``, because another writer's object is in the way. Nothing was
        there before, so undoing takes back everything (counterexamples.md, #12)."""
        try:
            now = self._swap_to_reverting(seen)
        except StoreError as error:
            what = f"{key} is somebody else's, and the job could not be reverted yet"
            raise incomplete(self.job, what, error, unfinished=(key,)) from error
        if now is not None and now.record.state is State.REVERTING:
            now = undo(self.runtime, self.job, now, source, self.in_flight)
        conflict = destination_exists(self.job, key)
        conflict.report = self._abandon(now, False)
        raise conflict

    # The end --------------------------------------------------------------------------------------

    def _sweep(self, *, look_first: bool = False) -> Swept:
        return sweep(
            self.runtime,
            self.job,
            spared=nothing_spared,
            accepted=frozenset(),
            in_flight=self.in_flight,
            look_first=look_first,
        )

    def _finish(
        self, seen: records.Seen, outcome: str, may_remove: bool, warnings: list[str]
    ) -> State:
        tidies = self.role == "driver"
        return finish(self.runtime, seen, outcome, may_remove, warnings, tidies=tidies)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return self.statistics.timed(name, self.runtime.clock)

    def _report(
        self,
        outcome: str,
        state: State,
        decider: Decider | None = None,
        swept: Swept | None = None,
        warnings: Sequence[str] = (),
        plan: Plan | None = None,
        filenames: Sequence[str] = (),
    ) -> JobReport:
        """The report about the job; with the plan's counts, if the plan was executed here."""
        swept = swept or Swept()
        for warning in warnings:
            logger.warning("job %s: %s", self.job.id, warning)
        return JobReport(
            job_id=self.job.id,
            uuid=self.job.uuid,
            dest=self.job.dest,
            mode=self.job.terms.mode,
            outcome=outcome,
            state=str(state),
            tasks=len(plan.sets) if plan else 0,
            files=plan.files if plan else 0,
            bytes=plan.data_bytes if plan else 0,
            filenames=tuple(filenames),
            decider=decider,
            warnings=tuple(warnings),
            left_open=swept.left_open,
            unattributed=swept.unattributed,
            seconds=self.runtime.clock.monotonic() - self._started,
            statistics=self.statistics.to_dict(),
        )


def _names(seen: records.Seen, key: str) -> bool:
    return seen.record.plan is not None and seen.record.plan.key == key

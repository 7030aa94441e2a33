"""One driver for a job: it moves the record, and has done what each state asks for.

The stored record says what comes next (`State`), and the process that holds a `Driver` does it: the
driver that decides, a slower driver, a recovery, an abort. They differ only in where they begin.
The order of requests is the protocol (protocol.md, "Commit" and "Abort, revert").

Here the job is decided, and here its record moves on, up to the last arrow, which `register.finish`
draws for it. The work between two moves is elsewhere: `gather` reads and checks what tasks left,
`publish` makes a decided job's data visible, `revert` undoes that, `sweep` leaves nothing behind.
They move no record, and call nothing here.

Before the decision:

* Everything is checked and the plan is stored before the one swap that decides. If a check fails,
  the decision is *abort*. If a check cannot be made, or an argument is wrong, it raises, and the
  job runs on.
* A process that finds that another one was faster obeys the record. What looked wrong may have been
  the other's work: so the record is read again before anything is called wrong.

After the decision:

* A failure is `CommitIncomplete` until three things are done: all files are visible, what the job
  replaces is deleted, and a marker that it deleted is written again (mode ``replace``). The job is
  decided, and is never aborted. No call reports "committed" while old data stays.
* The record leaves ``completed`` only when all of that is done, in every mode with `_SUCCESS`: the
  process that finishes the job does the rest. Failures of the sweep are warnings.
* Every step may be done again, by anyone, after any crash.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from magic_committer.commit import register, stream
from magic_committer.commit.conflict import (
    destination_exists,
    partitions_of,
    refuse_overlapping_plans,
)
from magic_committer.commit.gather import (
    Checked,
    Prospect,
    check_uploads,
    expected,
    load_sets,
    make_plan,
    refusal,
    wanted_results,
    whose_they_are_is_lost,
)
from magic_committer.commit.outcome import (
    Stage,
    as_last_read,
    committed_by_marker,
    ended,
    ended_by_record,
    incomplete,
    not_undone,
    refuse_other_terms,
    tell_interrupted,
    unknown,
)
from magic_committer.commit.probe import need
from magic_committer.commit.publish import Conflict, Publication
from magic_committer.commit.register import BATCHES_PER_LOOK, decider, finish, marker_ref
from magic_committer.commit.requests import Ahead, refuse_threads
from magic_committer.commit.revert import mark_begun, refuse_if_published, undo_all, what_stays
from magic_committer.commit.sets import (
    LoadedSet,
    Spool,
    Uploads,
    choose_attempts,
    drop_plan,
    load_plan,
    store_plan,
    stored_uploads,
)
from magic_committer.commit.sweep import Swept, job_records, sweep
from magic_committer.errors import (
    AlreadyVisible,
    CommitIncomplete,
    ConflictingJob,
    Decider,
    DestinationExists,
    FormatError,
    IncompleteJob,
    JobError,
    JobNotRunning,
    JobReport,
    MagicError,
    NotFound,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.hadoop import statistics as stats
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import BY_PARTITION
from magic_committer.protocol.ledger import Claim, StreamBatch
from magic_committer.protocol.plan import Plan
from magic_committer.protocol.record import (
    COMMITTED,
    ObjectRef,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Kind, cleaning_up, patient
from magic_committer.stores.base import UploadPage, transport_of

logger = logging.getLogger("magic_committer")

PAGES_AHEAD_MAX = 4
"""Pages of 1,000 open uploads that wait in memory, while record and sets are read: some 1 MiB."""

RECORDS_IN_FLIGHT = 16
"""Records of a query's runs that are read at the same time."""


class _OvertakenError(Exception):
    """Another process was faster. ``now``: the record that it has left, to be obeyed."""

    def __init__(self, now: register.Seen | None) -> None:
        super().__init__()
        self.now = now


class Driver:
    """One process that commits, finishes, aborts or reverts one job. ``role`` is ``"driver"`` or
    ``"recovery"``. Only a driver deletes old closed records of other jobs as well (`register`); an
    operator's cleanup does that once for all jobs. ``accept``: keys that the operator accepts:
    unresolved keys, replaced keys that cannot be deleted, a `_SUCCESS` that cannot be written.
    """

    def __init__(
        self,
        runtime: Runtime,
        job: StartedJob,
        role: str = "driver",
        accept: Collection[str] = (),
    ) -> None:
        refuse_threads(runtime.store, runtime.in_flight)
        self.runtime = runtime
        self.job = job
        self.role = role
        self.accept = accept
        self.batch: StreamBatch | None = None
        """What the job publishes of a streaming query, as far as this process knows."""
        self.checkpoint: str | None = None
        """The checkpoint in the job's record; None: this process has seen no record."""
        self.paths = job.paths
        self.dest = self.paths.dest
        self._listed: Ahead[UploadPage] | None = None
        self._stage: Stage = "unread"
        self._begun = State.RUNNING  # the state that it publishes from
        self.statistics = Statistics()
        self._timed = partial(self.statistics.timed, clock=runtime.clock)
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
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """Commit the job, or finish what another process decided. Repeatable. If the batch is
        published already, the job is aborted, and the report says ``skipped``. See `Job.commit` for
        what it raises."""
        self.batch = batch
        if batch is not None:
            stream.refuse_early(self.job.terms.committer)
            stream.refuse_unconditional(self.job)
        beside_record = isinstance(results, list) and len(results) == 1
        self._stage = "unread"
        with self._guarded():
            try:
                with self._listing(beside_record) as self._listed:
                    seen = self._own_record()
                    if seen is None or seen.record.state is not State.RUNNING:
                        return self._obey(seen)
                    self._stage = "undecided"
                    return self._decide(seen, results, expect)
            except JobNotRunning as error:  # another run of the batch may have settled this one
                self._stage = "unread"
                told = self._published(error.outcome) if batch is not None else None
                if told is None:
                    raise
                return replace(told, state=error.state)

    def look(self, expect: int | Iterable[str] | None = None) -> Prospect:
        """What `commit` without results would decide now. Only reads. The job need not be started:
        a Hadoop job may be looked at before it is adopted."""
        with Spool() as spool:
            loaded = load_sets(self.runtime, self.job, None, spool)
            chosen = spool.accepted = self._choose(loaded.sets)
            problems = loaded.problems
            problems += [f"{key}: says nowhere whose it is" for key in loaded.nobodys]
            if not problems:
                if expect is not None:  # a look may find that there is nothing
                    expected(self.job, [one.task for one in chosen], expect)
                problems = self._check(spool).problems
        return Prospect(
            tasks=tuple(one.task for one in chosen),
            files=sum(one.files for one in chosen),
            bytes=sum(one.bytes for one in chosen),
            problems=tuple(problems),
        )

    def abort(self, *, revert: bool = False, leave_visible: bool = False) -> JobReport:
        """Abort a running job; undo a committing one (``revert``); finish one that is being
        aborted or undone. Repeatable. ``leave_visible``: abort also a Hadoop job with visible
        files: they stay. See `Job.abort` for what it raises."""
        self._stage = "half aborted"
        with self._guarded():
            seen = self._own_record()
            if seen is None:
                self._without_record()
                raise ended(self.job.dest, self.job.id, State.ABSENT, "committed")
            won, stays = False, ""
            if seen.record.state is State.RUNNING:
                try:
                    if self.job.adopted:
                        stays = refuse_if_published(
                            self.runtime, self.job, leave_visible=leave_visible
                        )
                    else:
                        stays = what_stays(self.runtime, self.job)
                except AlreadyVisible:
                    now = self._own_now()
                    if now is not None and now.record.nonce == seen.record.nonce:
                        raise
                    seen = now  # not the JVM's doing: another process has decided the job
                else:
                    swapped = self._swap_to_aborting(seen, stays)
                    seen, won = swapped.now, swapped.won
            if seen is not None and seen.record.state is State.COMMITTING and revert:
                seen = self._swap(seen, State.REVERTING).now
            report = self._abandon(seen, won and self.may_remove)
            if self.job.adopted and stays and report.outcome == "aborted":
                return replace(report, warnings=(*report.warnings, stays))
            return report

    def settle(self, state: State, *, leave_visible: bool = False) -> JobReport:
        """Settle a job instead of its driver: finish it if it is decided to commit, otherwise abort
        or undo it. Repeatable. JobNotRunning and OutcomeUnknown: another process has moved the
        record on. Look again."""
        if state not in COMMITTED:
            return self.abort(leave_visible=leave_visible)
        try:
            return self.commit()
        except DestinationExists as conflict:  # mode `fail`: the job was reverted instead
            if isinstance(conflict.report, JobReport):
                return conflict.report
            raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Give all requests of the block one patience. If Ctrl-C interrupts it, add a note that
        says what is known of the job at its `_stage`, and its report."""
        with patient():
            try:
                yield
            except Exception:
                raise
            except BaseException as error:
                tell_interrupted(error, self.job, self._stage)
                committed = self._stage == "committed"
                report = self._report("committed", self._begun) if committed else None
                if committed or isinstance(getattr(error, "report", None), JobReport):
                    error.report = report  # type: ignore[attr-defined]
                raise

    # Obeying the record ---------------------------------------------------------------------------

    def _own_record(self) -> register.Seen | None:
        """`_own_now`, before anything is done. Raises as `refuse_other_terms`."""
        seen = self._own_now()
        if seen is not None:
            refuse_other_terms(self.job, seen.record)
            self.checkpoint = seen.record.checkpoint
        return seen

    def _own_now(self) -> register.Seen | None:
        """The stored record; None if there is none, or if the id has been used again since."""
        return register.read_own(self.runtime, self.paths.record, self.job.uuid)

    def _obey(self, seen: register.Seen | None) -> JobReport:
        """Do what the stored record asks for, or say what became of the job."""
        self._stage = "unread"  # a process that obeys did not decide
        if seen is None:
            return self._without_record()
        record = seen.record
        if self.batch is not None:
            stream.refuse_other_batch(record, self.batch)
        if record.state in COMMITTED:
            return self._publish_stored(seen)
        if record.state is State.CLOSED and record.outcome == "committed":
            return self._report("committed", State.CLOSED, record.decider)
        raise ended_by_record(self.job.dest, record)

    def _without_record(self) -> JobReport:
        """The record is gone: only the marker may tell the outcome, and the ledger (I10)."""
        try:
            marked = committed_by_marker(self.runtime, self.job)
        except StoreError as error:  # no refusal: this call may have decided
            raise unknown(self.job) from error
        if marked:
            return self._report("committed", State.ABSENT)
        if (told := self._published("")) is not None:
            return told
        raise unknown(self.job)

    # Steps 1 to 4: the decision -------------------------------------------------------------------

    def _decide(
        self,
        seen: register.Seen,
        results: Iterable[TaskCommit] | None,
        expect: int | Iterable[str] | None,
    ) -> JobReport:
        """Commit a job that was seen running."""
        if seen.record.checkpoint and self.batch is None:
            raise stream.batch_needed(self.job)
        wanted = wanted_results(self.job, results)
        if wanted is not None:
            tasks = [result.task for result in wanted]
            expected(self.job, tasks, expect, by_results=True)
        if self.batch is not None:
            settle = partial(stream.settle_claim, self.job, self.batch, look=self._claimant)
            with self._timed(stats.CLAIM_BATCH):
                if not stream.claim_batch(
                    self.runtime, self.job, self.batch, settle, self.checkpoint
                ):
                    return self._skip(seen)
        with self._timed(stats.COMMIT_JOB), Spool() as spool:
            try:
                with self._listing(any(result.files for result in wanted or ())) as self._listed:
                    publication, plan, announced = self._offer(seen, wanted, expect, spool)
                if self.job.terms.committer == "v1":
                    self._publish_early(publication)
                now = self._swap_to_committing(seen, publication, plan, announced)
                return self._publish(now, publication, self.may_remove)
            except _OvertakenError as overtaken:
                left = overtaken.now
            return self._obey(left)

    def _listing(self, goes: bool) -> AbstractContextManager[Ahead[UploadPage] | None]:
        """Begin to list the open uploads, if it ``goes``: beside the sets of results, whose uploads
        were all made before; of one result beside the record."""
        if not goes or self._listed is not None or self.batch is not None:
            return nullcontext(self._listed)
        pages = partial(self.runtime.store.list_uploads, self.dest.prefix)
        return Ahead(self.runtime, pages, pages_max=PAGES_AHEAD_MAX)

    def _offer(
        self,
        seen: register.Seen,
        wanted: list[TaskCommit] | None,
        expect: int | Iterable[str] | None,
        spool: Spool,
    ) -> tuple[Publication, ObjectRef, str]:
        """Steps 1 to 3: load the sets, check them, store the plan: see `_store_plan`."""
        with self._timed(stats.LOAD_SETS):
            loaded = load_sets(self.runtime, self.job, wanted, spool)
        accepted = spool.accepted = self._choose(loaded.sets)
        problems = loaded.problems
        if loaded.nobodys:
            self._raise_unless_decided(seen, whose_they_are_is_lost(self.job, loaded.nobodys))
        if wanted is None and (accepted or not problems or expect is not None):
            try:
                expected(self.job, [one.task for one in accepted], expect)
            except IncompleteJob as error:
                self._raise_unless_decided(seen, error)
        elif wanted is not None and len(accepted) < len(loaded.sets):
            problems.append("a pendingset is of another job")
        checked = Checked() if problems else self._check(spool)
        problems = problems or checked.problems
        if problems and self.job.adopted:  # nobody can run it again: a person decides
            self._raise_unless_decided(seen, refusal(self.job, problems))
        if problems:
            self._refuse(seen, refusal(self.job, problems))
        self.statistics.add(stats.TASKS_COMPLETED, len(accepted))
        return self._store_plan(seen, checked, spool)

    def _store_plan(
        self, seen: register.Seen, checked: Checked, spool: Spool
    ) -> tuple[Publication, ObjectRef, str]:
        """Step 3: look at what the job may meet at its destination, and store the plan. Gives what
        would be published, the stored plan, and the key of the plan that announces the job's
        partitions, or ""."""
        if checked.files:  # another process may have started the job, and asked for itself
            need(self.runtime, self.paths, seen, {"true_complete"})
        announced = ""
        try:
            with self._timed(stats.SAVE_PLAN):
                partitions: tuple[str, ...] | None = None
                if self.job.terms.mode in BY_PARTITION:
                    partitions = partitions_of(self.dest, (one.key for one in spool.named()))
                    announced = self._announce(partitions)
                    refuse_overlapping_plans(self.runtime, self.job, partitions)
                plan = make_plan(self.runtime, self.job, checked, spool, partitions)
                ref = store_plan(self.runtime, self.job, plan)
        except BaseException as error:
            # An aborter may have swept before the plan was stored; and nobody decides by it.
            with cleaning_up(error):
                drop_plan(self.runtime, self.job, announced)
            if isinstance(error, ConflictingJob | DestinationExists):
                self._refuse(seen, error)
            raise
        publication = Publication(
            self.runtime, self.job, plan, self.accept, self.statistics, spool, checked.names
        )
        return publication, ref, announced

    def _announce(self, partitions: tuple[str, ...]) -> str:
        """Store what others must know before they look at this job: a plan of its partitions, which
        nobody decides. Gives its key."""
        job = self.job
        plan = Plan(job.id, job.uuid, self.runtime.ids(), 0, 0, (), (), partitions)
        return store_plan(self.runtime, job, plan).key

    def _publish_early(self, publication: Publication) -> None:
        """Algorithm 1: make the files visible before anything is decided. Repeatable. The job runs
        on if not all are visible."""
        mark_begun(self.runtime, self.job)
        try:
            failure = publication.complete_all()
        except Conflict as conflict:
            raise destination_exists(self.job, str(conflict)) from conflict
        if failure is not None:
            raise failure.__cause__ or failure

    def _choose(self, loaded: list[LoadedSet]) -> list[LoadedSet]:
        return choose_attempts(loaded, "" if self.job.adopted else self.job.uuid)

    def _check(self, spool: Spool) -> Checked:
        with self._timed(stats.CHECK_UPLOADS):
            return check_uploads(self.runtime, self.job, spool, self.accept, self._listed)

    def _raise_unless_decided(self, seen: register.Seen, error: JobError) -> NoReturn:
        """Raise, unless a faster driver has swept what is missed."""
        now = self._own_now()
        if now is None or now.record.nonce != seen.record.nonce:
            raise _OvertakenError(now)
        raise error

    def _refuse(self, seen: register.Seen, why: JobError) -> NoReturn:
        """A check failed: decide *abort*, then raise the reason, unless another driver was faster:
        what looked wrong may have been its work."""
        try:
            self._stage = "half aborted"
            swapped = self._swap_to_aborting(seen, what_stays(self.runtime, self.job))
        except (StoreError, OutcomeUnknown) as error:
            error.add_note(f"The job was to be aborted, for it cannot be committed: {why}")
            raise
        if not swapped.won:
            raise _OvertakenError(swapped.now)
        why.report = self._abandon(swapped.now, self.may_remove)
        for warning in why.report.warnings:
            why.add_note(warning)
        raise why

    # A batch of a streaming query -----------------------------------------------------------------

    def _claimant(self, claim: Claim) -> stream.Claimant | None:
        key = JobPaths(self.dest, claim.job_id).record
        seen = register.read_own(self.runtime, key, claim.uuid)
        if seen is None:
            return None
        return seen.record.state, partial(_settle, self.runtime, self.dest, seen)

    def _skip(self, seen: register.Seen) -> JobReport:
        """The batch is published already: abort this run of it."""
        self._stage = "half aborted"
        swapped = self._swap_to_aborting(seen)
        if not swapped.won:
            return self._obey(swapped.now)
        report = self._abandon(swapped.now, self.may_remove)
        logger.info("job %s: aborted, %s is published already", self.job.id, self.batch)
        return replace(report, skipped=True)

    def _published(self, outcome: str) -> JobReport | None:
        """What the ledger says about the batch of a job that will not publish it any more: a
        report, or None if the batch is not published, or nobody can tell."""
        who: str = ""
        if self.batch is not None:
            who = stream.published_by(self.runtime, self.job, self.batch, self.checkpoint)
        if who == "it":
            return self._report("committed", State.ABSENT)
        return replace(self._report(outcome, State.ABSENT), skipped=True) if who else None

    def _say_published(self, seen: register.Seen, warnings: list[str]) -> None:
        """Tell the ledger, before the record is finished. Raises as `stream.say_published`."""
        batch = seen.record.batch
        if batch is None:
            return
        if told := stream.say_published(self.runtime, self.job, batch, self.accept):
            warnings.append(told)

    # Swaps ----------------------------------------------------------------------------------------

    def _swap(self, seen: register.Seen, state: State, **changes: Any) -> register.Swapped:
        after = seen.record.step(state, self.runtime.ids(), **changes)
        return register.swap(self.runtime, seen, after)

    def _swap_to_committing(
        self, seen: register.Seen, publication: Publication, plan: ObjectRef, announced: str
    ) -> register.Seen:
        """Step 4: decide *commit*. The loser of the swap deletes its plans."""
        self._stage = "deciding"
        # If this raises, the plan stays: the swap may have won, or may still win.
        with self._timed(stats.DECIDE):
            swapped = self._swap(
                seen, State.COMMITTING, decider=decider("driver"), plan=plan, batch=self.batch
            )
        now = swapped.now
        if swapped.won and now is not None:
            files = publication.plan.files
            logger.info("job %s: committed, %d files to complete", self.job.id, files)
            return now
        if now is None or now.record.plan is None or now.record.plan.key != plan.key:
            drop_plan(self.runtime, self.job, plan.key)
        drop_plan(self.runtime, self.job, announced)
        raise _OvertakenError(now)

    def _swap_to_aborting(self, seen: register.Seen, stays: str = "") -> register.Swapped:
        """Decide *abort*. ``stays``: as in `JobRecord`."""
        return self._swap(seen, State.ABORTING, decider=decider(self.role), stays=stays)

    def _swap_to_completed(self, seen: register.Seen) -> register.Swapped:
        try:
            marks = self.job.terms.mark_success
            marker = marker_ref(self.runtime, self.dest.success_key) if marks else None
            return self._swap(seen, State.COMPLETED, marker=marker)
        except (StoreError, OutcomeUnknown) as error:
            what = "though all its files are visible its record does not say so yet"
            failure = incomplete(self.job, what, error)
            failure.__cause__ = error
            return register.Swapped(False, self._moved_on(failure))

    # Forward: steps 5 to 8 ------------------------------------------------------------------------

    @patient(Kind.DECIDED)
    def _publish_stored(self, seen: register.Seen) -> JobReport:
        """Go on by the stored plan, from ``committing`` or ``completed``."""
        record = seen.record
        self.batch = record.batch
        completed = record.state is State.COMPLETED
        try:
            plan = self._stored_plan(seen)
        except NotFound:
            if completed:  # only the sweep is left
                return self._end(seen, "committed", decider=record.decider, look_first=True)
            return self._obey(self._own_now())
        publication = Publication(
            self.runtime, self.job, plan, self.accept, self.statistics, missing_is_fine=completed
        )
        return self._publish(seen, publication, decider=record.decider)

    def _stored_plan(self, seen: register.Seen) -> Plan:
        """The plan that the record names. NotFound: the plan is gone, and the record has moved on
        or is ``completed``."""
        assert seen.record.plan is not None
        try:
            return load_plan(self.runtime, self.job, seen.record.plan)
        except (StoreError, FormatError) as error:
            failure = incomplete(self.job, "its plan cannot be read", error)
            if isinstance(error, NotFound):
                try:
                    now = self._own_now()
                except (StoreError, FormatError) as unread_again:
                    raise as_last_read(failure, unread_again) from error
                moved = now is None or now.record.nonce != seen.record.nonce
                if moved or seen.record.state is State.COMPLETED:
                    raise
            raise failure from error

    @patient(Kind.DECIDED)
    def _publish(
        self,
        seen: register.Seen,
        publication: Publication,
        may_remove: bool = False,
        decider: Decider | None = None,
    ) -> JobReport:
        """Do all steps from the present state of the record to the end. ``may_remove``: this
        process alone decided, undisturbed, a job whose id was drawn; otherwise the record is left
        ``closed``. ``decider``: the process that decided; None: this one."""
        now: register.Seen | None = seen
        just_now = False
        self._stage, self._begun = "committed", seen.record.state
        try:
            if seen.record.state is State.COMMITTING:
                failure = publication.complete_all()
                if failure is None:
                    swapped = self._swap_to_completed(seen)
                    now, just_now = swapped.now, swapped.won
                else:
                    now = self._moved_on(failure)
            state, swept = self._go_on(now, publication, may_remove, just_now)
        except Conflict as conflict:
            return self._revert_after(str(conflict), seen, publication.sets())
        return self._report("committed", state, decider, swept, publication.warnings, publication)

    def _moved_on(self, failure: CommitIncomplete) -> register.Seen | None:
        """The record, if another process has moved it on: then what this one could not do says
        nothing. Otherwise the failure is raised."""
        try:
            now = self._own_now()
        except (StoreError, FormatError) as error:
            raise as_last_read(failure, error) from failure.__cause__
        if now is not None and now.record.state is State.COMMITTING:
            raise failure
        return now

    def _go_on(
        self,
        now: register.Seen | None,
        publication: Publication,
        may_remove: bool,
        just_now: bool,
    ) -> tuple[State, Swept]:
        """Steps 6 to 8, from the record as it is now: this process has moved it to ``completed``
        (``just_now``), or another process has moved it on. Gives the last state that was seen, and
        what the sweep found."""
        if now is None:
            if self._without_record().outcome == "committed":
                return State.ABSENT, Swept()
            raise unknown(self.job)
        state = now.record.state
        if state is State.CLOSED and now.record.outcome == "committed":
            return state, Swept()
        if state is not State.COMPLETED:
            raise ended_by_record(self.job.dest, now.record)
        publication.delete_replaced()
        marked = not self.job.terms.mark_success or publication.mark(now, just_now=just_now)
        self._say_published(now, publication.warnings)
        if not marked:
            return State.COMPLETED, Swept()
        swept = publication.sweep()
        if swept.again:
            return State.COMPLETED, swept
        return self._finish(now, "committed", may_remove, publication.warnings), swept

    # Back -----------------------------------------------------------------------------------------

    def _abandon(self, seen: register.Seen | None, may_remove: bool) -> JobReport:
        """From ``aborting``, ``reverting`` or ``reverted`` to the end."""
        self._stage = "half aborted"
        if seen is not None and seen.record.state is State.REVERTING:
            seen = self._undo_stored(seen)
        if seen is None:
            raise unknown(self.job)
        record = seen.record
        if record.state is State.CLOSED and record.outcome in ("aborted", "reverted"):
            return self._report(record.outcome, State.CLOSED, record.decider)
        if record.state is State.ABORTING:
            looks = bool(self.job.adopted)
            return self._end(seen, "aborted", may_remove, look_first=looks)
        if record.state is State.REVERTED:  # the uploads may have been completed before
            return self._end(seen, "reverted", may_remove, look_first=True)
        raise ended_by_record(self.job.dest, record)

    def _undo_stored(self, seen: register.Seen) -> register.Seen | None:
        try:
            try:
                plan = self._stored_plan(seen)
            except NotFound:
                return self._own_now()
        except CommitIncomplete as error:
            cause = error.__cause__ if isinstance(error.__cause__, MagicError) else error
            raise not_undone(self.job, cause) from cause
        except (StoreError, FormatError) as error:
            raise not_undone(self.job, error) from error
        sets = stored_uploads(self.runtime, self.job, plan.sets, missing_is_fine=False)
        return self._undo(seen, sets)

    def _undo(self, seen: register.Seen, sets: Uploads) -> register.Seen | None:
        """Undo every upload of a ``reverting`` job, then write ``reverted``. Repeatable. Gives the
        stored record: ``reverted``, or what another process has made of it."""
        failure: MagicError | None = None
        try:
            failure = undo_all(self.runtime, self.job, sets)
            if failure is None:
                return self._swap(seen, State.REVERTED).now
        except (StoreError, FormatError, OutcomeUnknown) as error:
            failure = error  # a pendingset of the plan cannot be read, or the swap was not clear
        try:
            now = self._own_now()
        except (StoreError, FormatError):
            raise not_undone(self.job, failure) from failure  # the first failure says more
        if now is None or now.record.state is not State.REVERTING:
            return now
        raise not_undone(self.job, failure) from failure

    def _revert_after(self, key: str, seen: register.Seen, sets: Uploads) -> JobReport:
        """Revert a job of mode ``fail``, because another writer's object is in the way. Nothing was
        there before, so undoing removes everything (counterexamples.md, #12)."""
        self._stage = "deciding"
        try:
            now = self._swap(seen, State.REVERTING).now
        except StoreError as error:
            what = f"{key} is somebody else's, and the job could not be reverted yet"
            raise incomplete(self.job, what, error, unfinished=(key,)) from error
        if now is not None and now.record.state is State.REVERTING:
            self._stage = "half aborted"
            now = self._undo(now, sets)
        conflict = destination_exists(self.job, key)
        conflict.report = self._abandon(now, False)
        raise conflict

    # The end --------------------------------------------------------------------------------------

    def _end(
        self,
        seen: register.Seen,
        outcome: str,
        may_remove: bool = False,
        decider: Decider | None = None,
        *,
        look_first: bool,
    ) -> JobReport:
        """Sweep a job of which only that is left to do, and finish its record."""
        swept = sweep(self.runtime, self.job, look_first=look_first, undone=outcome == "aborted")
        warnings = list(swept.warnings)
        if outcome == "committed":
            self._say_published(seen, warnings)
        state = seen.record.state
        if not swept.again:
            state = self._finish(seen, outcome, may_remove, warnings)
        logger.info("job %s: %s, %d uploads aborted", self.job.id, outcome, swept.aborted)
        return self._report(outcome, state, decider, swept, warnings)

    def _finish(
        self, seen: register.Seen, outcome: str, may_remove: bool, warnings: list[str]
    ) -> State:
        batch = self.batch
        look = self.role == "driver" and (batch is None or batch.number % BATCHES_PER_LOOK == 0)
        return finish(self.runtime, seen, outcome, may_remove, warnings, look=look)

    def _report(
        self,
        outcome: str,
        state: State,
        decider: Decider | None = None,
        swept: Swept | None = None,
        warnings: Sequence[str] = (),
        publication: Publication | None = None,
    ) -> JobReport:
        """The report about the job; with the plan's counts, if the plan was executed here."""
        for warning in warnings:
            logger.warning("job %s: %s", self.job.id, warning)
        plan = publication.plan if publication is not None else None
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
            filenames=tuple(publication.filenames) if publication is not None else (),
            decider=decider,
            warnings=tuple(warnings),
            left_open=swept.left_open if swept else (),
            unattributed=swept.unattributed if swept else 0,
            seconds=self.runtime.clock.monotonic() - self._started,
            statistics=self.statistics.to_dict(),
            transport=transport_of(self.runtime.store),
            query=self.batch.query if self.batch is not None else "",
            batch=self.batch.number if self.batch is not None else None,
        )


# The runs of a streaming query --------------------------------------------------------------------
#
# Each run of a micro-batch is a job of its own. A run that crashed stays until somebody settles it.
# `commit` with a batch settles the run that has claimed the ledger. A job of an excluding mode (the
# query's whole result, written anew with each batch) cannot even start beside a crashed run: there
# the runs are settled first. To settle is safe at any time: a run that is decided is finished, and
# one that is not is aborted. If that one was alive, its query fails and is run again.


def runs_of(runtime: Runtime, dest: Destination, checkpoint: str) -> list[register.Seen]:
    """The records of a query's runs that are not closed. A record that cannot be read is passed
    over: it is none of this version's."""
    found: list[register.Seen] = []
    read, keys = partial(register.read, runtime), job_records(runtime, dest)
    reading = runtime.pool.each(read, keys, in_flight=RECORDS_IN_FLIGHT)
    with closing(reading) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome.error, FormatError):
                logger.warning("%s was passed over: %s", outcome.item, outcome.error)
                continue
            seen = outcome.unwrap()
            if seen is None or seen.record.state is State.CLOSED:
                continue
            if seen.record.checkpoint == checkpoint:
                found.append(seen)
    return found


def settle_runs(runtime: Runtime, dest: Destination, checkpoint: str) -> None:
    """Finish or abort every run of a query. Repeatable."""
    for seen in runs_of(runtime, dest, checkpoint):
        job_id, state = seen.record.id, seen.record.state
        logger.info("job %s, a run of the same query, is settled: %s", job_id, state)
        try:
            _settle(runtime, dest, seen)
        except (JobNotRunning, OutcomeUnknown) as error:  # another process has moved it on
            logger.info("job %s: %s", job_id, error.message)


def _settle(runtime: Runtime, dest: Destination, seen: register.Seen) -> JobReport:
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    return Driver(runtime, job, role="recovery").settle(seen.record.state)

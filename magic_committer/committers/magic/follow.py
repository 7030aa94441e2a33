"""Following a decided job: whatever its record says, to the end; and aborting one that runs.

The record is obeyed, by the driver that decided as by any other process (I5): ``committing`` and
``completed`` are executed, ``reverting`` and ``reverted`` undone, ``aborting`` swept. A record that
is gone tells nothing; the marker may (I10).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from magic_committer.commit import records
from magic_committer.commit.conflict import destination_exists
from magic_committer.commit.execute import (
    Conflict,
    Execution,
    Source,
    StoredSource,
    finish,
    report,
)
from magic_committer.commit.keyset import KeySet
from magic_committer.commit.outcome import (
    committed,
    committed_by_marker,
    ended,
    ended_by_record,
    incomplete,
    interrupted,
    unknown,
)
from magic_committer.commit.plan import Plan, load_plan
from magic_committer.commit.probe import known
from magic_committer.commit.published import refuse_if_published
from magic_committer.commit.sweep import Swept, nothing_spared, sweep
from magic_committer.commit.undo import not_undone, undo
from magic_committer.committers.magic.setup import decider
from magic_committer.errors import (
    AlreadyVisible,
    CommitIncomplete,
    FormatError,
    MagicError,
    NotFound,
    StoreError,
)
from magic_committer.job import Decider, JobReport, StartedJob, State
from magic_committer.paths import Destination
from magic_committer.patience import Kind, patient
from magic_committer.runtime import Runtime
from magic_committer.stats import Statistics

logger = logging.getLogger("magic_committer")


class Follower:
    """One process following one job. `Deciding` decides; this does what follows."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, in_flight: int, role: str = "driver"
    ) -> None:
        self.runtime = runtime
        self.job = job
        self.in_flight = in_flight
        self._role = role
        self._tidies = role == "driver"
        self.dest = Destination.parse(job.dest)
        self.paths = job.paths
        self.statistics = Statistics()
        self.accept: Collection[str] = ()
        self._started = runtime.clock.monotonic()

    @property
    def may_remove(self) -> bool:
        """Whether the record may go once this process has decided: see `StartedJob.undisturbed`."""
        return self.job.undisturbed and not self.job.given_id

    # Forward --------------------------------------------------------------------------------------

    def obey(self, seen: records.Seen | None) -> JobReport:
        """Execute what the stored record says, or say what became of the job."""
        if seen is None:
            return self.without_record()
        record = seen.record
        if record.state in (State.COMMITTING, State.COMPLETED):
            return self._execute_stored(seen)
        if record.state is State.CLOSED and record.outcome == "committed":
            return self.report("committed", State.CLOSED, decider=record.decider)
        raise ended_by_record(record)

    def without_record(self) -> JobReport:
        """The record is gone: the marker may tell, nothing else can (I10)."""
        if committed_by_marker(self.runtime, self.job):
            return self.report("committed", State.ABSENT)
        raise unknown(self.job)

    @patient(Kind.DECIDED)
    def execute(
        self,
        seen: records.Seen,
        plan: Plan,
        source: Source,
        *,
        may_remove: bool,
        names: KeySet | None = None,
        decided_by: Decider | None = None,
    ) -> JobReport:
        """Steps 5 to 8, from where the record stands.

        Raises:
            CommitIncomplete: repeat it.
            DestinationExists: mode ``fail`` met a foreign object; the job is reverted.
        """
        execution = Execution(
            self.runtime,
            self.job,
            plan,
            source,
            may_remove=may_remove,
            in_flight=self.in_flight,
            statistics=self.statistics,
            accept=self.accept,
            tidies=self._tidies,
            distrust=self._distrusts(source),
        )
        if names is not None:
            execution.names = names
        try:
            with interrupted(committed(self.job), self.report("committed", seen.record.state)):
                state, swept = execution.run(seen)
        except Conflict as conflict:
            return self._revert_after(str(conflict), seen, source)
        except StoreError as error:  # it is decided: never "this call decided nothing"
            raise incomplete(self.job, "what became of it cannot be read", error) from error
        for warning in execution.warnings:
            logger.warning("job %s: %s", self.job.id, warning)
        return report(execution, state, swept, self._seconds(), decided_by)

    def _distrusts(self, source: Source) -> bool:
        """Whether a 200 to Complete is not enough: somebody may have begun to complete what a
        stored plan names, and a server that was killed meanwhile answers falsely from then on; or
        the store is not known to tell the truth. What this process has just decided is touched by
        nobody else but by who does not wait until it is dead (docs/recovery.md)."""
        stored = isinstance(source, StoredSource)
        return stored or known(self.runtime.store.identity).true_complete is not True

    @patient(Kind.DECIDED)
    def _execute_stored(self, seen: records.Seen) -> JobReport:
        record = seen.record
        completed = record.state is State.COMPLETED
        plan: Plan | None = None
        try:
            plan = self._stored_plan(seen)
        except NotFound:
            if not completed:
                return self.obey(records.read(self.runtime, seen.key))
        if plan is None:  # in `completed` that means that only the sweep is left
            swept = self._sweep(look_first=True)
            warnings = list(swept.warnings)
            state = State.COMPLETED
            if not swept.again:
                state = finish(
                    self.runtime, seen, "committed", False, warnings, tidies=self._tidies
                )
            return self.report("committed", state, record.decider, swept, warnings)
        source = StoredSource(self.runtime, self.job, plan, missing_is_fine=completed)
        return self.execute(seen, plan, source, may_remove=False, decided_by=record.decider)

    def _stored_plan(self, seen: records.Seen) -> Plan:
        """The plan that the record names.

        Raises:
            NotFound: it is gone, and the record has moved on, or is ``completed``.
            CommitIncomplete: it cannot be read.
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

    # Back -----------------------------------------------------------------------------------------

    def abort(self, *, revert: bool, leave_visible: bool = False) -> JobReport:
        """Abort a running job; undo one that is committing, if told to; finish one that is being
        aborted or undone. Repeatable.

        Args:
            leave_visible: also a Hadoop job of which files are visible already: they stay.

        Raises:
            AlreadyVisible: see ``leave_visible``. Nothing was decided.
            JobNotRunning: it is committed, or was; its data stays.
            AbortIncomplete: not all of it is gone; repeat it.
            OutcomeUnknown: its record is gone, or the store gives no clear answer.
        """
        seen = records.read(self.runtime, self.paths.record)
        if seen is None or seen.record.uuid != self.job.uuid:
            self.without_record()
            raise ended(self.job.id, State.ABSENT, "committed")
        if seen.record.state is State.RUNNING:
            try:
                stays = self._refuse_if_published(leave_visible)
            except AlreadyVisible:
                now = records.read(self.runtime, seen.key)
                if now is not None and now.record.nonce == seen.record.nonce:
                    raise
                seen = now  # not the JVM's doing: another process has decided the job
            else:
                swapped = self.swap_to_aborting(seen)
                lost_to = swapped.now if not swapped.won else None
                if lost_to is None or lost_to.record.state is not State.COMMITTING or not revert:
                    report = self.after_abort(swapped.now, swapped.won and self.may_remove)
                    return replace(report, warnings=(*report.warnings, *stays))
                seen = lost_to  # a driver was faster: it is to be reverted then
        if seen is not None and seen.record.state is State.COMMITTING and revert:
            return self.after_abort(self._swap_to_reverting(seen), False)
        return self.after_abort(seen, False)

    def _refuse_if_published(self, leave_visible: bool) -> list[str]:
        """Of a Hadoop job: what its JVM made visible, which an abort would leave."""
        if not self.job.adopted:
            return []
        stays = refuse_if_published(
            self.runtime, self.job, self.in_flight, leave_visible=leave_visible
        )
        return [stays] if stays else []

    def swap_to_aborting(self, seen: records.Seen) -> records.Swapped:
        """Decide *abort*."""
        aborting = seen.record.step(State.ABORTING, self.runtime.ids(), decider=decider(self._role))
        return records.swap(self.runtime, seen, aborting)

    def _swap_to_reverting(self, seen: records.Seen) -> records.Seen | None:
        reverting = seen.record.step(State.REVERTING, self.runtime.ids())
        return records.swap(self.runtime, seen, reverting).now

    def after_abort(self, seen: records.Seen | None, may_remove: bool) -> JobReport:
        """From ``aborting``, ``reverting`` or ``reverted`` to the end."""
        if seen is not None and seen.record.state is State.REVERTING:
            seen = self._undo_stored(seen)
        if seen is None:
            raise unknown(self.job)
        record = seen.record
        if record.state is State.CLOSED and record.outcome in ("aborted", "reverted"):
            return self.report(record.outcome, State.CLOSED, record.decider)
        if record.state not in (State.ABORTING, State.REVERTED):
            raise ended_by_record(record)
        what = "aborted" if record.state is State.ABORTING else "reverted"
        # What was reverted may have been completed before.
        swept = self._sweep(look_first=bool(self.job.adopted) or what == "reverted")
        warnings = list(swept.warnings)
        state: State = record.state
        if not swept.again:
            state = finish(self.runtime, seen, what, may_remove, warnings, tidies=self._tidies)
        logger.info("job %s: %s, %d uploads aborted", self.job.id, what, swept.aborted)
        return self.report(what, state, None, swept, warnings)

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
        """A foreign object is in the way of a job of mode ``fail``: nothing was there before, so
        undoing takes back everything (counterexamples.md, #12)."""
        try:
            now = self._swap_to_reverting(seen)
        except StoreError as error:
            what = f"{key} is somebody else's, and the job could not be reverted yet"
            raise incomplete(self.job, what, error, unfinished=(key,)) from error
        if now is not None and now.record.state is State.REVERTING:
            now = undo(self.runtime, self.job, now, source, self.in_flight)
        conflict = destination_exists(self.job, key)
        conflict.report = self.after_abort(now, False)
        raise conflict

    def _sweep(self, *, look_first: bool = False) -> Swept:
        return sweep(
            self.runtime,
            self.job,
            spared=nothing_spared,
            accepted=frozenset(),
            in_flight=self.in_flight,
            look_first=look_first,
        )

    # Reports --------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self.runtime.clock.monotonic() - self._started

    def report(
        self,
        outcome: str,
        state: State,
        decider: Decider | None = None,
        swept: Swept | None = None,
        warnings: Sequence[str] = (),
    ) -> JobReport:
        """What became of the job."""
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
            decider=decider,
            warnings=tuple(warnings),
            left_open=swept.left_open,
            unattributed=swept.unattributed,
            seconds=self._seconds(),
            statistics=self.statistics.to_dict(),
        )

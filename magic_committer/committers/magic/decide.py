"""Committing and aborting a job: load, check, plan, decide; then whatever the record says.

The order of requests is the protocol (protocol.md, "Job commit"): everything is checked, and the
plan is stored, before the one swap that decides. A check that says no decides *abort*; a check that
could not be made, or wrong arguments, raise and leave the job running. A driver that finds the job
decided by another obeys: it executes the stored plan, or says what became of the job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magic_committer import stats
from magic_committer.commit import records
from magic_committer.commit.check import PROBLEMS_MAX, Checked, check_uploads, choose, expected
from magic_committer.commit.execute import Execution, StoredSource, finish, report
from magic_committer.commit.keyset import KeySet
from magic_committer.commit.load import LoadedSet, SetRef, Spool, load
from magic_committer.commit.outcome import (
    committed_by_marker,
    ended,
    ended_by_record,
    incomplete,
    unknown,
)
from magic_committer.commit.plan import PLAN_BYTES_MAX, Plan, PlannedSet, load_plan
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.sweep import Swept, nothing_spared, sweep
from magic_committer.committers.magic.setup import decider, refuse_existing_data
from magic_committer.errors import (
    CommitRefused,
    DestinationExists,
    FormatError,
    IncompleteJob,
    JobError,
    NotFound,
    OptionError,
    StoreError,
)
from magic_committer.job import (
    JOB_METADATA,
    Decider,
    JobReport,
    ObjectRef,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.paths import PENDINGSET_SUFFIX, Destination, JobPaths
from magic_committer.runtime import Runtime
from magic_committer.stats import Statistics

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True, slots=True)
class SpooledSource:
    """The accepted sets in the driver's own spool."""

    accepted: Sequence[LoadedSet]
    spool: Spool

    def uploads(self) -> Iterator[tuple[Iterable[ReadyUpload], Mapping[str, Any]]]:
        for loaded in self.accepted:
            yield self.spool.read(loaded.offset, loaded.packed_bytes)


class Deciding:
    """One process committing or aborting one job."""

    def __init__(self, runtime: Runtime, job: StartedJob, in_flight: int) -> None:
        self._runtime = runtime
        self._job = job
        self._in_flight = in_flight
        self._dest = Destination.parse(job.dest)
        self._paths = JobPaths(self._dest, job.id)
        self._statistics = Statistics()
        self._started = runtime.clock.monotonic()

    # Commit ---------------------------------------------------------------------------------------

    def commit(
        self, results: Iterable[TaskCommit] | None, expect: int | Iterable[str] | None
    ) -> JobReport:
        """Commit the job, or finish what another process decided. Repeatable.

        Args:
            results: exactly the attempts to accept; None: what the tasks left on the store.
            expect: how many tasks there must be, or which.

        Raises:
            IncompleteJob, OptionError: nothing was decided.
            CommitRefused: a check said no; the job is aborted.
            CommitIncomplete: the job is committed, not all is visible yet; repeat.
            JobNotRunning: it was aborted, or is being undone.
            OutcomeUnknown: its record is gone, or the store gives no clear answer.
            StoreError: a check could not be made; nothing was decided.
        """
        accepted = self._wanted(results)
        seen = records.read(self._runtime, self._paths.record)
        if seen is None or seen.record.uuid != self._job.uuid:
            return self._without_record()
        if seen.record.state is not State.RUNNING:
            return self._obey(seen)
        with self._statistics.timed(stats.COMMIT_JOB, self._runtime.clock.monotonic), Spool() as s:
            return self._commit_running(seen, accepted, expect, s)

    def _wanted(self, results: Iterable[TaskCommit] | None) -> list[TaskCommit] | None:
        """Hold the arguments against the job's terms: wrong ones change nothing."""
        if results is None:
            if self._job.terms.accept == "results":
                raise OptionError(
                    f"job {self._job.id!r} was started with accept='results': pass the results"
                    " of its tasks to commit",
                    hint="What lies on the store may hold attempts whose input was cut",
                )
            return None
        wanted = list(results)
        tasks: set[str] = set()
        for result in wanted:
            if not isinstance(result, TaskCommit):
                raise OptionError(
                    f"commit takes TaskCommits, not {type(result).__name__}",
                    hint="Pass task.result, or TaskCommit.from_dict(...)",
                )
            if result.job_uuid != self._job.uuid:
                raise OptionError(f"the result of task {result.task!r} is of another job")
            if result.task in tasks:
                raise OptionError(
                    f"two results of task {result.task!r}", hint="Accept one attempt of each task"
                )
            tasks.add(result.task)
        return wanted

    def _commit_running(
        self,
        seen: records.Seen,
        wanted: list[TaskCommit] | None,
        expect: int | Iterable[str] | None,
        spool: Spool,
    ) -> JobReport:
        if wanted is not None:
            expected(self._job.id, [result.task for result in wanted], expect)
        loaded, problems = self._load(wanted, spool)
        accepted = choose(loaded, self._job.uuid)
        if wanted is None:
            try:
                expected(self._job.id, [one.task for one in accepted], expect)
            except IncompleteJob:
                now = records.read(self._runtime, seen.key)
                if now is None or now.record.nonce != seen.record.nonce:
                    return self._obey(now)  # a driver that was faster has swept them
                raise
        elif len(accepted) < len(loaded):
            problems.append("a pendingset is of another job")
        checked = Checked()
        if not problems:
            checked = check_uploads(
                self._runtime, self._job, self._dest, accepted, spool, self._in_flight
            )
            problems = checked.problems
        if problems:
            return self._refuse(seen, self._refusal(problems))
        if self._job.terms.mode == "fail":
            try:
                refuse_existing_data(self._runtime, self._job, self._dest)
            except DestinationExists as error:
                return self._refuse(seen, error)
        self._statistics.add(stats.TASKS_COMPLETED, len(accepted))
        plan = self._plan(accepted, checked)
        swapped = self._decide(seen, plan)
        if not swapped.won or swapped.now is None:
            return self._obey(swapped.now)
        return self._execute(
            swapped.now,
            plan,
            SpooledSource(accepted, spool),
            may_remove=self._may_remove,
            names=checked.names,
        )

    def _load(
        self, wanted: list[TaskCommit] | None, spool: Spool
    ) -> tuple[list[LoadedSet], list[str]]:
        if wanted is None:
            refs: Iterable[SetRef] = self._listed()
            return load(self._runtime, self._job.id, refs, spool, None, only_uuid=self._job.uuid)
        stored = [result for result in wanted if result.key]
        wrong = [
            f"task {result.task!r}: {result.key} is not where its pendingset belongs"
            for result in stored
            if result.key != self._paths.pendingset(result.attempt)
        ]
        if wrong:
            return [], wrong[:PROBLEMS_MAX]
        refs = (SetRef(r.key, r.etag, r.task, r.attempt, r.pendingset_bytes) for r in stored)
        loaded, problems = load(self._runtime, self._job.id, refs, spool, len(stored))
        told = {result.key: result for result in stored}
        for one in loaded:
            result = told[one.ref.key]
            if (one.files, one.bytes) != (result.files, result.bytes):
                problems.append(
                    f"{one.ref.key}: holds {one.files} files and {one.bytes} bytes, its task said"
                    f" {result.files} and {result.bytes}"
                )
        return loaded, problems

    def _listed(self) -> Iterator[SetRef]:
        prefix = self._paths.job_attempt
        for page in self._runtime.store.list(prefix, delimiter="/"):
            for info in page.objects:
                if info.key.endswith(PENDINGSET_SUFFIX):
                    yield SetRef(info.key, info.etag, size=info.size)

    def _plan(self, accepted: Sequence[LoadedSet], checked: Checked) -> Plan:
        strip = len(self._paths.directory)
        return Plan(
            job_id=self._job.id,
            uuid=self._job.uuid,
            nonce=self._runtime.ids(),
            files=checked.files,
            data_bytes=checked.bytes,
            sets=tuple(
                PlannedSet(one.ref.key[strip:], one.etag, one.task, one.attempt) for one in accepted
            ),
        )

    def _decide(self, seen: records.Seen, plan: Plan) -> records.Swapped:
        """Steps 3 and 4: store the plan, then swap. The loser of the swap deletes its plan."""
        key = self._paths.plan(plan.nonce)
        body = plan.encode()
        if len(body) > PLAN_BYTES_MAX:
            raise OptionError(f"the job has too many tasks: its plan has {len(body)} bytes")
        written = self._runtime.store.put(key, body, metadata={JOB_METADATA: self._job.uuid})
        committing = seen.record.step(
            State.COMMITTING,
            self._runtime.ids(),
            decider=decider("driver"),
            plan=ObjectRef(key, written.etag),
        )
        # If this raises, the plan stays: the swap may have won, or may still.
        swapped = records.swap(self._runtime, seen, committing)
        if swapped.won:
            logger.info("job %s: committed, %d files to complete", self._job.id, plan.files)
        elif swapped.now is None or not _names(swapped.now, key):
            self._drop_plan(key)
        return swapped

    def _drop_plan(self, key: str) -> None:
        """The plan of a swap that lost. What stays of it is litter that the sweep may take."""
        try:
            self._runtime.store.delete_one(key)
        except StoreError as error:
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, error)

    def _execute(
        self,
        seen: records.Seen,
        plan: Plan,
        source: Any,
        *,
        may_remove: bool,
        names: KeySet | None = None,
        decided_by: Decider | None = None,
    ) -> JobReport:
        execution = Execution(
            self._runtime,
            self._job,
            plan,
            source,
            may_remove=may_remove,
            in_flight=self._in_flight,
            statistics=self._statistics,
        )
        if names is not None:
            execution.names = names
        state, swept = execution.run(seen)
        for warning in execution.warnings:
            logger.warning("job %s: %s", self._job.id, warning)
        return report(execution, state, swept, self._seconds(), decided_by)

    # Somebody else decided ------------------------------------------------------------------------

    def _obey(self, seen: records.Seen | None) -> JobReport:
        """Execute what the stored record says, or say what became of the job."""
        if seen is None:
            return self._without_record()
        record = seen.record
        if record.state in (State.COMMITTING, State.COMPLETED):
            return self._execute_stored(seen)
        if record.state is State.CLOSED and record.outcome == "committed":
            return self._report("committed", State.CLOSED, decider=record.decider)
        raise ended_by_record(record)

    def _execute_stored(self, seen: records.Seen) -> JobReport:
        record = seen.record
        completed = record.state is State.COMPLETED
        plan: Plan | None = None
        try:
            plan = load_plan(self._runtime, record.plan) if record.plan else None
        except (StoreError, FormatError) as error:
            # In `completed`, no plan means that only the sweep is left. In `committing` somebody
            # has moved the record on, or the store failed.
            if not (completed and isinstance(error, NotFound)):
                now = records.read(self._runtime, seen.key)
                if now is not None and now.record.nonce == record.nonce:
                    raise incomplete(self._job, "its plan cannot be read", error) from error
                return self._obey(now)
        if plan is None:
            swept = self._sweep()
            warnings = list(swept.warnings)
            state = (
                State.COMPLETED
                if swept.again
                else finish(self._runtime, seen, "committed", False, warnings)
            )
            return self._report("committed", state, record.decider, swept, warnings)
        source = StoredSource(self._runtime, self._paths, plan, missing_is_fine=completed)
        return self._execute(seen, plan, source, may_remove=False, decided_by=record.decider)

    def _without_record(self) -> JobReport:
        """The record is gone: the marker may tell, nothing else can (I10)."""
        if committed_by_marker(self._runtime, self._job):
            return self._report("committed", State.ABSENT)
        raise unknown(self._job)

    # Abort ----------------------------------------------------------------------------------------

    def abort(self) -> JobReport:
        """Abort the job: nothing of it is visible, now or later. Repeatable.

        Raises:
            JobNotRunning: it is committed (``outcome``), or was; its data stays.
            OutcomeUnknown: its record is gone, or the store gives no clear answer.
        """
        seen = records.read(self._runtime, self._paths.record)
        if seen is not None and seen.record.uuid == self._job.uuid:
            if seen.record.state is State.RUNNING:
                swapped = self._swap_to_aborting(seen)
                return self._after_abort(swapped.now, swapped.won and self._may_remove)
            return self._after_abort(seen, False)
        self._without_record()
        raise ended(self._job.id, State.ABSENT, "committed")

    def _swap_to_aborting(self, seen: records.Seen) -> records.Swapped:
        aborting = seen.record.step(State.ABORTING, self._runtime.ids(), decider=decider("driver"))
        return records.swap(self._runtime, seen, aborting)

    @property
    def _may_remove(self) -> bool:
        """Whether the record may go once this process has decided: see `StartedJob.undisturbed`."""
        return self._job.undisturbed and not self._job.given_id

    def _after_abort(self, seen: records.Seen | None, may_remove: bool) -> JobReport:
        if seen is None:
            raise unknown(self._job)
        record = seen.record
        if record.state is State.CLOSED and record.outcome in ("aborted", "reverted"):
            return self._report(record.outcome, State.CLOSED, record.decider)
        if record.state is not State.ABORTING:
            raise ended_by_record(record)
        swept = self._sweep()
        warnings = list(swept.warnings)
        state: State = State.ABORTING
        if not swept.again:
            state = finish(self._runtime, seen, "aborted", may_remove, warnings)
        logger.info("job %s: aborted, %d uploads", self._job.id, swept.aborted)
        return self._report("aborted", state, None, swept, warnings)

    def _refuse(self, seen: records.Seen, why: JobError) -> JobReport:
        """A check said no: decide *abort*, then raise why. A driver that was faster is obeyed: what
        looked wrong may have been its work."""
        swapped = self._swap_to_aborting(seen)
        if not swapped.won:
            return self._obey(swapped.now)
        aborted = self._after_abort(swapped.now, self._may_remove)
        for warning in aborted.warnings:
            why.add_note(warning)
        why.report = aborted
        raise why

    def _refusal(self, problems: list[str]) -> CommitRefused:
        shown = "; ".join(problems[:3])
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        return CommitRefused(
            f"job {self._job.id!r} was not committed: {shown}{more}",
            job_id=self._job.id,
            problems=problems,
            hint="The job is aborted, nothing of it is visible: run it again as a new job",
        )

    def _sweep(self) -> Swept:
        return sweep(
            self._runtime,
            self._job,
            spared=nothing_spared,
            accepted=frozenset(),
            in_flight=self._in_flight,
        )

    # Reports --------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._runtime.clock.monotonic() - self._started

    def _report(
        self,
        what: str,
        state: State,
        decider: Decider | None = None,
        swept: Swept | None = None,
        warnings: Sequence[str] = (),
    ) -> JobReport:
        swept = swept or Swept()
        for warning in warnings:
            logger.warning("job %s: %s", self._job.id, warning)
        return JobReport(
            job_id=self._job.id,
            uuid=self._job.uuid,
            dest=self._job.dest,
            mode=self._job.terms.mode,
            outcome=what,
            state=str(state),
            decider=decider,
            warnings=tuple(warnings),
            left_open=swept.left_open,
            unattributed=swept.unattributed,
            seconds=self._seconds(),
            statistics=self._statistics.to_dict(),
        )


def _names(seen: records.Seen, key: str) -> bool:
    return seen.record.plan is not None and seen.record.plan.key == key

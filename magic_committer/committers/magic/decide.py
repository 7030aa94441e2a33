"""Committing a job: load, check, plan, decide; then whatever the record says.

The order of requests is the protocol (protocol.md, "Job commit"): everything is checked, and the
plan is stored, before the one swap that decides. A check that says no decides *abort*; a check that
could not be made, or wrong arguments, raise and leave the job running. A driver that finds the job
decided by another obeys: it executes the stored plan, or says what became of the job.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from shlex import quote
from typing import Any

from magic_committer import stats
from magic_committer.arguments import check_result
from magic_committer.commit import records
from magic_committer.commit.check import (
    PROBLEMS_MAX,
    Checked,
    check_uploads,
    choose,
    expected,
    spooled,
)
from magic_committer.commit.conflict import (
    Replaced,
    partitions_of,
    refuse_existing_data,
    refuse_overlapping_plans,
    replaced,
)
from magic_committer.commit.keyset import KeySet
from magic_committer.commit.load import Loaded, LoadedSet, SetRef, Spool, load
from magic_committer.commit.outcome import deciding, interrupted
from magic_committer.commit.plan import Plan, PlannedSet
from magic_committer.commit.probe import need
from magic_committer.commit.ready import ReadyUpload
from magic_committer.committers.magic.follow import Follower
from magic_committer.committers.magic.setup import decider
from magic_committer.errors import (
    CommitRefused,
    ConflictingJob,
    DestinationExists,
    IncompleteJob,
    JobError,
    OptionError,
    OutcomeUnknown,
    StoreError,
    name_some,
)
from magic_committer.job import (
    JOB_METADATA,
    JobReport,
    ObjectRef,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.options import BY_PARTITION, FAILING, REPLACING
from magic_committer.paths import PENDINGSET_SUFFIX
from magic_committer.patience import cleaning_up
from magic_committer.runtime import Runtime

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True, slots=True)
class SpooledSource:
    """The accepted sets in the driver's own spool."""

    accepted: Sequence[LoadedSet]
    spool: Spool

    def uploads(self) -> Iterator[tuple[Iterable[ReadyUpload], Mapping[str, Any]]]:
        for loaded in self.accepted:
            yield self.spool.read(loaded.offset, loaded.packed_bytes)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a commit would publish: the chosen tasks, and what is wrong with them."""

    tasks: tuple[str, ...]
    files: int
    bytes: int
    problems: tuple[str, ...]


class Deciding:
    """One process committing one job."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, in_flight: int, role: str = "driver"
    ) -> None:
        self._follower = Follower(runtime, job, in_flight, role)
        self._runtime = runtime
        self._job = job
        self._in_flight = in_flight
        self._dest = self._follower.dest
        self._paths = self._follower.paths
        self._statistics = self._follower.statistics

    # Commit ---------------------------------------------------------------------------------------

    def commit(
        self,
        results: Iterable[TaskCommit] | None,
        expect: int | Iterable[str] | None,
        accept: Collection[str] = (),
    ) -> JobReport:
        """Commit the job, or finish what another process decided. Repeatable.

        Args:
            results: exactly the attempts to accept; None: what the tasks left on the store.
            expect: how many tasks there must be, or which.
            accept: unresolved keys, to be taken as they are.

        Raises:
            IncompleteJob, OptionError: nothing was decided. A job without any task is incomplete,
                unless ``expect`` says that there are none (``expect=0``).
            CommitRefused: a check said no; the job is aborted, but for one that was adopted.
            CommitIncomplete: the job is committed, not all is visible yet, or what it replaces is
                still there; repeat.
            JobNotRunning: it was aborted, or is being undone.
            OutcomeUnknown: its record is gone, or the store gives no clear answer.
            StoreError: a check could not be made; this call decided nothing, and what the job is
                its record tells: call it again.
        """
        self._follower.accept = accept
        seen = records.read(self._runtime, self._paths.record)
        if seen is None or seen.record.uuid != self._job.uuid:
            return self._follower.without_record()
        if seen.record.state is not State.RUNNING:
            return self._follower.obey(seen)
        accepted = self._wanted(results)
        with self._timed(stats.COMMIT_JOB), Spool() as s:
            return self._commit_running(seen, accepted, expect, s)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return self._statistics.timed(name, self._runtime.clock)

    def look(
        self, expect: int | Iterable[str] | None = None, accept: Collection[str] = ()
    ) -> Prospect:
        """What `commit` without results would decide upon now. Reads only; it need not be started
        yet: a Hadoop job may be looked at before it is adopted.

        Raises:
            IncompleteJob, StoreError.
        """
        self._follower.accept = accept
        with Spool() as spool:
            loaded = self._load(None, spool)
            accepted, problems = self._choose(loaded.sets), loaded.problems
            problems += [f"{key}: says nowhere whose it is" for key in loaded.nobodys]
            if not problems:
                if expect is not None:  # a look may find that there is nothing
                    expected(self._job.id, [one.task for one in accepted], expect)
                problems = self._check(accepted, spool).problems
        return Prospect(
            tasks=tuple(one.task for one in accepted),
            files=sum(one.files for one in accepted),
            bytes=sum(one.bytes for one in accepted),
            problems=tuple(problems),
        )

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
            check_result(result)
            if result.job_uuid != self._job.uuid:
                raise OptionError(f"the result of task {result.task!r} is of another job")
            if not result.key and (result.files or result.bytes):
                raise OptionError(
                    f"the result of task {result.task!r} tells of {result.files} files, but its key"
                    " is empty: it does not name the pendingset that holds them",
                    hint="Pass what task.commit() returned, as it is, or run the task again",
                )
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
            tasks = [result.task for result in wanted]
            expected(self._job.id, tasks, expect, by_results=True)
        with self._timed(stats.LOAD_SETS):
            loaded = self._load(wanted, spool)
        accepted, problems = self._choose(loaded.sets), loaded.problems
        if loaded.nobodys:
            return self._unless_decided(seen, self._nobodys(loaded.nobodys))
        if wanted is None and (accepted or not problems or expect is not None):
            try:
                expected(self._job.id, [one.task for one in accepted], expect)
            except IncompleteJob as error:
                return self._unless_decided(seen, error)
        elif wanted is not None and len(accepted) < len(loaded.sets):
            problems.append("a pendingset is of another job")
        checked = Checked()
        if not problems:
            with self._timed(stats.CHECK_UPLOADS):
                checked = self._check(accepted, spool)
            problems = checked.problems
        if problems and self._job.adopted:  # nobody runs it again as it was: a person decides
            return self._unless_decided(seen, self._refusal(problems))
        if problems:
            return self._refuse(seen, self._refusal(problems))
        self._statistics.add(stats.TASKS_COMPLETED, len(accepted))
        if checked.files:  # another process may have started the job, and asked for itself
            need(self._runtime, self._paths, seen, {"true_complete"})
        announced = ""
        try:
            with self._timed(stats.SAVE_PLAN):
                partitions = self._partitions(accepted, spool)
                if partitions is not None:
                    announced = self._announce(partitions)
                    refuse_overlapping_plans(self._runtime, self._job, self._dest, partitions)
                plan = self._plan(accepted, checked, spool, partitions)
                ref = self._store_plan(plan)
        except BaseException as error:
            # An aborter may have swept before it was stored; and nobody decides by it.
            with cleaning_up(error):
                self._drop_plan(announced)
            if isinstance(error, ConflictingJob | DestinationExists):
                return self._refuse(seen, error)
            raise
        with interrupted(deciding(self._job)):
            with self._timed(stats.DECIDE):
                swapped = self._decide(seen, ref, plan.files)
                if not swapped.won:
                    self._drop_plan(announced)
            if not swapped.won or swapped.now is None:
                return self._follower.obey(swapped.now)
            return self._follower.execute(
                swapped.now,
                plan,
                SpooledSource(accepted, spool),
                may_remove=self._follower.may_remove,
                names=checked.names,
            )

    def _unless_decided(self, seen: records.Seen, error: JobError) -> JobReport:
        """Raise, unless a driver that was faster has swept what is missed: then it is obeyed."""
        now = records.read(self._runtime, seen.key)
        if now is None or now.record.nonce != seen.record.nonce:
            return self._follower.obey(now)
        raise error

    def _load(self, wanted: list[TaskCommit] | None, spool: Spool) -> Loaded:
        if wanted is None:
            refs: Iterable[SetRef] = self._listed()
            return load(self._runtime, self._job.id, refs, spool, None, owns=self._job.owns)
        stored = [result for result in wanted if result.key]
        wrong = [
            f"task {result.task!r}: {result.key} is not where its pendingset belongs"
            for result in stored
            if result.key != self._paths.pendingset(result.attempt)
        ]
        if wrong:
            return Loaded(problems=wrong[:PROBLEMS_MAX])
        refs = (SetRef(r.key, r.etag, r.task, r.attempt, r.pendingset_bytes) for r in stored)
        loaded = load(self._runtime, self._job.id, refs, spool, len(stored))
        told = {result.key: result for result in stored}
        for one in loaded.sets:
            result = told[one.ref.key]
            if (one.files, one.bytes) != (result.files, result.bytes):
                loaded.problems.append(
                    f"{one.ref.key}: holds {one.files} files and {one.bytes} bytes, its task said"
                    f" {result.files} and {result.bytes}"
                )
        return loaded

    def _choose(self, loaded: list[LoadedSet]) -> list[LoadedSet]:
        return choose(loaded, "" if self._job.adopted else self._job.uuid)

    def _check(self, accepted: Sequence[LoadedSet], spool: Spool) -> Checked:
        return check_uploads(
            self._runtime,
            self._job,
            self._dest,
            accepted,
            spool,
            self._in_flight,
            self._follower.accept,
        )

    def _listed(self) -> Iterator[SetRef]:
        prefix = self._paths.job_attempt
        for page in self._runtime.store.list(prefix, delimiter="/"):
            for info in page.objects:
                if info.key.endswith(PENDINGSET_SUFFIX):
                    yield SetRef(info.key, info.etag, size=info.size)

    def _partitions(self, accepted: Sequence[LoadedSet], spool: Spool) -> tuple[str, ...] | None:
        if self._job.terms.mode not in BY_PARTITION:
            return None
        return partitions_of(self._dest, spooled(accepted, spool))

    def _announce(self, partitions: tuple[str, ...]) -> str:
        """Store what other jobs must know of this one before it looks at them: a plan of its
        partitions, which nobody decides. Its key."""
        announcement = Plan(
            job_id=self._job.id,
            uuid=self._job.uuid,
            nonce=self._runtime.ids(),
            files=0,
            data_bytes=0,
            sets=(),
            partitions=partitions,
        )
        return self._store_plan(announcement).key

    def _plan(
        self,
        accepted: Sequence[LoadedSet],
        checked: Checked,
        spool: Spool,
        partitions: tuple[str, ...] | None,
    ) -> Plan:
        """Step 3, pure but for the look at what is there.

        Raises:
            DestinationExists: modes ``fail``: there is data.
        """
        mode, strip = self._job.terms.mode, len(self._paths.tree)
        if mode in FAILING:
            refuse_existing_data(self._runtime, self._job, self._dest, self._in_flight, partitions)
        gone = self._replaced(accepted, checked, spool, partitions)
        return Plan(
            job_id=self._job.id,
            uuid=self._job.uuid,
            nonce=self._runtime.ids(),
            files=checked.files,
            data_bytes=checked.bytes,
            sets=tuple(
                PlannedSet(one.ref.key[strip:], one.etag, one.task, one.attempt) for one in accepted
            ),
            deletes=gone.deletes,
            partitions=partitions or (),
            marker=gone.marker if mode == "replace" else None,
        )

    def _replaced(
        self,
        accepted: Sequence[LoadedSet],
        checked: Checked,
        spool: Spool,
        partitions: Sequence[str] | None,
    ) -> Replaced:
        if self._job.terms.mode not in REPLACING:
            return Replaced((), None)
        rewritten = KeySet(checked.files)
        for upload in spooled(accepted, spool):
            rewritten.add(upload.key)
        return replaced(
            self._runtime, self._job, self._dest, partitions, rewritten, self._in_flight
        )

    def _store_plan(self, plan: Plan) -> ObjectRef:
        key = self._paths.plan(plan.nonce)
        body = plan.encode()  # refused here if it would be too large: nothing is decided
        written = self._runtime.store.put(key, body, metadata={JOB_METADATA: self._job.uuid})
        return ObjectRef(key, written.etag)

    def _decide(self, seen: records.Seen, plan: ObjectRef, files: int) -> records.Swapped:
        """Step 4. The loser of the swap deletes its plan."""
        committing = seen.record.step(
            State.COMMITTING, self._runtime.ids(), decider=decider("driver"), plan=plan
        )
        # If this raises, the plan stays: the swap may have won, or may still.
        swapped = records.swap(self._runtime, seen, committing)
        if swapped.won:
            logger.info("job %s: committed, %d files to complete", self._job.id, files)
        elif swapped.now is None or not _names(swapped.now, plan.key):
            self._drop_plan(plan.key)
        return swapped

    def _drop_plan(self, key: str) -> None:
        """The plan of a swap that lost. What stays of it is litter that the sweep may take."""
        if not key:
            return
        try:
            self._runtime.store.delete_one(key)
        except StoreError as error:
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, error)

    def _refuse(self, seen: records.Seen, why: JobError) -> JobReport:
        """A check said no: decide *abort*, then raise why. A driver that was faster is obeyed: what
        looked wrong may have been its work."""
        try:
            swapped = self._follower.swap_to_aborting(seen)
        except (StoreError, OutcomeUnknown) as error:
            error.add_note(f"The job was to be aborted, for it cannot be committed: {why}")
            raise
        if not swapped.won:
            return self._follower.obey(swapped.now)
        aborted = self._follower.after_abort(swapped.now, self._follower.may_remove)
        for warning in aborted.warnings:
            why.add_note(warning)
        why.report = aborted
        raise why

    def _nobodys(self, keys: list[str]) -> IncompleteJob:
        return IncompleteJob(
            f"job {self._job.id!r}: in its directory there are pendingsets that say nowhere whose"
            f" they are: {name_some(keys)}",
            job_id=self._job.id,
            hint="Nothing was decided. They may be this job's own, if their metadata got lost:"
            f" magic-committer doctor {quote(self._job.dest)} says whether the store or a proxy"
            " loses it. Otherwise somebody else wrote them: delete them and commit again; or abort"
            " the job",
        )

    def _refusal(self, problems: list[str]) -> CommitRefused:
        shown = "; ".join(problems[:3])
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        return CommitRefused(
            f"job {self._job.id!r} was not committed: {shown}{more}",
            job_id=self._job.id,
            problems=problems,
            hint="Nothing was decided: abort it, or take the keys as they are:"
            f" magic-committer job commit {quote(self._job.dest)} {quote(self._job.id)}"
            " --accept KEY"
            if self._job.adopted
            else "The job is aborted, nothing of it is visible: run it again as a new job",
        )


def _names(seen: records.Seen, key: str) -> bool:
    return seen.record.plan is not None and seen.record.plan.key == key

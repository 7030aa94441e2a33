"""The manifest committer: files wait in a directory, and the job renames them into place.

For destinations with an atomic rename: local disks, network file systems that are mounted, and what
fsspec reaches. The formats and the layout are those of Hadoop's Manifest Committer; the decision is
ours: one exclusive create, which everyone obeys (`records`).

`attempt` writes and commits one attempt of a task, `job_commit` the job. The classic committers
(`committers.classic`) are other ends of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import ClassVar, Self

import orjson

from magic_committer._hints import ENDED_OR_NEVER
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.prepare import Prospect
from magic_committer.commit.setup import decider
from magic_committer.committers.base import Attached, Process
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.runs import settle_runs
from magic_committer.committers.manifest.setup import attached, join_job, setup_job
from magic_committer.errors import (
    ConflictingJob,
    JobExists,
    JobNotFound,
    MagicError,
    NotFound,
    OptionError,
    StoreError,
)
from magic_committer.file_trees.base import FileTree
from magic_committer.options import Mode, Options, Track
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, StartedJob, State, TaskCommit, Terms
from magic_committer.protocol.strict import plain
from magic_committer.stores.urls import tree_url

__all__ = ["ManifestCommitter"]


class ManifestCommitter:
    """One started job in one process. It holds components and does not travel; the job does.

    Args:
        parts: the components.
        job: the job.
        options: sizes and numbers.
    """

    name: ClassVar[str] = "manifest"
    tracks: ClassVar[tuple[Track, ...]] = ("memory",)
    attempt_class: ClassVar[type[TreeAttempt]] = TreeAttempt
    job_commit_class: ClassVar[type[TreeJobCommit]] = TreeJobCommit
    takes_batches: ClassVar[bool] = True
    """Whether a job may publish a micro-batch of a streaming query exactly once."""

    def __init__(self, parts: Parts, job: StartedJob, options: Options) -> None:
        self.parts = parts
        self.job = job
        self.options = options

    # What the registry asks of a class -----------------------------------------------------------

    @classmethod
    def destination(cls, dest: str) -> str:
        """See `CommitterClass.destination`: the destinations are file trees."""
        return tree_url(dest)

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `CommitterClass.mode`: there are all modes."""
        return mode

    @classmethod
    def start(
        cls,
        process: Process,
        dest: str,
        terms: Terms,
        options: Options,
        job_id: str | None = None,
        *,
        said_mode: str = "",
        join: bool = False,
        checkpoint: str = "",
    ) -> Self:
        """See `CommitterClass.start`."""
        if checkpoint:
            cls._refuse_batch()
        parts = parts_of(process, dest, options)
        cls._check_tree(parts.tree)
        try:
            job = setup_job(parts, terms, job_id, said_mode, checkpoint)
        except ConflictingJob as conflict:
            if not checkpoint or job_id is not None:
                raise
            # A crashed run of the same query may be all that is in the way.
            try:
                settle_runs(parts, checkpoint)
            except MagicError as error:
                raise conflict from error
            job = setup_job(parts, terms, job_id, said_mode, checkpoint)
        except JobExists:
            if not join or job_id is None:
                raise
            job = join_job(parts, terms, job_id, said_mode, checkpoint)
        cls._started(job)
        return cls(parts, job, options)

    @classmethod
    def _refuse_batch(cls) -> None:
        """Raise `OptionError` if jobs of this committer publish no batches."""
        if not cls.takes_batches:
            raise OptionError(
                f"committer={cls.name!r} publishes no batch of a streaming query exactly once:"
                " files of a run that dies may stay visible, and the next run writes them again",
                hint="Use committer='manifest'",
            )

    @classmethod
    def _check_tree(cls, tree: FileTree) -> None:
        """Raise `OptionError` if jobs of this committer cannot be on this file system."""

    @classmethod
    def _started(cls, job: StartedJob) -> None:
        """Say what a user has to know of a job that was started."""

    @classmethod
    def attach(cls, process: Process, dest: str, job_id: str) -> Attached:
        """See `CommitterClass.attach`."""
        parts = parts_of(process, dest, Options())
        seen = records.read_by_id(parts, job_id)
        if seen is None:
            raise JobNotFound(
                f"there is no job {job_id!r} under {parts.tree.url}",
                job_id=job_id,
                hint=ENDED_OR_NEVER,
            )
        return Attached(attached(parts, seen), seen.record.state, outcome_of(seen.record))

    @classmethod
    def of(cls, process: Process, job: StartedJob, options: Options) -> Self:
        """See `CommitterClass.of`."""
        return cls(parts_of(process, job.dest, options), job, options)

    # A job ----------------------------------------------------------------------------------------

    @property
    def transport(self) -> str:
        """Nothing sends requests."""
        return ""

    def attempt(self, task: str, attempt: str | None = None, *, sole: bool = False) -> TreeAttempt:
        """See `JobCommitter.attempt`."""
        if attempt is not None and not sole:
            raise OptionError(
                f"attempt={attempt!r}: committer={self.name!r} has no attempts that several"
                " processes share",
                hint="Leave attempt out: each call of job.task(...) makes another attempt",
            )
        return self.attempt_class(
            self.parts, self.job, self.options, task, attempt or self.parts.ids()
        )

    def committed_attempt(self, result: TaskCommit) -> TreeAttempt:
        """See `JobCommitter.committed_attempt`."""
        attempt = self.attempt_class(
            self.parts, self.job, self.options, result.task, result.attempt
        )
        attempt.was_committed(result)
        return attempt

    def commit_job(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        accept: Collection[str] = (),
        role: str = "driver",
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """See `JobCommitter.commit_job`."""
        if batch is not None:
            self._refuse_batch()
        return self._job_commit(role, accept).commit(results, expect, batch)

    def settle_job(
        self, state: State, accept: Collection[str] = (), *, leave_visible: bool = False
    ) -> JobReport:
        """See `JobCommitter.settle_job`. ``leave_visible`` is for adopted jobs of Hadoop only."""
        return self._job_commit("recovery", accept).settle(state)

    def look_at_commit(
        self, expect: int | Iterable[str] | None = None, accept: Collection[str] = ()
    ) -> Prospect:
        """See `JobCommitter.look_at_commit`."""
        return self._job_commit("driver", accept).look(expect)

    def abort_job(
        self, *, revert: bool = False, leave_visible: bool = False, role: str = "driver"
    ) -> JobReport:
        """See `JobCommitter.abort_job`."""
        return self._job_commit(role).abort(revert=revert)

    def sign_of_life(self) -> Callable[[], bool]:
        """See `JobCommitter.sign_of_life`: a small file in the job's directory."""
        return self._give_sign

    def _give_sign(self) -> bool:
        tree, paths = self.parts.tree, TreeJobPaths(self.job.uuid)
        sign = {"version": 1, "job": self.job.uuid, **plain(decider("driver"))}
        spare = paths.spare(self.parts.ids())
        try:
            tree.create(spare, orjson.dumps(sign))
            tree.rename(spare, paths.alive)
        except NotFound:
            return False  # the job has ended
        except StoreError:
            return True  # the next sign may succeed
        try:
            seen = records.read(self.parts, paths)
        except MagicError:
            return True
        return seen is not None and seen.record.state is State.RUNNING

    def _job_commit(self, role: str, accept: Collection[str] = ()) -> TreeJobCommit:
        return self.job_commit_class(self.parts, self.job, role, accept)


def parts_of(process: Process, dest: str, options: Options) -> Parts:
    """The components for a destination in this process."""
    return Parts(
        tree=process.tree_for(dest),
        pool=process.pool,
        clock=process.clock,
        ids=process.ids,
        progress=process.progress,
        in_flight=options.commit_threads,
    )

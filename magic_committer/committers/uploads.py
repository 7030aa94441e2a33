"""What all committers over uploads share: a started job of uploads in one process.

Whoever made the uploads: from the task's commit on it is the same job, with one record, one fence,
one commit (`commit.job_commit`) and one recovery. A committer adds how its attempts write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import ClassVar, Self

from magic_committer._hints import ENDED_OR_NEVER
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.alive import SignOfLife
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.prepare import Prospect
from magic_committer.commit.runs import settle_runs
from magic_committer.commit.setup import join_job, setup_job
from magic_committer.commit.steps import refuse_threads
from magic_committer.committers.base import Attached, Process
from magic_committer.errors import (
    ConflictingJob,
    JobExists,
    JobNotFound,
    MagicError,
    OptionError,
)
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.options import Mode, Options, Track
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, StartedJob, State, TaskCommit, Terms
from magic_committer.stores.base import refusal_of, transport_of
from magic_committer.stores.unconditional import unconditional
from magic_committer.upload import BlockSource


class UploadsCommitter:
    """One started job in one process. It holds components and does not travel; the job does."""

    name: ClassVar[str]
    tracks: ClassVar[tuple[Track, ...]]
    batches: ClassVar[bool] = True
    """Whether its jobs publish batches of streaming queries."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, options: Options, blocks: BlockSource
    ) -> None:
        self.runtime = _as_agreed(runtime, job.terms)
        self.job = job
        self.options = options
        self.blocks = blocks

    # What the registry asks of a class -----------------------------------------------------------

    @classmethod
    def destination(cls, dest: str) -> str:
        """See `CommitterClass.destination`: the destinations are those on S3."""
        return Destination.parse(dest).url

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
        if checkpoint and not cls.batches:
            raise _no_batches(cls.name)
        place = Destination.parse(dest)
        started = cls.setup(
            process.runtime_for(place.bucket), place, terms, options, process.blocks, job_id,
            said_mode=said_mode, join=join, checkpoint=checkpoint,
        )  # fmt: skip
        started._say()
        return started

    def _say(self) -> None:
        """Say what a user has to know of a job that was started."""

    @classmethod
    def attach(cls, process: Process, dest: str, job_id: str) -> Attached:
        """See `CommitterClass.attach`: all jobs on S3 keep their records in the same way."""
        place = Destination.parse(dest)
        paths = JobPaths(place, job_id)
        seen = records.read(process.runtime_for(place.bucket), paths.record)
        if seen is None:
            raise JobNotFound(
                f"there is no job {job_id!r} under {place.url}", job_id=job_id, hint=ENDED_OR_NEVER
            )
        job = StartedJob.attached(seen.record, place.url, seen.etag)
        return Attached(job, seen.record.state, outcome_of(seen.record))

    @classmethod
    def of(cls, process: Process, job: StartedJob, options: Options) -> Self:
        """See `CommitterClass.of`."""
        runtime = process.runtime_for(Destination.parse(job.dest).bucket)
        return cls(runtime, job, options, process.blocks)

    @classmethod
    def found(
        cls, runtime: Runtime, dest: Destination, seen: records.Seen, options: Options | None
    ) -> Self:
        """Take a job over from the store, by its record."""
        job = StartedJob.attached(seen.record, dest.url, seen.etag)
        return cls(runtime, job, options or Options(), BlockSource())

    # A job ----------------------------------------------------------------------------------------

    @classmethod
    def setup(
        cls,
        runtime: Runtime,
        dest: Destination,
        terms: Terms,
        options: Options,
        blocks: BlockSource,
        job_id: str | None = None,
        *,
        said_mode: str = "",
        join: bool = False,
        checkpoint: str = "",
    ) -> Self:
        """Start a job: see `setup.setup_job`."""
        refuse_threads(runtime.store, options.commit_threads)
        if why := refusal_of(runtime.store, cls.name, terms.mode):
            raise OptionError(f"{dest.url}, {cls.name!r}, mode {terms.mode!r}: {why}")
        agreed, in_flight = _as_agreed(runtime, terms), options.commit_threads
        try:
            job = setup_job(agreed, dest, terms, job_id, in_flight, said_mode, checkpoint)
        except ConflictingJob as conflict:
            if not checkpoint or job_id is not None:
                raise
            # A crashed run of the same query may be all that is in the way.
            try:
                settle_runs(agreed, dest, checkpoint, in_flight)
            except MagicError as error:
                raise conflict from error
            job = setup_job(agreed, dest, terms, job_id, in_flight, said_mode, checkpoint)
        except JobExists:
            if not join or job_id is None:
                raise
            job = join_job(agreed, dest, terms, job_id, in_flight, said_mode, checkpoint)
        return cls(runtime, job, options, blocks)

    @property
    def transport(self) -> str:
        """What sends the requests: see `transport_of`."""
        return transport_of(self.runtime.store)

    def sign_of_life(self) -> Callable[[], bool]:
        """See `alive.SignOfLife`."""
        return SignOfLife(self.runtime, self.job).give

    def commit_job(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        accept: Collection[str] = (),
        role: str = "driver",
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """Commit the job, or finish it: see `JobCommit.commit`. Repeatable."""
        if batch is not None and not self.batches:
            raise _no_batches(self.name)
        return self._job_commit(role, accept).commit(results, expect, batch)

    def settle_job(
        self, state: State, accept: Collection[str] = (), *, leave_visible: bool = False
    ) -> JobReport:
        """Finish or abort the job instead of its driver: see `JobCommit.settle`. Repeatable."""
        committing = self._job_commit("recovery", accept)
        return committing.settle(state, leave_visible=leave_visible)

    def look_at_commit(
        self, expect: int | Iterable[str] | None = None, accept: Collection[str] = ()
    ) -> Prospect:
        """What `commit_job` would decide: see `JobCommit.look`. Only reads."""
        return self._job_commit("driver", accept).look(expect)

    def abort_job(
        self, *, revert: bool = False, leave_visible: bool = False, role: str = "driver"
    ) -> JobReport:
        """Abort the job, or undo it: see `JobCommit.abort`. Repeatable."""
        return self._job_commit(role).abort(revert=revert, leave_visible=leave_visible)

    def _job_commit(self, role: str, accept: Collection[str] = ()) -> JobCommit:
        threads = self.options.commit_threads
        refuse_threads(self.runtime.store, threads)
        return JobCommit(self.runtime, self.job, threads, role, accept)


def _as_agreed(runtime: Runtime, terms: Terms) -> Runtime:
    if terms.conditional_writes == "on":
        return runtime
    return replace(runtime, store=unconditional(runtime.store))


def _no_batches(name: str) -> OptionError:
    return OptionError(
        f"committer={name!r} publishes no batch of a streaming query exactly once: files of a run"
        " that dies may stay visible, and the next run writes them again",
        hint="Use committer='manifest'",
    )

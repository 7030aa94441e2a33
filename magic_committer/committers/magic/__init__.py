"""The magic committer: files are multipart uploads that the job completes (protocol.md).

`attempt` writes and commits one attempt of a task, `commit.job_commit` the job. `MagicCommitter`
combines them: a started job in one process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from magic_committer._runtime import Runtime
from magic_committer.commit.completing import refuse_threads
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.pieces import Distribute, Helpers, Piece, complete_piece
from magic_committer.commit.prepare import Prospect
from magic_committer.commit.runs import settle_runs
from magic_committer.commit.setup import join_job, setup_job
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.committers.magic.by_path import open_plain
from magic_committer.errors import ConflictingJob, JobExists, MagicError, OptionError
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Options
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, StartedJob, State, TaskCommit, Terms
from magic_committer.stores.unconditional import Unconditional
from magic_committer.upload import BlockSource

__all__ = ["Attempt", "MagicCommitter", "Prospect", "open_plain"]


class MagicCommitter:
    """One started job in one process. It holds components and does not travel; the job does.

    Args:
        runtime: the components.
        job: the job.
        options: sizes, numbers and formats.
        blocks: the process's memory for the blocks of open files.
    """

    def __init__(
        self, runtime: Runtime, job: StartedJob, options: Options, blocks: BlockSource
    ) -> None:
        self.runtime = _as_agreed(runtime, job.terms)
        self.job = job
        self._options = options
        self._blocks = blocks

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
    ) -> MagicCommitter:
        """Start a job: see `setup.setup_job`.

        Args:
            runtime, dest, terms: the components, the destination and the job's terms.
            options: sizes, numbers and formats.
            blocks: the process's memory for the blocks of open files.
            job_id: a given id; None: draw one.
            said_mode: the mode in the caller's words: see `StartedJob`.
            join: take the job of that id if there is one: see `setup.join_job`.
            checkpoint: the hash of a streaming query's checkpoint; "": the job belongs to none.
        """
        refuse_threads(runtime.store, options.commit_threads)
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

    def attempt(
        self,
        task: str,
        attempt: str | None = None,
        *,
        sole: bool = False,
    ) -> Attempt:
        """Make an attempt of a task, to be written or committed in this process.

        Args:
            task: the task's id.
            attempt: its name, unique in the job, by which processes share it; None: draw one.
            sole: no other process shares it. Needed if its files are known in memory only.
        """
        if self.job.adopted:
            raise OptionError(
                f"job {self.job.id!r} is Hadoop's, adopted: it takes no tasks of this library",
                hint="Commit or abort it, and start a job of your own",
            )
        if attempt is not None and not sole and self.job.terms.track == "memory":
            raise OptionError(
                "a given attempt name needs track='s3'",
                hint="With track='memory' an attempt is committed by the handle that opened its"
                " files",
            )
        return Attempt(
            self.runtime,
            self.job,
            self._options,
            task,
            attempt or self.runtime.ids(),
            blocks=self._blocks,
            shared=attempt is not None and not sole,
        )

    def committed_attempt(self, result: TaskCommit) -> Attempt:
        """Make the handle of an attempt that is already committed, from its result."""
        attempt = self.attempt(result.task, result.attempt, sole=True)
        attempt.was_committed(result)
        return attempt

    def commit_job(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        accept: Collection[str] = (),
        role: str = "driver",
        batch: StreamBatch | None = None,
        distribute: Distribute | None = None,
    ) -> JobReport:
        """Commit the job, or finish it: see `JobCommit.commit`. Repeatable.

        ``distribute``: gives the files of a large job to helpers; None: this process completes them
        all.
        """
        files_min = self._options.distribute_files_min
        helpers = None
        if distribute is not None and files_min is not None:
            helpers = Helpers(files_min, distribute)
        return self._job_commit(role, accept, helpers).commit(results, expect, batch)

    def complete_piece(self, piece: Piece) -> int:
        """Help the process that has decided the job: see `pieces.complete_piece`. Repeatable."""
        threads = self._options.commit_threads
        refuse_threads(self.runtime.store, threads)
        return complete_piece(self.runtime, self.job, piece, in_flight=threads)

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

    def _job_commit(
        self, role: str, accept: Collection[str] = (), helpers: Helpers | None = None
    ) -> JobCommit:
        threads = self._options.commit_threads
        refuse_threads(self.runtime.store, threads)
        return JobCommit(self.runtime, self.job, threads, role, accept, helpers)


def _as_agreed(runtime: Runtime, terms: Terms) -> Runtime:
    if terms.conditional_writes == "on":
        return runtime
    return replace(runtime, store=Unconditional(runtime.store))

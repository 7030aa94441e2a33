"""The magic committer: files are multipart uploads that the job completes (protocol.md).

`setup` starts a job, `attempt` writes and commits one attempt of a task behind the `fence`,
`decide` commits or aborts the job. `MagicCommitter` puts them together: a started job in one
process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from magic_committer.commit.outcome import half_aborted, interrupted, undecided
from magic_committer.commit.unconditional import Unconditional
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.committers.magic.decide import Deciding, Prospect
from magic_committer.committers.magic.follow import Follower
from magic_committer.committers.magic.plain import open_plain
from magic_committer.committers.magic.setup import join_job, setup_job
from magic_committer.errors import JobExists, OptionError
from magic_committer.job import JobReport, StartedJob, TaskCommit, Terms
from magic_committer.options import Options
from magic_committer.paths import Destination
from magic_committer.patience import patient
from magic_committer.runtime import Runtime
from magic_committer.upload import BlockSource

__all__ = ["Attempt", "MagicCommitter", "Prospect", "open_plain"]


class MagicCommitter:
    """One started job in one process. Holds components, so it does not travel; the job does.

    Args:
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
    ) -> MagicCommitter:
        """Start a job: see `setup.setup_job`.

        Args:
            said_mode: the mode as the caller wrote it: see `StartedJob`.
            join: take the job of that id that is there already: see `setup.join_job`.
        """
        agreed, in_flight = _as_agreed(runtime, terms), options.commit_threads
        try:
            job = setup_job(agreed, dest, terms, job_id, in_flight, said_mode)
        except JobExists:
            if not join or job_id is None:
                raise
            job = join_job(agreed, dest, terms, job_id, in_flight, said_mode)
        return cls(runtime, job, options, blocks)

    def attempt(
        self,
        task: str,
        attempt: str | None = None,
        *,
        sole: bool = False,
    ) -> Attempt:
        """An attempt of a task, to be written or committed here.

        Args:
            attempt: its name, unique in the job, by which processes share it; None: one is drawn.
            sole: nobody shares it: needed where its files are known in memory only.
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
        """An attempt that is committed already, by its result."""
        attempt = self.attempt(result.task, result.attempt, sole=True)
        attempt.was_committed(result)
        return attempt

    def commit_job(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        accept: Collection[str] = (),
        role: str = "driver",
    ) -> JobReport:
        """Commit the job, or finish it: see `decide.Deciding.commit`. Repeatable.

        Args:
            role: ``"driver"``, or ``"recovery"`` for an operator.
        """
        with patient(), interrupted(undecided(self.job)):
            return self._deciding(role).commit(results, expect, accept)

    def look_at_commit(
        self, expect: int | Iterable[str] | None = None, accept: Collection[str] = ()
    ) -> Prospect:
        """What `commit_job` would decide upon: see `decide.Deciding.look`. Reads only."""
        return self._deciding().look(expect, accept)

    def _deciding(self, role: str = "driver") -> Deciding:
        return Deciding(self.runtime, self.job, self._options.commit_threads, role)

    def abort_job(
        self, *, revert: bool = False, leave_visible: bool = False, role: str = "driver"
    ) -> JobReport:
        """Abort the job, or undo it: see `follow.Follower.abort`. Repeatable.

        Args:
            revert, leave_visible: as there.
            role: who decides, for the record: ``"driver"`` or ``"recovery"``.
        """
        follower = Follower(self.runtime, self.job, self._options.commit_threads, role)
        with patient(), interrupted(half_aborted(self.job)):
            return follower.abort(revert=revert, leave_visible=leave_visible)


def _as_agreed(runtime: Runtime, terms: Terms) -> Runtime:
    if terms.conditional_writes == "on":
        return runtime
    return replace(runtime, store=Unconditional(runtime.store))

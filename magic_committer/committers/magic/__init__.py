"""The magic committer: files are multipart uploads that the job completes (protocol.md).

`attempt` writes and commits one attempt of a task, `commit.job_commit` the job.
"""

from __future__ import annotations

from typing import ClassVar

from magic_committer.commit.prepare import Prospect
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.committers.magic.by_path import open_plain
from magic_committer.committers.uploads import UploadsCommitter
from magic_committer.errors import OptionError
from magic_committer.options import Track
from magic_committer.protocol.record import TaskCommit

__all__ = ["Attempt", "MagicCommitter", "Prospect", "open_plain"]


class MagicCommitter(UploadsCommitter):
    """One started job in one process, whose attempts send their files while they are written."""

    name: ClassVar[str] = "magic"
    tracks: ClassVar[tuple[Track, ...]] = ("s3", "memory")

    def attempt(
        self,
        task: str,
        attempt: str | None = None,
        *,
        sole: bool = False,
    ) -> Attempt:
        """Make an attempt of a task, to be written or committed in this process. ``sole``: no other
        process shares it: needed if its files are known in memory only."""
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
        shared = attempt is not None and not sole
        return self._make(task, attempt or self.runtime.ids(), shared=shared)

    def committed_attempt(self, result: TaskCommit) -> Attempt:
        """Make the handle of an attempt that is already committed, from its result."""
        attempt = self._make(result.task, result.attempt, shared=False)
        attempt.was_committed(result)
        return attempt

    def _make(self, task: str, attempt: str, *, shared: bool) -> Attempt:
        return Attempt(
            self.runtime,
            self.job,
            self.options,
            task,
            attempt,
            blocks=self.blocks,
            shared=shared,
        )

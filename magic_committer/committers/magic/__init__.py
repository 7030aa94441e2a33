"""The magic committer: files are multipart uploads that the job completes (protocol.md).

`attempt` writes and commits one attempt of a task, `commit.job_commit` the job.
"""

from __future__ import annotations

from typing import ClassVar

from magic_committer.committers.base import Committer
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.committers.magic.by_path import open_plain
from magic_committer.errors import OptionError
from magic_committer.options import Track

__all__ = ["Attempt", "MagicCommitter", "open_plain"]


class MagicCommitter(Committer[Attempt]):
    """One started job in one process, whose attempts send their files while they are written."""

    name: ClassVar[str] = "magic"
    tracks: ClassVar[tuple[Track, ...]] = ("s3", "memory")

    def _refuse_shared(self, attempt: str) -> OptionError:
        return OptionError(
            "a given attempt name needs track='s3'",
            hint="With track='memory' an attempt is committed by the handle that opened its files",
        )

    def _make(self, task: str, attempt: str, *, shared: bool) -> Attempt:
        return Attempt(
            self.runtime, self.job, self.options, task, attempt, blocks=self.blocks, shared=shared
        )

"""The staging committers: a task writes ordinary files to local disk, and uploads them when it
commits.

From the task's commit on it is the same job as magic's: its uploads wait for the job's decision,
with one record, one fence, one commit and one recovery (`committers.base`). The two differ in
what a mode is about:

===============  ====================  ======================================================
                 ``"directory"``       ``"partitioned"``
===============  ====================  ======================================================
``append``       ``append``            ``append``
``fail``         ``fail``              ``fail_partitions``: only if no written partition has data
``replace``      ``replace``           ``replace_partitions``: the data of written partitions
===============  ====================  ======================================================

Files directly in the destination are a partition of their own, the table's root. What is replaced
is planned before the decision, and deleted after every new file is visible.
"""

from __future__ import annotations

from typing import ClassVar

from magic_committer.committers.base import Committer
from magic_committer.committers.staging.attempt import StagingAttempt
from magic_committer.errors import OptionError
from magic_committer.options import BY_PARTITION, Mode, Track

__all__ = ["DirectoryCommitter", "PartitionedCommitter", "StagingAttempt"]


class StagingCommitter(Committer[StagingAttempt]):
    """One started job in one process, whose attempts have a local directory. Its base; jobs are of
    one of the two classes below."""

    tracks: ClassVar[tuple[Track, ...]] = ("memory",)

    def _refuse_shared(self, attempt: str) -> OptionError:
        return OptionError(
            f"a given attempt name needs track='s3', which committer={self.name!r} does not have:"
            " its files are on local disk",
            hint="Leave attempt out; or start the job with committer='magic'",
        )

    def _make(self, task: str, attempt: str, *, shared: bool) -> StagingAttempt:
        if self.job.terms.track not in self.tracks:  # a record that this library did not write
            raise OptionError(
                f"committer={self.name!r} has no track={self.job.terms.track!r}: its files are on"
                " local disk, where other processes do not find them",
                hint="Start another job, without track",
            )
        return StagingAttempt(
            self.runtime, self.job, self.options, task, attempt, blocks=self.blocks
        )


class DirectoryCommitter(StagingCommitter):
    """Modes are about the whole destination."""

    name: ClassVar[str] = "directory"

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: those that are not about partitions."""
        if mode in BY_PARTITION:
            raise OptionError(
                f"committer='directory' has no mode {mode!r}",
                hint="Pass committer='partitioned'",
            )
        return mode


class PartitionedCommitter(StagingCommitter):
    """Modes are about the partitions that the job writes."""

    name: ClassVar[str] = "partitioned"

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: ``fail`` and ``replace`` are meant for each partition."""
        by_partition: dict[Mode, Mode] = {
            "fail": "fail_partitions",
            "replace": "replace_partitions",
        }
        return by_partition.get(mode, mode)

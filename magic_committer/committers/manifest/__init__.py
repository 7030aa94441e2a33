"""The manifest committer: tasks write files at the destination, and the job renames them into
place.

For destinations with an atomic rename: local disks, network file systems that are mounted, and what
fsspec reaches. From the task's commit on it is the same job as magic's, with one record, one fence,
one commit and one recovery (`committers.uploads`): each file is an upload, whose Complete is its
rename. The set is Hadoop's task manifest, in Hadoop's layout, so that Hadoop's Manifest Committer
reads ours and we read its (`hadoop.manifests`).
"""

from __future__ import annotations

from typing import ClassVar

from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.uploads import UploadsCommitter
from magic_committer.errors import OptionError
from magic_committer.options import Track
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.urls import tree_url

__all__ = ["ManifestCommitter", "TreeAttempt"]


class ManifestCommitter(UploadsCommitter):
    """One started job in one process, whose tasks' files wait at the destination."""

    name: ClassVar[str] = "manifest"
    tracks: ClassVar[tuple[Track, ...]] = ("memory",)

    @classmethod
    def destination(cls, dest: str) -> str:
        """See `CommitterClass.destination`: the destinations are file systems."""
        return super().destination(tree_url(dest))

    def attempt(self, task: str, attempt: str | None = None, *, sole: bool = False) -> TreeAttempt:
        """Make an attempt of a task, to be written and committed in this process."""
        if attempt is not None and not sole:
            raise OptionError(
                f"attempt={attempt!r}: committer={self.name!r} has no attempts that several"
                " processes share",
                hint="Leave attempt out: each call of job.task(...) makes another attempt",
            )
        return self._make(task, attempt or self.runtime.ids())

    def committed_attempt(self, result: TaskCommit) -> TreeAttempt:
        """Make the handle of an attempt that is already committed, from its result."""
        attempt = self._make(result.task, result.attempt)
        attempt.was_committed(result)
        return attempt

    def _make(self, task: str, attempt: str) -> TreeAttempt:
        return TreeAttempt(self.runtime, self.job, self.options, task, attempt)

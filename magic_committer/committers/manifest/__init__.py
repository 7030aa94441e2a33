"""The manifest committer: tasks write files at the destination, and the job renames them into
place.

For destinations with an atomic rename: local disks, network file systems that are mounted, and what
fsspec reaches. From the task's commit on it is the same job as magic's, with one record, one fence,
one commit and one recovery (`committers.base`): each file is an upload, whose Complete is its
rename. The set is Hadoop's task manifest, in Hadoop's layout, so that Hadoop's Manifest Committer
reads ours and we read its (`hadoop.manifests`).
"""

from __future__ import annotations

from typing import ClassVar

from magic_committer.committers.base import Committer
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.errors import OptionError
from magic_committer.options import Track
from magic_committer.stores.urls import tree_url

__all__ = ["ManifestCommitter", "TreeAttempt"]


class ManifestCommitter(Committer[TreeAttempt]):
    """One started job in one process, whose tasks' files wait at the destination."""

    name: ClassVar[str] = "manifest"
    tracks: ClassVar[tuple[Track, ...]] = ("memory",)

    @classmethod
    def destination(cls, dest: str) -> str:
        """See `Committer.destination`: the destinations are file systems."""
        return super().destination(tree_url(dest))

    def _refuse_shared(self, attempt: str) -> OptionError:
        return OptionError(
            f"attempt={attempt!r}: committer={self.name!r} has no attempts that several processes"
            " share",
            hint="Leave attempt out: each call of job.task(...) makes another attempt",
        )

    def _make(self, task: str, attempt: str, *, shared: bool) -> TreeAttempt:
        return TreeAttempt(self.runtime, self.job, self.options, task, attempt)

"""The classic committers, ``"v1"`` and ``"v2"``: MapReduce's `FileOutputCommitter`, on file trees.

They are here to be compared with, and for local disks whose users want just this. Where nobody asks
for them, a destination of files gets ``"manifest"``, which promises more and costs about the same.

* **v1**: a task's commit is one rename of its directory. The job's commit merges the directories of
  all tasks into the destination: a whole directory where the destination has none of that name,
  else file by file, by one thread, as Hadoop does.
* **v2**: a task's commit renames its files into the destination. The job's commit renames nothing.

What they do not promise:

* **v1 is not decided before its files appear.** A job that dies in its commit leaves some of them
  visible. To commit again goes on; a recovery or an abort does not, and takes nothing back.
* **v2 shows the files of tasks whose job fails**, and of attempts that fail in their commit.
* Two tasks that write one name: the later rename stays. No ``replace``, and no revert.

What differs from Hadoop, because it costs nothing: all of a job is in a directory with its UUID, so
jobs side by side neither merge nor delete each other's files (`names`); a task that commits while
v1 merges is told that it is late; the end of the job is written to the same record as that of every
job of renames, so `attach`, `inspect`, `abort`, `recover` and `cleanup` know it.

`attempt` ends a task's attempt, `job_commit` the job.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from magic_committer.committers.classic.attempt import V1Attempt, V2Attempt
from magic_committer.committers.classic.job_commit import V1JobCommit, V2JobCommit
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.errors import OptionError
from magic_committer.file_trees.base import FileTree
from magic_committer.options import Mode
from magic_committer.protocol.record import StartedJob

__all__ = ["V1Committer", "V2Committer"]

logger = logging.getLogger("magic_committer")

MODES: tuple[Mode, ...] = ("append", "fail")


class V1Committer(ManifestCommitter):
    """One started job of algorithm 1 in one process."""

    name: ClassVar[str] = "v1"
    attempt_class: ClassVar[type[TreeAttempt]] = V1Attempt
    job_commit_class: ClassVar[type[TreeJobCommit]] = V1JobCommit
    takes_batches: ClassVar[bool] = False

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `CommitterClass.mode`: nothing is replaced, and partitions are not looked at."""
        if mode not in MODES:
            raise OptionError(
                f"committer={cls.name!r} has no mode {mode!r}, only {', '.join(map(repr, MODES))}",
                hint="Use committer='manifest', which has all modes",
            )
        return mode

    @classmethod
    def _check_tree(cls, tree: FileTree) -> None:
        if not tree.promises.directories:
            raise OptionError(
                f"committer={cls.name!r} renames directories, and those of {tree.url} are no"
                " real ones",
                hint="Use committer='manifest', which renames files",
            )


class V2Committer(V1Committer):
    """One started job of algorithm 2 in one process."""

    name: ClassVar[str] = "v2"
    attempt_class: ClassVar[type[TreeAttempt]] = V2Attempt
    job_commit_class: ClassVar[type[TreeJobCommit]] = V2JobCommit

    @classmethod
    def _started(cls, job: StartedJob) -> None:
        logger.warning(
            "job %s: committer 'v2' makes the files of each task visible when the task commits: if"
            " a task or the job fails, they stay. committer='manifest' shows all or none",
            job.id,
        )

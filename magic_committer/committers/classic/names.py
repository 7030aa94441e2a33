"""Where a classic job keeps what: Hadoop's layout, in the directory of one job.

::

    D/_temporary/manifest_<uuid>/_job-1.json ...                 the record, as of every such job
                                 00/0/_temporary/<attempt>/     an attempt while it writes
                                 00/0/task_<task>/              v1: what the task has committed
                                 00/0/attempt_<attempt>/        the same, in a job of results
                                 00/merge/                      v1: `00/0`, from the merge on;
                                                                v2: a task has begun to commit
                                 00/manifests/<name>-v2.json    v2: what the task has committed

``00`` is what Hadoop calls ``_temporary``, and ``0`` the number of the application's attempt.
Hadoop has one ``_temporary`` for all jobs of a destination: one that ends merges and deletes what
the others have there. Here it is below the job's UUID. A second driver takes the same job by its
id, and finds the tasks that the first one had committed: so the number stays 0. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.hadoop.paths import check_id

TASK_PREFIX, ATTEMPT_PREFIX = "task_", "attempt_"
OLD_PREFIX = "old_"
MARK_SUFFIX = "-v2.json"
STAYS = "What it had made visible stays: look at the destination before the job is run again"
"""What to do with a classic job that was aborted."""


@dataclass(frozen=True, slots=True)
class ClassicPaths(TreeJobPaths):
    """The paths of one classic job's control files."""

    @property
    def app_attempt(self) -> str:
        """The directory of everything that tasks write, until v1 merges it."""
        return f"{self.job_attempt}/0"

    @property
    def writing(self) -> str:
        """The directory of the attempts that are being written."""
        return f"{self.app_attempt}/_temporary"

    @property
    def merging(self) -> str:
        """If it is there, files of the job may be visible."""
        return f"{self.job_attempt}/merge"

    def attempt(self, attempt: str) -> str:
        return f"{self.writing}/{check_id('attempt', attempt)}"

    def taken(self, nonce: str) -> str:
        """Where `app_attempt` goes when the job is aborted."""
        return f"{self.job_attempt}/taken_{nonce}"

    def old(self, name: str, nonce: str) -> str:
        """Where the directory of a task goes when another attempt of it commits. ``name``: of
        `committed_name`."""
        return f"{self.writing}/{OLD_PREFIX}{nonce}_{name}"

    @property
    def merging_old(self) -> str:
        """Where such directories are from the merge on."""
        return f"{self.merging}/_temporary"

    def committed(self, name: str) -> str:
        """The directory that an attempt's becomes by v1's commit. ``name``: of `committed_name`."""
        return f"{self.app_attempt}/{name}"

    def merged(self, name: str) -> str:
        """Where that directory is from the merge on."""
        return f"{self.merging}/{name}"

    def mark(self, name: str) -> str:
        """The file that says what v2's commit of an attempt has published."""
        return f"{self.manifests}/{name}{MARK_SUFFIX}"


def committed_name(task: str, attempt: str, *, by_results: bool) -> str:
    """What a committed attempt is named after: its task, so that a later attempt takes its place;
    in a job of results itself, so that the driver has the one that it accepts."""
    if by_results:
        return f"{ATTEMPT_PREFIX}{check_id('attempt', attempt)}"
    return f"{TASK_PREFIX}{check_id('task id', task)}"


def old_name(name: str) -> str:
    """What a directory of `ClassicPaths.old` was named before; "" for another one."""
    parts = name.split("_", 2)
    return parts[2] if len(parts) == 3 and name.startswith(OLD_PREFIX) and task_of(parts[2]) else ""


def task_of(name: str) -> str:
    """The task or attempt that a committed directory is named after; "" for another name."""
    for prefix in (TASK_PREFIX, ATTEMPT_PREFIX):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return ""

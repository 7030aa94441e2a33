"""MapReduce's committers v1 and v2 on an object store: a rename is copies, then deletes.

Foils: what a program does today that commits to S3 with `FileOutputCommitter` through a connector
such as S3A. On file systems, whose renames are atomic, the library has both itself: see `trees`.
The steps are those of Hadoop 3's class; its application master's rule for a commit that died stands
in `recover`. Nothing here is used by the library.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from magic_committer.errors import NotFound
from tests.properties.stage import DEST, Process, Stage, View, objects_read

TEMPORARY = f"{DEST.prefix}_temporary/"
JOB_ATTEMPT = f"{TEMPORARY}0/"
"""Every job's first attempt has this directory: `$appAttemptId` is 0."""
SUCCESS = f"{DEST.prefix}_SUCCESS"


class AttemptMade(NamedTuple):
    """An attempt: its job and task, and the directory that it writes in."""

    job: str
    task: str
    directory: str


@dataclass(frozen=True)
class FileOutput:
    """`FileOutputCommitter`.

    Attributes:
        algorithm: 1: a task's commit moves its directory, the job's commit merges all directories
            into the destination; 2: a task's commit merges its directory into the destination.
    """

    name: str
    algorithm: int

    def read(self, stage: Stage) -> View:
        """What any reader finds."""
        return objects_read(stage)

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        """Make the job's directory. Spark deletes what is to be replaced before it starts."""
        if replace:
            delete_tree(process, DEST.prefix)
        process.stage.store.put(JOB_ATTEMPT, b"")
        return name

    def attempt(self, process: Process, job: str, task: str, number: int) -> AttemptMade:
        """Directories are made on demand."""
        return AttemptMade(job, task, f"{JOB_ATTEMPT}_temporary/attempt_{job}_{task}_{number}/")

    def write(self, process: Process, attempt: AttemptMade, name: str, data: bytes) -> None:
        """A file in the attempt's directory."""
        process.stage.store.put(f"{attempt.directory}{name}", data)

    def commit_task(self, process: Process, attempt: AttemptMade) -> str:
        """Algorithm 1: an older directory of the task goes, then the attempt's is renamed."""
        if self.algorithm == 2:
            merge(process, attempt.directory)
            return attempt.task
        committed = f"{JOB_ATTEMPT}task_{attempt.job}_{attempt.task}/"
        if listed(process, attempt.directory):
            delete_tree(process, committed)
            rename_tree(process, attempt.directory, committed)
        return attempt.task

    def abort_task(self, process: Process, attempt: AttemptMade) -> None:
        """Delete the attempt's directory."""
        delete_tree(process, attempt.directory)

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """Merge, clean up, mark."""
        store = process.stage.store
        store.put(_begun(job), b"")
        if self.algorithm == 1:
            there = listed(process, JOB_ATTEMPT)
            if not there:
                raise NotFound(f"LIST {JOB_ATTEMPT}: no such directory", operation="list", key="")
            for directory in sorted({_child(key) for key in there} - {"", "_temporary"}):
                merge(process, f"{JOB_ATTEMPT}{directory}/")
        delete_tree(process, TEMPORARY)
        store.put(SUCCESS, b"")
        store.put(_ended(job), b"")

    def abort_job(self, process: Process, job: str) -> None:
        """Clean up."""
        delete_tree(process, TEMPORARY)

    def recover(self, process: Process, name: str) -> str:
        """As a second application master: a commit that has begun is called again if it can be
        repeated, which v2 says of itself and v1 does not; otherwise the job has failed."""
        if exists(process, _ended(name)):
            return "committed"
        if self.algorithm == 2 and exists(process, _begun(name)):
            self.commit_job(process, name, ())
            return "committed"
        self.abort_job(process, name)
        return "aborted"


def _begun(job: str) -> str:
    return f"am/{job}/COMMIT_STARTED"


def _ended(job: str) -> str:
    return f"am/{job}/COMMIT_SUCCESS"


def _child(key: str) -> str:
    name, slash, _ = key.removeprefix(JOB_ATTEMPT).partition("/")
    return name if slash else ""


# A file system's verbs on an object store ---------------------------------------------------------


def listed(process: Process, directory: str) -> list[str]:
    """The keys in a directory."""
    return [info.key for page in process.stage.store.list(directory) for info in page.objects]


def exists(process: Process, key: str) -> bool:
    """Whether there is an object."""
    try:
        process.stage.store.head(key)
    except NotFound:
        return False
    return True


def delete_tree(process: Process, directory: str) -> None:
    """List it, delete what is there.

    Raises:
        StoreError: the first key's that could not be deleted.
    """
    keys = listed(process, directory)
    for error in process.stage.store.delete(keys).values():
        raise error


def rename_tree(process: Process, source: str, target: str) -> None:
    """Copy each file, then delete all."""
    keys = listed(process, source)
    for key in keys:
        process.stage.copy(key, f"{target}{key.removeprefix(source)}")
    for error in process.stage.store.delete(keys).values():
        raise error


def merge(process: Process, source: str) -> None:
    """Move each file of a directory into the destination, over what is there."""
    for key in _files(listed(process, source)):
        target = posixpath.join(DEST.prefix, key.removeprefix(source))
        if exists(process, target):
            process.stage.store.delete_one(target)
        process.stage.copy(key, target)
        process.stage.store.delete_one(key)


def _files(keys: list[str]) -> Iterator[str]:
    return (key for key in keys if not key.endswith("/"))

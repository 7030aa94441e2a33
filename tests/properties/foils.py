"""Foils: what others do on S3, and committers with one flaw each. Nothing here is used by the
library.

* `FileOutput`: MapReduce's v1 and v2 through a connector such as S3A, where a rename is copies,
  then deletes. The steps are those of Hadoop 3's class; its application master's rule for a commit
  that died stands in `recover`. On file systems, whose renames are atomic, the library has both
  itself: see `ours`.
* `Direct` and `Stocator` write to the destination at once. Spark had its direct committer until 2.0
  (SPARK-10063 took it away); Stocator is IBM's connector. Both are told of in the paper *A
  Zero-Rename Committer*, section 12. Of Stocator only the idea is here: a file's name holds its
  attempt, nothing is renamed, and `_SUCCESS` names the attempts that count.
* `SharedList` and `Locked` have a flaw that no foil of the field has, so that every property is
  seen to fail for somebody.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from magic_committer.errors import NotFound
from tests.properties.stage import Process, Stage, View, objects_read
from tests.simulation.world import DEST

SUCCESS = f"{DEST.prefix}_SUCCESS"
TEMPORARY = f"{DEST.prefix}_temporary/"
JOB_ATTEMPT = f"{TEMPORARY}0/"
"""Every job's first attempt has this directory: `$appAttemptId` is 0."""
MARK = "-attempt_"
"""What stands between a name and its attempt."""
MANIFEST_BYTES_MAX = 65536
LIST, LOCK = f"{DEST.prefix}_accepted.json", f"{DEST.prefix}_lock"


class Attempt(NamedTuple):
    """An attempt: its job and task, and its name."""

    job: str
    task: str
    name: str


@dataclass(frozen=True)
class Foil:
    """What most of them do. A job is known by its name; Spark deletes what is to be replaced before
    it starts."""

    name: str
    tree: ClassVar[bool] = False

    def read(self, stage: Stage) -> View:
        return objects_read(stage)

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        if replace:
            delete_tree(process, DEST.prefix)
        return name

    def attempt(self, process: Process, job: str, task: str, number: int) -> Attempt:
        return Attempt(job, task, f"{job}_{task}_{number}")

    def write(self, process: Process, attempt: Attempt, name: str, data: bytes) -> None:
        process.stage.store.put(f"{DEST.prefix}{name}", data)

    def commit_task(self, process: Process, attempt: Attempt) -> str:
        return attempt.name

    def abort_task(self, process: Process, attempt: Attempt) -> None:
        """Nobody knows whether the files are this attempt's: another one may have written them."""

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        process.stage.store.put(SUCCESS, b"")

    def abort_job(self, process: Process, job: str) -> None:
        """Delete the output directory: nothing tells whose a file is."""
        delete_tree(process, DEST.prefix)

    def recover(self, process: Process, name: str) -> str:
        if self.has_committed(process, name):
            return "committed"
        self.abort_job(process, name)
        return "aborted"

    def has_committed(self, process: Process, name: str) -> bool:
        """`_SUCCESS` may be an older job's: it does not say."""
        return exists(process, SUCCESS)


class Direct(Foil):
    """Files are written where they belong; commits do nothing but mark."""


@dataclass(frozen=True)
class FileOutput(Foil):
    """`FileOutputCommitter`. ``algorithm``: 1: a task's commit moves its directory, the job's
    commit merges all directories into the destination; 2: a task's commit merges its directory into
    the destination."""

    algorithm: int

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        super().begin(process, name, replace=replace)
        process.stage.store.put(JOB_ATTEMPT, b"")
        return name

    def write(self, process: Process, attempt: Attempt, name: str, data: bytes) -> None:
        process.stage.store.put(f"{_directory(attempt)}{name}", data)

    def commit_task(self, process: Process, attempt: Attempt) -> str:
        """Algorithm 1: an older directory of the task goes, then the attempt's is renamed."""
        directory = _directory(attempt)
        committed = f"{JOB_ATTEMPT}task_{attempt.job}_{attempt.task}/"
        if self.algorithm == 2:
            merge(process, directory)
        elif listed(process, directory):
            delete_tree(process, committed)
            keys = listed(process, directory)
            for key in keys:
                process.stage.copy(key, f"{committed}{key.removeprefix(directory)}")
            delete_all(process, keys)
        return attempt.task

    def abort_task(self, process: Process, attempt: Attempt) -> None:
        delete_tree(process, _directory(attempt))

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """Merge, clean up, mark."""
        store = process.stage.store
        store.put(_begun(job), b"")
        if self.algorithm == 1:
            there = listed(process, JOB_ATTEMPT)
            if not there:
                raise NotFound(f"LIST {JOB_ATTEMPT}: no such directory", operation="list", key="")
            names = {key.removeprefix(JOB_ATTEMPT).partition("/") for key in there}
            for name in sorted({name for name, slash, _ in names if slash} - {"_temporary"}):
                merge(process, f"{JOB_ATTEMPT}{name}/")
        delete_tree(process, TEMPORARY)
        store.put(SUCCESS, b"")
        store.put(_ended(job), b"")

    def abort_job(self, process: Process, job: str) -> None:
        delete_tree(process, TEMPORARY)

    def has_committed(self, process: Process, name: str) -> bool:
        """As a second application master: a commit that has begun is called again if it can be
        repeated, which v2 says of itself and v1 does not; otherwise the job has failed."""
        if exists(process, _ended(name)):
            return True
        again = self.algorithm == 2 and exists(process, _begun(name))
        if again:
            self.commit_job(process, name, ())
        return again


def _directory(attempt: Attempt) -> str:
    return f"{JOB_ATTEMPT}_temporary/attempt_{attempt.name}/"


def _begun(job: str) -> str:
    return f"am/{job}/COMMIT_STARTED"


def _ended(job: str) -> str:
    return f"am/{job}/COMMIT_SUCCESS"


@dataclass(frozen=True)
class Stocator(Foil):
    """A file's name holds its attempt, and `_SUCCESS` names the attempts that count. ``plain``: its
    data is read by a reader that knows nothing of it, and takes what it finds."""

    name: str = "Stocator"
    plain: bool = False

    def read(self, stage: Stage) -> View:
        """Files of attempts that the manifest names, and files that no such committer wrote."""
        there = objects_read(stage)
        if self.plain:
            return there
        found = stage.store._bucket.objects.get(SUCCESS)
        named = set(json.loads(b"".join(found.pieces))["attempts"]) if found else set()
        return {key: body for key, body in there.items() if MARK not in key or _of(key) in named}

    def write(self, process: Process, attempt: Attempt, name: str, data: bytes) -> None:
        process.stage.store.put(f"{DEST.prefix}{name}{MARK}{attempt.name}", data)

    def abort_task(self, process: Process, attempt: Attempt) -> None:
        _delete(process, attempt.name)

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """One PUT decides."""
        manifest = {"job": job, "attempts": list(results)}
        process.stage.store.put(SUCCESS, json.dumps(manifest).encode())

    def abort_job(self, process: Process, job: str) -> None:
        _delete(process, f"{job}_")

    def has_committed(self, process: Process, name: str) -> bool:
        """The manifest says which job wrote it."""
        body = read(process, SUCCESS)
        return body is not None and json.loads(body)["job"] == name


def _of(key: str) -> str:
    return key.rpartition(MARK)[2]


def _delete(process: Process, attempts: str) -> None:
    keys = listed(process, DEST.prefix)
    delete_all(process, [key for key in keys if _of(key).startswith(attempts)])


@dataclass(frozen=True)
class SharedList(Stocator):
    """Each task adds itself to one list: it reads the list, and writes it without a condition."""

    name: str = "shared list"

    def commit_task(self, process: Process, attempt: Attempt) -> str:
        named = [*_accepted(process), attempt.name]
        process.stage.store.put(LIST, json.dumps(named).encode())
        return attempt.name

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        super().commit_job(process, job, _accepted(process))


def _accepted(process: Process) -> list[str]:
    return [str(name) for name in json.loads(read(process, LIST) or b"[]")]


@dataclass(frozen=True)
class Locked(Stocator):
    """A job holds a lock of the destination from its start to its end."""

    name: str = "locked"

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        process.stage.store.put(LOCK, name.encode(), if_none_match=True)
        return super().begin(process, name, replace=replace)

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        super().commit_job(process, job, results)
        process.stage.store.delete_one(LOCK)


# A file system's verbs on an object store ---------------------------------------------------------


def listed(process: Process, directory: str) -> list[str]:
    return [info.key for page in process.stage.store.list(directory) for info in page.objects]


def exists(process: Process, key: str) -> bool:
    try:
        process.stage.store.head(key)
    except NotFound:
        return False
    return True


def read(process: Process, key: str) -> bytes | None:
    try:
        return process.stage.store.get(key, max_bytes=MANIFEST_BYTES_MAX).body
    except NotFound:
        return None


def delete_all(process: Process, keys: Sequence[str]) -> None:
    for error in process.stage.store.delete(keys).values():
        raise error


def delete_tree(process: Process, directory: str) -> None:
    delete_all(process, listed(process, directory))


def merge(process: Process, source: str) -> None:
    """Move each file of a directory into the destination, over what is there."""
    for key in [key for key in listed(process, source) if not key.endswith("/")]:
        target = posixpath.join(DEST.prefix, key.removeprefix(source))
        if exists(process, target):
            process.stage.store.delete_one(target)
        process.stage.copy(key, target)
        process.stage.store.delete_one(key)

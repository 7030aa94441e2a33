"""Committers that write to the destination at once: Spark's direct one, and Stocator's naming.

Foils. Spark had its direct committer until 2.0 (SPARK-10063 took it away); Stocator is IBM's
connector. Both are told of in the paper *A Zero-Rename Committer*, section 12. Of Stocator only the
idea is here: a file's name holds its attempt, nothing is renamed, and `_SUCCESS` names the attempts
that count. Nothing here is used by the library.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from magic_committer.errors import NotFound
from tests.properties.renames import SUCCESS, delete_tree, exists, listed
from tests.properties.stage import DEST, Process, Stage, View, objects_read

MANIFEST_BYTES_MAX = 65536
MARK = "-attempt_"
"""What stands between a name and its attempt."""


class Writing(NamedTuple):
    """An attempt that writes in place: its job, and its name."""

    job: str
    name: str


@dataclass(frozen=True)
class Direct:
    """Files are written where they belong; commits do nothing but mark."""

    name: str = "direct"

    def read(self, stage: Stage) -> View:
        """What any reader finds."""
        return objects_read(stage)

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        """Spark deletes what is to be replaced before it starts."""
        if replace:
            delete_tree(process, DEST.prefix)
        return name

    def attempt(self, process: Process, job: str, task: str, number: int) -> Writing:
        """Nothing is made."""
        return Writing(job, "")

    def write(self, process: Process, attempt: Writing, name: str, data: bytes) -> None:
        """One object, at its place."""
        process.stage.store.put(f"{DEST.prefix}{name}", data)

    def commit_task(self, process: Process, attempt: Writing) -> str:
        """Nothing is left to do."""
        return attempt.name

    def abort_task(self, process: Process, attempt: Writing) -> None:
        """Nobody knows whether the files are this attempt's: another one may have written them."""

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """Mark."""
        process.stage.store.put(SUCCESS, b"")

    def abort_job(self, process: Process, job: str) -> None:
        """Delete the output directory: nothing tells whose a file is."""
        delete_tree(process, DEST.prefix)

    def recover(self, process: Process, name: str) -> str:
        """`_SUCCESS` may be an older job's: it does not say."""
        if exists(process, SUCCESS):
            return "committed"
        self.abort_job(process, name)
        return "aborted"


@dataclass(frozen=True)
class Stocator:
    """A file's name holds its attempt, and `_SUCCESS` names the attempts that count.

    Attributes:
        plain: its data is read by a reader that knows nothing of it, and takes what it finds.
    """

    name: str = "Stocator"
    plain: bool = False

    def read(self, stage: Stage) -> View:
        """Files of attempts that the manifest names, and files that no such committer wrote."""
        there = objects_read(stage)
        if self.plain:
            return there
        found = stage.store._bucket.objects.get(SUCCESS)
        named = _manifest(b"".join(found.pieces)) if found else set()
        return {key: body for key, body in there.items() if MARK not in key or _of(key) in named}

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        """Spark deletes what is to be replaced before it starts."""
        if replace:
            delete_tree(process, DEST.prefix)
        return name

    def attempt(self, process: Process, job: str, task: str, number: int) -> Writing:
        """An attempt is its name."""
        return Writing(job, f"{job}_{task}_{number}")

    def write(self, process: Process, attempt: Writing, name: str, data: bytes) -> None:
        """One object, at its place, under a name of the attempt's own."""
        process.stage.store.put(f"{DEST.prefix}{name}{MARK}{attempt.name}", data)

    def commit_task(self, process: Process, attempt: Writing) -> str:
        """Nothing is left to do: the driver is told the attempt's name."""
        return attempt.name

    def abort_task(self, process: Process, attempt: Writing) -> None:
        """Delete the attempt's files."""
        _delete(process, attempt.name)

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """One PUT decides."""
        manifest = {"job": job, "attempts": list(results)}
        process.stage.store.put(SUCCESS, json.dumps(manifest).encode())

    def abort_job(self, process: Process, job: str) -> None:
        """Delete the job's files."""
        _delete(process, f"{job}_")

    def recover(self, process: Process, name: str) -> str:
        """The manifest says which job wrote it."""
        try:
            stored = process.stage.store.get(SUCCESS, max_bytes=MANIFEST_BYTES_MAX)
        except NotFound:
            stored = None
        if stored is not None and json.loads(stored.body)["job"] == name:
            return "committed"
        self.abort_job(process, name)
        return "aborted"


def _manifest(body: bytes) -> set[str]:
    return set(json.loads(body)["attempts"])


def _of(key: str) -> str:
    return key.rpartition(MARK)[2]


def _delete(process: Process, attempts: str) -> None:
    keys = [key for key in listed(process, DEST.prefix) if _of(key).startswith(attempts)]
    for error in process.stage.store.delete(keys).values():
        raise error

"""Committers with one flaw each, where no foil of the field has it: so that every property is seen
to fail for somebody."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from magic_committer.errors import NotFound
from tests.properties.in_place import MANIFEST_BYTES_MAX, Stocator, Writing
from tests.properties.stage import DEST, Process

LIST = f"{DEST.prefix}_accepted.json"
LOCK = f"{DEST.prefix}_lock"


@dataclass(frozen=True)
class SharedList(Stocator):
    """Each task adds itself to one list: it reads the list, and writes it without a condition."""

    name: str = "shared list"

    def commit_task(self, process: Process, attempt: Writing) -> str:
        """Read, add, write."""
        named = [*_accepted(process), attempt.name]
        process.stage.store.put(LIST, json.dumps(named).encode())
        return attempt.name

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """Publish what the list names."""
        super().commit_job(process, job, _accepted(process))


@dataclass(frozen=True)
class Locked(Stocator):
    """A job holds a lock of the destination from its start to its end."""

    name: str = "locked"

    def begin(self, process: Process, name: str, *, replace: bool) -> str:
        """Take the lock, or fail."""
        process.stage.store.put(LOCK, name.encode(), if_none_match=True)
        return super().begin(process, name, replace=replace)

    def commit_job(self, process: Process, job: str, results: Sequence[str]) -> None:
        """Give the lock back when all is done."""
        super().commit_job(process, job, results)
        process.stage.store.delete_one(LOCK)


def _accepted(process: Process) -> list[str]:
    try:
        stored = process.stage.store.get(LIST, max_bytes=MANIFEST_BYTES_MAX)
    except NotFound:
        return []
    return [str(name) for name in json.loads(stored.body)]

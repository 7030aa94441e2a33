"""What the tests of uploads share: a small world of store, pool, blocks and hooks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import Options
from magic_committer.runtime.components import Runtime, SystemClock
from magic_committer.runtime.threads import Pool, ThreadPool
from magic_committer.stores.base import Attributes, CreatedUpload, UploadInfo, uploads
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import BlockSource, FinishedUpload, UploadStream

R = TypeVar("R")

BLOCK = 1000
"""Bytes of a block in most tests; the store of `World` has no minimum for parts."""


def options(block_bytes: int = BLOCK, **others: Any) -> Options:
    """Options with blocks smaller than S3 allows."""
    made = Options(**others)
    object.__setattr__(made, "block_bytes", block_bytes)
    return made


def failing(error: BaseException, verb: str, part: int = 0) -> Callable[[Request], None]:
    """A hook for `MemoryStore.before`: ``error`` for every ``verb``, of one part if ``part``."""

    def before(request: Request) -> None:
        if request.verb == verb and part in (0, request.part):
            raise error

    return before


def need_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be a system where a temporary file has a name."""
    exists = os.path.exists
    monkeypatch.setattr("os.path.exists", lambda path: "/fd/" not in str(path) and exists(path))


class LazyFuture:
    """A function that runs when somebody waits for it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function, self._ran = function, False

    def wait(self, seconds: float) -> bool:
        if not self._ran:
            self._ran = True
            self._value = self._function()
        return True

    def result(self) -> Any:
        self.wait(0.0)
        return self._value

    def exception(self) -> None:
        return None

    def done(self) -> bool:
        return self._ran


class LazyPool(ThreadPool):
    """A pool in which nothing happens before somebody waits for it: the slowest there is."""

    def __init__(self) -> None:
        super().__init__(0)
        self.late: list[Callable[[], object]] = []

    def submit(self, function: Callable[[], R], errand: object = None) -> Any:
        return LazyFuture(function)

    def later(self, function: Callable[[], object]) -> None:
        self.late.append(function)


@dataclass
class World:
    """A store, and what the hooks of the streams opened in it were told."""

    pool: Pool = field(default_factory=lambda: ThreadPool(0))
    options: Options = field(default_factory=options)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(part_bytes_min=1))
    blocks: BlockSource = field(default_factory=BlockSource)
    statistics: Statistics = field(default_factory=Statistics)
    finished: list[FinishedUpload] = field(default_factory=list)
    answers: list[CreatedUpload] = field(default_factory=list)
    aborts: int = 0

    def open(self, key: str = "table/file", **others: Any) -> UploadStream:
        arguments: dict[str, Any] = {
            "attributes": Attributes(),
            "options": self.options,
            "blocks": self.blocks,
            "on_close": self.finished.append,
            "on_answer": self.answers.append,
            "on_abort": self._aborted,
            "statistics": self.statistics,
        }
        clock = others.pop("clock", SystemClock())
        runtime = Runtime(self.store, self.pool, clock)
        return UploadStream(runtime, key, **(arguments | others))

    def _aborted(self) -> None:
        self.aborts += 1

    def published(self) -> bytes:
        """Complete the one finished upload, with all that is known of it; the object's bytes."""
        (finished,) = self.finished
        return self.complete(finished)

    def complete(self, finished: FinishedUpload) -> bytes:
        self.store.complete_upload(
            finished.key,
            finished.upload_id,
            finished.parts,
            length=finished.length,
            checksum=finished.checksum,
        )
        return self.store.get(finished.key, max_bytes=2**40).body

    def left_open(self) -> list[UploadInfo]:
        return list(uploads(self.store, ""))

    def assert_nothing_left(self) -> None:
        """No upload, no pending, no block: as if the file had never been."""
        assert self.left_open() == []
        assert self.finished == []
        assert self.aborts == 1
        assert self.blocks.bytes_in_use == 0

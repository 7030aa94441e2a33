"""A directory as the simulator sees it: what an attempt of files that wait asks of the file system,
and what ends one, are requests like those of the store.

Files of tasks have the world's time, as those of the store do. They are no objects: who lists the
store for the truth does not meet them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from magic_committer.runtime.components import Clock
from magic_committer.stores.base import WaitingFile
from magic_committer.stores.memory import Request
from magic_committer.stores.trees.disk import LocalTree
from tests.tree_bucket import JobsOfRenames

T = TypeVar("T")


class Tree(JobsOfRenames):
    """Arguments as for `TreeBucket`."""

    def __init__(self, root: Path, *, clock: Clock, **rules: Any) -> None:
        super().__init__(root, root.as_uri(), clock=clock, **rules)
        self._now_of, self._stamps = clock.now, 0
        self._bucket.objects = cast(Any, _Shown(self))

    @property
    def tree(self) -> LocalTree:
        """What a task's files are written by."""
        return _Asked(self)

    def clear(self, directory: str) -> int:
        """Remove a directory of a job: one request."""
        files = self._send(Request("clear", directory), lambda: self.files.clear(directory))
        return cast(int, files)

    def waiting_files(self, directory: str) -> Iterator[WaitingFile]:
        """Look for files that wait: one request."""
        files = self.files.waiting_files
        yield from self._send(Request("list_waiting", directory), lambda: list(files(directory)))

    def keys(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(key for key in super().keys(prefix) if not _is_of_task(key))

    def left_of_tasks(self) -> list[str]:
        """Files of tasks that are there."""
        return [key for key in super().keys() if _is_of_task(key)]

    def stamp(self, path: str | Path) -> None:
        """Give a file the world's time, and one that no other file has."""
        self._stamps += 1
        at = int(self._now_of() * 1e9) + self._stamps
        os.utime(path, ns=(at, at))


def _is_of_task(key: str) -> bool:
    return "/_temporary/" in key and "/00/tasks/" in key


class _Shown:
    """What is there, by the key that tests use."""

    def __init__(self, store: Tree) -> None:
        self._store = store

    def __getitem__(self, key: str) -> Any:
        return self._store.files.head(key.removeprefix(self._store.PREFIX))


class _Asked(LocalTree):
    """Each verb that changes something is a request."""

    def __init__(self, store: Tree) -> None:
        super().__init__(store.root)
        self._store = store

    def _ask(self, path: str, effect: Callable[[], T]) -> T:
        return cast(T, self._store._send(Request("tree", path), effect))

    def open(self, path: str) -> BinaryIO:
        made = super().open
        file = self._ask(path, lambda: made(path))
        return cast(BinaryIO, _Stamped(file, lambda: self._store.stamp(self.at(path))))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        done = super().rename
        self._ask(source, lambda: done(source, target, replace=replace))

    def make_directory(self, path: str) -> bool:
        made = super().make_directory
        return self._ask(path, lambda: made(path))

    def remove(self, path: str) -> bool:
        done = super().remove
        return self._ask(path, lambda: done(path))


class _Stamped:
    """An open file that gets its time when it is closed."""

    def __init__(self, file: BinaryIO, stamp: Callable[[], None]) -> None:
        self._file, self._stamp = file, stamp

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if not self._file.closed:
            self._stamp()
        self._file.close()

"""A file tree that is asked at most so often in a second: Hadoop's
``mapreduce.manifest.committer.io.rate``. Stores such as ABFS throttle a whole account, so that one
job's commit can slow down everybody else.

* A token bucket: after a quiet second, a second's worth of requests goes at once.
* Each request takes its turn under a lock, and waits for it without: turns are in the order of
  arrival, and nobody waits longer than the requests before it take.
* A wait is made of slices. Ctrl-C ends it in the main thread by itself, and in a thread of the pool
  by the errand: the request is then not made.

The limit is that of one process: executors that write at once have one each.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

from magic_committer._patience import SLICE_SECONDS, errand
from magic_committer._runtime import Clock, SystemClock
from magic_committer.errors import OptionError, Unanswered
from magic_committer.file_trees.base import FileTree, TreeEntry, TreePromises

BURST_SECONDS = 1.0
"""How many seconds' worth of requests may go at once after a pause."""
PER_SECOND_MIN = 1.0

T = TypeVar("T")


class RateLimit:
    """Turns, so many in a second. Safe for many threads.

    Args:
        per_second: how many, at least `PER_SECOND_MIN`.
        clock: for the time, and for waiting.

    Raises:
        OptionError: ``per_second`` is too small, or no finite number.
    """

    def __init__(self, per_second: float, clock: Clock) -> None:
        if not math.isfinite(per_second) or per_second < PER_SECOND_MIN:
            raise OptionError(
                f"requests per second: {per_second!r} is not at least {PER_SECOND_MIN:g}",
                hint="Hadoop's default is 10000",
            )
        self._each = 1.0 / per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free = -math.inf
        """When the next turn would be, had there been no pause."""

    def turn(self) -> bool:
        """Wait for a turn. False: what this thread works for was interrupted, and there is none."""
        with self._lock:
            now = self._clock.monotonic()
            mine = max(self._free, now - BURST_SECONDS + self._each)
            self._free = mine + self._each
        while True:
            work = errand()
            if work is not None and work.ended:
                return False
            left = mine - self._clock.monotonic()
            if left <= 0:
                return True
            self._clock.sleep(min(left, SLICE_SECONDS))


_limits: dict[tuple[str, float], RateLimit] = {}


def limited(tree: FileTree, per_second: float) -> LimitedTree:
    """A tree behind the limit that all trees of that URL in this process share."""
    key = (tree.url, per_second)
    limit = _limits.setdefault(key, RateLimit(per_second, SystemClock()))
    return LimitedTree(tree, per_second, limit=limit)


class LimitedTree:
    """A tree whose requests wait for their turns. Bytes of open files are not counted.

    Args:
        tree: the tree.
        per_second: how many requests in a second, of all threads together; at least 1.
        clock: for tests.
        limit: the turns, if several trees share them; None (default): its own.

    Raises:
        OptionError: as for `RateLimit`.

    Every verb raises what the tree's does; and `Unanswered` with ``sent=False`` after Ctrl-C, if
    the request was still waiting.

    Example:
        >>> from magic_committer.file_trees.memory import MemoryTree
        >>> tree = LimitedTree(MemoryTree(now=lambda: 1.0), per_second=100)
        >>> tree.create("a", b"123")
        >>> tree.read("a", 3)
        b'123'
    """

    def __init__(
        self,
        tree: FileTree,
        per_second: float,
        clock: Clock | None = None,
        limit: RateLimit | None = None,
    ) -> None:
        self._tree = tree
        self._limit = limit or RateLimit(per_second, clock or SystemClock())

    @property
    def behind(self) -> FileTree:
        """The tree behind the limit."""
        return self._tree

    def __repr__(self) -> str:
        return f"LimitedTree({self._tree!r})"

    @property
    def url(self) -> str:
        return self._tree.url

    @property
    def promises(self) -> TreePromises:
        return self._tree.promises

    def make_root(self) -> None:
        self._ask("make_directory", "", self._tree.make_root)

    def stat(self, path: str) -> TreeEntry | None:
        return self._ask("stat", path, lambda: self._tree.stat(path))

    def list(self, directory: str) -> Iterator[TreeEntry]:
        # Not a generator: the turn is taken when it is asked, not at its first entry.
        return self._ask("list", directory, lambda: self._tree.list(directory))

    def read(self, path: str, bytes_max: int) -> bytes:
        return self._ask("read", path, lambda: self._tree.read(path, bytes_max))

    def reader(self, path: str) -> BinaryIO:
        return self._ask("read", path, lambda: self._tree.reader(path))

    def create(self, path: str, data: bytes) -> None:
        self._ask("create", path, lambda: self._tree.create(path, data))

    def open(self, path: str) -> BinaryIO:
        return self._ask("open", path, lambda: self._tree.open(path))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        self._ask("rename", source, lambda: self._tree.rename(source, target, replace=replace))

    def make_directory(self, path: str) -> None:
        self._ask("make_directory", path, lambda: self._tree.make_directory(path))

    def remove(self, path: str) -> None:
        self._ask("remove", path, lambda: self._tree.remove(path))

    def remove_directory(self, path: str) -> bool:
        return self._ask("remove_directory", path, lambda: self._tree.remove_directory(path))

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        self._ask("sync", "", lambda: self._tree.sync(files, directories))

    def _ask(self, verb: str, path: str, act: Callable[[], T]) -> T:
        if not self._limit.turn():
            raise Unanswered(
                f"{verb} of {self.url}{path} was not asked: the work was interrupted",
                operation=verb, bucket=self.url, key=path, attempts=0, sent=False,
                hint="Nothing took effect: call it again",
            )  # fmt: skip
        return act()

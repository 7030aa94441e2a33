"""The tree of a simulated world: what it tells the judge, and how a process sees it.

`ToldTree` is the truth: production's tree in memory, which tells of each effect. `SeenTree` is how
one process sees it: before each verb it gives up its turn, and one of the faults may strike it.

Invariants:

* An effect and what is told of it are one step.
* A fault keeps to the port: an error that is not `Unanswered` means that the verb had no effect,
  but for a `NotFound` or a `PreconditionFailed`, which may be the answer to our own success.
  Listings leave out what came lately, and nothing else; `stat` and `read` do not lie.
"""

from __future__ import annotations

import errno
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from magic_committer.errors import StoreError, Unanswered
from magic_committer.file_trees.base import TreeEntry
from magic_committer.file_trees.memory import MemoryTree
from tests.simulation.scheduler import Actor, Killed, Scheduler

URL = "tree://memory/"

Effect = Callable[[], Any]

FAULTS = (
    "unanswered, no effect",
    "unanswered, took effect",
    "took effect and failed",
    "disk full",
    "killed before",
    "killed after",
    "paused before",
    "paused after",
    "listing lags",
)
"""What may strike at a verb."""

WRITES = ("create", "open", "write", "rename", "make_directory", "remove", "remove_directory")
ONLY_FOR = {
    "took effect and failed": ("create", "rename"),
    "disk full": ("create", "open", "write", "make_directory"),
    "listing lags": ("list",),
    "unanswered, took effect": ("create", "rename", "make_directory", "remove"),
}
"""Faults that make sense for some verbs only."""
FULL_VERBS = 12
"""So many verbs of one process find the disk full."""
PAUSES_SECONDS = (1.0, 30.0, 4000.0, 40_000.0, 400_000.0)


class Told(Protocol):
    """Who hears of each effect."""

    def made(self, path: str, etag: str) -> None:
        """A file was made."""

    def moved(self, source: str, target: str, etag: str, over: str) -> None:
        """A file or a directory was renamed; ``over``: the etag of the file that was there."""

    def removed(self, path: str, etag: str) -> None:
        """A file was deleted."""


class ToldTree(MemoryTree):
    """A tree in memory that tells.

    Args:
        scheduler: whose time stamps the files.
        directories: as of `MemoryTree`.
        exclusive: False: a create takes the place of what is there, as on a file system that does
            not keep the port.
    """

    told: Told

    def __init__(self, scheduler: Scheduler, *, directories: bool, exclusive: bool) -> None:
        super().__init__(URL, now=lambda: scheduler.now, directories=directories)
        self.exclusive = exclusive
        self.since: dict[str, float] = {}
        """When each path came."""
        self._scheduler = scheduler

    def create(self, path: str, data: bytes) -> None:
        if not self.exclusive:
            MemoryTree.remove(self, path)
        super().create(path, data)
        self._came(path)
        self.told.made(path, self._nodes[path].etag)

    def open(self, path: str) -> BinaryIO:
        file = super().open(path)
        self._came(path)
        self.told.made(path, self._nodes[path].etag)
        return file

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        there = self._nodes.get(target)
        super().rename(source, target, replace=replace)
        self._came(target)
        self.told.moved(source, target, self._nodes[target].etag, there.etag if there else "")

    def remove(self, path: str) -> None:
        there = self._nodes.get(path)
        super().remove(path)
        if there is not None:
            self.told.removed(path, there.etag)

    def make_directory(self, path: str) -> None:
        there = path in self._nodes
        super().make_directory(path)
        if not there:
            self._came(path)

    def append(self, path: str, etag: str, data: bytes) -> None:
        """Write on at the end of an open file, if that is still there."""
        for node in self._nodes.values():
            if node.etag == etag:
                node.data += data
                node.modified = self._scheduler.now

    def body(self, path: str) -> bytes:
        """What is in a file now."""
        return self._nodes[path].data

    def etag(self, path: str) -> str:
        """The etag of what is at a path; "" if nothing is."""
        node = self._nodes.get(path)
        return node.etag if node is not None else ""

    def paths(self) -> list[str]:
        """Everything that is there."""
        return sorted(self._nodes)

    def _came(self, path: str) -> None:
        self.since[path] = self._scheduler.now


class Faults:
    """What goes wrong in one world, and the hand that does it.

    Attributes:
        verbs: how many verbs were called. calls: the last of them, for people.
        struck: verb and fault. lagged: a listing has left something out.
    """

    KEPT = 40

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        self.scheduler = scheduler
        self.verbs = 0
        self.calls: list[str] = []
        self.struck: list[tuple[str, str]] = []
        self.lagged = False
        self.lag_seconds = 0.0
        self._chance = chance
        self._planned: list[tuple[int, str]] = []
        self._full: Counter[str] = Counter()

    def plan(self, strikes: list[tuple[int, str]]) -> None:
        """Let faults strike at the verbs of those numbers, or the next to which they may happen."""
        self._planned = sorted(strikes, reverse=True)

    def calm(self) -> None:
        """From now on nothing fails."""
        self._planned, self._full, self.lag_seconds = [], Counter(), 0.0

    def call(self, actor: Actor, verb: str, path: str, effect: Effect) -> Any:
        """One verb of a process."""
        self.scheduler.turn()
        self.verbs += 1
        fault = self._due(verb)
        if not fault and self._full[actor.name] and verb in ONLY_FOR["disk full"]:
            self._full[actor.name] -= 1
            raise full(verb, path)
        if fault:
            self.struck.append((verb, fault))
        note = f" !! {fault}" if fault else ""
        try:
            answer = self._strike(fault, actor, verb, path, effect) if fault else effect()
        except BaseException as error:
            self._note(f"{actor} {verb} {path}{note} -> {type(error).__name__}")
            raise
        self._note(f"{actor} {verb} {path}{note}")
        return answer

    def _note(self, words: str) -> None:
        self.calls.append(f"{self.scheduler.steps:>5} {words}")
        if len(self.calls) > self.KEPT:
            del self.calls[0]

    def _due(self, verb: str) -> str:
        for index in range(len(self._planned) - 1, -1, -1):
            number, fault = self._planned[index]
            if number > self.verbs:
                break
            if verb in ONLY_FOR.get(fault, (verb,)):
                del self._planned[index]
                return fault
        return ""

    def _strike(self, fault: str, actor: Actor, verb: str, path: str, effect: Effect) -> Any:
        if fault == "unanswered, no effect":
            raise Unanswered(f"{verb} of {path}: no answer", operation=verb, key=path)
        if fault == "unanswered, took effect":
            effect()
            raise Unanswered(f"{verb} of {path}: the answer is lost", operation=verb, key=path)
        if fault == "took effect and failed":
            effect()
            return effect()
        if fault == "disk full":
            self._full[actor.name] = self._chance.randrange(FULL_VERBS)
            raise full(verb, path)
        if fault == "killed before":
            self.scheduler.kill(actor)
            raise Killed
        if fault == "killed after":
            effect()
            self.scheduler.kill(actor)
            raise Killed
        if fault == "paused before":
            self._pause(actor)
            return effect()
        if fault == "paused after":
            try:
                return effect()
            finally:
                self._pause(actor)
        assert fault == "listing lags", fault
        self.lag_seconds = self._chance.choice((0.5, 5.0, 60.0))
        return effect()

    def _pause(self, actor: Actor) -> None:
        actor.paused_until = self.scheduler.now + self._chance.choice(PAUSES_SECONDS)
        self.scheduler.turn()


def full(verb: str, path: str) -> StoreError:
    """The error of a full disk: nothing was done."""
    return StoreError(f"{verb} of {path}: no space left", operation=verb, key=path, code="ENOSPC")


class SeenTree:
    """The tree as one process sees it: the port, verb by verb."""

    def __init__(self, tree: ToldTree, faults: Faults, actor: Actor) -> None:
        self._tree, self._faults, self._actor = tree, faults, actor
        self.url, self.promises = tree.url, tree.promises

    def _call(self, verb: str, path: str, effect: Effect) -> Any:
        return self._faults.call(self._actor, verb, path, effect)

    def make_root(self) -> None:
        self._tree.make_root()

    def stat(self, path: str) -> TreeEntry | None:
        return self._call("stat", path, lambda: self._tree.stat(path))  # type: ignore[no-any-return]

    def list(self, directory: str) -> Iterator[TreeEntry]:
        def effect() -> list[TreeEntry]:
            entries = list(self._tree.list(directory))
            newest = self._faults.scheduler.now - self._faults.lag_seconds
            seen = [e for e in entries if self._tree.since.get(e.path, 0.0) <= newest]
            if len(seen) < len(entries):
                self._faults.lagged = True
            return seen

        return iter(self._call("list", directory, effect))

    def read(self, path: str, bytes_max: int) -> bytes:
        return self._call("read", path, lambda: self._tree.read(path, bytes_max))  # type: ignore[no-any-return]

    def reader(self, path: str) -> BinaryIO:
        return self._call("reader", path, lambda: self._tree.reader(path))  # type: ignore[no-any-return]

    def create(self, path: str, data: bytes) -> None:
        self._call("create", path, lambda: self._tree.create(path, data))

    def open(self, path: str) -> BinaryIO:
        self._call("open", path, lambda: self._tree.open(path))
        return _Written(self, path, self._tree.etag(path))  # type: ignore[return-value]

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        told = f"{source} => {target}"
        effect = lambda: self._tree.rename(source, target, replace=replace)  # noqa: E731
        self._call("rename", told, effect)

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path, lambda: self._tree.make_directory(path))

    def remove(self, path: str) -> None:
        self._call("remove", path, lambda: self._tree.remove(path))

    def remove_directory(self, path: str) -> bool:
        effect = lambda: self._tree.remove_directory(path)  # noqa: E731
        return self._call("remove_directory", path, effect)  # type: ignore[no-any-return]

    def sync(self, files: object, directories: object) -> None:
        self._tree.sync([], [])

    def write(self, path: str, etag: str, data: bytes) -> None:
        """Write on in an open file."""
        try:
            self._call("write", path, lambda: self._tree.append(path, etag, data))
        except Unanswered as error:
            raise OSError(errno.EIO, "no answer") from error
        except StoreError as error:
            raise OSError(errno.ENOSPC, "no space left") from error


class _Written(io.RawIOBase):
    """An open file: each write is one step, and visible at once."""

    def __init__(self, tree: SeenTree, path: str, etag: str) -> None:
        super().__init__()
        self._tree, self._path, self._etag = tree, path, etag

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        self._tree.write(self._path, self._etag, bytes(view))
        return len(view)

"""The tree of a simulated world: what it tells the judge, and how a process sees it.

`ToldTree` is the truth: production's tree in memory, which tells of each effect. `SeenTree` is how
one process sees it: before each verb it gives up its turn, and one of the faults may strike it.

Invariants:

* An effect and what is told of it are one step.
* A fault keeps to the port: an error that is not `Unanswered` means that the verb had no effect,
  but for a `NotFound` or a `PreconditionFailed`, which may be the answer to our own success. After
  an `Unanswered` the verb has taken effect, or takes it later, or never.
  Listings leave out what came lately, and nothing else; `stat` and `read` do not lie.
* What an operating system says (a full disk, a stale handle, a read-only file system, a missing
  right) is what the library makes of the real error (`os_errors`).
"""

from __future__ import annotations

import errno
import io
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol

from magic_committer.errors import NotFound, StoreError, Unanswered
from magic_committer.file_trees.base import TreeEntry
from magic_committer.file_trees.memory import MemoryTree
from magic_committer.file_trees.os_errors import translated
from tests.simulation.scheduler import Actor, Killed, Scheduler

URL = "tree://memory/"

Effect = Callable[[], Any]

FAULTS = (
    "unanswered, no effect",
    "unanswered, took effect",
    "took effect and failed",
    "disk full",
    "unanswered, lands late",
    "denied",
    "stale handle",
    "read-only",
    "killed before",
    "killed after",
    "paused before",
    "paused after",
    "interrupted",
    "process's clock jumps",
    "disk's clock jumps",
    "listing lags",
)
"""What may strike at a verb."""

WRITES = ("create", "open", "write", "rename", "make_directory", "remove", "remove_directory")
MAKES = ("create", "open", "write", "make_directory")
CHANGES = ("create", "rename", "make_directory", "remove", "remove_directory")
ONLY_FOR = {
    "took effect and failed": ("create", "rename"),
    "disk full": MAKES,
    "listing lags": ("list",),
    "unanswered, took effect": CHANGES,
    "unanswered, lands late": CHANGES,
    "read-only": WRITES,
}
"""Faults that make sense for some verbs only."""
LASTING = {"disk full": MAKES, "stale handle": (), "read-only": WRITES}
"""Faults that last for some verbs of a process (``read-only``: of all), and for which verbs: () is
all of them."""
LASTING_VERBS = 12
ERRNO = {
    "disk full": errno.ENOSPC,
    "stale handle": errno.ESTALE,
    "read-only": errno.EROFS,
    "denied": errno.EACCES,
}
PAUSES_SECONDS = (1.0, 30.0, 4000.0, 40_000.0, 400_000.0)
LATE_SECONDS = (0.01, 0.5, 5.0, 100.0, 5000.0)
JUMPS_SECONDS = (-100_000.0, -3600.0, 30.0, 3600.0, 100_000.0)


class Told(Protocol):
    """Who hears of each effect.

    Attributes:
        acting, sent: whose verb takes effect now, and at which step it was sent.
    """

    acting: str
    sent: int

    def made(self, path: str, etag: str) -> None:
        """A file was made."""

    def moved(self, source: str, target: str, etag: str, over: str) -> None:
        """A file was renamed; ``over``: the etag of the file that was there."""

    def moved_directory(self, source: str, target: str) -> None:
        """A directory was renamed. Each file below it is told after it."""

    def removed(self, path: str, etag: str) -> None:
        """A file was deleted."""

    def looked(self, who: str, path: str, step: int, *, made: bool) -> None:
        """A process knows that there was no such file at a step, or that it has made it then."""


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
        self.ahead = 0.0
        """Seconds that the clock of the disk is ahead of the true time."""
        super().__init__(URL, now=lambda: scheduler.now + self.ahead, directories=directories)
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
        node = self._nodes[target]
        if not node.is_directory:
            self.told.moved(source, target, node.etag, there.etag if there else "")
            return
        self.told.moved_directory(source, target)
        for path in [path for path in self._nodes if path.startswith(f"{target}/")]:
            if not self._nodes[path].is_directory:
                self.told.moved(source + path[len(target) :], path, self._nodes[path].etag, "")

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
                node.modified = self._now()

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
        struck: verb and fault. lagged: for whom a listing has left something out.
        hurt: how many errors each process was given that are no answers.
        interruptible: whom Ctrl-C may interrupt: processes that a person waits for.
        disk_jumped: the file system's clock has jumped.
    """

    KEPT = 40

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        self.scheduler = scheduler
        self.verbs = 0
        self.calls: list[str] = []
        self.struck: list[tuple[str, str]] = []
        self.lagged: set[str] = set()
        self.lag_seconds = 0.0
        self.hurt: Counter[str] = Counter()
        self.interruptible: set[str] = set()
        self.disk_jumped = False
        self._chance = chance
        self._planned: list[tuple[int, str]] = []
        self._lasting: Counter[tuple[str, str]] = Counter()

    def plan(self, strikes: list[tuple[int, str]]) -> None:
        """Let faults strike at the verbs of those numbers, or the next to which they may happen."""
        self._planned = sorted(strikes, reverse=True)

    def calm(self) -> None:
        """From now on nothing fails. Clocks that are wrong stay so."""
        self._planned, self._lasting, self.lag_seconds = [], Counter(), 0.0

    def call(self, tree: ToldTree, actor: Actor, verb: str, path: str, effect: Effect) -> Any:
        """One verb of a process."""
        self.scheduler.turn()
        self.verbs += 1
        fault = self._due(actor, verb)
        if fault:
            self.struck.append((verb, fault))
        note = f" !! {fault}" if fault else ""
        fault = fault or self._lasts(actor, verb)
        sent = self.scheduler.steps
        effect = self._as_his(tree, actor, sent, effect)
        try:
            answer = self._strike(fault, tree, actor, verb, path, effect) if fault else effect()
        except BaseException as error:
            self._note(f"{actor} {verb} {path}{note} -> {type(error).__name__}")
            raise
        self._note(f"{actor} {verb} {path}{note}")
        return answer

    def _as_his(self, tree: ToldTree, actor: Actor, sent: int, effect: Effect) -> Effect:
        def told() -> Any:
            tree.told.acting, tree.told.sent = actor.name, sent
            return effect()

        return told

    def _note(self, words: str) -> None:
        self.calls.append(f"{self.scheduler.steps:>5} {words}")
        if len(self.calls) > self.KEPT:
            del self.calls[0]

    def _due(self, actor: Actor, verb: str) -> str:
        for index in range(len(self._planned) - 1, -1, -1):
            number, fault = self._planned[index]
            if number > self.verbs:
                break
            if verb in ONLY_FOR.get(fault, (verb,)) and self._may(fault, actor):
                del self._planned[index]
                return fault
        return ""

    def _may(self, fault: str, actor: Actor) -> bool:
        """Ctrl-C interrupts the main strand of a process only."""
        if fault != "interrupted":
            return True
        strand = self.scheduler.current
        return actor.name in self.interruptible and strand is actor.strands[0]

    def _lasts(self, actor: Actor, verb: str) -> str:
        """A fault that has struck before, and lasts."""
        for fault, verbs in LASTING.items():
            whose = fault, "" if fault == "read-only" else actor.name
            if self._lasting[whose] and verb in (verbs or (verb,)):
                self._lasting[whose] -= 1
                return fault
        return ""

    def _strike(
        self, fault: str, tree: ToldTree, actor: Actor, verb: str, path: str, effect: Effect
    ) -> Any:
        if fault in ERRNO:
            whose = fault, "" if fault == "read-only" else actor.name
            if fault in LASTING and not self._lasting[whose]:
                self._lasting[whose] = self._chance.randrange(LASTING_VERBS)
            raise self._hurts(actor, told_by_the_system(ERRNO[fault], verb, path))
        if fault.startswith("unanswered"):
            if fault == "unanswered, took effect":
                effect()
            elif fault == "unanswered, lands late":
                self._later(effect)
            error = Unanswered(f"{verb} of {path}: no answer", operation=verb, key=path)
            raise self._hurts(actor, error)
        if fault == "took effect and failed":
            effect()
            return effect()
        if fault == "interrupted" and self._chance.random() < 0.5:
            effect()
        if fault in ("killed before", "paused before", "interrupted"):
            self._happens(fault, tree, actor)
            return effect()
        if fault in ("killed after", "paused after"):
            try:
                return effect()
            finally:
                self._happens(fault, tree, actor)
        if fault.endswith("clock jumps"):
            self._happens(fault, tree, actor)
            return effect()
        assert fault == "listing lags", fault
        self.lag_seconds = self._chance.choice((0.5, 5.0, 60.0))
        return effect()

    def _happens(self, fault: str, tree: ToldTree, actor: Actor) -> None:
        if fault.startswith("killed"):
            self.scheduler.kill(actor)
            raise Killed
        if fault.startswith("paused"):
            actor.paused_until = self.scheduler.now + self._chance.choice(PAUSES_SECONDS)
            self.scheduler.turn()
        elif fault == "interrupted":
            raise KeyboardInterrupt
        elif fault == "process's clock jumps":
            actor.skew += self._chance.choice(JUMPS_SECONDS)
        else:
            tree.ahead += self._chance.choice(JUMPS_SECONDS)
            self.disk_jumped = True

    def _hurts(self, actor: Actor, error: StoreError) -> StoreError:
        self.hurt[actor.name] += 1
        return error

    def _later(self, effect: Effect) -> None:
        """Let a verb take effect some time later, whatever becomes of who has sent it."""
        seconds = self._chance.choice(LATE_SECONDS)

        def lands() -> None:
            self.scheduler.sleep(seconds)
            with suppress(StoreError):
                effect()

        self.scheduler.spawn(Actor("network", "network"), lands)


def told_by_the_system(number: int, verb: str, path: str) -> StoreError:
    """What the library makes of an OSError: nothing was done."""
    return translated(OSError(number, os.strerror(number)), verb, URL, path)


class SeenTree:
    """The tree as one process sees it: the port, verb by verb."""

    def __init__(self, tree: ToldTree, faults: Faults, actor: Actor) -> None:
        self._tree, self._faults, self._actor = tree, faults, actor
        self.url, self.promises = tree.url, tree.promises

    def _call(self, verb: str, path: str, effect: Effect) -> Any:
        return self._faults.call(self._tree, self._actor, verb, path, effect)

    @contextmanager
    def _learning(self, path: str, *, that_none: bool) -> Iterator[list[int]]:
        """If a verb is answered, its process knows that there is no file, or that it has made it:
        as it was at the step that the block notes."""
        at: list[int] = []
        try:
            yield at
        except NotFound:
            self._tree.told.looked(self._actor.name, path, at[0], made=False)
            raise
        if not that_none:
            self._tree.told.looked(self._actor.name, path, at[-1], made=True)

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
                self._faults.lagged.add(self._actor.name)
            return seen

        return iter(self._call("list", directory, effect))

    def read(self, path: str, bytes_max: int) -> bytes:
        with self._learning(path, that_none=True) as at:

            def effect() -> bytes:
                at.append(self._faults.scheduler.steps)
                return self._tree.read(path, bytes_max)

            return self._call("read", path, effect)  # type: ignore[no-any-return]

    def reader(self, path: str) -> BinaryIO:
        return self._call("reader", path, lambda: self._tree.reader(path))  # type: ignore[no-any-return]

    def create(self, path: str, data: bytes) -> None:
        with self._learning(path, that_none=False) as at:

            def effect() -> None:
                at.append(self._faults.scheduler.steps)
                self._tree.create(path, data)

            self._call("create", path, effect)

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
        self._call("sync", "", lambda: None)

    def write(self, path: str, etag: str, data: bytes) -> None:
        """Write on in an open file."""
        try:
            self._call("write", path, lambda: self._tree.append(path, etag, data))
        except StoreError as error:
            number = getattr(errno, error.code, errno.EIO)
            raise OSError(number, os.strerror(number)) from error


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

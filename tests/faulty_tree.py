"""A file tree with faults: what each process of a test, or of a simulation, sees of a shared tree.

`FaultyTree` stands before any tree. Before each request it asks a function for a fault: by the
request's number, drawn by seed (`drawn`), or named by a test (`at`). What can go wrong is `Fault`;
each but ``FORGED`` keeps the port's words (`file_trees/base.py`), so a committer must live with it.

* ``ANSWER_LOST``: it took effect, and `Unanswered` is told. ``REQUEST_LOST``: it took none.
* ``RETRIED``: the client asked twice by itself, and the answer to the second is told: `NotFound`
  for a rename, `PreconditionFailed` for a create, though the first one has done it.
* ``LATE``: `Unanswered` is told, and it takes effect `LATE_REQUESTS` requests of the tree later.
* ``FULL``, ``DENIED``: the disk is full, or a right is missing: no effect.
* ``DIES``, ``DIES_AFTER``: the process ends before the request, or after it took effect and before
  it knows. Every later request of the same process raises `Died` again.
* ``FORGED``: a create that finds a file does as if there was none: it is not exclusive. A promise
  of the port that is not kept, to show that those who judge see it.

Listings that lag: an entry that is younger than ``lag_requests`` requests is left out, or not, by
seed. `Weather` counts the requests of all processes, and knows the age of each entry.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import BinaryIO, TypeVar

from magic_committer.errors import StoreError, Unanswered
from magic_committer.file_trees.base import FileTree, TreeEntry, TreePromises
from magic_committer.file_trees.os_errors import translated

LATE_REQUESTS = 5
"""After how many further requests a late one takes effect."""

T = TypeVar("T")


class Fault(Enum):
    """What becomes of one request: see the head of the module."""

    ANSWER_LOST = "answer lost"
    REQUEST_LOST = "request lost"
    RETRIED = "retried"
    LATE = "late"
    FULL = "disk full"
    DENIED = "denied"
    DIES = "dies before"
    DIES_AFTER = "dies after"
    FORGED = "not exclusive"


READS = frozenset({"stat", "list", "read"})
NEEDS_ROOM = frozenset({"create", "open", "make_directory"})
OF_READS = frozenset({Fault.REQUEST_LOST, Fault.DENIED, Fault.DIES, Fault.DIES_AFTER})
OF_OPEN = OF_READS | {Fault.FULL}
"""A stream has no effect that comes later than its caller."""

Draw = Callable[[int, str, str], Fault | None]
"""From the number of a process's request, from 1, its verb and its path, to what befalls it."""


class Died(BaseException):
    """The process has ended at this request. No handler of the library may catch it."""


def possible(fault: Fault, verb: str) -> bool:
    """Whether a fault can befall a verb."""
    if fault is Fault.FORGED:
        return verb == "create"
    if fault is Fault.FULL:
        return verb in NEEDS_ROOM
    if verb in READS:
        return fault in OF_READS
    if verb == "open":
        return fault in OF_OPEN
    return True


def nothing(number: int, verb: str, path: str) -> None:
    """Draw no fault."""


def at(faults: Mapping[int, Fault]) -> Draw:
    """Faults by the number of the request. One that cannot befall its verb is a mistake of the
    test: AssertionError."""

    def draw(number: int, verb: str, path: str) -> Fault | None:
        fault = faults.get(number)
        assert fault is None or possible(fault, verb), f"{fault} cannot befall {verb} {path}"
        return fault

    return draw


def on(verb: str, fault: Fault, *, times: int = 1) -> Draw:
    """A fault for the first requests of one verb."""
    left = times

    def draw(number: int, asked: str, path: str) -> Fault | None:
        nonlocal left
        if asked != verb or not left:
            return None
        left -= 1
        return fault

    return draw


def drawn(seed: object, share: float, faults: Iterable[Fault]) -> Draw:
    """Faults by seed and request number: the same seed gives the same, whatever else runs.

    Args:
        seed: anything with a stable text.
        share: how many requests have a fault, from 0 to 1.
        faults: from what is drawn.
    """
    among = tuple(faults)

    def draw(number: int, verb: str, path: str) -> Fault | None:
        chance = random.Random(f"{seed} {number}")
        fitting = [fault for fault in among if possible(fault, verb)]
        return chance.choice(fitting) if fitting and chance.random() < share else None

    return draw


class Weather:
    """What the processes of one tree share: the count of requests, and what comes later.

    Args:
        seed: of the listings that lag.
        lag_requests: how many requests an entry may be missing in listings; 0: it is not.
    """

    def __init__(self, seed: object = 0, lag_requests: int = 0) -> None:
        self.requests = 0
        self._seed = seed
        self._lag = lag_requests
        self._born: dict[str, int] = {}
        self._later: list[tuple[int, Callable[[], None]]] = []

    def next(self) -> None:
        """Count a request, and let what is due take effect."""
        self.requests += 1
        due = [act for when, act in self._later if when <= self.requests]
        self._later = [(when, act) for when, act in self._later if when > self.requests]
        for act in due:
            act()

    def later(self, act: Callable[[], object]) -> None:
        """Let a request take effect later; its answer is lost."""

        def unheard() -> None:
            with suppress(StoreError):
                act()

        self._later.append((self.requests + LATE_REQUESTS, unheard))

    def settle(self) -> None:
        """Let all take effect that is still to come: the end of a schedule."""
        later, self._later = self._later, []
        for _, act in later:
            act()

    def made(self, path: str) -> None:
        """Note that an entry is new under this path."""
        self._born[path] = self.requests

    def shows(self, path: str) -> bool:
        """Whether a listing of now has an entry that is there."""
        if self.requests - self._born.get(path, -self._lag) >= self._lag:
            return True
        return random.Random(f"{self._seed} {self.requests} {path}").random() < 0.5


class FaultyTree:
    """One process's view of a tree.

    Args:
        tree: what is really there; other processes have views of their own.
        draw: what befalls each request.
        weather: what is shared with the other processes; None: this is the only one.
    """

    def __init__(
        self, tree: FileTree, draw: Draw = nothing, weather: Weather | None = None
    ) -> None:
        self.tree = tree
        self.draw = draw
        self.weather = weather or Weather()
        self.asked: list[tuple[str, str]] = []
        """Every request: its verb and its path."""
        self.befell: list[tuple[int, Fault]] = []
        self._dead = False

    @property
    def url(self) -> str:
        return self.tree.url

    @property
    def promises(self) -> TreePromises:
        return self.tree.promises

    def make_root(self) -> None:
        """No fault happens here."""
        self.tree.make_root()

    def stat(self, path: str) -> TreeEntry | None:
        return self._ask("stat", path, lambda: self.tree.stat(path))

    def list(self, directory: str) -> Iterator[TreeEntry]:
        entries = self._ask("list", directory, lambda: [*self.tree.list(directory)])
        return iter([entry for entry in entries if self.weather.shows(entry.path)])

    def read(self, path: str, bytes_max: int) -> bytes:
        return self._ask("read", path, lambda: self.tree.read(path, bytes_max))

    def reader(self, path: str) -> BinaryIO:
        return self._ask("read", path, lambda: self.tree.reader(path))

    def create(self, path: str, data: bytes) -> None:
        self._ask("create", path, lambda: self.tree.create(path, data), new=path)

    def open(self, path: str) -> BinaryIO:
        return self._ask("open", path, lambda: self.tree.open(path), new=path)

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        def act() -> None:
            self.tree.rename(source, target, replace=replace)

        self._ask("rename", source, act, new=target)

    def make_directory(self, path: str) -> None:
        self._ask("make_directory", path, lambda: self.tree.make_directory(path), new=path)

    def remove(self, path: str) -> None:
        self._ask("remove", path, lambda: self.tree.remove(path))

    def remove_directory(self, path: str) -> bool:
        return self._ask("remove_directory", path, lambda: self.tree.remove_directory(path))

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        names, parents = [*files], [*directories]
        self._ask("sync", "", lambda: self.tree.sync(names, parents))

    # Inside ---------------------------------------------------------------------------------------

    def _ask(self, verb: str, path: str, act: Callable[[], T], *, new: str = "") -> T:
        if self._dead:
            raise Died(f"{verb} of {path}, after the end")
        self.weather.next()
        self.asked.append((verb, path))
        number = len(self.asked)
        fault = self.draw(number, verb, path)
        if fault is not None:
            self.befell.append((number, fault))
        return self._befall(fault, verb, path, act, new)

    def _befall(
        self, fault: Fault | None, verb: str, path: str, act: Callable[[], T], new: str
    ) -> T:
        if fault is Fault.DIES:
            self._die(verb, path)
        if fault is Fault.FULL:
            raise self._told(errno.ENOSPC, verb, path)
        if fault is Fault.DENIED:
            raise self._told(errno.EACCES, verb, path)
        if fault is Fault.REQUEST_LOST:
            raise self._unanswered(verb, path)
        if fault is Fault.LATE:
            self.weather.later(act)
            raise self._unanswered(verb, path)
        if fault is Fault.FORGED:
            self.tree.remove(path)
        fresh = bool(new) and self.tree.stat(new) is None
        answer = act()
        if fresh:  # what was there stays in listings
            self.weather.made(new)
        if fault is Fault.DIES_AFTER:
            self._die(verb, path)
        if fault is Fault.ANSWER_LOST:
            raise self._unanswered(verb, path)
        return act() if fault is Fault.RETRIED else answer

    def _die(self, verb: str, path: str) -> None:
        self._dead = True
        raise Died(f"{verb} of {path}")

    def _told(self, number: int, verb: str, path: str) -> StoreError:
        return translated(OSError(number, os.strerror(number)), verb, self.url, path)

    def _unanswered(self, verb: str, path: str) -> StoreError:
        return Unanswered(
            f"{verb} of {self.url}{path}: the answer was lost",
            operation=verb,
            bucket=self.url,
            key=path,
            code="ETIMEDOUT",
        )

"""Jobs of renames on a tree in memory, for tests: who may die, lose an answer or be paused, where.

`Watched` stands before a tree and counts its verbs. A test names a verb by its number and says what
happens there: so a loop over all numbers is every place at which a process can die.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.committers.base import Process
from magic_committer.committers.manifest import ManifestCommitter, parts_of
from magic_committer.committers.manifest.parts import Parts
from magic_committer.errors import Unanswered
from magic_committer.file_trees.base import FileTree, make_directories, parent_of, walk
from magic_committer.file_trees.memory import MemoryTree
from magic_committer.options import Options
from magic_committer.protocol.record import TaskCommit, Terms
from magic_committer.stores.base import Attributes
from magic_committer.upload import BlockSource

URL = "tree://memory/"
VERBS = frozenset(
    [
        "stat",
        "list",
        "read",
        "reader",
        "create",
        "open",
        "rename",
        "make_directory",
        "remove",
        "remove_directory",
        "sync",
    ]
)


class Killed(BaseException):
    """The process dies here."""


class Watched:
    """A tree that counts the verbs of one process, and does something at one of them.

    Args:
        tree: the tree behind.
        at: the number of the verb, from 1; 0: none.
        before, after: what is done there: before the verb, or after its effect.
        on: the first verb and path for which it is true are where, instead of a number.
    """

    def __init__(
        self,
        tree: FileTree,
        at: int = 0,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
        on: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._tree = tree
        self.at = at
        self.count = 0
        self.dead = False
        self._on = on
        self._before, self._after = before, after

    @property
    def url(self) -> str:
        """The tree's."""
        return self._tree.url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tree, name)
        if name not in VERBS:
            return found

        def verb(*args: Any, **named: Any) -> Any:
            if self.dead:
                raise Killed
            self.count += 1
            number = self.count
            if self._on is not None and args and self._on(name, str(args[0])):
                self._on, self.at = None, number
            if number == self.at and self._before is not None:
                self._do(self._before)
            try:
                result = found(*args, **named)
                return iter(list(result)) if name == "list" else result
            finally:
                if number == self.at and self._after is not None:
                    self._do(self._after)

        return verb

    def _do(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Killed:
            self.dead = True
            raise


def die() -> None:
    """The process is killed."""
    raise Killed


def lose_the_answer() -> None:
    """What happened is not known to the caller."""
    raise Unanswered("the answer is lost", operation="test")


@dataclass
class Clock:
    """A clock that goes on by what is slept."""

    seconds: float = 1_000_000.0

    def now(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def monotonic(self) -> float:
        return self.now()

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class World:
    """A tree and what processes need.

    Attributes:
        tree: the tree.
        clock: for all processes.
    """

    clock: Clock = field(default_factory=Clock)
    directories: bool = True

    def __post_init__(self) -> None:
        self.tree = MemoryTree(URL, now=self.clock.now, directories=self.directories)
        self._ids = 0

    def draw(self) -> str:
        """Ids that differ, and are the same in each run."""
        self._ids += 1
        return f"{self._ids:032x}"

    def process(self, tree: object | None = None) -> Process:
        """One process; ``tree``: how it sees the tree."""
        seen: Any = tree if tree is not None else self.tree

        def no_store(bucket: str) -> Runtime:
            raise AssertionError(f"a job of renames asks for bucket {bucket!r}")

        return Process(
            no_store, ThreadPool(0), BlockSource(), clock=self.clock, ids=self.draw,
            tree_for=lambda url: seen,
        )  # fmt: skip

    def parts(self, tree: object | None = None) -> Parts:
        """The components of an operator's call."""
        return parts_of(self.process(tree), URL, Options())

    def start(
        self, tree: object | None = None, job_id: str | None = None, **terms: Any
    ) -> ManifestCommitter:
        """Start a job."""
        told: dict[str, Any] = {"track": "memory", "accept": "results", "committer": "manifest"}
        terms = Terms(**{**told, **terms})  # type: ignore[assignment]
        return ManifestCommitter.start(self.process(tree), URL, terms, Options(), job_id)  # type: ignore[arg-type]

    def again(self, job: ManifestCommitter, tree: object | None = None) -> ManifestCommitter:
        """The same job in another process."""
        return ManifestCommitter.of(self.process(tree), job.job, Options())

    def put(self, name: str, data: bytes) -> None:
        """Another program writes a file, over whatever is there."""
        make_directories(self.tree, parent_of(name))
        self.tree.remove(name)
        self.tree.create(name, data)

    def data(self) -> dict[str, bytes]:
        """What readers of the destination see."""
        return {
            entry.path: self.tree.read(entry.path, 2**20)
            for entry in walk(self.tree, "")
            if entry.kind == "file" and not entry.path.startswith("_")
        }

    def control(self) -> list[str]:
        """The files of committers."""
        return sorted(entry.path for entry in walk(self.tree, "_temporary") if entry.kind == "file")


def write(job: ManifestCommitter, task: str, files: dict[str, bytes]) -> TaskCommit:
    """Write and commit one attempt of a task."""
    attempt = job.attempt(task)
    for name, data in files.items():
        with attempt.open(name, unique=False, attributes=Attributes()) as file:
            file.write(data)
    return attempt.commit()


def every_verb(run: Callable[[Watched], object], tree: Callable[[], FileTree]) -> Iterator[int]:
    """The numbers of all verbs that a run makes without a disturbance."""
    watched = Watched(tree())
    run(watched)
    yield from range(1, watched.count + 1)

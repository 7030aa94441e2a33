"""Jobs on a directory, for tests: who may die, lose an answer or be paused, where.

`Watched` stands before a store and counts its verbs, and those of the file system in it. A test
names a verb by its number and says what happens there: so a loop over all numbers is every place at
which a process can die. (Deaths between two calls of the system are `tests.tree_store`'s.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import IOBase
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, cast
from weakref import finalize

from msgspec import structs

from magic_committer.commit import register
from magic_committer.committers.base import driver_of
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.errors import JobReport, Unanswered
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.ending import Ending
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.reports import CleanupReport, FoundJob, Recovery
from magic_committer.options import Options
from magic_committer.protocol.record import USUAL_TERMS, TaskCommit
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.base import Attributes
from magic_committer.stores.tree import TreeStore
from magic_committer.upload import BlockSource

STORE_VERBS = frozenset(
    (
        *("get", "head", "put", "delete", "delete_one", "list", "create_upload", "put_part"),
        *("list_parts", "complete_upload", "abort_upload", "list_uploads", "clear"),
        "waiting_files",
    )
)
TREE_VERBS = frozenset(
    (
        *("stat", "list", "read", "reader", "create", "open", "rename", "make_directory"),
        *("remove", "remove_directory", "sync", "make_root"),
    )
)
LISTINGS = frozenset(("list", "list_uploads", "waiting_files"))


class Killed(BaseException):
    """The process dies here."""


Hook = Callable[[str, str], None]


class Watched:
    """A store as one process sees it: it counts the verbs, and does something at one of them.

    Args:
        store: the store behind.
        at: the number of the verb, from 1; 0: none.
        before, after: what is done there: before the verb, or after its effect.
        on: the first verb and path for which it is true are where, instead of a number.
        always: is called before every verb with its name and its path.
    """

    def __init__(
        self,
        store: TreeStore,
        at: int = 0,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
        on: Callable[[str, str], bool] | None = None,
        always: Hook | None = None,
    ) -> None:
        self._store = store
        self.at = at
        self.count = 0
        self.dead = False
        self._on = on
        self._before, self._after = before, after
        self._always = always
        self.tree = _Verbs(self, store.tree, TREE_VERBS)
        self._verbs = _Verbs(self, store, STORE_VERBS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verbs, name)

    def _call(self, name: str, found: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if self.dead:
            raise Killed
        self.count += 1
        number = self.count
        path = str(args[0]) if args else ""
        if self._on is not None and args and self._on(name, path):
            self._on, self.at = None, number
        if self._always is not None:
            self._always(name, path)
        if number == self.at and self._before is not None:
            self._do(self._before)
        result: Any = None
        try:
            result = found(*args, **named)
            return iter(list(result)) if name in LISTINGS else result
        finally:
            if number == self.at and self._after is not None:
                if isinstance(result, IOBase):  # nobody gets it
                    result.close()
                self._do(self._after)

    def _do(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Killed:
            self.dead = True
            raise


class _Verbs:
    def __init__(self, watched: Watched, behind: Any, verbs: frozenset[str]) -> None:
        self._watched, self._behind, self._names = watched, behind, verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if name not in self._names:
            return found
        return lambda *args, **named: self._watched._call(name, found, *args, **named)


def die() -> None:
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


@dataclass(eq=False)
class World:
    """A directory and what processes need.

    Attributes:
        clock: for all processes; the files' own times are the system's.
        before: is called before every verb of every process that is started from now on.
    """

    clock: Clock = field(default_factory=Clock)
    before: Hook | None = None

    def __post_init__(self) -> None:
        home = mkdtemp()
        finalize(self, rmtree, home, ignore_errors=True)
        self.root = Path(home, "t")
        self.url = f"{self.root.as_uri()}/"
        self.dest = Destination.parse(self.url)
        self._ids = 0

    def draw(self) -> str:
        """Ids that differ, and are the same in each run."""
        self._ids += 1
        return f"{self._ids:032x}"

    @property
    def store(self) -> TreeStore:
        """The directory as a process sees it that has just begun."""
        return TreeStore(self.root, self.dest.bucket, clock=self.clock, ids=self.draw)

    def runtime(self, seen: object | None = None) -> Runtime:
        """The components of one process; ``seen``: how it sees the store."""
        if seen is None:
            seen = Watched(self.store, always=lambda verb, path: self._hook(verb, path))
        return Runtime(cast("Any", seen), ThreadPool(0), self.clock, self.draw)

    def _hook(self, verb: str, path: str) -> None:
        if self.before is not None:
            self.before(verb, path)

    def start(
        self,
        seen: object | None = None,
        job_id: str | None = None,
        kind: type[ManifestCommitter] = ManifestCommitter,
        **terms: Any,
    ) -> ManifestCommitter:
        told: dict[str, Any] = {"track": "memory", "accept": "results", "committer": kind.name}
        agreed = structs.replace(USUAL_TERMS, **{**told, **terms})
        return kind.setup(self.runtime(seen), self.dest, agreed, Options(), BlockSource(), job_id)

    def again(self, job: ManifestCommitter, seen: object | None = None) -> ManifestCommitter:
        """The same job in another process."""
        return type(job)(self.runtime(seen), job.job, Options(), BlockSource())

    def put(self, name: str, data: bytes) -> None:
        """Another program writes a file, over whatever is there."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).unlink(missing_ok=True)
        (self.root / name).write_bytes(data)

    def _files(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(self.root).as_posix(), path

    def data(self) -> dict[str, bytes]:
        """What readers of the destination see."""
        return {name: p.read_bytes() for name, p in self._files() if not name.startswith("_")}

    def control(self) -> list[str]:
        """The files of committers."""
        return [n for n, _ in self._files() if n.startswith(("_temporary", "__magic"))]

    # What operators do ----------------------------------------------------------------------------

    def inspect(self, seen: object | None = None) -> list[FoundJob]:
        return list(inspect_all(self.runtime(seen), self.dest, 0.0))

    def recover(
        self, job_id: str, seen: object | None = None, dead_after: float = 0.0, **more: Any
    ) -> Recovery:
        """Finish a job."""
        runtime = self.runtime(seen)
        ending = Ending(runtime, self.dest, job_id, dead_after=dead_after)
        return ending.recover_now(**more)

    def abort(self, job_id: str, seen: object | None = None, *, revert: bool = False) -> JobReport:
        runtime = self.runtime(seen)
        found = register.read(runtime, JobPaths(self.dest, job_id).record)
        assert found is not None
        return driver_of(runtime, self.dest, found, Options()).abort(revert=revert)

    def clean(self, seen: object | None = None) -> CleanupReport:
        """Clean up everything, however young."""
        limits = Limits(0.0, 0.0, 0.0, 0.0)
        options = Options()
        return Cleaning(self.runtime(seen), self.dest, limits, dry_run=False, options=options).run()

    def end_all(self) -> None:
        """Recover every job, as an operator who knows that the drivers are dead."""
        for one in self.inspect():
            if one.kind == "ours":
                self.recover(one.id)


def opened(attempt: Any, name: str) -> Any:
    return attempt.open(name, unique=False, attributes=Attributes())


def put(attempt: Any, files: dict[str, bytes]) -> None:
    """Write an attempt's files, and do not commit it."""
    for name, data in files.items():
        with opened(attempt, name) as file:
            file.write(data)


def write(job: ManifestCommitter, task: str, files: dict[str, bytes]) -> TaskCommit:
    """Write and commit one attempt of a task."""
    attempt = job.attempt(task)
    put(attempt, files)
    return attempt.commit()

"""Committers that rename files when a task or the job commits: the production code, on file trees.

They work on a tree in memory, whose renames are atomic, by verbs that are cut as the requests to a
store are (`stage.Stage`). Manifest and the classic ones are one job with one record, and differ in
what a commit moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from magic_committer.maintenance.trees import recover_tree

from magic_committer._runtime import Runtime
from magic_committer.committers.base import Process as Components
from magic_committer.committers.classic import V1Committer, V2Committer
from magic_committer.committers.manifest import ManifestCommitter, parts_of
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.errors import IncompleteJob, StoreError
from magic_committer.file_trees.base import TreeEntry, TreePromises
from magic_committer.options import Accept, Options
from magic_committer.protocol.record import StartedJob, State, TaskCommit, Terms
from magic_committer.stores.base import Attributes
from tests.properties.stage import TREE_URL, Process, Stage, View, is_shown

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

OPTIONS = Options(commit_threads=4)

T = TypeVar("T")


@dataclass(frozen=True)
class Renames:
    """A committer of renames, as `magic_committer.start` drives it.

    Attributes:
        kind: the committer's class.
        accept: the job's term of this name.
        directory: where in the destination the job's files go.
    """

    name: str
    kind: type[ManifestCommitter] = ManifestCommitter
    accept: Accept = "results"
    directory: str = ""

    def read(self, stage: Stage) -> View:
        """What any reader finds."""
        return files_read(stage)

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Start a job of a given id: whoever recovers it knows only that."""
        terms = Terms(
            mode="replace" if replace else "append",
            accept=self.accept,
            track="memory",
            committer=self.kind.name,
        )
        return self.kind.start(components(process), TREE_URL, terms, OPTIONS, name).job

    def attempt(self, process: Process, job: StartedJob, task: str, number: int) -> TreeAttempt:
        """An attempt of a drawn name."""
        return self._committer(process, job).attempt(task)

    def write(self, process: Process, attempt: TreeAttempt, name: str, data: bytes) -> None:
        """One file."""
        place = f"{self.directory}/{name}" if self.directory else name
        with attempt.open(place, unique=False, attributes=Attributes()) as file:
            file.write(data)

    def commit_task(self, process: Process, attempt: TreeAttempt) -> TaskCommit:
        """Save the manifest; v1 renames the attempt's directory, v2 its files."""
        return attempt.commit()

    def abort_task(self, process: Process, attempt: TreeAttempt) -> None:
        """Remove the attempt's files."""
        attempt.abort()

    def commit_job(self, process: Process, job: StartedJob, results: Sequence[TaskCommit]) -> None:
        """Rename what is not at its place yet."""
        given = results if self.accept == "results" else None
        report = self._committer(process, job).commit_job(given, [one.task for one in results])
        if report.outcome != "committed":
            raise IncompleteJob(f"the job is {report.state}, {report.outcome}")

    def abort_job(self, process: Process, job: StartedJob) -> None:
        """Remove all that the job holds."""
        self._committer(process, job).abort_job()

    def recover(self, process: Process, name: str) -> str:
        """As `magic-committer job recover`, at once."""
        parts = parts_of(components(process), TREE_URL, OPTIONS)
        found = recover_tree(parts, name, dead_after=0.0)
        if found.found == State.ABSENT:
            return "aborted"  # a given id leaves a record, so there was no job
        return found.outcome

    def _committer(self, process: Process, job: StartedJob) -> ManifestCommitter:
        return self.kind.of(components(process), job, OPTIONS)


class Classic(Renames):
    """v1 and v2, which have no mode that replaces."""

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Spark deletes what is to be replaced before it starts."""
        if replace:
            tree = SeenTree(process.stage)
            for entry in list(tree.list("")):
                if is_shown(entry.path):
                    tree.remove(entry.path)
        return super().begin(process, name, replace=False)


def manifest(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """The manifest committer."""
    return Renames(name, ManifestCommitter, accept, directory)


def v1(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """Algorithm 1."""
    return Classic(name, V1Committer, accept, directory)


def v2(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """Algorithm 2."""
    return Classic(name, V2Committer, accept, directory)


def components(process: Process) -> Components:
    """What a committer is built from in a process of the play."""
    stage, runtime = process.stage, process.runtime
    return Components(
        _no_store, runtime.pool, stage.blocks, clock=runtime.clock, ids=runtime.ids,
        tree_for=lambda url: SeenTree(stage),
    )  # fmt: skip


def _no_store(bucket: str) -> Runtime:
    raise AssertionError(f"a job of renames asks for bucket {bucket!r}")


def files_read(stage: Stage) -> View:
    """What every reader of a directory finds: files none of whose path elements begins with ``_``
    or ``.``."""
    return {
        path: node.data
        for path, node in stage.tree._nodes.items()
        if not node.is_directory and is_shown(path)
    }


# The tree, verb by verb ---------------------------------------------------------------------------


class SeenTree:
    """The stage's tree as its processes see it: each verb is a request of the process that acts.
    What is written to a file is a request, too, and visible at once."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._tree = stage, stage.tree

    @property
    def url(self) -> str:
        return self._tree.url

    @property
    def promises(self) -> TreePromises:
        return self._tree.promises

    def make_root(self) -> None:
        """No request: it is there."""

    def stat(self, path: str) -> TreeEntry | None:
        return self._ask(f"stat {path}", lambda: self._tree.stat(path), reads=True)

    def list(self, directory: str) -> Iterator[TreeEntry]:
        words = f"list {directory or '/'}"
        return iter(self._ask(words, lambda: [*self._tree.list(directory)], reads=True))

    def read(self, path: str, bytes_max: int) -> bytes:
        return self._ask(f"read {path}", lambda: self._tree.read(path, bytes_max), reads=True)

    def reader(self, path: str) -> BinaryIO:
        return self._ask(f"read {path}", lambda: self._tree.reader(path), reads=True)

    def create(self, path: str, data: bytes) -> None:
        self._ask(f"create {path}", lambda: self._tree.create(path, data))

    def open(self, path: str) -> BinaryIO:
        self._ask(f"open {path}", lambda: self._tree.open(path))
        return cast(BinaryIO, _Written(self, path, self._tree._nodes[path].etag))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        def effect() -> None:
            self._tree.rename(source, target, replace=replace)

        self._ask(f"rename {source} to {target}", effect)

    def make_directory(self, path: str) -> None:
        self._ask(f"mkdir {path}", lambda: self._tree.make_directory(path))

    def remove(self, path: str) -> None:
        self._ask(f"remove {path}", lambda: self._tree.remove(path))

    def remove_directory(self, path: str) -> bool:
        return self._ask(f"rmdir {path}", lambda: self._tree.remove_directory(path))

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Nobody's power is cut here."""
        self._ask("sync", lambda: None, reads=True)

    def write_at(self, path: str, etag: str, offset: int, data: bytes) -> None:
        """Write into the file that was opened, wherever it is now; one that is gone takes it, as on
        a disk."""

        def effect() -> None:
            for node in self._tree._nodes.values():
                if node.etag == etag:
                    node.data = node.data[:offset] + data + node.data[offset + len(data) :]

        self._ask(f"write {path}", effect)

    def _ask(self, words: str, effect: Callable[[], T], *, reads: bool = False) -> T:
        self._stage.before(words, effect, reads=reads)
        try:
            answer = effect()
        except StoreError as error:
            self._stage.after(f"{words} -> {type(error).__name__}")
            raise
        self._stage.after(words)
        return answer


class _Written(RawIOBase):
    """An open file."""

    def __init__(self, tree: SeenTree, path: str, etag: str) -> None:
        super().__init__()
        self._tree, self._path, self._etag, self._offset = tree, path, etag, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        body = bytes(data)
        self._tree.write_at(self._path, self._etag, self._offset, body)
        self._offset += len(body)
        return len(body)

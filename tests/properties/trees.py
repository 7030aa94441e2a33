"""Committers whose tasks' files wait on a file system: the production code, on a directory.

From the task's commit on it is the job of `uploads.Magic`. What a task asks of the file system
itself is a request of the play, too (`SeenTree`): what is written to a file is one, and visible at
once where its name is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

from magic_committer.committers.classic import V1Committer, V2Committer
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.errors import StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Accept
from magic_committer.protocol.record import StartedJob
from magic_committer.stores.base import Attributes
from tests.properties.stage import Process, Stage, View, files_read
from tests.properties.uploads import Magic
from tests.tree_bucket import TreeBucket

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

READS = ("stat", "list", "read", "reader", "look", "sync")
"""Verbs that change nothing that anybody could see."""
NO_REQUESTS = ("url", "promises", "at", "below", "make_root")


@dataclass(frozen=True)
class Renames(Magic):
    """A committer of renames, as `magic_committer.start` drives it.

    Attributes:
        directory: where in the destination the job's files go.
    """

    directory: str = ""
    kind: ClassVar[Any] = ManifestCommitter

    def read(self, stage: Stage) -> View:
        """What any reader finds."""
        return files_read(stage)

    def set_up(self, stage: Stage) -> None:
        """The store is a directory."""
        stage.use(OnStage(stage))

    def dest(self, stage: Stage) -> Destination:
        """A directory is a bucket of its own."""
        return Destination(stage.store.bucket, "")

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        """One file."""
        place = f"{self.directory}/{name}" if self.directory else name
        with attempt.open(place, unique=False, attributes=Attributes()) as file:
            file.write(data)


@dataclass(frozen=True)
class Classic(Renames):
    """v1, which has no mode that replaces."""

    kind: ClassVar[Any] = V1Committer

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Spark deletes what is to be replaced before it starts."""
        if replace:
            process.stage.store.delete(files_read(process.stage))
        return super().begin(process, name, replace=False)


@dataclass(frozen=True)
class Classic2(Classic):
    """v2."""

    kind: ClassVar[Any] = V2Committer


def manifest(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """The manifest committer."""
    return Renames(name, "memory", accept, directory)


def v1(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """Algorithm 1."""
    return Classic(name, "memory", accept, directory)


def v2(name: str, accept: Accept = "results", directory: str = "") -> Renames:
    """Algorithm 2."""
    return Classic2(name, "memory", accept, directory)


class OnStage(TreeBucket):
    """The stage's directory."""

    def __init__(self, stage: Stage) -> None:
        root = stage.new_directory()
        super().__init__(root, root.as_uri(), clock=stage.clock, ids=stage.new_id)
        self._stage = stage

    @property
    def tree(self) -> Any:
        """What a task's files are written by."""
        return SeenTree(self._stage, self.files.tree)


class SeenTree:
    """A tree as a stage's processes see it: each verb is a request of the process that acts."""

    def __init__(self, stage: Stage, tree: Any) -> None:
        self._stage, self._tree = stage, tree

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tree, name)
        if name in NO_REQUESTS:
            return found

        def verb(*args: Any, **named: Any) -> Any:
            def effect() -> Any:
                if name == "sync":
                    return None  # nobody's power is cut here
                done = found(*args, **named)
                return list(done) if name == "list" else done

            words = " ".join([name, *(arg for arg in args if isinstance(arg, str))])
            done = self._ask(words, effect, reads=name in READS)
            if name == "list":
                return iter(done)
            return cast(BinaryIO, _Written(self, args[0], done)) if name == "open" else done

        return verb

    def _ask(self, words: str, effect: Callable[[], Any], *, reads: bool = False) -> Any:
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

    def __init__(self, tree: SeenTree, path: str, file: Any) -> None:
        super().__init__()
        self._tree, self._path, self._file, self._offset = tree, path, file, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        body, offset = bytes(data), self._offset

        def effect() -> None:
            self._file.seek(offset)
            self._file.write(body)

        self._tree._ask(f"write {self._path}", effect)
        self._offset += len(body)
        return len(body)

    def close(self) -> None:
        super().close()
        # The raw file stays open: a request that lands late may still be written.

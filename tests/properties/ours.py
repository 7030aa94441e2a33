"""The library's committers, as `magic_committer.start` drives them: the production code.

Magic and staging are one job from the task's commit on, and differ in how files are written. So are
the committers whose tasks' files wait on a file system; what a task asks of the file system itself
is a request of the play, too (`SeenTree`): what is written to a file is one, and visible at once
where its name is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

from msgspec import structs

from magic_committer.committers.magic import MagicCommitter
from magic_committer.committers.manifest import ManifestCommitter, V1Committer, V2Committer
from magic_committer.committers.staging import DirectoryCommitter, PartitionedCommitter
from magic_committer.errors import IncompleteJob, StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.ending import Ending
from magic_committer.options import Accept, Options, Track
from magic_committer.protocol.record import USUAL_TERMS, StartedJob, State
from magic_committer.stores.base import Attributes
from tests.properties.stage import DEST, Process, Stage, View, files_read, objects_read
from tests.tree_bucket import TreeBucket

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

OPTIONS = Options(commit_threads=4, checksum="off")
ENDED = (State.ABSENT, State.CLOSED)
READS = ("stat", "list", "read", "reader", "look", "sync")
"""Verbs of a tree that change nothing that anybody could see."""
NO_REQUESTS = ("url", "promises", "at", "below", "make_root")


@dataclass(frozen=True)
class Magic:
    """The magic committer. ``track``, ``accept``: the job's terms of these names. ``kind``: the
    committer's class."""

    name: str
    track: Track = "memory"
    accept: Accept = "results"
    kind: ClassVar[Any] = MagicCommitter

    def read(self, stage: Stage) -> View:
        return objects_read(stage)

    def set_up(self, stage: Stage) -> None:
        """Before anything is there."""

    def dest(self, stage: Stage) -> Destination:
        return DEST

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Start a job of a given id: whoever recovers it knows only that."""
        terms = structs.replace(
            USUAL_TERMS,
            mode=self.kind.mode("replace" if replace else "append"),
            accept=self.accept, track=self.track, checksum="off", committer=self.kind.name,
        )  # fmt: skip
        blocks, dest = process.stage.blocks, self.dest(process.stage)
        started: StartedJob = self.kind.setup(
            process.runtime, dest, terms, OPTIONS, blocks, name
        ).job
        return started

    def attempt(self, process: Process, job: StartedJob, task: str, number: int) -> Any:
        return self._committer(process, job).attempt(task)

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        with attempt.open(name, unique=False, attributes=Attributes()) as stream:
            stream.write(data)

    def commit_task(self, process: Process, attempt: Any) -> Any:
        return attempt.commit()

    def abort_task(self, process: Process, attempt: Any) -> None:
        attempt.abort()

    def commit_job(self, process: Process, job: StartedJob, results: Sequence[Any]) -> None:
        given = results if self.accept == "results" else None
        report = self._committer(process, job).driver().commit(given, [one.task for one in results])
        if report.state not in ENDED:
            raise IncompleteJob(f"the job is {report.state}")

    def abort_job(self, process: Process, job: StartedJob) -> None:
        self._committer(process, job).driver().abort()

    def recover(self, process: Process, name: str) -> str:
        """As `magic-committer job recover`, at once."""
        dest = self.dest(process.stage)
        ending = Ending(process.runtime, dest, name, dead_after=0.0, options=OPTIONS)
        found = ending.recover_now()
        if found.found == State.ABSENT:
            return "aborted"  # a given id leaves a record, so there was no job
        return found.outcome

    def _committer(self, process: Process, job: StartedJob) -> Any:
        return self.kind(process.runtime, job, OPTIONS, process.stage.blocks)


class Directory(Magic):
    """Staging: its files are written below `Task.directory`, and uploaded by the task's commit."""

    kind: ClassVar[Any] = DirectoryCommitter

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        (attempt.directory(unique=False) / name).write_bytes(data)  # no request


class Partitioned(Directory):
    """The same, with modes by partition. The files of a play are all in the destination's root,
    which is a partition."""

    kind: ClassVar[Any] = PartitionedCommitter


@dataclass(frozen=True)
class Manifest(Magic):
    """Its tasks' files wait on a file system. ``directory``: where in the destination the job's
    files go."""

    directory: str = ""
    kind: ClassVar[Any] = ManifestCommitter

    def read(self, stage: Stage) -> View:
        return files_read(stage)

    def set_up(self, stage: Stage) -> None:
        """The store is a directory."""
        stage.use(OnStage(stage))

    def dest(self, stage: Stage) -> Destination:
        return Destination(stage.store.bucket, "")

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        place = f"{self.directory}/{name}" if self.directory else name
        super().write(process, attempt, place, data)


class V1(Manifest):
    """Algorithm 1, which has no mode that replaces: Spark deletes before it starts."""

    kind: ClassVar[Any] = V1Committer

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        if replace:
            process.stage.store.delete(files_read(process.stage))
        return super().begin(process, name, replace=False)


class V2(V1):
    """Algorithm 2."""

    kind: ClassVar[Any] = V2Committer


class OnStage(TreeBucket):
    """The stage's directory."""

    def __init__(self, stage: Stage) -> None:
        root = stage.new_directory()
        super().__init__(root, root.as_uri(), clock=stage.clock, ids=stage.new_id)
        self.tree = SeenTree(stage, self.files.tree)  # what a task's files are written by


class SeenTree:
    """A tree as a stage's processes see it: each verb is a request of the process that acts."""

    def __init__(self, stage: Stage, tree: Any) -> None:
        self._stage, self._tree = stage, tree

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tree, name)
        if name in NO_REQUESTS:
            return found

        def effect(*args: Any, **named: Any) -> Any:
            if name == "sync":
                return None  # nobody's power is cut here
            done = found(*args, **named)
            return list(done) if name == "list" else done

        def verb(*args: Any, **named: Any) -> Any:
            words = " ".join([name, *(arg for arg in args if isinstance(arg, str))])
            done = self._ask(words, partial(effect, *args, **named), reads=name in READS)
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
    """An open file. The raw one stays open: a request that lands late may still be written."""

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

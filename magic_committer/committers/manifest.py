"""The manifest committer: tasks write files at the destination, and the job renames them into
place.

For destinations with an atomic rename: local disks, network file systems that are mounted, and what
fsspec reaches. From the task's commit on it is the same job as magic's, with one record, one fence,
one commit and one recovery (`committers.base`): each file is an upload, whose Complete is its
rename. The set is Hadoop's task manifest, in Hadoop's layout, so that Hadoop's Manifest Committer
reads ours and we read its (`hadoop.manifests`).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol, Self, TypeVar, cast

from magic_committer.commit import revert
from magic_committer.commit.fence import AtKey, names
from magic_committer.committers.base import Committer
from magic_committer.committers.ends import Doing, TaskAttempt
from magic_committer.errors import (
    FormatError,
    MagicError,
    NotFound,
    OptionError,
    PathError,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    UploadFailed,
)
from magic_committer.hadoop.manifests import (
    ManifestFile,
    TaskManifest,
    check_file_name,
    decode_set,
    encode_manifest,
)
from magic_committer.hadoop.paths import is_hidden, unique_name, waiting_id
from magic_committer.options import Mode, Options, Track
from magic_committer.protocol.record import Found, Phase, StartedJob, TaskCommit
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import patient
from magic_committer.stores.base import Attributes, DirectoryStore, Part, WaitingFile, same_etag
from magic_committer.stores.trees.base import (
    FileTree,
    TreeEntry,
    add_parents,
    make_directories,
    parent_of,
    telling,
)
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.stores.urls import tree_url
from magic_committer.upload import FileState, LocalFile, PlainFile

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

# A file that waits --------------------------------------------------------------------------------
#
# Its bytes are in the attempt's directory, where no reader looks. It has a small buffer of its own,
# which a forked child does not write: the raw file below has none (`FileTree.open`).


BUFFER_BYTES = 256 * 1024
"""Bytes that are collected before they are written."""


class TreeFile(PlainFile):
    """A file for writing, from its start to its end. One thread at a time may use it. The raw
    ``file`` is not buffered. ``drop`` removes what was written; it is not called again after it has
    returned: the name may be that of another file then. ``may_close`` raises if the attempt
    accepts no more files."""

    def __init__(
        self,
        file: BinaryIO,
        url: str,
        *,
        drop: Callable[[], None],
        may_close: Callable[[], None],
    ) -> None:
        super().__init__(url)
        self._file = file
        self._drop = drop
        self._may_close = may_close
        self._buffer = bytearray()
        self._written = 0
        self._dropped = False

    def __repr__(self) -> str:
        return f"<TreeFile {self.name} {self.state}>"

    @property
    def length(self) -> int:
        """How many bytes were written; also of a file that is closed."""
        return self._written

    def tell(self) -> int:
        """How many bytes were written."""
        self._check_open()
        return self._written

    def write(self, data: Buffer, /) -> int:
        """Write bytes at the end. If the disk is full, or the file system failed, the file has
        failed."""
        self._check_open()
        view = memoryview(data).cast("B")
        size = len(view)
        if len(self._buffer) + size > BUFFER_BYTES:
            self._send(self._buffer)
            self._buffer.clear()
            if size >= BUFFER_BYTES:
                self._send(view)
                self._written += size
                return size
        self._buffer += view
        self._written += size
        return size

    def flush(self) -> None:
        """Give all bytes to the file system."""
        self._check_open()
        self._send(self._buffer)
        self._buffer.clear()

    def close(self) -> None:
        """Write what is left, and close the file: it belongs to its attempt now. Does nothing if
        the file is closed already. A failed file raises its error again at each close."""
        if not self._is_open():
            return
        try:
            self._may_close()
            self._send(self._buffer)
            self._buffer.clear()
            with telling("close", "", self.name):
                self._file.close()
        except StoreError as error:
            raise self._fail(_told(self.name, error)) from error
        except BaseException as error:
            self._fail(error)
            raise
        self._state = FileState.PENDING

    def _give_up(self) -> None:
        self._end()
        if not self._dropped:
            self._drop()
            self._dropped = True

    def take_out(self) -> None:
        """Give the file up, also a closed one. The attempt removes what was written."""
        self._state, self._dropped = FileState.ABORTED, True
        self._end()

    def _check_open(self) -> None:
        if not self._is_open():
            raise ValueError(f"I/O operation on closed file {self.name}")

    def _send(self, data: Buffer) -> None:
        view = memoryview(data)
        try:
            with telling("write", "", self.name):
                while view:
                    taken = self._file.write(view)
                    view = view[taken:]
        except StoreError as error:
            raise self._fail(_told(self.name, error)) from error
        except BaseException as error:  # how many bytes are written is not known
            self._fail(error)
            raise
        finally:
            view.release()

    def _fail(self, error: BaseException) -> BaseException:
        self._failed(error, kept=MagicError)
        with suppress(MagicError):  # the first error says more; the attempt's end removes the file
            self._give_up()
        return error

    def _end(self) -> None:
        with suppress(OSError, ValueError):  # it is given up, whatever its disk says
            self._file.close()
        self._buffer = bytearray()


def _told(name: str, error: StoreError) -> UploadFailed:
    return UploadFailed(f"{name} could not be written: {error.message}", hint=error.advice)


# One attempt --------------------------------------------------------------------------------------
#
# An upload here is a file that any program may write. Its id names its path and its ETag, so
# Complete is one rename, and the set is Hadoop's task manifest: the job's driver, its recovery and
# its sweep are those of every job.
#
# Invariants:
#
# * Nobody but this object uses the attempt: its name is drawn, or its engine vouches for it
#   (``track="memory"``). Its files are below ``00/tasks/<attempt>/``, where no reader of the
#   destination looks.
# * The commit names every file that was closed well, and what else is in `directory`, with size and
#   ETag, in one manifest, which is created once. Before it is, the files last through a power cut.
# * The record is read before the first file is made, before the manifest is stored, and after that
#   (`fence`): so the job's sweep sees the files, or the attempt sees that it is late.
# * A file that was given up is gone before the manifest is written.


F = TypeVar("F", TreeFile, LocalFile)
T = TypeVar("T")

logger = logging.getLogger("magic_committer")

COPY_BYTES = 1024**2
"""Bytes of a local file that are copied at once."""
TRIES_MAX = 6
"""How often a call without an answer is made."""
PAUSE_SECONDS = 0.1
"""Pause before the second try, in seconds. It doubles each time: 3 seconds in all."""


class WaitingStore(DirectoryStore, Protocol):
    """A store that is a file tree, where files can wait."""

    @property
    def tree(self) -> FileTree:
        """The file system, rooted where the store is."""

    def refuse(self, key: str) -> None:
        """See that a file can be renamed to a key: no link, file or mount is in the way."""


class TreeAttempt(TaskAttempt):
    """An attempt in the process that writes it."""

    _files: dict[str, TreeFile | LocalFile]

    def __init__(
        self, runtime: Runtime, job: StartedJob, options: Options, task: str, attempt: str, **_: Any
    ) -> None:
        super().__init__(runtime, job, options, task, attempt)
        self._store = cast("WaitingStore", runtime.store)
        self._tree = self._store.tree
        self._root = self._paths.attempt_directory(attempt).rstrip("/")
        self._made: set[str] = set()
        self._given = self._unique = False
        self._left: set[str] = set()
        """Names whose files were given up, and may still be there."""
        self._torn = ""
        """Why nobody can tell any more what the attempt has; "": nothing."""
        self._manifest: bytes | None = None
        self._named: tuple[ManifestFile, ...] = ()
        """What the manifest names."""

    @property
    def has_files(self) -> bool:
        """Whether it has files, so that no other handle can commit it."""
        return bool(self._files) or self._given

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TreeFile:
        """Open a file for writing: see `Task.open`."""
        return self._add(name, unique, attributes, self._tree_file)

    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a file that seeks, on local disk: see `Task.local_file`. When it is closed it is
        copied to its place."""

        def make(stored: str) -> LocalFile:
            url = f"{self._tree.url}{stored}"
            return self._local_file(stored, url, on_close=partial(self._take_in, stored))

        return self._add(name, unique, attributes, make)

    def _add(self, name: str, unique: bool, attributes: Attributes, make: Callable[[str], F]) -> F:
        self.check_process("opening a file")
        name = self._stored_name(name, unique, attributes)
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(self._files, name)
            file = self._files[name] = make(name)
        file.take_back = self._take_back
        return file

    def directory(self, *, unique: bool) -> Path:
        """The attempt's directory, if it is one of this machine: see `Task.directory`."""
        self.check_process("writing its files")
        tree = self._tree
        if not isinstance(tree, LocalTree):
            raise OptionError(
                f"{tree.url} is not on a disk of this machine: its tasks have no directory()",
                hint="Use task.local_file(name), or task.open(name)",
            )
        self._turns.check_open()
        self._make_directories(self._root)
        self._given, self._unique = True, self._unique or unique
        return Path(tree.at(self._root))

    def streams(self) -> dict[str, TreeFile | LocalFile]:
        """The files that were opened here, by their names; also those that ended badly."""
        with self._turns.lock:
            return dict(self._files)

    @property
    def waiting(self) -> Self:
        """See `TaskAttempt.waiting`."""
        return self

    @property
    def tree(self) -> FileTree:
        """The destination."""
        return self._tree

    def reader(self, name: str) -> BinaryIO:
        """Open a closed file for reading, by the name that it is stored under."""
        return self._again(lambda: self._tree.reader(f"{self._root}/{name}"))

    def discard(self, name: str) -> None:
        """Take a file out of the attempt, open or closed, and remove it. Repeatable after a
        StoreError. Afterwards the name is free. What may still be there after a StoreError the
        commit removes, and does not publish."""
        self.check_process("discarding a file")
        with patient(), self._turns.take(Doing.DISCARD):
            with self._turns.lock:
                file = self._own(name)
                opened = file.state is FileState.OPEN and isinstance(file, TreeFile)
                if opened or file.state is FileState.PENDING:
                    self._left.add(name)
                file.take_out()
            if name in self._left:
                self._again(partial(self._drop, name))
            with self._turns.lock:
                self._cut.discard(name)
                if self._files.get(name) is file:
                    del self._files[name]

    def rename(self, name: str, new: str, *, unique: bool) -> str:
        """Rename a closed file. Gives the name that it is stored under now. After a StoreError the
        file may have both names, or either: the attempt cannot commit any more."""
        self.check_process("renaming a file")
        new = self._stored_name(new, unique, Attributes())
        source, target = f"{self._root}/{name}", f"{self._root}/{new}"
        with patient(), self._turns.take(Doing.DISCARD), self._turns.lock:
            file = self._own(name)
            if file.state is not FileState.PENDING:
                raise PathError(
                    f"attempt {self.attempt!r}: {name!r} is {file.state}: it cannot be renamed",
                    hint="Close it first",
                )
            if new == name:
                return new
            self._refuse_twice(self._files, new)
            self._make_directories(parent_of(target))
            seen = self._again(lambda: self._tree.stat(source))
            if seen is None:
                raise self._is_gone(name)
            before, self._torn = self._torn, f"{name!r} could not be renamed to {new!r}"
            try:
                self._again(lambda: self._move(source, target, seen))
            except PreconditionFailed as error:
                self._torn = before
                raise self._has_already(new) from error
            self._torn = before
            del self._files[name]
            self._files[new] = file
            file.renamed(f"{self._tree.url}{new}")
        return new

    def _move(self, source: str, target: str, seen: TreeEntry) -> None:
        """Rename a file. Repeatable: a rename may take effect and fail."""
        try:
            self._tree.rename(source, target, replace=False)
        except (NotFound, PreconditionFailed, Unanswered):
            there = self._tree.stat(target) if self._tree.stat(source) is None else None
            if there is None or (there.size, there.etag) != (seen.size, seen.etag):
                raise

    def _own(self, name: str) -> TreeFile | LocalFile:
        """A file of this handle that nobody is just closing."""
        file = self._files.get(name)
        if file is None:
            raise self._has_no(name)
        if file.state is FileState.CLOSING:
            raise self._set.failed(
                f": {name!r} is being closed by another thread",
                "Call it again when close() has returned",
            )
        return file

    def _drop(self, name: str) -> None:
        """Remove what was written of a file that is not to be published. Repeatable. What cannot be
        removed is removed by the commit, or the commit fails."""
        self._left.add(name)
        self._tree.remove(f"{self._root}/{name}")
        self._left.discard(name)

    def _tree_file(self, name: str) -> TreeFile:
        path = f"{self._root}/{name}"
        self._make_directories(parent_of(path))
        if name in self._left:
            self._again(partial(self._drop, name))
        return TreeFile(
            self._new_file(path),
            f"{self._tree.url}{name}",
            drop=partial(self._drop, name),
            may_close=partial(self._turns.check_open, awaited=True),
        )

    def _stored_name(self, name: str, unique: bool, attributes: Attributes) -> str:
        if attributes != Attributes():
            raise OptionError(
                f"{self._tree.url} holds files, which have no attributes: {attributes!r:.120}",
                hint="Leave attributes out",
            )
        check_file_name(name, uuid=self.job.uuid)
        return unique_name(name, self.job.uuid) if unique else name

    def _make_directories(self, directory: str) -> None:
        if directory in self._made:
            return
        if not self._made:  # a late attempt stops here, before it makes anything
            self._fence.created()
            self._fence.check()
            self._again(self._tree.make_root)
            self._again(lambda: self._store.refuse(f"{self._root}/x"))
        try:
            self._unless_emptied(lambda: make_directories(self._tree, directory))
        except PreconditionFailed as error:
            raise PathError(
                f"attempt {self.attempt!r}: {directory[len(self._root) + 1 :]!r} is a file already",
                hint="A name cannot be a file and a directory",
            ) from error
        self._made.add(directory)

    def _new_file(self, path: str) -> BinaryIO:
        self._fence.created()

        def open_new() -> BinaryIO:
            self._make_directories(parent_of(path))
            try:
                return self._tree.open(path)
            except NotFound:
                self._made.clear()
                raise

        try:
            return self._unless_emptied(open_new)
        except PreconditionFailed as error:
            raise self._has_already(path[len(self._root) + 1 :]) from error

    def _unless_emptied(self, call: Callable[[], T]) -> T:
        """Make a call until nobody removes an empty directory of it meanwhile: another attempt of
        the job may, that is aborted. If the job has ended, its sweep does."""
        for _ in range(TRIES_MAX - 1):
            try:
                return self._again(call)
            except NotFound as error:
                late = self._fence.must_undo()
                if late is not None:
                    raise late from error
        return self._again(call)

    def _take_in(self, name: str, local: Path) -> None:
        """Copy a complete local file to its place."""
        with self._turns.lock:
            self._turns.check_open(awaited=True)
            file = self._tree_file(name)
        with file, local.open("rb") as source:
            shutil.copyfileobj(source, file, COPY_BYTES)
        with suppress(OSError):  # the attempt's end removes the directory
            local.unlink()

    def _again(self, call: Callable[[], T]) -> T:
        """Make a call that may be repeated, until it is answered."""
        for number in range(TRIES_MAX - 1):
            try:
                return call()
            except Unanswered:
                self._runtime.clock.sleep(PAUSE_SECONDS * 2**number)
        return call()

    # Its ends -------------------------------------------------------------------------------------

    def _save_set(self) -> TaskCommit:
        """See `TaskAttempt._save_set`: the manifest."""
        if self._manifest is None:
            self._named = self._gather()
            self._make_last()
            self._manifest = self._encode()
        if not self._named and self.job.terms.accept == "results":
            return TaskCommit(self.job.uuid, self.task, self.attempt)
        self._fence.created()  # what another program has written, too
        self._fence.check()
        self._before_set()
        self._turns.phase = Phase.SENT
        etag, size = self._put(self._manifest), len(self._manifest)
        data_bytes = sum(file.size for file in self._named)
        return self._result(etag, size, len(self._named), data_bytes)

    def was_committed(self, result: TaskCommit) -> None:
        super().was_committed(result)  # first: a commit that was interrupted needs them again
        self._named, self._manifest = (), None

    def _before_set(self) -> None:
        """What is done when everything that the manifest names lasts."""

    def _put(self, manifest: bytes) -> str:
        """Store the manifest, once. Gives its ETag."""
        answer = self._set.put_once(manifest)
        if not isinstance(answer, AtKey):
            return answer.etag
        bucket = self._store.bucket
        ours = names(decode_set(manifest, self._set.key, bucket).commits)
        if answer.found is not Found.SET or names(answer.pendings) != ours:
            raise self._set.other_files()
        return answer.etag

    def _abort(self) -> None:
        failures: list[BaseException] = []
        there, _ = self._set.settle_undo(self.phase, failures, sole=True)
        self._turns.phase = Phase.ABORTED
        for file in self._files.values():
            if file.state is FileState.OPEN:
                file.abort()
        self._remove_local()
        if self._made:
            self._again(lambda: self._store.clear(f"{self._root}/"))
        if failures:
            raise failures[0]
        if there.found is Found.SET:
            self._set.take_back()

    # What is committed ----------------------------------------------------------------------------

    def _gather(self) -> tuple[ManifestFile, ...]:
        """What is to be published: what was opened by name, and what else is in the directory."""
        if self._torn:
            raise self._set.failed(f": {self._torn}: nobody can tell which names it has")
        self._refuse_lost_files(self._files)
        for name in sorted(self._left):
            self._again(partial(self._drop, name))
        opened = {n for n, f in self._files.items() if f.state is FileState.PENDING}
        start = len(self._root) + 1
        there = self._again(lambda: list(self._store.waiting_files(self._root)))
        found = {f.path[start:]: f for f in there if opened or self._given}
        if self._given:
            self._add_found(found, opened)
        else:
            found = {name: file for name, file in found.items() if name in opened}
        if gone := sorted(opened - found.keys()):
            raise self._is_gone(gone[0])
        for file in found.values():
            self._refuse_no_file(file)
        return tuple(
            ManifestFile(name, found[name].size, found[name].etag) for name in sorted(found)
        )

    def _is_gone(self, name: str) -> MagicError:
        return self._fence.must_undo() or TaskFailed(
            f"{self._root}/{name} was a file of the task, and is gone",
            job_id=self.job.id,
            hint="Leave the files that task.open(...) gave in task.directory(); or give one up"
            " with file.abort() before it is closed",
        )

    def _add_found(self, found: dict[str, WaitingFile], opened: set[str]) -> None:
        """Give what a program has left in the directory the names that it is published by. Hidden
        files are not."""
        for name, file in list(found.items()):
            if name in opened:
                continue
            del found[name]
            if is_hidden(name):
                continue
            self._refuse_no_file(file)
            check_file_name(name, uuid=self.job.uuid)
            own = unique_name(name, self.job.uuid) if self._unique else name
            if own != name:
                self._tree.rename(file.path, f"{self._root}/{own}", replace=False)
            found[own] = file

    def _refuse_no_file(self, file: WaitingFile) -> None:
        if not file.regular:
            raise TaskFailed(
                f"{file.path} is no ordinary file, and cannot be published",
                job_id=self.job.id,
                hint="Copy what it leads to; or begin its name with _ or ., which is not published",
            )

    def _make_last(self) -> None:
        """Make files and directories last. (What the manifest's PUT makes last is what the store
        itself has written.)"""
        paths = [f"{self._root}/{file.name}" for file in self._named]
        directories = {""} if paths else set()
        for path in paths:
            add_parents(directories, path)
        try:
            self._again(lambda: self._tree.sync([*paths, *sorted(directories)]))
        except NotFound as error:
            raise self._fence.must_undo() or self._set.failed(
                f": its directory was removed: {error.message}"
            ) from error

    def _encode(self) -> bytes:
        self._stop_clock()
        manifest = TaskManifest(
            self.job.id, self.job.uuid, self.task, self.attempt, self._named,
            statistics=self.statistics.to_dict(),
        )  # fmt: skip
        try:
            return encode_manifest(manifest, self._tree.url, self._root)
        except FormatError as error:
            raise self._set.failed(
                f": {error.message}", "If it is too large: write fewer files in each task"
            ) from error


# The committer ------------------------------------------------------------------------------------


class ManifestCommitter(Committer[TreeAttempt]):
    """One started job in one process, whose tasks' files wait at the destination."""

    name: ClassVar[str] = "manifest"
    attempts: ClassVar[type[TreeAttempt]] = TreeAttempt
    tracks: ClassVar[tuple[Track, ...]] = ("memory",)

    @classmethod
    def destination(cls, dest: str) -> str:
        """See `Committer.destination`: the destinations are file systems."""
        return super().destination(tree_url(dest))


# Algorithms 1 and 2 -------------------------------------------------------------------------------
#
# The classic committers, ``"v1"`` and ``"v2"``: MapReduce's `FileOutputCommitter`, on file trees.
# They are here to be compared with, and for local disks whose users want just this. Where nobody
# asks for them, a destination of files gets ``"manifest"``, which promises more and costs the same.
# Their attempts are manifest's, and so are the job's record, driver, recovery and cleanup:
#
# * **v1**: the driver renames all files to their places, and then decides.
# * **v2**: the commit of a task renames its files to their places, and then stores its manifest.
#   The job's commit finds them there.
#
# What they do not promise:
#
# * **v1 is not decided before its files appear.** A job that dies in its commit leaves some of them
#   visible. To commit again goes on; a recovery or an abort does not, and undoes nothing.
# * **v2 shows the files of tasks whose job fails**, and of attempts that fail in their commit.
# * No ``replace``, and no batch of a streaming query.


MODES: tuple[Mode, ...] = ("append", "fail")


class V1Committer(ManifestCommitter):
    """One started job of algorithm 1 in one process."""

    name: ClassVar[str] = "v1"

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: nothing is replaced, and partitions are not looked at."""
        if mode not in MODES:
            raise OptionError(
                f"committer={cls.name!r} has no mode {mode!r}, only {', '.join(map(repr, MODES))}",
                hint="Use committer='manifest', which has all modes",
            )
        return mode


class V2Attempt(TreeAttempt):
    """An attempt whose commit renames its files to their places. Nothing is taken back."""

    def _before_set(self) -> None:
        """Make the files visible. Repeatable by this handle."""
        if not self._named:
            return
        self._again(partial(revert.mark_begun, self._runtime, self.job))
        with closing(self._runtime.each(self._publish, self._named)) as outcomes:
            for outcome in outcomes:
                outcome.unwrap()

    def _publish(self, file: ManifestFile) -> None:
        path = f"{self._root}/{file.name}"
        parts = [Part(1, file.etag, file.size)]
        try:
            upload_id = waiting_id(path, file.etag)
            self._again(lambda: self._store.complete_upload(file.name, upload_id, parts))
        except NotFound as error:
            if not self._is_there(file):
                raise TaskFailed(
                    f"{path} was a file of the task, and is gone",
                    job_id=self.job.id,
                    hint="Run the task again",
                ) from error

    def _is_there(self, file: ManifestFile) -> bool:
        try:
            return same_etag(self._store.head(file.name).etag, file.etag)
        except NotFound:
            return False


class V2Committer(V1Committer):
    """One started job of algorithm 2 in one process."""

    name: ClassVar[str] = "v2"
    attempts = V2Attempt

    def _say(self) -> None:
        logger.warning(
            "job %s: committer 'v2' makes the files of each task visible when the task commits: if"
            " a task or the job fails, they stay. committer='manifest' shows all or none",
            self.job.id,
        )

"""What a file system, or a call that puts local files, needs of a task; and the tasks of the blocks
``with write(...)`` that are open in this process, which ``magic://`` URLs mean.

A shelf has what one task has written: names, sizes, directories. A directory is there if it was
made, or if a file is below it. Files whose upload was aborted or has failed are not there: the
upload's own state is asked each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakMethod

from magic_committer._runtime import Runtime
from magic_committer.committers.base import TaskAttempt
from magic_committer.errors import OptionError
from magic_committer.filesystem.homes import Home, name_below, roots_of
from magic_committer.hadoop.paths import Destination, shown
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, PendingFile, TaskFile, UploadStream, pending_of

_THERE = frozenset({FileState.OPEN, FileState.CLOSING, FileState.PENDING})


@dataclass(slots=True, eq=False)
class ShelvedFile:
    """A file of the task.

    Attributes:
        name: as the writer calls it, relative to the destination.
        stored_name: with the job's UUID, if the file has a unique name; else the same.
        stream: its upload, or the file that waits on a file system; of a pending upload what is
            left of it.
        begun: when it was opened, in seconds since the epoch.
        kept: the bytes of an upload, after it was closed; None: they were not kept.
    """

    name: str
    stored_name: str
    stream: TaskFile | PendingFile
    begun: float
    kept: bytes | None = None

    def let_go(self) -> None:
        """The file is pending: hold no stream of it any more."""
        if isinstance(self.stream, UploadStream):
            self.stream = pending_of(self.stream)

    @property
    def is_there(self) -> bool:
        """Whether the upload may still be published: it was neither aborted nor has it failed."""
        return self.stream.state in _THERE

    @property
    def is_open(self) -> bool:
        """Whether the file still takes bytes."""
        return self.stream.state is FileState.OPEN


@dataclass(slots=True)
class _Directory:
    made: bool = False
    files: dict[str, ShelvedFile] = field(default_factory=dict)
    directories: dict[str, None] = field(default_factory=dict)


class Shelf:
    """The files and directories of one task, by name. The root is ""."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._directories: dict[str, _Directory] = {"": _Directory(made=True)}

    def add(self, file: ShelvedFile) -> None:
        """Put a file there; one of the same name gives way."""
        with self._lock:
            self._directory(parent_of(file.name)).files[file.name] = file
        if isinstance(file.stream, UploadStream):
            file.stream.when_pending(file.let_go)

    def get(self, name: str, *, gone: bool = False) -> ShelvedFile | None:
        """The file of this name; None if there is none."""
        with self._lock:
            directory = self._directories.get(parent_of(name))
            file = directory.files.get(name) if directory is not None else None
            return file if file is not None and (gone or file.is_there) else None

    def forget(self, file: ShelvedFile) -> None:
        """Take a file away. Its directory goes with its last file, unless it was made."""
        with self._lock:
            directory = self._directories.get(parent_of(file.name))
            if directory is not None and directory.files.get(file.name) is file:
                del directory.files[file.name]
                self._prune(parent_of(file.name))

    def make_directory(self, name: str) -> None:
        """Make a directory, and those above it."""
        with self._lock:
            while name:
                self._directory(name).made = True
                name = parent_of(name)

    def remove_directory(self, name: str) -> None:
        """Take a directory away that was made. It stays as long as a file is below it."""
        with self._lock:
            directory = self._directories.get(name)
            if directory is not None and name:
                directory.made = False
                self._prune(name)

    def is_directory(self, name: str) -> bool:
        """Whether it was made, or a file is below it."""
        with self._lock:
            directory = self._directories.get(name)
            if directory is None:
                return False
            return directory.made or any(True for _ in self._below(name))

    def children(self, name: str) -> tuple[list[ShelvedFile], list[str]]:
        """The files and the directories directly in a directory."""
        with self._lock:
            directory = self._directories.get(name)
            if directory is None:
                return [], []
            files = [file for file in directory.files.values() if file.is_there]
            return files, [one for one in directory.directories if self.is_directory(one)]

    def _below(self, name: str) -> Iterator[ShelvedFile]:
        waiting = [name]
        while waiting:
            directory = self._directories.get(waiting.pop())
            if directory is not None:
                yield from (file for file in directory.files.values() if file.is_there)
                waiting.extend(directory.directories)

    def _directory(self, name: str) -> _Directory:
        directory = self._directories.get(name)
        if directory is None:
            directory = self._directories[name] = _Directory()
            self._directory(parent_of(name)).directories[name] = None
        return directory

    def _prune(self, name: str) -> None:
        """Forget a directory that was not made and holds nothing, and those above it."""
        while name:
            directory = self._directories[name]
            if directory.made or directory.files or directory.directories:
                return
            del self._directories[name]
            above = parent_of(name)
            del self._directories[above].directories[name]
            name = above


def parent_of(name: str) -> str:
    """The directory that a name is in. Pure."""
    return name.rpartition("/")[0]


class Sink:
    """One task, as a place to put files. All file systems of a task share it, and its shelf.

    Args:
        title: what messages call it: ``"job 'x'"``.
        dest: the job's destination.
        runtime_for: the components for a bucket, as the job reaches it.
        attempt: opens, discards and renames the files.
        block_bytes: a file of at most this many bytes is sent as one block.
    """

    def __init__(
        self,
        title: str,
        dest: Destination,
        runtime_for: Callable[[str], Runtime],
        attempt: TaskAttempt,
        block_bytes: int,
    ) -> None:
        self.title = title
        self.runtime_for = runtime_for
        self.runtime = runtime_for(dest.bucket)
        self.home = Home(dest, self.runtime.store)
        self.attempt = attempt
        self.waiting = attempt.waiting  # reads and renames closed files; None: they are uploads
        self.block_bytes = block_bytes
        self.shelf = Shelf()
        for name, file in attempt.streams().items():
            self.note(name, file)

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> ShelvedFile:
        """Open a file, and show it on the shelf. Raises what `Task.open` raises."""
        return self.note(name, self.attempt.open(name, unique=unique, attributes=attributes))

    def note(self, name: str, stream: TaskFile | PendingFile) -> ShelvedFile:
        """Show a file on the shelf that was opened otherwise."""
        stored = stream.name.removeprefix(self.home.url)
        stored = name if stored == name else stored  # one text, for each of very many files
        file = ShelvedFile(name, stored, stream, self.runtime.clock.now())
        self.shelf.add(file)
        return file

    def discard_named(self, name: str, stored_name: str) -> None:
        """`discard`, of a file that may be on the shelf by either name."""
        self.attempt.discard(stored_name)
        for shown_name in (name, stored_name):
            file = self.shelf.get(shown_name, gone=True)
            if file is not None and file.stored_name == stored_name:
                self.shelf.forget(file)

    def discard(self, file: ShelvedFile) -> None:
        """Take a file out of the task. Raises what `Task.discard` raises; then it stays."""
        self.attempt.discard(file.stored_name)
        self.shelf.forget(file)

    def rename(self, file: ShelvedFile, name: str, *, unique: bool) -> None:
        """Give a closed file another name. Raises what `TreeAttempt.rename` raises."""
        assert self.waiting is not None
        stored = self.waiting.rename(file.stored_name, name, unique=unique)
        self.shelf.forget(file)
        file.name, file.stored_name = name, stored
        self.shelf.add(file)


# Open blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _OpenWrite:
    pid: int
    dest: str
    roots: tuple[str, ...]
    sink: WeakMethod[Callable[[], Sink]]


_open: list[_OpenWrite] = []
"""One table for a process: a library's threads do not inherit a context of the caller. Items are
only appended and removed. Both are atomic, so that there is no lock that a fork could leave
locked."""


def enter(dest: str, sink: Callable[[], Sink]) -> Callable[[], None]:
    """Note that a block is open. ``sink``: a method that gives its task, as a place to put files.
    Called when a URL is used. The table does not keep its object: a block that is dropped must end.
    Gives a function to call when it ends. Repeatable."""
    entry = _OpenWrite(os.getpid(), dest, roots_of(dest), WeakMethod(sink))
    _open.append(entry)

    # At the end of the interpreter a finalizer may call it, when this module's names are gone.
    def leave(still_open: list[_OpenWrite] = _open) -> None:
        if entry in still_open:
            still_open.remove(entry)

    return leave


def sink_of(path: str) -> Sink:
    """The one open block whose destination holds a place: the deepest, if several do. Raises
    OptionError: there is none, or there are two of the same destination; or the block's job has no
    files that are written as they come."""
    fitting = [
        (one, sink)
        for one in tuple(_open)
        if one.pid == os.getpid()
        and name_below(one.roots, path) is not None
        and (sink := one.sink()) is not None
    ]
    if not fitting:
        raise OptionError(
            f"{shown(f'magic://{path}')} is below the destination of no"
            " `with magic_committer.write(...)` that is open in this process",
            hint="Use the URL inside the block of the job that writes there; in a task, pass"
            " filesystem=task.filesystem()",
        )
    deepest = max(one.roots[0].count("/") for one, _ in fitting)
    chosen = [(one, sink) for one, sink in fitting if one.roots[0].count("/") == deepest]
    if len(chosen) > 1:
        raise OptionError(
            f"{len(chosen)} open blocks of this process write to {chosen[0][0].dest}: the URL does"
            " not say which is meant",
            hint="Pass filesystem=job.filesystem()",
        )
    return chosen[0][1]()

"""What one task has written: names, sizes, directories. Safe for many threads.

A directory is there if it was made, or if a file is below it. Files whose upload was aborted or has
failed are not there: the upload's own state is asked each time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

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

    def below(self, name: str) -> list[ShelvedFile]:
        """All files in a directory, and in those below it."""
        with self._lock:
            return list(self._below(name))

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

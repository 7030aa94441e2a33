"""What a file system, and whoever puts local files, needs of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from magic_committer._pool import Pool
from magic_committer._runtime import Clock, ProgressFunction
from magic_committer.committers.base import WaitingFiles
from magic_committer.filesystem.homes import Home
from magic_committer.filesystem.shelf import Shelf, ShelvedFile
from magic_committer.stores.base import Attributes, ObjectStore
from magic_committer.upload import PendingFile, TaskFile


class FileOpener(Protocol):
    """Opens a file of a task."""

    def __call__(self, name: str, *, unique: bool, attributes: Attributes) -> TaskFile: ...


@dataclass(frozen=True, eq=False)
class Sink:
    """One task, as a place to put files. All file systems of a task share it.

    Attributes:
        title: what messages call it: ``"job 'x'"``.
        home: the job's destination.
        pool, clock, progress: as in `Runtime`.
        block_bytes: a file of at most so many bytes is sent as one block.
        open_file: opens a file of the task: by name, with a unique name or not.
        discard_file: takes a file out of the task, by the name that it is stored under.
        waiting: reads and renames closed files; None: they are uploads, which nobody can.
        reach: the store of another bucket, as the job reaches its own.
        shelf: what the task has written.
    """

    title: str
    home: Home
    pool: Pool
    clock: Clock
    progress: ProgressFunction
    block_bytes: int
    open_file: FileOpener
    discard_file: Callable[[str], None]
    waiting: WaitingFiles | None
    reach: Callable[[str], ObjectStore]
    shelf: Shelf = field(default_factory=Shelf)

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> ShelvedFile:
        """Open a file, and show it on the shelf. Raises what `Task.open` raises."""
        return self.note(name, self.open_file(name, unique=unique, attributes=attributes))

    def note(self, name: str, stream: TaskFile | PendingFile) -> ShelvedFile:
        """Show a file on the shelf that was opened otherwise."""
        stored = stream.name.removeprefix(self.home.url)
        stored = name if stored == name else stored  # one text, for each of very many files
        file = ShelvedFile(name, stored, stream, self.clock.now())
        self.shelf.add(file)
        return file

    def forget(self, name: str, stored_name: str) -> None:
        """Take a file that was discarded from the shelf."""
        for shown in (name, stored_name):
            file = self.shelf.get(shown, gone=True)
            if file is not None and file.stored_name == stored_name:
                self.shelf.forget(file)

    def discard(self, file: ShelvedFile) -> None:
        """Take a file out of the task. Raises what `Task.discard` raises; then it stays."""
        self.discard_file(file.stored_name)
        self.shelf.forget(file)

    def rename(self, waiting: WaitingFiles, file: ShelvedFile, name: str, *, unique: bool) -> None:
        """Give a closed file another name. Raises what `WaitingFiles.rename` raises."""
        stored = waiting.rename(file.stored_name, name, unique=unique)
        self.shelf.forget(file)
        file.name, file.stored_name = name, stored
        self.shelf.add(file)

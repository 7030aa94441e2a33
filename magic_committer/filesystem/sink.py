"""What a file system, and whoever puts local files, needs of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from magic_committer._runtime import Runtime
from magic_committer.filesystem.shelf import Shelf, ShelvedFile
from magic_committer.hadoop.paths import Destination
from magic_committer.stores.base import Attributes
from magic_committer.upload import UploadStream


class FileOpener(Protocol):
    """Opens a file of a task."""

    def __call__(self, name: str, *, unique: bool, attributes: Attributes) -> UploadStream: ...


@dataclass(frozen=True, eq=False)
class Sink:
    """One task, as a place to put files. All file systems of a task share it.

    Attributes:
        title: what messages call it: ``"job 'x'"``.
        dest: the job's destination.
        runtime: the components.
        block_bytes: a file of at most so many bytes is sent as one block.
        open_file: opens a file of the task: by name, with a unique name or not.
        discard_file: takes a file out of the task, by the name that it is stored under.
        shelf: what the task has written.
    """

    title: str
    dest: Destination
    runtime: Runtime
    block_bytes: int
    open_file: FileOpener
    discard_file: Callable[[str], None]
    shelf: Shelf = field(default_factory=Shelf)

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> ShelvedFile:
        """Open a file, and show it on the shelf. Raises what `Task.open` raises."""
        return self.note(name, self.open_file(name, unique=unique, attributes=attributes))

    def note(self, name: str, stream: UploadStream) -> ShelvedFile:
        """Show a file on the shelf that was opened otherwise."""
        stored = self.dest.relative(stream.key)
        file = ShelvedFile(name, stored, stream, self.runtime.clock.now())
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

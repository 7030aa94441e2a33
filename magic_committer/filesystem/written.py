"""The file that a file system gives: a file of the task. The bytes of an upload are also kept while
it is small.

Invariants:

* An exception that leaves ``with`` gives the file up, as every file of a task does. A library's
  wrapper that closes it instead leaves it to its task.
* It is not closed when it is dropped: whoever drops a file without closing it has lost bytes, and
  the task's commit refuses that (`FileStillOpen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from magic_committer.errors import UploadFailed
from magic_committer.filesystem.kept import KeptBytes
from magic_committer.filesystem.shelf import ShelvedFile
from magic_committer.upload import FileState, TaskFile

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object


class WrittenFile(TaskFile):
    """A file of a task, opened through a file system. It can only be written, from start to end."""

    def __init__(
        self, file: ShelvedFile, kept: KeptBytes, discard: Callable[[ShelvedFile], None]
    ) -> None:
        self._file = file
        assert isinstance(file.stream, TaskFile)  # it was just opened
        self._stream = file.stream
        self._room = kept
        self._discard = discard
        self._held: bytearray | None = bytearray()
        if kept.file_bytes_max == 0:
            self._let_go()

    def __repr__(self) -> str:
        return f"<WrittenFile {self._file.name!r} {self._stream!r}>"

    @property
    def name(self) -> str:
        """The URL of the future file."""
        return self._stream.name

    @property
    def pid(self) -> int:
        """The process that opened it."""
        return self._stream.pid

    @property
    def state(self) -> FileState:
        """The file's state."""
        return self._stream.state

    @property
    def length(self) -> int:
        """How many bytes it has."""
        return self._stream.length

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def check_process(self) -> None:
        """Raise WrongProcess in a forked child; do nothing elsewhere."""
        self._stream.check_process()

    def two_at_once(self) -> UploadFailed:
        """The error of a call that finds another one under way."""
        return self._stream.two_at_once()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def write(self, data: Buffer, /) -> int:
        count = self._stream.write(data)
        if self._held is not None:
            if self._room.take(count, len(self._held)):
                self._held += data if isinstance(data, bytes) else memoryview(data).tobytes()
            else:
                self._let_go()
        return count

    def writelines(self, lines: Iterable[Buffer], /) -> None:
        for line in lines:
            self.write(line)

    def _let_go(self) -> None:
        """Keep nothing of this file; from now on a write goes to the task's file itself."""
        held, self._held = self._held, None
        self._room.give_back(len(held or b""))
        self.write = self._stream.write  # type: ignore[method-assign]

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        if self._held is not None:
            self._file.kept, self._held = bytes(self._held), None

    def abort(self) -> None:
        """Give the file up: nothing of it is published."""
        if self._held is not None:
            self._let_go()
        self._stream.abort()

    def commit(self) -> None:
        """Of a transaction of fsspec: nothing is to be done, since the job publishes."""

    def discard(self) -> None:
        """Of a transaction of fsspec that has failed: take the file out of its task."""
        self._discard(self._file)

    def __del__(self) -> None:
        # Instead of io.IOBase's method, which closes, and so would hand in half a file.
        pass

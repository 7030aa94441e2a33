"""The file that a file system gives: a file of the task. The bytes of an upload are also kept while
it is small.

Invariants:

* An exception that leaves ``with`` gives the file up, as every file of a task does. A library's
  wrapper that closes it instead leaves it to its task.
* It is not closed when it is dropped: whoever drops a file without closing it has lost bytes, and
  the task's commit refuses that (`FileStillOpen`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from magic_committer.errors import OptionError, UploadFailed, WrongType
from magic_committer.filesystem.sink import ShelvedFile
from magic_committer.options import MiB
from magic_committer.upload import FileState, TaskFile
from magic_committer.upload.file import Buffer

KEEP_BYTES_MAX = 64 * MiB
"""Bytes of its closed files that a file system keeps for reading, unless it is told otherwise."""
SHARE_OF_A_FILE = 8
"""A file is kept if it takes no more than this part of all: one file does not crowd out many."""


class KeptBytes:
    """How many bytes may still be kept. Safe for many threads.

    Attributes:
        file_bytes_max: for one file.
    """

    def __init__(self, bytes_max: int) -> None:
        if isinstance(bytes_max, bool) or not isinstance(bytes_max, int):
            raise WrongType(
                f"keep_bytes_max is a number of bytes, not {bytes_max!r:.80}",
                hint=f"Pass keep_bytes_max={KEEP_BYTES_MAX}, or 0 to keep nothing",
            )
        if bytes_max < 0:
            raise OptionError(f"keep_bytes_max={bytes_max}: there are 0 bytes or more")
        self.bytes_max = bytes_max
        self.file_bytes_max = bytes_max // SHARE_OF_A_FILE
        self._free = bytes_max
        self._lock = threading.Lock()

    def take(self, count: int, before: int) -> bool:
        """Take room for so many bytes more of a file that has ``before``. False: there is none."""
        with self._lock:
            if before + count > self.file_bytes_max or count > self._free:
                return False
            self._free -= count
            return True

    def give_back(self, count: int) -> None:
        """Give back room: a file was removed, or is not kept after all."""
        with self._lock:
            self._free += count


class WrittenFile(TaskFile):
    """A file of a task, opened through a file system. It can only be written, from start to end."""

    def __init__(
        self, file: ShelvedFile, kept: KeptBytes, discard: Callable[[ShelvedFile], None]
    ) -> None:
        self._file = file
        assert isinstance(file.stream, TaskFile)  # it was just opened
        self._stream = stream = file.stream
        self.pid = stream.pid
        self._room = kept
        self._discard = discard
        self._held: bytearray | None = bytearray()
        if kept.file_bytes_max == 0:
            self._let_go()

    def __repr__(self) -> str:
        return f"<WrittenFile {self._file.name!r} {self._stream!r}>"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._stream.name

    @property
    def state(self) -> FileState:
        return self._stream.state

    @property
    def length(self) -> int:
        return self._stream.length

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def two_at_once(self) -> UploadFailed:
        return self._stream.two_at_once()

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

"""`LocalFile`: a file of an attempt on local disk, for programs that seek, or that want a path.

It is written in a directory of its own, so what a program puts beside it (a journal, a temporary
file) is no file of the attempt. When it is closed it is complete, and ``on_close`` takes it over.

The states are those of every file of an attempt (`file`). A dropped file is given up: its finalizer
changes the state only, and the disk is tidied when the attempt ends.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from magic_committer._hints import of_disk
from magic_committer._patience import cleaning_up
from magic_committer.errors import UploadFailed
from magic_committer.upload.file import Buffer, FileState, PlainFile, nothing
from magic_committer.upload.local import LocalDirectory, refuse_full


class LocalFile(PlainFile):
    """A local file that becomes a file of its attempt when it is closed. It can be read, written
    and cut in any order, and by its path: it is an `os.PathLike`.

    One thread at a time may use it.
    """

    def __init__(
        self,
        directory: LocalDirectory,
        relative: str,
        name: str,
        *,
        bytes_max: int | None,
        on_close: Callable[[Path], None],
        on_abort: Callable[[], None] = nothing,
    ) -> None:
        """``relative``: its name below the destination; ``name``: its URL. ``on_close`` accepts the
        complete local file: if it raises, the file has failed. ``on_abort`` gives up what belongs
        to the file elsewhere. Raises UploadFailed: the local file cannot be made."""
        super().__init__(name)
        self._directory = directory
        self._bytes_max = bytes_max
        self._on_close = on_close
        self._on_abort = on_abort
        self._length = 0
        self._state = FileState.FAILED  # until the local file is there
        try:
            self.path = directory.place_for(relative)
            self._file = io.FileIO(self.path, "x+")  # unbuffered: a forked child flushes nothing
        except OSError as error:
            told = f"{name} cannot be written to local disk: {error}"
            raise UploadFailed(told, hint=of_disk(error)) from error
        self._state = FileState.OPEN

    def __repr__(self) -> str:
        return f"<LocalFile {self.name} {self.state} in {self.path}>"

    def __fspath__(self) -> str:
        """The local path, as long as the file is open."""
        return str(self.path)

    def _check_open(self) -> io.FileIO:
        self.check_process()
        if self._state is not FileState.OPEN:
            raise ValueError(f"I/O operation on closed file {self.name}")
        return self._file

    @property
    def length(self) -> int:
        """How many bytes it has now, or had when it was closed."""
        if self._state is FileState.OPEN and self.pid == os.getpid():
            self._length = os.fstat(self._file.fileno()).st_size
        return self._length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor of the local file."""
        return self._check_open().fileno()

    def read(self, size: int | None = -1, /) -> bytes:
        return self._check_open().read(-1 if size is None else size) or b""

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        return self._check_open().readinto(buffer) or 0

    def readinto1(self, buffer: Buffer, /) -> int:
        return self.readinto(buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._check_open().readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place in the file. Repeatable with ``os.SEEK_SET`` and ``os.SEEK_END``; with
        ``os.SEEK_CUR`` each call goes further.

        Args:
            offset: bytes; may lie behind the end: what is between is zeros once something follows.
            whence: ``os.SEEK_SET`` (default): from the start; ``os.SEEK_CUR``: from here;
                ``os.SEEK_END``: from the end.

        Returns:
            The new place, in bytes from the start.

        Raises:
            ValueError: the file is closed. WrongProcess: this is a forked child.
            OSError: the place lies before the start.
        """
        return self._check_open().seek(offset, whence)

    def tell(self) -> int:
        return self._check_open().tell()

    def truncate(self, size: int | None = None, /) -> int:
        return self._check_open().truncate(size)

    def flush(self) -> None:
        self._check_open().flush()

    def write(self, data: Buffer, /) -> int:
        """Write bytes at the present place.

        Raises:
            UploadFailed: the disk is full, or the attempt's quota is used up. The file has failed.
            ValueError: the file is closed.
        """
        file, written = self._check_open(), 0
        try:
            view = memoryview(data).cast("B")
            while written < len(view):
                written += file.write(view[written:])
            if self._bytes_max is not None:
                refuse_full(file.tell(), self._bytes_max, self.name)
        except UploadFailed as error:
            raise self._fail(error)  # noqa: B904 (it is the same error)
        except OSError as error:
            told = f"{self.name} could not be kept on local disk: {error}"
            raise self._fail(UploadFailed(told, hint=of_disk(error))) from error
        return written

    def close(self) -> None:
        """Close the local file and hand it over. Does nothing if the file is closed already.

        Raises:
            UploadFailed: the local file is gone or too large, or the disk is full; again at each
                close of a failed file.
            WrongProcess: this is a forked child of the process that opened the file.

            What ``on_close`` raises.
        """
        self.check_process()
        if self._failure is not None:
            raise self._failure
        if self._state is not FileState.OPEN:
            return
        try:
            try:
                self._length = self.length
                self._state = FileState.CLOSING
                self._file.close()
            except OSError as error:
                told = f"{self.name} could not be kept on local disk: {error}"
                raise UploadFailed(told) from error
            refuse_full(self._directory.bytes_used(), self._bytes_max, self.name)
            self._on_close(self.path)
        except BaseException as error:
            self._fail(error)
            raise
        self._state = FileState.PENDING

    def abort(self) -> None:
        """Give the file up. Repeatable; does nothing after a successful `close`."""
        self.check_process()
        if self._state is FileState.PENDING:
            return
        if self._state is not FileState.FAILED:
            self._state = FileState.ABORTED
        self._drop()
        self._on_abort()

    def take_out(self) -> None:
        """Give the file up, also a closed one."""
        self._state = FileState.ABORTED
        self._drop()

    def _fail(self, error: BaseException) -> BaseException:
        self._state = FileState.FAILED
        interrupted = UploadFailed(f"writing {self.name} was interrupted: {error!r}")
        self._failure = error if isinstance(error, Exception) else interrupted
        self._drop()
        try:
            with cleaning_up(error):
                self._on_abort()
        except Exception as failed:
            error.add_note(f"{self.name} could not be given up: {failed}")
        return error

    def _drop(self) -> None:
        with suppress(OSError):  # it is given up, whatever its disk says
            self._file.close()
        with suppress(OSError):  # goes with the attempt's directory
            self.path.unlink()

"""`TreeFile`: a file of an attempt that is written where it waits for its job.

Its bytes are in the attempt's directory, where no reader looks. It has a small buffer of its own,
which a forked child does not write: the raw file below has none (`FileTree.open`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from magic_committer.errors import MagicError, StoreError, UploadFailed
from magic_committer.file_trees.os_errors import telling
from magic_committer.upload import FileState, PlainFile

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

BUFFER_BYTES = 256 * 1024
"""Bytes that are collected before they are written."""


class TreeFile(PlainFile):
    """A file for writing, from its start to its end. One thread at a time may use it. The raw
    ``file`` is not buffered. ``drop`` removes what was written; it is not called again after it has
    returned: the name may be that of another file then. ``may_close`` raises if the attempt takes
    no more files."""

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
        with suppress(MagicError):  # the first error says more; the file goes with its attempt
            self._give_up()
        return error

    def _end(self) -> None:
        with suppress(OSError, ValueError):  # it is given up, whatever its disk says
            self._file.close()
        self._buffer = bytearray()


def _told(name: str, error: StoreError) -> UploadFailed:
    return UploadFailed(f"{name} could not be written: {error.message}", hint=error.advice)

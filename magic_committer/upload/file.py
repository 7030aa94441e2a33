"""`TaskFile`: what every file of an attempt is, whatever its committer makes of it.

Invariants:

* A file ends in exactly one of three ways (`FileState`): it is closed and belongs to its attempt,
  it failed, or it was given up. Python calls ``close()`` on a file that is dropped, and when an
  exception leaves ``with``; a file of an attempt is given up then.
* A file belongs to the process that opened it. In a forked child every call raises.
"""

from __future__ import annotations

import io
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self

from msgspec import Struct

from magic_committer.errors import UploadFailed, WrongProcess
from magic_committer.runtime.threads import cleaning_up

if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer  # Python has it from 3.12 on
else:
    Buffer = object


def nothing(*_: object) -> None:
    """Stands for a call that has nothing to do."""


class FileState(StrEnum):
    """The state of a file that is being written."""

    OPEN = "open"
    CLOSING = "closing"
    PENDING = "pending"
    FAILED = "failed"
    ABORTED = "aborted"


class PendingFile(Struct, frozen=True, gc=False):
    """What is left of a file that was closed, when nobody writes it any more: as long as its job
    lasts, some 50 bytes instead of the 5 KiB of its stream. ``root``: the URL of the bucket, with a
    ``/`` at its end."""

    root: str
    key: str
    length: int

    @property
    def name(self) -> str:
        return self.root + self.key

    @property
    def state(self) -> FileState:
        return FileState.PENDING


def only_forwards(*_: object) -> NoReturn:
    """Refuse a call that only a file on disk has. Libraries show the text to their users."""
    raise io.UnsupportedOperation(
        "a file of open(name) is written from its start to its end: it cannot seek or be read. Use"
        " `with job.local_file(name) as file`, in a task or in `with magic_committer.write(...)`"
    )


def in_another_process(name: str, pid: int) -> WrongProcess:
    """The error of a call on a file in a forked child."""
    return WrongProcess(
        f"{name} was opened by process {pid}, this is process {os.getpid()}: it can be written,"
        " closed and aborted there only"
    )


class TaskFile(io.BufferedIOBase, BinaryIO):
    """A binary file of an attempt, opened for writing. Close it, or leave its ``with`` block
    normally: then it belongs to the attempt. If an exception leaves the block, it is given up.

    Attributes:
        pid: the process that opened it.
        name: the URL of the future file.
    """

    mode = "wb"
    pid: int = 0
    name: str = ""

    @property
    @abstractmethod
    def state(self) -> FileState:
        """The file's state. In a forked child: the state at the fork."""

    @property
    @abstractmethod
    def length(self) -> int:
        """How many bytes it has; also of a file that is closed."""

    @abstractmethod
    def abort(self) -> None:
        """Give the file up: nothing of it becomes visible. Repeatable; does nothing after a
        successful ``close``."""

    def check_process(self) -> None:
        """Raise WrongProcess in a forked child; do nothing elsewhere."""
        if self.pid != os.getpid():
            raise in_another_process(self.name, self.pid)

    def writable(self) -> bool:
        return True

    def writelines(self, lines: Iterable[Buffer], /) -> None:
        """`write` each item."""
        for line in lines:
            self.write(line)

    def two_at_once(self) -> UploadFailed:
        """The error of a call that finds another one under way."""
        return UploadFailed(
            f"{self.name} is written by two threads at once, or by a signal handler and what it has"
            " interrupted: it is not published",
            hint="Give each thread a file of its own, or hold a lock of yours around each write",
        )

    if not TYPE_CHECKING:
        seek = truncate = fileno = read = only_forwards

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file does not travel between processes")

    def __enter__(self) -> Self:
        self.check_process()
        super().__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            with cleaning_up(error):
                self.abort()
        except Exception as failed:
            if error is not None:
                error.add_note(f"the upload of {self.name} could not be aborted: {failed}")


class PlainFile(TaskFile):
    """A file that keeps its state itself. One thread at a time may use it. A dropped one is given
    up: the finalizer changes the state only; what is on a disk goes with the attempt."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.name = name
        self._failure: Exception | None = None
        self._state = FileState.OPEN

    @property
    def state(self) -> FileState:
        return self._state

    @property
    def closed(self) -> bool:
        """Whether the file takes no more bytes. In a forked child always True."""
        return self.pid != os.getpid() or self._state is not FileState.OPEN

    def _is_open(self) -> bool:
        """Whether it takes bytes, and can be closed. A failed file raises its error again."""
        self.check_process()
        if self._failure is not None:
            raise self._failure
        return self._state is FileState.OPEN

    def _failed(
        self, error: BaseException, doing: str = "writing", kept: type[Exception] = Exception
    ) -> None:
        """Note that the file has failed: with ``error``, if it is one of the ``kept``."""
        self._state = FileState.FAILED
        interrupted = UploadFailed(f"{doing} {self.name} was interrupted: {error!r}")
        self._failure = error if isinstance(error, kept) else interrupted

    def abort(self) -> None:
        """Give the file up, with what was written. Repeatable; does nothing after a successful
        `close`."""
        self.check_process()
        if self._state is FileState.PENDING:
            return
        if self._state is not FileState.FAILED:
            self._state = FileState.ABORTED
        self._give_up()

    def _give_up(self) -> None:
        """Remove what was written. Repeatable."""

    def renamed(self, name: str) -> None:
        """Take another name: the attempt has moved the closed file."""
        self.name = name

    def __del__(self) -> None:
        # io.IOBase would call close(), which makes it a file of the attempt.
        if self.__dict__.get("_state") is FileState.OPEN and self.pid == os.getpid():
            self._state = FileState.ABORTED
            warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, 2, self)

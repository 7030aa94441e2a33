"""`TaskFile`: what every file of an attempt is, whatever its committer makes of it.

Invariants:

* A file ends in exactly one of three ways (`FileState`): it is closed and belongs to its attempt,
  it failed, or it was given up. Python calls ``close()`` on a file that is dropped, and when an
  exception leaves ``with``; a file of an attempt is given up then.
* A file belongs to the process that opened it. In a forked child every call raises.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self

from msgspec import Struct

from magic_committer.errors import UploadFailed, WrongProcess, WrongType
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
        take_back: called with the closed file, removes it from its attempt again.
    """

    mode = "wb"
    pid: int = 0
    name: str = ""
    take_back: Callable[[TaskFile], object] = staticmethod(nothing)

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

    def ends_well(self) -> None:
        """Hear that its ``with`` block has ended normally, before it is closed."""

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
                if self.state is FileState.PENDING:  # a wrapper has closed it
                    self.take_back(self)
        except Exception as failed:
            if error is not None:
                error.add_note(f"the upload of {self.name} could not be aborted: {failed}")


class PlainFile(TaskFile):
    """A file that keeps its state itself. One thread at a time may use it. A dropped one is given
    up: the finalizer changes the state only; the attempt's end removes what is on a disk."""

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
        """Whether the file accepts no more bytes. In a forked child always True."""
        return self.pid != os.getpid() or self._state is not FileState.OPEN

    def _is_open(self) -> bool:
        """Whether it accepts bytes, and can be closed. A failed file raises its error again."""
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


class TextUpload(io.TextIOWrapper):
    """Text that is written into a file of an attempt; UTF-8 by default.

    An exception that leaves ``with``, garbage collection and interpreter exit abort here too. A
    plain ``TextIOWrapper`` would close its file, and so publish it.
    """

    def __init__(
        self,
        stream: TaskFile,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> None:
        super().__init__(stream, encoding=encoding or "utf-8", errors=errors, newline=newline)
        self._stream = stream
        self._inside = False
        # A TextIOWrapper leaves it out where it cannot seek.
        self._mark = "\ufeff" if codecs.lookup(self.encoding).name in ("utf-16", "utf-32") else ""

    def __repr__(self) -> str:
        return f"<TextUpload {self.encoding} {self._stream!r}>"

    # A TextIOWrapper keeps text to itself for a while. Without these methods a forked child would
    # get the error late (`write`), or never (`close`: its file counts as closed there).

    def write(self, text: str, /) -> int:
        """Write text, as to every text file. Raises what `UploadStream.write` would, also if two
        threads write at once; WrongType for bytes."""
        if self._stream.pid != os.getpid():
            self._stream.check_process()
        if not isinstance(text, str):
            raise WrongType(
                f"{self._stream.name} is a file of text, and accepts no {_kind(text)}",
                hint="Open it with mode 'wb' for bytes; or write text.decode()"
                if isinstance(text, bytes | bytearray)
                else "Write str(...) of it; or open the file with mode 'wb' for bytes",
            )
        # It would lose what comes while it hands on what it keeps (until 3.12.4). There is no call
        # between the look and the sign.
        if self._inside:
            raise self._stream.two_at_once()
        self._inside = True
        try:
            if self._mark and text:
                mark, self._mark = self._mark, ""
                super().write(mark)
            return super().write(text)
        finally:
            self._inside = False

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override]
        """`write` each item."""
        self._stream.check_process()
        super().writelines(lines)

    def flush(self) -> None:
        """Hand all text to the upload's blocks. Raises what `UploadStream.write` would raise."""
        self._stream.check_process()
        super().flush()

    if not TYPE_CHECKING:
        seek = truncate = read = only_forwards

    def close(self) -> None:
        """As `UploadStream.close`."""
        self._stream.check_process()
        super().close()

    def abort(self) -> None:
        """As `UploadStream.abort`."""
        self._stream.abort()

    def __enter__(self) -> TextUpload:
        self._stream.check_process()
        return super().__enter__()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if kind is None:
            self._stream.ends_well()
            self.close()
        else:
            self._stream.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        # Instead of io.IOBase's method, which closes. The stream's own finalizer aborts.
        pass


def flat(data: Buffer, name: str) -> memoryview:
    """The bytes of any buffer as one row. Copies only if they are not in C order."""
    try:
        view = memoryview(data)
    except TypeError:
        raise WrongType(
            f"{name} is a file of bytes, and accepts no {_kind(data)}",
            hint="Open it with mode 'w' for text; or write text.encode()"
            if isinstance(data, str)
            else "Write bytes, or what has a buffer: bytearray, memoryview, array, numpy, pyarrow",
        ) from None
    except (ValueError, BufferError) as error:
        if isinstance(data, memoryview):  # it was released
            raise
        raise WrongType(
            f"{name} accepts no {_kind(data)} of this type: {error}", hint="Write data.tobytes()"
        ) from None
    if "O" in view.format and "O" in re.sub(":[^:]*:", "", view.format):  # without fields' names
        raise WrongType(
            f"{name} accepts no {_kind(data)} of Python objects: its bytes are their addresses",
            hint="Write text or bytes that you make of them; or pickle.dump(data, file)",
        )
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    # Of the same buffer, and not a view of a view: before 3.12.7 the collector crashes where it
    # meets a memoryview from which another buffer is exported (CPython, gh-77894).
    return view.cast("B")


def _kind(data: object) -> str:
    """The type of what was to be written. Its content is not shown: logs may not hold it."""
    if isinstance(data, str | bytes | bytearray):
        return f"{type(data).__name__} of length {len(data):,}"
    return type(data).__name__

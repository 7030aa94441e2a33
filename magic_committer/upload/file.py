"""`TaskFile`: what every file of an attempt is, whatever its committer makes of it.

Invariants:

* A file ends in exactly one of three ways (`FileState`): it is closed and belongs to its attempt,
  it failed, or it was given up. Python calls ``close()`` on a file that is dropped, and when an
  exception leaves ``with``; a file of an attempt is given up then.
* A file belongs to the process that opened it. In a forked child every call raises.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import BinaryIO, NoReturn, Self

from magic_committer._patience import cleaning_up


class FileState(StrEnum):
    """The state of a file that is being written."""

    OPEN = "open"
    CLOSING = "closing"
    PENDING = "pending"
    FAILED = "failed"
    ABORTED = "aborted"


class TaskFile(io.BufferedIOBase, BinaryIO):
    """A binary file of an attempt, opened for writing. Close it, or leave its ``with`` block
    normally: then it belongs to the attempt. If an exception leaves the block, it is given up."""

    mode = "wb"

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process that opened it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The URL of the future file."""

    @property
    @abstractmethod
    def state(self) -> FileState:
        """The file's state. In a forked child: the state at the fork."""

    @abstractmethod
    def abort(self) -> None:
        """Give the file up: nothing of it becomes visible. Repeatable; does nothing after a
        successful ``close``."""

    @abstractmethod
    def check_process(self) -> None:
        """Raise WrongProcess in a forked child; do nothing elsewhere."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file does not travel between processes")

    def __enter__(self) -> Self:
        self.check_process()
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            with cleaning_up(error):
                self.abort()
        except Exception as failed:
            if error is not None:
                error.add_note(f"the upload of {self.name} could not be aborted: {failed}")

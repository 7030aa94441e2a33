"""The small files of an attempt that were closed and are still being sent, beside the caller.

A file that ends within its first block needs two requests, Create and its part. Waiting for them at
each `close` would make a task of 1,000 such files wait for 2,000 answers, one after the other.

Only for ``track="memory"``: there nobody but this handle can commit the attempt, and its commit
waits for all files (`settle`). A closed file of any other attempt may be committed by a process
that only knows the attempt's name: its `close` returns when its `.pending` is stored.

Invariants:

* A commit begins by waiting for every file that is here, and no file comes here while it runs
  (`turns`). So what it stores holds every file that was closed.
* A file that failed is told once: by the next `open` or by the commit, whichever comes first.
* At most `FILES_MAX` files are here, with at most half of the process's memory for blocks; `close`
  waits for the oldest otherwise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from magic_committer._pool import THREADS_MAX
from magic_committer.committers.magic.turns import Turns
from magic_committer.upload import FileState, UploadStream

FILES_MAX = THREADS_MAX
"""Files of one attempt that are sent at once. More than there are threads would only wait."""


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    stream: UploadStream
    held: int
    """Bytes of its block."""


class Closings:
    """What one attempt has closed and not yet stored. Safe for the threads that close its files.

    Args:
        turns: the attempt's turns.
        bytes_max: bytes of memory that the blocks of these files may hold.
    """

    def __init__(self, turns: Turns, bytes_max: int) -> None:
        self._turns = turns
        self._bytes_max = bytes_max
        self._under_way: deque[_UnderWay] = deque()
        self._failed: deque[UploadStream] = deque()

    def enter(self, stream: UploadStream) -> None:
        """Wait for room, and note a file that is about to be sent.

        Raises:
            TaskFailed: the attempt takes no more files.
        """
        held = stream.bytes_held
        while self._under_way and not self._has_room(held):
            self._wait_for_oldest()
        with self._turns.lock:
            self._turns.check_open()
            self._under_way.append(_UnderWay(stream, held))

    def settle(self) -> None:
        """Wait for all files."""
        while self._under_way:
            self._wait_for_oldest()

    def tell_failure(self) -> None:
        """Raise the error of a file that has failed, if no call has raised it before. A note names
        the file."""
        for entry in list(self._under_way):
            if entry.stream.has_ended:
                self._forget(entry)
        while self._failed:
            stream = self._failed.popleft()
            try:
                stream.tell_failure()
            except Exception as error:
                error.add_note(f"it ended {stream.name}, which was closed before")
                raise

    def _has_room(self, held: int) -> bool:
        used = sum(entry.held for entry in list(self._under_way))
        return len(self._under_way) < FILES_MAX and used + held <= self._bytes_max

    def _wait_for_oldest(self) -> None:
        """Wait for one file, and forget it when it has ended. If the wait is interrupted, it stays
        here."""
        try:
            oldest = self._under_way[0]
        except IndexError:  # another thread has waited for the last one
            return
        oldest.stream.wait()
        self._forget(oldest)

    def _forget(self, entry: _UnderWay) -> None:
        with self._turns.lock:
            if entry not in self._under_way:  # another thread was faster
                return
            self._under_way.remove(entry)
            if entry.stream.state is FileState.FAILED:
                self._failed.append(entry.stream)

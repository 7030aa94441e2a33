"""Bytes of small files that are kept after they were sent, so that their writer can read them."""

from __future__ import annotations

import threading

from magic_committer.errors import OptionError, WrongType
from magic_committer.options import MiB

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

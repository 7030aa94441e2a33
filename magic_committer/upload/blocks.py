"""Where the bytes of a part wait to be sent: in memory as long as the budget allows, otherwise on
disk.

Invariants:

* All streams of a process share one `BlockSource`. Its blocks never hold more memory than the
  ``buffer_bytes_max`` of the stream that asks. Nobody waits for memory: a block that may not grow
  moves to disk, so a thread with many open files never waits for itself.
* A block takes memory as it fills (a small file does not allocate 8 MiB). It gives all of it back
  in `Block.release`. Its finalizer calls this too, so that nothing is lost with a dropped stream.
  While it grows, it holds at most 1.5 times its size.
* A large block has memory pages of its own. In the heap, allocations of the program between blocks
  would make holes that no block fits into, and the process would grow beyond what the blocks hold.
* The accounting lock is held for a few additions, never over I/O. Giving back takes no lock,
  because finalizers may run at any moment, even under that lock.
* A file on disk has no name if the system allows it (Linux): it disappears with the process, even
  after a kill. Elsewhere `release` removes it.
* A forked child counts from zero and never removes a file of its parent.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import tempfile
import threading
from collections import deque
from typing import cast

from magic_committer.options import MiB, Options
from magic_committer.stores.base import FileSlice, PartBody

MEMORY_BLOCK_BYTES_MAX = 64 * MiB
"""Blocks of parts above this size are always on disk."""

FIRST_BYTES = 64 * 1024
"""Memory for a file's first block at its first write. It doubles from there. Later blocks are
allocated whole."""

PAGES_BYTES_MIN = 1 * MiB
"""Memory of this size and more has pages of its own; below, the heap is cheaper."""


class BlockSource:
    """The process's memory for blocks. Safe for many threads. Make one for each process."""

    def __init__(self) -> None:
        self._begin()

    def __repr__(self) -> str:
        return f"<BlockSource {self.bytes_in_use} bytes in use>"

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._in_use = 0
        self._given_back: deque[int] = deque()

    @property
    def bytes_in_use(self) -> int:
        """Memory that blocks hold now."""
        with self._lock:
            return self._settled()

    def block(self, size: int, options: Options, *, first: bool = False) -> Block:
        """An empty block for ``size`` bytes. ``first``: the first one of its file, which may be
        small."""
        return Block(self, size, options, start=min(size, FIRST_BYTES) if first else size)

    def reserve(self, count: int, bytes_max: int) -> bool:
        """Take ``count`` bytes of the budget, if all blocks then hold at most ``bytes_max``."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._settled() + count > bytes_max:
                return False
            self._in_use += count
            return True

    def _settled(self) -> int:
        while self._given_back:
            self._in_use -= self._given_back.popleft()
        return self._in_use

    def give_back(self, count: int, pid: int) -> None:
        """Return what a block of process ``pid`` took. Takes no lock."""
        if pid == self._pid:
            self._given_back.append(count)


class Block:
    """The bytes of one future part. One thread at a time uses it: first its filler, then its
    sender."""

    def __init__(self, source: BlockSource, size: int, options: Options, *, start: int) -> None:
        self.size = size
        self.length = 0
        self._source = source
        self._pid = os.getpid()
        self._start = start
        self._bytes_max = options.buffer_bytes_max
        self._directory = options.buffer_dir
        self._reserved = 0
        self._memory: memoryview | None = None
        self._file: _BlockFile | None = None
        if options.buffer == "disk" or size > MEMORY_BLOCK_BYTES_MAX:
            self._file = _BlockFile(self._directory)

    def __repr__(self) -> str:
        return f"<Block {self.length} of {self.size} bytes {'on disk' if self.on_disk else ''}>"

    @property
    def on_disk(self) -> bool:
        """Whether its bytes are in a file."""
        return self._file is not None

    def append(self, data: memoryview) -> None:
        """Copy ``data``, contiguous bytes, to the end. The caller makes sure that they fit.

        Raises:
            OSError: the disk is full or broken.
        """
        if self._file is None and not self._fits(self.length + len(data)):
            self._move_to_disk()
        if self._file is not None:
            self._file.append(data)
        else:
            memory = cast("memoryview", self._memory)
            memory[self.length : self.length + len(data)] = data
        self.length += len(data)

    def body(self) -> PartBody:
        """The body for the store; valid until `release`."""
        if self._file is not None:
            return FileSlice(self._file.path, 0, self.length)
        if self._memory is None:
            return memoryview(b"")
        return self._memory[: self.length].toreadonly()

    def release(self) -> None:
        """Give memory, budget and disk back. Repeatable, also from a finalizer."""
        self._memory = None
        reserved, self._reserved = self._reserved, 0
        if reserved:
            self._source.give_back(reserved, self._pid)
        file, self._file = self._file, None
        if file is not None:
            file.remove()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.release()

    def _fits(self, needed: int) -> bool:
        """Make room in memory for ``needed`` bytes, if the budget allows it."""
        held = self._reserved
        if needed <= held:
            return True
        grown = max(needed, 2 * held, self._start)
        if 2 * grown > self.size:
            grown = self.size
        if not self._source.reserve(grown - held, self._bytes_max):
            return False
        self._reserved = grown
        memory = _memory(grown)
        if self._memory is not None:
            memory[: self.length] = self._memory[: self.length]
        self._memory = memory
        return True

    def _move_to_disk(self) -> None:
        file = _BlockFile(self._directory)
        if self._memory is not None:
            file.append(self._memory[: self.length])
        self.release()
        self._file = file


def _memory(size: int) -> memoryview:
    """Zeroed memory, which is freed with its last view."""
    if size < PAGES_BYTES_MIN:
        return memoryview(bytearray(size))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: hundreds of page faults fewer for each block
        with contextlib.suppress(OSError):  # a kernel built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)


class _BlockFile:
    """A temporary file that can be opened again by its path.

    Unbuffered: a forked child has nothing of it to flush into its parent's file.
    """

    def __init__(self, directory: str | None) -> None:
        self._pid = os.getpid()
        self._named = False
        self._file: io.FileIO = tempfile.TemporaryFile(  # noqa: SIM115 (`remove` closes it)
            buffering=0, dir=directory, prefix="mc-block-"
        )
        self.path = f"/proc/self/fd/{self._file.fileno()}"
        if not os.path.exists(self.path):  # no path leads to it: give it a name
            self._file.close()
            descriptor, self.path = tempfile.mkstemp(dir=directory, prefix="mc-block-")
            self._file = io.FileIO(descriptor, "r+")
            self._named = True

    def append(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def remove(self) -> None:
        self._file.close()
        if self._named and self._pid == os.getpid():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

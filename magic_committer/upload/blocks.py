"""Where the bytes of a part wait to be sent: in memory as long as the budget allows, otherwise on
disk.

Invariants:

* All streams of a process share one `BlockSource`. Its blocks never hold more memory than the
  ``buffer_bytes_max`` of the stream that asks. Nobody waits for memory: a block that may not grow
  moves to disk, so a thread with many open files never waits for itself.
* A block gets memory as it fills (a small file does not allocate 8 MiB). It gives all of it back
  in `Block.release`. Its finalizer calls this too, so that nothing is lost with a dropped stream.
  While it grows, it holds at most 1.5 times its size.
* A large block has memory pages of its own. In the heap, allocations of the program between blocks
  would make holes that no block fits into, and the process would grow beyond what the blocks hold.
* Pages are used again while files are open: fresh ones cost a fault and zeroes for each (a fifth of
  a stream's CPU). Blocks and kept pages together are at most ``parts_in_flight + 1`` blocks for
  each open file, and stay within ``buffer_bytes_max``. When no file is open, none is kept.
* Pages are used again only if nobody can read them any more: a request that was broken off may be
  sending from them still. The system's own count of views says so (`_is_idle`).
* All bytes are copied, into used pages. To hold large `bytes` by reference was tried, and costs
  more: the program's allocator then has to find fresh pages for each new piece.
* A fast checksum goes on while the bytes are in the processor's cache, `SUM_BYTES` at a time: of a
  full block, which is not, it takes three times as long. A slow one is left to the sender.
* The accounting lock is held for a few additions, never over I/O. Giving back acquires none,
  because finalizers may run at any moment, even under that lock. The lists of pages and of open
  files are changed by single steps of lists only (append, pop, remove).
* A file on disk has no name if the system allows it (Linux): it disappears with the process, even
  after a kill. Elsewhere `release` removes it.
* A forked child counts from zero (`renewed_in_children`) and never removes a file of its parent.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from magic_committer.options import MiB, Options
from magic_committer.runtime.threads import renewed_in_children
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import (
    Checksum,
    ChecksumAlgorithm,
    FileSlice,
    ObjectSlice,
    Part,
    PartBody,
    same_etag,
)

MEMORY_BLOCK_BYTES_MAX = 64 * MiB
"""Blocks of parts above this size are always on disk."""

FIRST_BYTES = 64 * 1024
"""Memory for a file's first block at its first write. It doubles from there. Later blocks are
allocated whole."""

SUM_BYTES = 256 * 1024
"""After these bytes a block's checksum goes on."""

PAGES_BYTES_MIN = 1 * MiB
"""Memory of this size and more has pages of its own; below, the heap is cheaper."""


class BlockSource:
    """The process's memory for blocks. Safe for many threads. Make one for each process."""

    def __init__(self) -> None:
        self._begin()
        renewed_in_children(self, BlockSource._begin)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._in_use = 0
        self._given_back: deque[int] = deque()
        self._kept: list[mmap.mmap] = []
        self._open: list[int] = []  # for each open file: how many pages may be kept for it

    @property
    def bytes_in_use(self) -> int:
        """Memory that blocks hold now."""
        with self._lock:
            return self._settled()

    @property
    def bytes_kept(self) -> int:
        """Memory of pages that wait to be used again."""
        return sum(len(pages) for pages in list(self._kept))

    def open_file(self, options: Options) -> OpenFile:
        """Note that a file is written: pages of its blocks are kept until it ends."""
        return OpenFile(self, options.parts_in_flight + 1)

    def block(self, size: int, options: Options, *, first: bool = False) -> Block:
        """An empty block for ``size`` bytes. ``first``: the first one of its file, which may be
        small."""
        return Block(self, size, options, start=min(size, FIRST_BYTES) if first else size)

    def reserve(self, count: int, bytes_max: int) -> bool:
        """Take ``count`` bytes of the budget, if all blocks then hold at most ``bytes_max``. Kept
        pages make room."""
        with self._lock:
            held = self._settled() + count
            if held > bytes_max:
                return False
            self._in_use = held
        while True:
            sizes = [len(pages) for pages in list(self._kept)]
            # The most that the open files need at once, with blocks as large as these.
            needed = sum(list(self._open)) * max([count, *sizes])
            if held + sum(sizes) <= min(bytes_max, needed) or not self._drop_one():
                return True

    def take(self, size: int) -> memoryview | None:
        """Kept pages of that size which nobody reads; None if there are none."""
        for _ in range(len(self._kept)):
            try:
                pages = self._kept.pop(0)  # the oldest: the likeliest to be idle
            except IndexError:  # another thread was faster
                return None
            if len(pages) != size:
                continue  # the system gets them back
            if _is_idle(pages):
                return memoryview(pages)
            self._kept.append(pages)  # what has sent them is about to let go of them
        return None

    def keep(self, pages: mmap.mmap, pid: int) -> None:
        """Keep the pages of a block of process ``pid``, as long as files are open that may need
        them. Acquires no lock."""
        if pid == self._pid and len(self._kept) < sum(list(self._open)):
            self._kept.append(pages)
            self.trim()  # the last file may just have ended

    def trim(self) -> None:
        """Drop what is kept for more files than are open. Acquires no lock."""
        while len(self._kept) > sum(list(self._open)) and self._drop_one():
            pass

    def _drop_one(self) -> bool:
        try:
            self._kept.pop(0)
        except IndexError:  # another thread was faster
            return False
        return True

    def _settled(self) -> int:
        while self._given_back:
            self._in_use -= self._given_back.popleft()
        return self._in_use

    def give_back(self, count: int, pid: int) -> None:
        """Return what a block of process ``pid`` took. Acquires no lock."""
        if pid == self._pid:
            self._given_back.append(count)


class OpenFile:
    """A file that is being written, as long as it may need blocks. Dropping it ends it."""

    __slots__ = ("_number", "_pid", "_source")

    def __init__(self, source: BlockSource, number: int) -> None:
        self._source = source
        self._pid = os.getpid()
        self._number = number
        source._open.append(number)

    def end(self) -> None:
        """Let go of the pages that are kept for it. Repeatable, also from a finalizer."""
        number, self._number = self._number, 0
        if number and self._pid == self._source._pid:
            self._source._open.remove(number)
            self._source.trim()

    def __del__(self) -> None:
        self.end()


class Block:
    """The bytes of one future part. One thread at a time uses it: first its filler, then its
    sender.

    Attributes:
        size: bytes of a full part.
        length: bytes in it. Its filler may write ``memory[length:]`` and raise ``length`` itself,
            as long as ``length`` stays below ``quick_end``.
        quick_end: up to there bytes may come before the checksum has to go on.
        held: bytes of memory of its own that it has now; 0 on disk and after `release`.
        memory: these bytes; None if there are none.
    """

    def __init__(self, source: BlockSource, size: int, options: Options, *, start: int) -> None:
        self.size = size
        self.length = 0
        self._source = source
        self._pid = os.getpid()
        self._start = start
        self._bytes_max = options.buffer_bytes_max
        self._directory = options.buffer_dir
        self.held = 0
        self.quick_end = self._summed = 0
        self._running: checksums.Running | None = None
        algorithm = options.checksum_algorithm
        if algorithm is not None and checksums.keeps_up(algorithm):
            self._running = checksums.Running(algorithm)
        self.memory: memoryview | None = None
        self._file: _BlockFile | None = None
        if size > MEMORY_BLOCK_BYTES_MAX:
            self._file = _BlockFile(self._directory)

    @property
    def on_disk(self) -> bool:
        """Whether its bytes are in a file."""
        return self._file is not None

    def append(self, data: memoryview) -> None:
        """Copy ``data``, contiguous bytes, to the end. The caller makes sure that they fit. Raises
        OSError: the disk is full or broken."""
        for start in range(0, len(data), SUM_BYTES):
            self._append(data[start : start + SUM_BYTES])
        self.quick_end = self.held
        if self._running is not None:
            self.quick_end = min(self.held, self._summed + SUM_BYTES)

    def _append(self, data: memoryview) -> None:
        if self._file is None and not self._fits(self.length + len(data)):
            self._sum()
            file = _BlockFile(self._directory)
            if self.memory is not None:
                file.append(self.memory[: self.length])
            self.release()
            self._file = file
        if self._file is None:
            memory = cast("memoryview", self.memory)
            memory[self.length : self.length + len(data)] = data
            self.length += len(data)
            if self.length - self._summed >= SUM_BYTES:
                self._sum()
            return
        self._file.append(data)
        self.length += len(data)
        if self._running is not None:
            self._running.update(data)
            self._summed = self.length

    def _sum(self) -> None:
        """Go on with the checksum, up to the last byte in memory."""
        if self._running is not None and self._summed < self.length:
            memory = cast("memoryview", self.memory)
            self._running.update(memory[self._summed : self.length])
            self._summed = self.length

    def checksum(self, algorithm: ChecksumAlgorithm) -> Checksum:
        """The checksum of its bytes, by the algorithm of its options. Before `release`."""
        if self._running is None:
            return checksum_of(algorithm, self.body())
        self._sum()
        return self._running.checksum()

    def body(self) -> PartBody:
        """The body for the store; valid until `release`."""
        if self._file is not None:
            return FileSlice(self._file.path, 0, self.length)
        if self.memory is None:
            return memoryview(b"")
        return self.memory[: self.length].toreadonly()

    def release(self) -> None:
        """Give memory, budget and disk back. Repeatable, also from a finalizer."""
        memory, self.memory = self.memory, None
        pages = memory.obj if memory is not None else None
        del memory  # this view too
        if isinstance(pages, mmap.mmap) and len(pages) == self.size:
            self._source.keep(pages, self._pid)
        reserved, self.held, self.quick_end = self.held, 0, 0
        if reserved:
            self._source.give_back(reserved, self._pid)
        file, self._file = self._file, None
        if file is not None:
            file.remove()

    def __del__(self) -> None:
        if hasattr(self, "_file") and mmap.mmap is not None:  # at exit its module may be gone
            self.release()

    def _fits(self, needed: int) -> bool:
        """Make room in memory for ``needed`` bytes, if the budget allows it."""
        held = self.held
        if needed <= held:
            return True
        grown = max(needed, 2 * held, self._start)
        if 2 * grown > self.size:
            grown = self.size
        used = self._source.take(grown)
        if not self._source.reserve(grown - held, self._bytes_max):
            return False
        self.held = grown
        memory = used if used is not None else _memory(grown)
        if self.memory is not None:
            memory[: self.length] = self.memory[: self.length]
        self.memory = memory
        return True


def _memory(size: int) -> memoryview:
    """Zeroed memory, which is freed with its last view."""
    if size < PAGES_BYTES_MIN or not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return memoryview(bytearray(size))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: hundreds of page faults fewer for each block
        with contextlib.suppress(OSError):  # a kernel built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)


def _is_idle(pages: mmap.mmap) -> bool:
    """Whether no view of the pages is left anywhere. `mmap.resize` refuses while there is one; to
    the size that they have it changes nothing. Where the system cannot resize (macOS) nothing says
    so: pages are not used again."""
    try:
        pages.resize(len(pages))
    except (BufferError, AttributeError, SystemError):
        return False
    return True


def checksum_of(algorithm: ChecksumAlgorithm, body: PartBody) -> Checksum:
    """The checksum of a body, which is read for it."""
    if isinstance(body, memoryview):
        return checksums.of(algorithm, body)
    running = checksums.Running(algorithm)
    left = body.length
    for piece in body.pieces():
        running.update(piece)
        left -= len(piece)
    if left:
        raise OSError(f"{body.path} is {left} bytes shorter than it was written")
    return running.checksum()


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A part of a local file, which stays where it is: sending it again reads it again.
    ``changed_ns``: when the file was last changed, as its file system says, in nanoseconds."""

    path: str
    offset: int
    length: int
    changed_ns: int

    def body(self) -> PartBody:
        """The body for the store. Raises OSError: the file has changed since it was taken, or is
        gone."""
        if os.stat(self.path).st_mtime_ns != self.changed_ns:
            raise OSError(f"{self.path} was changed while it was being uploaded")
        return FileSlice(self.path, self.offset, self.length)

    def checksum(self, algorithm: ChecksumAlgorithm) -> Checksum:
        """Read the part for its checksum."""
        return checksum_of(algorithm, self.body())

    def release(self) -> None:
        """Do nothing: the file is its owner's."""


@dataclass(frozen=True, slots=True)
class ObjectBlock:
    """A part of another object, which the store copies by itself. ``unchanged``: looks at that
    object, and raises if it is another one now."""

    source: ObjectSlice
    unchanged: Callable[[], None]

    @property
    def length(self) -> int:
        return self.source.length

    @property
    def of(self) -> str:
        """What it is part of, for messages."""
        source = self.source
        return f", a copy of s3://{source.bucket}/{source.key} with ETag {source.etag},"

    def body(self) -> ObjectSlice:
        return self.source

    def check(self, part: Part) -> None:
        """See that the stored part is of that object: its ETag proves it, or else a look does."""
        if not same_etag(part.etag, self.source.etag):
            self.unchanged()

    def checksum(self, algorithm: ChecksumAlgorithm) -> None:
        """None: nobody here has the bytes."""

    def release(self) -> None:
        """Do nothing."""


PartSource = Block | FileBlock | ObjectBlock
"""What a part is sent from. Each has a ``body``, a ``checksum`` and a ``release``."""


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

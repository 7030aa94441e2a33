"""The file object: it accepts bytes, hands over blocks, and ends in exactly one of three ways.

`UploadStream` has the interface of every binary file of Python. ``upload/__init__.py`` has the
theory.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from sys import intern
from typing import Protocol

from magic_committer.errors import MagicError, UploadFailed
from magic_committer.errors.messages import of_disk
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import MiB, Options
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Future, cleaning_up, pass_on
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import (
    PART_BYTES_MAX,
    PART_NUMBER_MAX,
    Attributes,
    Checksum,
    CreatedUpload,
    ObjectSlice,
    Part,
    Steps,
)
from magic_committer.upload.blocks import Block, BlockSource, FileBlock, ObjectBlock
from magic_committer.upload.file import (
    Buffer,
    FileState,
    PendingFile,
    TaskFile,
    flat,
    nothing,
)
from magic_committer.upload.sender import PartSender

TAKEN_BESIDE_BYTES_MAX = 64 * 1024**2
"""Bytes of a local file that is sent by one function of the pool. The parts of a larger one are
sent side by side."""

COPY_PART_BYTES = 64 * 1024**2
"""Bytes of a part that the store copies from another object, if 10,000 parts are enough."""

_OPEN = FileState.OPEN


class Beside(Protocol):
    """Where small files are sent beside their writers."""

    def enter(self, stream: UploadStream) -> None:
        """Wait for room, and note the file; raise if it cannot be closed."""

    def send(self, stream: UploadStream, steps: Steps) -> Future[object]:
        """Begin its work: Create, hook, parts and ``on_close``."""


@dataclass(frozen=True, slots=True)
class FinishedUpload:
    """A file whose parts are all stored: the data for a `.pending`.

    Attributes:
        parts: in order of number, each with its checksum if the upload has one.
        checksum: of the whole object, for Complete; None for SHA sums, which have none, and with
            ``checksum="off"``.
    """

    key: str
    upload_id: str
    parts: tuple[Part, ...]
    length: int
    checksum: Checksum | None


class UploadStream(TaskFile):
    """A file that becomes a pending upload when it is closed. It can only be written, from start to
    end.

    One thread at a time may use it, one after the other: a `write` or `close` that finds another
    one under way raises, and the file has failed. Streams are independent of each other. For its
    memory see ``upload/__init__.py``.
    """

    def __init__(
        self,
        runtime: Runtime,
        key: str,
        *,
        attributes: Attributes,
        options: Options,
        blocks: BlockSource,
        on_close: Callable[[FinishedUpload], None],
        on_answer: Callable[[CreatedUpload], None] = nothing,
        before_block: Callable[[], None] = nothing,
        on_abort: Callable[[], None] = nothing,
        abort_told: Callable[[str], None] | None = None,
        beside: Beside | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        """``on_close`` is called once when all parts are stored, by the closing thread, or by a
        thread of the pool for a small file with ``beside``: it records the pending. ``on_answer``
        is called at once with the answer to Create, in a thread of the pool: it must be short and
        do no I/O. ``before_block`` is called before each block is handed over, after Create was
        answered (the committer reads its fence). If it or ``on_close`` raises, the upload is
        aborted, and `write` or `close` raises its error.

        ``abort_told`` aborts the upload of an id after ``on_close`` was called, when others may
        know it; None: it is aborted plainly. It must not refer to this file. ``on_abort`` is called
        once if the file has ended without a pending, after the abort of its upload, also if this
        abort failed; not at interpreter exit, and for a dropped file in a thread of the pool.

        ``beside``: where `close` puts a file that ends within its first block: the owner calls
        `wait`, and then `tell_failure`. None: Create is sent at once, and `close` waits. Raises
        OptionError: the checksum's algorithm needs a package.
        """
        algorithm = options.checksum_algorithm
        if algorithm is not None:
            checksums.require(algorithm)
        self._pool = runtime.pool
        self._options = options
        self._blocks = blocks
        self._block: Block | None = None
        self._quick: Block | None = None  # `_block`, while no call works on it
        self._inside = False  # such a call is under way
        self._open_file = blocks.open_file(options)
        self._ledger = PartLedger(options.block_bytes, uniform=options.uniform_parts)
        self._failure: Exception | None = None
        self._failure_told_by_close = False
        self._on_close = on_close
        self._before_block = before_block
        self._on_abort = on_abort
        self._beside = beside
        self._when_pending: list[Callable[[], object]] = []
        self._taken: Sequence[FileBlock | ObjectBlock] = ()  # `close` hands them to the pool
        self.ends_beside = False  # `close` has handed the file's end to the pool
        sender = PartSender(runtime, key, attributes, options, on_answer, abort_told, statistics)
        self.pid, self.key, self.name = sender.pid, key, sender.url
        if beside is None:
            sender.begin()
        self._sender = sender

    def __repr__(self) -> str:
        return f"<UploadStream {self.name} {self.state} {self.length} bytes>"

    @property
    def state(self) -> FileState:
        """The file's state. In a forked child: the state at the fork."""
        return self._sender.state

    def when_pending(self, call: Callable[[], object]) -> None:
        """Call this when the file is pending, in the thread that has made it so; at once if it is.
        It may be called twice. It must be short, do no I/O, and raise nothing."""
        self._when_pending.append(call)
        if self.state is FileState.PENDING:
            call()

    @property
    def length(self) -> int:
        """How many bytes were written; also of a file that is closed."""
        return self._ledger.length + self._uncounted()

    @property
    def bytes_held(self) -> int:
        """Memory of the block that is being filled."""
        return self._block.held if self._block is not None else 0

    @property
    def closed(self) -> bool:
        """Whether the file accepts no more bytes. A failed file counts as open until `close` has
        raised its error: wrappers look here first and would otherwise never get it. In a forked
        child always True, so that finalizers of other libraries' wrappers leave the file alone."""
        sender = self._sender
        if sender.pid != os.getpid():
            return True
        if sender.state is _OPEN:
            return False
        return sender.state is not FileState.FAILED or self._failure_told_by_close

    def tell(self) -> int:
        """How many bytes were written. ValueError if the file is closed."""
        self._check_open()
        return self.length

    def flush(self) -> None:
        """Do nothing: only closing makes anything last. Raises what `write` would raise."""
        self._check_open()

    def write(self, data: Buffer, /) -> int:
        """Copy the bytes of any buffer, in C order. The buffer may be reused at once.

        Waits if a block is full and ``parts_in_flight`` parts are being sent.

        Returns:
            How many bytes were written: always all.

        Raises:
            UploadFailed: Create or a part failed, part 10,001 would be needed, or the disk is full.
                The upload was aborted. All later calls raise it too, also `close`. Or another
                thread is in `write` or `close`: then the file's next call aborts the upload.
            WrongProcess: this is a forked child of the process that opened the file. Nothing was
                sent.
            ValueError: the file is closed.
            WrongType: ``data`` is text, or has no buffer. Nothing was written; the file can still
                be used.
            Exception: what ``before_block`` raised.
        """
        # A small write into a block with room. All calls come before the first look at the state:
        # after each of them another thread may run, or a signal handler, which may abort the file.
        kind = type(data)
        if kind is bytes or kind is bytearray:
            count, pid = len(data), os.getpid()  # type: ignore[arg-type]
            sender, block = self._sender, self._quick
            if block is not None and pid == sender.pid and sender.state is _OPEN:
                start = block.length
                end = start + count
                if end < block.quick_end and sender.failure is None and self._failure is None:
                    block.memory[start:end] = data  # type: ignore[index]
                    # On 3.11 a slice may start the collector, and with it other code.
                    if block.length == start and self._quick is block:
                        block.length = end
                        return count
                    raise self.two_at_once()
        self._go_inside()
        try:
            return self._write(data)
        finally:
            self._inside, self._quick = False, self._block

    def _go_inside(self) -> None:
        """Begin a call that no other one may overtake. Nothing runs between its look and its
        sign."""
        if self._inside:
            raise self.two_at_once()
        self._inside, self._quick = True, None

    def two_at_once(self) -> UploadFailed:
        """The error of a call beside another one. The file has failed: its next call aborts it,
        because this one may not touch what the other works on."""
        error = super().two_at_once()
        self._sender.fail("a write", error)
        return error

    def _write(self, data: Buffer) -> int:
        self._check_open()
        if self._taken:
            raise ValueError(f"{self.name} has taken a file: it accepts no more bytes")
        view = flat(data, self.name)
        try:
            self._ledger.add(self._uncounted())
            self._ledger.require(len(view))
            taken = 0
            while taken < len(view):
                taken += self._fill(view[taken:])
        except BaseException as error:
            self._fail(error)
            raise
        return len(view)

    def writelines(self, lines: Iterable[Buffer], /) -> None:
        """`write` each item."""
        self.check_process()
        super(TaskFile, self).writelines(lines)

    def take_file(self, path: str, *, beside: bool = False) -> None:
        """Take all bytes of a local file, in place of writes; `close` must follow. Nothing of it is
        kept in memory: each part is read from there, as often as it is sent. The file may not
        change until this one has ended. Not repeatable.

        Args:
            path: the local file.
            beside: send a file of at most `TAKEN_BESIDE_BYTES_MAX` beside the caller, if the owner
                allows it, part after part. False (default): its parts are sent side by side.

        Raises:
            UploadFailed: as for `write`; or the local file cannot be read.
            ValueError: the file is closed, or something was written into it.
        """

        def blocks() -> list[FileBlock]:
            try:
                found = os.stat(path)
            except OSError as error:
                raise UploadFailed(f"{path} cannot be uploaded as {self.name}: {error}") from error
            changed, cuts = found.st_mtime_ns, self._ledger.cuts(found.st_size)
            return [FileBlock(path, offset, length, changed) for offset, length in cuts]

        self._take(blocks, TAKEN_BESIDE_BYTES_MAX if beside else -1)

    def _take_object(self, whole: ObjectSlice, unchanged: Callable[[], None]) -> None:
        """Take all bytes of another object, as `take_file` does. The store copies them, by parts of
        `COPY_PART_BYTES`: beside the caller if it is one part, and the owner allows it.
        ``unchanged`` raises if that object is another one now; called in threads of the pool."""

        def blocks() -> list[ObjectBlock]:
            part_bytes = copied_part_bytes(whole.length, COPY_PART_BYTES)
            self._ledger = PartLedger(part_bytes, uniform=True)
            cuts = self._ledger.cuts(whole.length)
            slices = (replace(whole, offset=at, length=size) for at, size in cuts)
            self._sender.copies()
            return [ObjectBlock(one, unchanged) for one in slices]

        self._take(blocks, COPY_PART_BYTES)

    def _take(
        self, blocks_of: Callable[[], Sequence[FileBlock | ObjectBlock]], beside_bytes_max: int
    ) -> None:
        self._check_open()
        if self.length or self._taken:
            raise ValueError(f"{self.name} has bytes already: it accepts no file")
        try:
            blocks = blocks_of()
            small = sum(block.length for block in blocks) <= beside_bytes_max
            if small and self._beside is not None and not self._sender.begun:
                self._taken = blocks
                return
            for block in blocks:
                self._ledger.add(block.length)
                self._hand_over(block)
        except BaseException as error:
            self._fail(error)
            raise

    def close(self) -> None:
        """Send the last block, wait for all parts, record the pending. Does nothing if the file is
        closed already. A small file of a task that no other process commits is closed at once, and
        sent beside the caller; the task's commit waits for it.

        Raises:
            UploadFailed: as for `write`, and again at each close of a failed file.
            WrongProcess: as for `write`.
            Exception: what ``before_block``, ``on_close`` or ``beside`` raised.
        """
        self.check_process()
        self._raise_failure()
        if self.closed:
            return
        self._go_inside()
        try:
            self._close()
        finally:
            self._inside = False

    def _close(self) -> None:
        self._sender.move(FileState.CLOSING)
        try:
            self._sender.check()
            self._ledger.add(self._uncounted())
            if self._beside is not None and not self._sender.begun:
                self._beside.enter(self)
                ending = self._ending(self._taken or [self._filled_block()])
                self.ends_beside = True
                self._sender.end_beside(partial(self._beside.send, self), ending)
            else:
                if self._ledger.owes_a_part:
                    self._hand_over()
                self._collect(in_flight_max=0)
                self._record()
        except BaseException as error:
            self._failure_told_by_close = True
            self._fail(error)
            raise
        self._raise_failure()  # of a small file that has ended in this very thread

    def wait(self) -> None:
        """Wait until what `close` has handed to the pool has ended, well or not."""
        self._sender.await_end()

    def tell_failure(self) -> None:
        """Raise the error of a failed file, unless a call has raised it before."""
        if not self._failure_told_by_close:
            self._raise_failure()

    def stop(self) -> None:
        """Let nothing more be sent of a file whose end runs in the pool: `abort` follows."""
        if self.ends_beside and self.state is FileState.CLOSING:
            self._sender.stop()

    def _raise_failure(self) -> None:
        if self.state is FileState.FAILED and self._failure is not None:
            self._failure_told_by_close = True
            raise _again(self._failure)

    def _ending(self, blocks: Sequence[Block | FileBlock | ObjectBlock]) -> Steps:
        """Send the whole file and record it. If somebody stops it, that one ends it."""
        sender = self._sender
        try:
            if not sender.stopped:
                yield from sender.creating()
            for block in blocks:
                sender.check()
                if not sender.stopped:
                    self._before_block()
                if not sender.stopped:
                    self._ledger.add(block.length - self._ledger.filled)
                    number = self._ledger.hand_out()
                    stored = yield from sender.sending(number, block, sender.created().upload_id)
                    if stored is not None:
                        self._ledger.stored(*stored)
            sender.check()
            if not sender.stopped:
                self._record()
        except GeneratorExit:  # what sends it is gone: the end of the interpreter aborts it
            raise
        except BaseException as error:
            if not sender.stopped:
                self._fail(error, in_pool=True)
            if not isinstance(error, Exception):
                raise
        finally:
            for block in blocks:
                block.release()

    def _record(self) -> None:
        created, ledger = self._sender.created(), self._ledger
        parts = ledger.finished()
        finished = FinishedUpload(
            self.key, created.upload_id, parts, ledger.length, checksum_of(parts)
        )
        self._sender.told = True
        self._on_close(finished)
        self._sender.finish()
        self._open_file.end()
        waiting, self._when_pending = self._when_pending, []
        for call in waiting:
            call()

    def abort(self) -> None:
        """Give the file up: publish nothing, drop the blocks, abort the upload.

        Repeatable. Does nothing after a successful `close`: the upload then belongs to the attempt.

        Raises:
            StoreError: the upload could not be aborted. Call it again.
            WrongProcess: as for `write`.
        """
        self.check_process()
        if self.ends_beside and self.state is FileState.CLOSING:
            self._sender.halt()  # it may yet end well
        if self.state is FileState.PENDING:
            return
        self._failure_told_by_close = True
        if self.state in (FileState.OPEN, FileState.CLOSING):
            self._sender.move(FileState.ABORTED)
        self._end()

    def __del__(self) -> None:
        # io.IOBase would call close(), which publishes. This may run in any thread, between any two
        # instructions: it acquires no lock, does no I/O and starts no thread.
        sender: PartSender | None = self.__dict__.get("_sender")
        if sender is None or self.closed or sender.state is FileState.FAILED:
            return
        sender.move(FileState.ABORTED)
        self._pool.later(partial(_abort_dropped, sender, self._on_abort))
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, 2, self)

    def _check_open(self) -> None:
        self.check_process()
        if self.closed:
            raise ValueError(f"I/O operation on closed file {self.name}")
        if self._failure is not None:
            raise _again(self._failure)
        try:
            self._sender.check()
        except UploadFailed as error:
            self._fail(error)
            raise

    @property
    def upload_id(self) -> str:
        """The id of its upload, once that was created."""
        return self._sender.created().upload_id

    def _uncounted(self) -> int:
        """Bytes of small writes that the ledger does not know of."""
        return self._block.length - self._ledger.filled if self._block is not None else 0

    def _fill(self, view: memoryview) -> int:
        """Add as many bytes as the current block has room for, and give their number."""
        ledger = self._ledger
        count = min(ledger.room, len(view))
        try:
            if self._block is None:
                self._block = self._new_block()
            self._block.append(view[:count])
        except OSError as error:
            pass_on(error)
            raise UploadFailed(
                f"a block of {self.name} could not be kept on disk: {error}", hint=of_disk(error)
            ) from error
        ledger.add(count)
        if 2 * ledger.filled >= ledger.next_bytes and not self._sender.begun:
            self._sender.begin()  # so that its answer is there when the block is full
        if not ledger.room:
            self._hand_over()
        return count

    def _new_block(self) -> Block:
        number, size = self._ledger.next_number, self._ledger.next_bytes
        return self._blocks.block(size, self._options, first=number == 1)

    def _filled_block(self) -> Block:
        block, self._block = self._block or self._new_block(), None
        return block

    def _hand_over(self, taken: FileBlock | ObjectBlock | None = None) -> None:
        self._collect(in_flight_max=self._sender.in_flight_max - 1)
        self._sender.created()
        self._before_block()
        block = taken if taken is not None else self._filled_block()
        self._sender.send(self._ledger.hand_out(), block)

    def _collect(self, *, in_flight_max: int) -> None:
        for part, checksum in self._sender.collect(in_flight_max=in_flight_max):
            self._ledger.stored(part, checksum)

    def _fail(self, error: BaseException, *, in_pool: bool = False) -> None:
        """End the file with ``error``, which the caller raises. Bytes may be missing in the middle,
        whatever the error was: the file can never be closed successfully."""
        if self.state in (_OPEN, FileState.CLOSING):  # a hook may have aborted, then raised
            self._sender.move(FileState.FAILED)
        if isinstance(error, Exception):
            self._failure = _again(error)
        else:  # KeyboardInterrupt and the like are raised once; later calls mention it
            self._failure = UploadFailed(f"writing {self.name} was interrupted: {error!r}")
        try:
            with cleaning_up(error):
                self._end(in_pool=in_pool)
        except Exception as failed:
            for told in (error, self._failure):
                told.add_note(f"the upload of {self.name} could not be aborted: {failed}")

    def _end(self, *, in_pool: bool = False) -> None:
        block, self._block, self._quick = self._block, None, None
        if block is not None:
            block.release()
        self._open_file.end()
        self._when_pending = []
        on_abort, self._on_abort = self._on_abort, nothing
        try:
            if in_pool:  # the pool's function cannot wait for itself
                self._sender.abort_here()
            else:
                self._sender.abort()
        finally:
            on_abort()


def _abort_dropped(sender: PartSender, on_abort: Callable[[], None]) -> None:
    try:
        sender.abort()
    finally:
        on_abort()


def _again(error: Exception) -> Exception:
    """The error for another call. The file may not keep one that was raised: its traceback keeps
    the file, and what the caller was writing; all of it would wait for the collector."""
    if not isinstance(error, MagicError):  # it may not be made for copies
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def pending_of(stream: UploadStream) -> PendingFile:
    """What to keep of a file that is pending: a job may have very many."""
    return PendingFile(intern(stream.name.removesuffix(stream.key)), stream.key, stream.length)


# Its parts ----------------------------------------------------------------------------------------
#
# Which bytes go into which part, and what became of each part. Pure.
#
# Parts have ``block_bytes`` for the first 1,000 of a file, then double after every 1,000, up to
# S3's 5 GiB. So a file of any length that S3 allows can be written, and its length need not be
# known before:
#
# ========== ==================== ============ =====================
# parts up to part size from 8 MiB file so far  and from 5 MiB
# ========== ==================== ============ =====================
# 1,000      8 MiB                7.8 GiB      4.9 GiB
# 2,000      16 MiB               23.4 GiB     14.6 GiB
# 5,000      128 MiB              242 GiB      151 GiB
# 8,000      1 GiB                1.95 TiB     1.22 TiB
# 10,000     4 GiB                7.80 TiB     4.88 TiB
# ========== ==================== ============ =====================
#
# Invariants:
#
# * Part numbers are 1, 2, 3, … without a gap. Every part but the last is full. An empty file is one
#   empty part.
# * ``length`` is the sum of all added bytes. It never exceeds `bytes_max`: bytes that need part
#   10,001 are refused before any of them is taken, and a refused call changes nothing.
# * `finished` gives the parts only if every part that was handed out came back as stored, with the
#   same length.


PARTS_OF_ONE_SIZE = 1_000
"""After this many parts the size doubles."""


def part_bytes(number: int, block_bytes: int, *, uniform: bool = False) -> int:
    """Bytes of part ``number``, counted from 1, unless it is the file's last."""
    if uniform:
        return block_bytes
    return min(block_bytes << ((number - 1) // PARTS_OF_ONE_SIZE), PART_BYTES_MAX)


def copied_part_bytes(length: int, least: int) -> int:
    """Bytes of each part but the last of a copy of ``length`` bytes: ``least``, or the next whole
    MiB with which 10,000 parts hold them. So a store copies at most 525 MiB at once."""
    return max(least, -(-length // (PART_NUMBER_MAX * MiB)) * MiB)


@cache
def capacity(block_bytes: int, *, uniform: bool = False) -> int:
    """The longest file, in bytes, that 10,000 parts can hold."""
    return sum(
        PARTS_OF_ONE_SIZE * part_bytes(first, block_bytes, uniform=uniform)
        for first in range(1, PART_NUMBER_MAX + 1, PARTS_OF_ONE_SIZE)
    )


class PartLedger:
    """The parts of one file: sizes going out, ETags coming back.

    Attributes:
        length, bytes_max: bytes added so far, and the most that there may be.
        next_number, next_bytes, filled: the part that is being filled, how many bytes it holds when
            it is full, and how many it holds now.
    """

    def __init__(self, block_bytes: int, *, uniform: bool = False) -> None:
        self.block_bytes = block_bytes
        self.uniform = uniform
        self.bytes_max = capacity(block_bytes, uniform=uniform)
        self.length = 0
        self.next_number = 1
        self.next_bytes = block_bytes
        self.filled = 0
        self._sizes: list[int] = []  # sizes of the parts that were handed out
        self._stored: dict[int, Part] = {}

    @property
    def room(self) -> int:
        """How many more bytes fit into the part that is being filled."""
        return self.next_bytes - self.filled

    def require(self, count: int) -> None:
        """Refuse ``count`` more bytes if they need part 10,001. Raises UploadFailed: they need it.
        Nothing changed."""
        if self.length + count > self.bytes_max:
            raise UploadFailed(
                f"after {self.length} bytes, {count} more would need part {PART_NUMBER_MAX + 1:,}: "
                f"S3 allows {PART_NUMBER_MAX:,} parts, which hold {self.bytes_max} bytes here",
                hint="Raise block_bytes"
                + (", or let the parts grow (uniform_parts=False)" if self.uniform else ""),
            )

    def cuts(self, length: int) -> list[tuple[int, int]]:
        """Offset and length of each part of a file of ``length`` bytes; none if it is empty. Raises
        UploadFailed as `require`."""
        self.require(length)
        found, offset = list[tuple[int, int]](), 0
        while offset < length:
            size = part_bytes(len(found) + 1, self.block_bytes, uniform=self.uniform)
            found.append((offset, min(size, length - offset)))
            offset += size
        return found

    def add(self, count: int) -> None:
        """Take ``count`` bytes, at most `room`, into the part that is being filled."""
        if not 0 <= count <= self.room:
            raise ValueError(f"{count} bytes into a part with room for {self.room}")
        self.filled += count
        self.length += count

    def hand_out(self) -> int:
        """End the part that is being filled, and begin the next. Gives the number of the ended
        part.

        Only the last part may be short, so nothing may be added after a part that was not full.
        """
        last = len(self._sizes)
        if last == PART_NUMBER_MAX or (last and (not self.filled or self._short(last))):
            raise ValueError("a part after the last one")
        ended = self.next_number
        self._sizes.append(self.filled)
        self.filled = 0
        self.next_number = ended + 1
        self.next_bytes = part_bytes(ended + 1, self.block_bytes, uniform=self.uniform)
        return ended

    @property
    def owes_a_part(self) -> bool:
        """Whether one more part must be handed out at the end of the file."""
        return self.filled > 0 or not self._sizes

    def stored(self, part: Part, checksum: Checksum | None) -> None:
        """Note the store's answer for a part that was handed out, and the checksum that was sent
        with it. Raises UploadFailed: the answer is about another part, size or checksum."""
        if not 1 <= part.number <= len(self._sizes) or part.number in self._stored:
            raise UploadFailed(f"the store answered for part {part.number}, which is not awaited")
        if part.size != self._sizes[part.number - 1] or not part.etag:
            raise UploadFailed(
                f"the store answered {part.size} bytes, ETag {part.etag!r} for part {part.number} "
                f"of {self._sizes[part.number - 1]} bytes"
            )
        if part.checksum is not None and checksum is not None and part.checksum != checksum:
            raise UploadFailed(f"the store answered another checksum for part {part.number}")
        self._stored[part.number] = part._replace(checksum=checksum)

    def finished(self) -> tuple[Part, ...]:
        """Give all parts in order, if each part that was handed out is stored. Raises UploadFailed:
        parts are missing."""
        missing = [n for n in range(1, len(self._sizes) + 1) if n not in self._stored]
        if missing or self.owes_a_part:
            raise UploadFailed(f"parts are not stored: {missing or [self.next_number]}")
        return tuple(self._stored[number] for number in range(1, len(self._sizes) + 1))

    def _short(self, number: int) -> bool:
        return self._sizes[number - 1] < part_bytes(number, self.block_bytes, uniform=self.uniform)


def checksum_of(parts: tuple[Part, ...]) -> Checksum | None:
    """The whole object's checksum, from those of all its parts; None if it has none of its own, or
    if the store has returned none of a copied part."""
    sums = [(part.checksum, part.size) for part in parts if part.checksum is not None]
    if len(sums) < len(parts) or not checksums.joins(sums[0][0].algorithm):
        return None
    return checksums.whole(sums)

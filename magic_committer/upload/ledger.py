"""Which bytes go into which part, and what became of each part. Pure.

Parts have ``block_bytes`` for the first 1,000 of a file, then double after every 1,000, up to S3's
5 GiB. So a file of any length that S3 allows can be written, and its length need not be known
before:

========== ==================== ============ =====================
parts up to part size from 8 MiB file so far  and from 5 MiB
========== ==================== ============ =====================
1,000      8 MiB                7.8 GiB      4.9 GiB
2,000      16 MiB               23.4 GiB     14.6 GiB
5,000      128 MiB              242 GiB      151 GiB
8,000      1 GiB                1.95 TiB     1.22 TiB
10,000     4 GiB                7.80 TiB     4.88 TiB
========== ==================== ============ =====================

Invariants of `PartLedger`:

* Part numbers are 1, 2, 3, … without a gap. Every part but the last is full. An empty file is one
  empty part.
* ``length`` is the sum of all added bytes. It never exceeds `bytes_max`: bytes that need part
  10,001 are refused before any of them is taken, and a refused call changes nothing.
* `finished` gives the parts only if every part that was handed out came back as stored, with the
  same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from magic_committer.errors import UploadFailed
from magic_committer.options import MiB
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import PART_BYTES_MAX, PART_NUMBER_MAX, Checksum, Part

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


@dataclass(frozen=True, slots=True)
class FinishedUpload:
    """A file whose parts are all stored: the data for a `.pending`.

    Attributes:
        create_attempts: how often Create was sent. Above 1 there may be a second upload whose id
            nobody knows.
        parts: in order of number, each with its checksum if the upload has one.
        checksum: of the whole object, for Complete; None for SHA sums, which have none, and with
            ``checksum="off"``.
    """

    key: str
    upload_id: str
    create_attempts: int
    parts: tuple[Part, ...]
    length: int
    checksum: Checksum | None


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
    if the store has told none of a copied part."""
    sums = [(part.checksum, part.size) for part in parts if part.checksum is not None]
    if len(sums) < len(parts) or not checksums.joins(sums[0][0].algorithm):
        return None
    return checksums.whole(sums)

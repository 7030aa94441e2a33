from __future__ import annotations

import pytest

from magic_committer.errors import UploadFailed
from magic_committer.options import MiB
from magic_committer.stores.base import (
    PART_BYTES_MAX,
    PART_BYTES_MIN,
    PART_NUMBER_MAX,
    Part,
)
from magic_committer.upload import PartLedger, capacity, part_bytes
from magic_committer.upload.stream import copied_part_bytes
from tests.promises.hands import raises

TiB = 1024**4


def test_parts_double_after_every_thousand() -> None:
    """Parts 1 to 1,000 have one size, 1,001 to 2,000 twice that, and so on to 10,000."""
    sizes = [part_bytes(n, 8 * MiB) for n in (1, 1000, 1001, 2000, 2001, 9001, 10_000)]
    assert sizes == [m * MiB for m in (8, 8, 16, 16, 32, 4096, 4096)]


@pytest.mark.parametrize(
    "length", [1, 256 * MiB, 10_000 * 256 * MiB, 10_000 * 256 * MiB + 1, 5 * TiB]
)
def test_a_copy_has_parts_of_one_size(length: int) -> None:
    """As few as 256 MiB allow, at most 10,000, and none larger than a store copies in a minute."""
    size = copied_part_bytes(length, 256 * MiB)
    cuts = PartLedger(size, uniform=True).cuts(length)
    assert len(cuts) <= PART_NUMBER_MAX
    assert sum(count for _, count in cuts) == length
    assert {count for _, count in cuts[:-1]} <= {size}
    assert size == 256 * MiB or length > 10_000 * 256 * MiB
    assert size <= 525 * MiB


def test_the_longest_file() -> None:
    """8 MiB blocks reach 7.8 TiB, uniform ones 78 GiB; the largest give S3's largest object."""
    assert capacity(8 * MiB) == 1000 * 1023 * 8 * MiB
    assert 7.8 <= capacity(8 * MiB) / TiB < 7.81
    assert capacity(8 * MiB, uniform=True) == 10_000 * 8 * MiB
    assert capacity(PART_BYTES_MAX) == PART_NUMBER_MAX * PART_BYTES_MAX


@pytest.mark.parametrize("block_bytes", [PART_BYTES_MIN, 8 * MiB, 100 * MiB, PART_BYTES_MAX])
def test_no_part_passes_the_limit_and_none_shrinks(block_bytes: int) -> None:
    """For any block size parts stay within S3's 5 GiB and never become smaller."""
    sizes = [part_bytes(n, block_bytes) for n in range(1, PART_NUMBER_MAX + 1)]
    assert max(sizes) <= PART_BYTES_MAX
    assert sizes == sorted(sizes)
    assert sum(sizes) == capacity(block_bytes)


def fill(ledger: PartLedger, count: int) -> None:
    while count:
        step = min(count, ledger.room)
        ledger.add(step)
        count -= step
        if not ledger.room:
            ledger.hand_out()


@pytest.mark.parametrize("uniform", [False, True])
def test_the_walk_to_the_last_part(uniform: bool) -> None:
    """10,000 parts that add up; one byte more is refused, which changes nothing."""
    ledger = PartLedger(8 * MiB, uniform=uniform)
    longest = capacity(8 * MiB, uniform=uniform)
    fill(ledger, longest)
    assert "block_bytes" in raises(UploadFailed, ledger.require, 1, match="part 10,001").hint
    for number, size in enumerate(ledger._sizes, 1):
        ledger.stored(Part(number, f'"{number}"', size), None)
    assert sum(part.size for part in ledger.finished()) == ledger.length == longest
    assert len(ledger.finished()) == PART_NUMBER_MAX


def test_a_missing_part_is_noticed() -> None:
    """A file is finished only when every part that was handed out is stored, once."""
    ledger = PartLedger(10)
    fill(ledger, 30)
    for number in (1, 3):
        ledger.stored(Part(number, '"e"', 10), None)
    raises(UploadFailed, ledger.finished, match=r"\[2\]")
    raises(UploadFailed, ledger.stored, Part(1, '"e"', 10), None, match="the store answered")


def test_nothing_comes_after_a_short_part() -> None:
    """Only the last part may be short."""
    ledger = PartLedger(10)
    ledger.add(3)
    ledger.hand_out()
    ledger.add(1)
    raises(ValueError, ledger.hand_out, match="after the last")
    raises(ValueError, ledger.add, 100, match="room")

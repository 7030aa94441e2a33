from __future__ import annotations

import gc
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import UploadFailed
from magic_committer.options import MiB, Options
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores import checksum
from magic_committer.stores.base import (
    PART_BYTES_MAX,
    PART_BYTES_MIN,
    PART_NUMBER_MAX,
    FileSlice,
    Part,
)
from magic_committer.upload import Block, BlockSource, PartLedger, capacity, part_bytes
from magic_committer.upload import blocks as blocks_module
from magic_committer.upload.blocks import FIRST_BYTES, MEMORY_BLOCK_BYTES_MAX, SUM_BYTES, OpenFile
from magic_committer.upload.stream import copied_part_bytes
from tests.promises.hands import raises
from tests.unit.uploading import World, failing, need_names, options


def content(block: Block) -> bytes:
    body = block.body()
    if not isinstance(body, FileSlice):
        return bytes(body)
    with open(body.path, "rb") as file:
        file.seek(body.offset)
        return file.read(body.length)


def test_a_small_file_takes_little_memory() -> None:
    """The first block of a file holds 64 KiB for a few bytes, not its full size."""
    source = BlockSource()
    block = source.block(8 * MiB, options(), first=True)
    assert source.bytes_in_use == 0
    block.append(memoryview(b"few"))
    assert source.bytes_in_use == FIRST_BYTES
    assert content(block) == b"few"
    block.release()
    assert source.bytes_in_use == 0


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA256"])
@pytest.mark.parametrize("where", ["memory", "disk", "both"])
def test_a_block_knows_its_checksum(tmp_path: Path, algorithm: Any, where: str) -> None:
    """However it was filled, also past its filler's quick way, and wherever its bytes are."""
    source = BlockSource()
    limits = options(
        buffer_bytes_max={"memory": 2**30, "disk": 0, "both": FIRST_BYTES}[where],
        buffer_dir=str(tmp_path),
        checksum=algorithm,
    )
    block = source.block(MiB, limits, first=True)
    data = memoryview(random.Random(1).randbytes(600_000))
    block.append(data[:1000])
    if block.memory is not None:
        assert block.quick_end >= 2000
        block.memory[1000:2000] = data[1000:2000]
        block.length = 2000
    block.append(data[block.length : 500_000])
    block.append(data[500_000:])
    assert block.on_disk == (where != "memory")
    assert block.checksum(algorithm) == checksum.of(algorithm, data)
    block.release()


def test_a_blocks_checksum_goes_on_as_it_fills() -> None:
    """What is summed was written a moment ago: the processor's cache has it still."""
    block = BlockSource().block(MiB, options(checksum="CRC32C"))
    for length in (1, SUM_BYTES, 3 * SUM_BYTES):
        block.append(memoryview(bytes(length - block.length)))
        assert length <= block.quick_end <= length + SUM_BYTES
    block.release()


def test_large_parts_are_always_on_disk(tmp_path: Path) -> None:
    """A part above 64 MiB takes no memory, whatever the budget."""
    source = BlockSource()
    limits = options(buffer_dir=str(tmp_path), buffer_bytes_max=2**40)
    large = source.block(MEMORY_BLOCK_BYTES_MAX + 1, limits)
    assert large.on_disk
    assert not source.block(MEMORY_BLOCK_BYTES_MAX, limits).on_disk
    large.release()


@pytest.mark.parametrize("end", [Block.release, Block.__del__], ids=["released", "dropped"])
@pytest.mark.parametrize("nameless", [True, False])
def test_disk_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Block], None], nameless: bool
) -> None:
    """Neither file nor descriptor is left, where files can be nameless and where not."""
    if not nameless:
        need_names(monkeypatch)
    gc.collect()  # else what other tests have left may go meanwhile
    before = len(os.listdir("/dev/fd"))
    block = BlockSource().block(100, options(buffer_bytes_max=0, buffer_dir=str(tmp_path)))
    block.append(memoryview(b"bytes"))
    assert content(block) == b"bytes"
    assert len(os.listdir(tmp_path)) == (0 if nameless and os.path.exists("/proc/self/fd") else 1)
    end(block)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/dev/fd")) <= before  # fewer: a thread has ended that another test left


def test_the_budget_holds_among_threads() -> None:
    """Together they never hold more than the budget, and in the end nothing."""
    source = BlockSource()
    limit = 3 * FIRST_BYTES
    seen: list[int] = []

    def work(_: int) -> None:
        for _ in range(300):
            block = source.block(4 * FIRST_BYTES, options(buffer_bytes_max=limit), first=True)
            if source.reserve(1, limit):
                seen.append(source.bytes_in_use)
                source.give_back(1, os.getpid())
            block._fits(FIRST_BYTES)
            seen.append(source.bytes_in_use)
            block.release()

    with closing(ThreadPool(4)) as pool:
        for outcome in pool.each(work, range(4), in_flight=4):
            outcome.unwrap()
    assert max(seen) <= limit
    assert source.bytes_in_use == 0


used_again = pytest.mark.skipif(sys.platform != "linux", reason="the system cannot say who reads")

FOUR = options(parts_in_flight=3)
"""Options by which four blocks of an open file are kept."""


@pytest.fixture
def source() -> BlockSource:
    return BlockSource()


@pytest.fixture
def file(source: BlockSource) -> Iterator[OpenFile]:
    opened = source.open_file(FOUR)
    yield opened
    opened.end()


def filled(source: BlockSource, size: int = MiB, limits: Options = FOUR) -> Block:
    block = source.block(size, limits)
    block.append(memoryview(bytes([7]) * size))
    return block


@used_again
@pytest.mark.usefixtures("file")
def test_pages_of_a_released_block_are_used_again(source: BlockSource) -> None:
    """With none of the old bytes; when a file's parts grow, pages of smaller ones go."""
    block = filled(source)
    assert block.memory is not None
    pages = block.memory.obj
    block.release()
    assert (source.bytes_in_use, source.bytes_kept) == (0, MiB)
    again = source.block(MiB, FOUR)
    again.append(memoryview(b"new"))
    assert again.memory is not None
    assert again.memory.obj is pages
    assert content(again) == b"new"
    assert (source.bytes_in_use, source.bytes_kept) == (MiB, 0)
    again.release()
    filled(source, 2 * MiB).release()
    assert source.bytes_kept == 2 * MiB


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("view", ["the body", "a slice of it"])
def test_pages_that_somebody_reads_are_not_used_again(source: BlockSource, view: str) -> None:
    """A request that was broken off may send from a released block: what it sends never changes."""
    block = filled(source)
    body = block.body()
    assert isinstance(body, memoryview)
    sending = body if view == "the body" else body[10:20]
    del body
    block.release()
    other = source.block(MiB, FOUR)
    other.append(memoryview(bytes([9]) * MiB))
    assert set(sending) == {7}
    del sending  # what was sent is let go
    third = source.block(MiB, FOUR)
    third.append(memoryview(b"x"))
    assert source.bytes_kept == 0 or sys.platform != "linux"


@pytest.mark.usefixtures("file")
def test_blocks_and_kept_pages_are_no_more_than_open_files_need(source: BlockSource) -> None:
    """Pages that are still read make way for fresh ones: a file holds no more by them."""
    blocks = [filled(source) for _ in range(4)]
    bodies = [block.body() for block in blocks]  # of requests that linger
    for block in blocks:
        block.release()
    others = []
    for _ in bodies:
        others.append(filled(source))
        assert source.bytes_in_use + source.bytes_kept <= 4 * MiB


def test_kept_pages_make_room_in_the_budget(source: BlockSource, file: OpenFile) -> None:
    """With blocks they stay within the budget, and never send a block to disk."""
    limits = options(parts_in_flight=3, buffer_bytes_max=4 * MiB)
    for block in [filled(source, MiB, limits) for _ in range(4)]:
        block.release()
    assert source.bytes_kept == 4 * MiB
    large = filled(source, 3 * MiB, limits)
    assert not large.on_disk
    assert source.bytes_in_use + source.bytes_kept <= 4 * MiB


@used_again
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_uses_its_pages_again_and_lets_go_of_them(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """As many pages as are under way at once; after its end, or its failure, none is kept."""
    made: list[int] = []
    real = blocks_module._memory
    monkeypatch.setattr(blocks_module, "_memory", lambda size: made.append(size) or real(size))  # type: ignore[func-returns-value]
    world = World(options=options(MiB, parts_in_flight=2))
    if fails:
        world.store.before = failing(RuntimeError("no"), "put_part", part=19)
    with pytest.raises(UploadFailed) if fails else nullcontext(), world.open() as stream:
        for n in range(20):
            stream.write(bytes([n]) * MiB)
        assert world.blocks.bytes_in_use + world.blocks.bytes_kept <= 3 * MiB
    assert made.count(MiB) <= 4
    assert world.blocks.bytes_kept == 0
    if not fails:
        assert world.published() == b"".join(bytes([n]) * MiB for n in range(20))


def test_a_forked_child_has_none_of_its_parents_blocks_and_pages(source: BlockSource) -> None:
    """They are not counted there, and what is given back of them changes nothing."""
    file = source.open_file(FOUR)
    filled(source).release()
    inherited = filled(source)

    def child() -> None:
        own = source.open_file(FOUR)
        assert (source.bytes_kept, source.bytes_in_use) == (0, 0)
        inherited.release()
        file.end()
        assert (source.bytes_kept, source.bytes_in_use) == (0, 0)
        filled(source).release()
        assert source.bytes_kept == MiB
        own.end()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0


# Parts --------------------------------------------------------------------------------------------


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

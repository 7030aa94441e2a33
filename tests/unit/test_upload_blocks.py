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
from magic_committer.stores.base import FileSlice
from magic_committer.upload import Block, BlockSource
from magic_committer.upload import blocks as blocks_module
from magic_committer.upload.blocks import FIRST_BYTES, MEMORY_BLOCK_BYTES_MAX, OpenFile
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
        buffer="disk" if where == "disk" else "memory",
        buffer_bytes_max=FIRST_BYTES if where == "both" else 2**30,
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
    block = BlockSource().block(100, options(buffer="disk", buffer_dir=str(tmp_path)))
    block.append(memoryview(b"bytes"))
    assert content(block) == b"bytes"
    assert len(os.listdir(tmp_path)) == (0 if nameless and os.path.exists("/proc/self/fd") else 1)
    end(block)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/dev/fd")) == before


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


def test_kept_pages_are_no_more_than_open_files_need(source: BlockSource) -> None:
    """Four for each open file of three parts in flight; the last file takes the last one."""
    one, two = source.open_file(FOUR), source.open_file(FOUR)
    for block in [filled(source) for _ in range(10)]:
        block.release()
    assert source.bytes_kept == 8 * MiB
    one.end()
    one.end()
    assert source.bytes_kept == 4 * MiB
    del two
    assert source.bytes_kept == 0
    filled(source).release()
    assert source.bytes_kept == 0


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

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magic_committer import checksum
from magic_committer.errors import UploadFailed
from magic_committer.options import MiB, Options
from magic_committer.stores.base import FileSlice
from magic_committer.upload import Block, BlockSource
from magic_committer.upload import blocks as blocks_module
from magic_committer.upload.blocks import FIRST_BYTES, MEMORY_BLOCK_BYTES_MAX
from tests.unit.uploading import World, failing, options


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


def test_a_block_grows_to_its_size_and_no_further() -> None:
    """However it is filled, a block's memory stays at most its size."""
    source = BlockSource()
    block = source.block(MiB + 1, options(), first=True)
    piece = memoryview(bytes(range(251)) * 40)
    written = b""
    while block.length < block.size:
        fitting = piece[: block.size - block.length]
        block.append(fitting)
        written += fitting
        assert block.length <= source.bytes_in_use <= block.size
    assert content(block) == written
    assert not block.on_disk


def test_a_block_over_the_budget_moves_to_disk(tmp_path: Path) -> None:
    """A block that may not grow goes on in a file, with all its bytes, and frees its memory."""
    source = BlockSource()
    limits = options(buffer_bytes_max=FIRST_BYTES, buffer_dir=str(tmp_path))
    block = source.block(MiB, limits, first=True)
    block.append(memoryview(b"a" * FIRST_BYTES))
    assert not block.on_disk
    block.append(memoryview(b"b"))
    assert block.on_disk
    assert source.bytes_in_use == 0
    assert content(block) == b"a" * FIRST_BYTES + b"b"
    block.release()


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


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("end", [Block.release, Block.__del__], ids=["released", "dropped"])
@pytest.mark.parametrize("nameless", [True, False])
def test_disk_is_given_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Block], None],
    nameless: bool,
) -> None:
    """Neither file nor descriptor is left, where files can be nameless and where not."""
    if not nameless:
        exists = os.path.exists
        monkeypatch.setattr("os.path.exists", lambda path: "/fd/" not in str(path) and exists(path))
    before = open_files()
    block = BlockSource().block(100, options(buffer="disk", buffer_dir=str(tmp_path)))
    block.append(memoryview(b"bytes"))
    assert content(block) == b"bytes"
    assert len(os.listdir(tmp_path)) == (0 if nameless and os.path.exists("/proc/self/fd") else 1)
    end(block)
    assert os.listdir(tmp_path) == []
    assert open_files() == before


def test_the_budget_holds_among_threads() -> None:
    """Together they never hold more than the budget, and in the end nothing."""
    source = BlockSource()
    limit = 3 * FIRST_BYTES
    seen: list[int] = []

    def work() -> None:
        for _ in range(300):
            block = source.block(4 * FIRST_BYTES, options(buffer_bytes_max=limit), first=True)
            if source.reserve(1, limit):
                seen.append(source.bytes_in_use)
                source.give_back(1, os.getpid())
            block._fits(FIRST_BYTES)
            seen.append(source.bytes_in_use)
            block.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) <= limit
    assert source.bytes_in_use == 0


# Pages that are used again ------------------------------------------------------------------------

used_again = pytest.mark.skipif(sys.platform != "linux", reason="the system cannot say who reads")

FOUR = options(parts_in_flight=3)
"""Options by which four blocks of an open file are kept."""


def filled(source: BlockSource, size: int = MiB, limits: Options = FOUR) -> Block:
    block = source.block(size, limits)
    block.append(memoryview(bytes([7]) * size))
    return block


@used_again
def test_pages_of_a_released_block_are_used_again() -> None:
    """The next block has the same memory and none of the old bytes; both count once."""
    source = BlockSource()
    file = source.open_file(FOUR)
    block = filled(source)
    first = block.memory
    assert first is not None
    pages = first.obj
    del first
    block.release()
    assert (source.bytes_in_use, source.bytes_kept) == (0, MiB)
    again = source.block(MiB, FOUR)
    again.append(memoryview(b"new"))
    assert again.memory is not None
    assert again.memory.obj is pages
    assert content(again) == b"new"
    assert (source.bytes_in_use, source.bytes_kept) == (MiB, 0)
    file.end()


@pytest.mark.parametrize("view", ["the body", "a slice of it"])
def test_pages_that_somebody_reads_are_not_used_again(view: str) -> None:
    """A request that was broken off may send from a released block: what it sends never changes."""
    source = BlockSource()
    file = source.open_file(FOUR)
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
    file.end()


def test_blocks_and_kept_pages_are_no_more_than_open_files_need() -> None:
    """Pages that are still read make way for fresh ones: a file holds no more by them."""
    source = BlockSource()
    file = source.open_file(FOUR)
    blocks = [filled(source) for _ in range(4)]
    bodies = [block.body() for block in blocks]  # of requests that linger
    for block in blocks:
        block.release()
    others = []
    for _ in range(4):
        others.append(filled(source))
        assert source.bytes_in_use + source.bytes_kept <= 4 * MiB
    assert len(bodies) == 4
    file.end()


@used_again
def test_pages_of_another_size_are_given_back() -> None:
    """When a file's parts grow, the pages of the smaller ones do not stay for ever."""
    source = BlockSource()
    file = source.open_file(FOUR)
    filled(source, MiB).release()
    assert source.bytes_kept == MiB
    filled(source, 2 * MiB).release()
    assert source.bytes_kept == 2 * MiB
    file.end()


def test_kept_pages_are_no_more_than_open_files_need() -> None:
    """Four blocks for each open file of three parts in flight; the last file takes the last one."""
    source = BlockSource()
    one, two = source.open_file(FOUR), source.open_file(FOUR)
    blocks = [filled(source) for _ in range(10)]
    for block in blocks:
        block.release()
    assert source.bytes_kept == 8 * MiB
    one.end()
    one.end()
    assert source.bytes_kept == 4 * MiB
    two.end()
    assert source.bytes_kept == 0
    late = filled(source)
    late.release()
    assert source.bytes_kept == 0


def test_a_dropped_file_keeps_nothing() -> None:
    """A file that nobody ended lets go of its pages when it is dropped."""
    source = BlockSource()
    file = source.open_file(FOUR)
    filled(source).release()
    assert source.bytes_kept == MiB
    del file
    assert source.bytes_kept == 0


def test_kept_pages_make_room_in_the_budget() -> None:
    """With blocks they stay within the budget, and never send a block to disk."""
    source = BlockSource()
    limits = options(parts_in_flight=3, buffer_bytes_max=4 * MiB)
    file = source.open_file(limits)
    for block in [filled(source, MiB, limits) for _ in range(4)]:
        block.release()
    assert source.bytes_kept == 4 * MiB
    large = filled(source, 3 * MiB, limits)
    assert not large.on_disk
    assert source.bytes_in_use + source.bytes_kept <= 4 * MiB
    large.release()
    file.end()


@used_again
def test_a_stream_uses_its_pages_again_and_lets_go_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts a file has, its blocks come from as many pages as are under way at once;
    after its close none is kept."""
    made: list[int] = []
    real = blocks_module._memory

    def counted(size: int) -> memoryview:
        made.append(size)
        return real(size)

    monkeypatch.setattr(blocks_module, "_memory", counted)
    world = World(options=options(MiB, parts_in_flight=2))
    with world.open() as stream:
        for n in range(20):
            stream.write(bytes([n]) * MiB)
        assert world.blocks.bytes_in_use + world.blocks.bytes_kept <= 3 * MiB
    assert made.count(MiB) <= 4
    assert world.published() == b"".join(bytes([n]) * MiB for n in range(20))
    assert world.blocks.bytes_kept == 0


def test_a_failed_stream_keeps_no_pages() -> None:
    """The end by an error lets go of them as `close` does."""
    world = World(options=options(MiB))
    world.store.before = failing(RuntimeError("no"), "put_part", part=3)
    stream = world.open()
    with pytest.raises(UploadFailed):
        for _ in range(9):
            stream.write(bytes(MiB))
    assert world.blocks.bytes_kept == 0
    world.assert_nothing_left()


def in_child(function: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_forked_child_keeps_none_of_its_parents_pages() -> None:
    """They are no memory of the child's, and a parent's file that ends there changes nothing."""
    source = BlockSource()
    file = source.open_file(FOUR)
    filled(source).release()
    inherited = filled(source)

    def child() -> None:
        own = source.open_file(FOUR)
        assert source.bytes_kept == 0
        inherited.release()
        file.end()
        assert source.bytes_kept == 0
        filled(source).release()
        assert source.bytes_kept == MiB
        own.end()

    in_child(child)


def test_a_forked_child_counts_from_zero() -> None:
    """In a child the parent's blocks are not counted, nor what is given back of them."""
    source = BlockSource()
    inherited = source.block(FIRST_BYTES, options())
    inherited.append(memoryview(b"parent's"))

    def child() -> None:
        assert source.reserve(10, 10)
        inherited.release()
        assert source.bytes_in_use == 10

    in_child(child)

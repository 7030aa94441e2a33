from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magic_committer.options import MiB
from magic_committer.stores.base import FileSlice
from magic_committer.upload import Block, BlockSource
from magic_committer.upload.blocks import FIRST_BYTES, MEMORY_BLOCK_BYTES_MAX
from tests.unit.uploading import options


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
    """A block on disk leaves neither file nor descriptor, where files can be nameless and where
    not."""
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


def test_an_empty_block_has_an_empty_body() -> None:
    """The one part of an empty file is empty."""
    block = BlockSource().block(100, options(), first=True)
    assert content(block) == b""


def test_the_budget_holds_among_threads() -> None:
    """Threads that take and give back never hold more than the budget together, and in the end
    nothing is held."""
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


def test_a_forked_child_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child the parent's blocks are not counted, nor what is given back of them."""
    source = BlockSource()
    inherited = source.block(FIRST_BYTES, options())
    inherited.append(memoryview(b"parent's"))
    pid: Any = os.getpid() + 1
    monkeypatch.setattr("os.getpid", lambda: pid)
    assert source.reserve(10, 10)
    inherited.release()
    assert source.bytes_in_use == 10

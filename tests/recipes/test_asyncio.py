"""The asyncio recipe: a body is stored, or nothing is, and the event loop stays free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from examples.recipes import with_asyncio
from magic_committer.testing import MemoryStore, memory_store

DEST = "s3://bucket/table"


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    """An empty store in memory."""
    with memory_store() as store:
        yield store


def nothing_is_left(store: MemoryStore) -> bool:
    """No object, no record, no upload."""
    return store.keys() == () and not store.open_uploads()


async def body(chunks: int, breaks_after: int | None = None) -> AsyncIterator[bytes]:
    """The body of a request."""
    for number in range(chunks):
        if number == breaks_after:
            raise ConnectionResetError("the client has gone")
        await asyncio.sleep(0)
        yield b"x" * 100_000


def test_a_body_is_stored(memory_s3: MemoryStore) -> None:
    """All chunks, in one file."""
    report = asyncio.run(with_asyncio.receive(body(120), "upload.bin", DEST))
    assert report is not None
    assert (report.files, report.bytes) == (1, 12_000_000)


def test_a_client_that_goes_away_leaves_nothing(memory_s3: MemoryStore) -> None:
    """Its error reaches the caller."""
    with pytest.raises(ConnectionResetError):
        asyncio.run(with_asyncio.receive(body(120, breaks_after=100), "upload.bin", DEST))
    assert nothing_is_left(memory_s3)


def test_the_loop_stays_free(memory_s3: MemoryStore) -> None:
    """While a slow store takes the parts, other work of the loop goes on."""
    memory_s3.before = lambda request: time.sleep(0.05)
    late: list[float] = []

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - before)

    async def main() -> None:
        watching = asyncio.ensure_future(watch())
        await with_asyncio.receive(body(3), "upload.bin", DEST)
        watching.cancel()

    asyncio.run(main())
    assert len(late) > 20
    assert sorted(late)[len(late) // 2] < 0.05


@pytest.mark.parametrize("waiting", ["for the client", "for the store"])
def test_a_request_that_is_cancelled_leaves_nothing(memory_s3: MemoryStore, waiting: str) -> None:
    """Also while its client is silent, or the store is slow."""
    if waiting == "for the store":
        memory_s3.before = lambda request: time.sleep(0.1)

    async def silent() -> AsyncIterator[bytes]:
        yield b"x" * 6 * 1024**2
        if waiting == "for the client":
            await asyncio.sleep(60)
        yield b"x" * 6 * 1024**2

    async def main() -> None:
        receiving = asyncio.ensure_future(with_asyncio.receive(silent(), "upload.bin", DEST))
        await asyncio.sleep(0.25)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 30
    memory_s3.before = None
    assert nothing_is_left(memory_s3)

"""The asyncio recipe: a body is stored, or nothing is, and the event loop stays free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from examples.recipes import with_asyncio
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore

DEST = "s3://bucket/table"


def nothing_is_left(store: MemoryStore) -> bool:
    return store.keys() == () and not store.open_uploads()


async def body(chunks: int, breaks_after: int | None = None) -> AsyncIterator[bytes]:
    """The body of a request."""
    for number in range(chunks):
        if number == breaks_after:
            raise ConnectionResetError("the client has gone")
        await asyncio.sleep(0)
        yield b"x" * 100_000


def test_a_body_is_stored(memory_s3: MemoryStore) -> None:
    """In one file; of a client that goes away nothing, and its error reaches the caller."""
    with pytest.raises(ConnectionResetError):
        asyncio.run(with_asyncio.receive(body(120, breaks_after=100), "upload.bin", DEST))
    assert nothing_is_left(memory_s3)
    report = asyncio.run(with_asyncio.receive(body(120), "upload.bin", DEST))
    assert report is not None
    assert (report.files, report.bytes) == (1, 12_000_000)


def test_the_loop_stays_free(memory_s3: MemoryStore) -> None:
    """While a slow store takes the parts, other work of the loop goes on."""
    turns = threading.Semaphore(0)
    asked: list[bool] = []

    def slow(request: Request) -> None:
        asked.append(turns.acquire(timeout=300))

    memory_s3.before = slow

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.01)
            turns.release()

    async def main() -> None:
        watching = asyncio.ensure_future(watch())
        await with_asyncio.receive(body(3), "upload.bin", DEST)
        watching.cancel()

    asyncio.run(main())
    assert len(asked) > 3
    assert all(asked), "a request of the store held the loop"


@pytest.mark.parametrize("waiting", ["for the client", "for the store"])
def test_a_request_that_is_cancelled_leaves_nothing(memory_s3: MemoryStore, waiting: str) -> None:
    """Also while its client is silent, or the store is slow."""
    waits, is_cancelled = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        if request.verb == "put_part" and waiting == "for the store":
            waits.set()
            assert is_cancelled.wait(300)

    memory_s3.before = slow

    async def silent() -> AsyncIterator[bytes]:
        yield b"x" * 6 * 1024**2
        if waiting == "for the client":
            waits.set()
            await asyncio.Event().wait()
        for _ in range(20):
            yield b"x" * 6 * 1024**2

    async def main() -> None:
        receiving = asyncio.ensure_future(with_asyncio.receive(silent(), "upload.bin", DEST))
        assert await asyncio.to_thread(waits.wait, 300)
        receiving.cancel()
        is_cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await receiving

    asyncio.run(main())
    memory_s3.before = None
    assert nothing_is_left(memory_s3)

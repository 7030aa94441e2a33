"""asyncio: the body of a request is streamed into a file, and the event loop
stays free.

One thread writes. It asks the loop for the next chunk when it has written the
last one: that is the back-pressure. A client that goes away, or a request that
is cancelled, publishes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable

import magic_committer as mc


async def receive(
    body: AsyncIterable[bytes], name: str, dest: str
) -> mc.JobReport | None:
    """Store a body as one file."""
    loop = asyncio.get_running_loop()
    chunks = aiter(body)
    asking: list[asyncio.Task[object]] = []
    gone = False

    async def next_chunk() -> bytes | None:
        if gone:
            raise ConnectionAbortedError("the request is cancelled")
        task = asyncio.current_task()
        assert task is not None
        asking[:] = [task]
        return await anext(chunks, None)

    def store() -> mc.JobReport | None:
        with mc.write(dest) as job, job.open(name, unique=True) as file:
            while True:
                chunk = asyncio.run_coroutine_threadsafe(
                    next_chunk(), loop
                ).result()
                if chunk is None:
                    break
                file.write(chunk)
        return job.report

    writing = asyncio.ensure_future(asyncio.to_thread(store))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        gone = True
        for task in asking:
            task.cancel()
        await asyncio.wait([writing])  # it aborts the job
        raise

"""An in-memory store in a process of its own, so that a test can measure the memory of one side.

Verbs travel over a pipe, one connection for each thread; listings travel page by page.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from magic_committer._pool import ThreadPool
from magic_committer.errors import StoreError
from magic_committer.stores.base import ObjectPage, UploadPage
from magic_committer.stores.memory import MemoryStore

PAGED = ("list", "list_uploads")


def serve(new: Connection) -> None:
    """Answer every connection that comes over ``new`` until it closes."""
    store = MemoryStore()
    while True:
        try:
            connection = new.recv()
        except EOFError:
            return
        threading.Thread(target=_answer, args=(store, connection), daemon=True).start()


def _answer(store: MemoryStore, connection: Connection) -> None:
    pages: Iterator[Any] = iter(())
    while True:
        try:
            verb, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            if verb == "next":
                reply = next(pages, None)
            elif verb in PAGED:
                pages, reply = getattr(store, verb)(*args, **kwargs), None
            else:
                reply = getattr(store, verb)(*args, **kwargs)
        except StoreError as error:
            reply = error
        connection.send(reply)


class FarStore:
    """The near end: an `ObjectStore` whose memory is another process's."""

    bucket = "bucket"
    identity = "far:bucket"

    def __init__(self, new: Connection) -> None:
        self._new = new
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._pool = ThreadPool(name="far-store")

    def _ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            near, far = multiprocessing.Pipe()
            with self._lock:
                self._new.send(far)
            far.close()
            connection = self._mine.connection = near
        connection.send((verb, args, kwargs))
        reply = connection.recv()
        if isinstance(reply, StoreError):
            raise reply
        return reply

    def __getattr__(self, verb: str) -> Any:
        if not hasattr(MemoryStore, verb):
            raise AttributeError(verb)  # it is asked what it can do
        return lambda *args, **kwargs: self._ask(verb, *args, **kwargs)

    def list(self, *args: Any, **kwargs: Any) -> Iterator[ObjectPage]:
        return self._pages("list", args, kwargs)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        return self._pages("list_uploads", (prefix,), {})

    def _pages(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        self._ask(verb, *args, **kwargs)
        while (page := self._ask("next")) is not None:
            yield page

    def put_part(
        self, key: str, upload_id: str, number: int, body: Any, *, checksum: Any = None
    ) -> Any:
        """Part bodies are views: only bytes travel."""
        return self._ask("put_part", key, upload_id, number, bytes(body), checksum=checksum)


@contextmanager
def far_store() -> Iterator[FarStore]:
    """A store in a child process, which ends with the block."""
    near, far = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(far,), daemon=True)
    child.start()
    far.close()
    try:
        yield FarStore(near)
    finally:
        near.close()
        child.terminate()
        child.join()

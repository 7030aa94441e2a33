"""Pages of a listing, requested while the caller does something else.

For callers who read a listing to its end: a store takes as long for a page of 1,000 uploads as the
caller. Whoever works long on a page would get the next one when it is old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from magic_committer._patience import Errand, was_interrupted
from magic_committer._pool import Future, result_of
from magic_committer._runtime import Runtime
from magic_committer.errors import StoreError

P = TypeVar("P")


class Ahead(Generic[P]):
    """The pages of a listing, for one loop in a ``with`` block. From the block's begin on a thread
    of the pool requests them. The block's end gives a request under way up, and nothing more is
    requested, also not by what waits for a thread. Its loop raises the listing's `StoreError` after
    all pages before it."""

    def __init__(
        self, runtime: Runtime, pages: Callable[[], Iterator[P]], *, pages_max: int = 1
    ) -> None:
        self._pool = runtime.pool
        self._list = pages
        self._pages: Iterator[P] | None = None
        self._pages_max = pages_max
        self._errand = Errand()
        self._there: deque[P] = deque()
        self._ended = self._working = False
        self._failure: StoreError | None = None
        self._coming: Future[None]

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Request nothing more. The end of the block does it. Repeatable."""
        if not self._coming.done():
            self._errand.end(0.0)
            if self._working and not was_interrupted():
                result_of(self._coming)

    def __iter__(self) -> Iterator[P]:
        while not self._ended or self._there:  # in this order: the last page comes before the end
            if not self._there or self._coming.done():
                result_of(self._coming)
            page = self._there.popleft() if self._there else None
            if not self._ended and self._coming.done():
                self._begin()
            if page is not None:
                yield page
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        self._working = False
        with self._errand.here():
            self._coming = self._pool.submit(self._request)

    def _request(self) -> None:
        """Request pages until there are enough."""
        self._working = True  # first this, then the look: `close` does it the other way round
        while not self._ended and len(self._there) < self._pages_max:
            try:
                if self._pages is None:
                    self._pages = self._list()
                page = None if self._errand.over else next(self._pages, None)
            except StoreError as error:
                page, self._failure = None, error
            if page is None:
                self._ended = True
            else:
                self._there.append(page)

"""Pages of a listing, the next one requested while the caller works on this one.

For callers who read a listing to its end and do little with a page: a store takes as long for a
page of 1,000 uploads as the caller. Whoever works long on a page would get the next one when it is
old.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TypeVar

from magic_committer._patience import Errand, was_interrupted
from magic_committer._pool import Future, result_of
from magic_committer._runtime import Runtime
from magic_committer.errors import StoreError

P = TypeVar("P")


def ahead(runtime: Runtime, pages: Iterator[P]) -> Generator[P, None, None]:
    """The same pages, at most one ahead of the caller. The first one is requested in the caller's
    thread, the others in the pool's, one at a time. Close the generator: a request under way is
    given up, and nothing more is requested, also not by what waits for a thread.

    Args:
        runtime: the components.
        pages: the pages. Nobody else may ask for them.

    Raises:
        StoreError: a page could not be had; it comes after all pages before it.
    """
    page = next(pages, None)
    errand, begun = Errand(), False

    def coming_page() -> P | None:
        nonlocal begun
        begun = True  # first this, then the look: `finally` does it the other way round
        return None if errand.over else next(pages, None)

    coming: Future[P | None] | None = None
    try:
        while page is not None:
            begun = False
            with errand.here():
                coming = runtime.pool.submit(coming_page)
            yield page
            page = result_of(coming)
    finally:
        if coming is not None and not coming.done():
            errand.end(0.0)
            if begun and not was_interrupted():
                with suppress(StoreError):  # nobody wants that page
                    result_of(coming)

"""What all mechanisms of a job of renames work with, as one value, and how often they try.

`Parts` is for a file tree what `Runtime` is for a store. A verb that got no answer may have taken
effect: `Parts.again` repeats only calls that may be repeated, and the caller of every other verb
looks at what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from magic_committer._pool import Pool
from magic_committer._runtime import Clock, ProgressFunction
from magic_committer.errors import InvalidRequest, Unanswered
from magic_committer.file_trees.base import FileTree, parent_of

TRIES_MAX = 6
"""How often a call without an answer is made, and a write whose effect is not known."""
PAUSE_SECONDS = 0.1
"""Pause before the second try, in seconds. It doubles each time: 3 seconds in all."""

QUICK_SECONDS = 0.0005
"""Seconds for an item, up to which threads only hinder each other: a local disk takes a tenth of
that, a network file system more (40,000 files on two cores: 2.2 s by one thread, 3.3 by 32)."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Parts:
    """The components of one job in one process. Never pickled.

    Attributes:
        tree: the destination.
        pool, clock, ids, progress: as in `Process`.
        in_flight: how many threads work at once.
    """

    tree: FileTree
    pool: Pool
    clock: Clock
    ids: Callable[[], str]
    progress: ProgressFunction
    in_flight: int

    def again(self, call: Callable[[], T]) -> T:
        """Make a call that may be repeated, until it is answered.

        Raises:
            Unanswered: it was not, `TRIES_MAX` times. Every other error, at once.
        """
        for number in range(TRIES_MAX - 1):
            try:
                return call()
            except Unanswered:
                self.pause(number)
        return call()

    def pause(self, number: int) -> None:
        """Wait before try ``number + 2``."""
        self.clock.sleep(PAUSE_SECONDS * 2**number)

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a function on every item, in batches of the tree's size, and give what it returns, in
        no order. The first error ends it, after what is under way. Where calls are quick, this
        thread does them all; from the first slow batch on, the pool does the rest."""

        def batch(these: list[T]) -> list[R]:
            return [function(item) for item in these]

        batches = batched(items, self.tree.promises.batch_files)
        for these in batches:
            began = self.clock.monotonic()
            done = batch(these)
            seconds = self.clock.monotonic() - began
            yield from done
            if seconds > QUICK_SECONDS * len(these):
                break
        with closing(self.pool.each(batch, batches, in_flight=self.in_flight)) as outcomes:
            for outcome in outcomes:
                yield from outcome.unwrap()


class RealDirectories:
    """Sees that a path leads through directories, and not through a link out of the destination:
    whoever may write there may have made one. Each directory is looked at once. Safe for threads.

    Args:
        parts: the components.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seen = {""}

    def check(self, path: str) -> None:
        """Look at the directories above a path. One that is missing is fine.

        Raises:
            InvalidRequest: one of them is a link.
            StoreError: it could not be looked at.
        """
        tree, above, directory = self._parts.tree, list[str](), parent_of(path)
        if not tree.promises.directories:
            return
        while directory not in self._seen:
            above.append(directory)
            directory = parent_of(directory)
        for directory in reversed(above):
            entry = self._parts.again(lambda directory=directory: tree.stat(directory))  # type: ignore[misc]  # mypy infers no lambda with a default
            if entry is None or entry.kind == "file":
                return
            if entry.kind == "other":
                raise InvalidRequest(
                    f"{tree.url}{directory} is a link, and links are not followed: {path!r} could"
                    " be anywhere",
                    operation="stat", bucket=tree.url, key=directory, code="Link",
                    hint="Put a directory in its place, with what belongs there",
                )  # fmt: skip
            self._seen.add(directory)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to ``size`` items."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch

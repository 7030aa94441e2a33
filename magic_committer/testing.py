"""For users' own tests: an in-memory S3 with the rules of the real S3, behind the ordinary calls.

In a ``conftest.py``::

    pytest_plugins = ["magic_committer.testing"]

and in a test::

    def test_export(memory_s3):                        # the bucket is "bucket"
        export_to("s3://bucket/table")                 # your code, with magic_committer.write
        assert memory_s3.keys() == ("table/_SUCCESS", "table/a.csv")
        assert not memory_s3.open_uploads()

The store exists in this process only: code in other processes does not see it. While it exists,
every other bucket is an error, so that a wrong name in a test cannot reach the real S3. Use a
second `memory_store` for a second bucket.

The store has two hooks, ``before`` and ``after``. They see every request (`Request`) and can refuse
it, delay it, repeat it or lose its reply. They are public and stable; docs/testing.md has examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from magic_committer.commit.probe import trust_memory
from magic_committer.runtime.components import Clock, SystemClock
from magic_committer.runtime.wiring import OtherBuckets, register_store, unregister_store
from magic_committer.stores.memory import MemoryStore, Request

__all__ = ["MemoryStore", "PatientClock", "Request", "memory_s3", "memory_store"]


class PatientClock(SystemClock):
    """This machine's clock, but nobody waits: a sleep only adds to ``ahead``, the seconds by which
    it is ahead. A test may set ``ahead`` itself."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.ahead += seconds


@contextmanager
def memory_store(
    bucket: str = "bucket",
    *,
    clock: Clock | None = None,
    other_buckets: OtherBuckets = "raise",
    **rules: Any,
) -> Iterator[MemoryStore]:
    """Use an in-memory store for ``bucket`` in this process, in all its threads, while the block
    runs. At first the store is empty, and its hooks ``before`` and ``after`` are None. Blocks may
    be nested. Each bucket has its own store; a second store for the same bucket hides the first
    until the second block ends. Repeatable: each call makes another store.

    Args:
        bucket: the bucket's name; ``"bucket"`` by default.
        clock: the clock of the store and of its jobs; None (default): a `PatientClock`, so that no
            test waits.
        other_buckets: what happens with a bucket that has no in-memory store. ``"raise"``
            (default): its use raises `OptionError`, and nothing is sent. ``"allow"``: the real
            bucket is used, as the environment says; in nested blocks all must allow it.
        rules: arguments for `MemoryStore`, for example ``forgetful_complete=True``.

    Returns:
        A context manager that gives the store.

    Raises:
        TypeError, ValueError: `MemoryStore` does not take these ``rules``.
    """
    clock = clock or PatientClock()
    store = MemoryStore(bucket, clock=clock.now, **rules)
    register_store(store, clock, other_buckets=other_buckets)
    trust_memory(store.identity)
    try:
        yield store
    finally:
        unregister_store(store)


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    """A pytest fixture: an empty in-memory store for the bucket ``"bucket"``. Every other bucket is
    an error."""
    with memory_store() as store:
        yield store

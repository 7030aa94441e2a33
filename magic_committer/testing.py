"""For users' own tests: an in-memory S3 with S3's real rules, behind the ordinary calls.

In a ``conftest.py``::

    pytest_plugins = ["magic_committer.testing"]

and in a test::

    def test_export(memory_s3):                        # the bucket is "bucket"
        export_to("s3://bucket/table")                 # your code, with magic_committer.write
        assert memory_s3.keys() == ("table/_SUCCESS", "table/a.csv")
        assert not memory_s3.open_uploads()

The store lives in this process only: code that runs in others does not see it. While it is there
every other bucket is an error, so that a test cannot reach the real S3 by a wrong name; a second
bucket is a second `memory_store`.

Two hooks of the store, ``before`` and ``after``, see every request (`Request`) and can refuse it,
delay it, repeat it or lose its reply. They are public and stay as they are; docs/testing.md has
examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from magic_committer._runtime import Clock, SystemClock
from magic_committer._wiring import OtherBuckets, register_store, unregister_store
from magic_committer.commit.probe import trust_completes
from magic_committer.stores.memory import MemoryStore, Request

__all__ = ["MemoryStore", "PatientClock", "Request", "memory_s3", "memory_store"]


class PatientClock:
    """This machine's clock, but nobody waits: a sleep moves it on. Set ``ahead`` to move it."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._clock = SystemClock()

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead

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
    runs. It begins empty, and its hooks ``before`` and ``after`` are None. Blocks may be nested:
    each bucket has its own store, and a second one of the same bucket hides the first until it
    ends.

    Args:
        bucket: its name.
        clock: the store's and the jobs'; None: a `PatientClock`, so that no test waits.
        other_buckets: what a bucket is that no store was given for. ``"raise"``: using it is an
            `OptionError`, and nothing is sent. ``"allow"``: it is the real one, reached as the
            environment says; it takes all open blocks to allow it.
        rules: as `MemoryStore`'s, e.g. ``forgetful_complete=True``.

    Raises:
        TypeError, ValueError: ``rules`` that `MemoryStore` does not take.
    """
    clock = clock or PatientClock()
    store = MemoryStore(bucket, clock=clock.now, **rules)
    register_store(store, clock, other_buckets=other_buckets)
    trust_completes(store.identity)
    try:
        yield store
    finally:
        unregister_store(store)


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    """An empty in-memory store for the bucket ``"bucket"``; every other bucket is an error."""
    with memory_store() as store:
        yield store

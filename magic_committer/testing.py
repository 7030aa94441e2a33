"""For users' own tests: an in-memory S3 with S3's real rules, behind the ordinary calls.

In a ``conftest.py``::

    pytest_plugins = ["magic_committer.testing"]

and in a test::

    def test_export(memory_s3):                        # the bucket is "bucket"
        export_to("s3://bucket/table")                 # your code, with magic_committer.write
        assert memory_s3.keys() == ("table/_SUCCESS", "table/a.csv")
        assert not memory_s3.open_uploads()

The store lives in this process only: code that runs in others does not see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from magic_committer.memory import MemoryStore
from magic_committer.runtime import Clock, SystemClock
from magic_committer.wiring import register_store, unregister_store

__all__ = ["MemoryStore", "PatientClock", "memory_s3", "memory_store"]


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
    bucket: str = "bucket", *, clock: Clock | None = None, **rules: Any
) -> Iterator[MemoryStore]:
    """Use an in-memory store for ``bucket`` in this process while the block runs.

    Args:
        clock: the store's and the jobs'; None: a `PatientClock`, so that no test waits.
        rules: as `MemoryStore`'s, e.g. ``forgetful_complete=True``.
    """
    clock = clock or PatientClock()
    store = MemoryStore(bucket, clock=clock.now, **rules)
    register_store(store, clock)
    try:
        yield store
    finally:
        unregister_store(store)


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    """An empty in-memory store for the bucket ``"bucket"``."""
    with memory_store() as store:
        yield store

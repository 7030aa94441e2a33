"""The in-memory store behind the public calls, and a few hands to work it with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magic_committer.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.promises import hands
from tests.promises.machine import Machine


@pytest.fixture(scope="session", autouse=True)
def buried() -> Iterator[None]:
    """Files of attempts that were "killed" would tell of it when the interpreter ends."""
    yield
    hands.bury()


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    """The bucket ``bucket``, empty, with a store clock that this test moves."""
    with memory_store() as store:
        yield store


@pytest.fixture
def machine() -> Iterator[Machine]:
    """An empty store."""
    clock = PatientClock()
    with memory_store(clock=clock) as s3:
        yield Machine(s3, clock)
        s3.before = s3.after = None

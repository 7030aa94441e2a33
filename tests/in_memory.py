"""Fixtures of the in-memory store and its clock, for the folders whose conftest.py names them.

A test that needs a store of another kind overrides ``s3`` in its own file; ``machine`` is on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from magic_committer.runtime.components import Clock
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.promises import hands
from tests.promises.machine import Machine
from tests.tree_bucket import jobs_of_renames, tree_bucket


@pytest.fixture(scope="module", autouse=True)
def buried() -> Iterator[None]:
    """Files of attempts that were "killed" would tell of it when the interpreter ends."""
    yield
    hands.bury()


@pytest.fixture
def clock() -> PatientClock:
    """The clock of the store and of everybody, which this test moves."""
    return PatientClock()


Fresh = Callable[..., AbstractContextManager[MemoryStore]]
"""Opens an empty store; its argument is the clock."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """What the store is: ``"s3"``, a dict; ``"tree"``, a directory; ``"manifest"``, a directory
    whose jobs are of that committer (`tests.tree_bucket`)."""
    return str(getattr(request, "param", "s3"))


@pytest.fixture
def fresh(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """Makes stores of the test's kind, for tests that need many."""

    @contextmanager
    def opened(clock: Clock | None = None) -> Iterator[MemoryStore]:
        clock = clock or PatientClock()
        if kind == "s3":
            one: AbstractContextManager[MemoryStore] = memory_store(clock=clock)
        elif kind == "tree":
            one = tree_bucket(tmp_path_factory.mktemp("tree"), "bucket", clock=clock)
        else:
            one = jobs_of_renames(tmp_path_factory.mktemp("tree"), clock=clock)
        with one as store:
            yield store
            store.before = store.after = None  # what still ends, ends unhindered

    return opened


@pytest.fixture
def s3(fresh: Fresh, clock: PatientClock) -> Iterator[MemoryStore]:
    """The bucket ``bucket``, empty, which goes by `clock`."""
    with fresh(clock) as store:
        yield store


@pytest.fixture
def machine(s3: MemoryStore, clock: PatientClock) -> Machine:
    """Makes jobs in any state in that bucket."""
    return Machine(s3, clock)

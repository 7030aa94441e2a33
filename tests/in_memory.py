"""Fixtures of the in-memory store and its clock, for the folders whose conftest.py names them.

A test that needs a store of another kind overrides ``s3`` in its own file; ``machine`` is on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

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


@pytest.fixture
def s3(
    request: pytest.FixtureRequest, clock: PatientClock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryStore]:
    """The bucket ``bucket``, empty, which goes by `clock`: a dict, or a directory (`on_trees`)."""
    with ExitStack() as stack:
        store: MemoryStore
        kind = getattr(request, "param", "s3")
        if kind == "tree":
            root = tmp_path_factory.mktemp("tree")
            store = stack.enter_context(tree_bucket(root, "bucket", clock=clock))
        elif kind == "manifest":
            root = tmp_path_factory.mktemp("tree")
            store = stack.enter_context(jobs_of_renames(root, clock=clock))
        else:
            store = stack.enter_context(memory_store(clock=clock))
        yield store
        store.before = store.after = None  # what still ends, ends unhindered


@pytest.fixture
def machine(s3: MemoryStore, clock: PatientClock) -> Machine:
    """Makes jobs in any state in that bucket."""
    return Machine(s3, clock)

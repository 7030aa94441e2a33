"""What the tests of engines share: moto's server, which workers find by the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magic_committer.testing import MemoryStore, memory_store
from tests.engines.seen import Bucket
from tests.servers import moto_in_the_environment, moto_options, outside


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    """An empty store in memory."""
    with memory_store() as store:
        yield store


@pytest.fixture(scope="session")
def server() -> Iterator[Bucket]:
    """A bucket, seen from outside. The environment says the way to it."""
    with moto_in_the_environment() as url:
        yield Bucket(outside(moto_options(url)))

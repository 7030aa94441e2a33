"""The destinations of the recipes: a store in memory, and a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from magic_committer.testing import MemoryStore, memory_store
from tests.destinations import There, opened


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    with memory_store() as store:
        yield store


@pytest.fixture(params=["s3", "manifest"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[There]:
    """An empty destination of each kind; the blank of a disk's must be encoded in URLs."""
    yield from opened(request.param, tmp_path / "a table")

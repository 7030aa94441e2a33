"""As ``tests/spark``: these tests take longer, and are no part of ``make test``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import environment, event_log, gate, lake, spark, via
from tests.spark.lake import Disk, Lake
from tests.spark_faces.feed import Feed

__all__ = ["environment", "event_log", "feed", "gate", "lake", "spark", "via"]


@pytest.fixture(params=["lake", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Lake | Disk:
    """A destination on S3, or on a disk."""
    if request.param == "disk":
        return Disk(tmp_path / "table")
    lake: Lake = request.getfixturevalue("lake")
    return lake


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Input without a batch."""
    return Feed(tmp_path)

"""As ``tests/spark``: these tests take longer, and are no part of ``make test``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import environment, event_log, gate, lake, place, spark, via
from tests.spark_faces.feed import Feed

__all__ = ["environment", "event_log", "feed", "gate", "lake", "place", "spark", "via"]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Input without a batch."""
    return Feed(tmp_path)

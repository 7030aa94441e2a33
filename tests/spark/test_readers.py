"""Spark as a reader of a table of ours; the other readers are in tests/recipes/test_readers.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magic_committer.testing import MemoryStore
from tests.recipes.test_readers import TABLES, mirrored


@pytest.mark.parametrize("make", TABLES)
def test_spark_finds_the_published_rows(
    spark: SparkSession, make: Callable[[MemoryStore], None], tmp_path: Path
) -> None:
    """Whatever control objects stand beside the data."""
    assert spark.read.parquet(mirrored(make, tmp_path)).count() == 3

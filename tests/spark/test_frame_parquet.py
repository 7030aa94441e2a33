"""Parquet files of `write_dataframe` beside those of Spark's own writer: size, codec, row groups,
and what Spark skips when it reads with a filter."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from magic_committer.spark import write_dataframe
from tests.spark.lake import Lake

LARGER_MAX = 1.05
ROWS = 300_000
KINDS = {
    "unique numbers": "xxhash64(id)",
    "numbers in a row": "id",
    "doubles": "rand(1)",
    "small decimals": "cast(id / 8 AS decimal(12,2))",
    "large decimals": "cast(xxhash64(id) AS decimal(38,5))",
    "unique texts": "concat('name ', lpad(id, 15, '0'))",
    "few texts": "concat('city ', id % 500)",
    "some texts": "concat('village ', hash(id) % 10000)",
    "dates": "date_add(date'2020-01-01', cast(id % 3000 AS int))",
    "instants": "timestamp_micros(1700000000000000 + id * 1001)",
    "mostly null": "IF(id % 100 = 0, id, null)",
    "nested": "named_struct('a', id, 'b', array(id % 7))",
}


def footer(lake: Lake) -> Any:
    """The metadata of the only file."""
    (body,) = lake.data().values()
    return pyarrow.parquet.ParquetFile(BytesIO(body)).metadata


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_not_larger_than_sparks(
    spark: SparkSession, lake: Lake, tmp_path: Path, kind: str
) -> None:
    """At most 5 % larger than what ``df.write.parquet`` makes of the same rows."""
    df = spark.range(0, ROWS, 1, 1).selectExpr(f"{KINDS[kind]} AS v")
    write_dataframe(df, lake.dest)
    df.write.parquet(str(tmp_path / "theirs"))
    theirs = sum(file.stat().st_size for file in (tmp_path / "theirs").glob("part-*"))
    ours = sum(len(body) for body in lake.data().values())
    assert theirs > 1_000
    assert ours <= LARGER_MAX * theirs + 4_000  # the footer holds the schema twice


FILTERS = {
    "long": ("id", "v = 150000"),
    "decimal": ("cast(id AS decimal(12,2))", "v = 150000.00BD"),
    "large decimal": ("cast(id AS decimal(30,2))", "v = 150000.00BD"),
    "text": ("lpad(id, 12, '0')", "v = '000000150000'"),
    "double": ("cast(id AS double)", "v = 150000D"),
    "date": ("date_add(date'1000-01-01', cast(id AS int))", "v = date'1410-09-08'"),
    "instant": ("timestamp_seconds(id * 60)", "v = timestamp'1970-04-15 04:00:00 UTC'"),
}
"""Values, and a filter that one row passes. Spark 4.3 pushes no filter on timestamp_ntz down."""


def rows_scanned(df: DataFrame) -> int:
    """How many rows Spark's reader took out of the files of a query that was run."""
    plan: Any = df._jdf.queryExecution().executedPlan()
    leaf = plan.collectLeaves().head()
    return int(leaf.metrics().get("numOutputRows").get().value())


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_skips_row_groups(
    spark: SparkSession, lake: Lake, tmp_path: Path, kind: str
) -> None:
    """By statistics and the index of pages Spark takes few rows out of the files."""
    value, where = FILTERS[kind]
    df = spark.range(0, ROWS, 1, 1).selectExpr(f"{value} AS v", "id")
    write_dataframe(df, lake.dest, writer_options={"parquet.block.size": 1024**2})
    assert footer(lake).num_row_groups > 3
    found = spark.read.parquet(lake.copied(tmp_path / "ours")).where(where)
    assert len(found.collect()) == 1
    assert 0 < rows_scanned(found) <= ROWS / 4


@pytest.mark.parametrize(
    ("setting", "options", "expected"),
    [
        (None, {}, "SNAPPY"),
        ("zstd", {}, "ZSTD"),
        ("zstd", {"compression": "GZIP"}, "GZIP"),
        ("gzip", {"parquet.compression": "uncompressed"}, "UNCOMPRESSED"),
        (None, {"compression": "lz4_raw"}, "LZ4"),
    ],
)
def test_the_codec_is_sparks(
    spark: SparkSession, lake: Lake, setting: str | None, options: dict[str, Any], expected: str
) -> None:
    """The option comes first, then Spark's configuration; the default is Spark's, snappy."""
    if setting:
        spark.conf.set("spark.sql.parquet.compression.codec", setting)
    try:
        write_dataframe(spark.range(0, 9, 1, 1), lake.dest, writer_options=options)
    finally:
        spark.conf.unset("spark.sql.parquet.compression.codec")
    assert footer(lake).row_group(0).column(0).compression == expected

"""What each mode does with the present data, by each of Spark's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions
from tests.spark.lake import BUCKET, Lake

Write = Callable[..., mc.JobReport]
"""Writes numbers, with a mode."""


def write_lines(task: mc.Task, rows: Iterable[Any]) -> None:
    """A line for each row, in a file for each partition."""
    with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
        file.writelines(f"{row}\n" for row in rows)


@pytest.fixture(params=["dataframe", "via", "partitions"])
def write(request: pytest.FixtureRequest, spark: SparkSession, lake: Lake, tmp_path: Path) -> Write:
    """One of the calls, with CSV files of two partitions."""

    def written(numbers: range, **mode: Any) -> mc.JobReport:
        if request.param == "partitions":
            rdd = spark.sparkContext.parallelize(numbers, 2)
            return write_partitions(rdd, lake.dest, write_lines, **mode)
        df = spark.range(numbers.start, numbers.stop, 1, 2)
        via = tmp_path.as_uri() if request.param == "via" else None
        return write_dataframe(df, lake.dest, "csv", via=via, **mode)

    return written


def numbers(lake: Lake) -> list[int]:
    """What a reader finds."""
    return sorted(int(line) for body in lake.data().values() for line in body.splitlines())


def test_present_data_is_an_error_ignored_joined_or_replaced(write: Write, lake: Lake) -> None:
    """`error`, the default, raises; `ignore` writes nothing, and says so; two jobs that append
    leave the rows of both; `overwrite` leaves the new ones. Hidden files are no data."""
    lake.client.put_object(Bucket=BUCKET, Key=f"{lake.name}/_hidden/x", Body=b"")
    first = write(range(4), mode="ignore")
    assert (first.skipped, first.files, numbers(lake)) == (False, 2, [0, 1, 2, 3])
    before = lake.keys()
    for mode in ({}, {"mode": "error"}, {"mode": "errorifexists"}):
        with pytest.raises(mc.DestinationExists, match="part-"):
            write(range(4), **mode)
    skipped = write(range(4), mode="ignore")
    assert (skipped.skipped, skipped.files, lake.keys()) == (True, 0, before)
    assert write(range(4), mode="append").mode == "append"
    assert numbers(lake) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert write(range(7, 9), mode="overwrite").mode == "replace"
    assert numbers(lake) == [7, 8]
    assert lake.open_uploads() == []

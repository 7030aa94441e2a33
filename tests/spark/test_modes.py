"""What each mode does with the present data, by each of Spark's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions
from tests.spark.lake import Place

Write = Callable[..., mc.JobReport]
"""Writes numbers, with a mode."""


def write_lines(task: mc.Task, rows: Iterable[Any]) -> None:
    """A line for each row, in a file for each partition."""
    with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
        file.writelines(f"{row}\n" for row in rows)


@pytest.fixture(params=["dataframe", "via", "partitions"])
def write(request: pytest.FixtureRequest, spark: SparkSession, place: Place, via: str) -> Write:
    """One of the calls, with CSV files of two partitions."""

    def written(numbers: range, **mode: Any) -> mc.JobReport:
        if request.param == "partitions":
            rdd = spark.sparkContext.parallelize(numbers, 2)
            return write_partitions(rdd, place.dest, write_lines, **mode)
        df = spark.range(numbers.start, numbers.stop, 1, 2)
        scratch = via if request.param == "via" else None
        return write_dataframe(df, place.dest, "csv", via=scratch, **mode)

    return written


def numbers(place: Place) -> list[int]:
    """What a reader finds."""
    return sorted(int(line) for body in place.data().values() for line in body.splitlines())


def test_present_data_is_an_error_ignored_joined_or_replaced(write: Write, place: Place) -> None:
    """`error`, the default, raises; `ignore` writes nothing, and says so; two jobs that append
    leave the rows of both; `overwrite` leaves the new ones. Hidden files are no data."""
    place.put("_hidden/x")
    first = write(range(4), mode="ignore")
    assert (first.skipped, first.files, numbers(place)) == (False, 2, [0, 1, 2, 3])
    before = place.keys()
    for mode in ({}, {"mode": "error"}, {"mode": "errorifexists"}):
        with pytest.raises(mc.DestinationExists, match="part-"):
            write(range(4), **mode)
    skipped = write(range(4), mode="ignore")
    assert (skipped.skipped, skipped.files, place.keys()) == (True, 0, before)
    assert write(range(4), mode="append").mode == "append"
    assert numbers(place) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert write(range(7, 9), mode="overwrite").mode == "replace"
    assert (numbers(place), place.open_uploads()) == ([7, 8], [])

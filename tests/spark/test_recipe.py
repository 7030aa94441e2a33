"""The recipe for Spark of the documentation (examples/recipes/with_spark.py) runs."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from examples.recipes import with_spark
from tests.spark.lake import Lake


def test_the_recipe_replaces_the_table(spark: SparkSession, lake: Lake) -> None:
    """`export`, run twice, leaves the rows of the second run alone."""
    for rows in (range(5), range(3)):
        frame = spark.createDataFrame([(n,) for n in rows], "n int").repartition(2)
        with_spark.export(frame, lake.dest)
    assert sorted(n for table in lake.tables() for n in table["n"].to_pylist()) == [0, 1, 2]
    assert lake.open_uploads() == []


def test_the_recipe_adds_lines(spark: SparkSession, lake: Lake) -> None:
    """`export_lines` adds a file for each partition; all rows are in them once."""
    frame = spark.createDataFrame([(n,) for n in range(6)], "n int").repartition(2)
    report = with_spark.export_lines(frame, lake.dest)
    lines = [line for body in lake.data().values() for line in body.splitlines()]
    assert report.files == len(lake.data()) == 2
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(6))

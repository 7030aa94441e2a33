"""Spark: a DataFrame, and files of a form of your own."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import DataFrame, Row

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions


def export(flights: DataFrame, dest: str) -> mc.JobReport:
    """Replace the table by the rows of a DataFrame: one Parquet file for each
    partition."""
    return write_dataframe(flights, dest, mode="overwrite")


def export_lines(flights: DataFrame, dest: str) -> mc.JobReport:
    """Add the rows as JSON lines. Tasks that Spark repeats or runs twice are no
    problem."""
    return write_partitions(flights.rdd, dest, write_lines, mode="append")


def write_lines(task: mc.Task, rows: Iterable[Row]) -> None:
    """Runs in each Spark task."""
    with task.open(f"part-{task.task_id}.jsonl", "w", unique=True) as f:
        for row in rows:
            f.write(json.dumps(row.asDict()) + "\n")

"""Ray Data: a dataset as Parquet, a directory for each day; and files of your
own format."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
from ray.data import Dataset

import magic_committer as mc
from magic_committer.engines.ray import MagicDatasink, write_datasink


def export(data: Dataset, dest: str) -> mc.JobReport:
    """Replace the days that the dataset has: all of their files appear, or
    none."""
    sink = MagicDatasink(
        dest, partition_by=["day"], mode="overwrite_partitions"
    )
    return write_datasink(data, sink)


def write_lines(task: mc.Task, tables: Iterable[pa.Table]) -> None:
    """Runs in each write task of Ray."""
    with task.open(f"part-{task.task_id}.jsonl", "w", unique=True) as file:
        for table in tables:
            for row in table.to_pylist():
                file.write(json.dumps(row) + "\n")


def export_lines(data: Dataset, dest: str) -> None:
    """Replace all data by files that a function of yours writes."""
    data.write_datasink(
        MagicDatasink(dest, write=write_lines, mode="overwrite")
    )

"""A driver that is killed during its commit: run by a test, with a master and a
destination. All of it reaches the store by `AWS_ENDPOINT_URL`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import magic_committer as mc
from magic_committer.spark import write_partitions
from tests.spark.lake import builder

FILES = 60
TASKS = 4
THREADS = 4
"""Requests that the commit has in flight: a kill in the middle leaves files on both sides."""


def write_file_each(task: mc.Task, rows: Iterable[int]) -> None:
    """A file for each row."""
    for row in rows:
        with task.open(f"{row:03d}.txt", "w", unique=True) as file:
            file.write(str(row))


def main(master: str, dest: str) -> None:
    """Run the job; it is not expected to end."""
    spark = (
        builder(master)
        .appName("magic-committer, a driver that is killed")
        .config("spark.cores.max", 2)
        .config("spark.executor.cores", 1)
        .config("spark.executor.memory", "700m")
        .config("spark.executorEnv.AWS_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"])
        .getOrCreate()
    )
    options = mc.Options(commit_threads=THREADS)
    rows = spark.sparkContext.parallelize(range(FILES), TASKS)
    write_partitions(rows, dest, write_file_each, options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A driver that is killed during its commit: run by a test, with a master and a destination. All of
it reaches the store by `AWS_ENDPOINT_URL`. Its first line is the application's id."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

import magic_committer as mc
from magic_committer.spark import write_partitions
from tests.nightly import most
from tests.spark.lake import builder

TASKS = most(1_000, 12)
FILES = 5 * TASKS
FILE_SECONDS = 0.05
"""A task takes so long for each file: executors are killed in the middle of tasks."""
THREADS = 4
"""Requests that the commit has in flight: a kill in the middle leaves files on both sides."""


def write_file_each(task: mc.Task, rows: Iterable[int]) -> None:
    """A file for each row."""
    for row in rows:
        with task.open(f"{row:04d}.txt", "w", unique=True) as file:
            file.write(str(row))
            time.sleep(FILE_SECONDS)


def main(master: str, dest: str) -> None:
    """Run the job; it is not expected to end."""
    settings = {
        "spark.cores.max": 3, "spark.executor.cores": 1, "spark.executor.memory": "700m",
        "spark.speculation": True, "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.executorEnv.AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"],
    }  # fmt: skip
    spark = builder(master).config(map=settings).getOrCreate()
    print(spark.sparkContext.applicationId, flush=True)
    options = mc.Options(commit_threads=THREADS)
    rows = spark.sparkContext.parallelize(range(FILES), TASKS)
    write_partitions(rows, dest, write_file_each, options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A driver that waits for Ctrl-C where it would complete its files: run by a test, with a gate's
directory and a destination.

Its tasks have ended and its job is decided; the driver says so, and then waits for what never
comes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.commit.publish import Publication
from magic_committer.spark import write_partitions
from tests.spark.lake import Gate


def main(directory: str, dest: str) -> None:
    """Run the job; it is not expected to end."""
    gate = Gate(directory)

    def waiting(publication: Publication) -> None:
        gate.note("completing")
        gate.wait("what never comes")

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
            file.writelines(f"{row}\n" for row in rows)

    Publication.complete_all = waiting  # type: ignore[method-assign, assignment]
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    write_partitions(spark.sparkContext.parallelize(range(4), 2), dest, write)


if __name__ == "__main__":
    main(*sys.argv[1:])

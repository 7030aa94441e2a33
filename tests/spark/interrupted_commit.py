"""A driver that waits for Ctrl-C while Spark's tasks complete its files: run by a test, with a
gate's directory and a destination.

Its tasks have ended and its job is decided; those that complete say so, and then wait for what
never comes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.commit.pieces import Piece
from magic_committer.spark import distribute, write_partitions
from tests.spark.lake import Gate


def main(directory: str, dest: str) -> None:
    """Run the job; it is not expected to end."""
    gate = Gate(directory)

    def waiting(job: mc.Job) -> Any:
        def complete(pieces: Iterable[Piece]) -> list[int]:
            gate.note("completing")
            gate.wait("what never comes")
            return []

        return complete

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
            file.writelines(f"{row}\n" for row in rows)

    distribute.PIECE_FILES_MIN = 1
    distribute.Completer = waiting  # type: ignore[assignment, misc]
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    options = mc.Options(distribute_files_min=1)
    write_partitions(spark.sparkContext.parallelize(range(4), 2), dest, write, options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])

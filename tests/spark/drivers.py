"""Drivers that wait for Ctrl-C, each a process of its own: what it does, a gate's directory, and a
destination.

``write``: its tasks open uploads, say so, and wait for what never comes. ``commit``: its tasks have
ended and its job is decided; it says so, and waits where it would complete its files. ``save``: it
saves by ``format("magic")``, and lives on until the test has looked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import col, udf

import magic_committer as mc
from magic_committer.commit.publish import Publication
from magic_committer.spark import write_partitions
from magic_committer.stores.s3 import retry
from tests.spark.lake import HALF_A_BLOCK, Gate, Lake, builder

STORE_SECONDS = 60.0
"""What the store of a busy machine has for an answer after Ctrl-C."""


@contextmanager
def driver(what: str, gate: Gate, lake: Lake) -> Iterator[subprocess.Popen[str]]:
    """A driver that runs; it is killed at the end."""
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.drivers", what, gate.directory, lake.dest],
        cwd=Path(__file__).resolve().parents[2],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def interrupted(gate: Gate, name: str) -> Iterator[None]:
    """This process gets Ctrl-C when a task has left a note, as if PySpark had no handler of its
    own; the block raises KeyboardInterrupt."""

    def interrupt() -> None:
        gate.notes(name, 1)
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=interrupt)
    try:
        watcher.start()
        with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
            patch.setattr(retry, "HURRIED_SECONDS", STORE_SECONDS)
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
        watcher.join()


def main(what: str, directory: str, dest: str) -> None:
    """Do one of them."""
    gate, retry.HURRIED_SECONDS = Gate(directory), STORE_SECONDS
    spark = builder("local[2]").getOrCreate()
    if what == "save":
        save(spark, gate, dest)
        return

    def waiting(publication: Publication) -> None:
        gate.note("completing")
        gate.wait("what never comes")

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
            file.writelines(f"{row}\n" for row in rows)
            if what == "write":
                file.write(HALF_A_BLOCK)
                gate.note("writing")
                gate.wait("what never comes")

    Publication.complete_all = waiting  # type: ignore[method-assign, assignment]
    write_partitions(spark.sparkContext.parallelize(range(4), 2), dest, write)


def save(spark: Any, gate: Gate, dest: str) -> None:
    """Save, be interrupted, and live on."""

    def slow(number: int) -> int:
        gate.note("writing")
        gate.wait("go on")
        return number

    slowly = udf(lambda number: slow(number), "bigint")
    rows = spark.range(0, 4, 1, 1).select(slowly(col("id")).alias("id"))
    try:
        rows.write.format("magic").mode("append").save(dest)
        gate.note("saved")
    except KeyboardInterrupt:
        gate.note("interrupted")
    gate.wait("looked")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Ctrl-C in the driver: the Spark job is cancelled, ours aborted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable

from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_partitions
from tests.spark.drivers import driver, interrupted
from tests.spark.lake import Gate, Lake, until

PROMPT_SECONDS = 100.0
"""Within these a driver ends: less than the tasks would wait, and than Spark's own time-outs."""


def test_ctrl_c_ends_the_driver(environment: str, lake: Lake, gate: Gate) -> None:
    """Soon, and it says what became of the job; nothing is visible, no upload is open."""
    with driver("write", gate, lake) as running:
        gate.notes("writing", 2)
        assert len(lake.shows_uploads(2)) == 2
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=PROMPT_SECONDS)
    assert running.returncode != 0
    _, raised, said = told.rpartition("\nKeyboardInterrupt")
    assert raised
    assert "is aborted: nothing of it is visible" in said  # the JVM may log behind it
    assert lake.is_untouched()


def test_the_spark_job_is_cancelled_whoever_raises(
    spark: SparkSession, lake: Lake, gate: Gate
) -> None:
    """Also where PySpark's own signal handler does not see it, and only this one."""
    tracker = spark.sparkContext.statusTracker()

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open("part.csv", "w", unique=True) as file:
            file.writelines(f"{row}\n" for row in rows)
            gate.note("writing")
            gate.wait("released")

    def another(number: int) -> int:
        gate.wait("released")
        return number

    sums: list[int] = []
    neighbour = threading.Thread(
        target=lambda: sums.append(spark.sparkContext.parallelize([1], 1).map(another).sum())
    )
    neighbour.start()
    try:
        with interrupted(gate, "writing"):
            write_partitions(spark.sparkContext.parallelize(range(4), 1), lake.dest, write)
        assert lake.is_untouched()
        until(lambda: len(tracker.getActiveJobsIds()) == 1)
    finally:
        gate.open("released")
        neighbour.join()
    assert sums == [1]
    assert lake.becomes_untouched()

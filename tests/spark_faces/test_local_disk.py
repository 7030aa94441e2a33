"""The faces of Spark on ``file://``: all of a job's files or none, through the manifest committer.
(``format("magic")`` and streams: test_source, test_stream.)

There is no S3 server for these tests: what would ask one fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions
from tests.spark.lake import Disk, Gate, attempt_number


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A destination that does not exist yet."""
    return Disk(tmp_path / "table")


def test_an_rdd_is_written_and_a_failed_attempt_is_not(
    spark: SparkSession, disk: Disk, gate: Gate
) -> None:
    """One attempt raises in the middle of a file, one is killed: each partition's rows are there
    once, with what the function returned."""

    def write(task: mc.Task, rows: Iterable[int]) -> str:
        gate.note("attempts", task.attempt_id)
        with task.open(f"part-{task.task_id}.csv", "w") as file:
            for row in rows:
                if attempt_number() == 0 and row == 1:
                    raise RuntimeError("half-way")
                if attempt_number() == 0 and row == 5:
                    os._exit(9)
                file.write(f"{row}\n")
        return task.task_id

    report = write_partitions(spark.sparkContext.parallelize(range(8), 2), disk.dest, write)
    assert disk.data() == {"part-0.csv": b"0\n1\n2\n3\n", "part-1.csv": b"4\n5\n6\n7\n"}
    assert (report.outcome, report.files, report.returned) == ("committed", 2, ("0", "1"))
    assert len(gate.notes("attempts")) >= 4
    assert disk.names() == ["_SUCCESS", "part-0.csv", "part-1.csv"]


def test_every_mode_of_a_dataframe(spark: SparkSession, disk: Disk) -> None:
    """error, append, ignore, overwrite, overwrite_partitions: as on S3."""

    def write(begin: int, mode: mc.Mode | str) -> mc.JobReport:
        df = spark.range(begin, begin + 2, 1, 1).withColumn("day", (col("id") % 2))
        return write_dataframe(df, disk.dest, mode=mode, partition_by=["day"])  # type: ignore[arg-type]

    write(0, "error")
    with pytest.raises(mc.DestinationExists):
        write(10, "error")
    assert write(20, "ignore").skipped
    assert disk.ids() == [0, 1]
    write(2, "append")
    assert disk.ids() == [0, 1, 2, 3]
    odd = spark.createDataFrame([(9, 1)], "id long, day long")
    write_dataframe(odd, disk.dest, mode="overwrite_partitions", partition_by=["day"])
    assert disk.ids() == [0, 2, 9]
    assert {name.split("/")[0] for name in disk.data()} == {"day=0", "day=1"}
    write(30, "overwrite")
    assert disk.ids() == [30, 31]
    assert [name for name in disk.names() if name.startswith("_")] == ["_SUCCESS"]


def test_sparks_own_writer_encodes_for_a_disk(
    spark: SparkSession, disk: Disk, tmp_path: Path
) -> None:
    """``via=``: Spark's ORC files are moved into the job's, and nothing is left in between."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    write_dataframe(spark.range(0, 6, 1, 2), disk.dest, "orc", via=scratch.as_uri())
    assert sorted(row.id for row in spark.read.orc(disk.dest).collect()) == list(range(6))
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("dest", ["file://host/x", "ftp://x/y", "/no/url"])
def test_a_destination_of_no_committer_starts_nothing(spark: SparkSession, dest: str) -> None:
    """The error is ours, and comes before Spark runs anything."""
    with pytest.raises(mc.PathError):
        write_dataframe(spark.range(1), dest)

"""Jobs and uploads beside a job: in the same directory, and in one whose name begins alike."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions
from tests.spark.lake import BUCKET, HALF_A_BLOCK, Gate, Lake


@pytest.mark.parametrize("unique", [True, False])
def test_two_jobs_in_one_directory_at_once(
    spark: SparkSession, lake: Lake, gate: Gate, unique: bool
) -> None:
    """A job that starts, and then commits or aborts, while another writes into the same directory
    touches neither its uploads nor its record; both complete."""

    def slow(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open("slow.csv", "w", unique=unique) as file:
            file.writelines(f"{row}\n" for row in rows)
            file.write(HALF_A_BLOCK)
            lake.shows_uploads(1)
            gate.open("slow is writing")
            gate.wait("others have ended")

    def quick(task: mc.Task, rows: Iterable[int]) -> None:
        gate.wait("slow is writing")
        with task.open("quick.csv", "w", unique=unique) as file:
            file.writelines(f"{row}\n" for row in rows)

    def failing(task: mc.Task, rows: Iterable[int]) -> None:
        quick(task, rows)
        raise RuntimeError("as the test wants")

    rows = spark.sparkContext.parallelize(range(3), 1)
    with ThreadPoolExecutor(1) as beside:
        first = beside.submit(write_partitions, rows, lake.dest, slow, mode="append")
        try:
            second = write_partitions(rows, lake.dest, quick, mode="append")
            with pytest.raises(Exception, match="as the test wants"):
                write_partitions(rows, lake.dest, failing, mode="append")
            (left,) = lake.open_uploads()
            assert left.startswith("slow")
        finally:
            gate.open("others have ended")
        assert first.result().files == second.files == 1
    assert [name.partition("-")[0].partition(".")[0] for name in sorted(lake.data())] == [
        "quick",
        "slow",
    ]
    assert {body.rstrip() for body in lake.data().values()} == {b"0\n1\n2"}
    assert lake.open_uploads() == []


def test_a_directory_whose_name_begins_alike(spark: SparkSession, lake: Lake) -> None:
    """Jobs in `dataset1` neither see nor touch data and uploads of `dataset10`."""
    other = replace(lake, name=f"{lake.name}0")
    lake.client.put_object(Bucket=BUCKET, Key=f"{other.name}/theirs", Body=b"theirs")
    lake.client.create_multipart_upload(Bucket=BUCKET, Key=f"{other.name}/upload")
    report = write_dataframe(spark.range(3), lake.dest, mode="error")
    with pytest.raises(Exception, match="as the test wants"):
        write_partitions(spark.sparkContext.range(3), lake.dest, fail, mode="append")
    assert (report.outcome, report.unattributed) == ("committed", 0)
    assert other.data() == {"theirs": b"theirs"}
    assert other.open_uploads() == ["upload"]


def fail(task: mc.Task, rows: Iterable[int]) -> None:
    """A task that never succeeds."""
    raise RuntimeError("as the test wants")


def test_a_foreign_upload_in_the_directory_is_left_alone(spark: SparkSession, lake: Lake) -> None:
    """An upload of another program in the destination stays open, and is counted in the report."""
    lake.client.create_multipart_upload(Bucket=BUCKET, Key=f"{lake.name}/foreign")
    report = write_dataframe(spark.range(3), lake.dest)
    assert report.unattributed == 1
    assert lake.open_uploads() == ["foreign"]

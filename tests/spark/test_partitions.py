"""`write_partitions`: what it writes, under which names, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.engines.items import ItemWriter
from magic_committer.spark import write_dataframe, write_partitions
from tests.spark.lake import Lake, until


def write_lines(task: mc.Task, rows: Iterable[Any]) -> None:
    """A line for each row, in a file for each partition."""
    with task.open(f"part-{task.task_id}.csv", "w") as file:
        file.writelines(f"{row}\n" for row in rows)


def lines(numbers: Iterable[int]) -> bytes:
    """What `write_lines` makes of numbers."""
    return b"".join(b"%d\n" % number for number in numbers)


def test_each_partition_writes_its_rows(spark: SparkSession, lake: Lake) -> None:
    """No file, or no task, is no error; the way to the store holds on the executors."""
    rdd = spark.sparkContext.parallelize(range(10), 2)
    for rows in (rdd, spark.sparkContext.emptyRDD()):
        report = write_partitions(rows, lake.dest, lambda task, rows: None)
        assert (report.outcome, report.files, lake.keys()) == ("committed", 0, ["_SUCCESS"])
    more: Any = {"committer": "directory", "endpoint_url": lake.endpoint}
    report = write_partitions(rdd, lake.dest, write_lines, mode="append", **more)
    assert lake.data() == {"part-0.csv": lines(range(5)), "part-1.csv": lines(range(5, 10))}
    assert (report.outcome, report.tasks, report.files, report.bytes) == ("committed", 2, 2, 20)
    assert json.loads(lake.read("_SUCCESS"))["committer"] == "directory"
    assert lake.open_uploads() == []


def test_names_with_hive_partitions_are_published_as_they_are(
    spark: SparkSession, lake: Lake
) -> None:
    """A task is its partition, an attempt carries Spark's own number, which is unique."""
    names = ["dt=2026-11-21/city=S%C3%A3o Paulo/a+b.csv", "dt=__HIVE_DEFAULT_PARTITION__/ü.csv"]

    def write(task: mc.Task, rows: Iterable[str]) -> list[str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for name in rows:
            with task.open(name, "wb") as file:
                file.write(name.encode())
        return [task.task_id, task.attempt_id, f"t{context.taskAttemptId()}"]

    rdd = spark.sparkContext.parallelize(names, 2)
    report = write_partitions(rdd, lake.dest, write, mark_success=False)
    assert lake.data() == {name: name.encode() for name in names}
    told: Any = report.returned
    assert [task for task, _, _ in told] == ["0", "1"]
    assert all(attempt == number for _, attempt, number in told)
    assert len({number for _, _, number in told}) == 2


@dataclasses.dataclass(frozen=True)
class Shard:
    """What a task may say of its file."""

    name: str
    rows: int


def test_what_the_function_returned_is_in_the_report(spark: SparkSession, lake: Lake) -> None:
    """In the order of the partitions, None too; its JSON does not hold it."""

    def write(task: mc.Task, rows: Iterable[int]) -> Shard | None:
        with task.open(f"part-{task.task_id}.csv", "w") as file:
            count = sum(1 for row in rows if file.write(f"{row}\n"))
        return Shard(f"part-{task.task_id}.csv", count) if count else None

    rows = spark.sparkContext.parallelize(range(5), 2).union(spark.sparkContext.parallelize([], 1))
    report = write_partitions(rows, lake.dest, write)
    assert report.returned == (Shard("part-0.csv", 2), Shard("part-1.csv", 3), None)
    assert (report.outcome, report.files) == ("committed", 3)
    assert "returned" not in json.loads(json.dumps(report.to_dict()))
    again = write_partitions(rows, lake.dest, write, mode="ignore")
    assert (again.skipped, again.returned) == (True, ())


def test_each_partition_may_return_its_share(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that is larger is an error that says so; nothing is written."""

    def write(task: mc.Task, rows: Iterable[int]) -> object:
        with task.open(f"{task.task_id}.csv", "w") as file:
            file.write("written")
        return bytes(3000) if task.task_id == "1" else bytes(900)

    monkeypatch.setattr("magic_committer.engines.items.RETURNED_BYTES_MAX", 2000)
    told = r"returned a bytes of 3,0\d\d bytes; all items .* pickled, each 1,000"
    with pytest.raises(Exception, match=told):
        write_partitions(spark.sparkContext.parallelize(range(4), 2), lake.dest, write)
    assert lake.is_untouched()


def test_secrets_stay_on_the_driver(spark: SparkSession, lake: Lake, event_log: Path) -> None:
    """No credential is in what Spark writes down, or in what travels to executors."""
    s3 = mc.S3Options(access_key="SENTINEL-KEY", secret_key="SENTINEL-SECRET")
    spark.sparkContext.setJobDescription("told to the log")
    rows = spark.sparkContext.parallelize(range(4), 2)
    assert write_partitions(rows, lake.dest, write_lines, s3=s3).files == 2
    frame = spark.range(4)
    assert write_dataframe(frame, f"{lake.dest}-frame", s3=s3).files

    def logged() -> bytes:
        return b"".join(file.read_bytes() for file in event_log.rglob("*") if file.is_file())

    spark.sparkContext.setJobDescription("the last one")
    spark.range(1).count()
    spark.sparkContext.setJobDescription("")
    until(lambda: b"the last one" in logged())  # Spark logs in a thread of its own, in order
    told = logged()
    job = mc.start(lake.dest, accept="results", track="memory", s3=s3)
    dumps: Any = cloudpickle.dumps
    told += dumps(ItemWriter(job, write_lines))
    job.abort()
    assert b"told to the log" in told
    assert b"SparkListenerJobEnd" in told
    assert b"SENTINEL" not in told


def test_a_job_in_a_closure_travels(spark: SparkSession, lake: Lake) -> None:
    """A function may capture a job that the user started, and commits."""
    job = mc.start(lake.dest)

    def write(number: int) -> bytes:
        with job.task(number) as task, task.open(f"{number}.txt", "w") as file:
            file.write(str(number))
        return pickle.dumps(task.result)

    results = spark.sparkContext.parallelize(range(3), 3).map(write).collect()
    job.commit([pickle.loads(result) for result in results], expect=3)
    assert lake.data() == {"0.txt": b"0", "1.txt": b"1", "2.txt": b"2"}

"""`write_partitions`: what it writes, under which names, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import pickle
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.engines.items import ItemWriter
from magic_committer.spark import PartitionsReport, write_dataframe, write_partitions
from tests.spark.lake import BUCKET, Gate, Lake


def write_lines(task: mc.Task, rows: Iterable[Any]) -> None:
    """A line for each row, in a file for each partition."""
    with task.open(f"part-{task.task_id}.csv", "w") as file:
        file.writelines(f"{row}\n" for row in rows)


def lines(numbers: Iterable[int]) -> bytes:
    """What `write_lines` makes of numbers."""
    return b"".join(b"%d\n" % number for number in numbers)


def test_each_partition_writes_its_rows(spark: SparkSession, lake: Lake) -> None:
    """Every partition's rows are in the file that its task wrote, and the report counts them."""
    report = write_partitions(spark.sparkContext.parallelize(range(10), 2), lake.dest, write_lines)
    assert lake.data() == {"part-0.csv": lines(range(5)), "part-1.csv": lines(range(5, 10))}
    assert (report.outcome, report.tasks, report.files, report.bytes) == ("committed", 2, 2, 20)
    assert lake.keys() == ["_SUCCESS", "part-0.csv", "part-1.csv"]
    assert lake.open_uploads() == []


def test_names_with_hive_partitions_are_published_as_they_are(
    spark: SparkSession, lake: Lake
) -> None:
    """A task may open many files under any names; each is published under exactly that name."""
    names = ["dt=2026-11-21/city=S%C3%A3o Paulo/a+b.csv", "dt=__HIVE_DEFAULT_PARTITION__/ü.csv"]

    def write(task: mc.Task, rows: Iterable[str]) -> None:
        for name in rows:
            with task.open(name, "wb") as file:
                file.write(name.encode())

    write_partitions(spark.sparkContext.parallelize(names, 1), lake.dest, write, mark_success=False)
    assert lake.data() == {name: name.encode() for name in names}


def test_a_committer_and_an_endpoint_may_be_named(spark: SparkSession, lake: Lake) -> None:
    """`committer=`, and where the store is without `S3Options`; both hold on the executors."""
    rdd = spark.sparkContext.parallelize(range(4), 2)
    more: Any = {"committer": "directory", "endpoint_url": lake.endpoint}
    write_partitions(rdd, lake.dest, write_lines, mode="append", **more)
    assert len(lake.data()) == 2
    assert json.loads(lake.read("_SUCCESS"))["committer"] == "directory"


def test_a_partition_larger_than_a_part(spark: SparkSession, lake: Lake) -> None:
    """A file of more than one part arrives whole."""
    mebibyte = bytes(range(256)) * 4096

    def write(task: mc.Task, rows: Iterable[bytes]) -> None:
        with task.open("large.bin") as file:
            for row in rows:
                file.write(row)

    rows = spark.sparkContext.parallelize([mebibyte] * 12, 1)
    write_partitions(rows, lake.dest, write, options=mc.Options(block_bytes=5 * 1024**2))
    assert lake.data() == {"large.bin": mebibyte * 12}
    etag = lake.client.head_object(Bucket=BUCKET, Key=f"{lake.name}/large.bin")["ETag"]
    assert etag.strip('"').endswith("-3")


def test_partitions_without_files(spark: SparkSession, lake: Lake) -> None:
    """A job whose tasks open no file, or that has no tasks, commits and marks."""
    for rows in (spark.sparkContext.parallelize(range(4), 2), spark.sparkContext.emptyRDD()):
        report = write_partitions(rows, lake.dest, lambda task, rows: None)
        assert (report.outcome, report.files) == ("committed", 0)
    assert lake.keys() == ["_SUCCESS"]


def test_a_generator_is_refused_at_once(spark: SparkSession, lake: Lake) -> None:
    """A function that yields would never run: it is refused before anything is started."""

    def write(task: mc.Task, rows: Iterable[int]) -> Iterator[int]:
        with task.open("never.csv"):
            yield from rows

    with pytest.raises(TypeError, match="whose body nobody runs"):
        write_partitions(spark.sparkContext.range(4), lake.dest, write)
    assert lake.is_untouched()


def test_a_returned_iterator_fails_the_task(spark: SparkSession, lake: Lake) -> None:
    """A function that returns an iterator, of which nobody would notice that it never ran,
    fails."""

    def write(task: mc.Task, rows: Iterable[int]) -> Any:
        with task.open("half.csv", "w") as file:
            file.write("written")
        return map(print, rows) if task.task_id == "1" else [1, 2, 3]

    with pytest.raises(Exception, match="returns a map, whose body nobody runs"):
        write_partitions(spark.sparkContext.parallelize(range(4), 2), lake.dest, write)
    assert lake.is_untouched()


@dataclasses.dataclass(frozen=True)
class Shard:
    """What a task may say of its file."""

    name: str
    rows: int


def test_what_the_function_returned_is_in_the_report(spark: SparkSession, lake: Lake) -> None:
    """The report holds what the function returned, in the order of the partitions, None too; its
    JSON does not."""

    def write(task: mc.Task, rows: Iterable[int]) -> Shard | None:
        with task.open(f"part-{task.task_id}.csv", "w") as file:
            count = sum(1 for row in rows if file.write(f"{row}\n"))
        return Shard(f"part-{task.task_id}.csv", count) if count else None

    rows = spark.sparkContext.parallelize(range(5), 2).union(spark.sparkContext.parallelize([], 1))
    report = write_partitions(rows, lake.dest, write)
    assert report.returned == (Shard("part-0.csv", 2), Shard("part-1.csv", 3), None)
    assert (report.outcome, report.files) == ("committed", 3)
    assert "returned" not in report.to_dict()
    json.dumps(report.to_dict())
    again = write_partitions(rows, lake.dest, write, mode="ignore")
    assert (again.skipped, again.returned) == (True, ())


def test_only_what_accepted_attempts_returned_counts(
    spark: SparkSession, lake: Lake, gate: Gate
) -> None:
    """Of a task that Spark runs again, the report holds what the attempt returned that counts."""

    def write(task: mc.Task, rows: Iterable[int]) -> str:
        gate.note("attempt")
        if task.task_id == "0" and len(gate.notes("zero")) == 0:
            gate.note("zero")
            raise ValueError("the first attempt fails")
        return task.attempt_id

    report = write_partitions(spark.sparkContext.parallelize(range(4), 2), lake.dest, write)
    assert len(gate.notes("attempt")) == 3
    assert len(set(report.returned)) == 2


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (
            lambda: bytes(3000),
            r"returned a bytes of 3,0\d\d bytes; all items .* pickled, each 1,000",
        ),
        (threading.Lock, "returned a lock that cannot be pickled"),
    ],
)
def test_what_cannot_travel_fails_the_task(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, returned: Any, told: str
) -> None:
    """A value that is too large or cannot be pickled is an error that says so; nothing is
    written."""

    def write(task: mc.Task, rows: Iterable[int]) -> object:
        with task.open(f"{task.task_id}.csv", "w") as file:
            file.write("written")
        return returned() if task.task_id == "1" else bytes(900)

    monkeypatch.setattr("magic_committer.engines.items.RETURNED_BYTES_MAX", 2000)
    with pytest.raises(Exception, match=told):
        write_partitions(spark.sparkContext.parallelize(range(4), 2), lake.dest, write)
    assert lake.is_untouched()


def test_what_was_returned_is_not_lost_with_an_incomplete_commit(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the job is decided and not finished, the error's report holds what was returned."""
    failure = mc.CommitIncomplete("not yet", job_id="j")

    def interrupted(job: mc.Job, *_: Any, **__: Any) -> None:
        failure.report = job.abort()  # so that nothing stays
        raise failure

    monkeypatch.setattr(mc.Job, "commit", interrupted)
    with pytest.raises(mc.CommitIncomplete) as raised:
        write_partitions(
            spark.sparkContext.parallelize(range(4), 2), lake.dest, lambda task, rows: sum(rows)
        )
    report = raised.value.report
    assert isinstance(report, PartitionsReport)
    assert report.returned == (1, 5)


def test_two_partitions_of_one_name_are_refused(spark: SparkSession, lake: Lake) -> None:
    """Where two partitions write one name, nothing becomes visible, and the error names it."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open("same.csv", "w") as file:
            file.writelines(f"{row}\n" for row in rows)

    with pytest.raises(mc.CommitRefused, match=r"same\.csv"):
        write_partitions(spark.sparkContext.parallelize(range(4), 2), lake.dest, write)
    assert lake.is_untouched()


def test_secrets_stay_on_the_driver(spark: SparkSession, lake: Lake) -> None:
    """The driver's credentials are not in what travels to executors, which use their own."""
    s3 = mc.S3Options(access_key="SENTINEL-KEY", secret_key="SENTINEL-SECRET")
    rows = spark.sparkContext.parallelize(range(4), 2)
    report = write_partitions(rows, lake.dest, write_lines, s3=s3)
    assert report.files == 2
    job = mc.start(lake.dest, accept="results", track="memory", s3=s3)
    dumps: Any = cloudpickle.dumps
    assert b"SENTINEL" not in dumps(ItemWriter(job, write_lines))
    job.abort()


def test_no_secret_is_in_sparks_event_log(spark: SparkSession, lake: Lake, event_log: Path) -> None:
    """What Spark writes down of its jobs (plans, names, call sites, settings), which others read in
    its history server, holds none of the driver's credentials."""
    s3 = mc.S3Options(access_key="SENTINEL-KEY", secret_key="SENTINEL-SECRET")
    spark.sparkContext.setJobDescription("told to the log")
    rows = spark.sparkContext.parallelize(range(4), 2)
    assert write_partitions(rows, lake.dest, write_lines, s3=s3).files == 2
    frame = spark.range(4)
    assert write_dataframe(frame, f"{lake.dest}-frame", s3=s3).files
    spark.sparkContext.setJobDescription("")
    spark.range(1).count()  # its end flushes what came before
    told = b"".join(file.read_bytes() for file in event_log.rglob("*") if file.is_file())
    assert b"told to the log" in told
    assert b"SparkListenerJobEnd" in told
    assert b"SENTINEL" not in told


def test_a_job_in_a_closure_travels(spark: SparkSession, lake: Lake) -> None:
    """A function may capture a job that the user started: it arrives in the tasks, whose results
    the user commits."""
    job = mc.start(lake.dest)

    def write(number: int) -> bytes:
        with job.task(number) as task, task.open(f"{number}.txt", "w") as file:
            file.write(str(number))
        return pickle.dumps(task.result)

    results = spark.sparkContext.parallelize(range(3), 3).map(write).collect()
    job.commit([pickle.loads(result) for result in results], expect=3)
    assert lake.data() == {"0.txt": b"0", "1.txt": b"1", "2.txt": b"2"}


def test_attempts_are_named_for_sparks(spark: SparkSession, lake: Lake) -> None:
    """A task is its partition, an attempt carries Spark's own number, unique in the application."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with task.open(f"{task.task_id}.txt", "w") as file:
            file.write(f"{task.attempt_id} {context.taskAttemptId()}")

    write_partitions(spark.sparkContext.parallelize(range(2), 2), lake.dest, write)
    told = {name: body.decode().split() for name, body in lake.data().items()}
    assert sorted(told) == ["0.txt", "1.txt"]
    assert all(attempt == f"t{number}" for attempt, number in told.values())
    assert len({number for _, number in told.values()}) == 2


def test_the_pendingsets_are_gone(spark: SparkSession, lake: Lake) -> None:
    """While tasks run there is the job's record; after the job there is no control object left."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        found = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"{lake.name}/__magic_job")
        with task.open("seen.txt", "w") as file:
            file.writelines(one["Key"] + "\n" for one in found.get("Contents", ()))

    write_partitions(spark.sparkContext.parallelize(range(2), 1), lake.dest, write)
    assert lake.read("seen.txt").decode().rstrip().endswith("/_job.json")
    assert lake.keys() == ["_SUCCESS", "seen.txt"]

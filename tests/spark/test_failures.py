"""Tasks that fail, are killed, have their input cut short, or live longer than their job."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, udf

import magic_committer as mc
from magic_committer.runtime.components import no_progress
from magic_committer.spark import write_dataframe, write_partitions
from magic_committer.spark.driver import run_action, warn_of_idle_kill
from tests.spark.lake import HALF_A_BLOCK, Gate, Lake, Place, attempt_number

ROWS = 100_000
CUT_AT = 90_000
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"


def test_a_failed_attempt_is_retried_and_seen_once(
    spark: SparkSession, lake: Lake, gate: Gate
) -> None:
    """The retry's file is whole and is there once, and the report holds what it returned."""

    def write(task: mc.Task, rows: Iterable[int]) -> str:
        gate.note("attempts", task.attempt_id)
        with task.open(f"part-{task.task_id}.csv", "w") as file:
            for number, row in enumerate(rows):
                if number == 2 and attempt_number() == 0 and task.task_id == "1":
                    raise RuntimeError("half-way")
                file.write(f"{row}\n")
        return task.attempt_id

    report = write_partitions(spark.sparkContext.parallelize(range(8), 2), lake.dest, write)
    assert (len(set(gate.notes("attempts"))), len(set(report.returned))) == (3, 2)
    assert lake.data() == {"part-0.csv": b"0\n1\n2\n3\n", "part-1.csv": b"4\n5\n6\n7\n"}
    assert (report.tasks, report.files, lake.open_uploads()) == (2, 2, [])


@pytest.mark.parametrize("kind", [SystemExit, StopIteration])
def test_a_task_that_never_succeeds_fails_the_job(
    spark: SparkSession, lake: Lake, gate: Gate, kind: type[BaseException]
) -> None:
    """Spark's error is raised; no data, upload or control object is left."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        with task.open("written.csv", "w") as file:
            file.write("all of it")
        half = task.open("half.csv", "w")
        half.write("half of it" + HALF_A_BLOCK)
        gate.note("attempts")
        raise kind("as the test wants")

    with pytest.raises(Exception, match=r"as the test wants|exited|EOF"):
        write_partitions(spark.sparkContext.parallelize(range(4), 1), lake.dest, write)
    assert len(gate.notes("attempts")) == 3
    assert lake.becomes_untouched()


def cut_short(spark: SparkSession) -> DataFrame:
    """A DataFrame of one partition in which Spark fails at row 90,000 of 100,000."""
    return spark.range(0, ROWS, 1, 1).select("id", expr(f"1 / ({CUT_AT} - id) AS x"))


def test_cut_input_of_an_rdd_publishes_nothing(spark: SparkSession, lake: Lake, gate: Gate) -> None:
    """A task sees its input end where Spark fails above it, and finishes its file."""

    def write(task: mc.Task, rows: Iterable[Any]) -> None:
        with task.open("rows.csv", "w", unique=True) as file:
            written = sum(bool(file.write(f"{row.id}\n")) for row in rows)
        gate.note("saw its input end", written)

    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        write_partitions(cut_short(spark).rdd, lake.dest, write)
    ends = [int(rows) for rows in gate.notes("saw its input end", 1)]
    assert all(0 < rows <= CUT_AT for rows in ends)
    assert lake.becomes_untouched()


def save(face: str, df: DataFrame, dest: str, via: str, rows_max: int | None = None) -> None:
    """Write a table with a column ``id`` by one of the calls."""
    if face == "format":
        df.write.format("magic").mode("append").save(dest)
    elif face == "lines":
        write_dataframe(df.selectExpr("concat(id, ' ', x) AS line"), dest, "csv")
    elif face == "partitions":
        write_dataframe(df.selectExpr("id", "x", "id DIV 30000 AS p"), dest, partition_by=["p"])
    else:
        scratch = via if face == "via" else None
        write_dataframe(df, dest, via=scratch, max_records_per_file=rows_max)


CASES = [("format", "lake"), ("format", "disk"), ("via", "lake")]


@pytest.mark.parametrize(
    ("face", "place"), [("lines", "lake"), ("partitions", "lake"), *CASES], indirect=["place"]
)
def test_cut_input_of_a_dataframe_publishes_nothing(
    spark: SparkSession, place: Place, via: str, face: str
) -> None:
    """The same for a DataFrame, where it would be a readable file without the last rows."""
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        save(face, cut_short(spark), place.dest, via)
    assert place.becomes_untouched()


@pytest.mark.parametrize(
    ("face", "place", "algorithm"),
    [("frame", "lake", "1"), *((*case, "1") for case in CASES), ("via", "lake", "2")],
    indirect=["place"],
)
def test_rows_of_a_failed_attempt_are_not_seen(
    spark: SparkSession, place: Place, gate: Gate, via: str, face: str, algorithm: str
) -> None:
    """Whatever the session says of Hadoop's algorithm: the rows of each partition are there
    once."""

    @udf(returnType="long", useArrow=False)
    def fails_once(row: int) -> int:
        if row == 7 and attempt_number() == 0:
            gate.note("failed")
            raise RuntimeError("as the test wants")
        return row

    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get(ALGORITHM)
    hadoop.set(ALGORITHM, algorithm)
    try:
        rows = spark.range(0, 10, 1, 2).select(fails_once("id").alias("id"))
        save(face, rows, place.dest, via, rows_max=2)
    finally:
        hadoop.set(ALGORITHM, before)
    assert gate.notes("failed") == [""]
    assert place.ids() == list(range(10))
    assert [key for key in place.hidden() if key != "_SUCCESS"] == place.open_uploads() == []


def test_a_task_that_outlives_its_job_cleans_up(
    spark: SparkSession, lake: Lake, gate: Gate
) -> None:
    """It aborts its upload, which no sweep will look for any more."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        if task.task_id == "1":
            gate.wait("living")
            raise RuntimeError("this one fails the job")
        gate.open("living")
        gate.wait("aborted")
        with task.open("late.csv", "w") as file:
            file.write("too late")
        gate.note("opened")
        try:
            task.commit()
        except mc.JobNotRunning as error:
            gate.note("told", error.state)
            raise

    with pytest.raises(Exception, match="this one fails the job"):
        write_partitions(spark.sparkContext.parallelize(range(2), 2), lake.dest, write)
    assert lake.is_untouched()
    gate.open("aborted")
    assert gate.notes("told", 1) == ["absent"]
    assert gate.notes("opened") == [""]
    assert lake.becomes_untouched()


@pytest.mark.parametrize(("setting", "warned"), [("true", True), ("false", False), (None, False)])
def test_idle_kill_is_warned_of(
    caplog: pytest.LogCaptureFixture, setting: str | None, warned: bool
) -> None:
    """A Spark that kills workers which send nothing is warned of, another is not."""
    conf = {"spark.python.worker.killOnIdleTimeout": setting} if setting else {}
    with caplog.at_level(logging.WARNING, "magic_committer"):
        warn_of_idle_kill(conf)
    assert ("killOnIdleTimeout" in caplog.text) == warned


def test_of_a_spark_that_was_stopped_its_own_error_is_raised(spark: SparkSession) -> None:
    """And not that its tags cannot be removed any more."""
    job: Any = SimpleNamespace(uuid="u", id="j", dest="s3://bucket/table/")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="was shut down"):

        def stopped() -> None:
            patch.setattr(spark.sparkContext, "_jsc", None)
            raise ValueError("SparkContext was shut down")

        run_action(spark.sparkContext, job, stopped, no_progress)

"""A real cluster: twins of tasks, executors killed with -9, stages that run again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, udf

import magic_committer as mc
from magic_committer.errors import JobReport
from magic_committer.spark import via as module
from magic_committer.spark import write_dataframe, write_partitions
from magic_committer.spark.via import ViaFile, upload_files
from tests.cluster.machines import executor_of_this_task, executors, kill
from tests.spark.lake import HALF_A_BLOCK, Gate, Lake, attempt_number, until

ROWS, PARTITIONS = 40, 4
STRAGGLER = "3"
"""The task that is slow when it runs first."""
FACES = ["dataframe", "staged", "partitions"]


def write_rows(task: mc.Task, rows: Iterable[Any]) -> None:
    """What a task of `write_partitions` does that nothing happens to: ids, and as many blanks as a
    body has."""
    with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
        file.writelines(f"{row[0]}{' ' * len(''.join(row[1:]))}\n" for row in rows)


def save(face: str, df: DataFrame, lake: Lake, via: str) -> JobReport:
    """Write rows whose first column is ``id``, by one of the faces."""
    if face == "partitions":
        return write_partitions(df.rdd, lake.dest, write_rows)
    options = {"compression": "uncompressed", "parquet.enable.dictionary": "false"}
    return write_dataframe(
        df, lake.dest, via=via if face == "staged" else None, writer_options=options
    )


def ids(lake: Lake) -> list[int]:
    """The rows that a reader finds, of CSV and of Parquet files."""
    found: list[int] = []
    for name, body in lake.data().items():
        if name.endswith(".csv"):
            found += map(int, body.split())
        else:
            table = pyarrow.parquet.read_table(pyarrow.BufferReader(body))
            found += table["id"].to_pylist()
    return sorted(found)


def exact(lake: Lake, report: JobReport, files: int = PARTITIONS, rows: int = ROWS) -> None:
    """Every row is there once, in as many files as there are partitions; nothing else is left: no
    upload, no control object. (Attempts that outlive the job may be cleaning up after themselves.)
    """
    assert ids(lake) == list(range(rows))
    assert len(lake.data()) == report.files == files
    assert (report.outcome, report.unattributed, report.left_open) == ("committed", 0, ())
    until(lambda: (lake.open_uploads(), lake.hidden()) == ([], ["_SUCCESS"]))


def left_in(via: str) -> list[str]:
    """What tasks of Spark's writer have committed in the directory of ``via=``. (What an attempt
    writes there that Spark gave up, as a twin, is not ours: `magic_committer.spark.via`.)"""
    folders = os.walk(via.removeprefix("file://"))
    files = [name for path, _, names in folders if "_temporary" not in path for name in names]
    return [name for name in files if name.startswith("part-")]


# Twins --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["before a file", "in a file", "after its close", "at the end"])
def test_of_two_twins_one_is_seen(spark: SparkSession, lake: Lake, gate: Gate, stage: str) -> None:
    """Wherever the slow twin is when the other has won: its rows are not seen, it is told that it
    is late when it goes on after the job, and nothing of it is left. Two that end together are one
    as well."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        slow = task.task_id == STRAGGLER and gate.first("straggler")
        twin = task.task_id == STRAGGLER and not slow

        def reach(place: str) -> None:
            if slow and place == stage:
                gate.note("slow")
                gate.wait("twin at the end" if place == "at the end" else "job is over")
            if twin and place == "at the end":
                gate.note("twin")
                gate.open("twin at the end")

        try:
            reach("before a file")
            with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
                file.write(f"{HALF_A_BLOCK}\n" if slow else "")
                reach("in a file")
                file.writelines(f"{row}\n" for row in rows)
            reach("after its close")
            if stage == "before a file" and slow:
                task.commit()
            reach("at the end")
        except mc.JobNotRunning as error:
            gate.note("told", error.state)
            raise

    rows = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    report = write_partitions(rows, lake.dest, write)
    assert len(gate.notes("slow")) == 1
    assert len(gate.notes("twin")) == 1
    assert ids(lake) == list(range(ROWS))
    gate.open("job is over")
    if stage == "before a file":
        assert gate.notes("told", 1) == ["absent"]
    exact(lake, report)


@dataclass(frozen=True)
class SlowUpload:
    """The upload of staged files, of which the first attempt of a task waits."""

    gate: Gate

    def __call__(self, task: mc.Task, groups: Iterable[tuple[str, list[ViaFile]]]) -> None:
        if task.task_id == "1" and self.gate.first("upload"):
            self.gate.note("slow")
            self.gate.wait("job is over")
        upload_files(task, groups)


@pytest.mark.parametrize("slow", ["dataframe", "staged", "upload"])
def test_a_slow_attempt_is_overtaken(
    spark: SparkSession, lake: Lake, gate: Gate, via: str, monkeypatch: pytest.MonkeyPatch,
    slow: str,
) -> None:  # fmt: skip
    """A twin of a slow task of a DataFrame wins, whoever encodes, and of one that uploads staged
    files; the slow one goes on after the job, and changes nothing."""

    @udf(returnType="long", useArrow=False)
    def waits(row: int) -> int:
        if row == ROWS - 1 and gate.first("row"):
            gate.note("slow")
            gate.wait("job is over")
        return row

    df = spark.range(0, ROWS, 1, PARTITIONS)
    if slow == "upload":
        monkeypatch.setattr(module, "upload_files", SlowUpload(gate))
    else:
        df = df.select(waits("id").alias("id"))
    report = save("dataframe" if slow == "dataframe" else "staged", df, lake, via)
    assert len(gate.notes("slow")) == 1
    exact(lake, report)
    assert left_in(via) == []
    gate.open("job is over")
    exact(lake, report)


# Executors that are killed ------------------------------------------------------------------------


@pytest.mark.parametrize("unique", [True, False])
def test_an_executor_that_is_killed_leaves_its_upload(
    spark: SparkSession, lake: Lake, gate: Gate, unique: bool
) -> None:
    """An executor that dies by SIGKILL in the middle of a file leaves an upload. If its name
    carries the job, the sweep aborts it; else it is counted (as is what a twin has open then),
    and nothing else is left."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        first = task.task_id == "1" and gate.first("attempt")
        if task.task_id == "1" and not first:
            gate.notes("killed", 1)  # a twin may not win before
        name = "killed.csv" if first else f"{task.task_id}.csv"
        with task.open(name, "w", unique=unique) as file:
            if first:
                file.write(HALF_A_BLOCK)
                until(lambda: any("killed" in key for key in lake.open_uploads()))
                gate.note("killed")
                kill(executor_of_this_task())
                kill(os.getpid())  # it would see the end of its rows, and clean up
            file.writelines(f"{row}\n" for row in rows)

    rows = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    report = write_partitions(rows, lake.dest, write)
    assert gate.notes("killed") == [""]
    if unique:
        exact(lake, report)
        return
    assert ids(lake) == list(range(ROWS))
    assert report.unattributed >= 1
    until(lambda: (lake.open_uploads(), lake.hidden()) == (["killed.csv"], ["_SUCCESS"]))


WIDE_ROWS = 60_000


@pytest.mark.parametrize("face", FACES)
def test_an_executor_that_is_killed_while_files_go_up(
    spark: SparkSession, lake: Lake, via: str, face: str
) -> None:
    """An executor dies while files of the job are on their way, also after Spark's writer has
    ended: other attempts write all rows once, and the sweep finds what was left."""
    application = spark.sparkContext.applicationId
    before = executors(application)
    killed: list[int] = []

    def killer() -> None:
        lake.shows_uploads(1)
        killed.append(min(before))
        kill(killed[0])

    df = spark.range(0, WIDE_ROWS, 1, PARTITIONS).select(
        "id", expr("concat(id, repeat('x', 1000)) AS body")
    )
    watcher = Thread(target=killer)
    watcher.start()
    report = save(face, df, lake, via)
    watcher.join()
    assert len(killed) == 1
    exact(lake, report, rows=WIDE_ROWS)
    assert left_in(via) == []


def test_an_executor_that_is_killed_while_sparks_writer_encodes(
    spark: SparkSession, lake: Lake, gate: Gate, via: str
) -> None:
    """With ``via=``, an executor dies in the middle of Spark's own file: the file of its attempt is
    never listed."""

    @udf(returnType="long", useArrow=False)
    def dies(row: int) -> int:
        if row == 15 and gate.first("row"):
            gate.note("killed")
            kill(executor_of_this_task())
        return row

    df = spark.range(0, ROWS, 1, PARTITIONS).select(dies("id").alias("id"))
    report = save("staged", df, lake, via)
    assert gate.notes("killed") == [""]
    exact(lake, report)
    assert left_in(via) == []


# A stage that runs again --------------------------------------------------------------------------


@pytest.mark.parametrize("face", FACES)
def test_a_stage_that_runs_again_is_seen_once(
    spark: SparkSession, lake: Lake, gate: Gate, via: str, face: str
) -> None:
    """An executor dies with shuffle blocks that tasks of the writing stage need: Spark fails to
    fetch them, and runs both stages again. Its numbers of attempts begin anew; every row is there
    once all the same."""

    def note(name: str, text: str = "") -> int:
        """Note this task's executor, and wait until a task of the other one has."""
        own = executor_of_this_task()
        gate.note(name, f"{text}:{own}")
        until(lambda: len({line.rpartition(":")[2] for line in gate.notes(name)}) > 1)
        return own

    @udf(returnType="long", useArrow=False)
    def meets(row: int) -> int:
        if attempt_number() > 0:
            gate.notes("ran", 1)  # a twin must not win: blocks would be on one executor only
        note("shuffled")
        return row

    @udf(returnType="long", useArrow=False)
    def kills_the_other(row: int) -> int:
        context = TaskContext.get()
        assert context is not None
        place = (context.stageId(), context.partitionId(), context.attemptNumber())
        own = note("ran", f"{' '.join(map(str, place))}:{context.taskAttemptId()}")
        if not Path(gate.directory, "killed.open").exists():
            (other,) = set(before) - {own}
            if own > other:
                gate.wait("killed")
            kill(other)
            gate.open("killed")
        return row

    before = executors(spark.sparkContext.applicationId)
    shuffled = spark.range(0, ROWS, 1, PARTITIONS).select(meets("id").alias("id"))
    df = shuffled.repartition(PARTITIONS, "id").select(kills_the_other("id").alias("id"))
    report = save(face, df, lake, via)
    attempts = {line.rpartition(":")[0] for line in gate.notes("ran")}
    places = [attempt.partition(":")[0] for attempt in attempts]
    assert len(places) > len(set(places)), "no stage ran again"
    exact(lake, report)
    assert left_in(via) == []

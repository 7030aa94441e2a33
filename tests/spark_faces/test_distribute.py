"""A large job's files are completed by Spark's tasks, and looked for by the driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.commit.pieces import Piece
from magic_committer.spark import write_dataframe, write_partitions
from magic_committer.spark.distribute import (
    PIECE_FILES_MAX,
    PIECE_FILES_MIN,
    PIECES_A_CORE,
    Completer,
    files_of_a_piece,
)
from tests.spark.lake import Gate, Lake, until

FILES = 12
DISTRIBUTED = mc.Options(distribute_files_min=FILES)
STAGE = "job_stage_complete_by_helpers"
COMPLETER = "magic_committer.spark.distribute.Completer"
LOGGER = "magic_committer"


def write_file_each(task: mc.Task, rows: Iterable[int]) -> None:
    """A file for each row."""
    for row in rows:
        with task.open(f"{row:03d}.txt", "w", unique=True) as file:
            file.write(str(row))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Several pieces of a small job."""
    if "each" not in request.fixturenames:
        monkeypatch.setattr("magic_committer.spark.distribute.PIECE_FILES_MIN", 1)


def write(spark: SparkSession, lake: Lake, **more: Any) -> mc.JobReport:
    """A job of two tasks and `FILES` files."""
    rows = spark.sparkContext.parallelize(range(FILES), 2)
    more.setdefault("options", DISTRIBUTED)
    return write_partitions(rows, lake.dest, write_file_each, **more)


def all_there(lake: Lake) -> bool:
    """Whether exactly the job's files are there, and nothing else."""
    numbers = sorted(int(body) for body in lake.data().values())
    return numbers == list(range(FILES)) and lake.open_uploads() == []


def test_tasks_complete_and_the_driver_sees_all(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """From the threshold on Spark's tasks complete all files; the driver has nothing left to do."""
    with caplog.at_level(logging.INFO, LOGGER):
        report = write(spark, lake)
    assert (report.outcome, report.files, report.warnings) == ("committed", FILES, ())
    assert report.statistics["counters"][STAGE] == 1
    assert f"Spark's tasks say that {FILES} files are completed" in caplog.text
    assert all_there(lake)
    assert lake.keys()[-1:] != []


@pytest.mark.parametrize("files_min", [FILES + 1, None])
def test_a_small_job_is_completed_by_the_driver(
    spark: SparkSession, lake: Lake, files_min: int | None
) -> None:
    """Below the threshold, or without one, no second Spark job is started."""
    report = write(spark, lake, options=mc.Options(distribute_files_min=files_min))
    assert STAGE not in report.statistics["counters"]
    assert all_there(lake)


def test_a_dataframe_too(spark: SparkSession, lake: Lake) -> None:
    """`write_dataframe` distributes by the same option."""
    frame = spark.range(20).repartition(4)
    report = write_dataframe(frame, lake.dest, options=mc.Options(distribute_files_min=1))
    assert report.statistics["counters"][STAGE] == 1
    assert (report.files, report.warnings) == (len(lake.data()), ())
    rows = sorted(n for table in lake.tables() for n in table["id"].to_pylist())
    assert rows == list(range(20))


@dataclass(frozen=True)
class Broken:
    """In place of `Completer`: completes nothing."""

    job: mc.Job

    def __call__(self, pieces: Iterable[Piece]) -> list[int]:
        raise ValueError("no way to the store from here")


def test_the_driver_completes_what_spark_cannot(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the Spark job fails the driver completes all; the report tells why."""
    monkeypatch.setattr(COMPLETER, Broken)
    report = write(spark, lake)
    assert report.outcome == "committed"
    assert all_there(lake)
    [warning] = report.warnings
    assert "no way to the store from here" in warning


def test_workers_that_are_killed_half_way_do_no_harm(
    spark: SparkSession, lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that die with half of their piece done are run again by Spark; each file is there
    once."""

    def killed(job: mc.Job) -> Any:
        def complete(pieces: Iterable[Piece]) -> list[int]:
            context = TaskContext.get()
            assert context is not None
            done = Completer(job)(pieces)
            gate.note("attempt", context.attemptNumber())
            if context.attemptNumber() == 0:
                os._exit(9)
            return done

        return complete

    monkeypatch.setattr(COMPLETER, killed)
    report = write(spark, lake)
    assert (report.outcome, report.warnings) == ("committed", ())
    assert set(gate.notes("attempt")) == {"0", "1"}
    assert all_there(lake)


def test_a_spark_job_that_stalls_is_given_up(
    spark: SparkSession, lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no task ends for too long the driver cancels them and completes the files; what a task
    does later changes nothing."""

    def waiting(job: mc.Job) -> Any:
        def complete(pieces: Iterable[Piece]) -> list[int]:
            gate.note("began")
            gate.wait("released")
            done = Completer(job)(pieces)
            gate.note("done", done)
            return done

        return complete

    monkeypatch.setattr(COMPLETER, waiting)
    monkeypatch.setattr("magic_committer.spark.distribute.STALLED_SECONDS_MAX", 2.0)
    report = write(spark, lake)
    assert report.outcome == "committed"
    [warning] = report.warnings
    assert "no task of Spark's has ended for 2 s" in warning
    assert all_there(lake)
    began = len(gate.notes("began"))
    gate.open("released")
    assert set(gate.notes("done", began)) == {"[0]"}
    assert all_there(lake)


def test_ctrl_c_while_tasks_complete_leaves_a_decided_job(
    spark: SparkSession, lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the commit cancels the Spark job and says that the job is committed; `recover`
    finishes it."""

    def waiting(job: mc.Job) -> Any:
        def complete(pieces: Iterable[Piece]) -> list[int]:
            gate.note("began")
            gate.wait("released")
            return Completer(job)(pieces)

        return complete

    def interrupt(watch: Any) -> None:
        if gate.notes("began"):
            raise KeyboardInterrupt

    monkeypatch.setattr(COMPLETER, waiting)
    monkeypatch.setattr("magic_committer.spark.distribute.StageWatch.__call__", interrupt)
    with pytest.raises(KeyboardInterrupt) as raised:
        write(spark, lake)
    assert "is committed" in " ".join(raised.value.__notes__)
    until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds() == [])
    gate.open("released")
    [found] = [key for key in lake.keys() if key.endswith("/_job.json")]
    job_id = found.removeprefix("__magic_job-").partition("/")[0]
    mc.recover(lake.dest, job_id)
    assert all_there(lake)


def test_sparks_ui_names_the_job(
    spark: SparkSession, lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks that complete run under a description and a tag that name our job; the caller's own
    are as before."""

    def telling(job: mc.Job) -> Any:
        def complete(pieces: Iterable[Piece]) -> list[int]:
            context = TaskContext.get()
            assert context is not None
            for name in ("spark.job.description", "spark.job.tags"):
                gate.note(name, context.getLocalProperty(name))
            return Completer(job)(pieces)

        return complete

    monkeypatch.setattr(COMPLETER, telling)
    context = spark.sparkContext
    context.setJobDescription("nightly")
    try:
        report = write(spark, lake)
        assert context.getLocalProperty("spark.job.description") == "nightly"
    finally:
        context.setJobDescription("")
    assert not list(context.getJobTags())
    told = set(gate.notes("spark.job.description"))
    assert told == {
        f"nightly: magic-committer: complete {FILES} files of {lake.dest}/ (job {report.job_id})"
    }
    tags = set(gate.notes("spark.job.tags"))
    assert all(f"magic-committer-{report.uuid}-complete" in tag for tag in tags)


@pytest.mark.parametrize(
    ("files", "cores", "each"),
    [
        (5, 8, 500),
        (4000, 2, 1000),
        (4001, 2, 1001),
        (10**6, 2, 2000),
        (10**4, 200, 500),
        (600, 0, 600),
    ],
)
def test_pieces_are_small_and_busy_all_cores(files: int, cores: int, each: int) -> None:
    """A piece is `PIECE_FILES_MIN` to `PIECE_FILES_MAX` files; each core has `PIECES_A_CORE`, where
    there are files enough."""
    assert files_of_a_piece(files, cores) == each
    assert PIECE_FILES_MIN <= each <= PIECE_FILES_MAX
    assert PIECES_A_CORE == 2

"""How the driver behaves: names in Spark's UI, progress, a zip, Ctrl-C during the commit."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_partitions
from tests.spark.drivers import driver
from tests.spark.lake import Gate, Lake

ROOT = Path(__file__).resolve().parents[2]
STARTS_SECONDS = 180.0
"""Within these a driver of its own has started Spark and run its tasks."""
PROMPT_SECONDS = 100.0
"""Within these an interrupted driver ends: less than its tasks would wait."""


def property_of_task(name: str) -> str | None:
    """A local property, as a task sees it."""
    context = TaskContext.get()
    assert context is not None
    return context.getLocalProperty(name)


def test_sparks_ui_names_the_tasks_that_write(spark: SparkSession, lake: Lake, gate: Gate) -> None:
    """The caller's own description is in front, and back afterwards."""

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        gate.note("description", property_of_task("spark.job.description"))
        gate.note("tags", property_of_task("spark.job.tags"))

    context = spark.sparkContext
    context.setJobDescription("nightly")
    try:
        report = write_partitions(context.parallelize(range(2), 2), lake.dest, write)
        assert context.getLocalProperty("spark.job.description") == "nightly"
    finally:
        context.setJobDescription("")
    told = f"nightly: magic-committer: write {lake.dest}/ (job {report.job_id})"
    assert set(gate.notes("description")) == {told}
    assert all(f"magic-committer-{report.uuid}" in tags for tags in gate.notes("tags"))
    assert not list(context.getJobTags())


def test_progress_is_told_while_tasks_run(spark: SparkSession, lake: Lake, gate: Gate) -> None:
    """Before the last one has ended; what the function holds needs no pickling."""
    lock, heard = threading.Lock(), []

    def progress(step: mc.Progress) -> None:
        with lock:
            heard.append(step)
        if step.phase == "write" and step.done == 1:
            gate.open("the last task may end")

    def write(task: mc.Task, rows: Iterable[int]) -> None:
        if task.task_id == "1":
            gate.wait("the last task may end")

    rows = spark.sparkContext.parallelize(range(2), 2)
    report = write_partitions(rows, lake.dest, write, progress=progress)
    assert report.outcome == "committed"
    assert mc.Progress("write", 1, 2, "tasks") in heard


SHIPPED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.addPyFile(sys.argv[1])

def write(task, rows):
    import magic_committer
    with task.open("where.txt", "w") as file:
        file.write(magic_committer.__file__)
    return magic_committer.__file__

from magic_committer.spark import write_partitions
report = write_partitions(spark.sparkContext.parallelize([1], 1), sys.argv[2], write)
print(report.returned[0])
"""
"""A driver that ships the library to its workers."""


def test_the_library_works_from_a_zip(environment: str, lake: Lake, tmp_path: Path) -> None:
    """Shipped as a zip, by `addPyFile` (as by ``--py-files``), it works in tasks from that zip."""
    shipped = tmp_path / "shipped.zip"
    with zipfile.ZipFile(shipped, "w") as file:
        for source in (ROOT / "magic_committer").rglob("*"):
            if source.is_file() and "__pycache__" not in source.parts:
                file.write(source, source.relative_to(ROOT))
    run = subprocess.run(
        [sys.executable, "-c", SHIPPED, str(shipped), lake.dest], cwd=tmp_path,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    where = run.stdout.splitlines()[-1]
    assert "shipped.zip" in where
    assert lake.data() == {"where.txt": where.encode()}


def test_ctrl_c_during_the_commit(
    environment: str, lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver ends soon; it says that the job is committed, and how to finish it."""
    monkeypatch.setattr("tests.spark.lake.PATIENCE_SECONDS", STARTS_SECONDS)
    with driver("commit", gate, lake) as running:
        gate.notes("completing", 1)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=PROMPT_SECONDS)
    assert running.returncode != 0
    assert "KeyboardInterrupt" in told
    assert "is committed" in told
    [record] = [key for key in lake.keys() if key.endswith("/_job.json")]
    report = mc.recover(lake.dest, record.removeprefix("__magic_job-").partition("/")[0])
    assert report.outcome == "committed"
    assert (len(lake.data()), lake.open_uploads()) == (2, [])

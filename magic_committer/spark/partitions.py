"""`write_partitions`: any bytes under any names, from the partitions of an RDD.

Invariants:

* What the user's function returned travels with the attempt's result, in one message: the report
  holds exactly what the accepted attempts returned.
* All of it together fits into `RETURNED_BYTES_MAX`: it passes through the driver. Each partition
  has an equal share, so that the first task that returns too much fails, and not the last one.
* It is read before the job commits: nobody gets an error about it for a job that is committed.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeVar, Unpack

from pyspark import RDD, cloudpickle
from pyspark.sql import DataFrame

from magic_committer._arguments import s3_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.errors import CommitIncomplete, TaskFailed, WrongType
from magic_committer.job import Job, Task
from magic_committer.options import Options, S3Options, S3Place
from magic_committer.protocol.record import JobReport, TaskCommit
from magic_committer.spark.action import StageWatch, run_action
from magic_committer.spark.driver import (
    IDLE_KILL,
    Order,
    SaveMode,
    tell_tasks,
    warn_of_idle_kill,
    write_job,
)
from magic_committer.spark.worker import from_messages, spark_attempt, to_message

Row = TypeVar("Row")
WriteRows = Callable[[Task, Iterable[Row]], object]
"""The user's function: writes the rows of one partition into files of a task."""

RETURNED_BYTES_MAX = 64 * 1024**2
"""Bytes of all that the user's function returned, pickled, for all partitions of a job. Each
partition may return an equal share: of 1,000 partitions 65 KiB each."""


@dataclass(frozen=True, slots=True)
class PartitionsReport(JobReport):
    """What became of a job of `write_partitions`, and what its function returned.

    Attributes:
        returned: what the function returned for each partition, in the order of the partitions.
            Only accepted attempts count. Empty if nothing was done (``skipped``).
    """

    returned: tuple[Any, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain JSON values, without ``returned``, which may be anything."""
        values = JobReport.to_dict(self)
        del values["returned"]
        return values


def write_partitions(
    rdd: RDD[Row],
    dest: str,
    fn: WriteRows[Row],
    *,
    mode: SaveMode = "error",
    committer: str | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    mark_success: bool = True,
    **place: Unpack[S3Place],
) -> PartitionsReport:
    """Write files from the partitions of an RDD. All of them appear when the job commits::

        def write_rows(task, rows):
            with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
                return file.write("".join(f"{row}\\n" for row in rows))

        report = write_partitions(rdd, "s3://bucket/out", write_rows)
        print(sum(report.returned), "characters")

    Repeatable: each call is another job.

    Args:
        rdd: any RDD. For a DataFrame use `write_dataframe`, which is about four times as fast.
        dest: ``s3://bucket/prefix``; or ``file:///directory``, which driver and executors share.
        fn: a function that gets a `Task` and the rows of a partition. It opens files with
            ``task.open(name)`` and closes them. Spark calls it once for each attempt of each
            partition, on an executor. Two partitions must not use the same name: put
            ``task.task_id``, the partition's number, into it. ``unique=True`` puts the job's UUID
            in as well: the names of two jobs then never meet, and the job can sweep uploads of
            killed tasks. What ``fn`` returns is in the report, for example counts or names; it is
            pickled, and has at most 64 MiB divided by the number of partitions. If ``fn`` raises,
            Spark runs the partition again.
        mode, s3: as for `write_dataframe`; ``"error"`` is the default.
        committer, options, mark_success, place: as for `magic_committer.start`.
        progress: as for `magic_committer.start`; it is called on the driver, while Spark's tasks
            run (phase ``"write"``) and during the commit.

    Returns:
        What became of the job, and in ``report.returned`` what ``fn`` returned.

    Raises:
        WrongType: ``rdd`` is a DataFrame (use `write_dataframe`) or no RDD; ``dest`` is a `Path`,
            and so on. Nothing was started.
        TypeError: ``fn`` is a generator or a coroutine: its body would never run. Nothing was
            started.
        CommitIncomplete: the job is committed, but not all files are visible yet. The error says
            how to finish it. Its ``report`` holds what ``fn`` returned.

        What Spark raises if a partition finally fails, also if what ``fn`` returned is too large or
        cannot be pickled. The job is aborted.

        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    _refuse_other_than_rdd(rdd)
    _refuse_lazy_function(fn)
    s3 = s3_of(s3, place)
    order = Order(dest, mode, mark_success, s3, options, progress, committer=committer)
    warn_of_idle_kill(rdd.context.getConf().get(IDLE_KILL))

    returned: list[Any] = []

    def run_tasks(job: Job) -> tuple[list[TaskCommit], Iterable[str]]:
        partitions = rdd.getNumPartitions()
        share = RETURNED_BYTES_MAX // max(partitions, 1)
        written = rdd.mapPartitions(PartitionWriter(job, fn, share))
        tag = f"magic-committer-{job.uuid}"
        watch = StageWatch(rdd.context, tag, f"job {job.id}", progress=tell_tasks(progress))
        answers = run_action(rdd.context, tag, written.collect, watch=watch)
        returned.extend(pickle.loads(pickled) for _, pickled in answers)
        return from_messages([message for message, _ in answers]), map(str, range(partitions))

    try:
        return _with_returned(write_job(order, run_tasks), returned)
    except CommitIncomplete as error:
        if error.report is not None:
            error.report = _with_returned(error.report, returned)
        raise


def _with_returned(report: JobReport, returned: Iterable[Any]) -> PartitionsReport:
    told = {field.name: getattr(report, field.name) for field in fields(JobReport)}
    return PartitionsReport(**told, returned=tuple(returned))


@dataclass(frozen=True)
class PartitionWriter:
    """Runs in a Spark task. It is a class, so that only its fields travel to the task.

    Attributes:
        returned_bytes_max: bytes that ``fn`` may return for one partition, pickled.
    """

    job: Job
    fn: WriteRows[Any]
    returned_bytes_max: int = RETURNED_BYTES_MAX

    def __call__(self, rows: Iterable[Any]) -> list[tuple[str, bytes]]:
        task = spark_attempt(self.job)
        with task:
            returned = self.fn(task, rows)
            if isinstance(returned, Iterator | Awaitable | AsyncIterator):
                _refuse_lazy(type(returned).__name__)
            pickled = self._pickled(returned)
        return [(to_message(task), pickled)]

    def _pickled(self, returned: object) -> bytes:
        """What is sent to the driver. It is made before the attempt commits, so that an attempt
        whose value cannot be sent writes nothing that counts."""
        kind = type(returned).__name__
        try:
            # As Spark pickles results: classes of the driver's own program travel too.
            pickled: bytes = cloudpickle.dumps(returned)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise TaskFailed(
                f"the function given to write_partitions returned a {kind} that cannot be pickled:"
                f" {error}",
                job_id=self.job.id,
                hint="Return plain values (numbers, texts, lists, dicts), or nothing",
            ) from error
        if len(pickled) > self.returned_bytes_max:
            raise TaskFailed(
                f"the function given to write_partitions returned a {kind} of {len(pickled)} bytes;"
                f" each partition of this job may return {self.returned_bytes_max}, all together"
                f" {RETURNED_BYTES_MAX}",
                job_id=self.job.id,
                hint="Write it into a file of the task, and return the file's name",
            )
        return pickled


def _refuse_other_than_rdd(rdd: object) -> None:
    frame = isinstance(rdd, DataFrame)
    if not frame and hasattr(rdd, "mapPartitions"):
        return
    raise WrongType(
        f"write_partitions takes an RDD, not {'a' if frame else type(rdd).__name__}"
        + (" DataFrame" if frame else ""),
        hint="Call write_dataframe(df, dest), which is some four times as fast; or pass df.rdd"
        if frame
        else "Make one: spark.sparkContext.parallelize(rows)",
    )


def _refuse_lazy_function(fn: WriteRows[Any]) -> None:
    """Raise now the error that a task would raise later."""
    lazy = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_lazy(fn) for is_lazy in lazy):
        _refuse_lazy("generator or coroutine")


def _refuse_lazy(kind: str) -> NoReturn:
    raise TypeError(
        f"the function given to write_partitions returns a {kind}, whose body nobody runs. Write"
        " the files inside the function, without yield or await"
    )

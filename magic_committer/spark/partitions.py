"""`write_partitions`: any bytes under any names, out of the partitions of an RDD."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from pyspark import RDD
from pyspark.sql import DataFrame

from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.errors import WrongType
from magic_committer.job import Job, Task
from magic_committer.options import Options, S3Options
from magic_committer.protocol.record import JobReport, TaskCommit
from magic_committer.spark.driver import (
    IDLE_KILL,
    Order,
    SaveMode,
    run_action,
    warn_of_idle_kill,
    write_job,
)
from magic_committer.spark.worker import from_messages, spark_attempt, to_message

Row = TypeVar("Row")
WriteRows = Callable[[Task, Iterable[Row]], object]
"""The user's function: writes the rows of one partition into files of a task."""


def write_partitions(
    rdd: RDD[Row],
    dest: str,
    fn: WriteRows[Row],
    *,
    mode: SaveMode = "error",
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    exclusive: bool = False,
    mark_success: bool = True,
) -> JobReport:
    """Write files from the partitions of an RDD; all of them appear when the job commits::

        def write_rows(task, rows):
            with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
                file.writelines(f"{row}\\n" for row in rows)

        write_partitions(rdd, "s3://bucket/out", write_rows)

    Args:
        rdd: any RDD. With a DataFrame use `write_dataframe`, which is some four times as fast.
        dest: ``s3://bucket/prefix``.
        fn: called once for each attempt of each partition, on an executor, with a `Task` and the
            partition's rows. It opens files with ``task.open(name)``, and closes them. Two
            partitions must not use one name: ``task.task_id``, the partition's number, tells them
            apart. ``unique=True`` puts the job's UUID in: then jobs do not meet either, and what a
            killed task leaves is swept. What ``fn`` returns is ignored; if it raises, Spark runs
            the partition again.
        mode: what is done where there is data. ``"error"`` or ``"errorifexists"``: raise.
            ``"append"``: write beside it. ``"overwrite"``: replace all of it.
            ``"overwrite_partitions"``: replace the partitions that are written. ``"ignore"``: do
            nothing, and say so in ``report.skipped``. The words of `magic_committer.start` are
            understood too; all in any case.
        s3: the way to the store. Its secrets do not travel to executors: there the environment,
            a profile or an instance role supplies them.
        options, progress, exclusive, mark_success: as for `magic_committer.start`. ``progress`` is
            told of the commit, on the driver.

    Returns:
        What became of the job.

    Raises:
        WrongType: ``rdd`` is a DataFrame, which `write_dataframe` takes; ``dest`` is a `Path`, and
            the like. TypeError: ``fn`` is a generator or a coroutine, whose body would never run.
            Nothing was started.
        Whatever Spark raises if a partition fails for good: the job is aborted.
        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    _refuse_other_than_rdd(rdd)
    _refuse_lazy_function(fn)
    order = Order(dest, mode, exclusive, mark_success, s3, options, progress)
    warn_of_idle_kill(rdd.context.getConf().get(IDLE_KILL))

    def run_tasks(job: Job) -> tuple[list[TaskCommit], Iterable[str]]:
        written = rdd.mapPartitions(PartitionWriter(job, fn))
        tasks = [str(number) for number in range(rdd.getNumPartitions())]
        messages = run_action(rdd.context, f"magic-committer-{job.uuid}", written.collect)
        return from_messages(messages), tasks

    return write_job(order, run_tasks)


@dataclass(frozen=True)
class PartitionWriter:
    """Runs in a Spark task. A class, so that what travels is its two fields and nothing else."""

    job: Job
    fn: WriteRows[Any]

    def __call__(self, rows: Iterable[Any]) -> list[str]:
        task = spark_attempt(self.job)
        with task:
            returned = self.fn(task, rows)
            if isinstance(returned, Iterator | Awaitable | AsyncIterator):
                _refuse_lazy(type(returned).__name__)
        return [to_message(task)]


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
    """Say at once what a task would say later."""
    lazy = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_lazy(fn) for is_lazy in lazy):
        _refuse_lazy("generator or coroutine")


def _refuse_lazy(kind: str) -> NoReturn:
    raise TypeError(
        f"the function given to write_partitions returns a {kind}, whose body nobody runs. Write"
        " the files inside the function, without yield or await"
    )

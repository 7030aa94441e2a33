"""`write_partitions`: any bytes under any names, from the partitions of an RDD."""

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
    """Write files from the partitions of an RDD. All of them appear when the job commits::

        def write_rows(task, rows):
            with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
                file.writelines(f"{row}\\n" for row in rows)

        write_partitions(rdd, "s3://bucket/out", write_rows)

    Repeatable: each call is another job.

    Args:
        rdd: any RDD. For a DataFrame use `write_dataframe`, which is about four times as fast.
        dest: ``s3://bucket/prefix``.
        fn: a function that gets a `Task` and the rows of a partition. It opens files with
            ``task.open(name)`` and closes them. Spark calls it once for each attempt of each
            partition, on an executor. Two partitions must not use the same name: put
            ``task.task_id``, the partition's number, into it. ``unique=True`` puts the job's UUID
            in as well: the names of two jobs then never meet, and the job can sweep uploads of
            killed tasks. The return value of ``fn`` is ignored. If ``fn`` raises, Spark runs the
            partition again.
        mode: what is done with data that is there already. ``"error"`` (default) or
            ``"errorifexists"``: raise. ``"append"``: write beside it. ``"overwrite"``: replace all
            of it. ``"overwrite_partitions"``: replace the partitions that are written.
            ``"ignore"``: do nothing, and say so in ``report.skipped``. The words of
            `magic_committer.start` are understood too. Upper and lower case are the same.
        s3: the connection to the store; None (default): as the environment says. Its secrets do not
            travel to executors: there the environment, a profile or an instance role supplies them.
        options, exclusive, mark_success: as for `magic_committer.start`.
        progress: as for `magic_committer.start`; it is called on the driver, during the commit.

    Returns:
        What became of the job.

    Raises:
        WrongType: ``rdd`` is a DataFrame (use `write_dataframe`) or no RDD; ``dest`` is a `Path`,
            and so on. Nothing was started.
        TypeError: ``fn`` is a generator or a coroutine: its body would never run. Nothing was
            started.

        What Spark raises if a partition finally fails. The job is aborted.

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
    """Runs in a Spark task. It is a class, so that only its two fields travel to the task."""

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
    """Raise now the error that a task would raise later."""
    lazy = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_lazy(fn) for is_lazy in lazy):
        _refuse_lazy("generator or coroutine")


def _refuse_lazy(kind: str) -> NoReturn:
    raise TypeError(
        f"the function given to write_partitions returns a {kind}, whose body nobody runs. Write"
        " the files inside the function, without yield or await"
    )

"""`write_partitions`: any bytes under any names, from the partitions of an RDD.

What the user's function returned passes through the driver. Each partition has an equal share, so
that the first task that returns too much fails, and not the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack

from pyspark import RDD
from pyspark.sql import DataFrame

from magic_committer._arguments import s3_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.engines import items
from magic_committer.engines.items import RunReport, refuse_lazy_function, with_returned
from magic_committer.errors import WrongType
from magic_committer.job import Task
from magic_committer.options import Options, S3Options, S3Place
from magic_committer.spark.action import RddEngine
from magic_committer.spark.driver import IDLE_KILL, Order, SaveMode, warn_of_idle_kill, write_job

Row = TypeVar("Row")
WriteRows = Callable[[Task, Iterable[Row]], object]
"""The user's function: writes the rows of one partition into files of a task."""

PartitionsReport = RunReport
"""What became of a job of `write_partitions`: with what its function returned for each partition.
Its ``tries`` is 0: Spark does not tell."""


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
) -> RunReport[Any]:
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
    refuse_lazy_function(fn, "write_partitions")
    s3 = s3_of(s3, place)
    order = Order(dest, mode, mark_success, s3, options, progress, committer=committer)
    warn_of_idle_kill(rdd.context.getConf().get(IDLE_KILL))
    share = items.RETURNED_BYTES_MAX // max(rdd.getNumPartitions(), 1)
    report = write_job(
        order, RddEngine(progress), fn, rdd, caller="write_partitions", bytes_max=share
    )
    return report if isinstance(report, RunReport) else with_returned(report)


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

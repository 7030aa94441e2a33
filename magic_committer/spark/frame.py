"""`write_dataframe`: a DataFrame as files of a format.

Invariants:

* All that can be checked is checked before the job starts (`FrameFiles.plan`): a mistake costs no
  Spark job, and leaves nothing at the destination.
* Each task sends one message. All files of a job have one schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from pyspark import RDD
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from magic_committer._arguments import s3_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.engines.items import AcceptResult, Engine, ItemWriter, TryResult
from magic_committer.engines.sink import from_messages, to_message
from magic_committer.errors import OptionError, WrongType
from magic_committer.job import Job
from magic_committer.options import Options, S3Options, S3Place
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, TaskCommit
from magic_committer.spark.action import run_action
from magic_committer.spark.driver import (
    IDLE_KILL,
    Order,
    SaveMode,
    checkpoint_of,
    warn_of_idle_kill,
    write_job,
)
from magic_committer.spark.files import FrameFiles, format_name
from magic_committer.spark.types import needs
from magic_committer.spark.via import write_via

SCHEMA_TASK = "schema"
"""The task of the driver's own file. The driver writes it if no partition had rows."""


def write_dataframe(
    df: DataFrame,
    dest: str,
    format: str = "parquet",
    mode: SaveMode = "error",
    *,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    max_records_per_file: int | None = None,
    via: str | None = None,
    writer_options: Mapping[str, Any] | None = None,
    batch: StreamBatch | None = None,
    committer: str | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    mark_success: bool = True,
    **place: Unpack[S3Place],
) -> JobReport:
    """Write a DataFrame. Its files appear when the job commits::

        report = write_dataframe(df, "s3://bucket/table", mode="append")

    Each Spark partition with rows becomes a file, ``part-00007-mcj<uuid of the job>.parquet``;
    with ``partition_by`` one in each directory that it has rows for. A DataFrame without rows
    becomes one file that holds its schema; with ``partition_by``, none. Timestamps are stored in
    UTC. All columns and all nested fields are stored as nullable, as Spark reads every file.

    Repeatable: each call is another job.

    Args:
        df: any DataFrame of classic Spark or of Spark Connect, but not a stream.
        dest: ``s3://bucket/prefix``; or ``file:///directory``, which driver and executors share.
        format: ``"parquet"`` (default), ``"csv"``, ``"json"``, ``"text"`` (one column of strings)
            or ``"arrow"``. Upper and lower case are the same.
        mode: ``"error"`` (default) or ``"errorifexists"``, ``"append"``, ``"overwrite"``,
            ``"overwrite_partitions"``; ``"ignore"``: do nothing, and say so in ``report.skipped``.
            The words of `magic_committer.start` and any case do too.
        partition_by: columns whose values become directories, as in Spark:
            ``day=2026-11-21/city=K/part-….parquet``. The files do not hold them. Empty (default):
            no directories. Each task sorts its rows by them, so that one file is open at a time.
        sort_by: columns by which the rows of each file are sorted, ascending; empty (default): as
            they come.
        max_records_per_file: rows after which another file is begun. None (default): as
            ``spark.sql.files.maxRecordsPerFile`` says, which has no limit by default.
        writer_options: for Parquet arguments of `pyarrow.parquet.ParquetWriter`, or Spark's, like
            ``parquet.block.size``; for the rest Spark's, like ``{"header": True}``. None (default):
            as Spark's configuration says, else Spark's defaults.
        via: None (default): Python encodes the files. An existing directory that driver and
            executors share, ``file:///…``: Spark's own writer encodes there, each of its formats,
            by its options (docs/spark.md). Not with Spark Connect.
        batch: the micro-batch of a stream that these rows are: it is published once, however often
            it is written (`foreach_batch` names it for you). A batch without rows becomes no file.
            None (default): the rows are no micro-batch.
        s3: the connection to the store; None (default): as the environment says. Its secrets do not
            travel to executors: there the environment, a profile or an instance role supplies them.
        committer, options, mark_success, place: as for `magic_committer.start`.
        progress: as for `magic_committer.start`; it is called on the driver: while tasks run with
            the number of those that have ended (phase ``"write"``; not with Spark Connect), and
            during the commit.

    Returns:
        What became of the job.

    Raises:
        WrongType: ``df`` is an RDD (use `write_partitions`) or no DataFrame of Spark; ``dest`` is a
            `Path`, and so on. Nothing was started.
        OptionError: the format, mode or a column does not exist, ``df`` is a stream, or a file
            cannot hold a column's type, or no path can tell a partition column's, or ``via`` cannot
            be used. Nothing was started.
        MagicError: ``via`` does not hold what Spark's tasks wrote: an executor does not share it.
            The job is aborted.

        What pyarrow or Spark raises for wrong ``writer_options``. Nothing was started.

        What Spark raises if a partition finally fails. The job is aborted.

        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    _refuse_other_than_frame(df)
    if via is None:
        format_name(format)
    _refuse_stream(df)
    checkpoint = None if batch is None else checkpoint_of(df, batch)
    order = Order(
        dest, mode, mark_success, s3_of(s3, place), options, progress, batch, checkpoint, committer
    )
    if is_remote():
        needs((4, 0), "Spark Connect", "Call it in classic Spark")
    if via is not None:
        rows = max_records_per_file
        return write_via(df, order, via, format, writer_options, partition_by, sort_by, rows)
    conf = df.sparkSession.conf
    planned = FrameFiles.plan(
        df.schema,
        format,
        writer_options or {},
        partition_by=partition_by,
        sort_by=sort_by,
        max_records_per_file=max_records_per_file,
        conf=lambda key: conf.get(key, None),
    )
    prepared, files = planned.prepare(df)
    warn_of_idle_kill(conf.get(IDLE_KILL, None))

    engine = FrameEngine(files, progress, a_file=batch is None)
    return write_job(order, engine, files.write, prepared)


@dataclass(frozen=True)
class FrameEngine(Engine):
    """The engine that ``mapInArrow`` is: an item is the record batches of a partition. ``a_file``:
    there must be a file, also where no task had rows."""

    files: FrameFiles
    progress: ProgressFunction
    a_file: bool

    def run(self, work: ItemWriter, items: DataFrame, accept: AcceptResult) -> Iterable[str]:
        """Call ``work`` once for each attempt of each partition."""

        def attempt(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow

            message = to_message(work(0, batches).result)
            yield pyarrow.RecordBatch.from_pydict({"message": [message]})

        written = items.mapInArrow(attempt, "message string")
        spark: Any = items.sparkSession if is_remote() else items.sparkSession.sparkContext
        rows = run_action(spark, work.job, written.collect, self.progress)
        results = from_messages(row.message for row in rows)
        more = schema_task(self.files, work.job, results) if self.a_file else []
        for number, one in enumerate([*results, *more]):
            accept(number, TryResult(one))
        return [*map(str, range(len(results))), *(one.task for one in more)]


def schema_task(files: FrameFiles, job: Job, results: Sequence[TaskCommit]) -> list[TaskCommit]:
    """If no task had rows, one more task writes the file of a DataFrame without rows, in this
    process. Give its result."""
    if any(result.files for result in results):
        return []
    with job.task(SCHEMA_TASK) as task:
        files.write_empty(task)
    return [task.result]


def _refuse_other_than_frame(df: object) -> None:
    if isinstance(df, DataFrame) or hasattr(df, "mapInArrow"):
        return
    rdd = isinstance(df, RDD)
    raise WrongType(
        f"write_dataframe takes a DataFrame of Spark's, not {'an RDD' if rdd else type(df)!s}",
        hint="Call write_partitions(rdd, dest, fn), whose fn writes the files; or make a DataFrame:"
        " rdd.toDF()"
        if rdd
        else "Make one: spark.createDataFrame(rows)",
    )


def _refuse_stream(df: DataFrame) -> None:
    if df.isStreaming:
        raise OptionError(
            "write_dataframe does not take a stream",
            hint="Call it for each batch: df.writeStream.foreachBatch(...)",
        )

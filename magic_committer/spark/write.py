"""`write_dataframe`, a DataFrame as files of a format; `foreach_batch`, micro-batches by it, each
exactly once; `write_partitions`, an RDD as any bytes under any names. Invariants:

* All that can be checked is checked before the job starts (`FrameFiles.plan`): a mistake costs no
  Spark job, and leaves nothing at the destination.
* Each task of a DataFrame sends one message. All files of a job have one schema.
* What the user's function returned passes through the driver. Each partition of an RDD has an equal
  share, so that the first task that returns too much fails, and not the last one.
* `foreach_batch` looks into the ledger before the work only to spare the work (`driver`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pyspark import RDD
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from magic_committer.commit.stream import tell_passed_over
from magic_committer.engines import items
from magic_committer.engines.items import AcceptResult, ItemWriter, RunReport, TryResult
from magic_committer.engines.sink import from_messages, to_message
from magic_committer.errors import JobReport, OptionError, WrongType
from magic_committer.job import Job, Task
from magic_committer.maintenance.api import read_stream
from magic_committer.options import Options, S3Options, S3Place, s3_of
from magic_committer.protocol.ledger import StreamBatch, batch_of, hash_of
from magic_committer.protocol.record import TaskCommit
from magic_committer.runtime.components import ProgressFunction, no_progress
from magic_committer.spark import driver
from magic_committer.spark.driver import Order, SaveMode, checkpoint_of, run_action, write_job
from magic_committer.spark.via import write_via

if TYPE_CHECKING:  # at run time within the calls: RDDs need no pyarrow, DataFrames do
    from magic_committer.spark.files import FrameFiles

Row = TypeVar("Row")
WriteRows = Callable[[Task, Iterable[Row]], object]
"""The user's function: writes the rows of one partition into files of a task."""

PartitionsReport = RunReport
"""What became of a job of `write_partitions`: with what its function returned for each partition.
Its ``tries`` is 0: Spark does not tell."""


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

    Each Spark partition with rows becomes a file, ``part-00007-mcj<uuid of the job>.parquet``; with
    ``partition_by`` one in each directory that it has rows for. A DataFrame without rows becomes
    one file that holds its schema; with ``partition_by``, none. Timestamps are stored in UTC. All
    columns and nested fields are stored as nullable, as Spark reads every file. Repeatable: each
    call is another job.

    Args:
        df: any DataFrame of classic Spark or of Spark Connect, but not a stream.
        dest: ``s3://bucket/prefix``; or ``file:///directory``, which driver and executors share.
        format: ``"parquet"`` (default), ``"csv"``, ``"json"``, ``"text"`` (one column of strings),
            ``"orc"`` or ``"arrow"``, in any case.
        mode: ``"error"`` (default) or ``"errorifexists"``, ``"append"``, ``"overwrite"``,
            ``"overwrite_partitions"``; ``"ignore"``: do nothing, and say so in ``report.skipped``.
            The words of `magic_committer.start` and any case do too.
        partition_by: columns whose values become directories, as in Spark:
            ``day=2026-11-21/city=K/part-….parquet``. The files do not hold them. Empty (default):
            no directories. Each task sorts its rows by them, so that one file is open at a time.
        sort_by: columns that the rows of each file are sorted by, ascending. Empty by default.
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
        progress: as for `magic_committer.start`; also called on the driver while tasks run, with
            the number of those that have ended (phase ``"write"``; not with Spark Connect).

    Returns:
        What became of the job.

    Raises:
        WrongType, OptionError: ``df`` is an RDD (use `write_partitions`), a stream or no DataFrame
            of Spark; the format, mode or a column does not exist; a file cannot hold a column's
            type, or no path can tell a partition column's; ``via`` cannot be used. What pyarrow or
            Spark raises for wrong ``writer_options``. Nothing was started.
        MagicError: ``via`` does not hold what Spark's tasks wrote: an executor does not share it.
            What Spark raises if a partition finally fails. The job is aborted.

        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    if not (isinstance(df, DataFrame) or hasattr(df, "mapInArrow")):
        what, hint = str(type(df)), "Make one: spark.createDataFrame(rows)"
        if isinstance(df, RDD):
            what = "an RDD"
            hint = "Call write_partitions(rdd, dest, fn); or make a DataFrame: rdd.toDF()"
        raise WrongType(f"write_dataframe writes a DataFrame of Spark's, not {what}", hint=hint)
    if via is None:
        from magic_committer.spark.files import FrameFiles
        from magic_committer.spark.formats import FORMATS

        driver.format_name(format, FORMATS)
    if df.isStreaming:
        raise OptionError(
            "write_dataframe does not write a stream",
            hint="Call it for each batch: df.writeStream.foreachBatch(...)",
        )
    checkpoint = None if batch is None else checkpoint_of(df, batch_of(batch))
    s3 = s3_of(s3, place)
    order = Order(dest, mode, mark_success, s3, options, progress, batch, checkpoint, committer)
    if is_remote():
        driver.needs((4, 0), "Spark Connect", "Call it in classic Spark")
    if via is not None:
        rows = max_records_per_file
        return write_via(df, order, via, format, writer_options, partition_by, sort_by, rows)
    conf = df.sparkSession.conf
    planned = FrameFiles.plan(
        df.schema, format, writer_options or {}, partition_by=partition_by, sort_by=sort_by,
        max_records_per_file=max_records_per_file, conf=lambda key: conf.get(key, None),
    )  # fmt: skip
    prepared, files = planned.prepare(df)
    driver.warn_of_idle_kill(conf)
    # The rows of a batch may become no file; a DataFrame is one at least.
    engine = partial(run_frame, prepared, files if batch is None else None, progress)
    return write_job(order, engine, files.write)


def foreach_batch(
    dest: str,
    format: str = "parquet",
    *,
    query: str | None = None,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    max_records_per_file: int | None = None,
    writer_options: Mapping[str, Any] | None = None,
    committer: str | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    mark_success: bool = True,
    **place: Unpack[S3Place],
) -> Callable[[DataFrame, int], None]:
    """Give a function for ``foreachBatch`` that appends each micro-batch exactly once::

        write = foreach_batch("s3://bucket/table", partition_by=["day"])
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", where).start()

    A batch that Spark runs again is not written again, also where Spark has lost its checkpoint's
    last entry, or where two drivers run the same query. The rows of a batch must not depend on the
    run: so it is with Spark's sources that can be replayed.

    Call it inside a function of your own to do more with a batch::

        def write(df, number):
            append(df.dropDuplicates(["id"]), number)

    Call it once for each batch: a second DataFrame of the same batch, for the same destination,
    would be passed over as published already. Take ``df1.unionByName(df2)``, or a function with a
    ``query`` name of its own. Repeatable: each call gives another function, with the same promise.

    Args:
        dest: ``s3://bucket/prefix``, ``file:///directory``, or another destination of `start`.
        format, partition_by, sort_by, max_records_per_file, writer_options: as `write_dataframe`.
        query: the name under which batches are counted at the destination, as for
            `magic_committer.StreamBatch`. None (default): the id that Spark gives to the query, the
            same as long as the checkpoint is. With Spark Connect a name is needed. A name belongs
            to one checkpoint: a batch of another one, of a copy, or of one that was made again,
            whose number is published already ends in `BatchUnsettled` (Spark Connect does not say
            which checkpoint it is: there it is passed over).
        committer, s3, options, mark_success, progress, place: as for `write_dataframe`.

    Returns:
        A function of a DataFrame and the batch's number. It raises what `write_dataframe` raises,
        and `BatchUnsettled` if an earlier run of the query cannot be ended now, or another
        checkpoint has published the batch: the query then fails; its message says what to do.

    Raises:
        WrongType, PathError, OptionError: an argument cannot be used.
    """
    # A trial: what is wrong raises now, and not in a query that fails later.
    s3 = s3_of(s3, place)
    Order(dest, "append", mark_success, s3, options, progress, committer=committer)
    StreamBatch(query if query is not None else "any", 0)
    from magic_committer.spark.formats import FORMATS

    driver.format_name(format, FORMATS)
    append = partial(
        write_dataframe, dest=dest, format=format, mode="append", partition_by=partition_by,
        sort_by=sort_by, max_records_per_file=max_records_per_file, writer_options=writer_options,
        committer=committer, s3=s3, options=options, progress=progress, mark_success=mark_success,
    )  # fmt: skip

    def write(df: DataFrame, number: int) -> None:
        named = query if query is not None else driver.local_property(df, driver.QUERY_PROPERTY)
        if not named:
            raise OptionError(
                "Spark does not say here which query runs this batch",
                hint="Name it: foreach_batch(dest, query='clicks'); one name for each checkpoint"
                " location",
            )
        batch = StreamBatch(named, number)
        seen = read_stream(dest, batch.query, s3=s3)
        checkpoint = checkpoint_of(df, batch)
        done = seen.done if seen is not None else None
        # Of another checkpoint: the commit refuses it, and says what to do.
        is_ours = seen is not None and seen.checkpoint in ("", hash_of(checkpoint))
        if done is not None and done >= number and is_ours:
            tell_passed_over(batch, done)
            return
        driver.end_earlier_runs(
            dest, checkpoint, s3, options, driver.local_property(df, driver.RUN_PROPERTY)
        )
        driver.logger.info("batch %s of query %s: %s", number, batch.query, append(df, batch=batch))

    return write


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
        fn: gets a `Task` and the rows of a partition, opens files with ``task.open(name)`` and
            closes them. Spark calls it once for each attempt of each partition, on an executor, and
            again if it raises. Two partitions must not use the same name: put ``task.task_id``, the
            partition's number, into it. ``unique=True`` puts the job's UUID in as well: the names
            of two jobs then never meet, and the job can sweep uploads of killed tasks. What ``fn``
            returns is in the report, for example counts or names; it is pickled, and has at most
            64 MiB divided by the number of partitions.
        mode, s3: as for `write_dataframe`; ``"error"`` is the default.
        committer, options, mark_success, progress, place: as for `write_dataframe`.

    Returns:
        What became of the job, and in ``report.returned`` what ``fn`` returned.

    Raises:
        WrongType: ``rdd`` is a DataFrame (use `write_dataframe`) or no RDD; ``fn`` is a generator
            or a coroutine, whose body would never run. Nothing was started.
        CommitIncomplete: as `Job.commit`. Its ``report`` holds what ``fn`` returned.

        What Spark raises if a partition finally fails, also if what ``fn`` returned is too large or
        cannot be pickled. The job is aborted.

        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    if (frame := isinstance(rdd, DataFrame)) or not hasattr(rdd, "mapPartitions"):
        what, hint = type(rdd).__name__, "Make one: spark.sparkContext.parallelize(rows)"
        if frame:
            what = "a DataFrame"
            hint = "Call write_dataframe(df, dest), some four times as fast; or pass df.rdd"
        raise WrongType(f"write_partitions writes an RDD, not {what}", hint=hint)
    items.refuse_lazy_function(fn, "write_partitions")
    s3 = s3_of(s3, place)
    order = Order(dest, mode, mark_success, s3, options, progress, committer=committer)
    driver.warn_of_idle_kill(rdd.context.getConf())
    share = items.RETURNED_BYTES_MAX // max(rdd.getNumPartitions(), 1)
    engine = partial(driver.run_rdd, rdd, progress)
    report = write_job(order, engine, fn, "write_partitions", share)
    return report if isinstance(report, RunReport) else items.with_returned(report)


def run_frame(
    prepared: DataFrame,
    files: FrameFiles | None,
    progress: ProgressFunction,
    work: ItemWriter,
    accept: AcceptResult,
) -> list[str]:
    """The engine that ``mapInArrow`` is: an item is the record batches of a partition. ``files``:
    what there must be a file of, also where no task had rows."""

    def attempt(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        message = to_message(work(0, batches).result)
        yield pyarrow.RecordBatch.from_pydict({"message": [message]})

    written = prepared.mapInArrow(attempt, "message string")
    spark: Any = prepared.sparkSession if is_remote() else prepared.sparkSession.sparkContext
    rows = run_action(spark, work.job, written.collect, progress)
    results = from_messages(row.message for row in rows)
    more = [] if files is None else schema_task(files, work.job, results)
    for number, one in enumerate([*results, *more]):
        accept(number, TryResult(one))
    return [*map(str, range(len(results))), *(one.task for one in more)]


def schema_task(files: FrameFiles, job: Job, results: Sequence[TaskCommit]) -> list[TaskCommit]:
    """The result of one more task, of this process: the file of a DataFrame without rows."""
    if any(result.files for result in results):
        return []
    with job.task("schema") as task:
        files.write_empty(task)
    return [task.result]

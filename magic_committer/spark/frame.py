"""`write_dataframe`: a DataFrame as files of a format, one for each partition that has rows.

Invariants:

* All files of a job have one schema: the DataFrame's own, as `DataFrame.toArrow` gives it
  (timestamps in UTC, in every time zone of the session). Everything in it may be null, at every
  depth: Spark reads all files so, whatever they say. "Not null" inside a struct is not true where
  the struct itself is null, as after a left join, and pyarrow's writer refuses such rows.
* The driver tries that schema before the job starts: a type that Arrow or the format does not have
  costs no Spark job. The bytes of this trial become the file of a DataFrame without rows.
* A row group holds `ROW_GROUP_BYTES` of Arrow data, not one of Spark's batches of 10,000 rows. A
  thread of the pool encodes it while the task takes Spark's next batches. One group is encoded at
  a time: at most two are in memory, and one thread at a time uses the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from math import exp
from typing import Any, TypeVar

from pyspark import RDD
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from magic_committer import _wiring
from magic_committer._pool import Future, result_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.errors import OptionError, WrongType
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

T = TypeVar("T")

FORMATS_BUILT = ("parquet",)
"""The formats of this release. Other formats raise, and the error names these."""
ROW_GROUP_BYTES = 32 * 1024**2
"""Bytes of Arrow data that a task gathers before it writes a row group."""
DICTIONARY_BYTES_MAX = 1024**2
"""Bytes of a column's dictionary at which pyarrow gives it up, unless it is told otherwise."""
SAMPLE_ROWS = 10_000
"""Rows of the first row group that are looked at to see how many values a column has. A file with
fewer rows is not looked at."""
SCHEMA_TASK = "schema"
"""The task of the driver's own file. The driver writes it if no partition had rows."""


def write_dataframe(
    df: DataFrame,
    dest: str,
    format: str = "parquet",
    mode: SaveMode = "error",
    *,
    writer_options: Mapping[str, Any] | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    exclusive: bool = False,
    mark_success: bool = True,
) -> JobReport:
    """Write a DataFrame. Its files appear when the job commits::

        report = write_dataframe(df, "s3://bucket/table", mode="append")

    A partition with rows becomes one file, ``part-00007-mcj<uuid of the job>.parquet``. A DataFrame
    without rows becomes one file that holds its schema. Timestamps are stored in UTC. All columns
    and all nested fields are stored as nullable, as Spark reads every file.

    Repeatable: each call is another job.

    Args:
        df: any DataFrame of classic Spark or of Spark Connect, but not a stream.
        dest: ``s3://bucket/prefix``.
        format: ``"parquet"``, the default and the only one.
        mode: what is done with data that is there already. ``"error"`` (default) or
            ``"errorifexists"``: raise. ``"append"``: write beside it. ``"overwrite"``: replace all
            of it. ``"overwrite_partitions"``: replace the partitions that are written.
            ``"ignore"``: do nothing, and say so in ``report.skipped``. The words of
            `magic_committer.start` are understood too. Upper and lower case are the same.
        writer_options: arguments for `pyarrow.parquet.ParquetWriter`, for example ``{"compression":
            "zstd"}``; None (default): pyarrow's defaults.
        s3: the connection to the store; None (default): as the environment says. Its secrets do not
            travel to executors: there the environment, a profile or an instance role supplies them.
        options, exclusive, mark_success: as for `magic_committer.start`.
        progress: as for `magic_committer.start`; it is called on the driver, during the commit.

    Returns:
        What became of the job.

    Raises:
        WrongType: ``df`` is an RDD (use `write_partitions`) or no DataFrame of Spark; ``dest`` is a
            `Path`, and so on. Nothing was started.
        OptionError: the format or mode does not exist, ``df`` is a stream, or a file cannot hold
            its columns.

        What PySpark or pyarrow raises for a type that Arrow or the format does not have, or for
        wrong ``writer_options``. Nothing was started.

        What Spark raises if a partition finally fails. The job is aborted.

        Otherwise as `magic_committer.start` and `magic_committer.Job.commit`.
    """
    _refuse_other_than_frame(df)
    if format not in FORMATS_BUILT:
        raise OptionError(
            f"format {format!r} is not built yet; there is {', '.join(FORMATS_BUILT)}"
        )
    order = Order(dest, mode, exclusive, mark_success, s3, options, progress)
    _refuse_unwritable(df)
    files = ParquetFiles(nullable(df.limit(0).toArrow().schema), dict(writer_options or {}))
    without_rows = files.without_rows()
    warn_of_idle_kill(df.sparkSession.conf.get(IDLE_KILL, None))

    def run_tasks(job: Job) -> tuple[list[TaskCommit], Iterable[str]]:
        # By number: mapInArrow looks columns up by name, and reads a dot in a name as a path.
        numbered = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
        written = numbered.mapInArrow(FrameWriter(job, files), "message string")
        spark = df.sparkSession if is_remote() else df.sparkSession.sparkContext
        rows = run_action(spark, f"magic-committer-{job.uuid}", written.collect)
        results = from_messages([row.message for row in rows])
        tasks = [str(number) for number in range(len(rows))]
        if not any(result.files for result in results):
            with job.task(SCHEMA_TASK) as task, task.open(file_name(0), unique=True) as file:
                file.write(without_rows)
            results.append(task.result)
            tasks.append(SCHEMA_TASK)
        return results, tasks

    return write_job(order, run_tasks)


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


def _refuse_unwritable(df: DataFrame) -> None:
    if df.isStreaming:
        raise OptionError(
            "write_dataframe does not take a stream",
            hint="Call it for each batch: df.writeStream.foreachBatch(...)",
        )
    if not df.columns:
        raise OptionError("the DataFrame has no columns")
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise OptionError(f"the DataFrame has two columns of one name: {', '.join(twice)}")


def nullable(schema: Any) -> Any:
    """An Arrow schema in which every field may be null, at every depth. The exception is the keys
    of maps: Arrow and Parquet do not allow null there, but fields nested in a key may be null.
    Names, order and metadata stay. Pure."""
    import pyarrow

    return pyarrow.schema([_nullable_field(field) for field in schema], metadata=schema.metadata)


def _nullable_field(field: Any) -> Any:
    return field.with_type(_nullable_type(field.type)).with_nullable(True)


def _nullable_type(kind: Any) -> Any:
    """The same type, with nullable fields inside. Spark makes no other nested types than these."""
    import pyarrow
    from pyarrow import types

    if types.is_struct(kind):
        return pyarrow.struct([_nullable_field(kind.field(n)) for n in range(kind.num_fields)])
    if types.is_map(kind):
        key = kind.key_field.with_type(_nullable_type(kind.key_type))
        return pyarrow.map_(key, _nullable_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_large_list(kind):
        return pyarrow.large_list(_nullable_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(_nullable_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pyarrow.list_(_nullable_field(kind.value_field))
    return kind


def file_name(partition: int) -> str:
    """The name of a partition's file, without the job's UUID."""
    return f"part-{partition:05d}.parquet"


@dataclass(frozen=True)
class FrameWriter:
    """Runs in a Spark task. It is a class, so that only its two fields travel to the task."""

    job: Job
    files: ParquetFiles

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        task = spark_attempt(self.job)
        with task:
            self._write(task, (batch for batch in batches if batch.num_rows))
        yield pyarrow.RecordBatch.from_pydict({"message": [to_message(task)]})

    def _write(self, task: Task, batches: Iterator[Any]) -> None:
        first = next(batches, None)
        if first is None:
            return
        with task.open(file_name(int(task.task_id)), unique=True) as file:
            self.files.write(file, chain([first], batches))


@dataclass(frozen=True)
class ParquetFiles:
    """How to write Parquet files of one schema.

    Attributes:
        schema: the Arrow schema.
        options: arguments for pyarrow's ParquetWriter.
    """

    schema: Any
    options: Mapping[str, Any]

    def write(self, file: Any, batches: Iterable[Any]) -> None:
        """Write record batches into a binary file, which stays open. Columns are matched by
        position."""
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        sink = pyarrow.PythonFile(file, mode="w")
        groups = row_groups(batches)
        first = next(groups, None)
        options = self.options if first is None else self._options_for(self._table(first))
        with ParquetWriter(sink, self.schema, **options) as writer:
            if first is not None:
                waiting = chain([first], groups)
                del first  # so that its memory is freed once it is written
                one_ahead(waiting, partial(self._write_group, writer))

    def _write_group(self, writer: Any, group: list[Any]) -> None:
        table = self._table(group)
        # pyarrow would begin another row group after 1,048,576 rows, however narrow they are.
        writer.write_table(table, row_group_size=table.num_rows or None)

    def _table(self, group: list[Any]) -> Any:
        import pyarrow

        table = pyarrow.Table.from_batches(group).rename_columns(self.schema.names)
        return table.cast(self.schema)

    def _options_for(self, first: Any) -> Mapping[str, Any]:
        """The writer's options: no dictionary for columns of too many values, unless the user
        chose."""
        if "use_dictionary" in self.options or "column_encoding" in self.options:
            return self.options
        many = columns_of_many_values(
            first, self.options.get("dictionary_pagesize_limit") or DICTIONARY_BYTES_MAX
        )
        if not many:
            return self.options
        from pyarrow.parquet import ParquetFile

        leaves = ParquetFile(BytesIO(self.without_rows())).schema
        paths = [leaves.column(number).path for number in range(len(leaves))]
        return {**self.options, "use_dictionary": [p for p in paths if p not in many] or False}

    def without_rows(self) -> bytes:
        """Give the bytes of a file that holds only the schema."""
        file = BytesIO()
        self.write(file, ())
        return file.getvalue()


def row_groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Gather record batches into groups of at least `ROW_GROUP_BYTES`."""
    group: list[Any] = []
    gathered = 0
    for batch in batches:
        group.append(batch)
        gathered += batch.nbytes
        if gathered >= ROW_GROUP_BYTES:
            yield group
            group, gathered = [], 0
    if group:
        yield group


def one_ahead(items: Iterable[T], use: Callable[[T], None]) -> None:
    """Use each item in a thread of the pool, in order and one at a time, while this thread gets the
    next item.

    Raises:
        What ``use`` or the iterable raises. Nothing is in use any more.
    """
    running: Future[None] | None = None
    try:
        for item in items:
            if running is not None:
                result_of(running)
            running = _wiring.pool.submit(partial(use, item))
            del item  # so that it is freed once it is used
        if running is not None:
            result_of(running)
    except BaseException as error:
        if running is not None and not running.done():
            try:
                result_of(running)
            except Exception as failed:
                error.add_note(f"what was under way failed too: {failed}")
        raise


def columns_of_many_values(table: Any, dictionary_bytes_max: int) -> set[str]:
    """The names of those columns whose dictionary would be given up, or would save nothing.

    pyarrow begins each column chunk with a dictionary, and hashes every value until the dictionary
    has outgrown its limit: for keys and measures a fifth of all the encoding, for nothing. A sample
    tells: if a column had just so many values as a dictionary can hold, all equally frequent, the
    sample would hold a certain number of them. It holds more: the column has more. Where some
    values are more frequent than others the sample holds fewer, and the dictionary is tried.

    Columns of nested types are not looked at. Pure.
    """
    import pyarrow
    from pyarrow import compute

    if table.num_rows < SAMPLE_ROWS:
        return set()
    sample = table.take(pyarrow.array(_spread(table.num_rows, SAMPLE_ROWS)))
    many = set()
    for name, column in zip(table.column_names, sample.columns, strict=True):
        values = len(column) - column.null_count
        if not values or not _is_flat(column.type):
            continue
        rows = table.num_rows * values / len(column)  # that are not null
        held_max = min(dictionary_bytes_max * values / column.nbytes, rows / 2)
        if compute.count_distinct(column).as_py() > held_max * (1 - exp(-values / held_max)):
            many.add(name)
    return many


def _is_flat(kind: Any) -> bool:
    """Whether a column of this type is one column of a Parquet file, with a dictionary."""
    from pyarrow import types

    tests = (
        types.is_integer, types.is_floating, types.is_decimal, types.is_temporal, types.is_string,
        types.is_large_string, types.is_binary, types.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _spread(rows: int, count: int) -> list[int]:
    """``count`` numbers below ``rows``, spread without a period: data often has one."""
    step = rows // count
    return [number * step + number * number * 7919 % step for number in range(count)]

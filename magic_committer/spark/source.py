"""``format("magic")``: what `write_dataframe` and `foreach_batch` do, in Spark's own spelling.

::

    df.write.format("magic").mode("append").save("s3://bucket/table")
    stream.writeStream.format("magic").option("checkpointLocation", where).start("s3://bucket/t")

Spark runs a data source in processes of its own, each with a fresh copy of the writer: a planner
that calls `MagicSource.writer`, the tasks, a process that commits, and another one that aborts.
Invariants:

* The planner starts the job last, when all that can be refused is refused: if `writer` raises,
  Spark calls no ``abort``.
* A message that is missing is a partition that is missing. The rest is `EngineSink`'s.

Of a stream, Spark runs a batch again when it is not sure that it was written:

* Each run of a micro-batch is a job of its own; the ledger decides whether it is published.
* Spark makes one writer in the planner, which starts the job, and another one in the process that
  commits, out of a pickled source. That one starts nothing (`MagicSource.is_planner`).
* The process that commits learns the job, and the id of the query, from the messages of the tasks.
  If no task sent one, there is nothing to commit, and the abort finds the job by the checkpoint
  location, of which the job's record holds a hash.
* The first planner of a driver aborts what earlier runs of its query have left running (`batches`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType, TimestampType

from magic_committer.engines.sink import EngineSink
from magic_committer.errors import DestinationExists, MagicError, OptionError
from magic_committer.maintenance.api import abort_stream
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.spark.batches import end_earlier_runs
from magic_committer.spark.driver import QUERY_PROPERTY, spark_attempt
from magic_committer.spark.files import TIME_ZONE, FrameFiles
from magic_committer.spark.source_options import SourceOptions, read_options
from magic_committer.spark.types import needs
from magic_committer.spark.write import schema_task

logger = logging.getLogger("magic_committer")

_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""The writers of streams of Spark 4.0 accept rows only."""


class MagicSource(DataSource):
    """The data source ``magic``. Spark makes it; users write ``format("magic")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.is_planner = True

    def __getstate__(self) -> dict[str, Any]:
        # Spark makes the source in the planner, and pickles it to the process that commits.
        return {**self.__dict__, "is_planner": False}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "magic"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Check the options, start the job. Called once for each write, in the planner."""
        said = read_options(self.options, overwrite)
        files = planned(said, schema)
        skips = said.ignores and said.finds_data()
        sink = None if skips else EngineSink.begin(said.start())
        return MagicWriter(sink, files, said.ignores)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Check the options; in the planner, start the job of a micro-batch. Called for each batch,
        and again in the process that commits."""
        needs((4, 1), 'writeStream.format("magic")', "Call foreach_batch")
        said = read_options(self.options, overwrite, streams=True)
        files = planned(said, schema)
        if not said.checkpoint:
            raise OptionError(
                "the stream has no checkpointLocation: a batch that is run again would be another"
                " one",
                hint='Write .option("checkpointLocation", "s3a://bucket/checkpoints/query"), one'
                " for each query",
            )
        if not self.is_planner:
            return MagicStreamWriter(said, files, None)
        end_earlier_runs(said.dest, said.checkpoint, said.s3, said.options)
        return MagicStreamWriter(said, files, EngineSink.begin(said.start()))

    def schema(self) -> StructType:
        """Refuse: Spark asks for a schema when it reads."""
        raise OptionError(
            'format("magic") only writes',
            hint="Read the files as what they are: spark.read.parquet('s3a://bucket/table'). In SQL"
            " name the columns: CREATE TABLE t (id BIGINT) USING magic",
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse: the files are plain files of their format."""
        self.schema()
        raise AssertionError


@dataclass(frozen=True)
class WrittenPartition(WriterCommitMessage):
    """What a task sends to the process that commits: the attempt's message; "": it had nothing to
    write."""

    text: str


class MagicWriter(DataSourceArrowWriter):
    """The writer of one batch job: plain data, pickled to the tasks and to the commit. Without a
    ``sink`` there is data, and the mode is "ignore"."""

    def __init__(self, sink: EngineSink | None, files: FrameFiles, ignores: bool) -> None:
        self.sink = sink
        self.files = files
        self.ignores = ignores

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        """Write one partition's files as pending uploads. Called in a task, for each attempt."""
        if self.sink is None:
            return WrittenPartition("")
        write = partial(self.files.write, batches=iterator)
        return WrittenPartition(self.sink.attempt(spark_attempt, write))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all files visible."""
        if self.sink is None:
            return
        sent = [one.text for one in messages if isinstance(one, WrittenPartition)]
        tasks = map(str, range(len(messages)))
        try:
            self.sink.complete(sent, tasks, last=partial(schema_task, self.files))
        except DestinationExists:
            if not self.ignores:  # else: the data came after our first look
                raise
            logger.info("mode 'ignore': there is data by now, nothing is written")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make sure that nothing of the job becomes visible, unless it is decided."""
        if self.sink is not None:
            self.sink.failed()


@dataclass(frozen=True)
class WrittenInBatch(WriterCommitMessage):
    """What a task of a stream sends to the process that commits: its result, the id of the query,
    and the job."""

    text: str
    query: str
    sink: EngineSink


class MagicStreamWriter(_StreamWriter):  # type: ignore[misc]
    """The writer of one micro-batch in the planner and the tasks; another one, without a ``sink``,
    in the process that commits: there messages name the job."""

    def __init__(self, said: SourceOptions, files: FrameFiles, sink: EngineSink | None) -> None:
        self.said = said
        self.files = files
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> WrittenInBatch:
        """Write one partition's files as pending uploads. Called in a task, for each attempt."""
        if self.sink is None:
            raise MagicError("this writer was made to commit, not to write")
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        if not query:
            raise MagicError(f"this task is not a stream's: it has no {QUERY_PROPERTY}")
        write = partial(self.files.write, batches=iterator)
        return WrittenInBatch(self.sink.attempt(spark_attempt, write), query, self.sink)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the files of a batch visible, unless this or a later batch has been published."""
        sent = [message for message in messages if isinstance(message, WrittenInBatch)]
        if not sent:
            raise MagicError(f"no task has sent its result: batch {batchId} cannot be committed")
        sent[0].sink.complete(
            [message.text for message in sent],
            map(str, range(len(messages))),
            batch=StreamBatch(sent[0].query, batchId),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make sure that nothing of this run of a batch becomes visible, unless it is decided."""
        for message in messages:
            if isinstance(message, WrittenInBatch):
                message.sink.failed()
                return
        said = self.said
        abort_stream(said.dest, said.checkpoint or "", s3=said.s3, options=said.options)


def planned(said: SourceOptions, schema: StructType) -> FrameFiles:
    """Plan the files. Spark tells a data source nothing of its configuration, so it is not asked:
    a partition column that is an instant needs a time zone that Python knows."""
    named = {name.lower() for name in said.partition_by}
    for field in schema:
        if field.name.lower() in named and isinstance(field.dataType, TimestampType):
            _refuse_zone(field.name, said.time_zone)
    return FrameFiles.plan(
        schema,
        said.file_format,
        said.of_format or {},
        partition_by=said.partition_by,
        max_records_per_file=said.max_records_per_file,
        conf={TIME_ZONE: said.time_zone or None}.get,
        prepared=False,
    )


def _refuse_zone(column: str, zone: str) -> None:
    """Refuse a time zone in which Python cannot write the instants of a column."""
    if not zone:
        raise OptionError(
            f"partition_by: {column!r} is a timestamp, and Spark does not tell a data source the"
            " session's time zone, in which its text would be",
            hint='Say it: .option("timeZone", spark.conf.get("spark.sql.session.timeZone"))',
        )
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionError(
            f"partition_by: {column!r} is a timestamp, and Python does not know the time zone"
            f" {zone!r:.80}",
            hint="Name a region like 'Europe/Berlin', or an offset like 'Etc/GMT-8' (that is"
            " UTC+8). Or call write_dataframe, or partition by a column of text",
        ) from None

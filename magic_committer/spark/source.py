"""``format("magic")``: what `write_dataframe` does, in Spark's own spelling and in SQL.

::

    df.write.format("magic").mode("append").save("s3://bucket/table")

Spark runs a data source in processes of its own, each with a fresh copy of the writer: a planner
that calls `MagicSource.writer`, the tasks, a process that commits, and another one that aborts.
Invariants:

* The planner starts the job last, when all that can be refused is refused: if `writer` raises,
  Spark calls no ``abort``.
* A message that is missing is a partition that is missing. The rest is `EngineSink`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType, TimestampType

from magic_committer.engines.sink import EngineSink
from magic_committer.errors import DestinationExists, OptionError
from magic_committer.spark.action import spark_attempt
from magic_committer.spark.files import TIME_ZONE, FrameFiles
from magic_committer.spark.frame import schema_task
from magic_committer.spark.source_options import SourceOptions, read_options
from magic_committer.spark.types import needs

logger = logging.getLogger("magic_committer")


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
        and again in the process that commits. The writers of streams of Spark 4.0 take rows only.
        """
        needs((4, 1), 'writeStream.format("magic")', "Call foreach_batch")
        from magic_committer.spark.stream import stream_writer

        said = read_options(self.options, overwrite, streams=True)
        return stream_writer(said, planned(said, schema), is_planner=self.is_planner)

    def schema(self) -> StructType:
        """Refuse: Spark asks for a schema when it reads."""
        raise _only_writes()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse: the files are plain files of their format."""
        raise _only_writes()


def _only_writes() -> OptionError:
    return OptionError(
        'format("magic") only writes',
        hint="Read the files as what they are: spark.read.parquet('s3a://bucket/table'). In SQL"
        " name the columns: CREATE TABLE t (id BIGINT) USING magic",
    )


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


def planned(said: SourceOptions, schema: StructType) -> FrameFiles:
    """Plan the files. Spark tells a data source nothing of its configuration, so it is not asked:
    a partition column that is an instant needs a time zone that Python knows."""
    _refuse_instants(said, schema)
    return FrameFiles.plan(
        schema,
        said.file_format,
        said.of_format or {},
        partition_by=said.partition_by,
        max_records_per_file=said.max_records_per_file,
        conf={TIME_ZONE: said.time_zone or None}.get,
        prepared=False,
    )


def _refuse_instants(said: SourceOptions, schema: StructType) -> None:
    named = {name.lower() for name in said.partition_by}
    for field in schema:
        if field.name.lower() not in named or not isinstance(field.dataType, TimestampType):
            continue
        if not said.time_zone:
            raise OptionError(
                f"partition_by: {field.name!r} is a timestamp, and Spark does not tell a data"
                " source the session's time zone, in which its text would be",
                hint='Say it: .option("timeZone", spark.conf.get("spark.sql.session.timeZone"))',
            )
        try:
            ZoneInfo(said.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise OptionError(
                f"partition_by: {field.name!r} is a timestamp, and Python does not know the time"
                f" zone {said.time_zone!r:.80}",
                hint="Name a region like 'Europe/Berlin', or an offset like 'Etc/GMT-8' (that is"
                " UTC+8). Or call write_dataframe, or partition by a column of text",
            ) from None

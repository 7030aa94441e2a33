"""``format("magic")``: what `write_dataframe` does, in Spark's own spelling and in SQL.

::

    df.write.format("magic").mode("append").save("s3://bucket/table")

Spark runs a data source in processes of its own, each with a fresh copy of the writer: a planner
that calls `MagicSource.writer`, the tasks, a process that commits, and another one that aborts.
Invariants:

* The planner starts the job last, when all that can be refused is refused: if `writer` raises,
  Spark calls no ``abort``.
* The tasks publish nothing. Only what Spark accepted, one result for each partition, is committed:
  a message that is missing is a partition that is missing.
* The process that commits ends the job in place of the planner, which never touches it again
  (`Job._hand_over`). So the record of a job that ended well is deleted, not left ``closed``.
* ``abort`` never undoes a decision. Spark calls it after a commit that raised, with all messages:
  the record says whether the job is decided, and a decided job is left to be finished.
* The tasks give the signs of life, and the process that commits: no other process lives as long as
  the job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType, TimestampType

from magic_committer._runtime import no_progress
from magic_committer.api import attach
from magic_committer.errors import (
    DestinationExists,
    JobNotFound,
    JobNotRunning,
    OptionError,
    OutcomeUnknown,
)
from magic_committer.job import Job, give_up
from magic_committer.spark.driver import Order, SaveMode
from magic_committer.spark.files import TIME_ZONE, FrameFiles
from magic_committer.spark.frame import results_of
from magic_committer.spark.source_options import SourceOptions, read_options
from magic_committer.spark.types import needs
from magic_committer.spark.worker import spark_attempt, to_message

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
        """Check the options, start the job. Called once for each write, in the planner.

        Raises:
            OptionError: an option, or a type of the schema. Nothing was started.

            What `magic_committer.start` raises.
        """
        said = read_options(self.options, overwrite)
        files = planned(said, schema)
        order = order_of(said)
        hand = None if order.ignores and order.finds_data() else hand_over(order.start())
        return MagicWriter(hand, files, order.ignores)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Check the options; in the planner, start the job of a micro-batch. Called for each batch,
        and again in the process that commits.

        Raises:
            OptionError: an option, a type of the schema, or Spark 4.0, whose writers of streams
                take rows only. Nothing was started.

            What `magic_committer.start` raises.
        """
        needs((4, 1), 'writeStream.format("magic")', "Call foreach_batch")
        from magic_committer.spark.stream import stream_writer

        said = read_options(self.options, overwrite, streams=True)
        return stream_writer(said, planned(said, schema), is_planner=self.is_planner)

    def schema(self) -> StructType:
        """Refuse: Spark asks for a schema when it reads.

        Raises:
            OptionError: always.
        """
        raise _only_writes()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse: the files are plain files of their format.

        Raises:
            OptionError: always.
        """
        raise _only_writes()


def _only_writes() -> OptionError:
    return OptionError(
        'format("magic") only writes',
        hint="Read the files as what they are: spark.read.parquet('s3a://bucket/table'). In SQL"
        " name the columns: CREATE TABLE t (id BIGINT) USING magic",
    )


@dataclass(frozen=True)
class WrittenPartition(WriterCommitMessage):
    """What a task sends to the process that commits: some 300 bytes, whatever it wrote.

    Attributes:
        text: the attempt's result as JSON; "" where nothing was to be written.
    """

    text: str


class MagicWriter(DataSourceArrowWriter):
    """The writer of one batch job: plain data, pickled to the tasks and to the commit."""

    def __init__(self, hand: Callable[[], Job] | None, files: FrameFiles, ignores: bool) -> None:
        """Args:
        hand: makes the handle of the job; None: there is data and the mode is "ignore".
        files: how files are written.
        ignores: the mode is "ignore".
        """
        self.hand = hand
        self.files = files
        self.ignores = ignores

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        """Write one partition's files as pending uploads. Called in a task, for each attempt."""
        if self.hand is None:
            return WrittenPartition("")
        return write_attempt(self.hand(), self.files, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all files visible."""
        if self.hand is None:
            return
        job = self.hand()
        end_life = job.keep_alive()
        try:
            sent = texts_of(messages)
            results, tasks = results_of(job, self.files, sent, partitions=len(messages))
            logger.info("%s", job.commit(results, expect=tasks))
        except DestinationExists:
            if not self.ignores:  # else: the data came after our first look
                raise
            logger.info("mode 'ignore': %s holds data by now, nothing is written", job.dest)
        finally:
            end_life()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make sure that nothing of the job becomes visible, unless it is decided."""
        if self.hand is not None:
            abort_undecided(self.hand())


# What batches and streams share -------------------------------------------------------------------


def planned(said: SourceOptions, schema: StructType) -> FrameFiles:
    """Plan the files. Spark tells a data source nothing of its configuration, so it is not asked.

    Raises:
        OptionError, WrongType: as for `FrameFiles.plan`; or a partition column is an instant, and
            nobody says in which time zone its text is, or Python does not know that time zone.
    """
    _refuse_instants(said, schema)
    return FrameFiles.plan(
        schema,
        said.file_format,
        said.of_format,
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


def order_of(said: SourceOptions) -> Order:
    """What the user asked for, as all Spark functions have it."""
    return Order(
        said.path,
        cast(SaveMode, said.mode),
        said.mark_success,
        said.s3,
        said.options,
        no_progress,
        committer=said.committer,
    )


def hand_over(job: Job) -> Callable[[], Job]:
    """Give a started job away to the process that will commit it."""
    try:
        return job._hand_over()
    except BaseException as error:
        give_up(job, error)
        raise


def write_attempt(job: Job, files: FrameFiles, batches: Iterable[Any]) -> WrittenPartition:
    """Write what a task was given as one attempt, and give signs of life meanwhile."""
    end_life = job.keep_alive()
    try:
        task = spark_attempt(job)
        with task:
            files.write(task, batches)
        return WrittenPartition(to_message(task))
    finally:
        end_life()


def texts_of(messages: Iterable[WriterCommitMessage | None]) -> list[str]:
    """What the tasks sent, without what Spark has not accepted."""
    return [message.text for message in messages if isinstance(message, WrittenPartition)]


def abort_undecided(job: Job) -> None:
    """Abort a job, unless it is committed: then say so. Repeatable.

    Spark aborts after a commit that raised. What it raised tells what became of the job, and the
    process that ended the job has deleted its record: then there is nothing to abort.
    """
    try:
        job.abort()
    except JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        logger.warning("Spark gave the write up, but the job is committed: %s", decided)
    except OutcomeUnknown:
        try:
            attach(job.dest, job.id, s3=job._s3)
        except JobNotFound:
            logger.info("job %s has ended before Spark aborted it", job.id)
            return
        raise

"""``writeStream.format("magic")``: the rows of each micro-batch are there once.

::

    stream.writeStream.format("magic").option("checkpointLocation", where).start("s3://bucket/t")

Spark runs a batch again when it is not sure that it was written. Invariants:

* Each run of a micro-batch is a job of its own; the ledger decides whether it is published.
* Spark makes one writer in the planner, which starts the job, and another one in the process that
  commits, out of a pickled source. That one starts nothing (`MagicSource.is_planner`).
* The process that commits learns the job, and the id of the query, from the messages of the tasks.
  If no task sent one, there is nothing to commit, and the abort finds the job by the checkpoint
  location, of which the job's record holds a hash.
* The first planner of a driver aborts what earlier runs of its query have left running (`batches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from magic_committer.engines.sink import EngineSink
from magic_committer.errors import MagicError, OptionError
from magic_committer.maintenance.api import abort_stream
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.spark.action import spark_attempt
from magic_committer.spark.batches import end_earlier_runs
from magic_committer.spark.driver import QUERY_PROPERTY
from magic_committer.spark.files import FrameFiles
from magic_committer.spark.source_options import SourceOptions


@dataclass(frozen=True)
class WrittenInBatch(WriterCommitMessage):
    """What a task of a stream sends to the process that commits: its result, the id of the query,
    and the job."""

    text: str
    query: str
    sink: EngineSink


class MagicStreamWriter(DataSourceStreamArrowWriter):
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


def stream_writer(said: SourceOptions, files: FrameFiles, *, is_planner: bool) -> MagicStreamWriter:
    """Make the writer of a micro-batch; in the planner start its job, last of all."""
    if not said.checkpoint:
        raise OptionError(
            "the stream has no checkpointLocation: a batch that is run again would be another one",
            hint='Write .option("checkpointLocation", "s3a://bucket/checkpoints/query"), one for'
            " each query",
        )
    if not is_planner:
        return MagicStreamWriter(said, files, None)
    end_earlier_runs(said.dest, said.checkpoint, said.s3, said.options)
    return MagicStreamWriter(said, files, EngineSink.begin(said.start()))

"""``writeStream.format("magic")``: the rows of each micro-batch are there once.

::

    stream.writeStream.format("magic").option("checkpointLocation", where).start("s3://bucket/t")

Spark runs a batch again when it is not sure that it was written. Invariants:

* Each run of a micro-batch is a job of its own. Whether it is published is decided by the ledger of
  its query, at the destination (`magic_committer.StreamBatch`), and not by Spark's checkpoint.
* Spark makes one writer in the planner, which starts the job, and another one in the process that
  commits, out of a pickled source. That one starts nothing (`MagicSource.is_planner`).
* The process that commits learns the job, and the id of the query, from the messages of the tasks.
  If no task sent one, there is nothing to commit, and the abort finds the job by the checkpoint
  location, of which the job's record holds a hash.
* An abort never undoes a decision.
* A killed driver aborts nothing. So the first planner of a driver aborts what earlier runs of its
  query have left running. Later ones do not: an old driver that wakes would abort the live job of
  its successor. Of one driver, no two batches of a query run at once: it hits no live run but
  another driver's, which fails then, and is right to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from magic_committer.api import start
from magic_committer.errors import MagicError, OptionError
from magic_committer.job import Job
from magic_committer.maintenance.api import abort_stream
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.spark.batches import end_earlier_runs
from magic_committer.spark.driver import QUERY_PROPERTY
from magic_committer.spark.files import FrameFiles
from magic_committer.spark.source import WrittenPartition, abort_undecided, hand_over, write_attempt
from magic_committer.spark.source_options import SourceOptions
from magic_committer.spark.worker import from_messages

logger = logging.getLogger("magic_committer")


# The stream writer --------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenInBatch(WrittenPartition):
    """What a task of a stream sends to the process that commits.

    Attributes:
        query: the id of the query.
        hand: makes the handle of the job.
    """

    query: str
    hand: Callable[[], Job]


class MagicStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch in the planner and the tasks; another one, without a job, in
    the process that commits."""

    def __init__(
        self, said: SourceOptions, files: FrameFiles, hand: Callable[[], Job] | None
    ) -> None:
        """Args:
        said: what the user asked for.
        files: how files are written.
        hand: makes the handle of the job; None: this writer commits, and messages name the job.
        """
        self.said = said
        self.files = files
        self.hand = hand

    def write(self, iterator: Iterator[Any]) -> WrittenInBatch:
        """Write one partition's files as pending uploads. Called in a task, for each attempt."""
        if self.hand is None:
            raise MagicError("this writer was made to commit, not to write")
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        if not query:
            raise MagicError(f"this task is not a stream's: it has no {QUERY_PROPERTY}")
        text = write_attempt(self.hand(), self.files, iterator).text
        return WrittenInBatch(text, query, self.hand)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the files of a batch visible, unless this or a later batch has been published."""
        sent = [message for message in messages if isinstance(message, WrittenInBatch)]
        if not sent:
            raise MagicError(f"no task has sent its result: batch {batchId} cannot be committed")
        job = sent[0].hand()
        end_life = job.keep_alive()
        try:
            report = job.commit(
                from_messages([message.text for message in sent]),
                expect=[str(number) for number in range(len(messages))],
                batch=StreamBatch(sent[0].query, batchId),
            )
        finally:
            end_life()
        logger.info("batch %s of query %s: %s", batchId, sent[0].query, report)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make sure that nothing of this run of a batch becomes visible, unless it is decided."""
        for message in messages:
            if isinstance(message, WrittenInBatch):
                abort_undecided(message.hand())
                return
        abort_stream(
            self.said.path, self.said.checkpoint, s3=self.said.s3, options=self.said.options
        )


def stream_writer(said: SourceOptions, files: FrameFiles, *, is_planner: bool) -> MagicStreamWriter:
    """Make the writer of a micro-batch; in the planner start its job, last of all.

    Raises:
        OptionError: the stream has no checkpoint location. Nothing was started.

        What `magic_committer.start` raises.
    """
    if not said.checkpoint:
        raise OptionError(
            "the stream has no checkpointLocation: a batch that is run again would be another one",
            hint='Write .option("checkpointLocation", "s3a://bucket/checkpoints/query"), one for'
            " each query",
        )
    return MagicStreamWriter(said, files, _start(said) if is_planner else None)


def _start(said: SourceOptions) -> Callable[[], Job]:
    def begin() -> Job:
        return start(
            said.path,
            mode="overwrite" if said.mode == "overwrite" else "append",
            committer=said.committer,
            accept="results",
            track="memory",
            checkpoint=said.checkpoint,
            mark_success=said.mark_success,
            s3=said.s3,
            options=said.options,
        )

    end_earlier_runs(said.path, said.checkpoint, said.s3, said.options)
    return hand_over(begin())

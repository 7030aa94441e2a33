"""What all Spark calls have in common on the driver: what the user asked for, and its job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from magic_committer import _wiring
from magic_committer._arguments import options_of, s3_of
from magic_committer._modes import IgnoreMode, SparkMode, is_ignore, mode_of
from magic_committer._runtime import ProgressFunction
from magic_committer.api import start
from magic_committer.commit.conflict import existing
from magic_committer.committers.registry import committer_for
from magic_committer.engines.items import Engine, ItemWriter, commit_items
from magic_committer.errors import DestinationExists
from magic_committer.hadoop.paths import Destination
from magic_committer.job import Job, Task
from magic_committer.options import Mode, Options, S3Options
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, State
from magic_committer.spark.action import spark_attempt
from magic_committer.spark.types import needs

logger = logging.getLogger("magic_committer")

IDLE_KILL = "spark.python.worker.killOnIdleTimeout"

SaveMode = Mode | SparkMode | IgnoreMode
"""The modes of Spark's calls: both vocabularies (`modes`)."""


@dataclass(frozen=True)
class Order:
    """What the user asked for. ``checkpoint`` names the batch's checkpoint (`checkpoint_of`)."""

    dest: str
    mode: SaveMode
    mark_success: bool
    s3: S3Options | None
    options: Options | None
    progress: ProgressFunction
    batch: StreamBatch | None = None
    checkpoint: str | None = None
    committer: str | None = None

    def __post_init__(self) -> None:
        mode_of(self.mode, ignore=True)
        s3_of(self.s3)
        options_of(self.options)
        _ = self.url

    @property
    def url(self) -> str:
        """The destination as jobs write it."""
        return committer_for(self.dest, self.committer).destination(self.dest)

    @property
    def ignores(self) -> bool:
        """Whether data at the destination is no error: then nothing is done."""
        return is_ignore(self.mode)

    def start(self) -> Job:
        """Start the job."""
        mode = "error" if self.ignores else cast(Mode | SparkMode, self.mode)
        return start(
            self.dest, mode=mode, committer=self.committer, accept="results", track="memory",
            checkpoint=self.checkpoint, mark_success=self.mark_success, s3=self.s3,
            options=self.options, progress=self.progress,
        )  # fmt: skip

    def finds_data(self) -> bool:
        """Whether the destination holds data."""
        dest = Destination.parse(self.dest)
        runtime = _wiring.runtime_for(dest.bucket, s3_of(self.s3), self.progress)
        with closing(existing(runtime, dest, None, in_flight=1)) as found:
            return any(True for _ in found)


QUERY_PROPERTY = "sql.streaming.queryId"
"""The local property in which Spark tells the driver's thread and the tasks of a stream the id of
its query."""


def checkpoint_of(df: DataFrame, batch: StreamBatch) -> str:
    """Give what all runs of a batch's query have in common: its name, and where its checkpoint is.
    A copied checkpoint has the query id of its original, and other rows. Spark Connect does not say
    where the checkpoint is; there the name is all."""
    name = f"query:{batch.query}"
    if not (query_id := local_property(df, QUERY_PROPERTY)):
        return name  # the rows of a batch, and no function of foreachBatch: the caller counts
    spark = df.sparkSession
    # The session of a batch is a copy; only what all sessions share knows the query.
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    java = cast(Any, spark._jvm).java
    query = queries.get(java.util.UUID.fromString(query_id))
    return name if query is None else f"{name} at {query.resolvedCheckpointRoot()}"


def local_property(df: DataFrame, name: str) -> str:
    """A local property of the thread in which Spark calls a function of foreachBatch; "" in Spark
    Connect, which has none, and runs each start of a query in a process of its own."""
    return ("" if is_remote() else df.sparkSession.sparkContext.getLocalProperty(name)) or ""


def write_job(
    order: Order,
    engine: Engine,
    fn: Callable[[Task, Any], object],
    *,
    caller: str = "",
    bytes_max: int = 0,
) -> JobReport:
    """Run one job from start to end, of a function for the rows of each of Spark's tasks."""
    try:
        if not (order.ignores and order.finds_data()):
            job = order.start()
            # As Spark pickles results: classes of the driver's own program travel too.
            dumps = cast(Callable[[Any], bytes], cloudpickle.dumps)
            work = ItemWriter(job, fn, caller, bytes_max, spark_attempt, dumps)
            return commit_items(job, engine, work, batch=order.batch)
    except DestinationExists:
        if not order.ignores:  # else: the data came after our first look
            raise
    logger.info("mode 'ignore': %s holds data, nothing is written", order.url)
    return JobReport(
        job_id="", uuid="", dest=order.url, mode=mode_of(order.mode, ignore=True), outcome="",
        state=str(State.ABSENT), skipped=True,
    )  # fmt: skip


def register(spark: SparkSession) -> None:
    """Make ``format("magic")`` known to a Spark session::

        register(spark)
        df.write.format("magic").mode("append").save("s3://bucket/table")

    Where the package is installed on the driver's machine (with Spark Connect: the server's), Spark
    finds the format by itself. Call this where the package is shipped by ``--py-files`` or
    ``addArtifacts``. Repeatable.

    Args:
        spark: a session of classic Spark or of Spark Connect.

    Raises:
        OptionError: Spark 3.5 has no data sources in Python.
    """
    needs((4, 0), 'format("magic")', "Call write_dataframe")
    from magic_committer.spark.source import MagicSource

    try:
        spark.dataSource.register(MagicSource)
    except AnalysisException as error:  # Spark 4.0, where it has found the format by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def warn_of_idle_kill(setting: str | None) -> None:
    """Warn of a setting by which Spark kills workers that send nothing for a while, as ours do
    until their last file is uploaded."""
    if setting == "true":
        logger.warning(
            "spark.python.worker.killOnIdleTimeout is on: Spark may kill tasks while they upload."
            " Turn it off if tasks are killed"
        )

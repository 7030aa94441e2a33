"""What all Spark calls share: what the user asked for, its job, and a Spark action that can be
named, watched and cancelled. Invariants:

* The Spark action runs in a second thread, and the caller's thread waits in short steps. If the
  action ran in the caller's own thread, Ctrl-C would cancel it over the same connection that waits
  for the action: that fails, and the action would run on (PySpark 4.3).
* Spark's UI names our Spark jobs; afterwards the caller's own description and tags are as before.
* A look at how far an action is never fails it: Spark may forget its stages, or say nothing.
* A worker is killed by SIGKILL or just stops: it runs no ``finally``, no signal handler, no
  ``atexit``. So nothing needs a task after its attempt: the leftovers of an attempt are invisible,
  and the driver's sweep finds them.

Of streams: Spark runs a batch again when it is not sure that it was written.

* Each run of a batch is a job of its own. The ledger of its query at the destination
  (`magic_committer.StreamBatch`), not Spark's checkpoint, decides whether a batch is published. A
  query's id stays the same as long as the checkpoint location does.
* A killed driver aborts nothing. So the first batch after each start of a query aborts what earlier
  runs of it have left running (`end_earlier_runs`), also those of another driver that ran it in
  between. Of one driver, no two batches of a query run at once: it hits no live run but another
  driver's, which fails then, and is right to. Later batches do not look: a driver that was paused
  and wakes would abort the one that took its place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Thread
from typing import Any, TypeVar, cast

import pyspark
from pyspark import RDD, InheritableThread, SparkContext, TaskContext, cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from magic_committer.api import start
from magic_committer.commit.conflict import existing
from magic_committer.committers.base import committer_for
from magic_committer.engines.items import AcceptResult, Engine, ItemWriter, Write, commit_items
from magic_committer.errors import DestinationExists, JobReport, MagicError, OptionError, WrongType
from magic_committer.hadoop.paths import Destination
from magic_committer.job import Job, Task
from magic_committer.maintenance.api import abort_stream
from magic_committer.options import (
    IgnoreMode,
    Mode,
    Options,
    S3Options,
    SparkMode,
    is_ignore,
    mode_of,
    options_of,
    s3_of,
)
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import State
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Progress, ProgressFunction

logger = logging.getLogger("magic_committer")

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How often we ask Spark how far an action is."""
WAIT_SECONDS = 0.2
"""How long the caller's thread waits before it looks for Ctrl-C again."""
CANCEL_SECONDS = 10.0
"""How long a cancelled action may take to end; then the job is aborted while it still runs."""
CASE_SENSITIVE = "spark.sql.caseSensitive"
DESCRIPTION = "spark.job.description"
"""The local property that holds what Spark's UI calls a job."""

SaveMode = Mode | SparkMode | IgnoreMode
"""The modes of Spark's calls: both vocabularies (`options`)."""


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
        mode = "error" if self.ignores else cast(Mode | SparkMode, self.mode)
        return start(
            self.dest, mode=mode, committer=self.committer, accept="results", track="memory",
            checkpoint=self.checkpoint, mark_success=self.mark_success, s3=self.s3,
            options=self.options, progress=self.progress,
        )  # fmt: skip

    def finds_data(self) -> bool:
        """Whether the destination holds data."""
        dest = Destination.parse(self.dest)
        runtime = wiring.runtime_for(dest.bucket, s3_of(self.s3), self.progress)
        with closing(existing(replace(runtime, in_flight=1), dest, None)) as found:
            return any(True for _ in found)


def write_job(
    order: Order, engine: Engine, fn: Write, caller: str = "", bytes_max: int = 0
) -> JobReport:
    """Run one job from start to end, of a function for the rows of each of Spark's tasks."""
    try:
        if not (order.ignores and order.finds_data()):
            job = order.start()
            # As Spark pickles results: classes of the driver's own program travel too.
            dumps = cast(Callable[[Any], bytes], cloudpickle.dumps)
            work = ItemWriter(job, fn, caller, bytes_max, spark_attempt, dumps)
            return commit_items(engine, work, batch=order.batch)
    except DestinationExists:
        if not order.ignores:  # else: the data came after our first look
            raise
    logger.info("mode 'ignore': %s holds data, nothing is written", order.url)
    return JobReport(
        job_id="", uuid="", dest=order.url, mode=mode_of(order.mode, ignore=True), outcome="",
        state=str(State.ABSENT), skipped=True,
    )  # fmt: skip


def format_name(format: object, known: Iterable[str], where: str = "here") -> str:
    """The name of a format, in lower case; `WrongType`, `OptionError`: there is no such format."""
    if not isinstance(format, str):
        raise WrongType(f"format is text, not {type(format).__name__}", hint="Pass 'parquet'")
    if format.lower() not in known:
        hint = "Or write the files yourself: write_partitions(df.rdd, dest, fn)"
        if format.lower() in ("avro", "xml"):
            hint = f"Spark's own writer has it: write_dataframe(df, dest, {format!r},"
            hint += " via='file:///scratch')"
        told = f"there is no format {format!r} {where}; there is {', '.join(known)}"
        raise OptionError(told, hint=hint)
    return format.lower()


def resolve(names: Sequence[str], columns: Sequence[str], *, exact: bool, what: str) -> list[int]:
    """The places of the columns that an argument names. ``exact``: upper and lower case differ."""
    if isinstance(names, str):
        raise WrongType(f"{what} is a list of column names", hint=f"Pass {what}=[{names!r}]")
    fold: Callable[[str], str] = str if exact else str.casefold
    places = {fold(column): number for number, column in enumerate(columns)}
    found: list[int] = []
    for name in names:
        if not isinstance(name, str):
            raise WrongType(f"{what} is a list of column names, not of {type(name).__name__}")
        if (place := places.get(fold(name))) is None:
            hint = f"There are {', '.join(columns)}"
            raise OptionError(f"{what}: there is no column {name!r}", hint=hint)
        if place in found:
            raise OptionError(f"{what} names the column {columns[place]!r} twice")
        found.append(place)
    return found


def refuse_hidden(names: Iterable[str]) -> None:
    """Refuse partition columns whose directories readers would not see (`OptionError`)."""
    if hidden := [name for name in names if name.startswith(("_", "."))]:
        raise OptionError(
            f"partition_by: {', '.join(hidden)}: readers take directories whose names begin with _"
            " or . for hidden ones",
            hint="Rename the column: df.withColumnRenamed(...)",
        )


def release() -> tuple[int, int]:
    """Which PySpark this is: (4, 3)."""
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def needs(least: tuple[int, int], what: str, hint: str) -> None:
    """Say so where this PySpark is too old for something (`OptionError`)."""
    if release() < least:
        raise OptionError(
            f"{what} needs Spark {least[0]}.{least[1]} or newer, and this is {pyspark.__version__}",
            hint=hint,
        )


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


def warn_of_idle_kill(conf: Any) -> None:
    """Warn where Spark kills workers that send nothing for a while, as ours do at the end."""
    if conf.get(key := "spark.python.worker.killOnIdleTimeout", None) == "true":
        told = "%s is on: Spark may kill tasks while they upload. Turn it off if tasks are killed"
        logger.warning(told, key)


# Streams ------------------------------------------------------------------------------------------

QUERY_PROPERTY = "sql.streaming.queryId"
"""The local property of a stream's tasks, and of the driver's thread, that is its query's id."""
RUN_PROPERTY = "spark.jobGroup.id"
"""The same for the id of the run, another one after each start."""
LOOKED_MAX = 1000
"""Runs of queries that a process remembers to have looked for earlier ones."""


def checkpoint_of(df: DataFrame, batch: StreamBatch) -> str:
    """What all runs of a batch's query share: its name, its id, and where its checkpoint is. (A
    copied one has the id of its original, one that was deleted and made again the same place; both
    have other rows.) Spark Connect says neither."""
    name = f"query:{batch.query}"
    if not (query_id := local_property(df, QUERY_PROPERTY)):
        return name  # the rows of a batch, and no function of foreachBatch: the caller counts
    # The session of a batch is a copy; only what all sessions share knows the query.
    spark: Any = df.sparkSession
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = queries.get(spark._jvm.java.util.UUID.fromString(query_id))
    return name if query is None else f"{name} {query_id} at {query.resolvedCheckpointRoot()}"


def local_property(df: DataFrame, name: str) -> str:
    """A local property of the thread in which Spark calls a function of foreachBatch; "" in Spark
    Connect, which has none, and runs each start of a query in a process of its own."""
    return ("" if is_remote() else df.sparkSession.sparkContext.getLocalProperty(name)) or ""


@lru_cache(LOOKED_MAX)
def end_earlier_runs(
    dest: str, checkpoint: str, s3: S3Options | None, options: Options | None, run: str = ""
) -> None:
    """Abort the jobs that earlier runs of a query have left running, once in this process for each
    ``run``. "": nobody says which run it is, or this process has only one."""
    abort_stream(dest, checkpoint, s3=s3, options=options)


def run_action(spark: Any, job: Job, action: Callable[[], T], progress: ProgressFunction) -> T:
    """Run a Spark action. An exception in this thread, such as Ctrl-C, cancels the action.
    ``spark`` is the SparkContext; for Spark Connect, which has none, the SparkSession."""
    classic = isinstance(spark, SparkContext)
    tag = f"magic-committer-{job.uuid}"
    ended: Future[T] = Future()

    def run() -> None:
        try:
            with _named(spark, classic, tag, f"magic-committer: write {job.dest} (job {job.id})"):
                ended.set_result(action())
        except BaseException as error:  # raised below, in the thread that asked
            ended.set_exception(error)

    # A daemon thread, so that an action that cannot be cancelled does not keep the process alive.
    of = {} if classic else {"session": spark}  # Spark 3.5 knows no such argument
    thread = InheritableThread(run, daemon=True, **of)
    watch = _watch(spark, tag, progress) if classic else iter(())
    thread.start()
    try:
        while thread.is_alive():
            next(watch, None)
            thread.join(WAIT_SECONDS)
    except BaseException as error:
        _cancel(thread, spark.cancelJobsWithTag if classic else spark.interruptTag, tag, error)
        raise
    return ended.result()


@contextmanager
def _named(spark: Any, classic: bool, tag: str, description: str) -> Iterator[None]:
    """Give Spark's jobs of this thread a tag, and in classic Spark a description, within a block:
    where PySpark does not pin threads, this thread shares the JVM's with others."""
    before = spark.getLocalProperty(DESCRIPTION) if classic else None
    (spark.addJobTag if classic else spark.addTag)(tag)
    if classic:
        spark.setLocalProperty(DESCRIPTION, f"{before}: {description}" if before else description)
    try:
        yield
    finally:
        with suppress(Exception):  # Spark was stopped: what the block did, or raised, counts
            (spark.removeJobTag if classic else spark.removeTag)(tag)
            if classic:
                spark.setLocalProperty(DESCRIPTION, before)


def _cancel(thread: Thread, cancel: Callable[[str], object], tag: str, why: BaseException) -> None:
    """Cancel an action, several times: it may be about to submit another Spark job."""
    for _ in range(int(CANCEL_SECONDS / WAIT_SECONDS)):
        try:
            cancel(tag)
        except Exception as refused:
            why.add_note(f"the Spark action could not be cancelled: {refused}")
            return
        thread.join(WAIT_SECONDS)
        if not thread.is_alive():
            return
    why.add_note(f"the Spark action still runs, {CANCEL_SECONDS} s after it was cancelled")


def _watch(spark: SparkContext, tag: str, progress: ProgressFunction) -> Iterator[None]:
    """Report how many tasks of an action have ended well, when the next value is drawn,
    `LOOK_SECONDS` after the last look."""
    report = wiring.harmless(progress)
    tracker, before, looked = spark.statusTracker(), -1, time.monotonic()
    while True:
        yield
        if time.monotonic() - looked < LOOK_SECONDS:
            continue
        looked = time.monotonic()
        try:
            # PySpark's own tracker knows no tags.
            jobs = map(tracker.getJobInfo, spark._jsc.sc().statusTracker().getJobIdsForTag(tag))
            numbers = [number for job in jobs if job for number in job.stageIds]
            stages = [stage for stage in map(tracker.getStageInfo, numbers) if stage]
        except Exception:  # of py4j or of a restricted Spark: nobody needs the look
            logger.debug("Spark does not say how far it is", exc_info=True)
            return
        done = sum(one.numCompletedTasks for one in stages)
        total = sum(one.numTasks for one in stages)
        if done != before and total:
            report(Progress("write", done, total, "tasks"))
        before = done


def spark_attempt(job: Job, number: int = 0) -> Task:
    """The attempt that this process runs, of the task that its partition is. A ``taskAttemptId``
    comes only once; stage, partition and attempt number repeat when a stage runs again."""
    if (context := TaskContext.get()) is None:
        raise MagicError("this is not a Spark task")
    return job._sole_task(str(context.partitionId()), f"t{context.taskAttemptId()}")


def run_rdd(
    rdd: RDD[Any], progress: ProgressFunction, work: ItemWriter, accept: AcceptResult
) -> Iterable[str]:
    """The engine that Spark's RDDs are: an item is the rows of a partition."""
    action = rdd.mapPartitions(lambda rows: [work(0, rows)]).collect
    for number, one in enumerate(run_action(rdd.context, work.job, action, progress)):
        accept(number, one)
    return map(str, range(rdd.getNumPartitions()))

"""A Spark action that can be named, watched and cancelled; and the engine that RDDs are.

Invariants:

* The Spark action runs in a second thread, and the caller's thread waits in short steps. If the
  action ran in the caller's own thread, Ctrl-C would cancel it over the same connection that waits
  for the action: that fails, and the action would run on (PySpark 4.3).
* Spark's UI names our Spark jobs. The caller's own description and tags are as before when the
  action has ended.
* A look at how far an action is never fails it: Spark may forget its stages, or not tell.
* A worker is killed by SIGKILL or just stops: it runs no ``finally``, no signal handler, no
  ``atexit``. So correctness needs nothing of a task after its attempt: the leftovers of an attempt
  are invisible, and the driver's sweep finds them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, TypeVar, cast

from pyspark import RDD, InheritableThread, SparkContext, TaskContext

from magic_committer import _wiring
from magic_committer._runtime import Progress, ProgressFunction
from magic_committer.engines.items import AcceptResult, ItemWriter, TryResult
from magic_committer.errors import MagicError
from magic_committer.job import Job, Task

logger = logging.getLogger("magic_committer")

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How often Spark is asked how far an action is."""
LOG_SECONDS = 30.0
"""How often the log is told."""
WAIT_SECONDS = 0.2
"""How long the caller's thread waits before it looks for Ctrl-C again."""
CANCEL_SECONDS = 10.0
"""How long a cancelled action may take to end. After that the job is aborted while it still
runs."""
DESCRIPTION = "spark.job.description"
"""The local property that holds what Spark's UI calls a job."""


def run_action(spark: Any, job: Job, action: Callable[[], T], progress: ProgressFunction) -> T:
    """Run a Spark action. An exception in this thread, such as Ctrl-C, cancels the action.

    ``spark`` is the SparkContext; for Spark Connect, which has none, the SparkSession. ``progress``
    hears how many of Spark's tasks have ended: phase ``"write"``. Its first error is logged.
    """
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
    watch = StageWatch(spark, tag, f"job {job.id}", progress) if classic else None
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WAIT_SECONDS)
            if watch is not None and thread.is_alive():
                watch.look()
    except BaseException as error:
        _cancel(
            thread, partial(spark.cancelJobsWithTag if classic else spark.interruptTag, tag), error
        )
        raise
    return ended.result()


@contextmanager
def _named(spark: Any, classic: bool, tag: str, description: str) -> Iterator[None]:
    """Give Spark's jobs of this thread a tag, and in classic Spark a description. Afterwards all is
    as before: where PySpark does not pin threads, this thread shares the JVM's with others."""
    before = spark.getLocalProperty(DESCRIPTION) if classic else None
    (spark.addJobTag if classic else spark.addTag)(tag)
    if classic:
        spark.setLocalProperty(DESCRIPTION, f"{before}: {description}" if before else description)
    try:
        yield
    finally:
        (spark.removeJobTag if classic else spark.removeTag)(tag)
        if classic:
            spark.setLocalProperty(DESCRIPTION, cast(str, before))  # None: there was none


def _cancel(thread: Thread, cancel: Callable[[], object], why: BaseException) -> None:
    """Cancel an action, several times: it may be about to submit another Spark job."""
    for _ in range(int(CANCEL_SECONDS / WAIT_SECONDS)):
        try:
            cancel()
        except Exception as refused:
            why.add_note(f"the Spark action could not be cancelled: {refused}")
            return
        thread.join(WAIT_SECONDS)
        if not thread.is_alive():
            return
    why.add_note(f"the Spark action still runs, {CANCEL_SECONDS} s after it was cancelled")


class StageWatch:
    """Reports how far the Spark jobs of an action are, to ``progress`` and to the log."""

    def __init__(
        self, spark: SparkContext, tag: str, what: str, progress: ProgressFunction
    ) -> None:
        self._spark = spark
        self._tag = tag
        self._what = what
        self._progress = _wiring.harmless(progress)
        self._done = -1
        self._looked = self._logged = time.monotonic()
        self._blind = False

    def look(self) -> None:
        """Look, if the last look is `LOOK_SECONDS` old."""
        now = time.monotonic()
        if self._blind or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            done, total = self._tasks()
        except Exception:  # of py4j or of a restricted Spark: nobody needs the look
            self._blind = True
            logger.debug("Spark does not tell how far it is", exc_info=True)
            return
        if done != self._done:
            self._done = done
            if total:
                self._progress(Progress("write", done, total, "tasks"))
        if now - self._logged > LOG_SECONDS:
            self._logged = now
            logger.info("%s: %d of %d Spark tasks have ended", self._what, done, total)

    def _tasks(self) -> tuple[int, int]:
        """How many tasks have ended well, and how many there are, as far as Spark tells."""
        tracker = self._spark.statusTracker()
        # PySpark's own tracker knows no tags.
        jobs = self._spark._jsc.sc().statusTracker().getJobIdsForTag(self._tag)
        infos = [tracker.getJobInfo(number) for number in jobs]
        stages = [number for info in infos if info is not None for number in info.stageIds]
        told = [stage for number in stages if (stage := tracker.getStageInfo(number)) is not None]
        return sum(one.numCompletedTasks for one in told), sum(one.numTasks for one in told)


# In a task ----------------------------------------------------------------------------------------


def spark_attempt(job: Job, number: int = 0) -> Task:
    """The attempt that this process runs. Its task is the partition. Its name is one that Spark
    gives only once: stage, partition and attempt number repeat when a stage runs again;
    ``taskAttemptId`` does not."""
    context = TaskContext.get()
    if context is None:
        raise MagicError("this is not a Spark task")
    return job._sole_task(str(context.partitionId()), f"t{context.taskAttemptId()}")


def run_rdd(
    rdd: RDD[Any], progress: ProgressFunction, work: ItemWriter, accept: AcceptResult
) -> Iterable[str]:
    """The engine that Spark's RDDs are: an item is the rows of a partition, and ``work`` is called
    once for each attempt of each."""

    def attempt(rows: Iterable[Any]) -> list[TryResult]:
        return [work(0, rows)]

    action = rdd.mapPartitions(attempt).collect
    for number, one in enumerate(run_action(rdd.context, work.job, action, progress)):
        accept(number, one)
    return map(str, range(rdd.getNumPartitions()))

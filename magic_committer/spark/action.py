"""A Spark action that can be named, watched and cancelled.

Invariants:

* The Spark action runs in a second thread, and the caller's thread waits in short steps. If the
  action ran in the caller's own thread, Ctrl-C would cancel it over the same connection that waits
  for the action: that fails, and the action would run on (PySpark 4.3).
* Spark's UI names our Spark jobs. The caller's own description and tags are as before when the
  action has ended.
* A look at how far an action is never fails it: Spark may forget its stages, or not tell.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, TypeVar, cast

from pyspark import InheritableThread, SparkContext

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


class StageWatch:
    """Looks how far the Spark jobs of an action are, and tells it: to ``progress``, and every
    `LOG_SECONDS` to the log.

    Args:
        spark: classic Spark.
        tag: the action's tag.
        what: what the tasks do, for the log.
        progress: called with the tasks that have ended, and all, when that has changed.
    """

    def __init__(
        self,
        spark: SparkContext,
        tag: str,
        what: str = "",
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._spark = spark
        self._tag = tag
        self._what = what
        self._progress = progress
        self._done = -1
        self._looked = self._logged = time.monotonic()
        self._blind = False

    def __call__(self) -> None:
        """Look, if the last look is `LOOK_SECONDS` old."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        done, total = self._seen()
        if done != self._done:
            self._done = done
            if self._progress is not None and total:
                self._progress(done, total)
        if now - self._logged > LOG_SECONDS:
            self._logged = now
            logger.info("%s: %d of %d Spark tasks have ended", self._what, done, total)

    def _seen(self) -> tuple[int, int]:
        """As `tasks`; what was seen last, if Spark does not tell."""
        if not self._blind:
            try:
                return self.tasks()
            except Exception:  # of py4j or of a restricted Spark: nobody needs the look
                self._blind = True
                logger.debug("Spark does not tell how far it is", exc_info=True)
        return max(self._done, 0), 0

    def tasks(self) -> tuple[int, int]:
        """How many tasks have ended well, and how many there are, as far as Spark tells."""
        tracker = self._spark.statusTracker()
        # PySpark's own tracker knows no tags.
        jobs = self._spark._jsc.sc().statusTracker().getJobIdsForTag(self._tag)
        infos = [tracker.getJobInfo(number) for number in jobs]
        stages = [number for info in infos if info is not None for number in info.stageIds]
        told = [stage for number in stages if (stage := tracker.getStageInfo(number)) is not None]
        return sum(one.numCompletedTasks for one in told), sum(one.numTasks for one in told)


def run_action(
    spark: Any,
    name: str,
    action: Callable[[], T],
    *,
    watch: Callable[[], None] | None = None,
) -> T:
    """Run a Spark action. An exception in this thread, such as Ctrl-C, cancels the action.

    Args:
        spark: the SparkContext; for Spark Connect, which has none, the SparkSession.
        name: a unique tag. Spark's jobs of the action are cancelled by it.
        action: the function to run.
        watch: called in this thread, again and again, while the action runs. What it raises cancels
            the action.

    Returns:
        What the action returns.

    Raises:
        What the action raises: Spark's own errors.
    """
    classic = isinstance(spark, SparkContext)
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with _tagged(spark, classic, name):
                results.append(action())
        except BaseException as error:  # raised below, in the thread that asked
            failures.append(error)

    # A daemon thread, so that an action that cannot be cancelled does not keep the process alive.
    of = {} if classic else {"session": spark}  # Spark 3.5 knows no such argument
    thread = InheritableThread(run, daemon=True, **of)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WAIT_SECONDS)
            if watch is not None and thread.is_alive():
                watch()
    except BaseException as error:
        cancel = partial(spark.cancelJobsWithTag if classic else spark.interruptTag, name)
        _cancel(thread, cancel, error)
        raise
    if failures:
        raise failures[0]
    return results[0]


DESCRIPTION = "spark.job.description"
"""The local property that holds what Spark's UI calls a job."""


@contextmanager
def _tagged(spark: Any, classic: bool, tag: str) -> Iterator[None]:
    """Give Spark's jobs of this thread a tag. Afterwards all is as before: where PySpark does not
    pin threads, this thread shares the JVM's with others."""
    (spark.addJobTag if classic else spark.addTag)(tag)
    try:
        yield
    finally:
        (spark.removeJobTag if classic else spark.removeTag)(tag)


@contextmanager
def described(spark: SparkContext | None, description: str) -> Iterator[None]:
    """Spark's jobs that this thread starts, and threads that it starts, get this description,
    behind the caller's own, if there is one. Afterwards the caller's own is back.

    Args:
        spark: classic Spark; None: Spark Connect has no descriptions, nothing is done.
        description: the description; "": nothing is done.
    """
    if spark is None or not description:
        yield
        return
    before = spark.getLocalProperty(DESCRIPTION)
    spark.setLocalProperty(DESCRIPTION, f"{before}: {description}" if before else description)
    try:
        yield
    finally:
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

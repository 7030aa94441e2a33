"""The half that runs in the user's process: start the job, run Spark, commit or abort.

Invariants:

* A job ends with a commit, or with an abort and the exception that was the reason, also for Ctrl-C.
  Only `CommitIncomplete` is never followed by an abort: that job is decided.
* The Spark action runs in a second thread, and the caller's thread waits in short steps. If the
  action ran in the caller's own thread, Ctrl-C would cancel it over the same connection that waits
  for the action: that fails, and the action would run on (PySpark 4.3).
* The abort does not wait for Spark's tasks: tasks that still run find the job closed (the fence).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, TypeVar, cast

from pyspark import InheritableThread, SparkContext

from magic_committer import _wiring
from magic_committer._arguments import options_of, s3_of
from magic_committer._modes import IgnoreMode, SparkMode, is_ignore, mode_of
from magic_committer._runtime import ProgressFunction
from magic_committer.api import start
from magic_committer.commit.conflict import existing
from magic_committer.errors import CommitIncomplete, DestinationExists
from magic_committer.hadoop.paths import Destination
from magic_committer.job import Job, give_up
from magic_committer.options import Mode, Options, S3Options
from magic_committer.protocol.record import JobReport, State, TaskCommit

logger = logging.getLogger("magic_committer")

T = TypeVar("T")

WAIT_SECONDS = 0.2
"""How long the caller's thread waits before it looks for Ctrl-C again."""
CANCEL_SECONDS = 10.0
"""How long a cancelled action may take to end. After that the job is aborted while it still
runs."""

IDLE_KILL = "spark.python.worker.killOnIdleTimeout"

SaveMode = Mode | SparkMode | IgnoreMode
"""The modes of Spark's calls: both vocabularies (`modes`)."""


@dataclass(frozen=True)
class Order:
    """What the user asked for, for both public functions."""

    dest: str
    mode: SaveMode
    exclusive: bool
    mark_success: bool
    s3: S3Options | None
    options: Options | None
    progress: ProgressFunction

    def __post_init__(self) -> None:
        mode_of(self.mode, ignore=True)
        s3_of(self.s3)
        options_of(self.options)
        Destination.parse(self.dest)

    @property
    def ignores(self) -> bool:
        """Whether data at the destination is no error: then nothing is done."""
        return is_ignore(self.mode)

    def start(self) -> Job:
        """Start the job."""
        return start(
            self.dest,
            mode="error" if self.ignores else cast(Mode | SparkMode, self.mode),
            accept="results",
            track="memory",
            exclusive=self.exclusive,
            mark_success=self.mark_success,
            s3=self.s3,
            options=self.options,
            progress=self.progress,
        )

    def finds_data(self) -> bool:
        """Whether the destination holds data."""
        dest = Destination.parse(self.dest)
        runtime = _wiring.runtime_for(dest.bucket, s3_of(self.s3), self.progress)
        with closing(existing(runtime, dest, None, in_flight=1)) as found:
            return any(True for _ in found)


RunTasks = Callable[[Job], tuple[list[TaskCommit], Iterable[str]]]
"""Runs the tasks of a job. Gives their results, and the ids of all tasks that there must be."""


def write_job(order: Order, run_tasks: RunTasks) -> JobReport:
    """Run one job from start to end.

    Raises:
        What ``run_tasks`` raises, and what `start` and `Job.commit` raise.
    """
    if order.ignores and order.finds_data():
        return _skipped(order)
    try:
        job = order.start()
        end_life = job.keep_alive()
        try:
            results, tasks = run_tasks(job)
            return job.commit(results, expect=tasks)
        except CommitIncomplete:
            raise
        except BaseException as error:
            give_up(job, error)
            raise
        finally:
            end_life()
    except DestinationExists:
        if order.ignores:  # the data came after our first look
            return _skipped(order)
        raise


def _skipped(order: Order) -> JobReport:
    dest = Destination.parse(order.dest).url
    logger.info("mode 'ignore': %s holds data, nothing is written", dest)
    return JobReport(
        job_id="",
        uuid="",
        dest=dest,
        mode=mode_of(order.mode, ignore=True),
        outcome="",
        state=str(State.ABSENT),
        skipped=True,
    )


def run_action(spark: Any, name: str, action: Callable[[], T]) -> T:
    """Run a Spark action. An exception in this thread, such as Ctrl-C, cancels the action.

    Args:
        spark: the SparkContext; for Spark Connect, which has none, the SparkSession.
        name: a unique tag. Spark's jobs of the action are cancelled by it.
        action: the function to run.

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
            (spark.addJobTag if classic else spark.addTag)(name)
            results.append(action())
        except BaseException as error:  # raised below, in the thread that asked
            failures.append(error)

    # A daemon thread, so that an action that cannot be cancelled does not keep the process alive.
    thread = InheritableThread(run, session=None if classic else spark, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WAIT_SECONDS)
    except BaseException as error:
        cancel = partial(spark.cancelJobsWithTag if classic else spark.interruptTag, name)
        _cancel(thread, cancel, error)
        raise
    if failures:
        raise failures[0]
    return results[0]


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


def warn_of_idle_kill(setting: str | None) -> None:
    """Warn of a setting by which Spark kills workers that send nothing for a while. Our workers
    send nothing until their last file is uploaded."""
    if setting == "true":
        logger.warning(
            "spark.python.worker.killOnIdleTimeout is on: Spark may kill tasks while they upload."
            " Turn it off if tasks are killed"
        )

"""Commit on executors: Spark's executors complete the files of a large job.

Invariants (`magic_committer.commit.pieces` argues them):

* The driver decides before a Spark job is started here. What runs on executors only completes what
  is decided, so that retried, speculative and forgotten tasks of this Spark job are harmless.
* The driver does not believe what the tasks say. It looks for every file, and completes the rest.
* A Spark job that fails, or of which no task ends for `STALLED_SECONDS_MAX`, is given up: the
  driver completes the rest. Ctrl-C cancels it: the job is committed then, not finished, and the
  error says how to finish it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark import SparkContext

from magic_committer.commit.pieces import Distribute, Piece, PlannedFiles, cut
from magic_committer.job import Job
from magic_committer.spark.action import StageWatch, run_action

logger = logging.getLogger("magic_committer")

PIECE_FILES_MIN = 500
"""Files of one Spark task, at least, if there are so many: each sends `commit_threads` requests at
once, and a store has a limit for all of them together."""
PIECE_FILES_MAX = 2_000
"""Files of one Spark task, at most: some seconds of work."""
PIECES_A_CORE = 2
"""Spark tasks for each core, at least, where there are files enough: slow ones then cost less."""
STALLED_SECONDS_MAX = 300.0
"""After this many seconds in which no task has ended the Spark job is given up: the cluster may
have no executors left."""


@dataclass(frozen=True)
class Completer:
    """Runs in a Spark task. It is a class, so that only its field travels to the task."""

    job: Job

    def __call__(self, pieces: Iterable[Piece]) -> list[int]:
        return [self.job._complete_piece(piece) for piece in pieces]


def on_executors(spark: SparkContext, job: Job) -> Distribute:
    """Gives the files of a decided job to Spark's executors.

    Args:
        spark: classic Spark. Its executors must reach the store, as for the job's tasks.
        job: the job.
    """

    def distribute(sets: PlannedFiles) -> None:
        files = sum(count for _, count in sets)
        pieces = cut(sets, files_of_a_piece(files, spark.defaultParallelism))
        logger.info("job %s: %d files to complete in %d Spark tasks", job.id, files, len(pieces))
        tag = f"magic-committer-{job.uuid}-complete"
        told = run_action(
            spark,
            tag,
            spark.parallelize(pieces, len(pieces)).mapPartitions(Completer(job)).collect,
            description=f"magic-committer: complete {files} files of {job.dest} (job {job.id})",
            watch=StageWatch(
                spark, tag, f"job {job.id}: commit", stalled_seconds_max=STALLED_SECONDS_MAX
            ),
        )
        logger.info("job %s: Spark's tasks say that %d files are completed", job.id, sum(told))

    return distribute


def files_of_a_piece(files: int, cores: int) -> int:
    """How many files one Spark task completes. Pure."""
    tasks = max(1, cores * PIECES_A_CORE)
    return max(PIECE_FILES_MIN, min(PIECE_FILES_MAX, -(-files // tasks)))

"""Leaving ``with``: what becomes of a job whose block has ended.

Invariants:

* By an exception: it is aborted, and what the abort has to say is a note on that exception. A job
  that is decided as committed is never aborted, whoever decided.
* In a forked child: nothing is done. The job is its parent's.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from magic_committer._patience import cleaning_up
from magic_committer.errors import JobNotRunning, MagicError, TaskFailed, WrongProcess
from magic_committer.protocol.record import State

if TYPE_CHECKING:
    from magic_committer.job import Job

logger = logging.getLogger("magic_committer")


def give_up(job: Job, error: BaseException) -> None:
    """Abort a job because of ``error``; what the abort has to say becomes a note on it. Not for
    `CommitIncomplete`, which must never be aborted."""
    if job.outcome in ("aborted", "reverted"):
        return
    if job.outcome == "committed" and not isinstance(error, Exception):
        return  # Ctrl-C after the decision: it has been told how to finish it
    with cleaning_up(error):
        _abort(job, error)


def _abort(job: Job, error: BaseException) -> None:
    failed = job.report
    try:
        job.abort()
        if not isinstance(error, Exception):
            error.add_note(f"job {job.id!r} is aborted: nothing of it is visible")
    except JobNotRunning as decided:
        if decided.outcome == "committed":
            error.add_note(
                f"job {job.id!r} is committed all the same. Finish it:"
                f" magic_committer.recover({job.dest!r}, {job.id!r})"
            )
    except MagicError as failure:
        error.add_note(f"aborting job {job.id!r} failed too: {failure}")
        error.add_note(may_be_running(job))
    if job.report is not None:
        reason = failed.error if failed is not None else f"{type(error).__name__}: {error}"
        job.report = replace(job.report, error=reason)


def abort_uncommitted(job: Job) -> None:
    """Abort a job whose block has ended well, without a commit of it.

    Raises:
        What `Job.abort` raises; not if another process has committed the job.
    """
    if job.outcome:
        return
    try:
        job.abort()
    except JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        if job.report is not None:  # that it could not be aborted is no failure here
            job.report = replace(job.report, error="")
        logger.info("job %s: another process has committed it", job.id)
        return
    logger.warning(
        "job %s: `with` was left without a commit: the job is aborted, nothing of it is visible",
        job.id,
    )


def leave_alone(job: Job, owner: int, error: BaseException | None) -> None:
    """A forked child has left the block.

    Raises:
        TaskFailed: it has left it without an exception; else a note says the same.
    """
    message = (
        f"job {job.id!r} belongs to process {owner}, this is process {os.getpid()}: it was"
        " neither committed nor aborted here"
    )
    if error is None:
        raise TaskFailed(message, job_id=job.id, hint=WrongProcess.hint)
    error.add_note(message)


def is_over(job: Job) -> bool:
    """Whether nothing is left to be done for a job, as far as this handle has seen."""
    return bool(job.outcome) and job.state in (State.ABSENT, State.CLOSED)


def may_be_running(job: Job) -> str:
    """For whoever could not end a job."""
    return (
        f"job {job.id!r} may be running still. This ends it, or says that it is committed:"
        f" magic_committer.abort({job.dest!r}, {job.id!r})"
    )

"""What became of a job, in words: one home for what is told of decided and vanished jobs (I10)."""

from __future__ import annotations

from magic_committer.commit.marker import read_marker
from magic_committer.errors import (
    KEYS_NAMED_MAX,
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    OutcomeUnknown,
)
from magic_committer.job import OUTCOMES, JobRecord, StartedJob, State
from magic_committer.paths import Destination
from magic_committer.runtime import Runtime

HINTS = {
    "committed": "Its data is, or will be, visible: do not run it again",
    "aborted": "Nothing of it is visible: start a new job",
    "reverted": "Nothing of it is visible: start a new job",
    "": "Ask again later what its record says: magic_committer.inspect(its destination)",
}
"""What to do with a job of an outcome."""
ABORTED_HADOOPS = "What its JVM had made visible before it died stays: look at the destination"
"""The same for a Hadoop job that was adopted and aborted."""


def outcome_of(record: JobRecord) -> str:
    """``committed``, ``aborted``, ``reverted``, or "" while the job runs."""
    return record.outcome or OUTCOMES.get(record.state, "")


def ended(job_id: str, state: str, outcome: str, by: str = "") -> JobNotRunning:
    """The error for whoever wants a decided job to do something else."""
    was = f"was {outcome}" if state in (State.ABSENT, State.CLOSED) and outcome else f"is {state}"
    return JobNotRunning(
        f"job {job_id!r} {was}{by}",
        job_id=job_id,
        state=state,
        outcome=outcome,
        hint=HINTS[outcome],
    )


def ended_by_record(record: JobRecord) -> JobNotRunning:
    """The same, from the stored record."""
    who = record.decider
    by = f" (decided by {who.role} on {who.host}, pid {who.pid})" if who else ""
    error = ended(record.id, record.state, outcome_of(record), by)
    if record.adopted and error.outcome == "aborted":
        error.hint = ABORTED_HADOOPS
    return error


def committed_by_marker(runtime: Runtime, job: StartedJob) -> bool:
    """Whether `_SUCCESS` tells that a job without record committed. Nothing else can."""
    marker = read_marker(runtime, Destination.parse(job.dest).success_key)
    return marker is not None and marker.uuid == job.uuid


def unknown(job: StartedJob) -> OutcomeUnknown:
    """The error for a job whose record is gone, and whose marker does not tell."""
    return OutcomeUnknown(
        f"job {job.id!r} has no record any more: whether it committed cannot be told",
        job_id=job.id,
        hint=f"Look at {job.dest} before the job is run again",
    )


def accepted(keys: tuple[str, ...]) -> str:
    """Keys as an argument of a call that can be pasted; of many the error's attribute."""
    return repr(list(keys)) if len(keys) <= KEYS_NAMED_MAX else "error.unresolved"


def incomplete(
    job: StartedJob,
    what: str,
    cause: MagicError,
    unresolved: tuple[str, ...] = (),
    unfinished: tuple[str, ...] = (),
    outstanding: tuple[str, ...] = (),
) -> CommitIncomplete:
    """The error for a job that is decided and not yet wholly done.

    Args:
        outstanding: of a job that is ``completed``: what it still has to delete or to write.
    """
    call = f"magic_committer.recover({job.dest!r}, {job.id!r}"
    hint = f"Never abort it. Finish it, from any machine, as often as it takes: {call})"
    if outstanding:
        hint += f"; or take these keys as they are: {call}, accept={accepted(outstanding)})"
    return CommitIncomplete(
        f"job {job.id!r} is committed, but {what} ({cause.message})",
        job_id=job.id,
        unresolved=unresolved,
        unfinished=unfinished,
        outstanding=outstanding,
        state=(State.COMPLETED if outstanding else State.COMMITTING).value,
        hint=hint,
    )

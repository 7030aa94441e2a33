"""What became of a job, in words: the one place for messages about decided and vanished jobs
(I10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from magic_committer._runtime import Runtime
from magic_committer.commit.success_marker import read_marker
from magic_committer.errors import (
    KEYS_NAMED_MAX,
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    OutcomeUnknown,
    name_some,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.record import OUTCOMES, JobRecord, JobReport, StartedJob, State

HINTS = {
    "committed": "Its data is, or will be, visible: do not run it again",
    "aborted": "Nothing of it is visible: start a new job",
    "reverted": "Nothing of it is visible: start a new job",
    "": "Ask again later what its record says: magic_committer.inspect(its destination)",
}
"""For each outcome: what to do with the job."""
ABORTED_HADOOPS = "What its JVM had made visible before it died stays: look at the destination"
"""The same for an adopted Hadoop job that was aborted."""


def outcome_of(record: JobRecord) -> str:
    """``committed``, ``aborted``, ``reverted``, or "" while the job runs."""
    return record.outcome or OUTCOMES.get(record.state, "")


def ended(job_id: str, state: str, outcome: str, by: str = "") -> JobNotRunning:
    """The error for a caller that wants something else from a decided job."""
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
    """Whether `_SUCCESS` says that a job without a record has committed. Nothing else can tell."""
    marker = read_marker(runtime, Destination.parse(job.dest).success_key)
    return marker is not None and marker.uuid == job.uuid


def unknown(job: StartedJob) -> OutcomeUnknown:
    """The error for a job whose record is gone and whose marker does not tell."""
    return OutcomeUnknown(
        f"job {job.id!r} has no record any more: whether it committed cannot be told",
        job_id=job.id,
        hint=f"Look at {job.dest} before the job is run again",
    )


def accepted(keys: tuple[str, ...]) -> str:
    """Keys as an argument of a call that can be pasted; for many keys, the error's attribute."""
    return repr(list(keys)) if len(keys) <= KEYS_NAMED_MAX else "error.unresolved"


def way_out_of_unresolved(error: CommitIncomplete, *, again: str, accept: str, undo: str) -> str:
    """What to do about the files that are not published and cannot be.

    Args:
        error: the error that names the files.
        again: a call or command that recovers the job once more, to be pasted.
        accept: the same, taking the present objects as they are.
        undo: a call or command that undoes the job.
    """
    whys = []
    if len(error.unresolved) > len(error.refused):
        whys.append(
            "Somebody aborted these uploads, or the files were visible and then overwritten:"
            " the store cannot tell"
        )
    if error.refused:
        whys.append(
            "The store will not complete an upload that is open: if you can mend the cause,"
            f" recover again: {again}. A file that is taken as it is is never published"
        )
    return f"{'. '.join(whys)}. Take what is there for right: {accept}; or undo the job: {undo}"


def not_all_visible(
    job: StartedJob,
    cause: MagicError,
    lost: Sequence[str],
    unresolved: Sequence[str],
    refused: Sequence[str],
    unfinished: Sequence[str],
) -> CommitIncomplete:
    """The error for a ``committing`` job of which some files are not completed.

    Args:
        job: the job.
        cause: the first failure.
        lost: keys without an object, whose uploads nobody can complete.
        unresolved: keys with another object, whose uploads are gone.
        refused: keys whose uploads are open, but the store will not complete them.
        unfinished: keys to be tried again.
    """
    kinds = (
        (
            lost,
            "are lost (their uploads cannot be completed any more, and nothing is at their keys;"
            " docs/stores.md tells of servers that can be repaired)",
        ),
        (unresolved, "are unresolved (their uploads are gone, and what is there is not theirs)"),
        (
            refused,
            "are refused by the store, which gave the same answer twice (their uploads are open)",
        ),
    )
    what = [f"{len(keys)} files {why}: {name_some(keys)}" for keys, why in kinds if keys]
    if unfinished:
        what.append(f"{len(unfinished)} files are not completed yet: {name_some(unfinished)}")
    error = incomplete(
        job,
        "not all of it is visible: " + ("; ".join(what) or "a pendingset could not be read"),
        cause,
        (*lost, *unresolved, *refused),
        tuple(unfinished),
    )
    error.refused = tuple(refused)
    return error


def incomplete(
    job: StartedJob,
    what: str,
    cause: MagicError,
    unresolved: tuple[str, ...] = (),
    unfinished: tuple[str, ...] = (),
    outstanding: tuple[str, ...] = (),
) -> CommitIncomplete:
    """The error for a job that is decided but not completely done.

    Args:
        job: the job.
        what: what is not done, in words.
        cause: the first failure.
        unresolved, unfinished: keys, as in `CommitIncomplete`.
        outstanding: for a ``completed`` job: what it still has to delete or to write.
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


# What is told at Ctrl-C ---------------------------------------------------------------------------


@contextmanager
def interrupted(told: str, report: JobReport | None = None) -> Iterator[None]:
    """If Ctrl-C interrupts the block, add a note that says what is known of the job, and its
    report. If code inside the block has added one, that is closer to the truth: then add
    nothing."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if not hasattr(error, _TOLD):
            setattr(error, _TOLD, True)
            error.add_note(told)
            if report is not None:
                error.report = report  # type: ignore[attr-defined]
        raise


_TOLD = "_magic_committer_told"


def undecided(job: StartedJob) -> str:
    """For a commit that was interrupted before the decision."""
    return (
        f"job {job.id!r} was not decided when its commit was interrupted: nothing of it is visible."
        f" Commit it again, or end it: magic_committer.abort({job.dest!r}, {job.id!r})"
    )


def deciding(job: StartedJob) -> str:
    """For a commit that was interrupted while the decision was being written."""
    return (
        f"whether job {job.id!r} is committed cannot be told: its decision was being written when"
        f" it was interrupted. Ask: magic_committer.attach({job.dest!r}, {job.id!r}).state"
    )


def committed(job: StartedJob) -> str:
    """For a commit that was interrupted after the decision."""
    return (
        f"job {job.id!r} is committed, and was interrupted before all of it was done. Never abort"
        f" it. Finish it, from any machine: magic_committer.recover({job.dest!r}, {job.id!r})"
    )


def half_aborted(job: StartedJob) -> str:
    """For an abort that was interrupted."""
    return (
        f"the abort of job {job.id!r} was interrupted. This goes on, or says that it is committed:"
        f" magic_committer.abort({job.dest!r}, {job.id!r})"
    )

"""What became of a job, in words: the one place for messages about decided and vanished jobs
(I10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from magic_committer.commit.register import read_marker
from magic_committer.commit.uploads import Completion
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    FormatError,
    JobNotRunning,
    MagicError,
    OptionError,
    OutcomeUnknown,
)
from magic_committer.errors.messages import DEAD_AFTER, Remedy, add_note, counted_are, name_some
from magic_committer.options import FAILING
from magic_committer.protocol.record import OUTCOMES, JobRecord, StartedJob, State
from magic_committer.runtime.components import Runtime

HINTS = {
    "committed": "Its data is, or will be, visible: do not run it again",
    "aborted": "Nothing of it is visible: start a new job",
    "reverted": "Nothing of it is visible: start a new job",
    "": "",
}
"""For each outcome: what to do with the job."""
UNDOING = "Some of it may be visible until it is undone: start a new job after that"
"""The same for a job that is being reverted."""
UNREAD_AGAIN = "Its record could not be read again"
"""In an error about a decided job: what it says may be out of date."""
STAYS = "What it had made visible stays: look at the destination before the job is run again"
"""The same for a job whose files had become visible before it was decided."""
ABORTED_HADOOPS = "What its JVM had made visible before it died stays: look at the destination"
"""The same for an adopted Hadoop job that was aborted."""


def outcome_of(record: JobRecord) -> str:
    """``committed``, ``aborted``, ``reverted``, or "" while the job runs."""
    return record.outcome or OUTCOMES.get(record.state, "")


def ended(dest: str, job_id: str, state: str, outcome: str, by: str = "") -> JobNotRunning:
    """The error for a caller that wants something else from a decided job."""
    remedies: tuple[Remedy, ...] = ()
    hint = HINTS[outcome]
    if not outcome:
        remedies = (Remedy("inspect", dest, why="ask again later what its record says"),)
    elif state == State.COMMITTING:
        remedies = (finish(dest, job_id), undo(dest, job_id))
    elif state == State.REVERTING:
        hint, remedies = UNDOING, (finish(dest, job_id, "undo all of it"),)
    was = f"was {outcome}" if state in (State.ABSENT, State.CLOSED) and outcome else f"is {state}"
    return JobNotRunning(
        f"job {job_id!r} {was}{by}",
        job_id=job_id,
        state=state,
        outcome=outcome,
        hint=hint,
        remedies=remedies,
    )


def ended_by_record(dest: str, record: JobRecord) -> JobNotRunning:
    """The same, from the stored record."""
    who = record.decider
    by = f" (decided by {who.role} on {who.host}, pid {who.pid})" if who else ""
    error = ended(dest, record.id, record.state, outcome_of(record), by)
    if record.adopted and error.outcome == "aborted":
        error.advice = ABORTED_HADOOPS
    elif record.stays and error.outcome == "aborted":
        error.advice = STAYS
    return error


def committed_by_marker(runtime: Runtime, job: StartedJob) -> bool:
    """Whether `_SUCCESS` says that a job without a record has committed. Nothing else can tell."""
    marker = read_marker(runtime, job.paths.dest.success_key)
    return marker is not None and marker.uuid == job.uuid


def unknown(job: StartedJob) -> OutcomeUnknown:
    """The error for a job whose record is gone and whose marker does not show its outcome."""
    return OutcomeUnknown(
        f"job {job.id!r} has no record any more: whether it committed is unknown",
        job_id=job.id,
        hint=f"Look at {job.dest} before the job is run again",
    )


def refuse_other_terms(job: StartedJob, record: JobRecord) -> None:
    """Refuse a handle whose terms are not those of the job's record: everyone obeys the record.
    Pure."""
    differ = [
        f"{name} {own!r}, and the record {theirs!r}"
        for name, own, theirs in job.terms.differing(record.terms)
    ]
    if not differ:
        return
    raise OptionError(
        f"job {job.id!r}: this handle says {'; '.join(differ)}: it was edited, or is an old one",
        hint="Nothing was done. Use a handle that says what the record says",
        remedies=(
            Remedy("commit", job.dest, job.id, "commit it by its record"),
            end(job.dest, job.id, "abort it"),
        ),
    )


# What may be done ---------------------------------------------------------------------------------


def finish(dest: str, job_id: str, why: str = "finish it") -> Remedy:
    """Go on with what was decided."""
    return Remedy("recover", dest, job_id, why)


def undo(dest: str, job_id: str, why: str = "undo it") -> Remedy:
    """Take a decided job back."""
    return Remedy("abort", dest, job_id, why, {"revert": True})


def end(dest: str, job_id: str, why: str = "end it") -> Remedy:
    """Abort a job that runs, or find that it is committed."""
    return Remedy("abort", dest, job_id, why)


def dead(dest: str, job_id: str, **options: object) -> tuple[Remedy, ...]:
    """Remedies for a job that may be alive, if the operator knows that its driver is dead."""
    options = {DEAD_AFTER: 0, **options}
    return (Remedy("recover", dest, job_id, "if you know that its driver is dead", options),)


def undo_again(dest: str, job_id: str) -> tuple[Remedy, ...]:
    """Remedies for a job that is not completely undone yet."""
    never = "if that never ends, see what giving it up would leave"
    return (
        Remedy("recover", dest, job_id, "do it again"),
        Remedy("force_abort", dest, job_id, never, {"dry_run": True}),
    )


@contextmanager
def told_what_to_do(dest: str, job_id: str) -> Iterator[None]:
    """If the record of another job cannot be read, say what to do about that job: nobody may start
    beside it, or replace data, who does not know what it does."""
    try:
        yield
    except FormatError as error:
        gone = "if nobody can say what it is, see what giving it up would leave"
        error.remedies = (Remedy("force_abort", dest, job_id, gone, {"dry_run": True}),)
        raise


def look_again(dest: str, job_id: str, why: str = "look at it, and do this again") -> Remedy:
    """Look at a job that another process may have changed."""
    return Remedy("show", dest, job_id, why)


def _undoing(job: StartedJob) -> str:
    """How the remedy that undoes a decided job begins: with what is lost by it."""
    lost = []
    if job.terms.mode not in FAILING:
        lost.append("what it has overwritten does not come back")
    if job.terms.mode == "replace":
        lost.append("nor does the old _SUCCESS")
    if job.adopted:
        lost.append("its own files are lost for good")
    return f"undo the job ({', '.join(lost)})" if lost else "undo the job"


def _unresolved(
    job: StartedJob, unresolved: tuple[str, ...], refused: tuple[str, ...]
) -> tuple[str, tuple[Remedy, ...]]:
    """Advice and remedies for files that are not published and cannot be."""
    dest, job_id, whys = job.dest, job.id, []
    remedies = [
        Remedy(
            "recover", dest, job_id, "take what is there for right", {"accept": unresolved},
            "unresolved",
        ),
        undo(dest, job_id, _undoing(job)),
    ]  # fmt: skip
    if len(unresolved) > len(refused):
        whys.append(
            "Somebody aborted these uploads, or the files were visible and then overwritten:"
            " the store cannot tell"
        )
    if refused:
        whys.append(
            "The store will not complete an upload that is open. A file that is taken as it is is"
            " never published"
        )
        again = "if you can mend the cause, recover again"
        remedies.insert(0, Remedy("recover", dest, job_id, again))
    return ". ".join(whys), tuple(remedies)


# Decided, and not wholly done ---------------------------------------------------------------------


_KINDS = {
    Completion.LOST: "lost (their uploads cannot be completed any more, and nothing is at their"
    " keys; docs/stores.md names servers that can be repaired)",
    Completion.UNRESOLVED: "unresolved (their uploads are gone, and what is there is not theirs)",
    Completion.REFUSED: "refused by the store, which gave the same answer twice (their uploads are"
    " open)",
    Completion.UNFINISHED: "not completed yet",
}


def not_all_visible(
    job: StartedJob, cause: MagicError, left: Mapping[Completion, Sequence[str]]
) -> CommitIncomplete:
    """The error for a ``committing`` job of which some files are not completed."""
    what = "; ".join(
        f"{counted_are(len(left[kind]), 'file')} {why}: {name_some(left[kind])}"
        for kind, why in _KINDS.items()
        if left[kind]
    )
    refused = tuple(left[Completion.REFUSED])
    return incomplete(
        job,
        "not all of it is visible: " + (what or "a pendingset could not be read"),
        cause,
        unresolved=(*left[Completion.LOST], *left[Completion.UNRESOLVED], *refused),
        refused=refused,
        unfinished=tuple(left[Completion.UNFINISHED]),
    )


def incomplete(
    job: StartedJob,
    what: str,
    cause: MagicError,
    *,
    unresolved: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
    unfinished: tuple[str, ...] = (),
    outstanding: tuple[str, ...] = (),
) -> CommitIncomplete:
    """The error for a job that is decided but not completely done."""
    hint = "Never abort it"
    remedies: tuple[Remedy, ...] = (
        finish(job.dest, job.id, "finish it, from any machine, as often as needed"),
    )
    if unresolved:
        hint, remedies = _unresolved(job, unresolved, refused)
    elif outstanding:
        accept, why = {"accept": outstanding}, "take these keys as they are"
        remedies += (Remedy("recover", job.dest, job.id, why, accept, "outstanding"),)
    elif unfinished:  # versitygw answers some Completes with 500 for ever (docs/stores.md)
        hint = ""
        remedies += (undo(job.dest, job.id, f"if that never ends, {_undoing(job)}"),)
    return CommitIncomplete(
        f"job {job.id!r} is committed, but {what} ({cause.message})",
        job_id=job.id,
        unresolved=unresolved,
        refused=refused,
        unfinished=unfinished,
        outstanding=outstanding,
        state=(State.COMPLETED if outstanding else State.COMMITTING).value,
        hint=hint,
        remedies=remedies,
    )


def as_last_read(told: CommitIncomplete, why: MagicError) -> CommitIncomplete:
    """The same error, if the record could not be read again after the failure: then the job is
    committed only as far as this process knows."""
    told.message += (
        f". {UNREAD_AGAIN} ({why.message}): another process may have undone it meanwhile"
    )
    told.args = (told.message,)
    return told


def not_undone(job: StartedJob, cause: MagicError) -> AbortIncomplete:
    """The error for a job that is being reverted while not everything is gone."""
    return AbortIncomplete(
        f"job {job.id!r} is being reverted, but not all of it is gone ({cause.message})",
        job_id=job.id,
        remedies=undo_again(job.dest, job.id),
    )


# What Ctrl-C reports ------------------------------------------------------------------------------


Stage = Literal["unread", "undecided", "deciding", "committed", "half aborted"]
_TOLD_AT: Mapping[Stage, tuple[str, Callable[[str, str, str], Remedy], str]] = {
    "unread": (  # another call, or another process, may have decided the job
        "the commit of job {id!r} was interrupted before it had decided anything: the job's record"
        " says what the job is",
        look_again,
        "ask",
    ),
    "undecided": (
        "job {id!r} was not decided when its commit was interrupted: nothing of it is visible",
        end,
        "commit it again, or end it",
    ),
    "deciding": (
        "whether job {id!r} is committed is unknown: its decision was being written when it was"
        " interrupted",
        look_again,
        "ask",
    ),
    "committed": (
        "job {id!r} is committed, and was interrupted before all of it was done. Never abort it",
        finish,
        "finish it, from any machine",
    ),
    "half aborted": (
        "the abort of job {id!r} was interrupted",
        end,
        "this goes on, or says that it is committed",
    ),
}
"""For each stage of a commit or abort: what is known of the job if Ctrl-C interrupts it there, and
what may be done."""


def tell_interrupted(error: BaseException, job: StartedJob, stage: Stage) -> None:
    """Add a note to a Ctrl-C that says what is known of the job."""
    what, remedy, why = _TOLD_AT[stage]
    add_note(error, what.format(id=job.id), remedy(job.dest, job.id, why))

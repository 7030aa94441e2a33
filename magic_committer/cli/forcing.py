"""``job abort --force``: a job that can be neither finished nor undone is given up.

The question says what is given up, in exact numbers and by name, before anything is done; the
report says what was, so that an operator can go after the rest by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

from magic_committer._quantities import counted, name_some
from magic_committer.cli import exits
from magic_committer.cli.calls import Calls
from magic_committer.cli.ending import not_found
from magic_committer.cli.output import Prose
from magic_committer.cli.shell import Shell
from magic_committer.errors import JobNotFound
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.force import UNREADABLE, force_abort
from magic_committer.maintenance.giving_up import GivenUp
from magic_committer.protocol.record import State

KEYS_ASKED_MAX = 5
"""Visible files that the question names."""


def give_up(
    shell: Shell, path: Destination, job_id: str, dead_after: float, *, dry_run: bool, yes: bool
) -> int:
    """Look, ask, and give the job up; the exit code."""
    with shell.progress() as progress, Calls(shell, path, job_id, "abort"):
        runtime = shell.runtime(path.bucket, progress)
        try:
            look = force_abort(runtime, path, job_id, dead_after=dead_after, dry_run=True)
        except JobNotFound as error:
            raise not_found(runtime, path, job_id) from error
        if dry_run or look.state == State.CLOSED:
            return told_given_up(shell, look)
        question = _question(look)
        if yes:  # who is asked reads it in the question
            shell.note(f"magic-committer: {question}")
        shell.confirm(question, yes=yes)
        return told_given_up(shell, force_abort(runtime, path, job_id, dead_after=dead_after))


def _question(look: GivenUp) -> str:
    """What is given up, before it is."""
    is_open = f"{counted(look.open, 'upload')} of it {'is' if look.open == 1 else 'are'} open"
    visible = f"{counted(look.visible_files, 'file')} of it visible"
    if look.visible:
        visible += f" ({name_some(look.visible, KEYS_ASKED_MAX)})"
    first = f"Give up job {look.job_id}, which is {look.found}? {is_open}, {visible}."
    after = "Then its record is deleted, and nobody can finish or undo the job any more"
    match look.found:
        case State.COMPLETED:
            return (
                f"{first} Its files stay. What it replaces may stay too, and _SUCCESS be missing."
                f" Open uploads are aborted. {after}. Go on?"
            )
        case _ if look.found == UNREADABLE:
            return (
                f"{first} Its record cannot be read: {look.why}. What is visible stays; open"
                f" uploads are aborted. {after}. Go on?"
            )
    return (
        f"{first} First it is undone: open uploads are aborted, and what is visible of a committing"
        " job is deleted; what was written over does not come back. If that cannot be done wholly,"
        f" the rest stays as it is. {after}. Go on?"
    )


def told_given_up(shell: Shell, given: GivenUp) -> int:
    """Print what was given up; the exit code."""
    shell.output.document("job.given_up", given.to_dict(), _lines(given))
    if given.dry_run:
        return exits.OK
    return exits.BAD_STATE if given.left_open or given.unread else exits.OK


def _lines(given: GivenUp) -> Iterator[tuple[str, str]]:
    yield "job", given.job_id
    yield "found", given.found
    yield "record", given.state
    yield "outcome", given.outcome or "not known"
    yield "problem", Prose(given.why)
    if given.dry_run:
        yield "open", counted(given.open, "upload")
    elif given.report is None:
        yield "aborted", counted(given.aborted, "upload")
        yield "deleted", counted(given.deleted, "file")
    for key in given.visible:
        yield "visible", key
    if given.visible_files > len(given.visible):
        yield "visible", f"{given.visible_files - len(given.visible)} more"
    for upload in given.left_open:
        yield "left open", upload
    for key in given.unread:
        yield "left alone", key
    if given.report is not None:
        for warning in given.report.warnings:
            yield "warning", Prose(warning)

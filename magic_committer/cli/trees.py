"""The commands of ``job`` for jobs of renames: what `jobs` does for jobs on S3, with the same
questions, documents and exit codes.

There are no uploads here and no jobs of Hadoop's magic committer, so nothing is adopted. Everything
that may be refused is refused before the question.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import click

from magic_committer._quantities import age_words, counted, name_some
from magic_committer._runtime import ProgressFunction
from magic_committer.cli import exits
from magic_committer.cli.calls import Calls
from magic_committer.cli.ending import drivers_only, no_such_job, refuse_prospect, tell_dry_run
from magic_committer.cli.forcing import KEYS_ASKED_MAX, told_given_up
from magic_committer.cli.job_reports import tell_recovery, tell_report
from magic_committer.cli.places import TreePlace
from magic_committer.cli.quantities import pending_words
from magic_committer.cli.shell import Shell
from magic_committer.commit.outcome import ended_by_record, outcome_of
from magic_committer.commit.prepare import Prospect
from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.setup import attached
from magic_committer.committers.trees import tree_committer_of
from magic_committer.errors import JobNotFound
from magic_committer.maintenance.giving_up import GivenUp
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, FoundJob
from magic_committer.maintenance.tree_details import tree_job_ids
from magic_committer.maintenance.trees import (
    abort_tree,
    force_abort_tree,
    inspect_tree_job,
    recover_tree,
)
from magic_committer.options import FAILING, Options
from magic_committer.protocol.record import JobRecord, State

WRITTEN_OVER = (
    "What the job has written over does not come back: where a file of it has taken the place of"
    " another one, undoing deletes the file, and the old one is gone. "
)
"""Said before a job is undone that was free to write over files."""


@dataclass(frozen=True, slots=True)
class _EndingTree:
    """A job that a command is about to end."""

    shell: Shell
    parts: Parts
    calls: Calls
    record: JobRecord

    @classmethod
    def at(
        cls, shell: Shell, progress: ProgressFunction, path: TreePlace, calls: Calls
    ) -> _EndingTree:
        """Find the job.

        Raises:
            JobNotFound: with the ids that there are.
        """
        parts = shell.parts(path, progress)
        seen = records.read_by_id(parts, calls.job_id)
        if seen is None:
            raise tree_job_not_found(parts, calls.job_id)
        return cls(shell, parts, calls, seen.record)

    @property
    def outcome(self) -> str:
        """As the record tells it."""
        return outcome_of(self.record)

    @property
    def loss(self) -> str:
        """What is said before a decided job is undone; "" if it could write over nothing."""
        undone = self.record.state in (State.COMMITTING, State.REVERTING)
        return WRITTEN_OVER if undone and self.record.terms.mode not in FAILING else ""

    def look(self) -> FoundJob:
        """What there is of it.

        Raises:
            JobNotFound: it has gone meanwhile.
        """
        found = inspect_tree_job(self.parts, self.calls.job_id, DEAD_AFTER_SECONDS)
        if found is None:
            raise tree_job_not_found(self.parts, self.calls.job_id)
        return found

    def question(self) -> str:
        """What to ask before the job is aborted or undone."""
        found, job_id, state = self.look(), self.calls.job_id, self.record.state
        if state is State.COMMITTING:
            return (
                f"{self.loss}Undo job {job_id}, which is committing: remove its files, of which"
                f" {found.visible} of {counted(found.files, 'file')} are visible?"
            )
        if state is not State.RUNNING:
            return f"{self.loss}Finish undoing job {job_id}, which is {state}?"
        many = pending_words(found.tasks, found.files, found.bytes)
        return f"Abort job {job_id}, which runs and changed {age_words(found.age)} ago: {many}?"

    def committer(self) -> ManifestCommitter:
        """Its committer in this process."""
        seen = records.read_by_id(self.parts, self.calls.job_id)
        if seen is None:
            raise tree_job_not_found(self.parts, self.calls.job_id)
        job = replace(attached(self.parts, seen), undisturbed=False)
        return tree_committer_of(job)(self.parts, job, Options())

    def tell(self, question: str, files: Prospect | None = None) -> None:
        """The answer to ``--dry-run``."""
        warning = WRITTEN_OVER if question.startswith(WRITTEN_OVER) else ""
        tell_dry_run(self.shell, self.calls, self.record.state, question, warning, files)


def tree_job_not_found(parts: Parts, job_id: str) -> JobNotFound:
    """The error for an id that names nothing: with those that do."""
    return no_such_job(f"under {parts.tree.url}", job_id, list(tree_job_ids(parts)))


def refuse_for_hadoop(path: TreePlace, *, adopt: bool, leave_visible: bool = False) -> None:
    """Refuse options that are for jobs of Hadoop's magic committer."""
    for option, given in (("--adopt", adopt), ("--leave-visible", leave_visible)):
        if given:
            raise click.UsageError(
                f"{option} is for jobs of Hadoop's magic committer, on S3: there are none under"
                f" {path.url}"
            )


def commit(
    shell: Shell,
    path: TreePlace,
    job_id: str,
    wanted: int | list[str] | None,
    accept: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """``job commit``; the exit code."""
    with shell.progress() as progress, Calls(shell, path, job_id, "commit") as calls:
        found = _EndingTree.at(shell, progress, path, calls)
        files = None
        if found.record.state is State.RUNNING:
            if found.record.terms.accept == "results":
                raise drivers_only(calls)
            files = found.committer().look_at_commit(wanted, accept)
            refuse_prospect(calls, files, wanted)
            many = pending_words(len(files.tasks), files.files, files.bytes)
            question = f"Commit job {job_id}: make visible {many}?"
        elif found.outcome == "committed":
            question = f"Finish job {job_id}, which is {found.record.state}?"
        else:
            raise ended_by_record(path.url, found.record)
        if dry_run:
            found.tell(question, files)
            return exits.OK
        if found.record.state is not State.CLOSED:
            shell.confirm(question, yes=yes)
        return tell_report(shell, found.committer().commit_job(None, wanted, accept))


def abort(
    shell: Shell, path: TreePlace, job_id: str, *, revert: bool, dry_run: bool, yes: bool
) -> int:
    """``job abort``; the exit code."""
    with shell.progress() as progress, Calls(shell, path, job_id, "abort") as calls:
        found = _EndingTree.at(shell, progress, path, calls)
        reverting = found.record.state is State.COMMITTING and revert
        if found.outcome == "committed" and not reverting:
            raise ended_by_record(path.url, found.record)
        question = found.question()
        if dry_run:
            found.tell(question)
            return exits.OK
        if found.record.state is not State.CLOSED:
            if yes and reverting and found.loss:  # who is asked reads it in the question
                shell.note(f"magic-committer: {found.loss.strip()}")
            shell.confirm(question, yes=yes)
        return tell_report(shell, abort_tree(found.parts, job_id, revert=revert))


def recover(
    shell: Shell,
    path: TreePlace,
    job_id: str,
    accept: Collection[str],
    dead_after: float,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """``job recover``; the exit code."""
    with shell.progress() as progress, Calls(shell, path, job_id, "recover"):
        parts = shell.parts(path, progress)
        would = recover_tree(parts, job_id, dead_after=dead_after, accept=accept, dry_run=True)
        if would.state == State.ABSENT and would.outcome != "committed":
            raise tree_job_not_found(parts, job_id)
        if dry_run or would.state in (State.ABSENT, State.CLOSED):
            return tell_recovery(shell, would)
        shell.confirm(f"Job {job_id} is {would.state}; {would.did}. Go on?", yes=yes)
        done = recover_tree(parts, job_id, dead_after=dead_after, accept=accept)
        return tell_recovery(shell, done)


def give_up(
    shell: Shell, path: TreePlace, job_id: str, dead_after: float, *, dry_run: bool, yes: bool
) -> int:
    """``job abort --force``; the exit code."""
    with shell.progress() as progress, Calls(shell, path, job_id, "abort"):
        parts = shell.parts(path, progress)
        try:
            look = force_abort_tree(parts, job_id, dead_after=dead_after, dry_run=True)
        except JobNotFound as error:
            raise tree_job_not_found(parts, job_id) from error
        if dry_run or look.state == State.CLOSED:
            return told_given_up(shell, look)
        question = _giving_up(look)
        if yes:  # who is asked reads it in the question
            shell.note(f"magic-committer: {question}")
        shell.confirm(question, yes=yes)
        return told_given_up(shell, force_abort_tree(parts, job_id, dead_after=dead_after))


def _giving_up(look: GivenUp) -> str:
    """What is given up, before it is."""
    visible = f"{counted(look.visible_files, 'file')} of it visible"
    if look.visible:
        visible += f" ({name_some(look.visible, KEYS_ASKED_MAX)})"
    first = f"Give up job {look.job_id}, which is {look.found}?"
    after = "Then its directory is deleted, and nobody can finish or undo the job any more"
    match look.found:
        case State.COMPLETED:
            return (
                f"{first} {visible}: they stay. What it replaces may stay too, and _SUCCESS be"
                f" missing. {after}. Go on?"
            )
        case "unreadable":
            return (
                f"{first} Its record cannot be read: {look.why}. What is visible of it stays."
                f" {after}. Go on?"
            )
    return (
        f"{first} First it is undone: its files are removed, visible or not; what was written over"
        f" does not come back. If that cannot be done wholly, the rest stays as it is. {after}."
        " Go on?"
    )

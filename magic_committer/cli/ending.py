"""A job that a command is about to end: found, looked at, asked about, and adopted if it has to be.

Everything that may be refused is refused before the question; what the question says is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magic_committer._quantities import age_words, counted, name_some
from magic_committer._runtime import ProgressFunction, Runtime
from magic_committer.cli.calls import Calls
from magic_committer.cli.output import Prose
from magic_committer.cli.quantities import pending_words
from magic_committer.cli.shell import Shell
from magic_committer.commit import records
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.prepare import ACCEPT_EACH
from magic_committer.commit.published import refuse_if_published
from magic_committer.committers.magic import Prospect
from magic_committer.errors import (
    CommitRefused,
    JobError,
    JobNotFound,
)
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.adopt import Adoption, adopt_job, prospect_of, started_of
from magic_committer.maintenance.inspect import inspect_job
from magic_committer.maintenance.job_details import job_ids
from magic_committer.maintenance.recover import committer_of
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, LEFTOVER_AFTER_SECONDS, FoundJob
from magic_committer.options import FAILING, Options
from magic_committer.protocol.record import JobRecord, StartedJob, State

IDS_NAMED_MAX = 10
"""Ids that are told to who asks for a job that is not there."""
WRITTEN_OVER = (
    "What the job has written over does not come back: where a file of it is visible at a key that"
    " held another object before, undoing deletes the file, and the old object is gone. "
)
"""Said before a job is undone that was free to write over objects."""
PROBLEMS_MAX = 5
"""Problems that are told of a job that cannot be committed."""


@dataclass(slots=True)
class Ending:
    """A job that a command is about to end: with a record, or Hadoop's and to be adopted.

    Attributes:
        settled: seconds for which nothing of a job must have changed that is to be adopted.
        seen: its record; None until it is adopted. adoption: what will be adopted.
    """

    shell: Shell
    runtime: Runtime
    calls: Calls
    settled: float
    seen: records.Seen | None = None
    adoption: Adoption | None = None

    @classmethod
    def find(
        cls, shell: Shell, progress: ProgressFunction, calls: Calls, adopt: bool, settled: float
    ) -> Ending:
        """Find the job.

        Raises:
            JobNotFound: with the ids that there are.
            JobError: it is Hadoop's, and nobody said that it is dead; or it cannot be adopted.
        """
        dest, job_id = calls.dest, calls.job_id
        assert isinstance(dest, Destination)
        calls.settled = None if settled == LEFTOVER_AFTER_SECONDS else settled
        calls.is_hadoops = True
        ending = cls(shell, shell.runtime(dest.bucket, progress), calls, settled)
        ending.seen = records.read(ending.runtime, JobPaths(dest, job_id).record)
        if ending.seen is not None:
            calls.is_hadoops = False
            return ending
        if not adopt and (found := ending.look()).kind == "hadoop":
            raise JobError(
                f"job {job_id!r} is a Hadoop job with"
                f" {pending_words(found.tasks, found.files, found.bytes)}; it changed"
                f" {age_words(found.age)} ago",
                job_id=job_id,
                remedies=(
                    calls.remedy("show", "look at it first"),
                    calls.remedy(calls.verb, "if its JVM is dead, add --adopt"),
                ),
            )
        try:
            ending.adoption = adopt_job(
                ending.runtime, dest, job_id, dead_after=settled, dry_run=True
            )
        except JobNotFound as error:
            raise not_found(ending.runtime, dest, job_id) from error
        return ending

    @property
    def dest(self) -> Destination:
        """Where it is."""
        assert isinstance(self.calls.dest, Destination)
        return self.calls.dest

    @property
    def state(self) -> State:
        """Of the record."""
        return self.seen.record.state if self.seen is not None else State.ABSENT

    @property
    def outcome(self) -> str:
        """As the record tells it."""
        return outcome_of(self.seen.record) if self.seen is not None else ""

    def record(self) -> JobRecord:
        """The record, of a job that has one."""
        assert self.seen is not None
        return self.seen.record

    def look(self) -> FoundJob:
        """What there is of it.

        Raises:
            JobNotFound: nothing.
        """
        found = inspect_job(self.runtime, self.dest, self.calls.job_id, DEAD_AFTER_SECONDS)
        if found is None:
            raise not_found(self.runtime, self.dest, self.calls.job_id)
        return found

    @property
    def warning(self) -> str:
        """What is said before the question, of a job that is to be adopted."""
        if self.adoption is None:
            return ""
        older = self.adoption.older()
        return (
            f"Job {self.calls.job_id} is Hadoop's and changed {age_words(self.adoption.age)} ago;"
            f" adopt it only if its JVM is dead{older and f'; {older}'}. "
        )

    @property
    def has_committed(self) -> bool:
        """It is to be adopted, and `_SUCCESS` tells that Hadoop has committed it."""
        return self.adoption is not None and self.adoption.committed

    def sweep_question(self) -> str:
        """What to ask before a job is adopted that has committed."""
        return (
            f"{self.warning}It has committed: _SUCCESS names it, and stays as it is. Take away what"
            f" job {self.calls.job_id} left?"
        )

    @property
    def loss(self) -> str:
        """What is said before a decided job is undone; "" if it could write over nothing."""
        undone = self.state in (State.COMMITTING, State.REVERTING)
        return WRITTEN_OVER if undone and self.record().terms.mode not in FAILING else ""

    def question(self, leave_visible: bool = False) -> str:
        """What to ask before the job is aborted or undone.

        Raises:
            JobError: Hadoop has committed it, wholly or (`AlreadyVisible`) in part.
        """
        job_id = self.calls.job_id
        if self.has_committed:
            raise JobError(
                f"job {job_id!r} has committed: _SUCCESS names it, so there is nothing to abort",
                job_id=job_id,
                remedies=(self.calls.remedy("commit", "take away what it left"),),
            )
        stays = self._stays(leave_visible)
        found = self.look()
        if self.state is State.COMMITTING:
            return (
                f"{self.loss}Undo job {job_id}, which is committing: abort its uploads, and"
                f" delete {found.visible} of its {counted(found.files, 'file')} that are visible?"
            )
        if self.state not in (State.RUNNING, State.ABSENT):
            return f"{self.loss}Finish undoing job {job_id}, which is {self.state}?"
        many = pending_words(found.tasks, found.files, found.bytes)
        if self.seen is None:
            return f"{self.warning}Abort job {job_id}: {many}{stays}?"
        changed = f"which runs and changed {age_words(found.age)} ago"
        return f"Abort job {job_id}, {changed}: {many}{stays}?"

    def _stays(self, leave_visible: bool) -> str:
        """Of a Hadoop job: what an abort leaves visible."""
        if self.state not in (State.RUNNING, State.ABSENT):
            return ""
        if self.adoption is not None:
            job = started_of(self.runtime, self.dest, self.adoption)
        elif self.record().adopted:
            job = StartedJob.attached(self.record(), self.dest.url, "")
        else:
            return ""
        stays = refuse_if_published(
            self.runtime, job, Options().commit_threads, leave_visible=leave_visible
        )
        return stays and f"; {stays}"

    def prospect(self, wanted: int | list[str] | None, accept: tuple[str, ...]) -> Prospect:
        """What a commit would publish now.

        Raises:
            CommitRefused: something is wrong with it; nothing was decided.
            JobError: it may not be committed from a listing, or no task has committed.
        """
        dest = self.dest
        if self.adoption is not None:
            found = prospect_of(self.runtime, dest, self.adoption, wanted, accept)
        else:
            seen = self.take()
            if seen.record.terms.accept == "results":
                raise drivers_only(self.calls)
            found = committer_of(self.runtime, dest, seen, None).look_at_commit(wanted, accept)
        refuse_prospect(self.calls, found, wanted)
        return found

    def take(self) -> records.Seen:
        """The job's record, after it was adopted if it has to be."""
        dest, job_id = self.dest, self.calls.job_id
        if self.adoption is not None:
            adopt_job(self.runtime, dest, job_id, dead_after=self.settled)
            self.adoption, self.calls.is_hadoops = None, False
            self.seen = records.read(self.runtime, JobPaths(dest, job_id).record)
        if self.seen is None:
            raise not_found(self.runtime, dest, job_id)
        return self.seen

    def tell(self, question: str, files: Prospect | None = None) -> None:
        """The answer to ``--dry-run``."""
        warning = WRITTEN_OVER if question.startswith(WRITTEN_OVER) else self.warning
        adopts = self.adoption is not None
        tell_dry_run(self.shell, self.calls, self.state, question, warning, files, adopts=adopts)


def tell_dry_run(
    shell: Shell,
    calls: Calls,
    state: State,
    question: str,
    warning: str,
    files: Prospect | None,
    *,
    adopts: bool = False,
) -> None:
    """Print the answer to ``--dry-run``.

    Args:
        question: what would be asked; it begins with ``warning``.
        files: what would be published; None: nothing is said of it.
        adopts: the job would be adopted first.
    """
    told: dict[str, Any] = {
        "job_id": calls.job_id,
        "dest": calls.dest.url,
        "state": str(state),
        "adopt": adopts,
        "warning": warning.strip(),
        "would": question.removeprefix(warning).removesuffix("?"),
        "tasks": files and list(files.tasks),
        "files": files and files.files,
        "bytes": files and files.bytes,
    }
    lines = (
        ("job", calls.job_id),
        ("adopt", "its record is written first" if adopts else ""),
        ("warning", Prose(told["warning"])),
        ("would", Prose(told["would"])),
        ("tasks", name_some(files.tasks) if files else ""),
    )
    shell.output.document("job.dry_run", told, lines)


def drivers_only(calls: Calls) -> JobError:
    """The error for a job that nobody may commit from a listing."""
    return JobError(
        f"job {calls.job_id!r} can be committed by its driver only: which attempts count was"
        " told to it in messages, and what lies on the store may be cut short",
        job_id=calls.job_id,
        remedies=(calls.remedy("abort", "if its driver is dead, abort and run it again"),),
    )


def refuse_prospect(calls: Calls, found: Prospect, wanted: int | list[str] | None) -> None:
    """Refuse a commit in which something is wrong, or that would publish nothing unasked.

    Raises:
        CommitRefused: something is wrong with the job; nothing was decided.
        JobError: no task has committed.
    """
    job_id = calls.job_id
    if found.problems:
        raise CommitRefused(
            f"job {job_id!r} cannot be committed: {name_some(found.problems, PROBLEMS_MAX)}",
            job_id=job_id,
            problems=found.problems,
            hint=ACCEPT_EACH,
            remedies=(calls.remedy("abort", "abort it"),),
        )
    if not found.tasks and wanted is None:
        raise JobError(
            f"job {job_id!r} has no committed task",
            job_id=job_id,
            remedies=(
                calls.remedy("abort", "abort it"),
                calls.remedy("commit", "if it is right that it has none", expect=0),
            ),
        )


def not_found(runtime: Runtime, dest: Destination, job_id: str) -> JobNotFound:
    """The error for an id that names nothing: with those that do."""
    return no_such_job(f"under {dest.url}", job_id, list(job_ids(runtime, dest)))


def no_such_job(where: str, job_id: str, ids: list[str]) -> JobNotFound:
    """The same, with the ids that there are."""
    there = f"There are: {name_some(ids, IDS_NAMED_MAX)}" if ids else "There is none at all"
    return JobNotFound(f"there is no job {job_id!r} {where}", job_id=job_id, hint=there)

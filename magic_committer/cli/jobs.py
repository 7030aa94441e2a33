"""``job list|show|commit|abort|recover``: the jobs under a destination, and how they end.

What ends a job asks first, and says in the question what it will do, in exact numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from magic_committer._quantities import age_words, bytes_words, counted
from magic_committer._runtime import Progress, ProgressFunction
from magic_committer.cli import exits
from magic_committer.cli.app import group
from magic_committer.cli.calls import Calls
from magic_committer.cli.ending import Ending, no_such_job, not_found
from magic_committer.cli.forcing import give_up
from magic_committer.cli.job_reports import tell_recovery, tell_report
from magic_committer.cli.output import Prose
from magic_committer.cli.places import Place
from magic_committer.cli.quantities import batch_words, pending_words, time_words
from magic_committer.cli.reach import Reach, recursive
from magic_committer.cli.shell import DURATION, PLACE, Shell, age_option, command
from magic_committer.cli.table import Column
from magic_committer.commit.outcome import ended_by_record
from magic_committer.errors import JobNotFound
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.job_details import ShownFile, ShownJob, show_job
from magic_committer.maintenance.recover import abort_job, committer_of, recover_job
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    FoundJob,
    Recovery,
)
from magic_committer.protocol.record import State

job = group("job", "job list s3://bucket --recursive", "job show s3://bucket/table nightly")

FIELDS = tuple(FoundJob.__dataclass_fields__)
COLUMNS = (
    Column("kind", spare=1),
    Column("state"),
    Column("age", words=age_words, right=True),
    Column("files", right=True, spare=3),
    Column("bytes", words=bytes_words, right=True, spare=2),
    Column("would", "recovery", reason=True),
    Column("query", spare=5),
    Column("batch", words=batch_words, right=True, spare=4),
    Column("id", "job"),
)
DEEP_COLUMNS = (*COLUMNS, Column("dest", "destination"))
FILE_COLUMNS = (
    Column("bytes", "size", words=bytes_words, right=True),
    Column("task", spare=1),
    Column("fate", "upload"),
    Column("key"),
)

_dead_after = age_option(
    "--dead-after", DEAD_AFTER_SECONDS,
    "From which age a running job of which nothing changes is taken for dead.",
)  # fmt: skip
_path = click.argument("path", type=PLACE)
_paths = click.argument("paths", type=PLACE, nargs=-1, required=True, metavar="PATH…")
_job = click.argument("job_id", metavar="JOB")
_accept = click.option(
    "--accept", multiple=True, metavar="KEY",
    help="What is at this key is right, though its upload is gone. May be given again.",
)  # fmt: skip
_adopt = click.option(
    "--adopt", is_flag=True,
    help="Of a Hadoop job: your word that its JVM is dead. It gets a record, and is ours.",
)  # fmt: skip
_settled = age_option(
    "--dead-after settled", LEFTOVER_AFTER_SECONDS,
    "With --adopt: how long nothing of the job must have changed, for what its JVM sent last"
    " may still land. With --force: the same, of a job whose record does not tell.",
)  # fmt: skip
_leave_visible = click.option(
    "--leave-visible", is_flag=True,
    help="Of a Hadoop job whose JVM died while it committed: abort the rest all the same; the files"
    " that are visible stay.",
)  # fmt: skip
_dry_run = click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


# Looking ------------------------------------------------------------------------------------------


@command(job, "list", "All jobs under a path.", "s3://bucket/table", "s3://bucket --recursive")
@_paths
@recursive
@_dead_after
def list_jobs(
    shell: Shell,
    paths: tuple[Place, ...],
    deep: bool,
    objects_max: int,
    dead_after: float,
) -> int:
    """List the jobs that have a directory under PATH (s3://… or file:///…): ours and Hadoop's.

    Those of directories below PATH are listed with --recursive only.
    """
    reach = Reach(shell, many=len(paths) > 1, objects_max=objects_max if deep else None)
    counts: Counter[str] = Counter()

    def found(progress: ProgressFunction) -> Iterator[FoundJob]:
        for path in dict.fromkeys(paths):
            before = counts.total()
            with reach.trying(path.url):
                dests = reach.destinations(path, progress)
                for number, dest in enumerate(dests, 1):
                    with reach.trying(dest.url):
                        for one in _jobs_at(shell, dest, dead_after):
                            counts[one.kind] += 1
                            yield one
                    progress(Progress("look at", number, len(dests), "destinations"))
                if counts.total() == before:
                    reach.found_nothing(path)

    listed = shell.gather(found)
    where = " or ".join(path.url for path in paths)
    empty = f"No jobs under {where} or below" if deep else f"No jobs directly under {where}"
    shell.output.rows(
        "job", COLUMNS if len(paths) == 1 and not deep else DEEP_COLUMNS,
        (one.to_dict() for one in listed), fields=FIELDS,
        summary=lambda: {
            "jobs": counts.total(), "by_kind": dict(counts),
            "recursive": deep, "not_looked_at": reach.not_looked_at,
        },
        empty=empty if reach.code == exits.OK else "No jobs in what could be looked at",
    )  # fmt: skip
    reach.tell()
    return reach.code


@command(job, "show", "One job in full.", "s3://bucket/table nightly")
@_path
@_job
@click.option(
    "--files", "files_max", type=click.IntRange(min=0), default=20, show_default=True, metavar="N",
    help="Files that are looked at, up to three requests each.",
)  # fmt: skip
@recursive
@_dead_after
def show(
    shell: Shell,
    path: Place,
    job_id: str,
    files_max: int,
    deep: bool,
    objects_max: int,
    dead_after: float,
) -> int:
    """Show a job: its state, its plan, its files, and what a recovery would do.

    With --recursive each job of that id, in whatever directory below PATH it is.
    """
    if deep:
        return _show_below(shell, path, job_id, files_max, objects_max, dead_after)
    shown = _show_at(shell, path, job_id, dead_after, files_max)
    if shown is None:
        error = _not_found_at(shell, path, job_id)
        reach = Reach(shell, many=False)
        reach.found_nothing(path)
        reach.tell()
        raise error
    shell.output.document("job", shown.to_dict(), _lines_of(shown.found, shown.plan))
    _print_files(shell, shown)
    return exits.OK


def _jobs_at(shell: Shell, path: Place, dead_after: float) -> Iterator[FoundJob]:
    """The jobs directly under a path."""
    return inspect_all(shell.runtime(path.bucket), path, dead_after)


def _show_at(
    shell: Shell, path: Place, job_id: str, dead_after: float, files_max: int
) -> ShownJob | None:
    """One job under a path; None if it is not there."""
    return show_job(shell.runtime(path.bucket), path, job_id, dead_after, files_max)


def _not_found_at(shell: Shell, path: Place, job_id: str) -> JobNotFound:
    return not_found(shell.runtime(path.bucket), path, job_id)


def _show_below(
    shell: Shell,
    path: Place,
    job_id: str,
    files_max: int,
    objects_max: int,
    dead_after: float,
) -> int:
    """Every job of an id below a path: one after the other for people, rows for programs."""
    reach = Reach(shell, many=True, objects_max=objects_max)
    ids: dict[str, None] = {}

    def found(progress: ProgressFunction) -> Iterator[ShownJob]:
        for dest, there in reach.destinations(path, progress).items():
            ids.update(dict.fromkeys(there or ()))
            if job_id not in (there or ()):
                continue
            with reach.trying(dest.url):
                shown = _show_at(shell, dest, job_id, dead_after, files_max)
                if shown is not None:
                    yield shown

    shown = list(shell.gather(found))
    if not shown and reach.code == exits.OK:
        raise no_such_job(f"under {path.url} or below", job_id, list(ids))
    if shell.output.format == "table":
        for number, one in enumerate(shown):
            shell.output.text("" if number else f"{counted(len(shown), 'job')} of that id")
            shell.output.document("job", {}, _lines_of(one.found, one.plan))
            _print_files(shell, one)
    else:
        shell.output.rows(
            "job", (), (one.to_dict() for one in shown), fields=(*FIELDS, "plan", "listed"),
            summary=lambda: {"jobs": len(shown), "not_looked_at": reach.not_looked_at},
        )  # fmt: skip
    return reach.code


def _print_files(shell: Shell, shown: ShownJob) -> None:
    """For people, the files of a job below what else is told of it."""
    if shell.output.format == "table" and shown.listed:
        shell.output.text("")
        rows = [file.to_dict() for file in shown.listed]
        fields = tuple(ShownFile.__dataclass_fields__)
        shell.output.rows("file", FILE_COLUMNS, rows, fields=fields)


def _lines_of(found: FoundJob, plan: str) -> Iterator[tuple[str, str]]:
    yield "job", found.id
    yield "destination", found.dest
    yield "kind", f"ours, adopted from Hadoop's {found.adopted}" if found.adopted else found.kind
    yield "directory", "" if found.kind == "ours" else found.directory
    outcome = f" ({found.outcome})" if found.state == State.CLOSED else ""
    yield "state", f"{found.state}{outcome}" if found.kind == "ours" else ""
    yield "mode", ", ".join(filter(None, (found.mode, found.accept and f"accepts {found.accept}")))
    yield "batch", f"{found.batch} of query {found.query}" if found.query else ""
    yield "checkpoint", f"hash {found.checkpoint}" if found.checkpoint else ""
    yield "started", time_words(found.started)
    yield "changed", f"{age_words(found.age)} ago"
    yield "by", f"{found.role} on {found.host}, pid {found.pid}" if found.role else ""
    yield "uuid", found.uuid
    yield "plan", plan
    yield "pending", pending_words(found.tasks, found.files, found.bytes)
    yield "visible", "" if found.visible is None else counted(found.visible, "file")
    for key in found.missing_keys:
        yield "unresolved", key
    yield "problem", Prose(found.problem)
    yield "recovery would", Prose(found.would)


# Ending -------------------------------------------------------------------------------------------


@command(
    job,
    "commit",
    "Make its files visible.",
    "s3://bucket/table nightly --dry-run",
    "s3://bucket/table job_20261125 --adopt --expect 12",
)
@_path
@_job
@click.option("--expect", type=click.IntRange(min=0), metavar="N", help="How many tasks it has.")
@click.option(
    "--task", "tasks", multiple=True, metavar="ID",
    help="A task that it has. May be given again: exactly these are expected.",
)  # fmt: skip
@_accept
@_adopt
@_settled
@_dry_run
@_yes
def commit(
    shell: Shell,
    path: Place,
    job_id: str,
    expect: int | None,
    tasks: tuple[str, ...],
    accept: tuple[str, ...],
    adopt: bool,
    settled: float,
    dry_run: bool,
    yes: bool,
) -> int:
    """Make a job's files visible: what its tasks left on the store, or what was decided before.

    A running job is committed only where its record says that its driver may go by a listing, or
    where it was adopted. Everything is checked first: what is wrong is told, and nothing decided.
    """
    if expect is not None and tasks:
        raise click.UsageError("give --expect or --task, not both")
    wanted = list(tasks) or expect
    with shell.progress() as progress, Calls(shell, path, job_id, "commit") as calls:
        ending = Ending.find(shell, progress, calls, adopt, settled)
        if ending.has_committed:
            files, question = None, ending.sweep_question()
        elif ending.state in (State.RUNNING, State.ABSENT):
            files = ending.prospect(wanted, accept)
            many = pending_words(len(files.tasks), files.files, files.bytes)
            question = f"{ending.warning}Commit job {job_id}: make visible {many}?"
        elif ending.outcome == "committed":
            files, question = None, f"Finish job {job_id}, which is {ending.state}?"
        else:
            raise ended_by_record(path.url, ending.record())
        if dry_run:
            ending.tell(question, files)
            return exits.OK
        if ending.state != State.CLOSED:
            shell.confirm(question, yes=yes)
        committer = committer_of(ending.runtime, path, ending.take(), None)
        return tell_report(shell, committer.commit_job(None, wanted, accept))


@command(
    job,
    "abort",
    "Undo it.",
    "s3://bucket/table nightly --dry-run",
    "s3://bucket/table nightly --revert",
)
@_path
@_job
@click.option("--revert", is_flag=True, help="Also if it is committing: delete what is visible.")
@click.option(
    "--force", is_flag=True,
    help="The last way out: what cannot be undone is told, and given up with the job's record.",
)  # fmt: skip
@_leave_visible
@_adopt
@_settled
@_dry_run
@_yes
def abort(
    shell: Shell,
    path: Place,
    job_id: str,
    revert: bool,
    force: bool,
    leave_visible: bool,
    adopt: bool,
    settled: float,
    dry_run: bool,
    yes: bool,
) -> int:
    """Make sure that nothing of a job is visible, now or later, however young it is.

    With --revert, what a committing job has written over does not come back: where one of its files
    is visible at a key that held another object before, the file is deleted, and the old object is
    gone.

    A Hadoop job of which files are visible already is refused: ``job commit --adopt`` finishes it.

    With --force a job ends whatever its record says, also if that cannot be read: it is undone as
    far as that goes, and the rest is named and left, for nobody can finish or undo it any more.
    """
    if force and adopt:
        raise click.UsageError("--force is for jobs that have a record: leave --adopt out")
    if force:
        return give_up(shell, path, job_id, settled, dry_run=dry_run, yes=yes)
    with shell.progress() as progress, Calls(shell, path, job_id, "abort") as calls:
        ending = Ending.find(shell, progress, calls, adopt, settled)
        reverting = ending.state == State.COMMITTING and revert
        if ending.outcome == "committed" and not reverting:
            raise ended_by_record(path.url, ending.record())
        question = ending.question(leave_visible)
        if dry_run:
            ending.tell(question)
            return exits.OK
        if ending.state != State.CLOSED:
            if yes and reverting and ending.loss:  # who is asked reads it in the question
                shell.note(f"magic-committer: {ending.loss.strip()}")
            shell.confirm(question, yes=yes)
        seen = ending.take()
        report = abort_job(ending.runtime, path, seen, revert=revert, leave_visible=leave_visible)
        return tell_report(shell, report)


@command(
    job,
    "recover",
    "Finish it as it was decided.",
    "s3://bucket/table nightly",
    "s3://bucket/table nightly --dead-after 0",
)
@_path
@_job
@_accept
@_leave_visible
@_adopt
@click.option(
    "--dead-after", type=DURATION, metavar="AGE",
    help="A running job is aborted, a Hadoop job adopted, if nothing of it has changed for so long"
    " (24h, 1h). 0 is your word that its driver is dead.",
)  # fmt: skip
@_dry_run
@_yes
def recover(
    shell: Shell,
    path: Place,
    job_id: str,
    accept: tuple[str, ...],
    leave_visible: bool,
    adopt: bool,
    dead_after: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Finish a job whose driver is dead: forward what was decided, back what was not.

    A Hadoop job that is adopted was not decided, so it is aborted, unless files of it are visible
    already; ``job commit --adopt`` commits it. One that _SUCCESS names is swept.
    """
    settled = LEFTOVER_AFTER_SECONDS if dead_after is None else dead_after
    limit = DEAD_AFTER_SECONDS if dead_after is None else dead_after
    with shell.progress() as progress, Calls(shell, path, job_id, "recover") as calls:
        try:
            ending = Ending.find(shell, progress, calls, adopt, settled)
        except JobNotFound:
            ended = recover_job(shell.runtime(path.bucket), path, job_id, dead_after=limit)
            if ended.outcome != "committed":
                raise
            return tell_recovery(shell, ended)
        if ending.adoption is not None:
            swept = ending.has_committed
            question = ending.sweep_question() if swept else ending.question(leave_visible)
            limit = 0.0
            if dry_run:
                ending.tell(question)
                return exits.OK
        else:
            would = _recover(ending, limit, accept, leave_visible, dry_run=True)
            if dry_run or would.state == State.CLOSED:
                return tell_recovery(shell, would)
            question = f"Job {job_id} is {would.state}; {would.did}. Go on?"
        shell.confirm(question, yes=yes)
        ending.take()
        return tell_recovery(shell, _recover(ending, limit, accept, leave_visible, dry_run=False))


def _recover(
    ending: Ending,
    dead_after: float,
    accept: tuple[str, ...],
    leave_visible: bool,
    *,
    dry_run: bool,
) -> Recovery:
    return recover_job(
        ending.runtime, ending.dest, ending.calls.job_id,
        dead_after=dead_after, accept=accept, leave_visible=leave_visible, dry_run=dry_run,
    )  # fmt: skip

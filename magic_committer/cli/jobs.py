"""``job list|show|commit|abort|recover``: the jobs under a destination, and how they end.

What ends a job is a plan of `magic_committer.maintenance.ending`: here it is printed, asked about,
and run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from magic_committer.cli import exits
from magic_committer.cli.app import group, options
from magic_committer.cli.output import Column
from magic_committer.cli.shell import Reach, Shell, command, recursive
from magic_committer.cli.values import PLACE, age_option, dry_run
from magic_committer.errors import JobNotFound, JobReport
from magic_committer.errors.messages import age_words, bytes_words, duration
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance import reports
from magic_committer.maintenance.ending import Ending
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.reports import ActionPlan, GivenUp, Recovery
from magic_committer.protocol.record import State
from magic_committer.runtime.components import Progress

job = group("job", "job list s3://bucket --recursive", "job show s3://bucket/table nightly")

FIELDS = tuple(name for name in reports.FoundJob.__dataclass_fields__ if name[0] != "_")
COLUMNS = (
    Column("kind"),
    Column("state"),
    Column("age", words=age_words, right=True),
    Column("files", right=True),
    Column("bytes", words=bytes_words, right=True),
    Column("would", "recovery", reason=True),
    Column("query"),
    Column("batch", right=True),
    Column("id", "job"),
)
NOT_SHOWN = ("filenames", "report", "statistics")
COUNTED = ("visible", "age", "aborted", "deleted")
"""Fields whose 0 is shown, too: nothing but None means there that it is not known."""
DEEP_COLUMNS = (*COLUMNS, Column("dest", "destination"))
_path = click.argument("path", type=PLACE)
_job = click.argument("job_id", metavar="JOB")
_accept = click.option(
    "--accept", multiple=True, metavar="KEY",
    help="What is at this key is right, though its upload is gone. May be given again.",
)  # fmt: skip


_ends = options(
    _path,
    _job,
    click.option(
        "--adopt", is_flag=True,
        help="Of a Hadoop job: your word that its JVM is dead. It gets a record, and is ours.",
    ),
    age_option(
        "--dead-after", None,
        "How long nothing of the job must have changed:"
        f" {duration(reports.DEAD_AFTER_SECONDS)} for `recover` of a running job;"
        f" {duration(reports.LEFTOVER_AFTER_SECONDS)} for --adopt and --force."
        " 0 is your word that its driver is dead.",
    ),
    dry_run,
)  # fmt: skip
"""The options of every command that ends a job."""


@command(job, "list", "All jobs under a path.", "s3://bucket/table", "s3://bucket --recursive")
@click.argument("paths", type=PLACE, nargs=-1, required=True, metavar="PATH…")
@recursive
def list_jobs(shell: Shell, paths: tuple[Destination, ...], deep: bool) -> int:
    """List the jobs that have a directory under PATH (s3://… or file:///…): ours and Hadoop's.

    Those of directories below PATH are listed with --recursive only.
    """
    reach = Reach(shell, many=len(paths) > 1, deep=deep)
    counts: Counter[str] = Counter()

    def found() -> Iterator[Mapping[str, Any]]:
        for path in dict.fromkeys(paths):
            before = counts.total()
            with reach.trying(path.url):
                dests, left = reach.destinations(path)
                for line in left:
                    reach.failed(path.url, exits.BAD_STATE, line)
                for number, dest in enumerate(dests, 1):
                    with reach.trying(dest.url):
                        runtime = shell.runtime(dest.bucket)
                        for one in inspect_all(runtime, dest, reports.DEAD_AFTER_SECONDS):
                            counts[one.kind] += 1
                            yield one.to_dict()
                    shell.progress(Progress("look at", number, len(dests), "destinations"))
                if counts.total() == before:
                    reach.found_nothing(path)

    def closing() -> str:
        if counts:
            return ""
        if reach.code != exits.OK:
            return "No jobs in what could be looked at"
        where = " or ".join(path.url for path in paths)
        return f"No jobs under {where} or below" if deep else f"No jobs directly under {where}"

    shell.output.rows(
        "job", COLUMNS if len(paths) == 1 and not deep else DEEP_COLUMNS, found(),
        fields=FIELDS, closing=closing,
        summary=lambda: {
            "jobs": counts.total(), "by_kind": dict(counts),
            "recursive": deep, "not_looked_at": reach.not_looked_at,
        },
    )  # fmt: skip
    reach.tell()
    return reach.code


@command(job, "show", "One job in full.", "s3://bucket/table nightly")
@_path
@_job
def show(shell: Shell, path: Destination, job_id: str) -> None:
    """Show a job: its state, what is pending, and what a recovery would do.

    Its open files are those of `uploads list PATH --job JOB`.
    """
    try:
        found = Ending(shell.runtime(path.bucket), path, job_id).look()
    except JobNotFound:
        reach = Reach(shell, many=False)
        reach.found_nothing(path)
        reach.tell()
        raise
    shell.output.document("job", found.to_dict(), shown(found.to_dict()))


@command(
    job,
    "commit",
    "Make its files visible.",
    "s3://bucket/table nightly --dry-run",
    "s3://bucket/table job_20261125 --adopt --expect 12",
)
@click.option("--expect", type=click.IntRange(min=0), metavar="N", help="How many tasks it has.")
@_accept
@_ends
def commit(shell: Shell, expect: int | None, accept: tuple[str, ...], **job: Any) -> int:
    """Make a job's files visible: what its tasks left on the store, or what was decided before.

    A running job is committed only where its record says that its driver may go by a listing, or
    where it was adopted. Everything is checked first: what is wrong is said, and nothing decided.
    """
    return _run(shell, lambda ending: ending.commit(expect, accept), **job)


@command(
    job,
    "abort",
    "Undo it.",
    "s3://bucket/table nightly --dry-run",
    "s3://bucket/table nightly --revert",
)
@click.option("--revert", is_flag=True, help="Also if it is committing: delete what is visible.")
@click.option(
    "--force", is_flag=True,
    help="The last way out: what cannot be undone is named, and left as it is.",
)  # fmt: skip
@_ends
def abort(shell: Shell, revert: bool, force: bool, **job: Any) -> int:
    """Make sure that nothing of a job is visible, now or later, however young it is.

    With --revert, an object that a committing job has written over does not come back.

    With --force a job ends whatever its record says, also if that cannot be read: it is undone as
    far as that goes, and the rest is named and left: nobody can finish or undo it any more. Of a
    Hadoop job, the files that its JVM made visible stay, and the rest is aborted.
    """
    if force:
        return _run(shell, Ending.abort_or_give_up, **job)
    return _run(shell, lambda ending: ending.abort(revert), **job)


@command(
    job,
    "recover",
    "Finish it as it was decided.",
    "s3://bucket/table nightly",
    "s3://bucket/table nightly --dead-after 0",
)
@_accept
@_ends
def recover(shell: Shell, accept: tuple[str, ...], **job: Any) -> int:
    """Finish a job whose driver is dead: complete it if it was decided, abort it otherwise.

    A Hadoop job that is adopted was not decided, so it is aborted, unless files of it are visible
    already; `job commit --adopt` commits it. One that _SUCCESS names is swept.
    """
    return _run(shell, lambda ending: ending.recover(accept), **job)


def _run(
    shell: Shell,
    verb: Callable[[Ending], ActionPlan[Any]],
    path: Destination,
    job_id: str,
    adopt: bool,
    dead_after: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Print a plan, or ask about it, run it, and print what became of the job."""
    plan = verb(Ending(shell.runtime(path.bucket), path, job_id, adopt, dead_after))
    (row,) = plan.rows
    if dry_run:
        shell.output.document("job.dry_run", row, shown(row))
        return exits.OK
    question = f"{plan.warning} {plan.question}".strip() if plan.question else ""
    if question and not yes:
        shell.confirm(question)
    elif question and ("visible" in row or (plan.warning and row["state"] == State.COMMITTING)):
        shell.note(f"magic-committer: {question}")  # for a log: something is lost
    done = plan.run()
    kinds = {JobReport: "job.report", Recovery: "job.recovery", GivenUp: "job.given_up"}
    shell.output.document(kinds[type(done)], done.to_dict(), shown(done.to_dict()))
    return code_of(done)


def code_of(done: JobReport | Recovery | GivenUp | None) -> int:
    """Whether something of the job is left: its uploads, or its record."""
    left: Any = ()
    if isinstance(done, Recovery):
        done = done.report
    if isinstance(done, GivenUp):
        left = done.left_open or done.unread
    elif done is not None:
        left = done.left_open or done.state not in (State.ABSENT, State.CLOSED)
    return exits.BAD_STATE if left else exits.OK


def shown(told: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown to people of a job or a report: what holds something. A report that is part of
    another is shown with it."""
    told = {**(told.get("report") or {}), **told}
    if told.get("outcome") == "" and told["state"] == State.ABSENT:
        told["outcome"] = "not known"
    if told.get("state") == State.COMMITTING:
        told["outcome"] = ""  # its files are not all visible
    kept = {name: held for name, held in told.items() if name not in NOT_SHOWN}
    return {n: held for n, held in kept.items() if held or (n in COUNTED and held is not None)}

"""``cleanup``: take away what dead jobs left, unattended, from cron, for years.

It asks no question: its limits are safe, and what may be alive is left. A destination that fails
does not stop the next. Two runs at once do no harm: each decision is a swap of a job's record.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, note, root
from magic_committer.cli.output import Column
from magic_committer.cli.shell import Reach, Shell, command, in_backticks, recursive, told
from magic_committer.cli.values import PLACE, age_option
from magic_committer.commit.register import FORGET_AFTER_SECONDS, FORGET_GIVEN_AFTER_SECONDS
from magic_committer.errors import MagicError
from magic_committer.errors.messages import counted, duration
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, LEFTOVER_AFTER_SECONDS
from magic_committer.maintenance.uploads import OLD_SECONDS
from magic_committer.options import Options
from magic_committer.protocol.plan import KeySet
from magic_committer.runtime.components import SystemClock
from magic_committer.stores.urls import is_tree

CLOCK = SystemClock()

COUNTS = {
    "jobs_recovered": "jobs recovered",
    "jobs_left": "jobs not touched",
    "uploads_aborted": "orphans aborted",
    "uploads_left": "orphans not touched",
    "objects_deleted": "objects deleted",
    "records_deleted": "records deleted",
    "errors_count": "errors",
}
"""What is counted for each destination: the field, and how it reads. An orphan is an upload whose
job is over; those of a job that is recovered go with it and are not counted."""
WOULD = {"recovered": "to recover", "aborted": "to abort", "deleted": "to delete"}
"""The same words of a dry run."""
FIELDS = ("dest", "code", "seconds", "dry_run", *COUNTS, "recovered", "did", "errors", "advice")
COLUMNS = (Column("dest", "destination"), Column("told", "found and done", prose=True))


@command(
    root,
    "cleanup",
    WORDS["cleanup"],
    "s3://bucket/table",
    "s3://bucket/table file:///data/t --dry-run",
    "s3://bucket --recursive --format jsonl",
)
@click.argument("paths", type=PLACE, nargs=-1, required=True, metavar="PATH…")
@age_option(
    "--dead-after", DEAD_AFTER_SECONDS,
    "Abort running jobs of which nothing has changed for so long.",
)  # fmt: skip
@age_option(
    "--leftover-after", LEFTOVER_AFTER_SECONDS,
    "Finish decided jobs, and take uploads and control objects of jobs that are over, when they are"
    " so old.",
)  # fmt: skip
@age_option(
    "--forget-after", FORGET_AFTER_SECONDS,
    "Delete closed records when they are so old; those of jobs whose id was given after 30 days.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@recursive
def cleanup(
    shell: Shell, paths: tuple[Destination, ...], dry_run: bool, deep: bool, **ages: Any
) -> int:
    """Take away what dead jobs left under each PATH. For cron: it asks nothing.

    PATH is s3://bucket/table or file:///data/table. Running jobs that are dead are aborted, decided
    ones finished, uploads and control objects of jobs that are over taken away. What may be alive,
    and what is not of this library, stays; old uploads of other programs are named. Jobs of
    directories below PATH are looked at with --recursive only. Exit code 46: something could not be
    cleaned, or the store does not show all open uploads.

    --format prometheus prints metrics, for the textfile collector of Prometheus's node exporter.
    """
    limits = Limits(**ages, forget_given_after=FORGET_GIVEN_AFTER_SECONDS)
    started, began = CLOCK.now(), CLOCK.monotonic()
    done: list[dict[str, Any]] = []
    reach = Reach(shell, many=True, deep=deep)

    def found() -> Iterator[dict[str, Any]]:
        counted_uploads = defaultdict[str, KeySet](KeySet)
        for dest, problems in _destinations(reach, paths):
            row = _clean(shell, dest, problems, limits, dry_run, counted_uploads[dest.bucket])
            done.append(row)
            _tell(shell, row)
            if not any(row[name] for name in COUNTS):
                reach.found_nothing(dest)
            yield row

    def summary() -> dict[str, Any]:
        return {
            "started": started, "seconds": round(CLOCK.monotonic() - began, 3), "dry_run": dry_run,
            "code": exits.together(row["code"] for row in done), "destinations": len(done),
            "not_looked_at": reach.not_looked_at,
            **{name: sum(row[name] for row in done) for name in COUNTS},
        }  # fmt: skip

    def closing() -> str:
        all_of = summary()
        dry = "Dry run, nothing was changed. " if dry_run else ""
        where = f"{counted(len(done), 'destination')} in {all_of['seconds']:.1f} s"
        return f"{dry}{where}: {_words(all_of, dry_run)}" if len(done) > 1 else f"{dry}{where}"

    if shell.output.format == "prometheus":
        for _ in found():
            continue
        shell.output.write(metrics(started, done))
    else:
        shell.output.rows(
            "cleanup", COLUMNS, found(), fields=FIELDS, summary=summary, closing=closing
        )
    for words, line in (row["old"] for row in done if row["old"]):
        shell.output.text(words)
        shell.output.text(line, indent="  ", prose=False)
    # A partitioned table always has directories below, and cron would send a mail each night; but
    # who cleans a whole bucket means its tables.
    if sys.stderr.isatty() or any(not path.prefix and not is_tree(path.bucket) for path in paths):
        reach.tell()
    return exits.together(row["code"] for row in done)


def _tell(shell: Shell, row: Mapping[str, Any]) -> None:
    if row.get("did"):
        shell.output.text(f"{row['dest']}:")
        for line in row["did"]:
            shell.output.text(line, indent="  ")
    for error in row["errors"]:
        note(f"{row['dest']}: {error}")


def _destinations(
    reach: Reach, paths: Sequence[Destination]
) -> Iterator[tuple[Destination, tuple[str, ...]]]:
    """Each destination once: a path, with why not all below it are known; and what is below it."""
    given = dict.fromkeys(paths)
    for path in tuple(given):
        dests: tuple[Destination, ...] = ()
        try:
            dests, problems = reach.destinations(path)
        except MagicError as error:
            problems = (str(error),)
        yield path, problems
        for dest in dests:
            if dest not in given:
                given[dest] = None
                yield dest, ()


def _clean(
    shell: Shell, dest: Destination, problems: tuple[str, ...], limits: Limits, dry_run: bool,
    counted_uploads: KeySet,
) -> dict[str, Any]:  # fmt: skip
    """Clean a destination and give its row. It has, in ``old``, how many old uploads tell no job by
    their names, and the command that shows whose they are; each upload counts in one row only."""
    began, errors = CLOCK.monotonic(), list(problems)
    old: tuple[str, ...] = ()
    row: dict[str, Any] = {"dest": dest.url, "code": exits.OK, "dry_run": dry_run}
    row |= dict.fromkeys(COUNTS, 0)
    try:
        runtime = shell.runtime(dest.bucket)
        report = Cleaning(
            runtime, dest, limits, dry_run=dry_run, options=Options(),
            worded=in_backticks(shell.s3), counted=counted_uploads,
        ).run()  # fmt: skip
        errors += report.errors
        row |= {**report.to_dict(), "jobs_recovered": len(report.recovered)}
        row["code"] = exits.BAD_STATE if errors else exits.OK
        if report.uploads_nameless:
            age = duration(OLD_SECONDS)
            old = (
                f"{counted(report.uploads_nameless, 'upload')} of other programs may leak: older"
                f" than {age}, and without a job's name. See whose they are, and what removes"
                " them:",
                shell.line("uploads", "list", dest.url, "--older-than", age),
            )
    except MagicError as failure:
        row["code"] = exits.code_of(failure)
        errors.append(told(failure, shell.s3))
    except Exception as failure:  # of no kind that is known: the next destination is not to blame
        if shell.debug:
            raise
        row["code"] = exits.FAILED
        errors.append(f"{type(failure).__name__}: {failure}")
    row |= {"errors": errors, "errors_count": len(errors), "old": old, "advice": " ".join(old)}
    seconds = round(CLOCK.monotonic() - began, 3)
    return {**row, "seconds": seconds, "told": _words(row, dry_run)}


def _words(counts: Mapping[str, Any], dry_run: bool) -> str:
    """``"1 job recovered, 2 orphans aborted"``; of a dry run ``"1 job to recover, …"``."""
    words = []
    for name, plural in COUNTS.items():
        things, _, what = plural.partition(" ")
        what = WOULD.get(what, what) if dry_run else what
        if counts[name]:
            words.append(f"{counted(counts[name], things.removesuffix('s'))} {what}".rstrip())
    return ", ".join(words) or "nothing to do"


METRICS = {
    "last_run_timestamp_seconds": "When the last run began.",
    "success": "Whether the last run could do all that was to do.",
    "duration_seconds": "How long the last run took.",
    **{name.removesuffix("_count"): f"In the last run: {words}." for name, words in COUNTS.items()},
}
"""Gauges of a run, a value for each destination."""


def metrics(started: float, done: Sequence[Mapping[str, Any]]) -> str:
    """The metrics of a run in Prometheus's text format, version 0.0.4. Pure."""
    lines: list[str] = []
    for name, words in METRICS.items():
        full = f"magic_committer_cleanup_{name}"
        lines += [f"# HELP {full} {words}", f"# TYPE {full} gauge"]
        for row in done:
            dest = row["dest"].replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
            values = {
                "last_run_timestamp_seconds": started,
                "success": int(row["code"] == exits.OK),
                "duration_seconds": row["seconds"],
                **{count.removesuffix("_count"): row[count] for count in COUNTS},
            }
            lines.append(f'{full}{{destination="{dest}"}} {values[name]!r}')
    return "".join(f"{line}\n" for line in lines)

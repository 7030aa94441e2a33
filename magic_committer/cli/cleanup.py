"""``cleanup``: take away what dead jobs left, unattended, from cron, for years.

No question is asked: its limits are safe, and what may be alive is left. A destination that fails
does not stop the next. Two runs at once do no harm: each decision is a swap of a job's record.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from magic_committer._quantities import counted, duration
from magic_committer._runtime import SystemClock
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import Column
from magic_committer.cli.plain import note
from magic_committer.cli.shell import Reach, Shell, command, recursive, told, way_of
from magic_committer.cli.values import PLACE, age_option
from magic_committer.commit.closed import FORGET_AFTER_SECONDS, FORGET_GIVEN_AFTER_SECONDS
from magic_committer.errors import MagicError
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    CleanupReport,
)
from magic_committer.maintenance.uploads import OLD_SECONDS
from magic_committer.options import Options
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


@dataclass(slots=True)
class Cleaned:
    """How the cleanup of one destination ended.

    Attributes:
        code: an exit code. seconds: how long it took.
        report: what was done; None if it failed as a whole. errors: all that failed.
        advice: what is old and of other programs, and the command that removes it.
    """

    dest: str
    dry_run: bool
    code: int = exits.OK
    seconds: float = 0.0
    report: CleanupReport | None = None
    errors: tuple[str, ...] = ()
    advice: tuple[str, str] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """By the names of `COUNTS`; zeros, but for the errors, where all failed."""
        report = self.report
        counts = {name: getattr(report, name, 0) for name in COUNTS}
        counts["jobs_recovered"] = len(report.recovered) if report is not None else 0
        return {**counts, "errors_count": len(self.errors)}

    def row(self) -> dict[str, Any]:
        """For `Output.rows`."""
        return {
            **(self.report.to_dict() if self.report is not None else {}),
            "dest": self.dest,
            "code": self.code,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
            **self.counts,
            "errors": list(self.errors),
            "advice": " ".join(self.advice or ()),
            "told": _words(self.counts, self.dry_run),
        }


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
    "--dead-after",
    DEAD_AFTER_SECONDS,
    "Abort running jobs of which nothing has changed for so long.",
)
@age_option(
    "--leftover-after",
    LEFTOVER_AFTER_SECONDS,
    "Finish decided jobs, and take uploads and control objects of jobs that are over, when they are"
    " so old.",
)
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
    done: list[Cleaned] = []
    reach = Reach(shell, many=True, deep=deep)

    def found() -> Iterator[dict[str, Any]]:
        for cleaned in _each(shell, reach, paths, limits, dry_run):
            done.append(cleaned)
            _tell(shell, cleaned)
            if not any(cleaned.counts.values()):
                reach.found_nothing(Destination.parse(cleaned.dest))
            yield cleaned.row()

    def summary() -> dict[str, Any]:
        return {
            "started": started,
            "seconds": round(CLOCK.monotonic() - began, 3),
            "dry_run": dry_run,
            "code": exits.together(one.code for one in done),
            "destinations": len(done),
            "not_looked_at": reach.not_looked_at,
            **{name: sum(one.counts[name] for one in done) for name in COUNTS},
        }

    def closing() -> str:
        all_of = summary()
        dry = "Dry run, nothing was changed. " if dry_run else ""
        where = f"{counted(len(done), 'destination')} in {all_of['seconds']:.1f} s"
        return f"{dry}{where}: {_words(all_of, dry_run)}" if len(done) > 1 else f"{dry}{where}"

    if shell.output.format == "prometheus":
        for _ in found():
            continue
        shell.output.stream.write(metrics(started, done))
    else:
        shell.output.rows(
            "cleanup", COLUMNS, found(), fields=FIELDS, summary=summary, closing=closing
        )
    for words, line in filter(None, (one.advice for one in done)):
        shell.output.text(words)
        shell.output.text(line, indent="  ", prose=False)
    # A partitioned table always has directories below, and cron would send a mail each night; but
    # who cleans a whole bucket means its tables.
    if sys.stderr.isatty() or any(not path.prefix and not is_tree(path.bucket) for path in paths):
        reach.tell()
    return exits.together(one.code for one in done)


def _each(
    shell: Shell, reach: Reach, paths: Sequence[Destination], limits: Limits, dry_run: bool
) -> Iterator[Cleaned]:
    """Clean each destination once, as it is found."""
    named = dict.fromkeys(paths)
    for path in tuple(named):
        dests: tuple[Destination, ...] = ()
        try:
            dests, problems = reach.destinations(path)
        except MagicError as error:
            problems = (str(error),)
        yield _clean(shell, path, limits, dry_run, problems, named=True)
        for dest in dests:
            if dest not in named:
                named[dest] = None
                yield _clean(shell, dest, limits, dry_run, (), named=False)


def _clean(
    shell: Shell,
    dest: Destination,
    limits: Limits,
    dry_run: bool,
    problems: tuple[str, ...],
    *,
    named: bool,
) -> Cleaned:
    """Clean a destination; of one that was named also look at what is of other programs."""
    began = CLOCK.monotonic()
    cleaned = Cleaned(dest.url, dry_run, errors=problems)
    try:
        runtime = shell.runtime(dest.bucket)
        report = Cleaning(runtime, dest, limits, dry_run=dry_run, options=Options()).run()
        cleaned.report, cleaned.errors = report, (*problems, *report.errors)
        if cleaned.errors:
            cleaned.code = exits.BAD_STATE
        if named and report.uploads_nameless:
            cleaned.advice = _advice(shell, dest, report.uploads_nameless)
    except MagicError as failure:
        cleaned.code = exits.code_of(failure)
        cleaned.errors += (told(failure, shell.s3),)
    except Exception as failure:  # of no kind that is known: the next destination is not to blame
        if shell.debug:
            raise
        cleaned.code = exits.FAILED
        cleaned.errors += (f"{type(failure).__name__}: {failure}",)
    cleaned.seconds = CLOCK.monotonic() - began
    return cleaned


def _advice(shell: Shell, dest: Destination, nameless: int) -> tuple[str, str]:
    """How many uploads are old and tell no job by their names, and what tells of them."""
    age = duration(OLD_SECONDS)
    line = ["magic-committer", *way_of(shell.s3), "uploads", "list", dest.url, "--older-than", age]
    return (
        f"{counted(nameless, 'upload')} of other programs may leak: older than {age}, and without a"
        " job's name. See whose they are, and what removes them:",
        shlex.join(line),
    )


def _tell(shell: Shell, cleaned: Cleaned) -> None:
    if cleaned.report is not None and cleaned.report.did:
        shell.output.text(f"{cleaned.dest}:")
        for line in cleaned.report.did:
            shell.output.text(line, indent="  ")
    for error in cleaned.errors:
        note(f"{cleaned.dest}: {error}")


def _words(counts: Mapping[str, int], dry_run: bool) -> str:
    """``"1 job recovered, 2 orphans aborted"``; of a dry run ``"1 job to recover, …"``."""
    words = []
    for name, plural in COUNTS.items():
        things, _, what = plural.partition(" ")
        what = WOULD.get(what, what) if dry_run else what
        if counts[name]:
            words.append(f"{counted(counts[name], things.removesuffix('s'))} {what}".rstrip())
    return ", ".join(words) or "nothing to do"


# Metrics ------------------------------------------------------------------------------------------

METRICS = {
    "last_run_timestamp_seconds": "When the last run began.",
    "success": "Whether the last run could do all that was to do.",
    "duration_seconds": "How long the last run took.",
    **{name.removesuffix("_count"): f"In the last run: {words}." for name, words in COUNTS.items()},
}
"""Gauges of a run, a value for each destination."""


def metrics(started: float, done: Sequence[Cleaned]) -> str:
    """The metrics of a run in Prometheus's text format, version 0.0.4. Pure."""
    lines: list[str] = []
    for name, words in METRICS.items():
        full = f"magic_committer_cleanup_{name}"
        lines += [f"# HELP {full} {words}", f"# TYPE {full} gauge"]
        for one in done:
            dest = one.dest.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
            values = {
                "last_run_timestamp_seconds": started,
                "success": int(one.code == exits.OK),
                "duration_seconds": one.seconds,
                **{count.removesuffix("_count"): n for count, n in one.counts.items()},
            }
            lines.append(f'{full}{{destination="{dest}"}} {values[name]!r}')
    return "".join(f"{line}\n" for line in lines)

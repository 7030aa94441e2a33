"""``cleanup``: take away what dead jobs left, unattended, from cron, for years.

No question is asked: its limits are safe, and what may be alive is left. A destination that fails
does not stop the next. Two runs at once do no harm: each decision is a swap of a job's record.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from magic_committer._quantities import counted, duration
from magic_committer._runtime import ProgressFunction, SystemClock
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.files import replace_file
from magic_committer.cli.places import Place, is_bucket
from magic_committer.cli.plain import note
from magic_committer.cli.prometheus import Metric, exposition
from magic_committer.cli.reach import Reach, below, recursive
from magic_committer.cli.shell import PLACE, Shell, age_option, command
from magic_committer.cli.sums import Advice, Sums
from magic_committer.cli.table import Column
from magic_committer.cli.wording import way_of
from magic_committer.errors import MagicError
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    FORGET_AFTER_SECONDS,
    FORGET_GIVEN_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    CleanupReport,
)
from magic_committer.maintenance.uploads import OLD_SECONDS, Scope, Survey, sized
from magic_committer.options import Options

CLOCK = SystemClock()
LOOKED_AT_MAX = 1000
"""Old uploads without a job in their names that a cleanup looks at; of more it tells the number."""

COUNTS = {
    "jobs_recovered": "jobs recovered",
    "jobs_unfinished": "jobs unfinished",
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

FIELDS = (
    "dest", "code", "seconds", "dry_run", *COUNTS,
    "recovered", "unfinished", "did", "errors", "advice",
)  # fmt: skip
COLUMNS = (Column("told", "found and done"), Column("dest", "destination"))


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How the cleanup of one destination ended.

    Attributes:
        code: an exit code. seconds: how long it took.
        report: what was done; None if it failed as a whole, by ``error``.
        advice: what is old and of other programs, and the command that removes it.
        error: with a report: why the destinations below it are not all known.
    """

    dest: str
    code: int
    seconds: float
    dry_run: bool
    report: CleanupReport | None
    error: str = ""
    advice: Advice | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """All that failed."""
        first = (self.error,) if self.error else ()
        return first if self.report is None else (*first, *self.report.errors)

    @property
    def counts(self) -> dict[str, int]:
        """By the names of `COUNTS`; zeros, but for the error, where all failed."""
        report = self.report
        if report is None:
            return {**dict.fromkeys(COUNTS, 0), "errors_count": 1}
        return {
            "jobs_recovered": len(report.recovered),
            "jobs_unfinished": len(report.unfinished),
            "jobs_left": report.jobs_left,
            "uploads_aborted": report.uploads_aborted,
            "uploads_left": report.uploads_left,
            "objects_deleted": report.objects_deleted,
            "records_deleted": report.records_deleted,
            "errors_count": len(self.errors),
        }

    def row(self) -> dict[str, Any]:
        """For `Output.rows`."""
        told = self.report.to_dict() if self.report is not None else {}
        return {
            **told,
            "dest": self.dest,
            "code": self.code,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
            **self.counts,
            "errors": list(self.errors),
            "advice": str(self.advice) if self.advice else "",
            "told": _words(self.counts, self.dry_run),
        }


# The command --------------------------------------------------------------------------------------


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
@age_option("--forget-after", FORGET_AFTER_SECONDS, "Delete closed records when they are so old.")
@age_option(
    "--forget-given-after", FORGET_GIVEN_AFTER_SECONDS,
    "The same for jobs whose id was given. Then the id starts a new job.",
)  # fmt: skip
@click.option("--no-finish", is_flag=True, help="Only report decided jobs that nobody finishes.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("--prometheus", metavar="FILE", help="Write metrics of this run there.")
@recursive
def cleanup(
    shell: Shell,
    paths: tuple[Place, ...],
    no_finish: bool,
    dry_run: bool,
    prometheus: str | None,
    deep: bool,
    objects_max: int,
    **ages: float,
) -> int:
    """Take away what dead jobs left under each PATH. For cron: it asks nothing.

    PATH is s3://bucket/table or file:///data/table. Running jobs that are dead are aborted, decided
    ones finished, uploads and control objects of jobs that are over taken away. What may be alive,
    and what is not of this library, stays; old uploads of other programs are named. Jobs of
    directories below PATH are looked at with --recursive only. Exit code 46: something could not be
    cleaned, or the store does not show all open uploads.
    """
    limits = Limits(**ages, finish=not no_finish)
    started, began = CLOCK.now(), CLOCK.monotonic()
    done: list[Cleaned] = []
    reach = Reach(shell, many=False)

    def rows() -> Iterator[dict[str, Any]]:
        with shell.progress() as progress:
            for dest, problem in _expanded(shell, paths, objects_max if deep else 0, progress):
                cleaned = _clean(shell, dest, limits, dry_run, progress, named=dest in paths)
                if problem:
                    error = "; ".join(filter(None, (cleaned.error, problem)))
                    cleaned = replace(cleaned, code=exits.BAD_STATE, error=error)
                done.append(cleaned)
                _tell(shell, cleaned)
                if not (deep or any(cleaned.counts.values())):
                    reach.found_nothing(dest)
                yield cleaned.row()

    def summary() -> dict[str, Any]:
        return {
            "started": started,
            "seconds": round(CLOCK.monotonic() - began, 3),
            "dry_run": dry_run,
            "code": _code(done),
            "destinations": len(done),
            "not_looked_at": reach.not_looked_at,
            **{name: sum(one.counts[name] for one in done) for name in COUNTS},
        }

    def closing() -> str:
        told = summary()
        dry = "Dry run, nothing was changed. " if dry_run else ""
        where = f"{counted(len(done), 'destination')} in {told['seconds']:.1f} s"
        return f"{dry}{where}: {_words(told, dry_run)}" if len(done) > 1 else f"{dry}{where}"

    shell.output.rows("cleanup", COLUMNS, rows(), fields=FIELDS, summary=summary, closing=closing)
    _print_advice(shell, done)
    # A partitioned table always has directories below, and cron would send a mail each night; but
    # who cleans a whole bucket means its tables.
    if sys.stderr.isatty() or any(map(is_bucket, paths)):
        reach.tell()
    code = _code(done)
    if prometheus is None:
        return code
    if dry_run:
        shell.note("a dry run writes no metrics")
        return code
    try:
        replace_file(Path(prometheus), exposition(metrics(started, done)))
    except OSError as error:
        note(f"magic-committer: no metrics: {prometheus}: {error.strerror}")
        return code or exits.FAILED
    return code


def _expanded(
    shell: Shell, paths: tuple[Place, ...], objects_max: int, progress: ProgressFunction
) -> Iterator[tuple[Place, str]]:
    """Yield each destination that is cleaned, once, and why not all below it are known.

    Args:
        objects_max: of ``--max-objects``; 0: nothing below the paths is cleaned.
    """
    named = dict.fromkeys(paths)
    for path in tuple(named):
        dests: list[Place] = []
        problem = ""
        try:
            if objects_max:
                jobs, left = below(shell, path, objects_max, progress)
                problem = "; ".join(left)
                dests = [dest for dest in jobs if dest not in named]
        except MagicError as error:
            problem = str(error)
        yield path, problem
        for dest in dests:
            named[dest] = None
            yield dest, ""


def _cleaning(
    shell: Shell, dest: Place, limits: Limits, dry_run: bool, progress: ProgressFunction
) -> Cleaning:
    runtime = shell.runtime(dest.bucket, progress)
    return Cleaning(runtime, dest, limits, dry_run=dry_run, options=Options())


def _clean(
    shell: Shell,
    dest: Place,
    limits: Limits,
    dry_run: bool,
    progress: ProgressFunction,
    *,
    named: bool,
) -> Cleaned:
    """Clean a destination; of one that was named also look at what is of other programs."""
    began = CLOCK.monotonic()
    report, error, code, advice = None, "", exits.OK, None
    try:
        report = _cleaning(shell, dest, limits, dry_run, progress).run()
        if report.errors or report.unfinished:
            code = exits.BAD_STATE
        if named and report.uploads_nameless:
            advice = _advice(shell, dest, report.uploads_nameless, progress)
    except MagicError as failure:
        error, code = str(failure), exits.code_of(failure)
    except Exception as failure:  # of no kind that is known: the next destination is not to blame
        if shell.debug:
            raise
        error, code = f"{type(failure).__name__}: {failure}", exits.FAILED
    seconds = CLOCK.monotonic() - began
    return Cleaned(dest.url, code, seconds, dry_run, report, error, advice)


def _advice(shell: Shell, dest: Place, nameless: int, progress: ProgressFunction) -> Advice | None:
    """What is old and of other programs, and what removes it.

    Args:
        nameless: how many uploads are old and tell no job by their names.

    Raises:
        StoreError: it is not known.
    """
    way = way_of(shell.s3)
    if nameless > LOOKED_AT_MAX:
        line = [*way, "uploads", "list", dest.url, "--older-than", duration(OLD_SECONDS)]
        return Advice(
            f"{nameless:,} uploads are older than {line[-1]}, and no name of a job is in theirs."
            " See whose they are, and what removes them:",
            f"magic-committer {shlex.join(line)}",
        )
    sums = Sums()
    runtime, threads = shell.runtime(dest.bucket, progress), Options().commit_threads
    for page in Survey(runtime, Scope(dest.bucket, dest.prefix), in_flight=threads).pages():
        for found in sized(runtime, [one for one in page if sums.is_old(one)], threads):
            sums.add(found)
    return sums.advice(dest.url, way)


def _tell(shell: Shell, cleaned: Cleaned) -> None:
    report = cleaned.report
    did = report.did if report is not None else ()
    if did:
        shell.output.text(f"{cleaned.dest}:")
    for line in did:
        shell.output.text(line, indent="  ")
    if report is not None:
        for job in report.unfinished:
            note(f"{cleaned.dest}: job {job.job_id} ({job.found}) is not finished: {job.did}")
    for error in cleaned.errors:
        note(f"{cleaned.dest}: {error}")


def _print_advice(shell: Shell, done: list[Cleaned]) -> None:
    for words, line in filter(None, (one.advice for one in done)):
        shell.output.text(words)
        shell.output.text(line, indent="  ", prose=False)


def _words(counts: Mapping[str, int], dry_run: bool) -> str:
    """``"1 job recovered, 2 orphans aborted"``; of a dry run ``"1 job to recover, …"``."""
    told = []
    for name, words in COUNTS.items():
        things, _, what = words.partition(" ")
        what = WOULD.get(what, what) if dry_run else what
        if counts[name]:
            told.append(f"{counted(counts[name], things.removesuffix('s'))} {what}".rstrip())
    return ", ".join(told) or "nothing to do"


def _code(done: list[Cleaned]) -> int:
    """All the same: that; else the one for "something is not as it should be"."""
    return exits.together(one.code for one in done)


# Metrics ------------------------------------------------------------------------------------------

OUTCOMES = ("committed", "aborted", "reverted", "unknown")
PREFIX = "magic_committer_cleanup_"


def metrics(started: float, done: list[Cleaned]) -> list[Metric]:
    """What a run did, for each destination. Pure."""

    def gauge(name: str, help: str, value: Any) -> Metric:
        samples = tuple(({"destination": one.dest}, value(one)) for one in done)
        return Metric(PREFIX + name, help, samples)

    def values(field: str) -> Any:
        return lambda one: one.counts[field]

    return [
        gauge("last_run_timestamp_seconds", "When the last run began.", lambda one: started),
        gauge(
            "success",
            "Whether the last run could do all that was to do.",
            lambda one: int(one.code == exits.OK),
        ),
        gauge("duration_seconds", "How long the last run took.", lambda one: one.seconds),
        Metric(
            f"{PREFIX}jobs_recovered",
            "Jobs that the last run finished or aborted, by how they ended.",
            tuple(
                ({"destination": one.dest, "outcome": outcome}, _ended(one, outcome))
                for one in done
                for outcome in OUTCOMES
            ),
        ),
        gauge("jobs_unfinished", "Decided jobs that nobody finishes.", values("jobs_unfinished")),
        gauge("jobs_left", "Jobs that may be alive, or are not ours.", values("jobs_left")),
        gauge(
            "uploads_aborted",
            "Uploads of jobs that are over, aborted by the last run.",
            values("uploads_aborted"),
        ),
        gauge(
            "uploads_left",
            "Uploads of jobs that are over, too young or without an age.",
            values("uploads_left"),
        ),
        gauge("objects_deleted", "Control objects that were deleted.", values("objects_deleted")),
        gauge("records_deleted", "Closed records that were deleted.", values("records_deleted")),
        gauge("errors", "What could not be done.", values("errors_count")),
    ]


def _ended(cleaned: Cleaned, outcome: str) -> int:
    if cleaned.report is None:
        return 0
    return sum((one.outcome or "unknown") == outcome for one in cleaned.report.recovered)

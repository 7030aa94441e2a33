"""``report``: one page for a browser, which shows what lies open under a path, whose it is, since
when, and what removes it.

Reads only. What cannot be found out is a note, and the rest is shown all the same.

`page` is pure: the same data give the same bytes. What it looks like is report.html.jinja and
report.css: one file, without scripts, that loads nothing. What an attacker can choose (keys, ids)
is text: the template escapes every value, and no control or format character of one is left; and
the page's own policy forbids it to load or run anything.
"""

from __future__ import annotations

import heapq
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import click

from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, clean, root
from magic_committer.cli.shell import Reach, Shell, command, in_backticks, recursive, told
from magic_committer.cli.uploads import advice
from magic_committer.cli.values import DIRECTORY, time_words
from magic_committer.commit.probe import NOT_ASKED
from magic_committer.errors import MagicError, StoreError
from magic_committer.errors.messages import age_words, as_word, bytes_words
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, FoundJob
from magic_committer.maintenance.uploads import (
    Filters,
    FoundUpload,
    OpenUploads,
    OwnerClass,
    Sums,
)

TEMPLATE = "report.html.jinja"
UPLOADS_SHOWN = 50
"""Uploads of which the details are shown: the largest, then the oldest."""
JOBS_MAX = 500
"""Jobs that a page lists."""
NOTES_MAX = 10
"""Notes that are shown; of the others their number."""
KEY_CHARS_MAX = 160
"""Characters of a key that are shown; of a longer one both ends."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'"
)
"""Content-Security-Policy: nothing is loaded, nothing runs."""
CLASSES: Mapping[OwnerClass, tuple[str, str]] = {
    "live": ("Live job", "of a job of this library in which something changed lately"),
    "over": ("Job over", "of a job of this library that has ended or is dead"),
    "orphan": ("Orphan", "of a job of this library whose record is gone"),
    "hadoop": ("Hadoop", "named by a magic job of Hadoop"),
    "foreign": ("Foreign", "nothing names its owner"),
    "unknown": ("Unknown", "its owner is not known: something cannot be read"),
}
"""Every class in the order of a report: its title and its meaning."""
KINDS = {
    "ours": "this library's",
    "hadoop": "Hadoop's",
    "litter": "left behind",
    "unreadable": "unreadable",
}
"""`FoundJob.kind` in words."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that a report shows.

    Attributes:
        store: its identity, without secrets. made: seconds since the epoch.
        sums, largest: of the open uploads; None if the store has no listing of them.
        unseen: why more uploads may be open than are listed; "" if none can be.
        notes: what could not be found out.
        unlooked: there are directories below ``dest`` whose jobs were not looked for.
        removing: what can be removed or found out, and the command that does it: a sentence and a
            line each.
        program: how the page's other commands begin, so that they reach the same store.
    """

    dest: str
    store: str
    made: float
    sums: Sums | None
    largest: Sequence[FoundUpload] = ()
    jobs: Sequence[FoundJob] = ()
    notes: Sequence[str] = ()
    unlooked: bool = False
    removing: Sequence[tuple[str, str]] = ()
    unseen: str = ""
    program: str = "magic-committer"


@command(root, "report", WORDS["report"], "s3://bucket/table -o report.html")
@click.argument("path", type=DIRECTORY)
@click.option(
    "-o", "--output", "file", metavar="FILE", default="-",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Where to write the page; stdout by default. A file is replaced as a whole.",
)  # fmt: skip
@recursive
def report(shell: Shell, path: Destination, file: str, deep: bool) -> int:
    """Write a page for a browser: what lies open under PATH, whose it is, since when, which jobs
    wait for somebody, and what removes it. For programs: uploads list and job list.

    Uploads are those of all directories below PATH; jobs only with --recursive. Exit code 46: not
    all was looked at; the page says so.
    """
    if shell.output.format != "table":
        raise click.UsageError("report writes a page: uploads list and job list have --format")
    if file == "-" and shell.output.stream.isatty():
        raise click.UsageError("report writes a page for a browser: give -o FILE, or a pipe")
    reach = Reach(shell, many=False, deep=deep)
    written = page(look(shell, reach, path))
    device = os.path.exists(file) and not os.path.isfile(file)  # it would be replaced by a file
    try:
        with click.open_file(file, "w", encoding="utf-8", atomic=not device) as opened:
            opened.write(written)
    except OSError as error:
        name = "stdout" if file == "-" else file
        raise MagicError(f"{name} could not be written: {error.strerror}") from error
    reach.tell()
    if file != "-":
        shell.note(f"The page is in {file}")
    return reach.code


def look(shell: Shell, reach: Reach, dest: Destination) -> ReportData:
    """Find out all that a report shows."""
    runtime = shell.runtime(dest.bucket)
    dests, unknown = reach.destinations(dest)
    missed, failed = [*unknown], list[StoreError]()
    problems: tuple[str, ...] = ()
    sums, listed, unseen = Sums(), True, ""
    largest: list[FoundUpload] = []
    removing: list[tuple[str, str]] = []
    try:
        survey = OpenUploads(runtime, dest, Filters(), sizes=True)
        added = sums.adding(survey)
        largest = heapq.nlargest(UPLOADS_SHOWN, added, key=lambda u: (u.bytes or 0, u.age or 0.0))
        problems = survey.problems
        if sums.removable.uploads:
            words = f"Left by jobs that are over or dead: {sums.removable.words()}."
            removing.append((f"{words} Remove them:", shell.line("uploads", "abort", dest.url)))
        removing += advice(shell, dest.url, sums.old_words(), Filters())
        unseen = survey.unseen(ask=False, worded=in_backticks(shell.s3))
        if NOT_ASKED in unseen:
            removing.append(("To ask the store:", shell.line("uploads", "list", dest.url)))
    except StoreError as error:
        listed, unseen = False, f"Open uploads cannot be listed: {told(error, shell.s3)}"
    jobs: list[FoundJob] = []
    for one in dests:
        try:
            jobs += inspect_all(runtime, one, DEAD_AFTER_SECONDS)
        except StoreError as error:
            failed.append(error)
            missed.append(f"the jobs under {one.url} are unknown: {told(error, shell.s3)}")
    if failed and len(failed) == len(dests) and not listed:
        raise failed[0]  # nothing is known
    if missed or not listed:
        reach.codes.append(exits.BAD_STATE)
    notes = (*missed, *problems)
    if (more := len(notes) - NOTES_MAX) > 0:
        notes = (*notes[:NOTES_MAX], f"and {more:,} more that could not be read")
    unlooked = not jobs and reach.found_nothing(dest)
    return ReportData(
        dest.url, runtime.store.identity, runtime.clock.now(), sums if listed else None, largest,
        jobs, notes, unlooked, removing, unseen, shell.line(),
    )  # fmt: skip


def needs_care(job: FoundJob) -> bool:
    """Whether somebody should finish or remove a job: what `recover` or `cleanup` would do
    something about, or cannot read."""
    return bool(job.problem) or not job.would.startswith("nothing") or job.kind == "litter"


def way_to_end(job: FoundJob) -> tuple[str, ...]:
    """The command that does what ``would`` says of a job, in words; none if nothing does it now."""
    if job.kind == "litter":
        return "cleanup", job.dest
    return () if job.would.startswith("nothing") else ("job", "recover", job.dest, *as_word(job.id))


def page(data: ReportData) -> str:
    """The whole page. Every value is escaped and cleaned, and one that is missing is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # late: only a page needs it
    from markupsafe import Markup

    made = Environment(
        autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(value),
        loader=FunctionLoader(lambda name: (files(__package__) / name).read_text("utf-8")),
    )  # fmt: skip
    made.filters.update(
        age=age_words, bytes=bytes_words, needs_care=needs_care, number=lambda value: f"{value:,}",
        line=lambda words: f"{data.program} {shlex.join(words)}", time=time_words,
        sentence=lambda text: text[:1].upper() + text[1:], way_to_end=way_to_end,
    )  # fmt: skip
    held = [] if data.sums is None else [(key, data.sums.of(key)) for key in CLASSES]
    return made.get_template(TEMPLATE).render(
        data=data, policy=POLICY, classes=CLASSES, kinds=KINDS, jobs_max=JOBS_MAX,
        key_chars=KEY_CHARS_MAX, figures=_figures(data),
        held_classes=[(key, one) for key, one in held if one.uploads],
    )  # fmt: skip


def _figures(data: ReportData) -> list[tuple[str, str, str]]:
    """The overview: title, value, and what is said below it."""
    waiting = sum(map(needs_care, data.jobs))
    verb = "wait" if waiting > 1 else "waits"
    care = f"{waiting:,} {verb} to be finished or removed"
    none = "not all could be looked at" if data.notes else "none is waiting for anybody"
    jobs = ("Jobs", f"{len(data.jobs):,}", care if waiting else none)
    if data.sums is None:
        return [jobs]
    total, idle = data.sums.all, data.sums.removable
    least = "at least " if data.unseen else ""
    stored, left = (one.stored() or ("?" if one.uploads else "0 B") for one in (total, idle))
    return [
        ("Open uploads", f"{least}{total.uploads:,}", f"{idle.uploads:,} left by dead jobs"),
        ("Stored in them", stored, f"{left} left by dead jobs"),
        jobs,
    ]

"""``report``: what lies open under a path, on one page that a person looks at.

Reads only. Jobs, uploads and the last `_SUCCESS` are found out by the same functions as in the
other commands; what cannot be found out is a note on the page, and the rest is told all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from magic_committer._quantities import bytes_words
from magic_committer._runtime import Progress, Runtime
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.files import replace_file
from magic_committer.cli.output import Output
from magic_committer.cli.plain import note
from magic_committer.cli.quantities import money_words, time_words
from magic_committer.cli.reach import Reach, recursive
from magic_committer.cli.report_page import ReportData, needs_care, page, seconds_words
from magic_committer.cli.shell import DIRECTORY, DURATION, Shell, command
from magic_committer.cli.tally import AGES, CLASSES, Sum, Tally
from magic_committer.cli.timeline import LastJob, last_job
from magic_committer.errors import NotSupported, StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.prices import US_EAST_1, Prices, read_prices
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS
from magic_committer.maintenance.uploads import Scope, Survey, sized
from magic_committer.options import Options

UPLOADS_SHOWN = 50
"""Uploads of which the details are told, unless ``--limit`` says another number."""
NOTES_MAX = 10
"""Notes that a page tells; of the others their number."""
STDOUT = "-"


@command(root, "report", WORDS["report"])
@click.argument("paths", type=DIRECTORY, nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--html", "html", metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write a page to look at in a browser; - is stdout. A file is replaced as a whole.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(min=0), default=UPLOADS_SHOWN, show_default=True, metavar="N",
    help="Tell the details of the N largest uploads.",
)  # fmt: skip
@click.option("--sizes/--no-sizes", default=True, help="Ask for the size of each upload (default).")
@click.option(
    "--prices", "prices_file", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Dollars for a GiB and month by storage class, TOML or JSON.",
)  # fmt: skip
@click.option(
    "--dead-after", type=DURATION, default=DEAD_AFTER_SECONDS, metavar="AGE", show_default="24h",
    help="From which age a running job of which nothing changes is taken for dead.",
)  # fmt: skip
@recursive
def report(
    shell: Shell,
    paths: tuple[Destination, ...],
    html: str | None,
    limit: int,
    sizes: bool,
    prices_file: Path | None,
    dead_after: float,
    deep: bool,
    objects_max: int,
) -> int:
    """Report what lies open under PATH: uploads by class and age, jobs, the last job's timeline.

    Uploads are those of all directories below PATH; jobs only with --recursive.
    """
    paths = tuple(dict.fromkeys(paths))
    if html is not None and len(paths) > 1:
        raise click.UsageError(
            "a page is of one path: give one with --html, or the one above with --recursive"
        )
    prices = read_prices(prices_file) if prices_file else US_EAST_1
    reach = Reach(shell, many=len(paths) > 1, objects_max=objects_max if deep else None)
    found: list[ReportData] = []
    with shell.progress() as progress:
        for path in paths:
            with reach.trying(path.url):
                below = reach.destinations(path, progress)
                dests = [dest for dest in below if isinstance(dest, Destination)]
                runtime = shell.runtime(path.bucket, progress)
                data = look(runtime, path, limit, prices if sizes else None, dead_after, dests)
                found.append(replace(data, unlooked=not data.jobs and reach.found_nothing(path)))
    if not found:
        return reach.code
    if html == STDOUT:
        sys.stdout.write(page(found[0]))
        return reach.code
    if html is not None:
        try:
            replace_file(Path(html), page(found[0]))
        except OSError as error:
            note(f"magic-committer: {html} could not be written: {error.strerror}")
            return exits.FAILED
    _print(shell.output, found, reach, many=len(paths) > 1)
    reach.tell()
    if html is not None:
        shell.note(f"The page is in {html}")
    return reach.code


def _print(output: Output, found: list[ReportData], reach: Reach, *, many: bool) -> None:
    if not many:
        output.document("report", plain(found[0]), lines(found[0]))
    elif output.format != "table":
        rows = [plain(data) for data in found]
        output.rows(
            "report", (), rows, fields=tuple(rows[0]),
            summary=lambda: {"reports": len(rows), "not_looked_at": reach.not_looked_at},
        )  # fmt: skip
    else:
        for number, data in enumerate(found):
            if number:
                output.text("")
            output.document("report", {}, lines(data))


# Looking ------------------------------------------------------------------------------------------


def look(
    runtime: Runtime,
    dest: Destination,
    limit: int,
    prices: Prices | None,
    dead_after: float,
    jobs_of: Sequence[Destination],
) -> ReportData:
    """Find out all that a report tells.

    Args:
        limit: of how many uploads the details are kept.
        prices: None: the sizes are not asked for.
        jobs_of: the destinations whose jobs are told.

    Raises:
        StoreError: the jobs or the uploads could not be listed, or the store failed.
    """
    notes: list[str] = []
    tally: Tally | None = None
    try:
        counted = Tally(limit)
        notes += _count(runtime, dest, counted, prices, dead_after)
        tally = counted
    except NotSupported as error:
        notes.append(f"Open uploads cannot be told: {error}")
    jobs = [job for one in jobs_of for job in inspect_all(runtime, one, dead_after)]
    last: LastJob | None = None
    try:
        last = last_job(runtime, dest)
    except StoreError as error:
        notes.append(f"_SUCCESS cannot be read: {error}")
    more = len(notes) - NOTES_MAX
    if more > 0:
        notes[NOTES_MAX:] = [f"and {more:,} more that could not be read"]
    return ReportData(
        dest=dest.url,
        store=runtime.store.identity,
        made=runtime.clock.now(),
        prices=prices.name if prices else "not asked for",
        tally=tally,
        jobs=jobs,
        last=last,
        notes=notes,
    )


def _count(
    runtime: Runtime, dest: Destination, tally: Tally, prices: Prices | None, dead_after: float
) -> Iterable[str]:
    """Count the open uploads; what could not be read."""
    threads = Options().commit_threads
    scope = Scope(dest.bucket, dest.prefix)
    survey = Survey(runtime, scope, dead_after=dead_after, in_flight=threads)
    for found in survey.pages():
        for upload in sized(runtime, found, threads, prices) if prices else found:
            tally.add(upload)
        runtime.progress(Progress("measure", tally.total.uploads, None, "uploads"))
    return survey.problems


# Telling ------------------------------------------------------------------------------------------


def plain(data: ReportData) -> dict[str, Any]:
    """The same data for programs: plain JSON values."""
    return {
        "dest": data.dest,
        "store": data.store,
        "made": data.made,
        "prices": data.prices,
        "uploads": None if data.tally is None else _uploads(data.tally),
        "jobs": [job.to_dict() for job in data.jobs],
        "last_job": None if data.last is None else asdict(data.last),
        "notes": list(data.notes),
        "not_looked_at": [data.dest] if data.unlooked else [],
    }


def _uploads(tally: Tally) -> dict[str, Any]:
    return {
        "total": tally.total.to_dict(),
        "removable": tally.removable.to_dict(),
        "by_class": {name: tally.by_class(name).to_dict() for name in CLASSES},
        "by_class_and_age": [
            {"class": name, "age": age, **held.to_dict()}
            for name in CLASSES
            for age in AGES
            if (held := tally.of(name, age)).uploads
        ],
        "largest": [upload.to_dict() for upload in tally.largest()],
    }


def lines(data: ReportData) -> Iterator[tuple[str, str]]:
    """The same data for people, shortened to a few lines: name and words."""
    yield "path", data.dest
    yield "store", data.store
    if data.tally is not None:
        yield "open uploads", _sum_words(data.tally.total)
        for name, one in CLASSES.items():
            held = data.tally.by_class(name)
            yield f"  {one.title.lower()}", _sum_words(held) if held.uploads else ""
        yield "can be removed", _sum_words(data.tally.removable)
    waiting = sum(map(needs_care, data.jobs))
    found = f"{len(data.jobs):,}, {waiting:,} of them to be finished or removed"
    yield (
        "jobs",
        "none directly here; directories below were not looked at" if data.unlooked else found,
    )
    for job in data.jobs:
        if needs_care(job):
            where = "" if job.dest == data.dest else f" of {job.dest}"
            state = job.state if job.kind == "ours" else job.kind
            yield f"  {job.id}", f"{state}{where}: {job.would}"
    yield "last job", _last_words(data.last)
    for told in data.notes:
        yield "note", told


def _sum_words(held: Sum) -> str:
    if not held.uploads:
        return "none"
    if held.unsized == held.uploads:
        return f"{held.uploads:,}"
    least = "at least " if held.unsized else ""
    cheap = "at least " if held.unpriced else ""
    return (
        f"{held.uploads:,}, {least}{bytes_words(held.bytes)},"
        f" {cheap}{money_words(held.cost)} a month"
    )


def _last_words(last: LastJob | None) -> str:
    if last is None:
        return "no _SUCCESS"
    when = f"marked {time_words(last.written or 0)}"
    if last.kind == "unreadable":
        return f"_SUCCESS cannot be read: {last.problem}"
    if last.kind == "empty":
        return f"{when}, an empty _SUCCESS"
    counts = [
        f"{count:,} {name}"
        for name, count in (("tasks", last.tasks), ("files", last.files))
        if count is not None
    ]
    size = [bytes_words(last.bytes)] if last.bytes is not None else []
    took = [f"{span.name.lower()} {seconds_words(span.seconds)}" for span in last.job_spans]
    return ", ".join([last.job_id, when, *counts, *size, *took])

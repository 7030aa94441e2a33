"""``report``: what lies open under a path, on one page that a person looks at.

Reads only. Jobs and uploads are found out by the same functions as in the other commands; what
cannot be found out is a note on the page, and the rest is told all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from magic_committer._runtime import Progress, Runtime
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.files import replace_file
from magic_committer.cli.output import Output, Prose
from magic_committer.cli.plain import note
from magic_committer.cli.reach import Reach, recursive
from magic_committer.cli.report_page import ReportData, needs_care, page
from magic_committer.cli.shell import DIRECTORY, Shell, age_option, command
from magic_committer.cli.sums import CLASSES, Sums
from magic_committer.cli.wording import way_of
from magic_committer.errors import NotSupported
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS
from magic_committer.maintenance.uploads import Scope, Survey, sized
from magic_committer.options import Options

UPLOADS_SHOWN = 50
"""Uploads of which the details are told, unless ``--limit`` says another number."""
NOTES_MAX = 10
"""Notes that a page tells; of the others their number."""
STDOUT = "-"


@command(root, "report", WORDS["report"], "s3://bucket/table", "s3://bucket/table -o report.html")
@click.argument("paths", type=DIRECTORY, nargs=-1, required=True, metavar="PATH…")
@click.option(
    "-o", "--output", "file", metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write a page to look at in a browser; - is stdout. A file is replaced as a whole.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(min=0), default=UPLOADS_SHOWN, show_default=True, metavar="N",
    help="Tell the details of the N largest uploads.",
)  # fmt: skip
@click.option("--sizes/--no-sizes", default=True, help="Ask for the size of each upload (default).")
@age_option(
    "--dead-after", DEAD_AFTER_SECONDS,
    "From which age a running job of which nothing changes is taken for dead.",
)  # fmt: skip
@recursive
def report(
    shell: Shell,
    paths: tuple[Destination, ...],
    file: str | None,
    limit: int,
    sizes: bool,
    dead_after: float,
    deep: bool,
    objects_max: int,
) -> int:
    """Report what lies open under PATH: uploads by class, and jobs.

    Uploads are those of all directories below PATH; jobs only with --recursive.
    """
    paths = tuple(dict.fromkeys(paths))
    if file is not None and len(paths) > 1:
        raise click.UsageError(
            "a page is of one path: give one with -o, or the one above with --recursive"
        )
    reach = Reach(shell, many=len(paths) > 1, objects_max=objects_max if deep else None)
    found: list[ReportData] = []
    with shell.progress() as progress:
        for path in paths:
            with reach.trying(path.url):
                below = reach.destinations(path, progress)
                dests = [dest for dest in below if isinstance(dest, Destination)]
                runtime = shell.runtime(path.bucket, progress)
                data = look(runtime, path, limit, sizes, dead_after, dests)
                unlooked = not data.jobs and reach.found_nothing(path)
                found.append(replace(data, unlooked=unlooked, options=way_of(shell.s3)))
    if not found:
        return reach.code
    if file == STDOUT:
        sys.stdout.write(page(found[0]))
        return reach.code
    if file is not None:
        try:
            replace_file(Path(file), page(found[0]))
        except OSError as error:
            note(f"magic-committer: {file} could not be written: {error.strerror}")
            return exits.FAILED
    _print(shell.output, found, reach, many=len(paths) > 1)
    for data in found:
        shell.advise(data.advice)
    reach.tell()
    if file is not None:
        shell.note(f"The page is in {file}")
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
    sizes: bool,
    dead_after: float,
    jobs_of: Sequence[Destination],
) -> ReportData:
    """Find out all that a report tells.

    Args:
        limit: of how many uploads the details are kept.
        sizes: whether they are asked for.
        jobs_of: the destinations whose jobs are told.

    Raises:
        StoreError: the jobs or the uploads could not be listed, or the store failed.
    """
    notes: list[str] = []
    sums: Sums | None = None
    try:
        counted = Sums(limit)
        notes += _count(runtime, dest, counted, sizes, dead_after)
        sums = counted
    except NotSupported as error:
        notes.append(f"Open uploads cannot be told: {error}")
    jobs = [job for one in jobs_of for job in inspect_all(runtime, one, dead_after)]
    more = len(notes) - NOTES_MAX
    if more > 0:
        notes[NOTES_MAX:] = [f"and {more:,} more that could not be read"]
    return ReportData(
        dest=dest.url,
        store=runtime.store.identity,
        made=runtime.clock.now(),
        sums=sums,
        jobs=jobs,
        notes=notes,
    )


def _count(
    runtime: Runtime, dest: Destination, sums: Sums, sizes: bool, dead_after: float
) -> Iterable[str]:
    """Count the open uploads; what could not be read."""
    threads = Options().commit_threads
    scope = Scope(dest.bucket, dest.prefix)
    survey = Survey(runtime, scope, dead_after=dead_after, in_flight=threads)
    for found in survey.pages():
        for upload in sized(runtime, found, threads) if sizes else found:
            sums.add(upload)
        runtime.progress(Progress("measure", sums.all.uploads, None, "uploads"))
    return survey.problems


# Telling ------------------------------------------------------------------------------------------


def plain(data: ReportData) -> dict[str, Any]:
    """The same data for programs: plain JSON values."""
    return {
        "dest": data.dest,
        "store": data.store,
        "made": data.made,
        "uploads": None if data.sums is None else _uploads(data.sums),
        "jobs": [job.to_dict() for job in data.jobs],
        "advice": str(data.advice or ""),
        "notes": list(data.notes),
        "not_looked_at": [data.dest] if data.unlooked else [],
    }


def _uploads(sums: Sums) -> dict[str, Any]:
    told = sums.to_dict()
    by_class = {name: sums.of(name).to_dict() for name in CLASSES}
    return {
        "total": sums.all.to_dict(),
        "removable": sums.removable.to_dict(),
        "old": told["old"],
        "by_class": by_class,
        "largest": [upload.to_dict() for upload in sums.largest()],
    }


def lines(data: ReportData) -> Iterator[tuple[str, str]]:
    """The same data for people, shortened to a few lines: name and words."""
    yield "path", data.dest
    yield "store", data.store
    if data.sums is not None:
        yield "open uploads", data.sums.all.words()
        for name, (title, _) in CLASSES.items():
            held = data.sums.of(name)
            yield f"  {title.lower()}", held.words() if held.uploads else ""
        yield "left by dead jobs", data.sums.removable.words()
    waiting = sum(map(needs_care, data.jobs))
    care = f", {waiting:,} of them to be finished or removed" if waiting else ""
    yield (
        "jobs",
        "none directly here; directories below were not looked at"
        if data.unlooked
        else f"{len(data.jobs):,}{care}",
    )
    for job in data.jobs:
        if needs_care(job):
            where = "" if job.dest == data.dest else f" of {job.dest}"
            state = job.state if job.kind == "ours" else job.kind
            yield f"  {job.id}", Prose(f"{state}{where}: {job.would}")
    for told in data.notes:
        yield "note", Prose(told)

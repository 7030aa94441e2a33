"""``uploads list|abort|expect``: the open uploads under a path, of whatever program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from magic_committer.cli import exits
from magic_committer.cli.app import group, note, options
from magic_committer.cli.output import Column
from magic_committer.cli.shell import Reach, Shell, command, in_backticks
from magic_committer.cli.values import DIRECTORY, age_option, dry_run
from magic_committer.errors import messages
from magic_committer.errors.messages import bytes_words, counted, name_some
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.uploads import (
    FIELDS,
    Clearing,
    Filters,
    OpenUploads,
    Sums,
    by_class,
)

uploads = group(
    "uploads", "uploads list s3://bucket/table", "uploads abort s3://bucket/table --dry-run"
)

COLUMNS = (
    Column("class"),
    Column("job"),
    Column("age", words=messages.age_words, right=True),
    Column("parts", right=True),
    Column("bytes", words=lambda size: "" if size is None else bytes_words(size), right=True),
    Column("would", "abort", reason=True),
    Column("key"),
)
ABORT_COLUMNS = (Column("action"), *COLUMNS[:-2], Column("note", reason=True), COLUMNS[-1])
PROBLEMS_SHOWN_MAX = 10
ABORT_FIELDS = ("action", *(name for name in FIELDS if name != "would"))

filters = options(
    age_option(
        "--older-than", None, "Only those that began so long ago, by the store's clock: 36h, 7d."
    ),
    click.option("--job", metavar="ID", help="Only those of this job, by id or UUID."),
    click.option(
        "--key-glob", metavar="GLOB",
        help="Only keys that match, from PATH on: '*.csv'; * matches / too.",
    ),
)  # fmt: skip
"""The options that choose uploads."""
no_sizes = click.option("--no-sizes", is_flag=True, help="Do not ask for parts and bytes: faster.")


def _look(shell: Shell, path: Destination, asked: Filters, *, sizes: bool) -> OpenUploads:
    """Look at the uploads under a path, and say what cannot be read."""
    found = OpenUploads(shell.runtime(path.bucket), path, asked, sizes=sizes)
    for problem in found.problems[:PROBLEMS_SHOWN_MAX]:
        note(problem)
    if (more := len(found.problems) - PROBLEMS_SHOWN_MAX) > 0:
        note(f"and {more} more that cannot be read")
    return found


def _sees_all(shell: Shell, found: OpenUploads) -> bool:
    """Whether the listing can be believed; if not, it is said."""
    if why := found.unseen(worded=in_backticks(shell.s3)):
        note(why)
    return not why


def advice(
    shell: Shell, path: str, old: Mapping[str, str], asked: Filters
) -> tuple[tuple[str, str], ...]:
    """What is old and of other programs, by class in words, and the command that removes it, with
    the same filters; nothing if nothing is."""
    if not old:
        return ()
    age = messages.duration(asked.old_from)
    words = ["uploads", "abort", path, *(f"--{name}" for name in old), "--older-than", age]
    for flag, value in (("--job", asked.job), ("--key-glob", asked.key_glob)):
        words += [] if value is None else [flag, value]
    told = f"Of other programs and older than {age}: {'; '.join(old.values())}."
    return ((f"{told} If nobody still writes them, remove them:", shell.line(*words)),)


@command(
    uploads,
    "list",
    "Each open upload: whose, how old, how large.",
    "s3://bucket/table",
    "s3://bucket/table --older-than 7d",
)
@click.argument("paths", type=DIRECTORY, nargs=-1, required=True, metavar="PATH…")
@filters
@no_sizes
def list_uploads(
    shell: Shell, paths: tuple[Destination, ...], no_sizes: bool, **chosen: Any
) -> int:
    """List the open uploads under PATH: whose each is, its age, its bytes.

    Where none is listed, two are begun and aborted below PATH, to see whether the store shows them.
    Exit code 46: it does not, so uploads may be open that nobody sees; or a path of several could
    not be listed.
    """
    paths = tuple(dict.fromkeys(paths))
    asked = Filters(**chosen)
    reach = Reach(shell, many=len(paths) > 1)
    sums: dict[Destination, Sums] = {}
    looked: dict[Destination, OpenUploads] = {}
    total = Sums()

    def found() -> Iterator[dict[str, Any]]:
        for path in paths:
            with reach.trying(path.url):
                survey = _look(shell, path, asked, sizes=not no_sizes)
                sums[path] = Sums(asked.old_from)
                for one in total.adding(sums[path].adding(survey)):
                    url = f"s3://{path.bucket}/{one.key}"
                    yield {**one.to_dict(), "bucket": path.bucket, "url": url}
                looked[path] = survey

    def closing() -> str:
        if not looked:
            return "Nothing could be listed"
        if not total.all.uploads:
            return f"No open uploads under {name_some([path.url for path in looked], 5)}"
        return f"{total.all.words()}: {by_class(total.counts())}"

    def advised() -> list[tuple[str, str]]:
        each = (advice(shell, path.url, one.old_words(), asked) for path, one in sums.items())
        return [one for some in each for one in some]

    shell.output.rows(
        "upload", COLUMNS if len(paths) == 1 else (*COLUMNS[:-1], Column("url", "key")),
        found(), fields=(*FIELDS, "bucket"), closing=closing,
        summary=lambda: {
            **total.to_dict(),
            "problems": [problem for one in looked.values() for problem in one.problems],
            "advice": [f"{words} `{line}`" for words, line in advised()],
            "paths": [path.url for path in paths],
            "not_looked_at": reach.not_looked_at,
        },
    )  # fmt: skip
    for words, line in advised():
        shell.advise(words, line)
    for survey in looked.values():
        if not _sees_all(shell, survey):
            reach.codes.append(exits.BAD_STATE)
    return reach.code


@command(
    uploads,
    "abort",
    "Abort those that nobody needs.",
    "s3://bucket/table --dry-run",
    "s3://bucket/table --foreign --older-than 7d",
    "s3://bucket/table --yes --max-aborts 100",
)
@click.argument("path", type=DIRECTORY)
@filters
@no_sizes
@click.option("--foreign", is_flag=True, help="Foreign ones too; needs --older-than.")
@click.option("--hadoop", is_flag=True, help="Those of Hadoop's jobs too; needs --older-than.")
@click.option(
    "--max-aborts", type=click.IntRange(min=0), metavar="N",
    help="If there are more than N to abort, abort none and exit with 46.",
)  # fmt: skip
@dry_run
def abort_uploads(
    shell: Shell,
    path: Destination,
    no_sizes: bool,
    foreign: bool,
    hadoop: bool,
    max_aborts: int | None,
    dry_run: bool,
    yes: bool,
    **chosen: Any,
) -> int:
    """Abort uploads of jobs that are over, or dead. Never touches uploads of live jobs; those of
    other programs only with --foreign, of Hadoop only with --hadoop.

    A dead job is aborted as a whole. Without --older-than what is younger than
    `cleanup --leftover-after` stays.
    """
    asked = Filters(**chosen)
    survey = _look(shell, path, asked, sizes=not no_sizes)
    plan = Clearing(survey, foreign, hadoop, max_aborts)
    ways = [
        (words, shell.line("job", "recover", dest, *messages.as_word(job_id)))
        for words, (dest, job_id) in plan.advice.items()
    ]
    for words, line in ways:
        shell.advise(words, line)
    if plan.question and not dry_run and not yes:
        shell.confirm(plan.question)
    actions: Counter[str] = Counter()
    sums = Sums()
    old = {name: counted(n, f"{name} upload") for name, n in sorted(plan.old.items()) if n}
    others = advice(shell, path.url, old, asked)

    def rows() -> Iterator[dict[str, Any]]:
        for one in plan.run(dry_run=dry_run):
            actions[one.action] += 1
            if one.action in ("aborted", "would abort"):
                sums.add(one.found)
            yield one.to_dict()

    def closing() -> str:
        done = "Would abort" if dry_run else "Aborted"
        words = {"gone": "gone meanwhile", "left": "still open"}
        other = [f"{actions[name]:,} {told}" for name, told in words.items() if actions[name]]
        told = "; ".join([f"{done} {sums.all.words()}", *other])
        spared = by_class(plan.left)
        return f"{told}. Not touched: {spared}" if spared else told

    shell.output.rows(
        "abort", ABORT_COLUMNS, rows(), fields=ABORT_FIELDS, closing=closing,
        summary=lambda: {
            **sums.to_dict(),
            "actions": dict(actions),
            "chosen": plan.chosen.total(),
            "not_touched": dict(plan.left),
            "jobs": [job.id for job in plan.jobs.values()],
            "advice": [f"{words} `{line}`" for words, line in (*ways, *others)],
            "problems": list(survey.problems),
        },
    )  # fmt: skip
    for line in plan.unfinished:
        note(line)
    for words, line in others:
        shell.advise(words, line)
    done = _sees_all(shell, survey) and not actions["left"] and not plan.unfinished
    return exits.OK if done else exits.BAD_STATE


@command(uploads, "expect", "Succeed if exactly N are open.", "s3://bucket/table 0 --older-than 2d")
@click.argument("path", type=DIRECTORY)
@click.argument("expected", type=click.IntRange(min=0), metavar="N")
@filters
def expect_uploads(shell: Shell, path: Destination, expected: int, **chosen: Any) -> int:
    """Exit with 0 if exactly N open uploads under PATH fit the filters, else with 46.

    Also with 46 if some may be open that nobody sees, which is found out as by `uploads list`.
    """
    survey = _look(shell, path, Filters(**chosen), sizes=False)
    found = sum(1 for _ in survey)
    told = {"path": path.url, "expected": expected, "found": found}
    shell.output.document("expectation", told)
    if found != expected:
        note(f"Expected upload count under {path.url}: {expected}, found {found}")
    elif _sees_all(shell, survey):
        shell.output.text(f"Found {found} under {path.url}, as expected")
        return exits.OK
    return exits.BAD_STATE

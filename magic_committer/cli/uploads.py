"""``uploads list|abort|expect``: the open uploads under a path, of whomever."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from magic_committer._quantities import age_words, bytes_words, duration, name_some
from magic_committer._runtime import Progress, ProgressFunction, no_progress
from magic_committer.cli import exits
from magic_committer.cli.app import group
from magic_committer.cli.plain import note
from magic_committer.cli.reach import Reach
from magic_committer.cli.shell import DURATION, URL, Shell, age_option, command
from magic_committer.cli.sums import Advice, Sums
from magic_committer.cli.table import Column
from magic_committer.cli.wording import way_of
from magic_committer.errors import MagicError
from magic_committer.maintenance.abort_uploads import Cleared, Clearing, ClearingPlan
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, LEFTOVER_AFTER_SECONDS
from magic_committer.maintenance.unlisted import blind_spot
from magic_committer.maintenance.uploads import (
    CLASSES,
    FIELDS,
    OLD_SECONDS,
    Filters,
    FoundUpload,
    Rules,
    Scope,
    Survey,
    count,
    sized,
)
from magic_committer.options import Options
from magic_committer.remedy import Remedy, as_command

F = TypeVar("F", bound=Callable[..., Any])

uploads = group(
    "uploads", "uploads list s3://bucket/table", "uploads abort s3://bucket/table --dry-run"
)

COLUMNS = (
    Column("class"),
    Column("job"),
    Column("age", words=age_words, right=True, spare=1),
    Column("parts", words=lambda parts: "?" if parts is None else str(parts), right=True, spare=3),
    Column("bytes", words=bytes_words, right=True, spare=2),
    Column("would", "abort", reason=True),
    Column("key"),
)
ABORT_COLUMNS = (Column("action"), *COLUMNS[:-2], Column("note", reason=True), COLUMNS[-1])
ABORT_FIELDS = ("action", *(name for name in FIELDS if name != "would"))

SORTS: dict[str, Callable[[FoundUpload], Any]] = {
    "key": lambda found: found.key,
    "age": lambda found: -(found.age or 0.0),
    "bytes": lambda found: -(found.bytes or 0),
}
"""Ways to sort a list: by name, or the greatest first."""

REQUESTS_IN_FLIGHT = 64
"""Requests at once, at most; as many as the process has threads (`_pool.THREADS_MAX`)."""
PROBLEMS_SHOWN_MAX = 10
PATHS_NAMED_MAX = 5
"""Paths that the sentence below a list without uploads names."""
PROBED_BUCKETS_MAX = 3
"""Buckets of an account in which it is tried to begin an upload, to see whether it is listed."""


# Options ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options that all three commands have ask for."""

    scope: Scope
    filters: Filters
    dead_after: float
    words: tuple[str, ...]

    def sums(self) -> Sums:
        """Return an empty sum of such uploads."""
        return Sums(older_than=max(self.filters.older_than or 0.0, OLD_SECONDS))

    def survey(self, shell: Shell, progress: ProgressFunction) -> Survey:
        """List the uploads and read whose they are."""
        survey = Survey(
            shell.runtime(self.scope.bucket, progress),
            self.scope,
            dead_after=self.dead_after,
            in_flight=REQUESTS_IN_FLIGHT,
        )
        for problem in survey.problems[:PROBLEMS_SHOWN_MAX]:
            note(problem)
        if (more := len(survey.problems) - PROBLEMS_SHOWN_MAX) > 0:
            note(f"and {more} more that cannot be read")
        return survey

    def sees_all(self, shell: Shell, shown: bool) -> bool:
        """Whether the listing can be believed; if not, it is said.

        Args:
            shown: it has proved that it goes by prefix: nothing is asked.
        """
        why = "" if shown else blind_spot(shell.runtime(self.scope.bucket, no_progress), self.scope)
        if why:
            note(why)
        return not why


@dataclass(frozen=True, slots=True)
class UploadQuery:
    """What the options ask for, whatever the path."""

    raw: bool
    filters: Filters
    dead_after: float
    words: tuple[str, ...]

    def under(self, path: str) -> Wanted:
        """The same under a path.

        Raises:
            PathError: as `Scope.parse`.
        """
        return Wanted(Scope.parse(path, raw=self.raw), self.filters, self.dead_after, self.words)


def _selecting(function: F) -> F:
    """The filters, and what they mean, as one argument ``asked``."""

    @functools.wraps(function)
    def with_asked(shell: Shell, **given: Any) -> int | None:
        words = tuple(_words(given))
        filters = Filters(
            older_than=given.pop("older_than"),
            job=given.pop("job"),
            key_glob=given.pop("key_glob"),
            initiator=given.pop("initiator"),
            classes=frozenset(given.pop("owner_class")),
            upload_ids=frozenset(given.pop("upload_ids")),
        )
        asked = UploadQuery(given.pop("raw_prefix"), filters, given.pop("dead_after"), words)
        code: int | None = function(shell, asked, **given)
        return code

    for option in reversed(
        (
            click.option(
                "--older-than", type=DURATION, metavar="AGE",
                help="Only those that began so long ago, by the store's clock: 36h, 7d.",
            ),
            click.option("--job", metavar="ID", help="Only those of this job, by id or UUID."),
            click.option(
                "--upload-id", "upload_ids", multiple=True, metavar="ID",
                help="Only the upload of this id; may be repeated.",
            ),
            click.option(
                "--key-glob", metavar="GLOB",
                help="Only keys that match, from PATH on: '*.csv'; * matches / too.",
            ),
            click.option("--initiator", metavar="GLOB", help="Only those that this user began."),
            click.option(
                "--owner-class", type=click.Choice(CLASSES), multiple=True,
                help="Only those of this class; may be repeated.",
            ),
            click.option(
                "--raw-prefix", is_flag=True,
                help="PATH is a prefix of keys, not a directory: tab means table2/x too.",
            ),
            age_option(
                "--dead-after", DEAD_AFTER_SECONDS,
                "From which age a job of which nothing changes is taken for dead.",
            ),
        )
    ):  # fmt: skip
        with_asked = option(with_asked)
    return with_asked  # type: ignore[return-value]  # click's decorators


def _words(given: Mapping[str, Any]) -> Iterator[str]:
    """The same filters as options of another command, but for ages and classes."""
    for name in ("job", "key_glob", "initiator"):
        if given[name] is not None:
            yield from (f"--{name.replace('_', '-')}", given[name])
    for upload_id in given["upload_ids"]:
        yield from ("--upload-id", upload_id)
    if given["raw_prefix"]:
        yield "--raw-prefix"
    if given["dead_after"] != DEAD_AFTER_SECONDS:
        yield from ("--dead-after", duration(given["dead_after"]))


no_sizes_option = click.option(
    "--no-sizes", is_flag=True, help="Do not ask for parts and bytes: faster."
)


def _by_class(counts: Mapping[str, int]) -> str:
    """``"orphan 3, over 2"``."""
    return ", ".join(f"{name} {counts[name]:,}" for name in CLASSES if counts.get(name))


# Commands -----------------------------------------------------------------------------------------


@command(
    uploads,
    "list",
    "Each open upload: whose, how old, how large.",
    "",
    "s3://bucket/table",
    "s3://bucket/table --older-than 7d --sort bytes",
)
@click.argument("paths", type=URL, nargs=-1, metavar="[PATH]…")
@_selecting
@no_sizes_option
@click.option("--sort", type=click.Choice(list(SORTS)), help="By key; or the oldest, the largest.")
def list_uploads(
    shell: Shell,
    asked: UploadQuery,
    paths: tuple[str, ...],
    no_sizes: bool,
    sort: str | None,
) -> int:
    """List the open uploads under PATH: whose each is, its age, its bytes.

    Without PATH, those of all buckets of the account. Where none is listed, two are begun and
    aborted below PATH, to see whether the store shows them. Exit code 46: it does not, so uploads
    may be open that nobody sees; or a path of several could not be listed.
    """
    looking = _Looking(
        shell,
        [asked.under(path) for path in dict.fromkeys(paths or map(_root_of, shell.buckets()))],
        account=not paths,
        sizes=not no_sizes,
    )
    rows: Iterable[tuple[Wanted, FoundUpload]] = shell.gather(looking.found)
    if sort is not None:
        rows = sorted(rows, key=lambda row: SORTS[sort](row[1]))
    one_bucket = len(looking.wanted) == 1 and not looking.account
    shell.output.rows(
        "upload", COLUMNS if one_bucket else (*COLUMNS[:-1], Column("url", "key")),
        (_listed(wanted.scope.bucket, upload) for wanted, upload in rows),
        fields=(*FIELDS, "bucket"), closing=looking.closing,
        summary=lambda: {
            **looking.sums.to_dict(),
            "problems": looking.problems,
            "advice": list(map(str, looking.advice())),
            "paths": [wanted.scope.url for wanted in looking.wanted],
            "not_looked_at": looking.reach.not_looked_at,
        },
    )  # fmt: skip
    for advice in looking.advice():
        shell.advise(advice)
    return looking.code()


def _root_of(bucket: str) -> str:
    return f"s3://{bucket}/"


def _listed(bucket: str, found: FoundUpload) -> dict[str, Any]:
    """A row of a list."""
    return {**found.to_dict(), "bucket": bucket, "url": f"s3://{bucket}/{found.key}"}


class _Looking:
    """One list: of what is under a path, several paths, or all buckets of an account.

    Attributes:
        wanted: what is listed, a path each. account: these are the buckets of the account.
        sizes: whether they are asked for.
        problems: what could not be read of whose uploads are.
    """

    def __init__(self, shell: Shell, wanted: list[Wanted], *, account: bool, sizes: bool) -> None:
        self.wanted = wanted
        self.account = account
        self.sums = Sums()
        self._sums: dict[Wanted, Sums] = {}
        self.problems: list[str] = []
        self.reach = Reach(shell, many=account or len(wanted) > 1)
        self._shell = shell
        self._sizes = sizes
        self._shown: dict[Wanted, bool] = {}

    def found(self, progress: ProgressFunction) -> Iterator[tuple[Wanted, FoundUpload]]:
        """The uploads that fit, path by path."""
        for wanted in self.wanted:
            with self.reach.trying(wanted.scope.url):
                relay = _Relay()
                # Where rows are printed as they are found, the bars are gone before the first.
                own = self._shell.progress() if progress is no_progress else nullcontext(progress)
                with own as relay.to:
                    survey = wanted.survey(self._shell, relay)
                relay.to = progress
                self.problems += survey.problems
                yield from ((wanted, one) for one in self._of(wanted, survey, relay))
                self._shown[wanted] = survey.shows_more_than_keys

    def _of(
        self, wanted: Wanted, survey: Survey, progress: ProgressFunction
    ) -> Iterator[FoundUpload]:
        seen = 0
        sums = self._sums[wanted] = wanted.sums()
        for page in survey.pages():
            seen += len(page)
            progress(Progress("look at", seen, max(seen, survey.listed), "uploads"))
            fitting = [one for one in page if wanted.filters.fits(one, wanted.scope)]
            if self._sizes:
                fitting = sized(survey.runtime, fitting, survey.in_flight)
            for one in fitting:
                self.sums.add(one)
                sums.add(one)
                yield one

    def advice(self) -> list[Advice]:
        """What is old and not ours, for each path."""
        way = way_of(self._shell.s3)
        told = (one.advice(to.scope.url, way, to.words) for to, one in self._sums.items())
        return [one for one in told if one is not None]

    def closing(self) -> str:
        """The list in a sentence."""
        if not self.wanted:
            return "The account has no buckets"
        if not self._shown:
            return "Nothing could be listed"
        if not self.sums.all.uploads:
            where = name_some([wanted.scope.url for wanted in self._shown], PATHS_NAMED_MAX)
            return f"No open uploads under {where}"
        counts: dict[str, int] = {name: one.uploads for name, one in self.sums.by_class.items()}
        return f"{self.sums.all.words('upload')}: {_by_class(counts)}"

    def code(self) -> int:
        """The exit code, once all is listed; a listing that cannot be believed is told."""
        if self.account:
            believed = self._store_shows_all()
        else:
            asked = [wanted.sees_all(self._shell, shown) for wanted, shown in self._shown.items()]
            believed = all(asked)  # each is asked, and told
        if not believed:
            self.reach.add(exits.BAD_STATE)
        return self.reach.code

    def _store_shows_all(self) -> bool:
        """Whether the account's store lists all open uploads: one bucket proves it for all, so only
        one is written to, the first that lets us."""
        if not self._shown or any(self._shown.values()):
            return True
        failure: MagicError | None = None
        for wanted in list(self._shown)[:PROBED_BUCKETS_MAX]:
            try:
                return wanted.sees_all(self._shell, shown=False)
            except MagicError as error:
                failure = error
        note(f"magic-committer: {failure}")
        return False


@command(
    uploads,
    "abort",
    "Abort those that nobody needs.",
    "s3://bucket/table --dry-run",
    "s3://bucket/table --foreign --older-than 7d",
    "s3://bucket/table --yes --max-aborts 100",
)
@click.argument("path", type=URL)
@_selecting
@no_sizes_option
@click.option("--foreign", is_flag=True, help="Foreign ones too; needs --older-than.")
@click.option(
    "--beside-live-jobs", is_flag=True, help="With --foreign: also where a live job writes."
)
@click.option("--hadoop", is_flag=True, help="Those of Hadoop's jobs too; needs --older-than.")
@click.option(
    "--max-aborts",
    type=click.IntRange(min=0),
    metavar="N",
    help="If there are more than N to abort, abort none and exit with 46.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, show what would be aborted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def abort_uploads(
    shell: Shell, asked: UploadQuery, path: str, no_sizes: bool, foreign: bool,
    beside_live_jobs: bool, hadoop: bool, max_aborts: int | None, dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Abort the open uploads under PATH whose job is over or dead, and orphans of such jobs.

    From an age of 1h on, unless --older-than says another. A dead job that still runs by its record
    is aborted as a whole. Others' uploads are left, and those of live jobs always.
    """
    wanted = asked.under(path)
    rules = _rules(wanted.filters, foreign, beside_live_jobs, hadoop)
    relay = _Relay()
    with shell.progress() as relay.to:
        survey = wanted.survey(shell, relay)
        clearing = Clearing(survey, wanted.filters, rules, options=Options(), sizes=not no_sizes)
        others = wanted.sums()

        def see(left: list[FoundUpload]) -> None:
            old = [one for one in left if others.is_old(one)]
            asks = dry_run or not yes
            if asks and not no_sizes:
                old = sized(survey.runtime, old, survey.in_flight)
            for one in old:
                others.add(one)

        plan = clearing.plan(sizes=not (no_sizes or yes or dry_run), left=see)
    for line in plan.advice:
        shell.note(line)
    if plan.advice:
        shell.note(f"To recover a job: {as_command(Remedy('recover', 'PATH', 'JOB'))}")
    too_many = max_aborts is not None and plan.uploads > max_aborts
    if too_many:
        note(
            f"{plan.uploads:,} uploads are to be aborted under {wanted.scope.url}"
            f" ({_by_class(plan.chosen)}), more than --max-aborts {max_aborts}: none was"
        )
    elif plan.uploads and not dry_run:
        shell.confirm(_question(wanted.scope, plan), yes=yes)
    cleared: Iterable[Cleared] = ()
    failure: MagicError | None = None
    if not too_many:
        cleared = clearing.run(plan, dry_run=dry_run)
    if _at_once(shell):
        with shell.progress() as relay.to:
            cleared, failure = _kept(cleared)
    relay.to = no_progress
    old = others.advice(wanted.scope.url, way_of(shell.s3), wanted.words)
    left = _tell(shell, plan, cleared, survey.problems, old, dry_run=dry_run)
    for line in clearing.unfinished:
        note(line)
    shell.advise(old)
    if failure is not None:
        raise failure
    unseen = not wanted.sees_all(shell, survey.shows_more_than_keys)
    return exits.BAD_STATE if too_many or left or clearing.unfinished or unseen else exits.OK


def _rules(filters: Filters, foreign: bool, beside_live_jobs: bool, hadoop: bool) -> Rules:
    """What may be aborted.

    Raises:
        click.UsageError: others' uploads without an age, or classes that are never aborted.
    """
    others = {"foreign": foreign, "hadoop": hadoop}
    for name, given in others.items():
        if given and filters.older_than is None:
            raise click.UsageError(f"--{name} needs --older-than: nothing else tells that it leaks")
        if name in filters.classes and not given:
            raise click.UsageError(f"{name} uploads are aborted with --{name} only")
    if never := filters.classes & {"live", "unknown"}:
        raise click.UsageError(f"{' and '.join(sorted(never))} uploads are never aborted")
    if beside_live_jobs and not foreign:
        raise click.UsageError("--beside-live-jobs goes with --foreign")
    older_than = LEFTOVER_AFTER_SECONDS if filters.older_than is None else filters.older_than
    return Rules(older_than, foreign, hadoop, beside_live_jobs)


def _question(scope: Scope, plan: ClearingPlan) -> str:
    size = f", {bytes_words(plan.bytes)}" if plan.bytes else ""
    jobs = [job.id for job in plan.jobs.values()]
    dead = f"dead job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} dead jobs"
    also = f", and with them {dead}" if jobs else ""
    return (
        f"Abort {plan.uploads:,} uploads under {scope.url} ({_by_class(plan.chosen)}{size}){also}?"
    )


def _tell(
    shell: Shell,
    plan: ClearingPlan,
    cleared: Iterable[Cleared],
    problems: tuple[str, ...],
    old: Advice | None,
    *,
    dry_run: bool,
) -> int:
    """Print what became of each upload; returns how many were left that were to be aborted."""
    actions: Counter[str] = Counter()
    sums = Sums()

    def rows() -> Iterator[dict[str, Any]]:
        for one in cleared:
            actions[one.action] += 1
            if one.action in ("aborted", "would abort"):
                sums.add(one.found)
            yield one.to_dict()

    def closing() -> str:
        done = "Would abort" if dry_run else "Aborted"
        words = {"gone": "gone meanwhile", "left": "still open"}
        other = [f"{actions[name]:,} {told}" for name, told in words.items() if actions[name]]
        spared = _by_class(plan.left)
        told = [f"{done} {sums.all.words('upload')}", *other]
        return "; ".join(told) + (f". Not touched: {spared}" if spared else "")

    shell.output.rows(
        "abort", ABORT_COLUMNS, rows(), fields=ABORT_FIELDS, closing=closing,
        summary=lambda: {
            **sums.to_dict(),
            "actions": dict(actions),
            "chosen": plan.uploads,
            "not_touched": dict(plan.left),
            "jobs": [job.id for job in plan.jobs.values()],
            "advice": [*plan.advice, *([str(old)] if old else [])],
            "problems": list(problems),
        },
    )  # fmt: skip
    return actions["left"]


@command(uploads, "expect", "Succeed if exactly N are open.", "s3://bucket/table 0 --older-than 2d")
@click.argument("path", type=URL)
@click.argument("expected", type=click.IntRange(min=0), metavar="N")
@_selecting
def expect_uploads(shell: Shell, asked: UploadQuery, path: str, expected: int) -> int:
    """Exit with 0 if exactly N open uploads under PATH fit the filters, else with 46.

    Also with 46 if the store does not list uploads by a part of their keys: then some may be open
    that nobody sees. Where the listing does not prove the contrary, two are begun and aborted below
    PATH to find out.
    """
    wanted = asked.under(path)
    relay = _Relay()
    with shell.progress() as relay.to:
        filters = wanted.filters
        if filters.older_than or filters.job is not None or filters.classes:
            survey = wanted.survey(shell, relay)
            shown = survey.shows_more_than_keys
            found = sum(filters.fits(one, wanted.scope) for page in survey.pages() for one in page)
        else:
            found, shown = count(shell.runtime(wanted.scope.bucket, relay), wanted.scope, filters)
    told = {"path": wanted.scope.url, "expected": expected, "found": found}
    shell.output.document("expectation", told)
    if found != expected:
        note(f"Expected upload count under {wanted.scope.url}: {expected}, found {found}")
        return exits.BAD_STATE
    if not wanted.sees_all(shell, shown):
        return exits.BAD_STATE
    shell.output.text(f"Found {found} under {wanted.scope.url}, as expected")
    return exits.OK


# Helpers ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Relay:
    """Passes progress on to the bars that are shown now."""

    to: ProgressFunction = no_progress

    def __call__(self, step: Progress) -> None:
        self.to(step)


def _at_once(shell: Shell) -> bool:
    """Whether the format prints all rows at once: they are gathered while the bars are shown. The
    others are printed as they are found, without bars."""
    return shell.output.format in ("table", "json")


def _kept(rows: Iterable[Cleared]) -> tuple[list[Cleared], MagicError | None]:
    """All rows, or those before a failure, and it: what was done is told in any case."""
    kept: list[Cleared] = []
    try:
        for row in rows:
            kept.append(row)
    except MagicError as error:
        return kept, error
    return kept, None

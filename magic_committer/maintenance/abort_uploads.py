"""Aborting uploads under a path: first look at all of them, then abort those that may be aborted.

It aborts uploads of jobs that are over: nobody can publish them any more. It aborts uploads of
Hadoop and of other programs only on the operator's word. Invariants:

* If the job of an upload still has a record to be decided, the job is decided first: a *dead* job
  is aborted, as `magic_committer.abort` does it, and its driver may win that swap. This is done
  only for a whole job: if the filters or the path leave out one of its uploads, the job is left.
* Jobs that are decided to commit or are being reverted are left to `magic_committer.recover`.
* Right before its abort an upload is looked for again, by its exact key. It is left alone if it is
  not open any more (on some stores the abort of a completed upload deletes the object,
  docs/stores.md), or not old enough any more.
* An abort counts only when it is proved (`UploadRemover`). What stays is reported.
* An interrupted run loses nothing: the same call continues it. Two runs at once do no harm.

Memory: the uploads of the dead jobs that are to be aborted are held; the others are streamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from magic_committer.commit import register, requests
from magic_committer.commit.register import age_of
from magic_committer.commit.sets import upload_name
from magic_committer.commit.uploads import Removal, UploadName, UploadRemover, UploadState, looking
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import MagicError, OptionError, PathError
from magic_committer.errors.messages import age_words, counted_are
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.inspect import Listing
from magic_committer.maintenance.reports import LEFTOVER_AFTER_SECONDS, NAMED_MAX, ActionPlan
from magic_committer.maintenance.uploads import (
    ABORTED,
    CLASSES,
    Filters,
    FoundUpload,
    Survey,
    deed,
    is_old,
    sized,
)
from magic_committer.options import Options
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import State
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.stores.base import FindUpload, UploadPage
from magic_committer.stores.urls import url_of

UNDECIDED_OR_UNDONE = frozenset({State.RUNNING, *ABORTED})
"""In these states a dead job is aborted or swept, and no data object is touched."""

Action = Literal["aborted", "would abort", "gone", "left"]
"""``gone``: it had ended before its turn came. ``left``: `Cleared.why` says why."""


@dataclass(frozen=True, slots=True)
class AbortedUploads:
    """What became of the uploads that were to be aborted.

    Attributes:
        aborted, gone, left: how many were aborted, had ended before their turn came, or stay open.
        stays: the first 100 that stay open; the ``note`` of each says why.
        unfinished: dead jobs that were aborted and have leftovers, a sentence each.
    """

    aborted: int
    gone: int
    left: int
    stays: tuple[FoundUpload, ...]
    unfinished: tuple[str, ...]


class OpenUploads:
    """The open uploads under a path, as `magic_committer.uploads` found them. Each iteration looks
    at those that are open now, and does not hold them.

    Attributes:
        problems: what could not be read, so that the owners of some uploads are not known; a
            sentence each.
    """

    def __init__(
        self,
        runtime: Runtime,
        dest: Destination,
        filters: Filters,
        *,
        sizes: bool,
        options: Options | None = None,
    ) -> None:
        self.filters, self.sizes, self.options = filters, sizes, options or Options()
        self.survey = Survey(runtime, dest, in_flight=self.options.commit_threads)
        self.problems = self.survey.problems

    def __iter__(self) -> Iterator[FoundUpload]:
        """Look at the uploads. `StoreError`: they could not be listed."""
        survey, seen = self.survey, 0
        for page in survey.pages():
            seen += len(page)
            survey.runtime.progress(Progress("look at", seen, max(seen, survey.listed), "uploads"))
            fitting = [one for one in page if self.filters.fits(one, survey.dest)]
            yield from sized(survey.runtime, fitting, survey.in_flight) if self.sizes else fitting

    def unseen(self) -> str:
        """Find out whether uploads may be open that no listing shows. Where the listing does not
        prove the contrary, two uploads are created and aborted, once for each process and store.
        Returns why they may, in a sentence; "" if there is no reason. Repeatable. `StoreError`: it
        could not be found out."""
        return self.survey.unseen()

    def abort(
        self, *, foreign: bool = False, hadoop: bool = False, max_aborts: int | None = None
    ) -> ActionPlan[AbortedUploads]:
        """Plan to abort the uploads that nobody needs: those of jobs that are over or dead, and
        orphans. Uploads of live jobs are never aborted, nor what is younger than ``older_than``
        of `magic_committer.uploads`, which is 1 hour here if it was not given. Repeatable; so is
        the run::

            >>> plan = mc.uploads("s3://bucket/table", older_than=7 * 86_400).abort(foreign=True)
            >>> plan.question
            ''

        Args:
            foreign: True: also those of which nothing names the owner, but not where a job that may
                be alive writes. Needs ``older_than``. False by default.
            hadoop: True: also those of Hadoop's jobs. Needs ``older_than``. False by default.
            max_aborts: the most that may be planned; None (default): any number.

        Returns:
            The plan. Its rows are looked at each time that they are iterated. It never aborts more
            than it has counted.

        Raises:
            OptionError: ``foreign`` or ``hadoop`` without ``older_than``.
            MagicError: there are more than ``max_aborts``.
            StoreError: the uploads could not be listed.
        """
        clearing = Clearing(self, foreign, hadoop, max_aborts)
        return ActionPlan(clearing.question, clearing, "", clearing.finish)


class Cleared(NamedTuple):
    """What became of one upload."""

    found: FoundUpload
    action: Action
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values: those of the upload, the action, and ``why`` as its note."""
        told = self.found.to_dict()
        return {**told, "action": self.action, "note": self.why or told["note"]}


@dataclass(slots=True)
class DeadJob:
    """A dead job: how many of its uploads were ``seen`` in the scope, and those to be aborted.
    After its abort: whether that was ``ours``, and whether its sweep has proved (``swept``) that
    all its uploads are gone."""

    id: str
    uuid: str
    dest: str
    seen: int = 0
    chosen: list[FoundUpload] = field(default_factory=list)
    ours: bool = False
    swept: bool = False


class Clearing:
    """A plan to abort open uploads. The constructor looks at all of them, and changes nothing;
    `run` aborts those that were chosen. Raises as `OpenUploads.abort`.

    Attributes:
        chosen: how many uploads are to be aborted, by class.
        left: how many uploads are not, by class: because of the rules or the filters.
        old: how many of those that the filters choose are left and old (`is_old`), by class.
        jobs: dead jobs that are aborted as a whole, by UUID.
        advice: what the operator may want to do about those that are left, a sentence each.
        unfinished: jobs that a run has aborted and that have leftovers, a sentence each.
    """

    def __init__(
        self,
        found: OpenUploads,
        foreign: bool = False,
        hadoop: bool = False,
        max_aborts: int | None = None,
    ) -> None:
        older_than = found.filters.older_than
        if (foreign or hadoop) and older_than is None:
            raise OptionError(
                "uploads of other programs and of Hadoop are aborted from an age only: nothing else"
                " tells that they leak",
                hint="Give older_than (--older-than 7d)",
            )
        self._limit = LEFTOVER_AFTER_SECONDS if older_than is None else older_than
        self._others = foreign, hadoop
        self._found, self._survey, self._runtime = found, found.survey, found.survey.runtime
        self._remover = UploadRemover(self._runtime)
        self._done = 0
        self.chosen: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.old: Counter[str] = Counter()
        self.jobs: dict[str, DeadJob] = {}
        self.advice: dict[str, None] = {}
        self.unfinished: list[str] = []
        self._named = KeySet()  # chosen, and not of a dead job
        for one in chain.from_iterable(self._survey.pages()):
            self._count(one)
        self._drop_partial()
        for job in self.jobs.values():
            self.chosen["over"] += len(job.chosen)
        if max_aborts is not None and self.chosen.total() > max_aborts:
            raise MagicError(
                f"{self.chosen.total():,} uploads are to be aborted under {self._survey.dest.url}"
                f" ({by_class(self.chosen)}), more than the {max_aborts:,} that are allowed: none"
                " was"
            )

    @property
    def question(self) -> str:
        """What to ask before a run; "" if nothing is to be aborted."""
        if not self.chosen.total():
            return ""
        jobs = [job.id for job in self.jobs.values()]
        dead = f"dead job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} dead jobs"
        also = f", and with them {dead}" if jobs else ""
        what = f"{self.chosen.total():,} uploads under {self._survey.dest.url}"
        return f"Abort {what} ({by_class(self.chosen)}){also}?"

    def _count(self, found: FoundUpload) -> None:
        dest, filters = self._survey.dest, self._found.filters
        undecided = found.job_state in UNDECIDED_OR_UNDONE
        # Has a job that looked dead begun an upload since ("unknown"), it is not dead.
        if undecided and found.owner_class in ("over", "unknown"):
            new = DeadJob(found.job, found.uuid, found.dest)
            self.jobs.setdefault(found.uuid, new).seen += 1
        elif found.owner_class == "over" and found.job_state != State.CLOSED:
            where = url_of(dest.bucket, found.dest)
            self.advice[f"job {found.job} under {where} is {found.job_state}: recover it"] = None
        if not filters.fits(found, dest):
            self.left[found.owner_class] += 1
        elif not deed(found, self._limit, *self._others)[0]:
            self.left[found.owner_class] += 1
            self.old[found.owner_class] += is_old(found, filters.old_from)
        elif _of_dead_job(found):
            self.jobs[found.uuid].chosen.append(found)
        else:
            self.chosen[found.owner_class] += 1
            self._named.add(upload_name(found.key, found.upload_id))

    def _drop_partial(self) -> None:
        """Leave the dead jobs if only a part of them is meant."""
        scope = self._survey.dest
        for uuid, job in list(self.jobs.items()):
            whole = job.dest.startswith(scope.prefix)
            if whole and len(job.chosen) == job.seen:
                continue
            del self.jobs[uuid]
            self.left["over"] += len(job.chosen)
            if job.chosen:
                why = (
                    f"{job.seen - len(job.chosen)} of its {counted_are(job.seen, 'upload')} not"
                    " meant, and it is aborted as a whole or not at all"
                    if whole
                    else "it lies above the path, and is aborted as a whole or not at all"
                )
                where = url_of(scope.bucket, job.dest)
                self.advice[f"dead job {job.id} under {where}: {why}: recover it"] = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the rows of the plan: the uploads that it would abort, looked at each time."""
        return (one.to_dict() for one in self.run(dry_run=True))

    def finish(self) -> AbortedUploads:
        """Run the plan, and count what became of the uploads."""
        counts: Counter[str] = Counter()
        stays: list[FoundUpload] = []
        for found, action, why in self.run():
            counts[action] += 1
            if action == "left" and len(stays) < NAMED_MAX:
                stays.append(replace(found, note=why))
        numbers = counts["aborted"], counts["gone"], counts["left"]
        return AbortedUploads(*numbers, tuple(stays), tuple(self.unfinished))

    def run(self, *, dry_run: bool = False) -> Iterator[Cleared]:
        """Abort the chosen uploads, and no others, while the result is iterated; with ``dry_run``
        change nothing, and say ``would abort``. Repeatable. A failure with one of them is ``left``;
        StoreError: they could not be listed."""
        self._done = 0
        for job in self.jobs.values():
            yield from self._some(job.chosen, job, dry_run)
        for page in self._survey.pages():
            meant = [
                one
                for one in page
                if upload_name(one.key, one.upload_id) in self._named and not _of_dead_job(one)
            ]
            yield from self._some(meant, None, dry_run)

    def _some(
        self, meant: list[FoundUpload], job: DeadJob | None, dry_run: bool
    ) -> Iterator[Cleared]:
        """Abort some uploads; those of a dead job, after the job."""
        in_flight = self._survey.in_flight
        chosen = sized(self._runtime, meant, in_flight) if self._found.sizes else meant
        still = {(found.key, found.upload_id) for found in chosen}
        for found in meant:
            if (found.key, found.upload_id) not in still:
                yield Cleared(found, "gone")
        if dry_run:
            yield from (Cleared(found, "would abort") for found in chosen)
        elif job is not None and (why := self._abort_job(job)):
            yield from (Cleared(found, "left", why) for found in chosen)
        else:
            for cleared in self._each(chosen, job):
                self._done += 1
                told = Progress("abort", self._done, self.chosen.total(), "uploads")
                self._runtime.progress(told)
                yield cleared

    def _abort_job(self, job: DeadJob) -> str:
        """Abort a dead job, if it is still dead and not decided to commit; why not otherwise."""
        job.ours = job.swept = False
        try:
            dest = Destination(self._survey.dest.bucket, job.dest)
            seen = register.read(self._runtime, JobPaths(dest, job.id).record)
            if seen is None or seen.record.uuid != job.uuid or seen.record.state is State.CLOSED:
                return ""  # ended by another process meanwhile
            if seen.record.state not in UNDECIDED_OR_UNDONE:
                return f"its job is {seen.record.state}"
            age = Listing(self._runtime, *seen.record.paths(dest).directories).to_end().age
            if seen.record.state is State.RUNNING and age < self._survey.dead_after:
                return f"its job lives: it changed {age_words(age)} ago"
            committer = MagicCommitter.found(self._runtime, dest, seen, self._found.options)
            report = committer.abort_job(role="recovery")
        except MagicError as error:
            return f"its job could not be aborted: {error.message}"
        job.ours, job.swept = True, report.state in (State.CLOSED, State.ABSENT)
        if not job.swept:
            why = f": {report.warnings[0]}" if report.warnings else ""
            self.unfinished.append(f"job {job.id} is still {report.state}{why}")
        return ""

    def _each(self, chosen: list[FoundUpload], job: DeadJob | None) -> Iterator[Cleared]:
        runtime, in_flight = self._runtime, self._survey.in_flight
        works = (
            (one, partial(self._clearing, one, job))
            for one in chosen
            if one.owner_class != "hadoop"
        )
        with closing(requests.each(runtime, works, in_flight=in_flight)) as ended:
            for _, cleared in ended:
                yield cleared
        # By verbs: the record of its job is read in between, and a batch waits for no such read.
        outcomes = runtime.pool.each(
            lambda found: requests.by_verbs(runtime, self._clearing(found, job)),
            (found for found in chosen if found.owner_class == "hadoop"),
            in_flight=in_flight,
        )
        with closing(outcomes):
            for outcome in outcomes:
                yield outcome.unwrap()

    def _clearing(
        self, found: FoundUpload, job: DeadJob | None, aborted: bool = False
    ) -> requests.Steps[Cleared]:
        """Look for one upload again; abort it, if it is still open and still old enough. Raises no
        `MagicError`. ``job``: its dead job, which has just been aborted. ``aborted``: an earlier
        try has found it open, and its abort may have taken effect."""
        name = UploadName(found.key, found.upload_id, found.token, found.multipart_etag)
        try:
            page: UploadPage = yield FindUpload(found.key, found.upload_id)
            if not page.uploads:
                return (yield from self._not_listed(found, name, job, aborted))
            began = page.uploads[0].initiated
            seen = None if began is None else age_of(page.seen_at, began)
            age = replace(found, age=seen).limit_age
            limit = self._limit
            if limit and (age is None or age < limit):
                return Cleared(found, "left", f"it is younger than {age_words(limit)} by now")
            if found.owner_class == "hadoop" and self._was_adopted(found):
                return Cleared(found, "left", "its job has been adopted meanwhile")
        except MagicError as error:
            return Cleared(found, "left", error.message)
        removed = yield from self._remover.removing(name, aborted=aborted)
        match removed.removal:
            case Removal.ABORTED:
                return Cleared(found, "aborted")
            case Removal.LEFT:
                return Cleared(found, "left", removed.why)
            case Removal.VISIBLE:
                why = "it was completed: the object there is what it became"
            case Removal.GONE:
                why = "a listing shows it, and its parts are gone"
        return Cleared(found, "gone", why)

    def _not_listed(
        self, found: FoundUpload, name: UploadName, job: DeadJob | None, aborted: bool
    ) -> requests.Steps[Cleared]:
        look = yield from looking(self._runtime, name)
        if look.state is UploadState.OPEN:
            return Cleared(found, "left", "no listing shows it, but its parts are there")
        if look.ended or (job is not None and job.swept):
            by_us = aborted and look.state is not UploadState.VISIBLE
            ours = by_us or (job is not None and job.ours)
            return Cleared(found, "aborted" if ours else "gone")
        return Cleared(found, "left", f"no listing shows it, and no more can be told: {look.error}")

    def _was_adopted(self, found: FoundUpload) -> bool:
        """Whether the job of one of Hadoop's uploads now has a record that is not closed."""
        try:
            paths = JobPaths(Destination(self._survey.dest.bucket, found.dest), found.job)
        except PathError:
            return False  # no job of ours can have that id
        seen = register.read(self._runtime, paths.record)
        return seen is not None and seen.record.state is not State.CLOSED


def _of_dead_job(found: FoundUpload) -> bool:
    """Whether an upload is removed by the abort of its dead job."""
    return found.owner_class == "over" and found.job_state in UNDECIDED_OR_UNDONE


def by_class(counts: Mapping[str, int]) -> str:
    """``"orphan 3, over 2"``. Pure."""
    return ", ".join(f"{name} {counts[name]:,}" for name in CLASSES if counts.get(name))

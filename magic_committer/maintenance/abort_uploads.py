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
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

from magic_committer._quantities import age_words, counted_are
from magic_committer._runtime import Progress
from magic_committer.commit import records, steps
from magic_committer.commit.ready import upload_name
from magic_committer.commit.upload_state import (
    Removal,
    Removed,
    UploadName,
    UploadRemover,
    UploadState,
    looking,
)
from magic_committer.errors import MagicError, PathError
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.inspect import Listing
from magic_committer.maintenance.recover import abort_job
from magic_committer.maintenance.reports import age_of
from magic_committer.maintenance.uploads import (
    ABORTED,
    Filters,
    FoundUpload,
    Rules,
    Survey,
    deed,
    sized,
)
from magic_committer.options import Options
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import State
from magic_committer.stores.base import FindUpload, UploadPage

UNDECIDED_OR_UNDONE = frozenset({State.RUNNING, *ABORTED})
"""In these states a dead job is aborted or swept, and no data object is touched."""

Action = Literal["aborted", "would abort", "gone", "left"]
"""``gone``: it had ended before its turn came. ``left``: `Cleared.why` says why."""


@dataclass(frozen=True, slots=True)
class Cleared:
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
    """A dead job with uploads in the scope.

    Attributes:
        seen: how many of its uploads were found.
        chosen: its uploads that are to be aborted.
    """

    id: str
    uuid: str
    dest: str
    seen: int = 0
    chosen: list[FoundUpload] = field(default_factory=list)


@dataclass(slots=True)
class ClearingPlan:
    """What a run would do.

    Attributes:
        chosen: how many uploads are to be aborted, by class.
        left: how many uploads are not, by class: because of the rules or the filters.
        named: the uploads to be aborted that do not belong to a dead job.
        bytes: of those to be aborted, as far as known; 0 without sizes.
        jobs: dead jobs that are aborted as a whole, by UUID.
        advice: what the operator may want to do about those that are left, a sentence each.
    """

    chosen: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    named: KeySet = field(default_factory=KeySet)
    bytes: int = 0
    jobs: dict[str, DeadJob] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)

    @property
    def uploads(self) -> int:
        """How many uploads are to be aborted."""
        return self.chosen.total()


def no_uploads(_: list[FoundUpload]) -> None:
    """Look at none of them."""


class Clearing:
    """One clean-up of the open uploads under a scope.

    Args:
        filters: which uploads are meant.
        rules: which of them may be aborted.
        sizes: ask for parts and bytes of each upload before its abort.
    """

    def __init__(
        self,
        survey: Survey,
        filters: Filters,
        rules: Rules,
        *,
        options: Options,
        sizes: bool = True,
    ) -> None:
        self._survey = survey
        self._runtime = survey.runtime
        self._filters = filters
        self._rules = rules
        self._options = options
        self._sizes = sizes
        self._total = self._done = 0
        self._remover = UploadRemover(survey.runtime)
        self.unfinished: list[str] = []
        """Jobs that were aborted and have leftovers, a sentence each."""

    # Planning -------------------------------------------------------------------------------------

    def plan(
        self, *, sizes: bool = False, left: Callable[[list[FoundUpload]], None] = no_uploads
    ) -> ClearingPlan:
        """Look at all uploads. Changes nothing.

        Args:
            sizes: add up bytes too.
            left: is called for each page with the uploads that the filters choose and the rules
                leave.

        Raises:
            StoreError: the uploads could not be listed.
        """
        plan = ClearingPlan()
        to_recover: set[tuple[str, str, str]] = set()
        for page in self._survey.pages():
            chosen, spared = [], []
            for found in page:
                of_dead_job = _of_dead_job(found)
                if of_dead_job or _began_meanwhile(found):
                    new = DeadJob(found.job, found.uuid, found.dest)
                    plan.jobs.setdefault(found.uuid, new).seen += 1
                elif found.owner_class == "over" and found.job_state != State.CLOSED:
                    to_recover.add((found.job, found.job_state, found.dest))
                if not self._means(found):
                    plan.left[found.owner_class] += 1
                    if self._filters.fits(found, self._survey.scope):
                        spared.append(found)
                elif of_dead_job:
                    plan.jobs[found.uuid].chosen.append(found)
                else:
                    chosen.append(found)
                    plan.named.add(upload_name(found.key, found.upload_id))
            self._count(plan, chosen, sizes)
            left(spared)
        self._drop_partial(plan)
        for job in plan.jobs.values():
            self._count(plan, job.chosen, sizes)
        bucket = self._survey.scope.bucket
        for name, state, dest in sorted(to_recover):
            plan.advice.append(f"job {name} under s3://{bucket}/{dest} is {state}: recover it")
        return plan

    def _means(self, found: FoundUpload) -> bool:
        """Whether filters and rules allow to abort an upload, alone or with its dead job."""
        return (
            self._filters.fits(found, self._survey.scope) and deed(found, self._rules)[0] != "leave"
        )

    def _count(self, plan: ClearingPlan, chosen: list[FoundUpload], sizes: bool) -> int:
        counted = self._sized(chosen) if sizes else chosen
        for found in counted:
            plan.chosen[found.owner_class] += 1
            plan.bytes += found.bytes or 0
        return len(counted)

    def _drop_partial(self, plan: ClearingPlan) -> None:
        """Leave the dead jobs if only a part of them is meant."""
        scope = self._survey.scope
        for uuid, job in list(plan.jobs.items()):
            whole = job.dest.startswith(scope.prefix)
            if whole and len(job.chosen) == job.seen:
                continue
            del plan.jobs[uuid]
            plan.left["over"] += len(job.chosen)
            if job.chosen:
                why = (
                    f"{job.seen - len(job.chosen)} of its {counted_are(job.seen, 'upload')} not"
                    " meant, and it is aborted as a whole or not at all"
                    if whole
                    else "it lies above the path, and is aborted as a whole or not at all"
                )
                where = f"s3://{scope.bucket}/{job.dest}"
                plan.advice.append(f"dead job {job.id} under {where}: {why}: recover it")

    def _sized(self, page: list[FoundUpload]) -> list[FoundUpload]:
        if not self._sizes:
            return page
        return sized(self._runtime, page, self._survey.in_flight)

    # Doing ----------------------------------------------------------------------------------------

    def run(self, plan: ClearingPlan, *, dry_run: bool = False) -> Iterator[Cleared]:
        """Abort the uploads that the plan names, and no others. Works while the result is iterated.
        Repeatable.

        Args:
            plan: what `plan` gave.
            dry_run: change nothing; say ``would abort``.

        Raises:
            StoreError: the uploads could not be listed. A failure with one of them is ``left``.
        """
        self._total, self._done = plan.uploads, 0
        for job in plan.jobs.values():
            chosen, gone = self._still_open(job.chosen)
            yield from gone
            if dry_run:
                yield from (Cleared(found, "would abort") for found in chosen)
                continue
            ended = self._abort_job(job)
            if ended.why:
                yield from (Cleared(found, "left", ended.why) for found in chosen)
            else:
                yield from self._each(chosen, ended)
        for page in self._survey.pages():
            meant = [
                one
                for one in page
                if upload_name(one.key, one.upload_id) in plan.named and not _of_dead_job(one)
            ]
            chosen, gone = self._still_open(meant)
            yield from gone
            if dry_run:
                yield from (Cleared(found, "would abort") for found in chosen)
            else:
                yield from self._each(chosen)

    def _still_open(self, page: list[FoundUpload]) -> tuple[list[FoundUpload], list[Cleared]]:
        """The uploads with their sizes, and those that have ended meanwhile."""
        chosen = self._sized(page)
        names = {(found.key, found.upload_id) for found in chosen}
        ended = [found for found in page if (found.key, found.upload_id) not in names]
        return chosen, [Cleared(found, "gone") for found in ended]

    def _abort_job(self, job: DeadJob) -> _Ended:
        """Abort a dead job, if it is still dead and not decided to commit."""
        try:
            dest = Destination(self._survey.scope.bucket, job.dest)
            seen = records.read(self._runtime, JobPaths(dest, job.id).record)
            if seen is None or seen.record.uuid != job.uuid or seen.record.state is State.CLOSED:
                return _Ended(by_us=False)  # meanwhile
            if seen.record.state not in UNDECIDED_OR_UNDONE:
                return _Ended(why=f"its job is {seen.record.state}")
            age = Listing(self._runtime, *seen.record.paths(dest).directories).to_end().age
            if seen.record.state is State.RUNNING and age < self._survey.dead_after:
                return _Ended(why=f"its job lives: it changed {age_words(age)} ago")
            report = abort_job(self._runtime, dest, seen, revert=False, options=self._options)
            swept = report.state in (State.CLOSED, State.ABSENT)
            if not swept:
                why = f": {report.warnings[0]}" if report.warnings else ""
                self.unfinished.append(f"job {job.id} is still {report.state}{why}")
        except MagicError as error:
            return _Ended(why=f"its job could not be aborted: {error.message}")
        return _Ended(by_us=True, swept=swept)

    def _each(self, chosen: list[FoundUpload], by: _Ended | None = None) -> Iterator[Cleared]:
        by = by or _Ended()
        works = (
            (found, self._to_clear(found, by)) for found in chosen if found.owner_class != "hadoop"
        )
        with closing(steps.each(self._runtime, works, in_flight=self._survey.in_flight)) as ended:
            for _, cleared in ended:
                yield self._told(cleared)
        # By verbs: the record of its job is read in between, and a batch waits for no such read.
        outcomes = self._runtime.pool.each(
            lambda found: steps.by_verbs(self._runtime, self._clearing(found, by)),
            (found for found in chosen if found.owner_class == "hadoop"),
            in_flight=self._survey.in_flight,
        )
        with closing(outcomes):
            for outcome in outcomes:
                yield self._told(outcome.unwrap())

    def _told(self, cleared: Cleared) -> Cleared:
        self._done += 1
        self._runtime.progress(Progress("abort", self._done, self._total, "uploads"))
        return cleared

    def _to_clear(self, found: FoundUpload, by: _Ended) -> steps.Start[Cleared]:
        """`_clearing`, to be begun by `steps.each`."""
        return lambda again: self._clearing(found, by, aborted=again)

    def _clearing(
        self, found: FoundUpload, by: _Ended, *, aborted: bool = False
    ) -> steps.Steps[Cleared]:
        """Look for one upload again; abort it, if it is still open and still old enough. Raises no
        `MagicError`.

        Args:
            found: the upload.
            by: how its job was just aborted. A successful abort of the job has removed the upload.
            aborted: an earlier try has found it open, and its abort may have taken effect.
        """
        try:
            page: UploadPage = yield FindUpload(found.key, found.upload_id)
            if not page.uploads:
                return (yield from self._not_listed(found, by, aborted))
            age = _age_on(page, found)
            limit = self._rules.older_than
            if limit and (age is None or age < limit):
                return Cleared(found, "left", f"it is younger than {age_words(limit)} by now")
            if found.owner_class == "hadoop" and self._was_adopted(found):
                return Cleared(found, "left", "its job has been adopted meanwhile")
        except MagicError as error:
            return Cleared(found, "left", error.message)
        removing = self._remover.removing(_name_of(found), aborted=aborted)
        return _cleared(found, (yield from removing))

    def _not_listed(self, found: FoundUpload, by: _Ended, aborted: bool) -> steps.Steps[Cleared]:
        look = yield from looking(self._runtime, _name_of(found))
        if look.state is UploadState.OPEN:
            return Cleared(found, "left", "no listing shows it, but its parts are there")
        if look.ended or by.swept:
            ours = by.by_us or (aborted and look.state is not UploadState.VISIBLE)
            return Cleared(found, "aborted" if ours else "gone")
        return Cleared(found, "left", f"no listing shows it, and no more can be told: {look.error}")

    def _was_adopted(self, found: FoundUpload) -> bool:
        """Whether the job of one of Hadoop's uploads now has a record that is not closed."""
        try:
            paths = JobPaths(Destination(self._survey.scope.bucket, found.dest), found.job)
        except PathError:
            return False  # no job of ours can have that id
        seen = records.read(self._runtime, paths.record)
        return seen is not None and seen.record.state is not State.CLOSED


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a dead job ended: by us, or by another process meanwhile; or why it did not. ``swept``:
    its sweep has proved that all its uploads are gone."""

    by_us: bool = False
    swept: bool = False
    why: str = ""


def _age_on(page: UploadPage, found: FoundUpload) -> float | None:
    """The age for the limits, as a page with the upload tells it. Pure."""
    (upload,) = page.uploads
    began = upload.initiated
    age = found.named_age if began is None else age_of(page.seen_at, began)
    return age if age is None or found.job_age is None else min(age, found.job_age)


def _name_of(found: FoundUpload) -> UploadName:
    return UploadName(found.key, found.upload_id, found.token, found.multipart_etag)


def _cleared(found: FoundUpload, removed: Removed) -> Cleared:
    """What is told of a removal. Pure."""
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


def _of_dead_job(found: FoundUpload) -> bool:
    """Whether an upload is removed by the abort of its dead job."""
    return found.owner_class == "over" and found.job_state in UNDECIDED_OR_UNDONE


def _began_meanwhile(found: FoundUpload) -> bool:
    """Whether a job that looked dead has begun an upload since: then it is not dead."""
    return found.owner_class == "unknown" and found.job_state in UNDECIDED_OR_UNDONE

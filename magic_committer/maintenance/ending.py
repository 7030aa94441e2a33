"""How a job ends from outside: what is asked, what is refused, and what is then done.

Each verb first gives an `ActionPlan`: the job was found and looked at, what may be refused was
refused, and the question says in exact numbers what will be done. Nothing is changed until the plan
runs.

* A job with a record ends as the record says. Nothing is guessed from what is visible, and every
  step that changes the record is a swap. So recovery may run beside the driver, beside another
  recovery, and again after a crash: the slower process obeys. Only for a running job somebody must
  judge whether its driver is dead: by age.
* A Hadoop job has no record. Its ending needs the operator's word that its JVM is dead (``adopt``);
  the job then gets a record, and is one like all others (`magic_committer.maintenance.adopt`).
* A job that can be neither finished nor undone is given up
  (`magic_committer.maintenance.giving_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from magic_committer._quantities import age_words, counted, name_some, pending_words
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.outcome import committed_by_marker, dead, ended_by_record, outcome_of
from magic_committer.commit.prepare import ACCEPT_EACH, Prospect
from magic_committer.commit.published import refuse_if_published
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import (
    AlreadyVisible,
    CommitRefused,
    FormatError,
    InvalidRequest,
    JobError,
    JobExists,
    JobNotFound,
    JobNotRunning,
    MagicError,
    OptionError,
    OutcomeUnknown,
)
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.adopt import adopt_job, started_of
from magic_committer.maintenance.giving_up import UNREADABLE, give_up_job
from magic_committer.maintenance.inspect import (
    Listing,
    PlanProgress,
    inspect_job,
    job_ids,
    progress_of,
    would_do,
)
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    ActionPlan,
    Adoption,
    FoundJob,
    GivenUp,
    Recovery,
    refuse_younger,
)
from magic_committer.options import FAILING, Options
from magic_committer.protocol.record import JobReport, StartedJob, State, Terms
from magic_committer.remedy import DEAD_AFTER, Call, Remedy
from magic_committer.upload import BlockSource

T = TypeVar("T")

LOOKS_MAX = 4
"""How often the record is read again because another process has moved it on. There are no more
arrows from ``running`` to its end."""

NAMED_MAX = 10
"""Ids that are named to who asks for a job that is not there."""
PROBLEMS_MAX = 5
"""Problems of a job that cannot be committed, and keys of one that is given up, that are named."""
WRITTEN_OVER = (
    "What the job has written over does not come back: where a file of it is visible at a key that"
    " held another object before, undoing deletes the file, and the old object is gone."
)
"""Said before a job is undone that was free to write over objects."""
ADOPTING = ("commit", "abort", "recover")
"""The calls that adopt a Hadoop job on the operator's word."""


@dataclass(slots=True)
class Ending:
    """One job that somebody is about to end. Each verb gives a plan; all of them only read.

    Attributes:
        adopt: the operator's word that a Hadoop job's JVM is dead.
        dead_after: seconds for which nothing of the job must have changed; None: what each verb has
            by default.
        verb: the call that is planned.
        seen: the job's record; None: it has none yet.
        adoption: what will be adopted.
    """

    runtime: Runtime
    dest: Destination
    job_id: str
    options: Options | None = None
    adopt: bool = False
    dead_after: float | None = None
    verb: Call = "abort"
    seen: records.Seen | None = None
    adoption: Adoption | None = None
    _hadoops: bool = False

    def commit(
        self, expect: int | Collection[str] | None = None, accept: Collection[str] = ()
    ) -> ActionPlan[JobReport]:
        """Plan to publish what the job's tasks committed, or to finish it."""

        def run() -> JobReport:
            return self._committer().commit_job(None, expect, accept)

        with self._calling("commit"):
            self._find()
            prospect = None
            if self.adoption is not None and self.adoption.committed:
                question = self._sweep_question()
            elif self.state in (State.RUNNING, State.ABSENT):
                prospect = self._prospect(expect, accept)
                many = pending_words(len(prospect.tasks), prospect.files, prospect.bytes)
                question = f"Commit job {self.job_id}: make visible {many}?"
            elif self.outcome == "committed":
                question = f"Finish job {self.job_id}, which is {self.state}?"
            else:
                assert self.seen is not None
                raise ended_by_record(self.dest.url, self.seen.record)
            return self._plan(question, run, prospect=prospect)

    def abort(self, revert: bool = False, leave_visible: bool = False) -> ActionPlan[JobReport]:
        """Plan to make sure that nothing of the job is visible."""

        def run() -> JobReport:
            return self._committer().abort_job(
                revert=revert, leave_visible=leave_visible, role="recovery"
            )

        with self._calling("abort"):
            self._find()
            reverting = self.state is State.COMMITTING and revert
            if self.outcome == "committed" and not reverting:
                assert self.seen is not None
                raise ended_by_record(self.dest.url, self.seen.record)
            return self._plan(self._abort_question(leave_visible), run, self._loss())

    def recover(
        self, accept: Collection[str] = (), leave_visible: bool = False
    ) -> ActionPlan[Recovery]:
        """Plan to finish the job as it was decided, or to abort it if it was not."""
        limit = DEAD_AFTER_SECONDS if self.dead_after is None else self.dead_after

        def recover(dry_run: bool, dead_after: float = limit) -> Recovery:
            return recover_job(
                self.runtime, self.dest, self.job_id, dead_after=dead_after, accept=accept,
                leave_visible=leave_visible, dry_run=dry_run, options=self.options,
            )  # fmt: skip

        def run() -> Recovery:
            adopted = self.adoption is not None
            self._take()
            return recover(False, 0.0 if adopted else limit)

        with self._calling("recover"):
            try:
                self._find()
            except JobNotFound:
                ended = recover(dry_run=False)
                if ended.outcome != "committed":
                    raise
                return self._plan("", lambda: ended, would=ended.did)
            if self.adoption is not None:
                swept = self.adoption.committed
                question = self._sweep_question() if swept else self._abort_question(leave_visible)
                return self._plan(question, run)
            would = recover(dry_run=True)
            question = f"Job {self.job_id} is {would.state}; {would.did}. Go on?"
            return self._plan(question, run, would=would.did, unresolved=would.unresolved)

    def adopting(self) -> ActionPlan[Adoption]:
        """Plan to give a Hadoop job a record, and to do nothing else."""
        settled = self._settled()
        look = adopt_job(self.runtime, self.dest, self.job_id, dead_after=settled, dry_run=True)

        def run() -> Adoption:
            return adopt_job(
                self.runtime, self.dest, self.job_id, dead_after=settled, options=self.options
            )

        self.adoption, self.verb = look, "adopt"
        return self._plan(f"Adopt job {self.job_id}?", run)

    def give_up(self) -> ActionPlan[GivenUp]:
        """Plan to give up what can be neither finished nor undone."""

        def give_up(dry_run: bool) -> GivenUp:
            return give_up_job(
                self.runtime, self.dest, self.job_id, dead_after=self._settled(),
                dry_run=dry_run, options=self.options,
            )  # fmt: skip

        try:
            look = give_up(dry_run=True)
        except JobNotFound as error:
            raise self._not_found() from error
        over = look.state == State.CLOSED
        question = "" if over else _give_up_question(look)
        would = f"nothing: it was {look.outcome}" if over else "give it up"
        row = {"warning": "", "would": would, "adopt": False, **look.to_dict()}
        return ActionPlan(question, (row,), "", lambda: give_up(dry_run=False))

    def abort_or_give_up(self) -> ActionPlan[JobReport] | ActionPlan[GivenUp]:
        """Plan to end the job whatever its record says: what cannot be undone is left."""
        with (
            self._calling("abort"),
            suppress(FormatError, InvalidRequest),
        ):  # the record cannot be read
            self.seen = records.read(self.runtime, JobPaths(self.dest, self.job_id).record)
        seen = self.seen
        running = seen is not None and seen.record.state is State.RUNNING
        if self.adopt or (running and seen is not None and seen.record.adopted):
            return self.abort(leave_visible=True)
        return self.give_up()

    # Finding --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Of the record."""
        return self.seen.record.state if self.seen is not None else State.ABSENT

    @property
    def outcome(self) -> str:
        """As the record tells it."""
        return outcome_of(self.seen.record) if self.seen is not None else ""

    def _find(self) -> None:
        """Read the record, or look at what would be adopted.

        Raises:
            JobNotFound: with the ids that there are.
            JobError: it is Hadoop's, and nobody said that it is dead; or it cannot be adopted.
        """
        self.seen = records.read(self.runtime, JobPaths(self.dest, self.job_id).record)
        if self.seen is not None:
            return
        self._hadoops = True
        if not self.adopt and (found := self.look()).kind == "hadoop":
            raise JobError(
                f"job {self.job_id!r} is a Hadoop job with"
                f" {pending_words(found.tasks, found.files, found.bytes)}; it changed"
                f" {age_words(found.age)} ago",
                job_id=self.job_id,
                remedies=(
                    self._remedy("show", "look at it first"),
                    self._remedy(self.verb, "if its JVM is dead, adopt it"),
                ),
            )
        try:
            self.adoption = adopt_job(
                self.runtime, self.dest, self.job_id, dead_after=self._settled(), dry_run=True
            )
        except JobNotFound as error:
            raise self._not_found() from error

    def _settled(self) -> float:
        return LEFTOVER_AFTER_SECONDS if self.dead_after is None else self.dead_after

    def look(self) -> FoundJob:
        """What the job's directory holds.

        Raises:
            JobNotFound: there is none; with the ids that there are.
        """
        found = inspect_job(self.runtime, self.dest, self.job_id, DEAD_AFTER_SECONDS)
        if found is None:
            raise self._not_found()
        return found

    def _not_found(self) -> JobNotFound:
        ids = list(job_ids(self.runtime, self.dest))
        return JobNotFound(
            f"there is no job {self.job_id!r} under {self.dest.url}",
            job_id=self.job_id,
            hint=f"There are: {name_some(ids, NAMED_MAX)}" if ids else "There is none at all",
        )

    def _take(self) -> records.Seen:
        """The job's record, after it was adopted if it has to be."""
        if self.adoption is not None:
            adopt_job(
                self.runtime, self.dest, self.job_id,
                dead_after=self._settled(), options=self.options,
            )  # fmt: skip
            self.adoption, self._hadoops = None, False
            self.seen = records.read(self.runtime, JobPaths(self.dest, self.job_id).record)
        if self.seen is None:
            raise self._not_found()
        return self.seen

    def _committer(self) -> MagicCommitter:
        return MagicCommitter.found(self.runtime, self.dest, self._take(), self.options)

    def _job(self) -> StartedJob:
        """The job as its record says, or as it will be."""
        if self.adoption is not None:
            return started_of(self.runtime, self.dest, self.adoption)
        assert self.seen is not None
        return StartedJob.attached(self.seen.record, self.dest.url, self.seen.etag)

    # Questions and refusals -----------------------------------------------------------------------

    def _plan(
        self,
        question: str,
        run: Callable[[], T],
        warning: str = "",
        *,
        would: str = "",
        prospect: Prospect | None = None,
        unresolved: Iterable[str] = (),
    ) -> ActionPlan[T]:
        """The plan, with the job's state as its one row."""

        def calling() -> T:
            with self._calling(self.verb):
                return run()

        if self.adoption is not None:
            older = self.adoption.older()
            warning = (
                f"Job {self.job_id} is Hadoop's and changed {age_words(self.adoption.age)} ago;"
                f" adopt it only if its JVM is dead{older and f'; {older}'}."
            )
        if self.state is State.CLOSED:
            question, warning, would = "", "", f"nothing: it was {self.outcome}"
        row = {
            "job_id": self.job_id,
            "dest": self.dest.url,
            "state": str(self.state),
            "adopt": self.adoption is not None,
            "warning": warning,
            "would": would or question.removesuffix("?"),
            "tasks": prospect and list(prospect.tasks),
            "files": prospect and prospect.files,
            "bytes": prospect and prospect.bytes,
            "unresolved": list(unresolved),
        }
        return ActionPlan(question, (row,), warning, calling)

    def _prospect(self, expect: int | Collection[str] | None, accept: Collection[str]) -> Prospect:
        """What a commit would publish now.

        Raises:
            CommitRefused: something is wrong with the job; nothing was decided.
            JobError: it may not be committed from a listing, or no task has committed.
        """
        job = self._job()
        if job.terms.accept == "results":
            raise JobError(
                f"job {self.job_id!r} can be committed by its driver only: which attempts count was"
                " told to it in messages, and what lies on the store may be cut short",
                job_id=self.job_id,
                remedies=(self._remedy("abort", "if its driver is dead, abort and run it again"),),
            )
        committer = MagicCommitter(self.runtime, job, self.options or Options(), BlockSource())
        found = committer.driver(accept=accept).look(expect)
        if found.problems:
            raise CommitRefused(
                f"job {self.job_id!r} cannot be committed:"
                f" {name_some(found.problems, PROBLEMS_MAX)}",
                job_id=self.job_id,
                problems=found.problems,
                hint=ACCEPT_EACH,
                remedies=(self._remedy("abort", "abort it"),),
            )
        if not found.tasks and expect is None:
            raise JobError(
                f"job {self.job_id!r} has no committed task",
                job_id=self.job_id,
                remedies=(
                    self._remedy("abort", "abort it"),
                    self._remedy("commit", "if it is right that it has none", expect=0),
                ),
            )
        return found

    def _sweep_question(self) -> str:
        return (
            "It has committed: _SUCCESS names it, and stays as it is. Take away what job"
            f" {self.job_id} left?"
        )

    def _abort_question(self, leave_visible: bool) -> str:
        """What to ask before the job is aborted or undone.

        Raises:
            JobError: Hadoop has committed it, wholly or (`AlreadyVisible`) in part.
        """
        if self.adoption is not None and self.adoption.committed:
            raise JobError(
                f"job {self.job_id!r} has committed: _SUCCESS names it, so there is nothing to"
                " abort",
                job_id=self.job_id,
                remedies=(self._remedy("commit", "take away what it left"),),
            )
        undecided = self.state in (State.RUNNING, State.ABSENT)
        if not undecided and self.state is not State.COMMITTING:
            return f"Finish undoing job {self.job_id}, which is {self.state}?"
        stays = self._stays(leave_visible) if undecided else ""
        found = self.look()
        if not undecided:
            return (
                f"Undo job {self.job_id}, which is committing: abort its uploads, and delete"
                f" {found.visible} of its {counted(found.files, 'file')} that are visible?"
            )
        changed = f", which runs and changed {age_words(found.age)} ago" if self.seen else ""
        many = pending_words(found.tasks, found.files, found.bytes)
        return f"Abort job {self.job_id}{changed}: {many}{stays and f'; {stays}'}?"

    def _stays(self, leave_visible: bool) -> str:
        """What an abort leaves visible; only of a Hadoop job there is something."""
        job = self._job()
        if not job.adopted:
            return ""
        threads = (self.options or Options()).commit_threads
        return refuse_if_published(self.runtime, job, threads, leave_visible=leave_visible)

    def _loss(self) -> str:
        """What is said before a decided job is undone; "" if it could write over nothing."""
        if self.seen is None or self.state not in (State.COMMITTING, State.REVERTING):
            return ""
        return "" if self.seen.record.terms.mode in FAILING else WRITTEN_OVER

    # Remedies -------------------------------------------------------------------------------------

    def _remedy(self, call: Call, why: str, **options: object) -> Remedy:
        return Remedy(call, self.dest.url, self.job_id, why, options)

    @contextmanager
    def _calling(self, verb: Call) -> Iterator[None]:
        """Around a plan and its run: the remedies of errors adopt a Hadoop job, as this call
        does."""
        self.verb = verb
        try:
            yield
        except JobExists as error:  # another process was faster in adopting it
            error.remedies = (self._remedy(verb, "run this again"),)
            raise
        except JobError as error:
            error.remedies = tuple(map(self._adopting, error.remedies))
            raise

    def _adopting(self, remedy: Remedy) -> Remedy:
        adopt: dict[str, object] = {"adopt": True}
        if remedy.call == "adopt":
            return replace(remedy, call=self.verb, options={**adopt, **remedy.options})
        if not self._hadoops or remedy.call not in ADOPTING or remedy.job_id != self.job_id:
            return remedy
        if self.dead_after is not None:
            adopt[DEAD_AFTER] = self.dead_after
        return replace(remedy, options={**adopt, **remedy.options})


def _give_up_question(look: GivenUp) -> str:
    """What is given up, before it is. Pure."""
    is_open = f"{counted(look.open, 'upload')} of it {'is' if look.open == 1 else 'are'} open"
    visible = f"{counted(look.visible_files, 'file')} of it visible"
    if look.visible:
        visible += f" ({name_some(look.visible, PROBLEMS_MAX)})"
    first = f"Give up job {look.job_id}, which is {look.found}? {is_open}, {visible}."
    after = "Then its record is deleted, and nobody can finish or undo the job any more. Go on?"
    if look.found == State.COMPLETED:
        fate = (
            "Its files stay. What it replaces may stay too, and _SUCCESS be missing. Open uploads"
            " are aborted."
        )
    elif look.found == UNREADABLE:
        fate = (
            f"Its record cannot be read: {look.why}. What is visible stays; open uploads are"
            " aborted."
        )
    else:
        fate = (
            "First it is undone: open uploads are aborted, and what is visible of a committing job"
            " is deleted; what was written over does not come back. If that cannot be done wholly,"
            " the rest stays as it is."
        )
    return f"{first} {fate} {after}"


# Recovery -----------------------------------------------------------------------------------------


def recover_job(
    runtime: Runtime,
    dest: Destination,
    job_id: str,
    *,
    dead_after: float,
    accept: Collection[str] = (),
    leave_visible: bool = False,
    dry_run: bool = False,
    options: Options | None = None,
) -> Recovery:
    """Finish or undo one job; see `magic_committer.recover`. ``dead_after`` is in seconds."""
    if isinstance(accept, str):
        raise OptionError("accept is a list of keys, not one key")
    key = JobPaths(dest, job_id).record
    found = ""
    last: MagicError | None = None
    for _ in range(LOOKS_MAX):
        seen = records.read(runtime, key)
        if seen is None:
            return _absent(runtime, dest, job_id, found, dry_run)
        state = seen.record.state
        found = found or str(state)
        recovery = Recovery(
            job_id=job_id,
            dest=dest.url,
            found=found,
            state=str(state),
            outcome=outcome_of(seen.record),
            did=would_do(seen.record, 0.0, 0.0),
            uuid=seen.record.uuid,
            dry_run=dry_run,
        )
        if state is State.CLOSED:
            return recovery
        if state is State.RUNNING:
            _refuse_young(runtime, dest, seen, dead_after, leave_visible)
        if dry_run:
            return _planned(runtime, dest, seen, recovery, accept, leave_visible)
        committer = MagicCommitter.found(runtime, dest, seen, options)
        try:
            driver = committer.driver("recovery", accept)
            report = driver.settle(seen.record.state, leave_visible=leave_visible)
        except (JobNotRunning, OutcomeUnknown) as error:
            last = error  # another process moved it on: look again
            continue
        return replace(recovery, state=report.state, outcome=report.outcome, report=report)
    assert last is not None
    raise last


def _refuse_young(
    runtime: Runtime,
    dest: Destination,
    seen: records.Seen,
    dead_after: float,
    leave_visible: bool,
) -> None:
    age = Listing(runtime, *seen.record.paths(dest).directories).to_end().age
    stays = {"leave_visible": True} if leave_visible else {}
    ways = dead(dest.url, seen.record.id, **stays)
    refuse_younger(seen.record.id, age, dead_after, "it is running, and may be alive", *ways)


def _planned(
    runtime: Runtime,
    dest: Destination,
    seen: records.Seen,
    recovery: Recovery,
    accept: Collection[str],
    leave_visible: bool,
) -> Recovery:
    """What would be done, in more detail. Only reads."""
    if seen.record.state is State.RUNNING and seen.record.adopted:
        job = StartedJob.attached(seen.record, dest.url, seen.etag)
        try:
            in_flight = Options().commit_threads
            stays = refuse_if_published(runtime, job, in_flight, leave_visible=leave_visible)
        except AlreadyVisible as error:
            return replace(recovery, did=f"nothing: {error.message}")
        return replace(recovery, did=f"{recovery.did}; {stays}") if stays else recovery
    if seen.record.state is not State.COMMITTING:
        return recovery
    progress: PlanProgress = progress_of(runtime, dest, seen)
    unresolved = tuple(key for key in progress.missing_keys if key not in accept)
    progress.missing -= len(progress.missing_keys) - len(unresolved)
    did = would_do(seen.record, 0.0, 0.0, progress)
    return replace(recovery, did=did, unresolved=unresolved)


def _absent(
    runtime: Runtime, dest: Destination, job_id: str, found: str, dry_run: bool
) -> Recovery:
    """The outcome without a record: "unknown", unless the marker tells (I10). A drawn id is the
    job's UUID."""
    job = StartedJob(job_id, job_id, dest.url, Terms(), False, "", False)
    committed = committed_by_marker(runtime, job)
    return Recovery(
        job_id=job_id,
        dest=dest.url,
        found=found or str(State.ABSENT),
        state=str(State.ABSENT),
        outcome="committed" if committed else "",
        did="nothing: it has committed and is finished"
        if committed
        else "nothing: there is no record of it; it may have ended, either way, or never been",
        dry_run=dry_run,
    )

"""How a job ends from outside: the question, the refusals, and what is then done.

Each verb first gives an `ActionPlan`: the job was found and looked at, what may be refused was
refused, and the question says in exact numbers what will be done. Nothing is changed until the plan
runs.

* A job with a record ends as the record says. Nothing is guessed from what is visible, and every
  step that changes the record is a swap. So recovery may run beside the driver, beside another
  recovery, and again after a crash: the slower process obeys. Only for a running job somebody must
  judge whether its driver is dead: by age.
* A Hadoop job has no record. Its ending needs the operator's word that its JVM is dead (``adopt``);
  the job then gets a record, and is one like all others.
* A job that can be neither finished nor undone is given up: the way out for every record.

**To adopt** a Hadoop job is to give it a record. Hadoop's magic committer keeps none: only another
driver of the same job can commit or abort what a dead job left, and this driver forgets what it did
when it dies. With a record the decision is one swap, and anyone can finish it (docs/recovery.md).
Invariants:

* **The operator must say that the job's JVM is dead**: nothing on the store can tell. A JVM that
  lives may complete or abort uploads that we do not know of (no I3). Cleanup never adopts.
* **A directory with a token of ours on any object is never adopted**: it looks like a Hadoop job,
  but is litter of a job of ours, and a late write of a zombie would be published
  (counterexamples.md, #5). A zombie that writes after the look changes nothing either: for an
  adopted job only objects without a token are committed, aborted or deleted (`StartedJob.owns`).
* Adopting touches nothing of Hadoop's, even if it fails. The store is proved before, on a job of
  its own that is deleted at once. The record is one PUT ``If-None-Match``.
* The record names the application attempt whose pendingsets count: the newest one that has any.
  Hadoop commits only the pendingsets of its own attempt (3.3.6 and later; before, all attempts
  shared one directory). The sweep aborts what the other attempts left.
* **What Hadoop decided stays decided.** A job that `_SUCCESS` names has committed: its record says
  ``completed`` from the start, so nobody can abort it. Only the sweep is left to do; Hadoop's
  `_SUCCESS` stays. The plan that this record names was never stored; every job whose sweep has
  begun looks like this. If only some files of a job are visible, an abort is refused
  (`magic_committer.commit.revert`).

**To give a job up** is to abort or undo it in the usual way first. Only what that leaves is given
up: uploads that cannot be aborted, files that cannot be deleted, a plan that is gone, a record that
nobody can read. Each is named in the report. The job's control objects are deleted, its record
last. Afterwards the answer to every question about the job is "unknown" (I10). Invariants:

* Nothing is touched except two things: what the job's own directory names below the destination,
  with a token of this job; and uploads whose names carry its UUID, if no other record has that
  UUID.
* Files of a ``completed`` job are never deleted: the job may have deleted what they replace (I7).
  Files of a job whose record cannot be read are not deleted either, because it may be such a job.
* A live driver loses nothing that was confirmed to it. A readable record says ``aborting``,
  ``reverting``, ``reverted`` or ``completed`` before anything is given up. An unreadable record is
  first replaced by a *claim*, if it is still the one that was looked at: from then on no swap wins,
  and every task finds that it is late. A record is deleted only after it was replaced by a claim,
  so a store without conditional DELETE is enough. Before the claim a DELETE of a key that nobody
  has asks for the right: who may not delete would leave a record that nobody can read.
* Repeatable after any crash: the record goes last, and a claim can be given up like any other
  record.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import orjson
from msgspec import structs

from magic_committer.commit import outcome, probe, register, requests
from magic_committer.commit.driver import Driver
from magic_committer.commit.gather import ACCEPT_EACH, Prospect
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.revert import (
    committed_by_hadoop,
    delete_if_same,
    refuse_if_published,
)
from magic_committer.commit.sets import ReadyUpload, from_pending
from magic_committer.commit.stream import publish_batch
from magic_committer.commit.sweep import job_records
from magic_committer.commit.uploads import (
    Removal,
    Removed,
    UploadLook,
    became,
    looking,
    object_at,
    to_remove,
)
from magic_committer.committers.base import as_agreed, driver_of
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import (
    AbortIncomplete,
    AlreadyVisible,
    CommitIncomplete,
    CommitRefused,
    Decider,
    FormatError,
    InvalidRequest,
    JobError,
    JobExists,
    JobNotFound,
    JobNotRunning,
    JobReport,
    MagicError,
    NotFound,
    NotSupported,
    OptionError,
    OutcomeUnknown,
    PathError,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.errors.messages import (
    DEAD_AFTER,
    ENDED_OR_NEVER,
    NAMED_MAX,
    Call,
    Remedy,
    age_words,
    counted,
    name_some,
    pending_words,
)
from magic_committer.hadoop.paths import (
    JOB_PREFIX,
    MAGIC_JOB_PREFIX,
    PENDINGSET_SUFFIX,
    PLAN_PREFIX,
    Destination,
    JobPaths,
    owner_of,
)
from magic_committer.maintenance import inspect
from magic_committer.maintenance.inspect import Listing, changed_ago, directories, each, or_raise
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    OVER,
    ActionPlan,
    Adoption,
    FoundJob,
    GivenUp,
    Recovery,
    refuse_younger,
)
from magic_committer.options import FAILING, Options
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import (
    JOB_METADATA,
    RECORD_BYTES_MAX,
    USUAL_TERMS,
    JobRecord,
    ObjectRef,
    StartedJob,
    State,
)
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import ObjectInfo, same_etag, uploads
from magic_committer.stores.urls import is_tree
from magic_committer.upload import BlockSource

T = TypeVar("T")

logger = logging.getLogger("magic_committer")

ADOPTED_TERMS = structs.replace(USUAL_TERMS, checksum="off")
"""The terms of a Hadoop job, in our words."""
ADOPTING = ("commit", "abort", "recover")
"""The calls that adopt a Hadoop job on the operator's word."""
LOOKS_MAX = 4
"""How often the record is read again because another process has moved it on. There are no more
arrows from ``running`` to its end."""
IDS_MAX, PROBLEMS_MAX = 10, 5
"""How many ids are named to a caller whose job is not there, and how many problems, or keys."""
SWEEP = "It has committed: _SUCCESS names it, and stays as it is. Take away what job {} left?"
WRITTEN_OVER = (
    "What the job has written over does not come back: where a file of it is visible at a key that"
    " held another object before, undoing deletes the file, and the old object is gone."
)
"""Said before a job is undone that was free to write over objects."""


@dataclass(slots=True)
class Ending:
    """One job that somebody is about to end. Each verb gives a plan; all of them only read. What
    ends in ``_now`` is what `magic_committer` has under that name.

    Attributes:
        adopt: the operator's word that a Hadoop job's JVM is dead.
        dead_after: seconds for which nothing of the job must have changed; None: what each verb has
            by default.
        verb: the call that is planned.
        seen: the job's record; None: it has none yet. adoption: what will be adopted.
    """

    runtime: Runtime
    dest: Destination
    job_id: str
    adopt: bool = False
    dead_after: float | None = None
    options: Options = field(default_factory=Options)
    verb: Call = "abort"
    seen: register.Seen | None = None
    adoption: Adoption | None = None

    def commit(
        self, expect: int | Collection[str] | None = None, accept: Collection[str] = ()
    ) -> ActionPlan[JobReport]:
        """Plan to publish what the job's tasks committed, or to finish it."""
        with self._calling("commit"):
            self._find()
            more: dict[str, Any] = {}
            if self.adoption is not None and self.adoption.committed:
                question = SWEEP.format(self.job_id)
            elif self.state in (State.RUNNING, State.ABSENT):
                found = self._prospect(expect, accept)
                more = {"tasks": list(found.tasks), "files": found.files, "bytes": found.bytes}
                many = pending_words(len(found.tasks), found.files, found.bytes)
                question = f"Commit job {self.job_id}: make visible {many}?"
            else:
                assert self.seen is not None
                if outcome_of(self.seen.record) != "committed":
                    raise outcome.ended_by_record(self.dest.url, self.seen.record)
                question = f"Finish job {self.job_id}, which is {self.state}?"
            return self._plan(
                question, lambda: self._driver(accept=accept).commit(None, expect), **more
            )

    def abort(self, revert: bool = False, leave_visible: bool = False) -> ActionPlan[JobReport]:
        """Plan to make sure that nothing of the job is visible."""
        with self._calling("abort"):
            self._find()
            seen, undoes, warning = self.seen, self.state is State.COMMITTING and revert, ""
            if seen is not None and outcome_of(seen.record) == "committed" and not undoes:
                raise outcome.ended_by_record(self.dest.url, seen.record)
            question = self._abort_question(leave_visible)
            if seen is not None and (undoes or self.state is State.REVERTING):
                warning = "" if seen.record.terms.mode in FAILING else WRITTEN_OVER
            return self._plan(
                question,
                lambda: self._driver("recovery").abort(revert=revert, leave_visible=leave_visible),
                warning,
            )

    def abort_now(self, revert: bool, leave_visible: bool) -> JobReport:
        """Abort or undo the job; see `magic_committer.abort`."""
        seen = self._read()
        if seen is None:
            self._refuse_hadoops()
            told = f"there is no job {self.job_id!r} under {self.dest.url}"
            raise JobNotFound(told, job_id=self.job_id, hint=ENDED_OR_NEVER)
        driver = driver_of(self.runtime, self.dest, seen, self.options)
        return driver.abort(revert=revert, leave_visible=leave_visible)

    def recover(
        self, accept: Collection[str] = (), leave_visible: bool = False
    ) -> ActionPlan[Recovery]:
        """Plan to finish the job as it was decided, or to abort it if it was not."""
        recover = partial(self.recover_now, accept, leave_visible)

        def run() -> Recovery:
            if self.adoption is None:
                return recover()
            self._take()
            return replace(self, dead_after=0.0).recover_now(accept, leave_visible)

        with self._calling("recover"):
            try:
                self._find()
            except JobNotFound:
                ended = recover()
                if ended.outcome != "committed":
                    raise
                return self._plan("", lambda: ended, would=ended.did)
            if self.adoption is None:
                would = recover(dry_run=True)
                question = f"Job {self.job_id} is {would.state}; {would.did}. Go on?"
                return self._plan(question, run, would=would.did, unresolved=list(would.unresolved))
            if self.adoption.committed:
                return self._plan(SWEEP.format(self.job_id), run)
            return self._plan(self._abort_question(leave_visible), run)

    def adopting(self) -> ActionPlan[Adoption]:
        """Plan to give a Hadoop job a record, and to do nothing else."""
        self.adoption, self.verb = self.adopt_now(dry_run=True), "adopt"
        return self._plan(f"Adopt job {self.job_id}?", self.adopt_now)

    def give_up(self) -> ActionPlan[GivenUp]:
        """Plan to give up what can be neither finished nor undone."""
        try:
            look = self.give_up_now(dry_run=True)
        except JobNotFound as error:
            raise self._not_found() from error
        over = look.state == State.CLOSED
        question = "" if over else _give_up_question(look)
        would = f"nothing: it was {look.outcome}" if over else "give it up"
        row = {"warning": "", "would": would, "adopt": False, **look.to_dict()}
        return ActionPlan(question, (row,), "", self.give_up_now)

    def abort_or_give_up(self) -> ActionPlan[JobReport] | ActionPlan[GivenUp]:
        """Plan to end the job whatever its record says: what cannot be undone is left."""
        with self._calling("abort"), suppress(FormatError, InvalidRequest):  # it cannot be read
            self.seen = self._read()
        adopted = self.seen is not None and bool(self.seen.record.adopted)
        if self.adopt or (adopted and self.state is State.RUNNING):
            return self.abort(leave_visible=True)
        return self.give_up()

    def look(self) -> FoundJob:
        """What the job's directory holds; `JobNotFound` says which jobs there are."""
        found = inspect.inspect_job(self.runtime, self.dest, self.job_id)
        if found is None:
            raise self._not_found()
        return found

    # Finding and asking ---------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Of the record."""
        return self.seen.record.state if self.seen is not None else State.ABSENT

    @property
    def paths(self) -> JobPaths:
        """Of the job's control objects."""
        return JobPaths(self.dest, self.job_id)

    @property
    def _settled(self) -> float:
        return LEFTOVER_AFTER_SECONDS if self.dead_after is None else self.dead_after

    def _read(self) -> register.Seen | None:
        return register.read(self.runtime, self.paths.record)

    def _find(self) -> None:
        """Read the record, or look at what would be adopted; raise `JobError` if it is Hadoop's,
        and nobody said that it is dead."""
        self.seen = self._read()
        if self.seen is not None:
            return
        if not self.adopt:
            self._refuse_hadoops(self.look())
        try:
            self.adoption = self.adopt_now(dry_run=True)
        except JobNotFound as error:
            raise self._not_found() from error

    def _refuse_hadoops(self, found: FoundJob | None = None) -> None:
        """Raise `JobError` if the job, which has no record, is Hadoop's and must be adopted."""
        found = found or inspect.inspect_job(self.runtime, self.dest, self.job_id)
        if found is None or found.kind != "hadoop":
            return
        raise self._error(
            f"is a Hadoop job with {pending_words(found.tasks, found.files, found.bytes)}; it"
            f" changed {age_words(found.age)} ago",
            self._remedy(self.verb, "if its JVM is dead, adopt it", adopt=True),
        )

    def _not_found(self) -> JobNotFound:
        jobs = directories(self.runtime, self.dest.jobs_prefix, self.dest.older_jobs_prefix)
        ids = [inspect.id_in(self.dest, directory) for directory in jobs]
        return JobNotFound(
            f"there is no job {self.job_id!r} under {self.dest.url}",
            job_id=self.job_id,
            hint=f"There are: {name_some(ids, IDS_MAX)}" if ids else "There is none at all",
        )

    def _take(self) -> register.Seen:
        """The job's record, after it was adopted if it has to be."""
        if self.adoption is not None:
            self.adopt_now()
            self.adoption, self.seen = None, self._read()
        if self.seen is None:
            raise self._not_found()
        return self.seen

    def _driver(self, role: str = "driver", accept: Collection[str] = ()) -> Driver:
        seen = self._take()
        return driver_of(self.runtime, self.dest, seen, self.options, role, accept)

    def _job(self) -> StartedJob:
        """The job as its record says, or as it will be."""
        if self.adoption is not None:
            return StartedJob.attached(self._record_of(self.adoption), self.dest.url, "")
        assert self.seen is not None
        return StartedJob.attached(self.seen.record, self.dest.url, self.seen.etag)

    def _plan(
        self, question: str, run: Callable[[], T], warning: str = "", would: str = "", **more: Any
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
        if self.seen is not None and self.state is State.CLOSED:
            question, warning, would = "", "", f"nothing: it was {outcome_of(self.seen.record)}"
        row = {
            "job_id": self.job_id,
            "dest": self.dest.url,
            "state": str(self.state),
            "adopt": self.adoption is not None,
            "warning": warning,
            "would": would or question.removesuffix("?"),
            **dict.fromkeys(("tasks", "files", "bytes")),
            "unresolved": [],
            **more,
        }
        return ActionPlan(question, (row,), warning, calling)

    def _prospect(self, expect: int | Collection[str] | None, accept: Collection[str]) -> Prospect:
        """What a commit would publish now; raise `JobError` if it would be refused."""
        job = self._job()
        if job.terms.accept == "results":
            raise self._error(
                "can be committed by its driver only, which knows from messages which attempts"
                " count: what lies on the store may be cut short",
                self._remedy("abort", "if its driver is dead, abort and run it again"),
            )
        committer = MagicCommitter(self.runtime, job, self.options, BlockSource())
        found = committer.driver(accept=accept).look(expect)
        abort = self._remedy("abort", "abort it")
        if found.problems:
            raise CommitRefused(
                f"job {self.job_id!r} cannot be committed:"
                f" {name_some(found.problems, PROBLEMS_MAX)}",
                job_id=self.job_id, problems=found.problems, hint=ACCEPT_EACH, remedies=(abort,),
            )  # fmt: skip
        if not found.tasks and expect is None:
            none = self._remedy("commit", "if it is right that it has none", expect=0)
            raise self._error("has no committed task", abort, none)
        return found

    def _abort_question(self, leave_visible: bool) -> str:
        """What to ask before the job is aborted or undone; raise `JobError` if Hadoop has
        committed it, wholly or (`AlreadyVisible`) in part."""
        if self.adoption is not None and self.adoption.committed:
            raise self._error(
                "has committed: _SUCCESS names it, so there is nothing to abort",
                self._remedy("commit", "take away what it left"),
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
        """What of an undecided job is visible, in words: of an adopted one, what its JVM made so.
        Raise `AlreadyVisible` unless that may stay."""
        job = self._job()
        if not job.adopted:
            return ""
        runtime = replace(self.runtime, in_flight=self.options.commit_threads)
        return refuse_if_published(runtime, job, leave_visible=leave_visible)

    def _error(self, what: str, *remedies: Remedy) -> JobError:
        words = f"job {self.job_id!r} {what}"
        return JobError(words, job_id=self.job_id, remedies=remedies)

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
        if self.seen is not None or remedy.call not in ADOPTING or remedy.job_id != self.job_id:
            return remedy
        if self.dead_after is not None:
            adopt[DEAD_AFTER] = self.dead_after
        return replace(remedy, options={**adopt, **remedy.options})

    # Recovery -------------------------------------------------------------------------------------

    def recover_now(
        self,
        accept: Collection[str] = (),
        leave_visible: bool = False,
        *,
        dry_run: bool = False,
    ) -> Recovery:
        """Finish or undo the job; see `magic_committer.recover`."""
        if isinstance(accept, str):
            raise OptionError("accept is a list of keys, not one key")
        limit = DEAD_AFTER_SECONDS if self.dead_after is None else self.dead_after
        self.verb, found, last = "recover", "", None
        for _ in range(LOOKS_MAX):
            seen = self._read()
            if seen is None:
                return self._absent(found, dry_run)
            record = seen.record
            found = found or str(record.state)
            recovery = Recovery(
                self.job_id, self.dest.url, found, str(record.state), outcome_of(record),
                inspect.would_do(record, 0.0, 0.0), record.uuid, dry_run,
            )  # fmt: skip
            if record.state is State.CLOSED:
                return recovery
            if record.state is State.RUNNING:
                age = changed_ago(self.runtime, *record.paths(self.dest).directories)
                leaves = {"leave_visible": True} if leave_visible else {}
                ways = outcome.dead(self.dest.url, self.job_id, **leaves)
                refuse_younger(self.job_id, age, limit, "it is running, and may be alive", *ways)
            if dry_run:
                self.seen = seen
                return self._planned(recovery, accept, leave_visible)
            driver = driver_of(self.runtime, self.dest, seen, self.options, accept=accept)
            try:
                report = driver.settle(record.state, leave_visible=leave_visible)
            except (JobNotRunning, OutcomeUnknown) as error:
                last = error  # another process moved it on: look again
                continue
            return replace(recovery, state=report.state, outcome=report.outcome, report=report)
        assert last is not None
        raise last

    def _planned(
        self, recovery: Recovery, accept: Collection[str], leave_visible: bool
    ) -> Recovery:
        """What would be done, in more detail. Only reads."""
        if self.state is State.RUNNING:
            try:
                stays = self._stays(leave_visible)
            except AlreadyVisible as error:
                return replace(recovery, did=f"nothing: {error.message}")
            return replace(recovery, did=f"{recovery.did}; {stays}") if stays else recovery
        if self.seen is None or self.state is not State.COMMITTING:
            return recovery
        progress = inspect.progress_of(self.runtime, self.dest, self.seen)
        unresolved = tuple(key for key in progress.missing_keys if key not in accept)
        progress.missing -= len(progress.missing_keys) - len(unresolved)
        did = inspect.would_do(self.seen.record, 0.0, 0.0, progress)
        return replace(recovery, did=did, unresolved=unresolved)

    def _absent(self, found: str, dry_run: bool) -> Recovery:
        """The outcome without a record: "unknown", unless the marker shows it (I10). A drawn id is
        the job's UUID."""
        job = StartedJob(self.job_id, self.job_id, self.dest.url, USUAL_TERMS, False, "", False)
        ended, did = "", "there is no record of it; it may have ended, either way, or never been"
        if outcome.committed_by_marker(self.runtime, job):
            ended, did = "committed", "it has committed and is finished"
        elif not found:
            self._refuse_hadoops()
        was, did = str(State.ABSENT), f"nothing: {did}"
        return Recovery(self.job_id, self.dest.url, found or was, was, ended, did, dry_run=dry_run)

    # Adopting -------------------------------------------------------------------------------------

    def adopt_now(self, *, dry_run: bool = False) -> Adoption:
        """Adopt the job; see `magic_committer.adopt`."""
        runtime, dest = self.runtime, self.dest
        if is_tree(dest.bucket):
            raise PathError(
                f"{dest.url} is on a file system: there are no jobs of Hadoop's magic committer,"
                " which this call is about",
                hint="Pass a path on S3",
            )
        adoption = self._hadoops()
        job = StartedJob.attached(self._record_of(adoption), dest.url, "")
        runtime = replace(runtime, in_flight=self.options.commit_threads)
        if committed_by_hadoop(runtime, job):
            adoption = replace(adoption, committed=True)
        if dry_run:
            return adoption
        # Prove that the store keeps the conditions of a decision, on a job of its own.
        known = probe.known(runtime.store.identity)
        if not (known.conditional_put and known.swap):
            trial = MagicCommitter.setup(runtime, dest, ADOPTED_TERMS, self.options, BlockSource())
            trial.driver("recovery").abort()
        record = self._record_of(adoption)
        try:
            register.create(runtime, self.paths.record, record)
        except JobExists as error:
            raise self._ours(error.message) from error
        except OutcomeUnknown as error:
            again = "adopt it again; if its record is there then, it is adopted"
            limit = {DEAD_AFTER: self._settled}
            error.advice, error.remedies = "", (self._remedy("adopt", again, **limit),)
            raise
        logger.info("job %s: adopted, %s%s", self.job_id, dest.url, adoption.pendingsets)
        if adoption.passed_over:
            logger.warning("job %s: %s", self.job_id, adoption.older())
        return replace(adoption, uuid=record.uuid)

    def _hadoops(self) -> Adoption:
        """Look at a Hadoop job that may be adopted."""
        runtime, dest, ours = self.runtime, self.dest, self.paths.directory
        self._refuse_ours()
        older = f"{dest.older_jobs_prefix}{self.job_id}/"
        homes = {ours: f"{ours}{JOB_PREFIX}{self.job_id}/", older: older}
        for directory in homes:
            listing = Listing(runtime, directory)
            measured = inspect.measure(runtime, listing)
            if listing.objects:
                break
        else:
            raise JobNotFound(
                f"there is no job {self.job_id!r} under {dest.url}, neither ours nor Hadoop's",
                job_id=self.job_id,
                hint=ENDED_OR_NEVER,
            )
        if measured.failure is not None:
            raise measured.failure
        if token := measured.ours or inspect.with_token(runtime, directory):
            self._refuse_ours()  # another process may be adopting it
            raise JobError(
                f"job {self.job_id!r} cannot be adopted: {token} carries the token of a job of this"
                " library",
                job_id=self.job_id,
                hint="What lies there is what that job left: adopted, the late write of one of its"
                " tasks would be published",
                remedies=(Remedy("cleanup", dest.url, why="take it away"),),
            )
        way = self._remedy("adopt", "if you know that it cannot", **{DEAD_AFTER: 0})
        late = "what its JVM sent last may still land"
        refuse_younger(self.job_id, listing.age, self._settled, late, way)
        counts = _pendingsets(runtime, homes[directory])
        chosen, *passed_over = [one for one in counts if counts[one]] or list(counts)[:1]
        return Adoption(
            self.job_id, dest.url, chosen[len(dest.prefix) :], counts[chosen],
            passed_over=tuple(one[len(dest.prefix) :] for one in passed_over),
            passed_over_tasks=sum(counts[one] for one in passed_over),
            age=listing.age, files=measured.files, bytes=measured.bytes, problem=measured.problem,
        )  # fmt: skip

    def _refuse_ours(self) -> None:
        seen = self._read()
        if seen is not None:
            raise self._ours(f"job {self.job_id!r} has a record, it is {seen.record.state}")

    def _ours(self, message: str) -> JobExists:
        remedies = (self._remedy("commit", "commit it"), self._remedy("abort", "abort it"))
        hint = "It needs no adoption any more"
        return JobExists(message, job_id=self.job_id, hint=hint, remedies=remedies)

    def _record_of(self, adoption: Adoption) -> JobRecord:
        """The record that a Hadoop job gets."""
        record = JobRecord.running(
            id=self.job_id,
            uuid=self.runtime.ids(),
            nonce=self.runtime.ids(),
            terms=ADOPTED_TERMS,
            given_id=True,
            started=self.runtime.clock.now(),
            adopted=adoption.pendingsets,
        )
        if not adoption.committed:
            return record
        no_plan = ObjectRef(record.paths(self.dest).plan(record.nonce), "")
        hadoop = Decider("hadoop", "", 0)
        return structs.replace(record, state=State.COMPLETED, plan=no_plan, decider=hadoop)

    # Giving up ------------------------------------------------------------------------------------

    def give_up_now(self, *, dry_run: bool = False) -> GivenUp:
        """End the job whatever its record says; see `magic_committer.force_abort`."""
        key = self.paths.record
        try:
            stored = self.runtime.store.head(key)  # first: what is read after it is no older
        except NotFound:
            self._refuse_hadoops()
            raise JobNotFound(
                f"there is no record of job {self.job_id!r} under {self.dest.url}",
                job_id=self.job_id,
                hint="There is nothing to give up",
                remedies=(
                    Remedy("cleanup", self.dest.url, why="take away what it left, if anything"),
                ),
            ) from None
        giving = GivingUp(self.runtime, self.dest, self.job_id, key, dry_run, self.options)
        try:
            if stored.size > RECORD_BYTES_MAX:
                why = f"has {stored.size} bytes: no record has over {RECORD_BYTES_MAX}"
                raise FormatError(key, "", why)
            seen = self._read()
        except FormatError as error:
            return giving.unreadable(stored, error, self._settled)
        if seen is None:
            return giving.told(State.ABSENT, State.ABSENT)
        return giving.readable(seen, self._settled)


def _pendingsets(runtime: Runtime, home: str) -> dict[str, int]:
    """The number of pendingsets in each directory of a Hadoop job, the newest first. ``home`` holds
    one for each application attempt; up to Hadoop 3.3.4, the pendingsets."""
    attempts = {-1: home}
    for prefix in directories(runtime, home):
        if (number := prefix[len(home) : -1]).isdecimal() and number.isascii():
            attempts[int(number)] = prefix
    return {
        attempts[number]: sum(
            info.key.endswith(PENDINGSET_SUFFIX)
            for page in runtime.store.list(attempts[number], delimiter="/")
            for info in page.objects
        )
        for number in sorted(attempts, reverse=True)
    }


# Giving up ----------------------------------------------------------------------------------------

UNREADABLE = "unreadable"
"""The word for the state of a record that this version cannot read."""
IN_FLIGHT = 32
"""Requests at once of a job that is given up."""
_CLAIM = "given_up"
_UUID = re.compile(r"[0-9a-f]{32}")


def _give_up_question(look: GivenUp) -> str:
    """What is given up, before it is. Pure."""
    is_open = f"{counted(look.open, 'upload')} of it {'is' if look.open == 1 else 'are'} open"
    visible = f"{counted(look.visible_files, 'file')} of it visible"
    if look.visible:
        visible += f" ({name_some(look.visible, PROBLEMS_MAX)})"
    if look.found == State.COMPLETED:
        fate = (
            "Its files stay. What it replaces may stay too, and _SUCCESS be missing. Open uploads"
            " are aborted."
        )
    elif look.found == UNREADABLE:
        why = f"Its record cannot be read: {look.why}."
        fate = f"{why} What is visible stays; open uploads are aborted."
    else:
        fate = (
            "First it is undone: open uploads are aborted, and what is visible of a committing job"
            " is deleted; what was written over does not come back. If that cannot be done wholly,"
            " the rest stays as it is."
        )
    return (
        f"Give up job {look.job_id}, which is {look.found}? {is_open}, {visible}. {fate} Then its"
        " record is deleted, and nobody can finish or undo the job any more. Go on?"
    )


@dataclass(slots=True)
class GivingUp:
    """The work on one job, and what to report about it.

    Attributes:
        uuids: the job's UUIDs: the tokens of its uploads and control objects carry them.
        others: of a job whose record cannot be read: the UUIDs of other jobs there, which are never
            ours, whatever an object says; the objects of its directory tell its own. None: its
            record names it.
        adopted: whether objects without a token belong to the job too.
        undo: whether visible files are deleted.
        counts, named: what `GivenUp` counts, and what it names.
    """

    runtime: Runtime
    dest: Destination
    job_id: str
    key: str
    dry_run: bool
    options: Options
    uuids: set[str] = field(default_factory=set)
    others: set[str] | None = None
    adopted: bool = False
    undo: bool = False
    directories: tuple[str, ...] = ()
    known: KeySet = field(default_factory=KeySet)
    counts: Counter[str] = field(default_factory=Counter)
    named: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def told(self, found: str, state: str, **more: Any) -> GivenUp:
        """Make the report."""
        more |= {name: tuple(some) for name, some in self.named.items()}
        more |= {**self.counts, "dry_run": self.dry_run}
        return GivenUp(self.job_id, self.dest.url, str(found), str(state), **more)

    def readable(self, seen: register.Seen, dead_after: float) -> GivenUp:
        """Give up a job whose record can be read, if it cannot be undone."""
        found, why = seen.record.state, ""
        if found is State.CLOSED:
            return self.told(found, found, outcome=seen.record.outcome)
        if found is State.COMPLETED:
            self.refuse_young(f"for it is {found}: its files are visible", dead_after)
        elif not self.dry_run:
            report, why = self._undo(seen)
            if report is not None:
                return self.told(found, report.state, outcome=report.outcome, report=report)
            now = register.read(self.runtime, seen.key)
            if now is None or now.record.state is State.CLOSED:
                state = now.record.state if now else State.ABSENT
                return self.told(found, state, outcome=outcome_of(now.record) if now else "")
            if now.record.state not in (State.ABORTING, State.REVERTING, State.REVERTED):
                raise self._changed(
                    f"is {now.record.state}, and was {found} when it was looked at: it was not"
                    f" given up{why and f' ({why})'}"
                )
            seen = now
        record, job = seen.record, StartedJob.attached(seen.record, self.dest.url, seen.etag)
        self.uuids, self.adopted = {job.uuid}, bool(job.adopted)
        self.directories = job.paths.directories
        self.undo = record.state is State.REVERTING
        self.runtime = as_agreed(self.runtime, job.terms, self.options)
        self.uploads()
        if not self.dry_run:
            if found is State.COMPLETED and record.batch is not None:
                why = self._say_published(job, record.batch)
            self.control_objects()
            self.remove_record(self.claim(seen.etag))
        state = record.state if self.dry_run else State.ABSENT
        committed = "committed" if record.state is State.COMPLETED else ""
        return self.told(found, state, outcome=committed, why=why)

    def unreadable(self, stored: ObjectInfo, error: FormatError, dead_after: float) -> GivenUp:
        """Give up a job whose record this version cannot read: damaged, forged, a newer version's,
        or a claim. Its UUID is its id, if the id was drawn, or what the record's metadata say;
        otherwise its objects tell it."""
        if not self.is_claimed():
            self.refuse_young(
                f"for its record cannot be read ({error.message}); if a newer version of the"
                " library runs it, use that",
                dead_after,
            )
        self.directories, self.others = JobPaths(self.dest, self.job_id).directories, set()
        for key in job_records(self.runtime, self.dest):
            if key == self.key:
                continue
            self.others.add(key.split("/")[-2].removeprefix(MAGIC_JOB_PREFIX))
            with suppress(FormatError, InvalidRequest):  # InvalidRequest: too large for a record
                if (seen := register.read(self.runtime, key)) is not None:
                    self.others.add(seen.record.uuid)
        in_metadata = (stored.metadata or {}).get(JOB_METADATA, "")
        self.uuids = set(filter(self._may_be_ours, (self.job_id, in_metadata)))
        claimed = "" if self.dry_run else self.claim(stored.etag)
        self.uploads()
        if self.dry_run:
            return self.told(UNREADABLE, UNREADABLE, why=str(error))
        self.control_objects()
        self.remove_record(claimed)
        return self.told(UNREADABLE, State.ABSENT, why=str(error))

    def refuse_young(self, why: str, dead_after: float) -> None:
        """Raise `JobTooYoung` if something of the job changed lately and nothing else shows whether
        its driver lives. Not with ``dry_run``."""
        age = changed_ago(self.runtime, JobPaths(self.dest, self.job_id).directory)
        if not self.dry_run:
            known = "if you know that its driver is dead, give it up"
            way = Remedy("force_abort", self.dest.url, self.job_id, known, {DEAD_AFTER: 0})
            refuse_younger(self.job_id, age, dead_after, f"it may be alive, {why}", way)

    def _undo(self, seen: register.Seen) -> tuple[JobReport | None, str]:
        """Abort or undo the job in the usual way. Gives its report, or what keeps it from being
        undone. If nobody knows what its record says, the error goes on: nothing is given up."""
        try:
            driver = driver_of(self.runtime, self.dest, seen, self.options)
            report = driver.abort(revert=True)
        except JobNotRunning as error:
            return None, error.message
        except (AbortIncomplete, CommitIncomplete, FormatError) as error:
            return None, str(error.__cause__ or error)
        return (report, "") if report.state in OVER else (None, "; ".join(report.warnings))

    def _say_published(self, job: StartedJob, batch: StreamBatch) -> str:
        """Tell the query's ledger that the batch of a ``completed`` job is published: its files
        stay. Gives why that could not be done: the query may then publish the batch once more."""
        try:
            return publish_batch(self.runtime, job, batch)
        except (StoreError, FormatError) as error:
            return f"the ledger does not say that {batch} is published: {error.message}"

    def _changed(self, what: str) -> JobError:
        again = outcome.look_again(self.dest.url, self.job_id)
        return JobError(f"job {self.job_id!r} {what}", job_id=self.job_id, remedies=(again,))

    # Uploads and control objects ------------------------------------------------------------------

    def name(self, what: str, words: str) -> None:
        """Name one more thing that stays; the first `NAMED_MAX` of a kind."""
        if len(self.named[what]) < NAMED_MAX:
            self.named[what].append(words)

    def _may_be_ours(self, uuid: str) -> bool:
        return bool(_UUID.fullmatch(uuid)) and uuid not in (self.others or ())

    def _owns(self, uuid: str) -> bool:
        """Whether an object of the job's directory belongs to the job, by the UUID in its
        metadata."""
        if self.others is not None and self._may_be_ours(uuid):
            self.uuids.add(uuid)
        return uuid in self.uuids or (not uuid and self.adopted)

    def _listed(self) -> Iterator[ObjectInfo]:
        listing = Listing(self.runtime, *self.directories)
        return (info for info in listing if info.key != self.key)

    def uploads(self) -> None:
        """End the job's uploads and go on after single failures; with ``dry_run``, only look at
        them. Those of a listing come second: the sets have named the UUIDs before."""
        runtime = self.runtime
        begin: Callable[..., requests.Steps[Any]] = looking if self.dry_run else to_remove
        for targets in (self._by_sets(), self._by_name()):
            works = ((one, begin(runtime, one)) for one in targets if self.known.add(one.name))
            with closing(requests.each(runtime, works, in_flight=IN_FLIGHT)) as ended:
                for (upload, end), fate in each(runtime, self._fate, ended, IN_FLIGHT):
                    self._note(upload, end, or_raise(fate))

    def _by_sets(self) -> Iterator[ReadyUpload]:
        """Give the job's uploads that control objects name."""
        for info, saved in inspect.each_saved(self.runtime, self._listed()):
            try:
                pendings, metadata = or_raise(saved)
                named = [from_pending(pending, info.key) for pending in pendings]
            except (FormatError, StoreError) as error:
                self.name("unread", f"{info.key}: {error.message}")
                continue
            if self._owns(metadata.get(JOB_METADATA, "")):
                mine = [upload.bare for upload in named if self._is_ours(upload)]
                if others := len(named) - len(mine):
                    self.name("unread", f"{info.key}: names {counted(others, 'upload')} of others")
                yield from mine

    def _by_name(self) -> Iterator[ReadyUpload]:
        """Give the uploads that a listing shows."""
        with suppress(NotSupported):
            for listed in uploads(self.runtime.store, self.dest.prefix):
                if owner_of(listed.key, listed.upload_id) in self.uuids:
                    yield ReadyUpload(listed.key, listed.upload_id)

    def _is_ours(self, upload: ReadyUpload) -> bool:
        token = upload.token.partition(".")[0]
        ours = token in self.uuids or (not token and self.adopted)
        by_name = owner_of(upload.key, upload.upload_id)
        return ours and self.dest.contains(upload.key) and by_name in (None, *self.uuids)

    def _fate(self, end: tuple[ReadyUpload, UploadLook | Removed]) -> str:
        """What has become of an upload, asked in a thread: it is ``visible`` if a file of it stays,
        or may. If the job is undone, the object that the upload became is deleted first."""
        upload, ended = end
        if isinstance(ended, UploadLook):
            return str(ended.state.value)
        became_visible = ended.removal is Removal.VISIBLE
        if ended.removal is Removal.LEFT or not (became_visible or ended.error is not None):
            return str(ended.removal.value)
        if not self.undo or self._cannot_be_deleted(upload):
            return "visible"
        return "deleted" if became_visible else str(ended.removal.value)

    def _cannot_be_deleted(self, upload: ReadyUpload) -> bool:
        """Delete the object that an upload became. Whether it is there all the same, or may be."""
        runtime = self.runtime
        with suppress(StoreError):
            for deleted in (False, True):
                info = object_at(runtime, upload.key)
                if info is None or not became(upload, info):
                    return False
                if not deleted:
                    version, modified = info.version_id, info.last_modified
                    delete_if_same(runtime, info.key, info.etag, version, modified=modified)
        return True

    def _note(self, upload: ReadyUpload, ended: UploadLook | Removed, fate: str) -> None:
        if fate == "left":
            assert isinstance(ended, Removed)
            self.name("left_open", f"{upload.key} {upload.upload_id}: {ended.why}")
        elif fate == "visible":
            self.counts["visible_files"] += 1
            self.name("visible", upload.key)
        elif fate != "gone":
            self.counts["open" if self.dry_run else fate] += 1

    def control_objects(self) -> None:
        """Delete the job's control objects but not the record; plans first. Go on after single
        failures."""
        mine: dict[bool, list[str]] = {True: [], False: []}  # by whether it is a plan

        def uuid_of(info: ObjectInfo) -> str:
            return (self.runtime.store.head(info.key).metadata or {}).get(JOB_METADATA, "")

        for info, uuid in each(self.runtime, uuid_of, self._listed(), IN_FLIGHT):
            if isinstance(uuid, NotFound):
                continue
            if isinstance(uuid, MagicError):
                self.name("unread", f"{info.key}: {uuid.message}")
            elif self._owns(uuid):
                mine[info.key.rpartition("/")[2].startswith(PLAN_PREFIX)].append(info.key)
        for keys in mine.values():
            failed = self.runtime.store.delete(keys) if keys else {}
            for key, why in failed.items():
                self.name("unread", f"{key}: {why.message}")

    # The record -----------------------------------------------------------------------------------

    def is_claimed(self) -> bool:
        """Whether the record is the claim of an earlier call that died."""
        try:
            told = orjson.loads(self._body())
        except (NotFound, InvalidRequest, orjson.JSONDecodeError):
            return False
        return isinstance(told, dict) and set(told) == {_CLAIM}

    def claim(self, etag: str) -> str:
        """Replace the record if it still has that ETag, so that nobody's swap can win any more.
        First it deletes a key that nobody has: who may not delete could not take the claim away
        again, and nobody could read the job's state. Gives the ETag of the claim. JobError: the
        record has changed, and nothing was given up."""
        try:
            self.runtime.store.delete_one(f"{self.key}-{self.runtime.ids()}")
        except PermissionDenied as error:
            error.advice = (
                "The record is as it was: a job is given up by who may delete its control objects"
                f" (s3:DeleteObject below {self.dest.url})"
            )
            raise
        body = orjson.dumps({_CLAIM: self.runtime.ids()})
        metadata = {JOB_METADATA: min(self.uuids)} if self.uuids else None
        for wanted in (etag, register.other_quoting(etag)):  # Ceph RGW knows unquoted ETags only
            try:
                written = self.runtime.store.put(self.key, body, metadata=metadata, if_match=wanted)
                return written.etag
            except (PreconditionFailed, NotFound, WriteConflict):
                now = object_at(self.runtime, self.key)
                if now is None or not same_etag(now.etag, etag):
                    break
        if now is not None and self._body() == body:
            return now.etag  # the reply was lost, and the request was sent again
        raise self._changed("has a record that was changed by another process meanwhile")

    def remove_record(self, claimed: str) -> None:
        """Delete the claim. Repeatable; after a `StoreError` it may still be there."""
        for wanted in (claimed, register.other_quoting(claimed)):
            try:
                self.runtime.store.delete_one(self.key, if_match=wanted)
                return
            except (PreconditionFailed, WriteConflict):
                now = object_at(self.runtime, self.key)
                if now is None or not same_etag(now.etag, claimed):
                    return  # another call has deleted it, and the id may be in use again
            except (InvalidRequest, NotSupported):
                break
        # No conditional DELETE. The claim belongs to this call: another process creates a record
        # only if there is none.
        self.runtime.store.delete_one(self.key)

    def _body(self) -> bytes:
        return self.runtime.store.get(self.key, max_bytes=RECORD_BYTES_MAX).body

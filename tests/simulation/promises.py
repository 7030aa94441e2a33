"""The promises I1 to I10 of the protocol, as checkers that know nothing of the library's logic.

`Watch.effect` judges every effect on the store as it happens: what may become visible, what may go.
`Watch.told` holds what a caller is told against the truth of that moment. `Watch.end` judges the
store at the end, when every crashed job has been recovered. All go by `truth.Truth` alone.

What the protocol words as weaker promises is excused here, and nowhere else:

* I4: what an actor that a fault struck wrote after the decision (it may be after the sweep); its
  uploads under names that the user chose, which nothing but their name tells of; those too where
  a Create was sent twice.
* I4, to the last: what a task wanted to take back, and no `.pending` or `.pendingset` names since.
* I4: a driver that was paused in its setup until its job was aborted, closed and forgotten brings
  the record back, and takes it away: nobody else knows that job.
* I2: a task that is late aborts its own uploads by id, an exclusive job everybody's, also if they
  were completed.
* I5: keys that another program or job overwrote or deleted, or whose uploads a lifecycle rule took,
  may end *unresolved*: then an operator takes them as they are. No other key may.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from magic_committer.errors import StoreError
from magic_committer.memory import MemoryStore, Request
from tests.simulation.kinds import object_of
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.tables import (
    ABORTED,
    ARROWS,
    CLOCK_SECONDS,
    EXCLUDING,
    FAILING,
    NOT_COMMITTED,
    PROMISES,
    READS,
    REMOVALS,
    SWEPT,
    UNIQUE,
)
from tests.simulation.truth import ENDS, FOREIGN, JobTruth, ObjectTruth, Truth


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: str
    what: str
    step: int

    def __str__(self) -> str:
        return f"{self.promise} ({PROMISES[self.promise]}) at step {self.step}: {self.what}"


class Watch:
    """Judges one schedule."""

    def __init__(self, store: MemoryStore, scheduler: Scheduler) -> None:
        self.truth = Truth(store, scheduler)
        self.violations: list[Violation] = []

    def broken(self, promise: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, what, self.truth.step))

    # Each effect ----------------------------------------------------------------------------------

    def effect(self, request: Request, answer: Any, actor: Actor) -> None:
        """A request took effect."""
        if isinstance(answer, StoreError):
            return
        verb = request.verb
        if actor.reads_only and verb not in READS:
            self.broken("I10", f"{actor}, who said that it only looks, sent {verb} {request.key}")
        if verb == "create_upload":
            self.truth.note_upload(answer.upload_id, request.key, actor)
        elif verb == "complete_upload":
            self._completed(request, actor)
        elif verb == "put":
            self._put(request, actor)
        elif verb == "delete_one":
            self._deleted(request.key, actor)
        elif verb == "delete":
            for key in request.keys:
                if key not in answer:
                    self._deleted(key, actor)
        elif verb == "abort_upload":
            self._aborted(request.upload_id, actor)
        elif verb == "list" and actor.serves_all:
            self.truth.note_look(request.key, actor)

    def _completed(self, request: Request, actor: Actor) -> None:
        truth, upload = self.truth, request.upload_id
        if upload not in truth.open:
            return  # once more: nothing changed
        key = request.key
        before = truth.note_object(key, actor, upload)
        if object_of(key) != "data":
            return  # a probe's
        token = truth.token_of(key)
        job = truth.jobs.get(token.partition(".")[0])
        attempt = truth.attempt_of(token)
        if job is None or attempt is None:
            self.broken("I6", f"{key} was completed, an upload that is no job's of ours")
            return
        if job.decision == "aborted" or job.state in ("reverted", "closed", "absent"):
            self.broken("I3", f"{key} became visible after job {job.id} was {job.decision}")
        elif not job.decision:
            self.broken("I1", f"{key} became visible before job {job.id} was decided")
        elif upload not in job.accepted:
            self.broken("I2", f"{key} of attempt {attempt.name}, which the plan does not name")
        if attempt.cut and job.terms["accept"] == "results":
            self.broken("I9", f"{key} of attempt {attempt.name}, whose input was cut")
        if truth.objects[key].body != attempt.files.get(key):
            self.broken("I2", f"{key} does not hold the bytes that attempt {attempt.name} wrote")
        if job.terms["mode"] in FAILING and before is not None:
            self.broken("I6", f"{key} was overwritten by job {job.id} of mode fail")
        job.completed[upload] = truth.step

    def _put(self, request: Request, actor: Actor) -> None:
        truth, key = self.truth, request.key
        what = object_of(key)
        before = truth.note_object(key, actor)
        if what == "record":
            found = truth.note_record(key, actor)
            if not actor.serves_all:
                actor.job = actor.job or truth.at_record[key]
            if found is not None:
                self._arrow(*found)
                self._judged_dead(*found, actor)
        elif what == "_SUCCESS":
            self._marked(key, before, truth.objects[key].job)
        elif what in ("pending", "pendingset"):
            truth.note_named(key)
        elif what == "data":
            self.broken("I1", f"{key} was put by a plain PUT")

    def _arrow(self, job: JobTruth, left: str) -> None:
        if job.state not in ARROWS[left]:
            if left in ENDS and job.forgotten and not job.handed_out:
                return
            if left in ENDS:
                self.broken("I4", f"job {job.id} was {left}, and is {job.state} again")
            else:
                self.broken("record", f"job {job.id} went from {left} to {job.state}")
        if job.state != "committing":
            return
        if job.refused:
            self.broken("I10", f"job {job.id}, whose setup was refused, is committed")
        if job.unknown_plan:
            self.broken("I5", f"job {job.id} is committed, but {job.unknown_plan}")
        chosen: dict[str, str] = {}
        for _, task, attempt in job.accepted.values():
            if chosen.setdefault(task, attempt) != attempt:
                self.broken("I2", f"job {job.id} accepts two attempts of task {task}")
            known = self.truth.attempts.get((job.uuid, attempt))
            if job.terms["accept"] == "results" and (known is None or not known.told):
                self.broken("I9", f"job {job.id} accepts attempt {attempt}, which told nobody")
        if job.terms["mode"] in EXCLUDING:
            self._look_for_others(job)

    def _judged_dead(self, job: JobTruth, left: str, actor: Actor) -> None:
        if actor.dead_seconds and (left, job.state) == ("running", "aborting"):
            age = self.truth.looked.get((actor.name, job.directory), 0.0)
            if age < actor.dead_seconds - CLOCK_SECONDS:
                self.broken(
                    "I6", f"job {job.id}, of which something changed {age:.0f} s ago, was aborted"
                    f" by {actor} as one dead for {actor.dead_seconds:.0f} s"
                )  # fmt: skip

    def _look_for_others(self, job: JobTruth) -> None:
        for other in self.truth.jobs.values():
            mode = other.terms["mode"]
            if (
                other is not job
                and mode in EXCLUDING
                and other.state in ("committing", "completed")
            ):
                self.broken("I6", f"jobs {other.id} ({mode}) and {job.id} publish at once")

    def _marked(self, key: str, before: ObjectTruth | None, uuid: str) -> None:
        job = self.truth.jobs.get(uuid)
        if job is None:
            return
        missing = self.truth.unfinished(job)
        if job.decision != "committed" or missing:
            self.broken("I8", f"{key} was written by job {job.id}, not visible: {missing}")
        if before is None or job.completed_time is None or before.job == job.uuid:
            return
        other = self.truth.jobs.get(before.job)
        time = other.completed_time if other is not None else float(int(before.time))
        if time is not None and time > job.completed_time:
            self.broken("I8", f"{key} of job {job.id} replaced the marker of a later one")

    def _deleted(self, key: str, actor: Actor) -> None:
        truth = self.truth
        mine = self._may_tidy(key, actor)
        if actor.kind == "task":
            truth.note_taken_back(key)
        if object_of(key) == "record":
            state = next(
                (j.state for j in truth.jobs.values() if truth.at_record.get(key) == j.uuid), ""
            )
            job = truth.note_record_gone(key)
            if job is not None and state not in REMOVALS:
                self.broken("record", f"the record of job {job.id} was deleted while {state}")
            if job is not None:
                job.forgotten = actor.serves_all
        gone = truth.note_gone(key)
        if gone is None:
            return
        if object_of(key) in ("data", "_SUCCESS"):
            self._data_deleted(key, gone, actor)
        elif not mine:
            self.broken("I6", f"{key} of job {gone.job} was deleted by {actor}, of {actor.job}")

    def _data_deleted(self, key: str, gone: ObjectTruth, actor: Actor) -> None:
        own = self.truth.jobs.get(gone.job)
        serves = actor.serves_all or gone.job == actor.job
        if own is not None and own.decision == "reverted" and serves:
            return  # undone, also where another job's plan would replace it
        job = self._planned_by(key, gone, actor)
        if job is not None:
            missing = self.truth.unfinished(job)
            if missing and object_of(key) == "data":
                self.broken("I7", f"{key} was deleted, what replaces it is not visible: {missing}")
            return
        if own is None or not serves:
            self.broken("I6", f"{key} of {gone.job}, not as it was planned, was deleted by {actor}")
        else:
            self.broken("I2", f"{key} of job {own.id}, {own.decision}, was deleted by {actor}")

    def _may_tidy(self, key: str, actor: Actor) -> bool:
        """Whether a control object is the actor's, or an operator may take it."""
        there = self.truth.objects.get(key)
        if there is None or not actor.serves_all:
            return there is None or there.job == actor.job
        job = self.truth.jobs.get(there.job)
        return job is not None and job.state in SWEPT

    def _planned_by(self, key: str, gone: ObjectTruth, actor: Actor) -> JobTruth | None:
        """The job that replaces this very object."""
        for job in self.truth.jobs.values():
            same = job.deletes.get(key) == gone.etag and self._may_go(job, key)
            if same and (actor.serves_all or job.uuid == actor.job):
                return job
        return None

    @staticmethod
    def _may_go(job: JobTruth, key: str) -> bool:
        # The old marker goes before anything is visible: a revert that comes after does not bring
        # it back.
        marker = object_of(key) == "_SUCCESS"
        return job.decision == "committed" or (marker and job.decision == "reverted")

    def _aborted(self, upload_id: str, actor: Actor) -> None:
        truth = self.truth
        if upload_id not in truth.open:
            if upload_id in truth.uploads:
                self._aborted_again(upload_id, actor)
            return
        truth.open.discard(upload_id)
        upload = truth.uploads[upload_id]
        if upload.job == actor.job:
            return
        owner = truth.jobs.get(upload.job)
        if actor.serves_all and owner is not None and owner.state in (*SWEPT, "reverting"):
            return
        alone = owner is None or owner.state in (*ENDS, "")
        if not (alone and self._is_exclusive(actor)):
            self.broken(
                "I6", f"the upload of {upload.key}, of {upload.job}, was aborted by {actor}"
            )

    def _is_exclusive(self, actor: Actor) -> bool:
        """Whether it may be sweeping a job whose starter said that nobody else writes there."""
        return any(
            job.terms["exclusive"]
            and (job.uuid == actor.job or (actor.serves_all and job.state in SWEPT))
            for job in self.truth.jobs.values()
        )

    def _aborted_again(self, upload_id: str, actor: Actor) -> None:
        upload = self.truth.uploads[upload_id]
        there = self.truth.objects.get(upload.key)
        if there is None or there.upload != upload_id or actor.kind == "task":
            return
        if self._is_exclusive(actor):
            return
        job = self.truth.jobs.get(there.job)
        if job is not None and job.decision == "committed":
            self.broken("I2", f"the upload that became {upload.key} was aborted by {actor}")

    # Foreign deeds --------------------------------------------------------------------------------

    def foreign_object(self, key: str) -> None:
        """Another program wrote an object."""
        self.truth.note_object(key, None)

    def foreign_delete(self, key: str) -> None:
        """Another program deleted an object."""
        self.truth.note_gone(key)

    def foreign_upload(self, upload_id: str, key: str) -> None:
        """Another program started an upload."""
        self.truth.note_upload(upload_id, key, None)

    # What callers are told ------------------------------------------------------------------------

    def told(
        self, uuid: str, asked: str, outcome: str, error: BaseException | None, since: int = 0
    ) -> None:
        """A call on a job returned a report, or raised. ``since``: the step at which it began."""
        job = self.truth.jobs.get(uuid)
        if job is None:
            return
        name = type(error).__name__ if error is not None else ""
        if error is None:
            if job.decision != outcome:
                self.broken(
                    "I10", f"{asked} returned {outcome!r}, job {job.id} is {job.decision!r}"
                )
            elif outcome == "committed" and (missing := self.truth.unfinished(job)):
                self.broken("I2", f"{asked} of job {job.id} returned, not visible: {missing}")
        elif isinstance(error, StoreError):
            # It says that the call decided nothing; of earlier or other calls it says nothing.
            if job.decided_by == asked.partition(":")[0] and job.decided_step >= since:
                self.broken(
                    "I10", f"{asked} raised {name}, job {job.id} was decided by it: {error}"
                )
        elif name in NOT_COMMITTED:
            if job.decision == "committed":
                self.broken("I10", f"{asked} raised {name}, job {job.id} is committed: {error}")
        elif name in ABORTED:
            if job.decision not in ("aborted", "reverted"):
                self.broken("I10", f"{asked} raised {name}, job {job.id} is {job.decision!r}")
        elif name == "CommitIncomplete":
            if job.decision not in ("committed", "reverted"):
                self.broken("I10", f"{asked} raised {name}, job {job.id} is {job.decision!r}")
        elif name == "JobNotRunning":
            said = getattr(error, "outcome", "")
            if said and said != job.decision:
                self.broken(
                    "I10", f"{asked} raised {name}({said}), job {job.id} is {job.decision!r}"
                )
        elif name != "OutcomeUnknown":
            self.broken("I10", f"{asked} of job {job.id} raised {error!r}")

    def told_in_passing(self, uuid: str, asked: str, outcome: str) -> None:
        """A call that changes nothing said what a job is, or was a moment ago."""
        job = self.truth.jobs.get(uuid)
        if job is None or not outcome or outcome == job.decision:
            return
        if (outcome, job.decision) != ("committed", "reverted"):
            self.broken("I10", f"{asked} says {outcome!r}, job {job.id} is {job.decision!r}")

    def refused(self, uuid: str, error: BaseException) -> None:
        """A setup raised: nothing of the job will become visible."""
        job = self.truth.jobs.get(uuid)
        if job is not None:
            job.refused = True
            if job.decision == "committed":
                self.broken("I10", f"setup of job {job.id} raised {error!r}, it is committed")

    def take_as_is(self, uuid: str, keys: Iterable[str]) -> bool:
        """Whether an operator may accept these unresolved keys: somebody else has meddled with all
        of them. Anything else is no excuse."""
        keys = frozenset(keys)
        meddled = bool(keys) and all(
            key in self.truth.meddled or self._foreign_there(uuid, key) for key in keys
        )
        if meddled:
            self.truth.jobs[uuid].taken_as_is |= keys
        return meddled

    def taken(self, uuid: str) -> frozenset[str]:
        """The keys that an operator has accepted as they are."""
        job = self.truth.jobs.get(uuid)
        return job.taken_as_is if job is not None else frozenset()

    def _foreign_there(self, uuid: str, key: str) -> bool:
        there = self.truth.objects.get(key)
        return there is not None and there.job != uuid

    # The end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """Judge the store when nothing more will happen."""
        for job in self.truth.jobs.values():
            self._ended(job)
        self._objects()
        self._uploads()

    def _ended(self, job: JobTruth) -> None:
        if job.state not in ENDS:
            self.broken("I5", f"job {job.id} is still {job.state} after its recovery")
        if job.decision == "reverted":
            for key, there in self.truth.objects.items():
                if there.upload in job.accepted:
                    self.broken("I3", f"{key} of job {job.id}, which was reverted, is there")
        if job.decision == "committed":
            for key, etag in job.deletes.items():
                old = self.truth.objects.get(key)
                if old is not None and old.etag == etag and old.step < job.decided_step:
                    self.broken("I5", f"{key}, which job {job.id} replaces, is still there")
            for upload, (key, _, attempt) in job.accepted.items():
                now = self.truth.objects.get(key)
                if key in job.taken_as_is:
                    continue
                if upload not in job.completed:
                    self.broken("I2", f"{key} of job {job.id} never became visible")
                elif now is not None and now.upload == upload:
                    wrote = self.truth.attempts[(job.uuid, attempt)].files.get(key)
                    if self.truth.store.body(key) != wrote:
                        self.broken("I2", f"{key} of job {job.id} has other bytes")
                elif key not in self.truth.meddled:
                    self.broken("I2", f"{key} of job {job.id} is gone")

    def _objects(self) -> None:
        truth = self.truth
        for key in truth.store.keys():
            there = truth.objects.get(key)
            assert there is not None, f"{key} appeared without an effect"
            if there.job == FOREIGN or object_of(key) in ("data", "_SUCCESS"):
                continue
            if object_of(key) == "record" and truth.jobs[truth.at_record[key]].state == "closed":
                continue
            if self._excused(there.job, there.actor, there.step):
                continue
            self.broken("I4", f"{key} of job {there.job} stays")
        for key, there in truth.objects.items():
            if key not in truth.store.keys(key):
                self.broken("I6", f"{key} of {there.job} is gone without an effect")

    def _uploads(self) -> None:
        truth = self.truth
        for upload_id in sorted(truth.open):
            upload = truth.uploads[upload_id]
            if upload.job == FOREIGN:
                continue
            named = UNIQUE.search(upload.key.rpartition("/")[2])
            by = upload.actor
            if named is None and by is not None and (by.hurt or by.sent_twice):
                continue
            if self._excused(upload.job, upload.actor, upload.step):
                continue
            self.broken("I4", f"the upload of {upload.key} by {upload.actor} stays open")

    def swept(self, forgotten: bool) -> None:
        """Judge the store after the last cleanup: nothing of ours is left, and nobody is excused.

        Args:
            forgotten: closed records of given ids were to go, too.
        """
        truth = self.truth
        for key in truth.store.keys():
            there = truth.objects[key]
            if there.job == FOREIGN or object_of(key) in ("data", "_SUCCESS"):
                continue
            job = truth.jobs.get(there.job)
            if object_of(key) == "record" and job is not None and job.given and not forgotten:
                continue
            self.broken("I4", f"{key} of job {there.job} stays after the last cleanup")
        for upload_id in sorted(truth.open):
            upload = truth.uploads[upload_id]
            named = UNIQUE.search(upload.key.rpartition("/")[2]) or upload_id in truth.named
            if upload.job != FOREIGN and named:
                by = f"{upload.key} by {upload.actor}"
                self.broken("I4", f"the upload of {by} stays after the last cleanup")

    def _excused(self, uuid: str, actor: Actor | None, step: int) -> bool:
        job = self.truth.jobs.get(uuid)
        decided = job.decided_step if job is not None and job.decision else 0
        return actor is None or (actor.hurt and step >= decided)

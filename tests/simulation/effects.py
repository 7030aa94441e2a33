"""Judges each effect on the store as it happens: what may become visible, what may go."""

from __future__ import annotations

from typing import Any

from magic_committer.errors import PreconditionFailed, StoreError, WriteConflict
from magic_committer.stores.memory import Request
from tests.simulation.judge import ARROWS, CLOCK_SECONDS, FAILING, READS, REMOVALS, SWEPT
from tests.simulation.kinds import object_of
from tests.simulation.scheduler import Actor
from tests.simulation.telling import Telling
from tests.simulation.truth import ENDS, FOREIGN, JobTruth, ObjectTruth

ZOMBIES = ("create_upload", "put_part", "put")
UNDONE = ("aborted", "reverted")


class Effects(Telling):
    def effect(self, request: Request, answer: Any, actor: Actor, sent: int = 0) -> None:
        """A request took effect, or was refused by the store itself. ``sent``: the step at which it
        was sent."""
        truth, verb, key = self.truth, request.verb, request.key
        if verb in ("head", "get"):
            truth.note_head(key, actor)
        if verb in ("abort_upload", "list_parts") and request.upload_id in truth.uploads:
            self._met_completed(request)
        if verb == "clear":
            self._cleared(request, actor, sent)
        if isinstance(answer, StoreError):
            if verb == "complete_upload":
                self._not_completed(request, answer)
            return
        if actor.reads_only and verb not in READS:
            self.broken("I10", f"{actor}, who said that it only looks, sent {verb} {key}")
        if actor.kind == "task" and verb in ZOMBIES:
            job = truth.jobs.get(actor.job)
            if job is not None and job.decision in UNDONE:
                self.met("zombie")
        if verb == "create_upload":
            truth.note_upload(answer.upload_id, key, actor)
        elif verb == "complete_upload":
            self._completed(request, actor)
        elif verb == "put":
            self._put(request, actor, sent)
        elif verb == "delete_one":
            self._deleted(key, actor, sent)
        elif verb == "delete":
            for one in request.keys:
                if one not in answer:
                    self._deleted(one, actor, sent)
        elif verb == "abort_upload":
            self._aborted(request.upload_id, actor)
        elif verb == "list" and actor.serves_all:
            truth.note_look(key, actor)

    def injected(self, request: Request, error: StoreError, actor: Actor) -> None:
        """A fault answered a request in the store's place; it had no effect."""
        if request.verb == "complete_upload":
            self._not_completed(request, error)

    # Files ----------------------------------------------------------------------------------------

    def _not_completed(self, request: Request, error: StoreError) -> None:
        if not isinstance(error, PreconditionFailed | WriteConflict):
            return
        job = self._job_of_upload(request.upload_id)
        if job is not None and job.decision == "committed":
            self.met("by itself")
            job.turned_away = True
            there = self.truth.objects.get(request.key)
            if there is not None and there.upload != request.upload_id:
                job.conflicted = True

    def _job_of_upload(self, upload_id: str) -> JobTruth | None:
        upload = self.truth.uploads.get(upload_id)
        if upload is None:
            return None
        return self.truth.jobs.get(upload.job) or self.truth.adopter(upload_id)

    def _completed(self, request: Request, actor: Actor) -> None:
        truth, upload = self.truth, request.upload_id
        if upload not in truth.open:
            return  # once more: nothing changed
        key = request.key
        before = truth.note_object(key, actor, upload)
        if object_of(key) != "data":
            return  # a probe's
        self.met("visible")
        hadoop = truth.hadoop.get(upload)
        uuid, attempt = truth.made_by(upload, key)
        job = truth.adopter(upload) or truth.jobs.get(uuid)
        if job is None or (attempt is None and hadoop is None):
            self.broken("I6", f"{key} was completed, an upload that is no job's of ours")
            return
        if job.decision == "aborted" or job.state in ("reverted", "closed", "absent"):
            self.broken("I3", f"{key} became visible after job {job.id} was {job.decision}")
        elif not job.decision:
            self.broken("I1", f"{key} became visible before job {job.id} was decided")
        elif upload not in job.accepted:
            self.broken("I2", f"{key} of upload {upload}, which the plan does not name")
        wrote = hadoop.body if hadoop is not None else None
        if attempt is not None:
            wrote = attempt.files.get(key)
            if attempt.cut and job.terms["accept"] == "results":
                self.broken("I9", f"{key} of attempt {attempt.name}, whose input was cut")
        if truth.objects[key].body != wrote:
            self.broken("I2", f"{key} does not hold the bytes that were written")
        if job.terms["mode"] in FAILING and before is not None:
            self.broken("I6", f"{key} was overwritten by job {job.id} of mode fail")
        job.completed[upload] = truth.step

    def _deleted(self, key: str, actor: Actor, sent: int) -> None:
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
        what = object_of(key)
        truth.removed[actor.name, what if what in ("data", "record") else "control"] += 1
        if what in ("data", "_SUCCESS"):
            self._data_deleted(key, gone, actor, sent)
        elif not mine:
            self.broken("I6", f"{key} of job {gone.job} was deleted by {actor}, of {actor.job}")

    def _data_deleted(self, key: str, gone: ObjectTruth, actor: Actor, sent: int) -> None:
        own = self.truth.jobs.get(gone.job)
        serves = actor.serves_all or gone.job == actor.job
        if own is not None and own.decision == "reverted" and serves:
            self.met("undone")
            return  # undone, also where another job's plan would replace it
        job = self._planned_by(key, gone, actor, sent)
        if job is not None:
            came_later = gone.step >= self.truth.looked_at(key, actor, sent)
            self._replaced(job, key, own, came_later=came_later)
            return
        if own is None or not serves:
            self.broken("I6", f"{key} of {gone.job}, not as it was planned, was deleted by {actor}")
        else:
            self.broken("I2", f"{key} of job {own.id}, {own.decision}, was deleted by {actor}")

    def _replaced(
        self, job: JobTruth, key: str, own: JobTruth | None, *, came_later: bool = False
    ) -> None:
        """A plan's object was deleted. What an append publishes that is decided and not at its end
        when the plan is stored is none of it. ``came_later``: it is one of the same bytes, written
        after the look that the DELETE follows: nobody could spare it (docs/protocol.md, "What is
        not promised")."""
        job.deleted[key] = self.truth.step
        if object_of(key) == "_SUCCESS":
            self.truth.unmarked_by = "" if came_later else job.uuid
            self.met("unmarked")
            return
        self.met("deleted")
        missing = self.truth.unfinished(job)
        if missing:
            self.broken("I7", f"{key} was deleted, what replaces it is not visible: {missing}")
        if own is None or own is job or own.terms["mode"] != "append":
            return
        if own.decision == "committed" and not self.truth.was_over(own, job.plan_step):
            self.broken("I2", f"job {job.id} deleted {key} of job {own.id}, which had not ended")

    def _planned_by(self, key: str, gone: ObjectTruth, actor: Actor, sent: int) -> JobTruth | None:
        """The job that replaces this very object. One of the same bytes that came after the look
        at it, and before the DELETE by ETag, nobody on S3 could spare."""
        truth = self.truth
        looked = truth.looked_at(key, actor, sent)
        for job in truth.jobs.values():
            if not (actor.serves_all or job.uuid == actor.job) or not self._may_go(job, key):
                continue
            same_bytes = job.deletes.get(key) == gone.etag
            if truth.as_planned(job, key, gone) or (same_bytes and gone.step >= looked > 0):
                return job
        return None

    @staticmethod
    def _may_go(job: JobTruth, key: str) -> bool:
        # The old marker goes before anything is visible: a revert that comes after does not bring
        # it back.
        marker = object_of(key) == "_SUCCESS"
        return job.decision == "committed" or (marker and job.decision == "reverted")

    def _may_tidy(self, key: str, actor: Actor) -> bool:
        """Whether a control object is the actor's, or an operator may take it."""
        there = self.truth.objects.get(key)
        if there is None:
            return True
        owner = there.job
        if owner == FOREIGN:  # Hadoop's, perhaps adopted
            owner = next(
                (j.uuid for j in self.truth.jobs.values() if j.adopted
                 and key.startswith(j.directory)), owner
            )  # fmt: skip
        if not actor.serves_all:
            return owner == actor.job or owner in actor.started
        if actor.kind == "driver" and owner in actor.started:
            return True  # a run of a query, which may take back its own job and settle others
        job = self.truth.jobs.get(owner)
        return job is not None and job.state in SWEPT

    # Control objects ------------------------------------------------------------------------------

    def _put(self, request: Request, actor: Actor, sent: int) -> None:
        truth, key = self.truth, request.key
        what = object_of(key)
        before = truth.note_object(key, actor)
        if what == "record":
            found = truth.note_record(key, actor, sent)
            if not actor.serves_all:
                actor.job = actor.job or truth.at_record[key]
            if before is None:
                actor.started.add(truth.at_record[key])
            if found is not None:
                self._arrow(*found, actor, sent)
                self._judged_dead(*found, actor)
        elif what == "plan":
            truth.note_plan_stored(key)
        elif what == "_SUCCESS":
            self._marked(key, before, truth.objects[key].job, actor, sent)
        elif what in ("pending", "pendingset"):
            truth.note_named(key, actor)
            self._stored(actor)
        elif what == "ledger":
            self.ledger_written(key)
        elif what == "data":
            self.broken("I1", f"{key} was put by a plain PUT")

    def _stored(self, actor: Actor) -> None:
        job = self.truth.jobs.get(actor.job)
        if job is not None and job.decision:
            self.met("late litter")

    def _arrow(self, job: JobTruth, left: str, actor: Actor, sent: int) -> None:
        if job.state not in ARROWS[left]:
            if left in ENDS and job.forgotten and not job.handed_out:
                return
            promise = "I4" if left in ENDS else "record"
            self.broken(promise, f"job {job.id} went from {left} to {job.state}")
        if left == "running" and sent in self.unheard:
            self.met("late decision")
        if job.state == "reverting" and job.turned_away and self._others_are_there(job):
            job.conflicted = True  # it came between the refused Complete and the look that followed
        if job.state == "reverting" and not (actor.reverts or job.conflicted):
            self.broken("I2", f"job {job.id} is undone by {actor}: nothing is in its way")
        elif job.state == "reverting" and job.conflicted and not actor.reverts:
            self.met("in the way")
            if job.terms["mode"] not in FAILING:
                self.broken("I2", f"job {job.id} ({job.terms['mode']}) is undone by {actor}")
        if left == "" and (said := self.not_set_up(actor, sent)):
            self.broken("I10", f"the setup of job {job.id} raised {said}, it is there all the same")
        if job.state == "committing":
            self._decided(job)

    def _decided(self, job: JobTruth) -> None:
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
        if job.adopted:
            self.met("adopted")
        self.decided_beside_others(job)
        self.batch_decided(job)

    def _judged_dead(self, job: JobTruth, left: str, actor: Actor) -> None:
        if actor.dead_seconds and (left, job.state) == ("running", "aborting"):
            self.met("dead")
            age = self.truth.looked.get((actor.name, job.directory), 0.0)
            if age < actor.dead_seconds - CLOCK_SECONDS:
                self.broken("I6", f"{actor} took job {job.id} for dead, changed {age:.0f} s ago")

    def _others_are_there(self, job: JobTruth) -> bool:
        """Whether an object that is not the job's is at a key that the job is to publish."""
        objects, uploads = self.truth.objects, self.truth.uploads
        there = ((one, objects.get(uploads[one].key)) for one in job.accepted)
        return any(found is not None and found.upload != one for one, found in there)

    def _marked(
        self, key: str, before: ObjectTruth | None, uuid: str, actor: Actor, sent: int
    ) -> None:
        truth = self.truth
        job = truth.jobs.get(uuid)
        if job is None:
            return
        missing = truth.unfinished(job)
        if job.decision != "committed" or missing:
            self.broken("I8", f"{key} was written by job {job.id}, not visible: {missing}")
        if before is None or job.completed_time is None or before.job == job.uuid:
            return
        self.met("marked over")
        if before.step >= truth.looked_at(key, actor, sent):
            return  # the same bytes, written between the look and the PUT by ETag
        other = truth.jobs.get(before.job)
        time = other.completed_time if other is not None else float(int(before.time))
        if time is not None and time > job.completed_time:
            self.broken("I8", f"{key} of job {job.id} replaced the marker of a later one")

    # Uploads --------------------------------------------------------------------------------------

    def _met_completed(self, request: Request) -> None:
        there = self.truth.objects.get(request.key)
        if there is not None and there.upload == request.upload_id:
            self.met("sure")

    def _aborted(self, upload_id: str, actor: Actor) -> None:
        truth = self.truth
        if upload_id not in truth.open:
            if upload_id in truth.uploads:
                self._aborted_again(upload_id, actor)
            return
        truth.open.discard(upload_id)
        truth.removed[actor.name, "upload"] += 1
        upload = truth.uploads[upload_id]
        if upload.job == actor.job:
            return
        owner = self._job_of_upload(upload_id)
        if owner is not None and owner.adopted and owner.uuid == actor.job:
            return
        if actor.serves_all and owner is not None and owner.state in (*SWEPT, "reverting"):
            return
        if actor.serves_all and owner is not None and upload.key in owner.taken_as_is:
            return  # an operator gave this file up: what is at its key stays
        self.broken("I6", f"the upload of {upload.key}, of {upload.job}, was aborted by {actor}")

    def _aborted_again(self, upload_id: str, actor: Actor) -> None:
        upload = self.truth.uploads[upload_id]
        there = self.truth.objects.get(upload.key)
        if there is None or there.upload != upload_id:
            return
        job = self.truth.jobs.get(there.job)
        if job is not None and job.decision == "committed":
            self.broken("I2", f"the upload that became {upload.key} was aborted by {actor}")

    def _cleared(self, request: Request, actor: Actor, sent: int) -> None:
        """A directory of a job was removed, or a part of it: files that waited, and their sets."""
        truth, directory = self.truth, request.key.removeprefix("t/")
        there = {one.upload_id for one in truth.store.open_uploads()}
        for upload_id in sorted(truth.open - there):
            if upload_id.startswith(directory):
                self._aborted(upload_id, actor)
        keys = truth.store.keys(request.key)
        for key in sorted(truth.objects):
            if key.startswith(request.key) and key not in keys:
                self._deleted(key, actor, sent)

    def abort_took(self, upload_id: str, key: str) -> None:
        """An abort of a completed upload took the object with it, as some stores do."""
        there = self.truth.objects.get(key)
        if upload_id in self.truth.open or there is None or there.upload != upload_id:
            return
        self.truth.store.delete_object(key)
        self.truth.objects.pop(key, None)

    def foreign_object(self, key: str) -> None:
        """Another program wrote an object."""
        if any(key in job.deletes for job in self.truth.jobs.values() if job.state not in ENDS):
            self.met("changed")
        self.truth.note_object(key, None)

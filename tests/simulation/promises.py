"""The promises I1 to I10 of the protocol, as checkers that know nothing of the library's logic.

`Watch.effect` judges every effect on the store as it happens (`effects`), every decision beside
what is there (`decisions`). `Watch.told` holds what a caller is told against the truth (`telling`).
`Watch.end` judges the store at the end, when every crashed job has been recovered. All go by
`truth.Truth` alone. Each notes when it had a case in which it could have failed (`cases`).

What the protocol words as weaker promises is excused here and in these modules, and nowhere else:

* I4: what an actor that a fault struck wrote after the decision (it may be after the sweep); its
  uploads under names that the user chose, which nothing but their name tells of; those too where
  a Create was sent twice; and what a listing of uploads did not show.
* I4, to the last: what a task wanted to take back, and no `.pending` or `.pendingset` names since.
* I4: a driver that was paused in its setup until its job was aborted, closed and forgotten brings
  the record back, and takes it away: nobody else knows that job.
* I5: keys that another program or job overwrote or deleted, or whose uploads a lifecycle rule took,
  may end *unresolved*: then an operator takes them as they are. No other key may.
* I6, I8: an object of the same bytes that came between the look at one and its DELETE or PUT by
  ETag; and one that ETag and Last-Modified do not tell from it.
* I2: a file that is closed by one process while another commits its attempt; one whose close began
  when the attempt was committed is no such file, unless a fault struck who closes it.
"""

from __future__ import annotations

from magic_committer.stores.memory import MemoryStore
from tests.simulation.effects import Effects
from tests.simulation.judge import UNIQUE, Violation
from tests.simulation.kinds import object_of
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.tree import Tree
from tests.simulation.truth import ENDS, FOREIGN, JobTruth

__all__ = ["Violation", "Watch"]

STAYS = ("data", "_SUCCESS", "ledger")
"""Objects that are nobody's litter."""


class Watch(Effects):
    def __init__(self, store: MemoryStore, scheduler: Scheduler) -> None:
        super().__init__(store, scheduler)
        self.claims = []
        self.setups = {}

    def end(self) -> None:
        """Judge the store when nothing more will happen."""
        self.judge_claims()
        for job in self.truth.jobs.values():
            self._ended(job)
        self._objects()
        self._uploads()

    def _ended(self, job: JobTruth) -> None:
        truth = self.truth
        if job.state not in ENDS:
            self.broken("I5", f"job {job.id} is still {job.state} after its recovery")
        if job.decision == "reverted":
            for key, there in truth.objects.items():
                if there.upload in job.accepted:
                    self.broken("I3", f"{key} of job {job.id}, which was reverted, is there")
        if job.decision != "committed":
            return
        for key in job.deletes:
            old = truth.objects.get(key)
            if old is not None and truth.must_go(job, key, old):
                self.broken("I5", f"{key}, which job {job.id} replaces, is still there")
        for upload, (key, _, attempt) in job.accepted.items():
            now = truth.objects.get(key)
            if key in job.taken_as_is:
                continue
            if upload not in job.completed:
                self.broken("I2", f"{key} of job {job.id} never became visible")
            elif now is not None and now.upload == upload:
                hadoop = truth.hadoop.get(upload)
                files = truth.attempts[job.uuid, attempt].files if hadoop is None else {}
                if truth.store.body(key) != (hadoop.body if hadoop else files.get(key)):
                    self.broken("I2", f"{key} of job {job.id} has other bytes")
            elif key not in truth.meddled:
                self.broken("I2", f"{key} of job {job.id} is gone")
        self._closed_files(job)
        self._mark_is_back(job)

    def _closed_files(self, job: JobTruth) -> None:
        """Who closes a file of an attempt that is committed is told so, or its file is in it."""
        accepted = {key for key, _, _ in job.accepted.values()}
        for name in {attempt for _, _, attempt in job.accepted.values()}:
            attempt = self.truth.attempts.get((job.uuid, name))
            if attempt is None:
                continue
            for key, began in attempt.closed.items():
                if key in attempt.unsure or not 0 < attempt.stored_step < began:
                    continue
                if key not in accepted:
                    self.broken("I2", f"{key} was closed well, after attempt {name} was committed")

    def _mark_is_back(self, job: JobTruth) -> None:
        marker = next((key for key in job.deletes if object_of(key) == "_SUCCESS"), "")
        if not marker or not job.terms["mark_success"] or self.truth.unmarked_by != job.uuid:
            return
        if marker not in self.truth.objects:
            self.broken("I8", f"job {job.id} deleted the old {marker}, and none is there again")

    def _objects(self) -> None:
        truth = self.truth
        for key in truth.store.keys():
            there = truth.objects.get(key)
            assert there is not None, f"{key} appeared without an effect"
            if there.job == FOREIGN or object_of(key) in STAYS:
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
        for upload_id in sorted(truth.open - truth.hidden):
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
        ``forgotten``: closed records of given ids were to go, too."""
        truth = self.truth
        for key in truth.store.keys():
            there = truth.objects[key]
            if there.job == FOREIGN or object_of(key) in STAYS:
                continue
            job = truth.jobs.get(there.job)
            if object_of(key) == "record" and job is not None and job.given and not forgotten:
                continue
            self.broken("I4", f"{key} of job {there.job} stays after the last cleanup")
        if isinstance(truth.store, Tree):
            for key in truth.store.left_of_tasks():
                self.broken("I4", f"{key} waits still after the last cleanup")
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

"""Judges what a job's decision means for the jobs and the data beside it.

At the decision of a job of an excluding mode, in what it *covers* (all data below the destination,
or what lies directly in the partitions that it writes):

* no other job of an excluding mode is decided and not at its end (one that has only its record left
  to close, its plan is swept, counts as ended);
* no data is there of another job of an excluding mode, and none that was there when the call began
  that planned it, but what its plan deletes or rewrites. A job of a mode ``fail`` deletes nothing:
  there is none at all.

So of two such jobs of one place, whose data would be a union, the second either replaces all that
the first has published, or never commits; and none of a mode ``fail`` publishes beside data that it
could have seen. What comes while it runs from programs that exclude nobody (append jobs, foreign
ones) stays beside it. What an append that is decided has published, and is not at its end when the
job is planned, stays too.

A batch of a streaming query is published once, by one job. That is judged by what each job was
begun for, by what is decided and visible, and by what callers are told; never by the ledger. What
the ledger says is judged itself.
"""

from __future__ import annotations

import orjson

from tests.simulation.judge import EXCLUDING, FAILING, Judge
from tests.simulation.truth import JobTruth, ObjectTruth


class Decisions(Judge):
    batches_begun = -1
    """The greatest number of a batch that was run."""

    def runs_batch(self, number: int) -> None:
        if number <= self.batches_begun:
            self.met("batch again")
        self.batches_begun = max(self.batches_begun, number)

    def _publishers(self, number: int) -> list[JobTruth]:
        """The jobs that were decided to publish a batch, and are not undone."""
        return [
            job
            for job in self.truth.jobs.values()
            if job.batch == number and job.decision == "committed"
        ]

    def batch_decided(self, job: JobTruth) -> None:
        if job.batch is None:
            return
        if any(
            other is not job and other.checkpoint == job.checkpoint and other.state == "running"
            for other in self.truth.jobs.values()
        ):
            self.met("batch beside")
        publishers = [one.id for one in self._publishers(job.batch)]
        if len(publishers) > 1:
            self.broken("I2", f"batch {job.batch} is published twice, by jobs {publishers}")

    def told_published(self, number: int, asked: str, *, skipped: bool) -> None:
        """A commit of a batch returned: it is published, whoever did it."""
        self.met("batch skipped" if skipped else "batch told")
        publishers = self._publishers(number)
        if not publishers:
            self.broken("I10", f"{asked} says that batch {number} is published, and no job did it")
        for job in publishers:
            self.said_to_be_done(job, f"{asked} says that batch {number} is published")

    def said_to_be_done(self, job: JobTruth, words: str) -> None:
        """Somebody was told that a job is committed."""
        truth = self.truth
        if missing := truth.unfinished(job):
            self.broken("I2", f"{words}, not visible: {missing}")
        there = [(key, truth.objects[key]) for key in job.deletes if key in truth.objects]
        if left := [key for key, one in there if truth.must_go(job, key, one)]:
            self.broken("I2", f"{words}, and did not delete what it replaces: {left}")

    def ledger_written(self, key: str) -> None:
        """A ledger was written: what it calls done is visible, by the job that it names."""
        ledger = orjson.loads(self.truth.store.body(key))
        if ledger["done"] is None:
            return
        job = self.truth.jobs.get(ledger["done_by"])
        if job is None or (job.batch, job.decision) != (ledger["done"], "committed"):
            self.broken("I10", f"{key} says that {ledger['done_by']} published {ledger['done']}")
        elif missing := self.truth.unfinished(job):
            self.broken("I10", f"{key} says that {ledger['done']} is done, not visible: {missing}")

    # Beside others --------------------------------------------------------------------------------

    def decided_beside_others(self, job: JobTruth) -> None:
        if job.terms["mode"] in EXCLUDING:
            self._jobs_beside(job)
            self._data_beside(job)

    def _jobs_beside(self, job: JobTruth) -> None:
        truth = self.truth
        for other in truth.jobs.values():
            mode = other.terms["mode"]
            over = other.decision == "aborted" or 0 < other.ended_step < job.set_up_step
            if other is job or over:
                continue
            if mode == "append" and other.state in ("committing", "completed"):
                self.met("beside replace")
            if mode not in EXCLUDING or not truth.overlap(job, other):
                continue
            self.met("exclusion")
            publishes = other.state == "committing" or (
                other.state == "completed" and other.plan_key in truth.objects
            )
            if publishes:
                self.broken("I6", f"jobs {other.id} ({mode}) and {job.id} publish at once")

    def _data_beside(self, job: JobTruth) -> None:
        mode = job.terms["mode"]
        rewritten = {key for key, _, _ in job.accepted.values()}
        for key, there in self.truth.objects.items():
            if there.job == job.uuid or not self.truth.covers(job, key):
                continue
            whose = self._should_be_known(job, there)
            if not whose:
                continue
            if mode in FAILING:
                self.broken("I6", f"job {job.id} ({mode}) is decided beside {key} of {whose}")
                continue
            self.met("union")
            if key not in rewritten and not self.truth.as_planned(job, key, there):
                self.broken(
                    "I2", f"job {job.id} ({mode}) is decided, and {key} of {whose} stays beside it"
                )

    def _should_be_known(self, job: JobTruth, there: ObjectTruth) -> str:
        """Whose data it is, if the job must have seen it; else ""."""
        owner = self.truth.jobs.get(there.job)
        if owner is None:
            return "another program" if there.step < job.plan_since else ""
        mode = owner.terms["mode"]
        if mode in EXCLUDING:
            return f"job {owner.id} ({mode})" if owner.decision == "committed" else ""
        spared = not self.truth.was_over(owner, job.plan_since) and job.terms["mode"] not in FAILING
        if there.step < job.plan_since and not spared and owner.decision == "committed":
            return f"job {owner.id} ({mode})"
        return ""

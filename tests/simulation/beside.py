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
"""

from __future__ import annotations

from tests.simulation.effects import Effects
from tests.simulation.tables import EXCLUDING, FAILING
from tests.simulation.truth import JobTruth, ObjectTruth


class Beside(Effects):
    """Of decisions."""

    def decided_beside_others(self, job: JobTruth) -> None:
        """A job was decided to commit."""
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

"""What v1 and v2 do, against what docs/renames.md promises of them, and no more.

* v1: nothing is visible before the job's merge has begun; only attempts that had committed appear,
  whole files of them; in a job of results only those that the driver was handed.
* v2: files appear from the commit of their attempt on.
* Both: who is told "committed" finds that some attempt of each task was published whole. What was
  renamed stays. In mode ``fail`` nothing that was there before is written over: before the commit
  (v1), before the start (v2).
"""

from __future__ import annotations

from magic_committer.committers.manifest.names import ENDED_PREFIX, JOB_PREFIX, TEMPORARY
from tests.simulation.tables import FAILING
from tests.tree_simulation.telling import Asked, Telling
from tests.tree_simulation.truth import AttemptTruth, FileTruth, JobTruth

LIVE = ("running", "aborting", "committing", "completed")
"""States in which files of a classic job may still appear: what it has is not swept yet."""


class Classic(Telling):
    """Of v1 and v2."""

    def moved_classic(self, source: str, target: str) -> None:
        """A directory of a classic job was renamed."""
        uuid = source.split("/")[1].removeprefix(JOB_PREFIX).removeprefix(ENDED_PREFIX)[:32]
        job = self.jobs.get(uuid)
        if job is None:
            return
        here = f"{TEMPORARY}/{JOB_PREFIX}{uuid}/00"
        if (source, target) == (f"{here}/0", f"{here}/merge"):
            self.met("merged")
            job.merging = self.scheduler.steps
            if job.state != "running":
                self.met("merged late")
        elif source.startswith(f"{here}/0/_temporary/") and target.startswith(f"{here}/0/"):
            attempt = self.attempts.get((uuid, source.rpartition("/")[2]))
            if attempt is not None:
                attempt.moved = True

    def must_be_invisible(self, job: JobTruth) -> bool:
        """Whether a classic job that has not committed may not be visible at all."""
        return job.committer == "v1" and not job.merging

    def published_classic(self, job: JobTruth, file: FileTruth, path: str, over: str) -> None:
        """A file of a classic job comes to its place."""
        self.met(f"published by {job.committer}")
        known = self.attempts[file.job, file.attempt]
        if job.forgotten or job.state not in LIVE:
            self.broken("I3", f"{path} of job {job.id} is published, and it is {job.state}")
        if job.committer == "v1":
            if not job.merging:
                self.broken("I1", f"{path} of job {job.id} is published before the merge")
            if not known.moved:
                self.broken("I1", f"{path} of job {job.id} is of an attempt that has not committed")
            if job.accept == "results" and file.attempt not in job.handed:
                self.broken("I2", f"{path} of job {job.id} is of an attempt that nobody accepted")
        if path != file.name or self.tree.body(path) != known.files.get(file.name):
            self.broken("I2", f"{path} of job {job.id} is not whole")
        if over and self.files[over].job != job.uuid:
            self.met("written over by a classic job")
            if job.mode in FAILING and not self._may_write_over(job, path):
                self.broken("I6", f"job {job.id} ({job.mode}) writes over {path}, an older file")
        known.published.add(path)
        self.written[path] = self.scheduler.steps

    def _may_write_over(self, job: JobTruth, path: str) -> bool:
        """Whether a file came after the last look of a job of mode ``fail``."""
        if self.faults.lagged:
            return True
        looked = job.history[0].step if job.committer == "v2" else job.first_commit
        return self.since[path] >= looked

    def classic_whole(self, asked: Asked, job: JobTruth) -> None:
        """Some attempt of each task was published whole, and it is one that was accepted."""
        whole = {
            known.task
            for (uuid, attempt), known in self.attempts.items()
            if uuid == job.uuid
            and (job.accept == "listing" or attempt in job.handed)
            and known.published == known.files.keys()
        }
        self.met(f"{job.committer} told committed")
        if missing := sorted(job.tasks - whole):
            self.broken("I2", f"{asked} of job {job.id} says committed: {missing} were not whole")

    def attempt_committed(self, asked: Asked, known: AttemptTruth) -> None:
        """The commit of an attempt returned: by v2 its files have been visible."""
        job = self.jobs[asked.uuid]
        if job.committer != "v2":
            return
        self.met("v2 told a task")
        if missing := sorted(known.files.keys() - known.published):
            self.broken("I2", f"{asked} of job {job.id} returned: {missing} were not visible")

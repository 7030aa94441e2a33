"""Judges the batches of a streaming query: each is published once, by one job.

It goes by what each job was begun for, by what is decided and visible, and by what callers are
told; never by the ledger. What the ledger says is judged itself.
"""

from __future__ import annotations

import orjson

from tests.simulation.judge import Judge
from tests.simulation.truth import JobTruth


class Batches(Judge):
    """Of the runs of one query."""

    batches_begun = -1
    """The greatest number of a batch that was run."""

    def runs_batch(self, number: int) -> None:
        """A run of a batch begins."""
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
        """A job was decided to commit."""
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
            if missing := self.truth.unfinished(job):
                self.broken(
                    "I2", f"{asked} says that batch {number} is published, not visible: {missing}"
                )
            left = [
                key
                for key in job.deletes
                if (there := self.truth.objects.get(key)) is not None
                and self.truth.must_go(job, key, there)
            ]
            if left:
                self.broken(
                    "I2", f"{asked} says that batch {number} is published, which replaces {left}"
                )  # fmt: skip

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

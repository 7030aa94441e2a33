"""Schedules of jobs of renames keep the promises, can be replayed, and see what is wrong."""

from __future__ import annotations

import pytest

from magic_committer.committers.manifest import job_commit
from magic_committer.committers.manifest.ledgers import TreeLedgers
from magic_committer.protocol.ledger import Claim, Ledger, StreamBatch
from magic_committer.protocol.record import JobRecord, StartedJob
from tests.tree_simulation.cases import CASES
from tests.tree_simulation.tally import ENOUGH_SCHEDULES, Tally, closing, quietly, story, table
from tests.tree_simulation.tree import FAULTS

SCHEDULES = 1000
"""Some seconds of them. `python -m tests.tree_simulation --seeds A-B` runs more."""
SEEN_WITHIN = 400
"""So many seeds are enough to see that a tree does not keep its exclusive create."""


@pytest.fixture(scope="module")
def tally() -> Tally:
    """Many schedules, from seed 0 on."""
    found = Tally()
    for result in quietly(0, SCHEDULES):
        found.count(result)
    return found


def test_every_promise_is_kept(tally: Tally) -> None:
    """No schedule breaks a promise."""
    assert not tally.failures, story(tally.failures[0])


def test_every_checker_had_cases(tally: Tally) -> None:
    """Each checker had a case in which it could have failed as often as is stated, and each fault
    has struck."""
    assert tally.schedules >= ENOUGH_SCHEDULES
    assert not tally.too_few, f"{tally.too_few}\n{table(tally)}\n{closing(tally, 1.0)}"
    assert {fault for _, fault in tally.struck} == set(FAULTS)


def test_a_checker_without_cases_fails_a_run() -> None:
    """A run whose checkers met nothing names each that states cases."""
    tally = Tally(schedules=ENOUGH_SCHEDULES)
    assert len(tally.too_few) == sum(case.least > 0 for case in CASES.values())


def test_a_seed_gives_the_same_schedule_again() -> None:
    """Verb by verb."""
    first, second = (list(quietly(70, 90)) for _ in range(2))
    assert first == second
    assert len({result.calls for result in first}) == 20


def test_a_create_that_is_not_exclusive_is_seen() -> None:
    """On a tree that does not keep the port, a job is decided twice, and the checkers say so."""
    results = quietly(0, SEEN_WITHIN, exclusive=False)
    seen = [str(v) for result in results for v in result.violations]
    assert any("is decided twice" in violation for violation in seen)


def test_batches_that_nobody_claims_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that looks at the ledger, and decides without a claim, publishes a batch twice."""

    def look(
        ledgers: TreeLedgers, ids: object, job: object, batch: StreamBatch, *_: object
    ) -> bool:
        ledger = ledgers.read(batch.query).ledger
        return ledger is None or not ledger.covers(batch.number)

    def say(
        ledgers: TreeLedgers, ids: object, job: StartedJob, batch: StreamBatch, _: object
    ) -> str:
        stored = ledgers.read(batch.query)
        ledger = stored.ledger or Ledger(batch.query, "")
        if not ledger.covers(batch.number):
            claimed = ledger.claimed(Claim(job.id, job.uuid, batch.number), "")
            ledgers.write(stored, claimed.published(batch.number, job.uuid))
        return ""

    monkeypatch.setattr(job_commit, "claim_batch", look)
    monkeypatch.setattr(job_commit, "say_published", say)
    seen = [str(v) for result in quietly(0, SEEN_WITHIN) for v in result.violations]
    assert any("is published by" in violation for violation in seen)


def test_a_ledger_that_only_drivers_write_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that finishes a job and leaves the ledger alone has its batch published twice."""
    real = job_commit.TreeJobCommit._say_published

    def say(self: job_commit.TreeJobCommit, record: JobRecord, warnings: list[str]) -> None:
        if self.role == "driver":
            real(self, record, warnings)

    monkeypatch.setattr(job_commit.TreeJobCommit, "_say_published", say)
    seen = [str(v) for result in quietly(0, SEEN_WITHIN) for v in result.violations]
    assert any("is published by" in violation for violation in seen)

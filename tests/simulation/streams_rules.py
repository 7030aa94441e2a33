"""The rules of streaming queries, and how each is taken away."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from magic_committer.commit import batches, records
from magic_committer.commit.batches import Ledgers
from magic_committer.commit.job_commit import JobCommit
from magic_committer.errors import BatchUnsettled
from magic_committer.protocol.ledger import Claim, Ledger, Move, next_move
from magic_committer.protocol.record import StartedJob, State
from tests.simulation.drawing import Focus
from tests.simulation.rule import Replacement, Rule


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _look_then_decide() -> list[Replacement]:
    """The ledger is looked at, and written at the end; nobody claims."""

    def move(ledger: Any, number: int, uuid: str) -> Move:
        found = next_move(ledger, number, uuid)
        return Move.SKIP if found is Move.SKIP else Move.DECIDE

    def publish(ledgers: Any, job: StartedJob, batch: Any) -> str:
        stored = ledgers.read(batch.query)
        ledger = stored.ledger or Ledger(batch.query, "")
        if not ledger.covers(batch.number):
            claim = Claim(job.id, job.uuid, batch.number)
            done = ledger.claimed(claim, "").published(batch.number, ledgers.ids())
            ledgers.write(stored, done)
        return ""

    return [(batches, "next_move", move), (batches, "publish_batch", publish)]


def _takes_what_it_cannot_settle() -> list[Replacement]:
    real = batches.settle_claim

    def settle(*rest: Any) -> None:
        with suppress(BatchUnsettled):
            real(*rest)

    return [(batches, "settle_claim", settle)]


def _driver_alone_writes() -> list[Replacement]:
    """Recovery and cleanup finish the job, and leave the ledger to its driver."""
    real = JobCommit._say_published

    def say(self: Any, seen: Any, warnings: list[str]) -> None:
        if self.role == "driver":
            real(self, seen, warnings)

    return [(JobCommit, "_say_published", say)]


def _done_at_the_decision() -> list[Replacement]:
    """The ledger is written as soon as the job is decided."""
    real = JobCommit._publish

    def publish(self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
        self._say_published(seen, [])
        return real(self, seen, *rest, **more)

    return [(JobCommit, "_publish", publish)]


def _done_before_the_old_is_gone() -> list[Replacement]:
    """The ledger is written before what the job replaces is deleted."""
    real = JobCommit._go_on

    def go_on(self: Any, now: Any, publication: Any, may_remove: bool, just_now: bool) -> Any:
        if now is not None and now.record.state is State.COMPLETED:
            self._say_published(now, publication.warnings)
        return real(self, now, publication, may_remove, just_now)

    return [(JobCommit, "_go_on", go_on)]


def _no_batch_needed() -> list[Replacement]:
    """A job of a query is committed like any other."""

    def read(runtime: Any, key: str) -> Any:
        seen = real(runtime, key)
        return seen and replace(seen, record=replace(seen.record, checkpoint=""))

    real = records.read
    return [(records, "read", read)]


def _plain_put() -> list[Replacement]:
    def write(self: Any, leaves: Any, ledger: Any) -> bool:
        self._runtime.store.put(leaves.key, ledger.encode())
        return True

    return [(Ledgers, "write", write)]


STREAMS = Focus(others=("stream",))
SETTLED = Focus(modes=("append",), others=("stream",), fault="refused", target="complete_upload")
RECOVERED = Focus(others=("stream", "recovery", "cleanup"))
NOT_DELETED = Focus(
    modes=("append",), others=("stream",), fault="refused", target="delete_one data"
)

RULES_OF_STREAMS = (
    Rule("claim in the ledger †", "a run claims its batch before it is decided",
         ("I2", "I10"), 3000, _look_then_decide, STREAMS),
    Rule("settle the claimant †", "a claim is taken only from a job that was settled",
         ("I2", "I10"), 3000, lambda: [(batches, "settle_claim", _nothing)], STREAMS),
    Rule("unsettled stops the next †", "what cannot be settled stops the next run",
         ("I2", "I10"), 12000, _takes_what_it_cannot_settle, SETTLED),
    Rule("done before finish †", "whoever completes a job writes the ledger before it is finished",
         ("I2", "I10"), 3000, _driver_alone_writes, RECOVERED),
    Rule("done after all is visible", "the ledger says done when all files are visible",
         ("I10", "I2"), 3000, _done_at_the_decision, STREAMS),
    Rule("done after the old is gone", "the ledger says done when what is replaced is deleted",
         ("I2",), 12000, _done_before_the_old_is_gone, NOT_DELETED),
    Rule("a batch is needed", "a job with a checkpoint is committed as a batch only",
         ("I2", "I10"), 6000, _no_batch_needed, SETTLED),
    Rule("claim by If-Match", "every write of the ledger is conditional on what it leaves",
         ("I2", "I10"), 3000, _plain_put, STREAMS),
)  # fmt: skip

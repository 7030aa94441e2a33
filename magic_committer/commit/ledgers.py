"""The ledger of a streaming query on the store: read it, claim a batch, say that one is published.

`magic_committer.protocol.ledger` has the rules; here are the requests. Invariants:

* A write is conditional on the exact version that it leaves (``If-None-Match: *`` for the first
  one). After an unclear answer the ledger is read back. If it has changed, by us or by others, it
  says what comes next. An unanswered write is sent again while the version that it leaves is still
  there.
* A claim is only written after the claimant before it was settled, and only over the version that
  named that claimant. So a batch that the claimant has published meanwhile is seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from magic_committer._runtime import Runtime
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.records import (
    SWAP_TRIES_MAX,
    is_final,
    may_still_land,
    other_quoting,
    pause,
)
from magic_committer.errors import (
    BatchUnsettled,
    ConditionsNotSupported,
    FormatError,
    NotFound,
    OptionError,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.ledger import (
    LEDGER_BYTES_MAX,
    Claim,
    Ledger,
    Move,
    StreamBatch,
    next_move,
)
from magic_committer.protocol.record import JobRecord, StartedJob
from magic_committer.remedy import Remedy

logger = logging.getLogger("magic_committer")

LOOKS_MAX = 8
"""How often a ledger is read again because another run has changed it."""


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger as it is stored. ``ledger`` is None and ``etag`` "" if there is none."""

    dest: Destination
    key: str
    ledger: Ledger | None
    etag: str

    @property
    def nonce(self) -> str:
        """The nonce of this version; "" if there is no ledger."""
        return "" if self.ledger is None else self.ledger.nonce


def read_ledger(runtime: Runtime, dest: Destination, query: str) -> StoredLedger:
    """Read the ledger of a query. One GET.

    Raises:
        FormatError: the object is not a ledger, is from a newer version, or belongs to another
            query.
        StoreError: the ledger could not be read.
        PathError: the query's id cannot be used.
    """
    key = dest.ledger(query)
    try:
        stored = runtime.store.get(key, max_bytes=LEDGER_BYTES_MAX)
    except NotFound:
        return StoredLedger(dest, key, None, "")
    ledger = Ledger.decode(stored.body, key)
    if ledger.query != query:
        raise FormatError(key, "query", f"is {ledger.query!r}: the ledger of another query")
    return StoredLedger(dest, key, ledger, stored.info.etag)


def claim_batch(
    runtime: Runtime, job: StartedJob, batch: StreamBatch, settle: Callable[[Claim], None]
) -> bool:
    """Claim a batch for a running job. Repeatable.

    Args:
        runtime, job: the components, and the job; its record must exist.
        batch: the batch.
        settle: makes sure that the claimant before publishes nothing any more, or has said that it
            has. It raises if it cannot.

    Returns:
        True: the job may decide. False: the batch is published already.

    Raises:
        BatchUnsettled: others keep claiming. Nothing was decided.
        FormatError: the ledger cannot be read.
        StoreError: the ledger could not be read or written.
    """
    dest = job.paths.dest
    for _ in range(LOOKS_MAX):
        stored = read_ledger(runtime, dest, batch.query)
        move = next_move(stored.ledger, batch.number, job.uuid)
        if move is Move.SKIP:
            if stored.ledger is not None and stored.ledger.done is not None:
                tell_passed_over(batch, stored.ledger.done)
            return False
        if move is Move.DECIDE:
            return True
        if move is Move.SETTLE and stored.ledger is not None and stored.ledger.claim is not None:
            settle(stored.ledger.claim)
        ledger = stored.ledger or Ledger(batch.query, "")
        claim = Claim(job.id, job.uuid, batch.number)
        if _write(runtime, stored, ledger.claimed(claim, runtime.ids())):
            return True
    raise BatchUnsettled(
        f"job {job.id!r} could not claim {batch}: other runs of the query keep changing its ledger",
        job_id=job.id,
        hint="Stop the other runs of the query, and commit again",
    )


def tell_passed_over(batch: StreamBatch, done: int) -> None:
    """Log that a batch is passed over. An engine replays its last batch; if it goes back further,
    its checkpoint may be another or an older one, and the batch may hold other rows."""
    if done == batch.number:
        logger.info("%s is published already", batch)
        return
    logger.warning(
        "%s is passed over: batch %d is published already. If the query has a new checkpoint, give"
        " it another name; if its checkpoint is an older copy, rows may be missing",
        batch,
        done,
    )


def publish_batch(runtime: Runtime, job: StartedJob, batch: StreamBatch) -> str:
    """Say in the ledger that a job has published its batch, if that is not said yet. Repeatable, by
    whoever completes the job.

    Returns:
        A warning: the ledger has forgotten the job's claim, and does not say that the batch is
        published. "" if all is well.

    Raises:
        FormatError: the ledger cannot be read.
        StoreError: the ledger could not be read or written.
    """
    dest = job.paths.dest
    for _ in range(LOOKS_MAX):
        stored = read_ledger(runtime, dest, batch.query)
        ledger = stored.ledger
        if ledger is None or ledger.claim is None or ledger.claim.uuid != job.uuid:
            if ledger is not None and ledger.covers(batch.number):
                return ""
            return (
                f"{stored.key} does not say that {batch} is published, and names another claim or"
                " none: somebody has changed it. If the query runs this batch again, its rows are"
                " there twice"
            )
        if _write(runtime, stored, ledger.published(batch.number, runtime.ids())):
            return ""
    key = dest.ledger(batch.query)
    raise WriteConflict(f"{key} keeps changing", operation="put", bucket=dest.bucket, key=key)


# What is refused ----------------------------------------------------------------------------------


def refuse_unconditional(job: StartedJob) -> None:
    """Refuse a batch of a job without conditional writes: nobody could claim it.

    Raises:
        ConditionsNotSupported: nothing was decided.
    """
    if job.terms.conditional_writes == "off":
        raise ConditionsNotSupported(
            f"job {job.id!r} was started with conditional_writes='off': without them two runs of a"
            " batch may both publish it, so it takes no batch of a streaming query",
            hint="Use a store with conditional writes for a stream. Or commit without a batch: a"
            " batch that is run again is then written again",
        )


def refuse_other_batch(record: JobRecord, batch: StreamBatch | None) -> None:
    """Refuse to finish a job as a batch that it was not decided as. Pure.

    Raises:
        OptionError: nothing was done.
    """
    if batch is None or outcome_of(record) != "committed" or record.batch == batch:
        return
    was = f"as {record.batch}" if record.batch is not None else "without a batch"
    raise OptionError(
        f"job {record.id!r} is committed {was}, not as {batch}",
        hint="Start a job of its own for each run of a batch",
    )


def batch_needed(job: StartedJob) -> OptionError:
    """The error for a job of a streaming query that is to be committed without a batch."""
    return OptionError(
        f"job {job.id!r} was started with a checkpoint: it belongs to a streaming query, and is"
        " committed as a batch of it only",
        hint="Call job.commit(results, batch=StreamBatch(query, number)). If its query is dead,"
        " abort the job: the query's next run writes the batch again",
    )


def unsettled(job: StartedJob, batch: StreamBatch, claim: Claim, why: str) -> BatchUnsettled:
    """The error for a job whose predecessor cannot be settled now."""
    return BatchUnsettled(
        f"job {job.id!r} does not publish {batch} yet: job {claim.job_id!r} has claimed batch"
        f" {claim.number} before, and can neither be finished nor aborted now ({why})",
        job_id=job.id,
        remedies=(
            Remedy("recover", job.dest, claim.job_id, "finish that job, then commit this one"),
        ),
    )


def _write(runtime: Runtime, leaves: StoredLedger, ledger: Ledger) -> bool:
    """Replace one version of a ledger by the next.

    Returns:
        True: it is written. False: the ledger has changed, perhaps by this very write, whose answer
        was lost. Read it again.

    Raises:
        StoreError: the store refused it, or gave no clear answer: then it may still be written.
        FormatError: what is there now cannot be read.
    """
    etag, doubtful = leaves.etag, False
    body = ledger.encode()
    for number in range(SWAP_TRIES_MAX):
        try:
            if leaves.ledger is None:
                runtime.store.put(leaves.key, body, if_none_match=True)
            else:
                runtime.store.put(leaves.key, body, if_match=etag)
            return True
        except StoreError as error:
            doubtful = doubtful or may_still_land(error)
            if not doubtful and is_final(error):
                raise
            failure = error
        now = read_ledger(runtime, leaves.dest, ledger.query)
        if now.nonce != leaves.nonce:
            return False
        if isinstance(failure, PreconditionFailed) and etag:
            etag = other_quoting(etag)
        pause(runtime, number)
    raise failure

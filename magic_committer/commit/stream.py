"""What a job does about its micro-batch: it claims it, and says that it is published.

`magic_committer.protocol.ledger` has the rules. Invariants:

* A write is conditional on the exact version that it leaves (``If-None-Match: *`` for the first).
  An unanswered write is sent again while that version is still there. After an unclear answer the
  ledger is read back. If it has changed, by us or by others, it says what comes next.
* A claim is only written after the claimant before it was settled, and only over the version that
  named that claimant. So a batch that the claimant has published meanwhile is seen.
* A claimant is settled by its record, which is read after the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from magic_committer.commit import register
from magic_committer.commit.outcome import end, incomplete, outcome_of
from magic_committer.commit.revert import EARLY
from magic_committer.errors import (
    BatchUnsettled,
    ConditionsNotSupported,
    FormatError,
    JobExists,
    JobNotRunning,
    MagicError,
    NotFound,
    OptionError,
    OutcomeUnknown,
    StoreError,
    WriteConflict,
)
from magic_committer.errors.messages import Remedy
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.ledger import (
    LEDGER_BYTES_MAX,
    Claim,
    Ledger,
    Move,
    StreamBatch,
    next_move,
)
from magic_committer.protocol.record import JobRecord, StartedJob, State, may_take_claim
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import Written

logger = logging.getLogger("magic_committer")

LOOKS_MAX = 8
"""How often a ledger is read again because another run has changed it."""


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger as it is stored at a key. ``etag`` is what a write must leave; "": there is none,
    and the ledger is that of a query that has published nothing."""

    key: str
    ledger: Ledger
    etag: str

    @property
    def nonce(self) -> str:
        """The nonce of this version."""
        return self.ledger.nonce


def read_ledger(runtime: Runtime, dest: Destination, query: str) -> StoredLedger:
    """Read the ledger of a query. One GET."""
    key = dest.ledger(query)
    try:
        stored = runtime.store.get(key, max_bytes=LEDGER_BYTES_MAX)
    except NotFound:
        return StoredLedger(key, Ledger(query, "", None, "", None), "")
    ledger = Ledger.decode(stored.body, key)
    if ledger.query != query:
        raise FormatError(key, "query", f"is {ledger.query!r}: the ledger of another query")
    return StoredLedger(key, ledger, stored.info.etag)


def _write(runtime: Runtime, dest: Destination, leaves: StoredLedger, ledger: Ledger) -> bool:
    """Replace one version of a ledger by the next. False: it has changed, perhaps by this very
    write, whose answer was lost. Read it again."""

    def there(_: StoreError) -> StoredLedger | None:
        now = read_ledger(runtime, dest, ledger.query)
        return now if now.etag else None

    before = leaves if leaves.etag else None
    written = register.write(
        runtime, leaves.key, ledger.encode(), ledger.nonce, before, there, lambda error: error
    )
    return isinstance(written, Written)


def claim_batch(
    runtime: Runtime,
    job: StartedJob,
    batch: StreamBatch,
    settle: Callable[[Claim], bool],
    checkpoint: str | None = None,
) -> bool:
    """Claim a batch for a running job. Repeatable. False: the batch is published already.
    ``settle`` is `settle_claim`. Raises `BatchUnsettled`, with nothing decided, if others keep
    claiming, or if the batch was published from another checkpoint."""
    dest = job.paths.dest
    for _ in range(LOOKS_MAX):
        stored = read_ledger(runtime, dest, batch.query)
        ledger, lost = stored.ledger, None
        move = next_move(ledger, batch.number, job.uuid)
        if move is Move.SKIP:
            if ledger.is_of_another(checkpoint):
                raise _other_checkpoint(job, batch, stored)
            tell_passed_over(batch, ledger.done)
            return False
        if move is Move.DECIDE:
            return True
        if move is Move.SETTLE and ledger.claim is not None:
            lost = ledger.claim if settle(ledger.claim) else None
        claim = Claim(job.id, job.uuid, batch.number, checkpoint or "")
        if _write(runtime, dest, stored, ledger.claimed(claim, runtime.ids())):
            if lost is not None:
                logger.warning(
                    "%s: job %s, which has claimed batch %d, has no record. Most likely it was"
                    " aborted. If its record was deleted by somebody else, files of that batch may"
                    " be visible, and are there twice when the batch is written again",
                    batch, lost.job_id, lost.number,
                )  # fmt: skip
            return True
    raise BatchUnsettled(
        f"job {job.id!r} could not claim {batch}: other runs of the query keep changing its ledger",
        job_id=job.id,
        hint="Stop the other runs of the query, and commit again",
    )


def tell_passed_over(batch: StreamBatch, done: int | None) -> None:
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
    any process. Gives a warning if the ledger has forgotten the job's claim, and does not say that
    the batch is published; "" if all is well."""
    dest = job.paths.dest
    for _ in range(LOOKS_MAX):
        stored = read_ledger(runtime, dest, batch.query)
        ledger = stored.ledger
        if ledger.claim is None or ledger.claim.uuid != job.uuid:
            if ledger.covers(batch.number):
                return ""
            return (
                f"{stored.key} does not say that {batch} is published, and names another claim or"
                " none: somebody has changed it. If the query runs this batch again, its rows are"
                " there twice"
            )
        if _write(runtime, dest, stored, ledger.published(batch.number, runtime.ids())):
            return ""
    told = f"{stored.key} keeps changing"
    raise WriteConflict(told, operation="put", bucket=dest.bucket, key=stored.key)


# The job that has claimed before ------------------------------------------------------------------


Claimant = tuple[State, Callable[[], object]]
"""The state of a job that has claimed a batch before, as its record is now; and what finishes or
aborts it, as a recovery does. That raises JobNotRunning or OutcomeUnknown if another process has
moved the record on."""


def settle_claim(
    job: StartedJob,
    batch: StreamBatch,
    claim: Claim,
    look: Callable[[Claim], Claimant | None],
) -> bool:
    """Make sure that the job that has claimed a batch before publishes nothing any more, or has
    said so in the ledger. Its record stays ``closed``. Repeatable. ``look`` finds that job; None:
    its record is gone, or another job's is in its place. Gives whether there is no record: if the
    ledger is still the same then, nothing shows whether the job had begun to publish."""
    why = "its record keeps changing"
    for _ in range(LOOKS_MAX):
        try:
            claimant = look(claim)
            if claimant is None:
                return True
            state, settle = claimant
            if may_take_claim(state):
                return False
            logger.info("job %s: settles job %s, %s", job.id, claim.job_id, state)
            settle()
        except (JobNotRunning, OutcomeUnknown) as error:
            why = error.message  # another process has moved it on: look again
        except MagicError as error:
            raise unsettled(job, batch, claim, error.message) from error
        else:
            return False
    raise unsettled(job, batch, claim, why)


# After the decision -------------------------------------------------------------------------------


def published_by(
    runtime: Runtime, job: StartedJob, batch: StreamBatch, checkpoint: str | None
) -> Literal["", "it", "another"]:
    """What the ledger says about the batch of a job that will not publish it any more: this very
    job has published it, or another one from the same checkpoint; "": nobody has, or nobody can
    tell."""
    try:
        ledger = read_ledger(runtime, job.paths.dest, batch.query).ledger
    except (StoreError, FormatError) as error:
        logger.info("job %s: its query's ledger does not tell: %s", job.id, error)
        return ""
    if not ledger.covers(batch.number):
        return ""
    if (ledger.done, ledger.done_by) == (batch.number, job.uuid):
        return "it"
    return "" if ledger.is_of_another(checkpoint) else "another"


def say_published(
    runtime: Runtime, job: StartedJob, batch: StreamBatch, accept: Collection[str]
) -> str:
    """Write to the ledger that a batch is published, before the job's record is finished. Gives a
    warning, or "". If it is not written yet, that is `CommitIncomplete`: the next run of the query
    settles this job."""
    key = job.paths.dest.ledger(batch.query)
    if key in accept:
        return f"{key} was accepted as it is"
    try:
        return publish_batch(runtime, job, batch)
    except (StoreError, FormatError) as error:
        what = f"its query's ledger does not say yet that {batch} is published"
        raise incomplete(job, what, error, outstanding=(key,)) from error


# What is refused ----------------------------------------------------------------------------------


def refuse_early(committer: str) -> None:
    """Refuse a streaming query whose files are visible before their batch is decided."""
    if committer in EARLY:
        raise OptionError(
            f"committer={committer!r} publishes no batch of a streaming query exactly once: files"
            " of a run that dies may stay visible, and the next run writes them again",
            hint="Use committer='manifest'",
        )


def refuse_unconditional(job: StartedJob) -> None:
    """Refuse a batch of a job without conditional writes: nobody could claim it."""
    if job.terms.conditional_writes == "off":
        raise ConditionsNotSupported(
            f"job {job.id!r} was started with conditional_writes='off': without them two runs of a"
            " batch may both publish it, so it accepts no batch of a streaming query",
            hint="Use a store with conditional writes for a stream. Or commit without a batch: a"
            " batch that is run again is then written again",
        )


def refuse_other_batch(record: JobRecord, batch: StreamBatch) -> None:
    """Refuse to finish a job as a batch that it was not decided as. Pure."""
    if outcome_of(record) != "committed" or record.batch == batch:
        return
    was = f"as {record.batch}" if record.batch is not None else "without a batch"
    raise OptionError(
        f"job {record.id!r} is committed {was}, not as {batch}",
        hint="Start a job of its own for each run of a batch",
    )


def of_another_query(job_id: str, url: str) -> JobExists:
    """The error for a caller that would join a job, and names another checkpoint."""
    return JobExists(
        f"job {job_id!r} under {url} belongs to another streaming query, or to none",
        job_id=job_id,
        hint="Give another job_id, or the checkpoint that it was started with",
    )


def batch_needed(job: StartedJob) -> OptionError:
    """The error for a job of a streaming query that is to be committed without a batch."""
    return OptionError(
        f"job {job.id!r} was started with a checkpoint: it belongs to a streaming query, and is"
        " committed as a batch of it only",
        hint="Call job.commit(results, batch=StreamBatch(query, number)). If its query is dead,"
        " abort the job: the query's next run writes the batch again",
    )


def _other_checkpoint(job: StartedJob, batch: StreamBatch, stored: StoredLedger) -> BatchUnsettled:
    """The error for a batch that a query with another checkpoint has published."""
    return BatchUnsettled(
        f"job {job.id!r} does not publish {batch}, and its rows are not passed over: {stored.key}"
        " says that a job with another checkpoint has published a batch of that number or a later"
        " one",
        job_id=job.id,
        hint="If the checkpoint is a copy, start its query with a new, empty one. If it is new,"
        " give the query another name. If it was moved, name the old place again, or remove"
        f' "checkpoint" from {stored.key}: the batch is then passed over',
        remedies=(end(job.dest, job.id, "abort the job"),),
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

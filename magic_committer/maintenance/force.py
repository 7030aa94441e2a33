"""A way out for every record: a job that can be neither finished nor undone is given up.

First the job is aborted or undone in the usual way. Only what that leaves is given up: uploads that
cannot be aborted, files that cannot be deleted, a plan that is gone, a record that nobody can read.
Each is named in the report. The job's control objects are deleted, its record last. Afterwards
the answer to every question about the job is "unknown" (I10). Invariants:

* Nothing is touched except two things: what the job's own directory names below the destination,
  with a token of this job; and uploads whose names carry its UUID, if no other record has that
  UUID.
* Files of a ``completed`` job are never deleted: the job may have deleted what they replace (I7).
  Files of a job whose record cannot be read are not deleted either, because it may be such a job.
* A live driver loses nothing that it was told to have. A readable record says ``aborting``,
  ``reverting``, ``reverted`` or ``completed`` before anything is given up. An unreadable record is
  first replaced by a *claim*, if it is still the one that was looked at: from then on no swap wins,
  and every task finds that it is late. A record is deleted only after it was replaced by a claim,
  so a store without conditional DELETE is enough. Before the claim a DELETE of a key that nobody
  has asks for the right: who may not delete would leave a record that nobody can read.
* Repeatable after any crash: the record goes last, and a claim can be given up like any other
  record.
"""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.batches import publish_batch
from magic_committer.commit.ledgers import StoreLedgers
from magic_committer.commit.outcome import look_again, outcome_of
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    FormatError,
    JobError,
    JobNotFound,
    JobNotRunning,
    NotFound,
    StoreError,
)
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.giving_up import GivenUp, GivingUp
from magic_committer.maintenance.recover import abort_job, committer_of
from magic_committer.options import Options
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import (
    JOB_METADATA,
    RECORD_BYTES_MAX,
    JobReport,
    StartedJob,
    State,
)
from magic_committer.remedy import Remedy
from magic_committer.stores.base import ObjectInfo

UNREADABLE = "unreadable"
"""The word for the state of a record that this version cannot read."""


def force_abort(
    runtime: Runtime,
    dest: Destination,
    job_id: str,
    *,
    dead_after: float,
    dry_run: bool = False,
    options: Options | None = None,
) -> GivenUp:
    """End a job whatever its record says; see `magic_committer.force_abort`. ``dead_after`` is in
    seconds."""
    key = JobPaths(dest, job_id).record
    try:
        stored = runtime.store.head(key)  # first: what is read after it is no older
    except NotFound:
        raise JobNotFound(
            f"there is no record of job {job_id!r} under {dest.url}",
            job_id=job_id,
            hint="There is nothing to give up",
            remedies=(Remedy("cleanup", dest.url, why="take away what it left, if anything"),),
        ) from None
    giving = GivingUp(runtime, dest, job_id, key, dry_run)
    if stored.size > RECORD_BYTES_MAX:
        error = FormatError(
            key, "", f"has {stored.size} bytes: no record has over {RECORD_BYTES_MAX}"
        )
        return _unreadable(giving, stored, error, dead_after)
    try:
        seen = records.read(runtime, key)
    except FormatError as error:
        return _unreadable(giving, stored, error, dead_after)
    if seen is None:
        return giving.told(State.ABSENT, State.ABSENT)
    return _readable(giving, seen, dead_after, options)


def _readable(
    giving: GivingUp, seen: records.Seen, dead_after: float, options: Options | None
) -> GivenUp:
    runtime, dest, found = giving.runtime, giving.dest, seen.record.state
    why = ""
    if found is State.CLOSED:
        return giving.told(found, found, outcome=seen.record.outcome)
    if found is State.COMPLETED:
        giving.refuse_young(f"it is {found}: its files are visible", dead_after)
    elif not giving.dry_run:
        report, why = _undone(runtime, dest, seen, options)
        if report is not None:
            return giving.told(found, report.state, outcome=report.outcome, report=report)
        now = records.read(runtime, seen.key)
        if now is None or now.record.state is State.CLOSED:
            state = now.record.state if now else State.ABSENT
            return giving.told(found, state, outcome=outcome_of(now.record) if now else "")
        if now.record.state not in (State.ABORTING, State.REVERTING, State.REVERTED):
            raise JobError(
                f"job {giving.job_id!r} is {now.record.state}, and was {found} when it was looked"
                f" at: it was not given up{why and f' ({why})'}",
                job_id=giving.job_id,
                remedies=(look_again(dest.url, giving.job_id),),
            )
        seen = now
    record = seen.record
    giving.own(StartedJob.attached(record, dest.url, seen.etag))
    giving.undo = record.state is State.REVERTING
    giving.runtime = committer_of(runtime, dest, seen, options).runtime
    giving.uploads()
    if not giving.dry_run:
        if found is State.COMPLETED and record.batch is not None:
            why = _say_published(giving, StartedJob.attached(record, dest.url, ""), record.batch)
        giving.control_objects()
        giving.remove_record(giving.claim(seen.etag))
    state = record.state if giving.dry_run else State.ABSENT
    committed = "committed" if record.state is State.COMPLETED else ""
    return giving.told(found, state, outcome=committed, why=why)


def _say_published(giving: GivingUp, job: StartedJob, batch: StreamBatch) -> str:
    """Tell the query's ledger that the batch of a ``completed`` job is published: its files stay.
    Gives why that could not be done: the query may then publish the batch once more."""
    try:
        ledgers = StoreLedgers(giving.runtime, job.paths.dest)
        return publish_batch(ledgers, giving.runtime.ids, job, batch)
    except (StoreError, FormatError) as error:
        return f"the ledger does not say that {batch} is published: {error.message}"


def _undone(
    runtime: Runtime, dest: Destination, seen: records.Seen, options: Options | None
) -> tuple[JobReport | None, str]:
    """Abort or undo the job in the usual way. Gives its report, or what keeps it from being undone.

    Raises:
        OutcomeUnknown, StoreError: nobody knows what its record says. Nothing is given up.
    """
    try:
        report = abort_job(runtime, dest, seen, revert=True, options=options)
    except JobNotRunning as error:
        return None, error.message
    except (AbortIncomplete, CommitIncomplete, FormatError) as error:
        return None, str(error.__cause__ or error)
    if report.state in (State.ABSENT, State.CLOSED):
        return report, ""
    return None, "; ".join(report.warnings)


def _unreadable(
    giving: GivingUp, stored: ObjectInfo, error: FormatError, dead_after: float
) -> GivenUp:
    """Give up a job whose record this version cannot read: damaged, forged, a newer version's, or a
    claim."""
    if not giving.is_claimed():
        giving.refuse_young(
            f"its record cannot be read ({error.message}); if a newer version of the library runs"
            " it, use that",
            dead_after,
        )
    giving.own_unread((stored.metadata or {}).get(JOB_METADATA, ""))
    if giving.dry_run:
        giving.uploads()
        return giving.told(UNREADABLE, UNREADABLE, why=str(error))
    claimed = giving.claim(stored.etag)
    giving.uploads()
    giving.control_objects()
    giving.remove_record(claimed)
    return giving.told(UNREADABLE, State.ABSENT, why=str(error))

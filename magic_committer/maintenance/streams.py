"""The streaming queries of a destination, from outside: what a query's ledger says, and an abort of
a query's running jobs.

An abort may come without any message of a task (`pyspark` calls it so when a task has failed, or
the query is stopped): then neither the query's id nor the job is known, only the checkpoint. The
records of the query's jobs hold a hash of it. The abort may meet a newer run of the same query.
That run fails then and is run again: nothing is lost, and nothing is written twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.batches import Ledgers
from magic_committer.commit.job_commit import runs_of
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import JobNotRunning, OutcomeUnknown
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.reports import Told
from magic_committer.options import Options
from magic_committer.protocol.record import JobReport, State

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True, slots=True)
class StreamState(Told):
    """What the ledger of a streaming query says.

    Attributes:
        query: the query's id.
        dest: the destination's URL.
        done: the number of the last batch that is published; None: none is.
        done_by: the UUID of the job that has published it; "" if none is.
        claim: the id of the job that has claimed the next batch; "": no job has.
        claimed: the number of the claimed batch; None: none is claimed.
        checkpoint: the hash of the checkpoint from which ``done`` was published; "": not known.
    """

    query: str
    dest: str
    done: int | None = None
    done_by: str = ""
    claim: str = ""
    claimed: int | None = None
    checkpoint: str = ""


def stream_state(ledgers: Ledgers, dest: str, query: str) -> StreamState | None:
    """Read a query's ledger; see `magic_committer.read_stream`. ``dest`` is the destination's
    URL."""
    ledger = ledgers.read(query).ledger
    if ledger is None:
        return None
    claim = ledger.claim
    by, number = (claim.job_id, claim.number) if claim is not None else ("", None)
    return StreamState(query, dest, ledger.done, ledger.done_by, by, number, ledger.checkpoint)


def abort_jobs_of(
    runtime: Runtime, dest: Destination, checkpoint: str, options: Options
) -> list[JobReport]:
    """Abort the running jobs of a query, by the hash of its checkpoint; see
    `magic_committer.abort_stream`."""
    reports = []
    for seen in list(runs_of(runtime, dest, checkpoint)):
        if seen.record.state not in (State.RUNNING, State.ABORTING):
            continue
        try:
            committer = MagicCommitter.found(runtime, dest, seen, options)
            reports.append(committer.abort_job(role="recovery"))
        except JobNotRunning as error:  # decided meanwhile, or ended
            logger.info("job %s was not aborted: %s", seen.record.id, error.message)
        except OutcomeUnknown as error:
            if not _has_ended(runtime, seen):
                raise
            logger.info("job %s has ended meanwhile: %s", seen.record.id, error.message)
    return reports


def _has_ended(runtime: Runtime, seen: records.Seen) -> bool:
    """Whether a job's own process has ended it, and deleted its record, since it was seen."""
    now = records.read(runtime, seen.key)
    return now is None or now.record.uuid != seen.record.uuid

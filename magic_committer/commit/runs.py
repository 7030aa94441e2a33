"""The runs of a streaming query: its jobs under a destination, by the checkpoint in their records.

Each run of a micro-batch is a job of its own. A run that crashed stays until somebody settles it.
`commit` with a batch settles the run that has claimed the ledger. A job of an excluding mode (the
query's whole result, written anew with each batch) cannot even start beside a crashed run: there
the runs are settled first. To settle is safe at any time: a run that is decided is finished, and
one that is not is aborted. If that one was alive, its query fails and is run again.
"""

from __future__ import annotations

import logging
from contextlib import closing

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.sweep import job_records
from magic_committer.errors import FormatError, JobNotRunning, OutcomeUnknown
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.record import StartedJob, State

logger = logging.getLogger("magic_committer")

READS_IN_FLIGHT = 16
"""Records that are read at the same time."""


def runs_of(runtime: Runtime, dest: Destination, checkpoint: str) -> list[records.Seen]:
    """The records of a query's runs that are not closed. A record that cannot be read is passed
    over: it is none of this version's."""

    def read(key: str) -> records.Seen | None:
        return records.read(runtime, key)

    found: list[records.Seen] = []
    reading = runtime.pool.each(read, job_records(runtime, dest), in_flight=READS_IN_FLIGHT)
    with closing(reading) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome.error, FormatError):
                logger.warning("%s was passed over: %s", outcome.item, outcome.error)
                continue
            seen = outcome.unwrap()
            if seen is None or seen.record.state is State.CLOSED:
                continue
            if seen.record.checkpoint == checkpoint:
                found.append(seen)
    return found


def settle_runs(runtime: Runtime, dest: Destination, checkpoint: str, in_flight: int) -> None:
    """Finish or abort every run of a query. Repeatable."""
    for seen in runs_of(runtime, dest, checkpoint):
        job = StartedJob.attached(seen.record, dest.url, seen.etag)
        logger.info("job %s, a run of the same query, is settled: %s", job.id, seen.record.state)
        try:
            JobCommit(runtime, job, in_flight, role="recovery").settle(seen.record.state)
        except (JobNotRunning, OutcomeUnknown) as error:  # another process has moved it on
            logger.info("job %s: %s", job.id, error.message)

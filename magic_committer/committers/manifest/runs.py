"""The runs of a streaming query on a file tree: its jobs, by the checkpoint in their records.

As `commit.runs` says for a store: a run that crashed stays until somebody settles it, and to settle
is safe at any time.
"""

from __future__ import annotations

import logging

from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.committers.manifest.parts import Parts
from magic_committer.errors import FormatError, JobNotRunning, OutcomeUnknown
from magic_committer.protocol.record import StartedJob, State

logger = logging.getLogger("magic_committer")


def runs_of(parts: Parts, checkpoint: str) -> list[records.SeenVersion]:
    """The records of a query's runs that are not closed. A record that cannot be read is passed
    over: it is none of this version's.

    Args:
        parts: the components.
        checkpoint: the hash of the query's checkpoint.

    Raises:
        StoreError: the records could not be listed or read.
    """
    found: list[records.SeenVersion] = []
    for paths in list(records.every_job(parts)):
        try:
            seen = records.read(parts, paths)
        except FormatError as error:
            logger.warning("%s was passed over: %s", paths.directory, error)
            continue
        if seen is None or seen.record.state is State.CLOSED:
            continue
        if seen.record.checkpoint == checkpoint:
            found.append(seen)
    return found


def settle_runs(parts: Parts, checkpoint: str) -> None:
    """Finish or abort every run of a query. Repeatable.

    Raises:
        CommitIncomplete, AbortIncomplete, StoreError: a run cannot be settled now.
    """
    for seen in runs_of(parts, checkpoint):
        job = StartedJob.attached(seen.record, parts.tree.url, seen.record.nonce)
        logger.info("job %s, a run of the same query, is settled: %s", job.id, seen.record.state)
        try:
            TreeJobCommit(parts, job, "recovery").settle(seen.record.state)
        except (JobNotRunning, OutcomeUnknown) as error:  # another process has moved it on
            logger.info("job %s: %s", job.id, error.message)

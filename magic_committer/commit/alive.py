"""A job's sign of life: ``M/alive.json``, put now and then by the process that drives the job.

A job's age is the newest Last-Modified in its directory, and `cleanup` takes a running job for dead
when that is old. The record itself must not change while the job runs: its ETag is the fence. So a
driver that is silent for long has an object of its own to touch.

**The record is read after each PUT**, and unless the job still lives the object is deleted again: a
driver that was paused would else leave litter after the sweep (counterexamples.md: neither waiting
for the writer nor a chain of ``If-Match`` helps). The sweep deletes it like every control object.
"""

from __future__ import annotations

import logging

import orjson

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.setup import decider
from magic_committer.errors import MagicError, StoreError
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.protocol.record import HANDS_OFF, JOB_METADATA, StartedJob
from magic_committer.protocol.strict import plain

logger = logging.getLogger("magic_committer")

ALIVE_SECONDS = 300.0
"""How often a live driver says so. A job that is shorter never does."""


class SignOfLife:
    """The sign of one job, given by one process."""

    def __init__(self, runtime: Runtime, job: StartedJob) -> None:
        self._runtime = runtime
        self._job = job
        self._paths = JobPaths(Destination.parse(job.dest), job.id)

    def give(self) -> bool:
        """Say once that the job lives. A store that fails is logged: the next time may do better.

        Returns:
            Whether to go on: False once the job has ended.
        """
        body = orjson.dumps({"version": 1, "job": self._job.uuid, **plain(decider("driver"))})
        try:
            self._runtime.store.put(
                self._paths.alive, body, metadata={JOB_METADATA: self._job.uuid}
            )
        except StoreError as error:  # it may be stored all the same: look, as after every PUT
            logger.warning("job %s: its sign of life was not stored: %s", self._job.id, error)
        try:
            seen = records.read(self._runtime, self._paths.record)
        except MagicError as error:
            logger.warning("job %s: its sign of life is taken back: %s", self._job.id, error)
            self._take_back()
            return True
        if (
            seen is not None
            and seen.record.uuid == self._job.uuid
            and seen.record.state in HANDS_OFF
        ):
            return True
        self._take_back()
        return False

    def _take_back(self) -> None:
        try:
            self._runtime.store.delete_one(self._paths.alive)
        except StoreError as error:
            logger.warning("job %s: its sign of life stays behind: %s", self._job.id, error)

"""A job's sign of life: ``M/_alive.json``. The process that drives the job writes it now and then.

A job's age is the newest Last-Modified in its directory. `cleanup` takes an old running job for
dead. The record itself must not change while the job runs, because its ETag is the fence. So a
driver that is silent for long writes an object of its own.

**The record is read after each PUT**, and if the job has ended the object is deleted again: a
driver that was paused would otherwise leave litter after the sweep (counterexamples.md: neither
waiting for the writer nor a chain of ``If-Match`` helps). If a later job has the same given id, the
object stays: the driver has written over that job's sign, and without one it would count as dead.
Its next sign is written over this one. The sweep deletes the object like every control object.
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
"""Seconds between two signs of life. A shorter job gives none."""


class SignOfLife:
    """The sign of one job, given by one process."""

    def __init__(self, runtime: Runtime, job: StartedJob) -> None:
        self._runtime = runtime
        self._job = job
        self._paths = JobPaths(Destination.parse(job.dest), job.id)

    def give(self) -> bool:
        """Give one sign of life. If the store fails, it is logged: the next sign may succeed. Gives
        whether to go on: False once the job has ended."""
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
        if seen is not None and seen.record.uuid != self._job.uuid:
            return False  # a later job has the id: this may stand where its own sign was
        if seen is not None and seen.record.state in HANDS_OFF:
            return True
        self._take_back()
        return False

    def _take_back(self) -> None:
        try:
            self._runtime.store.delete_one(self._paths.alive)
        except StoreError as error:
            logger.warning("job %s: its sign of life stays behind: %s", self._job.id, error)

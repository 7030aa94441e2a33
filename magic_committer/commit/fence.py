"""The fence: how a late attempt learns that it is late (protocol.md, "The fence").

The record is read after a Create was answered. If its ETag is still the one that ``setup``
returned, the sweep had not begun: so either the sweep sees the upload, or the attempt sees the
fence. Rules:

* One read covers the Creates that were answered before the read was *sent*. An earlier answer of a
  read covers nothing (counterexamples.md, #19).
* A Create that is not covered is covered by the attempt's next block hand-over, close or commit
  after `FENCE_SECONDS` since its answer, and at the latest by the task commit, which may send it
  while the last parts are in flight (`cover_when_answered`). There is no timer.
* A second read comes after the `.pendingset` is stored. It undoes the attempt, unless a driver may
  have accepted the attempt or a revert needs to read it (`job.HANDS_OFF`).
* A file of an attempt that other processes share by its name, in a job whose id was given, is saved
  only if the record was read within `OLD_SECONDS`: a process of a job that ended long ago would
  write over, and then delete, what the next job of the id has saved under the same names.
* A read that fails says nothing, even if it is refused (403): the error is raised. At the first
  read the attempt then stops and aborts itself. At the second read it leaves everything to the job,
  because a driver may have accepted it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf

import orjson

from magic_committer._pool import Future
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.setup import decider
from magic_committer.errors import JobNotRunning, MagicError, NotFound, StoreError
from magic_committer.hadoop.paths import JobPaths
from magic_committer.protocol.record import HANDS_OFF, JOB_METADATA, StartedJob, State
from magic_committer.protocol.strict import plain
from magic_committer.stores.base import Head, Steps, same_etag
from magic_committer.stores.urls import is_tree

FENCE_SECONDS = 1.0
"""Seconds. A Create that is not covered for so long is covered at the next occasion, so that
zombies stop early."""
OLD_SECONDS = 3600.0
"""Seconds. What a read said holds for so long, as far as ids may be free again (`closed`)."""


class Fence:
    """The fence of one attempt. Safe for the threads that the attempt's files use."""

    def __init__(self, runtime: Runtime, job: StartedJob, paths: JobPaths) -> None:
        self._runtime = runtime
        self._job = job
        self._key = paths.record
        self._lock = threading.Lock()
        self._answered = 0
        self._covered = 0
        self._since = 0.0
        self._reading = False
        self._read_at = -inf
        self._awaited = 0
        self._send: Callable[[Steps], Future[object]] | None = None
        self._beside: Future[object] | None = None
        self.late: JobNotRunning | None = None
        """Why the attempt is late; None as long as it is not."""

    def created(self) -> None:
        """Note that a Create of the attempt was answered."""
        with self._lock:
            if self._answered == self._covered:
                self._since = self._runtime.clock.monotonic()
            self._answered += 1
            due = self._answered == self._awaited
        if due and self._send is not None:
            self._beside = self._send(self._covering())

    def check_if_due(self) -> None:
        """Read the record if a Create has not been covered for long enough. Raises `JobNotRunning`
        if the job takes no more work, and the error of a read that failed: nobody can tell then."""
        with self._lock:
            age = self._runtime.clock.monotonic() - self._since
            uncovered = self._answered > self._covered
            if not uncovered or age < FENCE_SECONDS or self._reading:
                return
            self._reading = True
            covering = self._answered
        try:
            self._check(covering)
        finally:
            with self._lock:
                self._reading = False

    def check_if_old(self) -> None:
        """Read the record, unless it was read within `OLD_SECONDS`."""
        if self._runtime.clock.now() - self._read_at >= OLD_SECONDS:
            with self._lock:
                covering = self._answered
            self._check(covering)

    def cover_when_answered(self, creates: int, send: Callable[[Steps], Future[object]]) -> None:
        """Read the record by ``send``, beside the last parts, as soon as so many Creates in all
        were answered. If that covers them, `check` has nothing to send. Does nothing if they
        were."""
        with self._lock:
            self._awaited, self._send = creates, send

    def _covering(self) -> Steps:
        """Cover what was answered. Where it cannot, `check` does it, and says why not."""
        covering, asked_at = self._answered, self._runtime.clock.now()
        with suppress(StoreError):
            info = yield Head(self._key)
            if same_etag(info.etag, self._job.fence_etag):
                self._cover(covering, asked_at)

    def check(self) -> None:
        """Cover every Create that was answered so far. Sends no request if all are covered."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.result()
        with self._lock:
            covering = self._answered
            if covering == self._covered:
                return
        self._check(covering)

    def _check(self, covering: int) -> None:
        asked_at = self._runtime.clock.now()
        state = self._read()
        if state is not None:
            raise self._late(*state)
        self._cover(covering, asked_at)

    def _cover(self, covering: int, asked_at: float) -> None:
        with self._lock:
            self._covered = max(self._covered, covering)
            self._read_at = asked_at
            self._since = self._runtime.clock.monotonic()

    def must_undo(self) -> JobNotRunning | None:
        """The second read, after something was stored that a sweep may have missed. Gives why the
        attempt must be undone; None if it must be left alone. If the read fails, leave the
        pendingset where it is."""
        found = self._read()
        if found is None or found[0] in HANDS_OFF:
            return None
        return self._late(*found)

    def _read(self) -> tuple[State, str] | None:
        """None if the record is the one that setup wrote; otherwise its state, and the outcome that
        it tells."""
        try:
            info = self._runtime.store.head(self._key)
            if same_etag(info.etag, self._job.fence_etag):
                return None
            seen = records.read(self._runtime, self._key)
        except NotFound:
            return State.ABSENT, ""
        if seen is None or seen.record.uuid != self._job.uuid:
            return State.ABSENT, ""
        return seen.record.state, outcome_of(seen.record)

    def _late(self, state: State, outcome: str) -> JobNotRunning:
        hint = "This attempt is late, its uploads are aborted: nothing is to be done"
        if state is State.ABSENT and is_tree(self._job.paths.dest.bucket):
            hint = (
                "It has ended; or this machine does not share"
                f" {self._job.dest} with the one that started it"
            )
        if outcome == "committed":
            hint = "The job was committed, perhaps with this attempt: its driver's report tells"
        self.late = JobNotRunning(
            f"job {self._job.id!r} takes no more work: it is {state}",
            job_id=self._job.id,
            state=state,
            outcome=outcome,
            hint=hint,
        )
        return self.late


# A job's sign of life -----------------------------------------------------------------------------
#
# ``M/_alive.json``. The process that drives the job writes it now and then.
#
# A job's age is the newest Last-Modified in its directory. `cleanup` takes an old running job for
# dead. The record itself must not change while the job runs, because its ETag is the fence. So a
# driver that is silent for long writes an object of its own.
#
# **The record is read after each PUT**, and if the job has ended the object is deleted again: a
# driver that was paused would otherwise leave litter after the sweep (counterexamples.md: neither
# waiting for the writer nor a chain of ``If-Match`` helps). If a later job has the same given id,
# the object stays: the driver has written over that job's sign, and without one it would count as
# dead. Its next sign is written over this one. The sweep deletes the object like every control
# object.


logger = logging.getLogger("magic_committer")

ALIVE_SECONDS = 300.0
"""Seconds between two signs of life. A shorter job gives none."""


class SignOfLife:
    """The sign of one job, given by one process."""

    def __init__(self, runtime: Runtime, job: StartedJob) -> None:
        self._runtime = runtime
        self._job = job
        self._paths = job.paths

    def give(self) -> bool:
        """Give one sign of life. If the store fails, it is logged: the next sign may succeed. Gives
        whether to go on: False once the job has ended."""
        uuid, store = self._job.uuid, self._runtime.store
        body = orjson.dumps({"version": 1, "job": uuid, **plain(decider("driver"))})
        try:
            store.put(self._paths.alive, body, metadata={JOB_METADATA: uuid})
        except StoreError as error:  # it may be stored all the same: look, as after every PUT
            logger.warning("job %s: its sign of life was not stored: %s", self._job.id, error)
        try:
            seen = records.read(self._runtime, self._paths.record)
        except MagicError as error:
            logger.warning("job %s: its sign of life is taken back: %s", self._job.id, error)
            self._take_back()
            return True
        if seen is not None and seen.record.uuid != uuid:
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

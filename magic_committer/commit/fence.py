"""A task's half of the commit: the set that makes an attempt committed, and the fence that says
whether the attempt is late (protocol.md, "The fence").

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
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import orjson

from magic_committer.commit import register, sets
from magic_committer.commit.outcome import outcome_of
from magic_committer.errors import (
    FormatError,
    JobNotRunning,
    MagicError,
    NotFound,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.errors.messages import ANOTHER_ATTEMPT, OWN_NAME
from magic_committer.hadoop.documents import (
    PENDINGSET_BYTES_MAX,
    Pending,
    PendingSet,
    encode_pendingset,
    new_pendingset,
    plain,
)
from magic_committer.hadoop.manifests import EXTRA_ATTEMPT, EXTRA_JOB, EXTRA_TASK, decode_set
from magic_committer.hadoop.statistics import Statistics
from magic_committer.protocol.record import (
    ATTEMPT_METADATA,
    HANDS_OFF,
    JOB_METADATA,
    TASK_METADATA,
    Found,
    Phase,
    StartedJob,
    State,
    may_undo,
)
from magic_committer.runtime.components import Runtime, again
from magic_committer.runtime.threads import Future
from magic_committer.stores.base import Head, Steps, Written, same_etag

FENCE_SECONDS = 1.0
"""Seconds. A Create that is not covered for so long is covered at the next occasion, so that
zombies stop early."""
OLD_SECONDS = 3600.0
"""Seconds. What a read said holds for so long, as far as ids may be free again (`register`)."""


class Fence:
    """The fence of one attempt. Safe for the threads that the attempt's files use."""

    def __init__(self, runtime: Runtime, job: StartedJob) -> None:
        self._runtime = runtime
        self._job = job
        self._key = job.paths.record
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
        if the job accepts no more work, and the error of a read that failed."""
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
        """Read the record by ``send``, beside the last parts, as soon as this many Creates were
        answered. If that covers them, `check` has nothing to send. Does nothing if they were."""
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
        """None if the record is the one that setup wrote; otherwise its state and its outcome."""
        try:
            info = self._runtime.store.head(self._key)
            if same_etag(info.etag, self._job.fence_etag):
                return None
            seen = register.read(self._runtime, self._key)
        except NotFound:
            return State.ABSENT, ""
        if seen is None or seen.record.uuid != self._job.uuid:
            return State.ABSENT, ""
        return seen.record.state, outcome_of(seen.record)

    def _late(self, state: State, outcome: str) -> JobNotRunning:
        hint = "This attempt is late, its uploads are aborted: nothing is to be done"
        if state is State.ABSENT:
            hint = (
                f"It has ended; or this process does not share {self._job.dest} with the one that"
                " started it: compare AWS_ENDPOINT_URL, or what is mounted"
            )
        if outcome == "committed":
            hint = "The job was committed, perhaps with this attempt: see its driver's report"
        elif outcome:
            hint = f"It was {outcome}: start a new job"
        self.late = JobNotRunning(
            f"job {self._job.id!r} accepts no more work: it is {state}",
            job_id=self._job.id,
            state=state,
            outcome=outcome,
            hint=hint,
        )
        return self.late


# A job's sign of life -----------------------------------------------------------------------------
#
# ``M/_alive.json``. The process that drives the job writes it now and then.
# A job's age is the newest Last-Modified in its directory. `cleanup` counts an old running job as
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


def give_sign_of_life(runtime: Runtime, job: StartedJob) -> bool:
    """Give one sign of life. If the store fails, it is logged: the next sign may succeed. Gives
    whether to go on: False once the job has ended."""
    body = orjson.dumps({"version": 1, "job": job.uuid, **plain(register.decider("driver"))})
    try:
        runtime.store.put(job.paths.alive, body, metadata={JOB_METADATA: job.uuid})
    except StoreError as error:  # it may be stored all the same: look, as after every PUT
        logger.warning("job %s: its sign of life was not stored: %s", job.id, error)
    goes_on = False
    try:
        seen = register.read(runtime, job.paths.record)
        if seen is not None and seen.record.uuid != job.uuid:
            return False  # a later job has the id: this may stand where its own sign was
        if seen is not None and seen.record.state in HANDS_OFF:
            return True
    except MagicError as error:
        logger.warning("job %s: its sign of life is taken back: %s", job.id, error)
        goes_on = True
    try:
        runtime.store.delete_one(job.paths.alive)
    except StoreError as error:
        logger.warning("job %s: its sign of life stays behind: %s", job.id, error)
    return goes_on


# The set of an attempt ----------------------------------------------------------------------------
#
# Once the set is stored, a driver may have accepted it. So an attempt is undone only if that cannot
# have happened, or does not matter any more. This rule is one pure function, `may_undo`; everything
# that undoes an attempt asks it.
#
# **A process that may not be alone claims the key first.** "There is no set" is true only at the
# moment of the answer: a second handle may commit the attempt between the question and the aborts,
# and a driver may then decide. So an aborter stores a *tombstone* at the set's key
# (``If-None-Match: *``): a set without commits that says ``aborted``. Once it is there, nobody can
# commit the attempt. If a set was there first, the attempt is committed, and the aborter leaves it
# alone. The tombstone stays until the job's sweep. After its PUT the fence is read, as after each
# PUT that a sweep may have missed.


PUT_TRIES_MAX = 3
"""How often a pendingset without a clear answer is sent. Each time includes the store's own
retries."""
PUT_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class AtKey:
    """What is at the key of a set. Only a ``SET`` has the rest: its uploads, ETag and bytes."""

    found: Found
    pendings: tuple[Pending, ...] = ()
    etag: str = ""
    size: int = 0

    def holds(self, pendings: Collection[Pending]) -> bool:
        """Whether it is a set that holds these files."""
        return self.found is Found.SET and names(pendings) <= names(self.pendings)


class AttemptSet:
    """The pendingset of one attempt. ``metadata`` is that of all control objects of the attempt.
    ``refused``: the last `put` was refused at its only try: it took no effect, and will not.
    ``own``: the set that `put` has stored; None: it has stored none."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, fence: Fence, task: str, attempt: str
    ) -> None:
        self._runtime = runtime
        self._job = job
        self.fence = fence
        self.attempt = attempt
        self._task = task
        self.key = job.paths.pendingset(attempt)
        self.refused = False
        self.own: PendingSet | None = None
        self.metadata = {JOB_METADATA: job.uuid, TASK_METADATA: task, ATTEMPT_METADATA: attempt}
        self._extra = {
            EXTRA_JOB: job.uuid,
            EXTRA_TASK: task,
            EXTRA_ATTEMPT: attempt,
        }

    def encode(self, pendings: list[Pending], statistics: Statistics) -> tuple[PendingSet, bytes]:
        """Give the set and its bytes, for `put`."""
        pendingset = new_pendingset(
            job_id=self._job.id,
            commits=pendings,
            extra_data=self._extra,
            iostatistics=statistics.to_dict(),
        )
        body = encode_pendingset(pendingset, self._job.terms.etag_form, source=self.key)
        return pendingset, body

    def put(self, content: PendingSet, body: bytes) -> AtKey:
        """Store the set that `encode` gave, once: ``If-None-Match: *``. A stored set with the same
        files is as good: our own PUT whose answer was lost, or an earlier commit. A set with other
        files, and a tombstone, are `TaskFailed`. After a StoreError the set may or may not be
        stored, unless `refused`."""
        answer = self.put_once(body)
        if isinstance(answer, Written):
            self.own = content
            return AtKey(Found.SET, content.commits, answer.etag, len(body))
        stored = self._with(answer, content.commits)
        if stored is None:
            raise self.other_files()
        return stored

    def claim(self) -> AtKey:
        """Take the set's key with a tombstone (``If-None-Match: *``), so that nobody can commit the
        attempt any more. Repeatable. Gives ``CLAIMED``, by this call or an earlier one; otherwise
        what was there first. If nobody knows whether the key is taken, the error is raised: nothing
        may be undone."""
        pendingset = new_pendingset(
            job_id=self._job.id,
            commits=(),
            extra_data={**self._extra, sets.EXTRA_ABORTED: "true"},
            iostatistics={},
        )
        body = encode_pendingset(pendingset, self._job.terms.etag_form, source=self.key)
        answer = self.put_once(body)
        return AtKey(Found.CLAIMED) if isinstance(answer, Written) else answer

    def put_once(self, body: bytes) -> Written | AtKey:
        """Store ``body`` unless there is an object; then give what is there. Raises as `put`."""
        self.refused = False
        failure: StoreError | None = None
        for number in again(self._runtime.clock, PUT_TRIES_MAX, PUT_PAUSE_SECONDS):
            try:
                return self._runtime.store.put(
                    self.key,
                    body,
                    metadata=self.metadata,
                    content_type="application/json",
                    if_none_match=True,
                )
            except (PreconditionFailed, WriteConflict) as error:
                failure = error
                there = self.read()
                if there.found is not Found.NOTHING:
                    return there
            except Unanswered as error:
                failure = error
            except StoreError as error:
                # Only at the first try: an unanswered try may still take effect.
                self.refused = number == 0 and refused(error)
                raise
        try:
            assert failure is not None
            raise failure
        finally:
            failure = None  # it keeps this frame, and so would be kept by itself

    def take_back(self) -> None:
        """Delete the object at the key after the attempt was undone. If it stays, the job's sweep
        or `cleanup` deletes it."""
        try:
            failed = self._runtime.store.delete([self.key])
        except StoreError as error:
            failed = {self.key: error}
        for key, why in failed.items():
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, why)

    def earlier(self, pendings: list[Pending]) -> AtKey | None:
        """The stored set if it is this attempt's and holds these files; otherwise None. One GET."""
        return self._with(self.read(), pendings)

    def read(self) -> AtKey:
        """What is at the key now. One GET."""
        try:
            stored = self._runtime.store.get(self.key, max_bytes=PENDINGSET_BYTES_MAX)
        except NotFound:
            return AtKey(Found.NOTHING)
        if (stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid:
            return AtKey(Found.FOREIGN)
        pendingset = decode_set(stored.body, self.key, self._runtime.store.bucket)
        if sets.is_tombstone(pendingset.extra_data):
            return AtKey(Found.CLAIMED)
        return AtKey(Found.SET, pendingset.commits, stored.info.etag, len(stored.body))

    def settle(
        self, phase: Phase, failures: list[BaseException], *, sole: bool
    ) -> tuple[AtKey, bool]:
        """Find out what is at the key, before the attempt is undone. Gives what is there; and
        whether it is proved that no driver has ever accepted the attempt. If it is not known, and
        it matters, the error is raised: nothing may be undone."""
        if sole and phase is Phase.OPEN:
            return AtKey(Found.NOTHING), True  # it never sent a set, and nobody else can
        late, terms = self.fence.late, self._job.terms
        reading = (
            (late is not None and State(late.state) not in HANDS_OFF)  # nobody accepts any more
            or phase is Phase.COMMITTED
            or (sole and (phase is Phase.ABORTED or terms.accept == "results"))
            or terms.conditional_writes == "off"  # a claim would overwrite the set
        )
        try:
            there = self.read() if reading else self.claim()
            if reading or there.found is not Found.CLAIMED:
                return there, False
        except (StoreError, FormatError) as error:
            if not self._may_undo(phase, Found.SET, sole=sole):
                raise
            failures.append(error)
            return AtKey(Found.NOTHING), False
        # The fence is read after the tombstone. If the job has not ended, no sweep can have deleted
        # an accepted set, and the successful claim proves that there was none.
        try:
            late = self.fence.must_undo()
        except (StoreError, FormatError) as error:
            failures.append(error)
            return there, False
        if late is not None:
            self.take_back()  # the sweep may be over
        return there, late is None

    def settle_undo(
        self, phase: Phase, failures: list[BaseException], *, sole: bool
    ) -> tuple[AtKey, bool]:
        """`settle`, for an attempt that is to be undone. If it is committed or may be, only the job
        can undo it: raises TaskFailed, and nothing may be undone."""
        there, unaccepted = self.settle(phase, failures, sole=sole)
        if not self._may_undo(phase, there.found, sole=sole):
            self.fence.must_undo()
        if not self._may_undo(phase, there.found, sole=sole):
            raise self.failed(
                " is committed, or may be", "Leave it out of job.commit(...), or abort the job"
            )
        return there, unaccepted

    def _may_undo(self, phase: Phase, found: Found, *, sole: bool) -> bool:
        late = State(self.fence.late.state) if self.fence.late is not None else None
        return may_undo(phase, sole=sole, accept=self._job.terms.accept, found=found, late=late)

    def _with(self, there: AtKey, pendings: Collection[Pending]) -> AtKey | None:
        if there.found is Found.CLAIMED:
            raise self.was_aborted()
        return there if there.holds(pendings) else None

    def failed(self, what: str, hint: str = ANOTHER_ATTEMPT) -> TaskFailed:
        """The error for the attempt, of which ``what`` is said."""
        return TaskFailed(f"attempt {self.attempt!r}{what}", job_id=self._job.id, hint=hint)

    def was_aborted(self) -> TaskFailed:
        """The error for the commit of an attempt with a tombstone."""
        return self.failed(
            f" of task {self._task!r} was aborted by another process, by"
            " an earlier abort, or as a file of it failed: it can never be committed"
        )

    def other_files(self) -> TaskFailed:
        return self.failed(" was committed before, with other files", OWN_NAME)


def names(pendings: Iterable[Pending]) -> set[tuple[str, str]]:
    """Key and id of each upload."""
    return {(pending.destination_key, pending.upload_id) for pending in pendings}


def refused(error: BaseException) -> bool:
    """Whether a single PUT that failed with ``error`` took no effect, and will not. Do not ask this
    after a second try: that one may still take effect."""
    return (
        isinstance(error, StoreError) and not isinstance(error, Unanswered) and error.attempts == 1
    )

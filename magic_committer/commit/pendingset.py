"""An attempt's `.pendingset`: it makes the attempt committed, and it says when an attempt may still
be undone.

Once the set is stored, a driver may have accepted it. So an attempt is undone only if that cannot
have happened, or does not matter any more. This rule is one pure function, `may_undo`; everything
that undoes an attempt asks it.

**A process that may not be alone claims the key first.** "There is no set" is true only at the
moment of the answer: a second handle may commit the attempt between the question and the aborts,
and a driver may then decide. So an aborter stores a *tombstone* at the set's key (``If-None-Match:
*``): a set without commits that says ``aborted``. Once it is there, nobody can commit the attempt.
If a set was there first, the attempt is committed, and the aborter leaves it alone. The tombstone
stays until the job's sweep. After its PUT the fence is read, as after each PUT that a sweep may
have missed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from magic_committer._hints import ANOTHER_ATTEMPT, OWN_NAME
from magic_committer._runtime import OwnSet, Runtime
from magic_committer.commit import ready
from magic_committer.commit.steps import again
from magic_committer.errors import (
    NotFound,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.formats import (
    PENDINGSET_BYTES_MAX,
    Pending,
    PendingSet,
    encode_pendingset,
    new_pendingset,
)
from magic_committer.hadoop.manifests import decode_set
from magic_committer.hadoop.paths import JobPaths
from magic_committer.hadoop.statistics import Statistics
from magic_committer.protocol.record import (
    ATTEMPT_METADATA,
    JOB_METADATA,
    TASK_METADATA,
    StartedJob,
)
from magic_committer.protocol.rules import Found
from magic_committer.stores.base import Written

logger = logging.getLogger("magic_committer")

PUT_TRIES_MAX = 3
"""How often a pendingset without a clear answer is sent. Each time includes the store's own
retries."""
PUT_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StoredSet:
    """A pendingset as it is stored."""

    pendings: tuple[Pending, ...]
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class AtKey:
    """What is at the key of a set. ``stored``: the set, if there is one."""

    found: Found
    stored: StoredSet | None = None


class AttemptSet:
    """The pendingset of one attempt. ``metadata`` is that of all control objects of the attempt.
    ``refused``: the last `put` was refused at its only try: it took no effect, and will not."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, paths: JobPaths, task: str, attempt: str
    ) -> None:
        self._runtime = runtime
        self._job = job
        self.attempt = attempt
        self._task = task
        self.key = paths.pendingset(attempt)
        self.refused = False
        self.metadata = {JOB_METADATA: job.uuid, TASK_METADATA: task, ATTEMPT_METADATA: attempt}
        self._extra = {
            ready.EXTRA_JOB: job.uuid,
            ready.EXTRA_TASK: task,
            ready.EXTRA_ATTEMPT: attempt,
        }

    def encode(
        self, pendings: list[Pending], statistics: Statistics
    ) -> tuple[bytes, OwnSet | None]:
        """Give the set's bytes; and what a driver in this process needs of it, for `put`."""
        pendingset = new_pendingset(
            job_id=self._job.id,
            commits=pendings,
            extra_data=self._extra,
            iostatistics=statistics.to_dict(),
        )
        body = encode_pendingset(pendingset, self._job.terms.etag_form, source=self.key)
        return body, self._packed(pendingset)

    def _packed(self, pendingset: PendingSet) -> OwnSet | None:
        """What a driver in this process needs of the set; None: it reads the set. So it does if it
        would find another one: without checksums, or with another bucket, which it refuses."""
        terms, bucket = self._job.terms, self._runtime.store.bucket
        commits = pendingset.commits
        kept = terms.accept == "results" and terms.etag_form == "objects"
        if not kept or any(one.bucket != bucket for one in commits):
            return None
        rows = [ready.row_of(one, self.key) for one in commits]
        return OwnSet(
            "", self._task, self.attempt, self._job.uuid, len(rows),
            sum(one.length for one in commits), ready.pack(rows, pendingset.iostatistics or {}),
        )  # fmt: skip

    def put(self, pendings: list[Pending], body: bytes, own: OwnSet | None) -> StoredSet:
        """Store the set that `encode` gave, once: ``If-None-Match: *``. A stored set with the same
        files is as good: our own PUT whose answer was lost, or an earlier commit. A set with other
        files, and a tombstone, are `TaskFailed`. After a StoreError the set may or may not be
        stored, unless `refused`."""
        answer = self.put_once(body)
        if isinstance(answer, Written):
            if own is not None:
                own = own._replace(etag=answer.etag)
                self._runtime.own_sets.keep(self._runtime.store.bucket, self.key, own)
            return StoredSet(tuple(pendings), answer.etag, len(body))
        stored = self._with(answer, pendings)
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
            extra_data={**self._extra, ready.EXTRA_ABORTED: "true"},
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

    def earlier(self, pendings: list[Pending]) -> StoredSet | None:
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
        if ready.is_tombstone(pendingset.extra_data):
            return AtKey(Found.CLAIMED)
        before = tuple(pendingset.commits)
        return AtKey(Found.SET, StoredSet(before, stored.info.etag, len(stored.body)))

    def _with(self, there: AtKey, pendings: list[Pending]) -> StoredSet | None:
        if there.found is Found.CLAIMED:
            raise self.was_aborted()
        if there.stored is None or not names(pendings) <= names(there.stored.pendings):
            return None
        return there.stored

    def was_aborted(self) -> TaskFailed:
        """The error for the commit of an attempt with a tombstone."""
        return TaskFailed(
            f"attempt {self.attempt!r} of task {self._task!r} was aborted by another process, by"
            " an earlier abort, or as a file of it failed: it can never be committed",
            job_id=self._job.id,
            hint=ANOTHER_ATTEMPT,
        )

    def other_files(self) -> TaskFailed:
        return TaskFailed(
            f"attempt {self.attempt!r} was committed before, with other files",
            job_id=self._job.id,
            hint=OWN_NAME,
        )


def names(pendings: list[Pending] | tuple[Pending, ...]) -> set[tuple[str, str]]:
    """Key and id of each upload."""
    return {(pending.destination_key, pending.upload_id) for pending in pendings}


def refused(error: BaseException) -> bool:
    """Whether a single PUT that failed with ``error`` took no effect, and will not. Do not ask this
    after a second try: that one may still take effect."""
    return (
        isinstance(error, StoreError) and not isinstance(error, Unanswered) and error.attempts == 1
    )

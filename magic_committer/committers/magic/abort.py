"""Undoing an attempt: what is asked first, and how its uploads are removed.

Invariants:

* After `settle` has asked, no other handle can change the answer: it asks by a claim
  (`pendingset`), unless the attempt has no other handle and no request of it is under way.
* An upload that may have become its object is looked at first: on some stores the abort of a
  completed upload deletes the object (docs/stores.md).
* The upload of a lost Create is found by its exact key. It is removed only if its name carries the
  job's UUID and the job has ended: nobody completes anything there any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from magic_committer._runtime import Runtime
from magic_committer.commit import ready, steps
from magic_committer.commit.fence import Fence
from magic_committer.commit.pendingset import AtKey, AttemptSet
from magic_committer.commit.upload_state import Removal, Removed, UploadName, UploadRemover
from magic_committer.errors import FormatError, StoreError, TaskFailed, Unanswered
from magic_committer.hadoop.formats import Pending
from magic_committer.hadoop.paths import uuid_in_name
from magic_committer.protocol.record import HANDS_OFF, StartedJob, State
from magic_committer.protocol.rules import Found, Phase, may_undo


def late_in(fence: Fence) -> State | None:
    """The state by which the fence called the attempt late; None if it did not."""
    return State(fence.late.state) if fence.late is not None else None


def settle(
    job: StartedJob,
    attempt_set: AttemptSet,
    fence: Fence,
    phase: Phase,
    failures: list[BaseException],
    *,
    sole: bool,
) -> tuple[AtKey, bool]:
    """Find out what is at the key of an attempt's set, before the attempt is undone. Gives what is
    there; and whether it is proved that no driver has ever accepted the attempt. If it is not
    known, and it matters, the error is raised: nothing may be undone."""
    if sole and phase is Phase.OPEN:
        return AtKey(Found.NOTHING), True  # it never sent a set, and nobody else can
    accept, late = job.terms.accept, late_in(fence)
    reading = (
        (late is not None and late not in HANDS_OFF)  # nobody accepts anything any more
        or phase is Phase.COMMITTED
        or (sole and (phase is Phase.ABORTED or accept == "results"))
        or job.terms.conditional_writes == "off"  # a claim would overwrite the set
    )
    try:
        there = attempt_set.read() if reading else attempt_set.claim()
    except (StoreError, FormatError) as error:
        if not may_undo(phase, sole=sole, accept=accept, found=Found.SET, late=late):
            raise
        failures.append(error)
        return AtKey(Found.NOTHING), False
    if reading or there.found is not Found.CLAIMED:
        return there, False
    return there, _claim_stands(attempt_set, fence, failures)


def settle_undo(
    job: StartedJob,
    attempt_set: AttemptSet,
    fence: Fence,
    phase: Phase,
    failures: list[BaseException],
    *,
    sole: bool,
) -> tuple[AtKey, bool]:
    """`settle`, for an attempt that is to be undone. If it is committed or may be, only the job can
    undo it (`may_undo`): raises TaskFailed, and nothing may be undone."""
    there, unaccepted = settle(job, attempt_set, fence, phase, failures, sole=sole)

    def may() -> bool:
        accept, late = job.terms.accept, late_in(fence)
        return may_undo(phase, sole=sole, accept=accept, found=there.found, late=late)

    if not may():
        fence.must_undo()
    if not may():
        raise TaskFailed(
            f"attempt {attempt_set.attempt!r} is committed, or may be",
            job_id=job.id,
            hint="Leave it out of job.commit(...), or abort the job",
        )
    return there, unaccepted


def _claim_stands(attempt_set: AttemptSet, fence: Fence, failures: list[BaseException]) -> bool:
    """Read the fence after a tombstone was stored, and delete the tombstone if the job has ended,
    because its sweep may be over. True: the job has not ended. Then no sweep can have deleted an
    accepted set, and the successful claim proves that there was none."""
    try:
        late = fence.must_undo()
    except (StoreError, FormatError) as error:
        failures.append(error)
        return False
    if late is not None:
        attempt_set.take_back()
    return late is None


def remove_one(runtime: Runtime, upload: UploadName) -> None:
    """Remove one upload, unless it has ended."""
    error = _why_left(runtime, upload, UploadRemover(runtime).remove(upload))
    if error is not None:
        raise error


def _why_left(runtime: Runtime, upload: UploadName, left: Removed) -> StoreError | None:
    """Why an upload is, or may be, still open. None: it is not; or the store has accepted the
    abort, and the task may not see whether the parts are gone: the job's sweep proves it."""
    if left.removal is not Removal.LEFT or left.sent:
        return None
    return left.error or Unanswered(
        f"the upload {upload.upload_id} of {upload.key} could not be aborted: {left.why}",
        operation="abort_upload",
        bucket=runtime.store.bucket,
        key=upload.key,
    )


def remove_all(
    runtime: Runtime,
    pendings: Iterable[Pending],
    failures: list[BaseException],
    *,
    look_first: bool,
    in_flight: int,
) -> int:
    """Remove the uploads of these `.pending`s and go on after single failures. Gives their
    number."""
    doomed: dict[tuple[str, str], UploadName] = {}
    for pending in pendings:
        try:
            upload = ready.from_pending(pending, pending.destination_key)
        except FormatError as error:
            failures.append(error)
            continue
        doomed[upload.key, upload.upload_id] = UploadName.of(upload)
    remover = UploadRemover(runtime, look_first=look_first)
    removals = ((doomed[name], remover.to_remove(doomed[name])) for name in sorted(doomed))
    for name, removed in steps.each(runtime, removals, in_flight=in_flight):
        left = _why_left(runtime, name, removed)
        if left is not None:
            failures.append(left)
    return len(doomed)


class RetriedCreates:
    """Keys of an attempt whose Create was sent more than once. Each key may have two uploads, and
    the id of one is lost (counterexamples.md, #18)."""

    def __init__(self, runtime: Runtime, job: StartedJob, fence: Fence) -> None:
        self._runtime = runtime
        self._job = job
        self._fence = fence
        self._keys: dict[str, None] = {}

    def add(self, key: str) -> None:
        """Note that the Create of ``key`` was sent more than once."""
        if uuid_in_name(key) == self._job.uuid:  # otherwise nobody can say who owns an upload there
            self._keys[key] = None

    def abort_if_late(self) -> None:
        """If the job has ended, list the keys and abort the open uploads there. A job that has not
        ended sweeps them itself, and while it commits, its plan may name one of them. Repeatable.

        Each upload is looked at first: a listing may be stale and show an upload that was
        completed. Only the parts are looked at, because both uploads of a key carry the same token.
        """
        if not self._keys:
            return
        late = self._fence.late or self._fence.must_undo()
        if late is None or State(late.state) in HANDS_OFF:
            return
        for key in list(self._keys):
            for page in self._runtime.store.list_uploads(key):
                for upload in page.uploads:
                    if upload.key == key:
                        remove_one(self._runtime, UploadName(key, upload.upload_id))
            self._keys.pop(key, None)

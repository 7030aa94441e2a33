"""An attempt's `.pendingset`: what makes it committed, and when it may still be undone.

Once it is stored a driver may have accepted it, so an attempt is undone only if that cannot have
happened, or does not matter any more. That rule is one pure function, `may_undo`; everything that
undoes an attempt asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magic_committer.commit import ready
from magic_committer.errors import (
    NotFound,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.formats import (
    PENDINGSET_BYTES_MAX,
    Pending,
    decode_pendingset,
    encode_pendingset,
    new_pendingset,
)
from magic_committer.job import (
    ATTEMPT_METADATA,
    HANDS_OFF,
    JOB_METADATA,
    TASK_METADATA,
    StartedJob,
    State,
)
from magic_committer.options import Accept
from magic_committer.paths import JobPaths
from magic_committer.runtime import Runtime
from magic_committer.stats import Statistics

PUT_TRIES_MAX = 3
"""How often a pendingset is sent that gets no answer; each with the store's own retries below."""
PUT_PAUSE_SECONDS = 0.5


class Phase(Enum):
    """What an attempt is. The ways: open → sent → committed, and open or sent → aborted."""

    OPEN = "open"
    SENT = "sent"
    """Its pendingset is, or may be, or may still be stored."""
    COMMITTED = "committed"
    ABORTED = "aborted"


def may_undo(phase: Phase, *, sole: bool, accept: Accept, stored: bool, late: State | None) -> bool:
    """Whether an attempt may be undone: its uploads aborted, its pendingset deleted. Pure.

    Args:
        sole: no other handle goes by the attempt's name.
        stored: there is a pendingset of the attempt. late: the state by which the fence called the
            attempt late, None if it did not.
    """
    if late is not None and late not in HANDS_OFF:
        return True  # whatever was accepted is completed or undone by now
    if phase is Phase.COMMITTED:
        return False
    if accept == "results" and (sole or not stored):
        return True  # no result of it was ever given to anybody
    return phase is not Phase.SENT and not stored


@dataclass(frozen=True, slots=True)
class StoredSet:
    """A pendingset as it is stored."""

    pendings: tuple[Pending, ...]
    etag: str
    size: int


class AttemptSet:
    """The pendingset of one attempt."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, paths: JobPaths, task: str, attempt: str
    ) -> None:
        self._runtime = runtime
        self._job = job
        self._attempt = attempt
        self.key = paths.pendingset(attempt)
        self.metadata = {JOB_METADATA: job.uuid, TASK_METADATA: task, ATTEMPT_METADATA: attempt}
        self._extra = {
            ready.EXTRA_JOB: job.uuid,
            ready.EXTRA_TASK: task,
            ready.EXTRA_ATTEMPT: attempt,
        }

    def encode(self, pendings: list[Pending], statistics: Statistics) -> bytes:
        """The set's bytes.

        Raises:
            FormatError: it would be too large.
        """
        pendingset = new_pendingset(
            job_id=self._job.id,
            commits=pendings,
            extra_data=self._extra,
            iostatistics=statistics.to_dict(),
        )
        return encode_pendingset(pendingset, self._job.terms.etag_form, source=self.key)

    def put(self, pendings: list[Pending], body: bytes) -> StoredSet:
        """Store the set, once: ``If-None-Match: *``. One that holds these files and is stored
        already is as good: our own PUT whose answer was lost, or an earlier commit.

        Raises:
            TaskFailed: the attempt was committed before, with other files.
            StoreError: it is not known to be stored; see `refused`.
        """
        for number in range(PUT_TRIES_MAX):
            try:
                written = self._runtime.store.put(
                    self.key,
                    body,
                    metadata=self.metadata,
                    content_type="application/json",
                    if_none_match=True,
                )
                return StoredSet(tuple(pendings), written.etag, len(body))
            except (PreconditionFailed, WriteConflict) as error:
                earlier = self.earlier(pendings)
                if earlier is None:
                    raise self._other_files() from error
                return earlier
            except Unanswered:
                if number + 1 == PUT_TRIES_MAX:
                    raise
                self._runtime.clock.sleep(PUT_PAUSE_SECONDS * 2**number)
        raise AssertionError("the loop returns or raises")

    def earlier(self, pendings: list[Pending]) -> StoredSet | None:
        """The stored set, if it is this attempt's and holds these files; None if not. One GET."""
        try:
            stored = self._runtime.store.get(self.key, max_bytes=PENDINGSET_BYTES_MAX)
        except NotFound:
            return None
        if (stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid:
            return None
        before = tuple(decode_pendingset(stored.body, self.key).commits)
        if not names(pendings) <= names(before):
            return None
        return StoredSet(before, stored.info.etag, len(stored.body))

    def is_stored(self) -> bool:
        """Whether a set of this attempt, of this job's UUID, is stored. One HEAD."""
        try:
            info = self._runtime.store.head(self.key)
        except NotFound:
            return False
        return (info.metadata or {}).get(JOB_METADATA) == self._job.uuid

    def _other_files(self) -> TaskFailed:
        return TaskFailed(
            f"attempt {self._attempt!r} was committed before, with other files",
            job_id=self._job.id,
            hint="Give each attempt of a task a name of its own; the job's sweep takes these files",
        )


def names(pendings: list[Pending] | tuple[Pending, ...]) -> set[tuple[str, str]]:
    """Key and id of each upload."""
    return {(pending.destination_key, pending.upload_id) for pending in pendings}


def refused(error: StoreError) -> bool:
    """Whether a PUT was refused at once: it took no effect, and will not."""
    return not isinstance(error, Unanswered) and error.attempts == 1

"""The closed files of an attempt that other handles may know: their `.pending`s.

Invariants:

* From before the PUT of a `.pending` until its file is closed successfully, another handle may
  commit the attempt with it. Every other end of the file comes through here: the upload is aborted
  only if nobody has committed it and nobody can (`rule_out`); otherwise it is left to the job's
  end.
* An attempt that no other handle uses needs no such proof. It may not be shared any more after an
  upload was aborted whose `.pending` may be stored.
* Nothing here refers to a file: the upload of a dropped file is aborted through this (`sender`).
"""

from __future__ import annotations

import logging
import threading

from magic_committer._hints import ANOTHER_ATTEMPT, CLOSE_FIRST
from magic_committer._runtime import Runtime
from magic_committer.commit.fence import Fence
from magic_committer.commit.pendingset import AttemptSet, names
from magic_committer.commit.upload_state import UploadName, UploadRemover
from magic_committer.committers.magic.abort import remove_one, rule_out
from magic_committer.errors import FormatError, MagicError, StoreError, TaskFailed
from magic_committer.hadoop.formats import Pending
from magic_committer.protocol.record import StartedJob
from magic_committer.protocol.rules import Found

logger = logging.getLogger("magic_committer")


class SavedFiles:
    """The uploads of one attempt whose `.pending` was sent. ``shared``: other handles may commit
    the attempt. ``dead``: why it can never be committed; None as long as this handle knows no
    reason."""

    def __init__(
        self,
        runtime: Runtime,
        job: StartedJob,
        attempt_set: AttemptSet,
        fence: Fence,
        attempt: str,
        *,
        shared: bool,
    ) -> None:
        self.shared = shared
        self.dead: TaskFailed | None = None
        self._runtime = runtime
        self._job = job
        self._set = attempt_set
        self._fence = fence
        self._attempt = attempt
        self._lock = threading.RLock()
        self._sent: dict[str, Pending] = {}  # by upload id: their end must be asked for
        self._kept: set[str] = set()  # ids of uploads that the job's end must judge
        self._stray: str | None = None  # a key whose `.pending` may name an aborted upload

    def share(self) -> None:
        """Let other handles commit the attempt from now on. An upload that was aborted here, whose
        `.pending` may be stored, forbids it: another handle would commit it."""
        with self._lock:
            if self._stray is not None:
                raise TaskFailed(
                    f"attempt {self._attempt!r} cannot go to another process any more: the first"
                    f" close of {self._stray!r} failed, and may be saved all the same",
                    job_id=self._job.id,
                    hint=f"Commit it in this process. {ANOTHER_ATTEMPT}",
                )
            self.shared = True

    def send(self, pending: Pending) -> None:
        """Note that the `.pending` of a file is sent next."""
        self._sent[pending.upload_id] = pending

    def is_free(self, pending: Pending) -> None:
        """Note that nobody commits this file, now or later: its upload may be aborted."""
        self._sent.pop(pending.upload_id, None)

    def late(self, pending: Pending) -> MagicError | None:
        """Why a file of a shared attempt was saved too late to be published; None if it was not.

        The set is read first, then the fence: a sweep deletes the set, but not before the fence
        tells. In the other order a process that is slow between the two would find neither.

        If the store cannot be asked, the file stays saved: the process that commits the attempt
        reads it, or the job's sweep finds it.
        """
        try:
            without = self._set_without(pending)
        except (StoreError, FormatError) as error:
            logger.warning(
                "job %s: whether attempt %s is committed already could not be read: %s",
                self._job.id, self._attempt, error,
            )  # fmt: skip
        else:
            if without is not None:
                return without  # nobody may read the fence for this file
        try:
            return self._fence.must_undo()
        except (StoreError, FormatError) as error:
            logger.warning("job %s: the fence could not be read: %s", self._job.id, error)
            return None

    def _set_without(self, pending: Pending) -> TaskFailed | None:
        """Why the attempt's set can never hold this file; None if it holds it, or if no set is
        stored."""
        there = self._set.read()
        if there.found is Found.CLAIMED:
            return self._set.was_aborted()
        if there.stored is None or names([pending]) <= names(there.stored.pendings):
            return None
        return TaskFailed(
            f"attempt {self._attempt!r} was committed before {pending.destination_key!r} was"
            " closed: the file is not part of it, and is never published",
            job_id=self._job.id,
            hint=CLOSE_FIRST,
        )

    def give_up(self, pending: Pending, error: BaseException) -> None:
        """End the file because of ``error``, which takes the notes. Does nothing if the file
        `is_free`."""
        if pending.upload_id not in self._sent:
            return
        with self._lock:
            if not self.shared:
                self._stray = pending.destination_key
                self.is_free(pending)
                return
        try:
            if rule_out(self._job, self._set, self._fence, pending):
                self.dead = self._set.was_aborted()
                self.is_free(pending)
                return
        except (StoreError, FormatError) as failure:
            error.add_note(f"whether its attempt is committed is not known either: {failure}")
        self._kept.add(pending.upload_id)
        self.is_free(pending)
        error.add_note(f"the upload {pending.upload_id} is left to the end of the job")

    def abort(self, key: str, mark: str, upload_id: str) -> None:
        """Abort an upload that others may know, or leave it to the job."""
        pending = self._sent.get(upload_id)
        if pending is not None:  # interrupted before `give_up` had ended
            notes = TaskFailed(f"{key} was interrupted while it was closed", job_id=self._job.id)
            self.give_up(pending, notes)
            logger.warning("%s: %s", notes.message, "; ".join(getattr(notes, "__notes__", ())))
        if upload_id not in self._kept:
            remove_one(
                self._runtime, UploadRemover(self._runtime), UploadName(key, upload_id, mark)
            )

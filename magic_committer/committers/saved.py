"""What other handles may know of an attempt: how it is undone, and what is saved of its files.

Invariants:

* After `AttemptSet.settle` has asked, no other handle can change the answer: it asks by a claim
  (`AttemptSet`), unless the attempt has no other handle and no request of it is under way.
* An upload that may have become its object is looked at first: on some stores the abort of a
  completed upload deletes the object (docs/stores.md).
* The upload of a lost Create is found by its exact key. It is removed only if its name carries the
  job's UUID and the job has ended: nobody completes anything there any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable
from contextlib import closing, suppress

from msgspec.structs import replace

from magic_committer.commit import requests, sets
from magic_committer.commit.fence import AttemptSet, Fence, refused
from magic_committer.commit.sets import ReadyUpload, each_listed, set_bytes_max
from magic_committer.commit.uploads import Removal, Removed, remove, to_remove
from magic_committer.errors import (
    FormatError,
    MagicError,
    NotFound,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.errors.messages import ANOTHER_ATTEMPT, CLOSE_FIRST, OWN_NAME
from magic_committer.hadoop.documents import (
    PENDING_BYTES_MAX,
    Pending,
    decode_pending,
    encode_pending,
)
from magic_committer.hadoop.paths import PENDING_SUFFIX, uuid_in_name
from magic_committer.protocol.record import (
    HANDS_OFF,
    JOB_METADATA,
    Found,
    Phase,
    StartedJob,
    State,
)
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Outcome
from magic_committer.stores.base import ObjectInfo, StoredObject, objects, same_etag


def remove_one(runtime: Runtime, upload: ReadyUpload) -> None:
    """Remove one upload, unless it has ended."""
    error = _why_left(runtime, upload, remove(runtime, upload))
    if error is not None:
        raise error


def _why_left(runtime: Runtime, upload: ReadyUpload, left: Removed) -> StoreError | None:
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
) -> int:
    """Remove the uploads of these `.pending`s and go on after single failures. Gives their
    number."""
    doomed: dict[tuple[str, str], ReadyUpload] = {}
    for pending in pendings:
        try:
            upload = sets.from_pending(pending, pending.destination_key)
        except FormatError as error:
            failures.append(error)
            continue
        doomed[upload.key, upload.upload_id] = upload.bare
    removals = (
        (doomed[name], to_remove(runtime, doomed[name], look_first=look_first))
        for name in sorted(doomed)
    )
    for name, removed in requests.each(runtime, removals):
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
                        remove_one(self._runtime, ReadyUpload(key, upload.upload_id))
            self._keys.pop(key, None)


# What is saved under the magic path ---------------------------------------------------------------
#
# The closed files of an attempt that other handles may know: the `.pending`s that ``track="s3"``
# saves. With them any process that knows the attempt's name can commit or abort the attempt. They
# lie in Hadoop's tree (3.4) without its zero-byte markers: a committer reads only
# ``<path>.pending``, and a marker is one more PUT for each file. (Hadoop's tools ask the marker how
# long a file of a running JVM is. A file that is opened by path has one: `open_plain`.) All objects
# carry the job's UUID, so that the tree of another run can be distinguished.
#
# Invariants:
#
# * From before the PUT of a `.pending` until its file is closed successfully, another handle may
#   commit the attempt with it. Every other end of the file comes through here: the upload is
#   aborted only if nobody has committed it and nobody can; otherwise it is left to the job's end.
# * Of two files of one name that two handles of an attempt have closed the first one stays.
# * An attempt that no other handle uses needs no such proof. It may not be shared any more after an
#   upload was aborted whose `.pending` may be stored.
# * Nothing here refers to a file: the upload of a dropped file is aborted through this (`sender`).
# * What this handle has saved it does not read again: if the listing shows a `.pending` with the
#   ETag that the store gave for our PUT, it is the one that we know. Any other one is read.


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
        *,
        shared: bool,
    ) -> None:
        self.shared = shared
        self.dead: TaskFailed | None = None
        self._runtime = runtime
        self._job = job
        self._paths = job.paths
        self._set = attempt_set
        self._fence = attempt_set.fence
        self._attempt = attempt_set.attempt
        self._lock = threading.RLock()
        self._saved: dict[str, tuple[str, Pending]] = {}  # by key, with the store's ETag
        self._sent: dict[str, Pending] = {}  # by upload id: their end must be asked for
        self._kept: set[str] = set()  # ids of uploads that the job's end must judge
        self._stray: str | None = None  # a key whose `.pending` may name an aborted upload
        self._found: list[str] = []  # what the last listing showed
        self._own: list[str] = []  # what of it is proved to be this attempt's

    def share(self) -> None:
        """Let other handles commit the attempt from now on. An upload that was aborted here, whose
        `.pending` may be stored, forbids it: another handle would commit it."""
        with self._lock:
            if self._stray is not None:
                raise self._set.failed(
                    f" cannot go to another process any more: the first"
                    f" close of {self._stray!r} failed, and may be saved all the same",
                    f"Commit it in this process. {ANOTHER_ATTEMPT}",
                )
            self.shared = True

    # One file -------------------------------------------------------------------------------------

    def save(self, key: str, pending: Pending) -> None:
        """Store the `.pending` of a closed file under this key: from now on every process that
        commits the attempt commits the file. This may be so even if the request got no answer.
        Raises why a file of a shared attempt is too late, or that its name is another file's."""
        self._sent[pending.upload_id] = pending
        body = encode_pending(pending, self._job.terms.etag_form)
        try:
            etag = self._put(key, body)
        except StoreError as error:
            conflict = isinstance(error, PreconditionFailed | WriteConflict)
            there = self._there(key) if conflict else None
            if there is None or there.body != body:
                if refused(error):  # if it was sent twice, `give_up` finds out
                    self.is_free(pending)
                if there is None:
                    raise
                raise self._set.failed(
                    f": another handle has closed a file {pending.destination_key!r} before. That"
                    " one stays, and this one is never published",
                    "Give each file of an attempt a name of its own. A task that was pickled is one"
                    " attempt: to run it again, send the job, and call job.task(...) there",
                ) from error
            etag = there.info.etag  # of a try that got no answer
        self._saved[key] = etag, pending
        late = self.late(pending) if self.shared else None
        if late is not None:
            self.is_free(pending)
            self._delete([key])
            raise late

    def _put(self, key: str, body: bytes) -> str:
        """Store a `.pending`; that of a shared attempt only where there is none. Gives its ETag."""
        if self.shared and self._job.terms.conditional_writes == "off" and self._there(key):
            raise PreconditionFailed("there is an object", operation="put", key=key)
        return self._runtime.store.put(
            key,
            body,
            metadata=self._set.metadata,
            content_type="application/json",
            if_none_match=self.shared,
        ).etag

    def _there(self, key: str) -> StoredObject | None:
        """What is at the key of a `.pending`."""
        with suppress(NotFound):
            return self._runtime.store.get(key, max_bytes=PENDING_BYTES_MAX)
        return None

    def take_out(self, key: str, pending: Pending) -> None:
        """Delete the `.pending` of a closed file: from now on nobody commits the file.
        Repeatable."""
        failed = self._runtime.store.delete([key])
        if failed:
            raise failed[key]
        self._saved.pop(key, None)
        self.is_free(pending)

    def is_free(self, pending: Pending) -> None:
        """Note that nobody commits this file, now or later: its upload may be aborted."""
        self._sent.pop(pending.upload_id, None)

    def late(self, pending: Pending) -> MagicError | None:
        """Why a file of a shared attempt was saved too late to be published; None if it was not.

        The set is read first, then the fence: a sweep deletes the set, but not before the fence
        shows it. In the other order a process that is slow between the two would find neither.

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
        if there.found is not Found.SET or there.holds([pending]):
            return None
        return self._set.failed(
            f" was committed before {pending.destination_key!r} was"
            " closed: the file is not part of it, and is never published",
            CLOSE_FIRST,
        )

    def give_up(self, pending: Pending, error: BaseException) -> None:
        """End the file because of ``error``, which gets the notes. Does nothing if nobody commits
        the file anyway."""
        if pending.upload_id not in self._sent:
            return
        with self._lock:
            if not self.shared:
                self._stray = pending.destination_key
                self.is_free(pending)
                return
        try:
            if self._is_ruled_out(pending):
                self.dead = self._set.was_aborted()
                self.is_free(pending)
                return
        except (StoreError, FormatError) as failure:
            error.add_note(f"whether its attempt is committed is not known either: {failure}")
        self._kept.add(pending.upload_id)
        self.is_free(pending)
        error.add_note(f"the upload {pending.upload_id} is left to the end of the job")

    def _is_ruled_out(self, pending: Pending) -> bool:
        """Make sure that no other handle commits the attempt with a file whose `.pending` got no
        answer. False: another handle has committed it."""
        there, _ = self._set.settle(Phase.OPEN, [], sole=False)
        if there.found is Found.SET:
            return not there.holds([pending])
        return there.found is not Found.FOREIGN

    def abort(self, key: str, mark: str, upload_id: str) -> None:
        """Abort an upload that others may know, or leave it to the job."""
        pending = self._sent.get(upload_id)
        if pending is not None:  # interrupted before `give_up` had ended
            notes = TaskFailed(f"{key} was interrupted while it was closed", job_id=self._job.id)
            self.give_up(pending, notes)
            logger.warning("%s: %s", notes.message, "; ".join(getattr(notes, "__notes__", ())))
        if upload_id not in self._kept:
            remove_one(self._runtime, ReadyUpload(key, upload_id, mark))

    # The attempt's tree ---------------------------------------------------------------------------

    def pendings(self) -> list[Pending]:
        """All files of the attempt. One GET for each that another handle has saved."""
        with closing(self._listed()) as outcomes:
            return [outcome.unwrap() for outcome in outcomes]

    def known_uploads(self, failures: list[BaseException]) -> list[Pending]:
        """The uploads that the tree names. An unreadable `.pending` is noted, unless it is gone:
        then another process is aborting the attempt too."""
        known: list[Pending] = []
        with closing(self._listed()) as outcomes:
            for outcome in outcomes:
                if outcome.error is None:
                    known.append(outcome.unwrap())
                elif not isinstance(outcome.error.__cause__, NotFound):
                    failures.append(outcome.error)
        return known

    def remove(self) -> None:
        """Delete the tree as `pendings` or `known_uploads` found it. The directory of a given job
        id may hold a zombie of another run: there, only objects that are proved to be ours are
        deleted."""
        self._delete(self._own if self._job.given_id else self._found)

    def _delete(self, keys: Iterable[str]) -> None:
        """Delete control objects. What stays is swept with the job."""
        doomed = list(keys)
        failed = self._runtime.store.delete(doomed) if doomed else {}
        for key, error in failed.items():
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, error)

    def _listed(self) -> Generator[Outcome[ObjectInfo, Pending], None, None]:
        found = list(objects(self._runtime.store, self._paths.attempt_directory(self._attempt)))
        self._found, self._own = [info.key for info in found], []
        pendings = [info for info in found if info.key.endswith(PENDING_SUFFIX)]
        return each_listed(self._runtime, self._load, pendings)

    def _load(self, info: ObjectInfo) -> Pending:
        key = info.key
        saved = self._saved.get(key)
        if saved is not None and same_etag(saved[0], info.etag):
            return self._ours(key, saved[1])
        try:
            bytes_max = min(PENDING_BYTES_MAX, set_bytes_max(info.size))
            stored = self._runtime.store.get(key, max_bytes=bytes_max)
            pending = decode_pending(stored.body, key)
            upload = sets.from_pending(pending, key)
        except (FormatError, NotFound) as error:
            raise self._set.failed(f": {error.message}") from error
        if (stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid or not (
            upload.token.startswith(f"{self._job.uuid}.{self._attempt}.")
        ):
            raise self._set.failed(
                f": {key} is not of this attempt of job {self._job.id!r}", OWN_NAME
            )
        return self._ours(key, pending)

    def _ours(self, key: str, pending: Pending) -> Pending:
        self._own.append(key)
        return replace(pending, filename=self._paths.uri(key))

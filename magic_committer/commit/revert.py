"""Reverting: a decided job is undone before it has completed (states ``reverting`` and
``reverted``).

For each upload of the plan **abort, then HEAD, then delete** the object if it is what the upload
became. A HEAD first would leave a Complete between the two visible (counterexamples.md, #7). For
the same reason the abort must be proved: an upload whose parts are still there can be completed
after the HEAD. The delete removes exactly the version that was looked at, by its ETag, or by its
version id in a versioned bucket. What another program has written since stays. All of this is
repeatable, by anyone. Only after it `job_commit` moves the record to ``reverted``, and only then
the job is swept: its pendingsets are needed until then.

The job is decided: whatever fails here is told as `AbortIncomplete`, and the work is done again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from magic_committer._pool import Outcome
from magic_committer._runtime import Progress, Runtime
from magic_committer.commit import probe, steps
from magic_committer.commit.load import Source
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.records import other_quoting
from magic_committer.commit.upload_state import (
    Removal,
    Removed,
    UploadName,
    UploadRemover,
    became,
    object_at,
)
from magic_committer.errors import (
    AbortIncomplete,
    InvalidRequest,
    MagicError,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.protocol.record import ObjectRef, StartedJob
from magic_committer.stores.base import ObjectInfo, listed


def undo_all(
    runtime: Runtime, job: StartedJob, source: Source, in_flight: int
) -> MagicError | None:
    """Undo every upload of a ``reverting`` job, and go on after single failures. Repeatable. Gives
    the last failure; None: everything is undone."""
    done = 0
    failure: MagicError | None = None
    uploads = (upload for some, _ in source.uploads() for upload in some)
    with closing(_each(runtime, job, uploads, in_flight)) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome.error, StoreError | AbortIncomplete):
                failure = outcome.error
                continue
            outcome.unwrap()
            done += 1
            runtime.progress(Progress("revert", done, None, "files"))
    return failure


def _each(
    runtime: Runtime, job: StartedJob, uploads: Iterator[ReadyUpload], in_flight: int
) -> Generator[Outcome[Any, None], None, None]:
    # It looks first: a visible upload cannot be completed again, and on some stores its abort
    # deletes the object at its key, which may be another writer's by now.
    remover = UploadRemover(runtime)
    removals = ((upload, remover.to_remove(UploadName.of(upload))) for upload in uploads)

    def one(end: tuple[ReadyUpload, Removed]) -> None:
        upload, removed = end
        if removed.removal is Removal.LEFT:
            raise AbortIncomplete(f"the upload of {upload.key}: {removed.why}", job_id=job.id)
        info = _became(runtime, upload)
        if info is None or delete_if_same(
            runtime, info.key, info.etag, info.version_id, modified=info.last_modified
        ):
            return
        # It was left, because it is another object by now. Or was the DELETE refused?
        if _became(runtime, upload) is not None:
            raise AbortIncomplete(f"{upload.key} was not deleted", job_id=job.id)

    with closing(steps.each(runtime, removals, in_flight=in_flight)) as ended:
        yield from runtime.pool.each(one, ended, in_flight=in_flight)


def _became(runtime: Runtime, upload: ReadyUpload) -> ObjectInfo | None:
    """The object at an upload's key, if it is what the upload became. One HEAD."""
    info = object_at(runtime, upload.key)
    return info if info is not None and became(upload, info) else None


# Deleting -----------------------------------------------------------------------------------------
#
# Exactly the object that was looked at, and never what another writer has written since (I6, I7).


DELETE_TRIES_MAX = 4
"""How often a conditional delete is sent that is refused although the object is the same."""
DELETE_PAUSE_SECONDS = 0.2
"""Seconds before the second try. They double each time."""


def delete_if_same(
    runtime: Runtime,
    key: str,
    etag: str,
    version_id: str | None = None,
    *,
    modified: float = 0.0,
) -> bool:
    """Delete an object if it is still the same one. Repeatable.

    A refused condition (412), a conflict (409) or a request that the store calls wrong (400, 501)
    is no answer yet: the object is looked at again. If it is still the same one, the delete is sent
    again. An object that the store refuses to show (a customer's key) is compared by a listing. A
    plain DELETE is sent only to a store that is known to ignore the condition or that calls it
    wrong each time. There, an object that another writer puts between HEAD and DELETE is lost
    (docs/stores.md). False: it was left, because it is another object by now. With ``version_id``,
    in a versioned bucket, exactly that version is deleted, whatever came after. Without
    ``modified`` the ETag alone decides."""
    if version_id not in (None, "", "null"):
        runtime.store.delete_one(key, version_id=version_id)
        return True
    ref = ObjectRef(key, etag, modified)
    keeps = probe.known(runtime.store.identity).conditional_delete
    refused: StoreError | None = None
    wrong = 0
    for _ in steps.again(runtime.clock, DELETE_TRIES_MAX, DELETE_PAUSE_SECONDS):
        # HEAD first, even if the store knows the condition: a store that ignores the condition
        # deletes anyway, and no condition distinguishes objects with the same bytes.
        try:
            info = runtime.store.head(key)
        except NotFound:
            return True
        except (InvalidRequest, PermissionDenied):  # for good: a customer's key (400), a policy
            found = listed(runtime.store, key)
            if found is None:
                return True
            info = found
        if not ref.is_same(info.etag, info.last_modified):
            return False
        if keeps is False or (keeps is None and wrong == DELETE_TRIES_MAX - 1):
            runtime.store.delete_one(key)
            return True
        try:
            runtime.store.delete_one(key, if_match=etag)
            return True
        except (PreconditionFailed, WriteConflict, InvalidRequest, NotSupported) as error:
            refused = error
            wrong += isinstance(error, InvalidRequest | NotSupported)
            if isinstance(error, PreconditionFailed):
                etag = other_quoting(etag)  # perhaps the store wants other quoting (Ceph RGW)
    assert refused is not None
    raise refused

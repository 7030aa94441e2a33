"""Completing one upload, so that it may be done again by anyone.

After a final error of Complete the object that is there tells what happened: its metadata holds the
upload's token if it is this upload that became it (protocol.md, "Completing an upload is
repeatable"). Stores answer a second Complete with 200, 404, 403, 400 or 500, so every final error
is settled that way, not only 404.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from magic_committer.commit.ready import ReadyUpload
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.job import TOKEN_METADATA
from magic_committer.runtime import Runtime
from magic_committer.store import ObjectInfo, Part, same_etag


class Completion(Enum):
    """What became of one upload."""

    DONE = "done"
    UNFINISHED = "unfinished"
    """No answer: try again; its upload may still be open."""
    UNRESOLVED = "unresolved"
    """Its upload is gone and the object there is not it."""
    CONFLICT = "conflict"
    """Mode ``fail``: somebody else's object is there, and stays."""


def complete(
    runtime: Runtime, upload: ReadyUpload, *, if_none_match: bool
) -> tuple[Completion, StoreError | None]:
    """Complete an upload. Repeatable: an upload that was completed before is done.

    Args:
        if_none_match: mode ``fail``: never over an object that is there.
    """
    try:
        _send(runtime, upload, if_none_match)
    except InvalidRequest as error:
        return _with_stored_parts(runtime, upload, if_none_match, error)
    except StoreError as error:
        return _settle(runtime, upload, error)
    return Completion.DONE, None


def _send(runtime: Runtime, upload: ReadyUpload, if_none_match: bool) -> None:
    # Of Hadoop's uploads (no token) the length is not held against the store, as Hadoop does not:
    # where it encrypts on the client it is the plain text's. The parts' ETags name the bytes.
    runtime.store.complete_upload(
        upload.key,
        upload.upload_id,
        upload.parts,
        length=upload.length if upload.token else None,
        checksum=upload.checksum,
        if_none_match=if_none_match,
    )


def _with_stored_parts(
    runtime: Runtime, upload: ReadyUpload, if_none_match: bool, refused: InvalidRequest
) -> tuple[Completion, StoreError | None]:
    """Under SSE-KMS and SSE-C a late retry of a part changes its ETag (counterexamples.md, #16):
    a stored part of the same number, size and checksum is the same part."""
    try:
        stored = runtime.store.list_parts(upload.key, upload.upload_id)
        parts = same_parts(upload, stored)
        if parts is None:
            return _settle(runtime, upload, refused)
        _send(runtime, replace(upload, parts=parts), if_none_match)
    except StoreError as error:
        return _settle(runtime, upload, error if isinstance(error, Unanswered) else refused)
    return Completion.DONE, None


def same_parts(upload: ReadyUpload, stored: object) -> tuple[Part, ...] | None:
    """The upload's parts with the ETags that the store has now; None if a part is not the same, or
    nothing changed. Pure."""
    if not isinstance(stored, list | tuple) or len(stored) != len(upload.parts):
        return None
    changed: list[Part] = []
    for ours, theirs in zip(upload.parts, stored, strict=True):
        same_bytes = ours.size == theirs.size and (
            same_etag(ours.etag, theirs.etag)
            or (ours.checksum is not None and ours.checksum == theirs.checksum)
        )
        if ours.number != theirs.number or not same_bytes:
            return None
        changed.append(replace(ours, etag=theirs.etag))
    return tuple(changed) if tuple(changed) != upload.parts else None


def _settle(
    runtime: Runtime, upload: ReadyUpload, error: StoreError
) -> tuple[Completion, StoreError | None]:
    try:
        if is_there(runtime, upload):
            return Completion.DONE, None
        if isinstance(error, PreconditionFailed | WriteConflict):
            return Completion.CONFLICT, error
        if _maybe_open(runtime, upload):
            return Completion.UNFINISHED, error
        # Not open any more: another executor may have completed it since the first look.
        if is_there(runtime, upload):
            return Completion.DONE, None
    except StoreError as unread:
        return Completion.UNFINISHED, unread
    return Completion.UNRESOLVED, error


def is_there(runtime: Runtime, upload: ReadyUpload) -> bool:
    """Whether the object at an upload's key is what the upload became. One HEAD."""
    try:
        return became(upload, runtime.store.head(upload.key))
    except NotFound:
        return False


def has_ended(runtime: Runtime, key: str, upload_id: str) -> bool:
    """Whether an upload that a listing shows was completed or aborted: a listing is a hint only,
    and aborting what was completed costs the object on some stores (docs/stores.md). One ListParts;
    where that is refused (a permission, a customer's key) the listing must do.

    Raises:
        Unanswered: nobody can tell.
    """
    try:
        runtime.store.list_parts(key, upload_id)
    except NotFound:
        return True
    except Unanswered:
        raise
    except StoreError:
        return False
    return False


def _maybe_open(runtime: Runtime, upload: ReadyUpload) -> bool:
    """Whether the upload may still be open: then its failure is another, a missing permission say,
    and completing can be tried again."""
    try:
        runtime.store.list_parts(upload.key, upload.upload_id)
    except NotFound:
        return False
    except StoreError as error:
        return isinstance(error, Unanswered)
    return True


def became(upload: ReadyUpload, info: ObjectInfo) -> bool:
    """Whether an object is what the upload became. Pure."""
    if upload.token:
        return (info.metadata or {}).get(TOKEN_METADATA) == upload.token
    return bool(upload.multipart_etag) and same_etag(info.etag, upload.multipart_etag)

"""Deleting exactly what was looked at, and never what a neighbour has written since (I6, I7)."""

from __future__ import annotations

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PreconditionFailed,
    WriteConflict,
)
from magic_committer.runtime import Runtime
from magic_committer.store import same_etag


def delete_if_same(runtime: Runtime, key: str, etag: str, version_id: str | None = None) -> bool:
    """Delete an object if it is still that one. Repeatable.

    Args:
        version_id: in a versioned bucket: that very version is deleted, whatever came after.

    Returns:
        False if it was left, because it is another by now.
    """
    if version_id not in (None, "", "null"):
        runtime.store.delete_one(key, version_id=version_id)
        return True
    try:
        # HEAD first also where the store knows the condition: one that ignores it deletes anyway.
        if not same_etag(runtime.store.head(key).etag, etag):
            return False
        runtime.store.delete_one(key, if_match=etag)
    except NotFound:
        return True
    except (PreconditionFailed, WriteConflict):
        return False
    except (InvalidRequest, NotSupported):
        # No conditional DELETE: what a neighbour writes between HEAD and DELETE is lost.
        runtime.store.delete_one(key)
    return True

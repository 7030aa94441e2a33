"""Deleting exactly what was looked at, and never what a neighbour has written since (I6, I7)."""

from __future__ import annotations

from magic_committer.commit.records import other_quoting
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.job import ObjectRef
from magic_committer.runtime import Runtime

DELETE_TRIES_MAX = 4
"""How often a conditional delete is sent that is refused, though the object is the same."""
DELETE_PAUSE_SECONDS = 0.2
"""Before the second try; doubled each time."""


def delete_if_same(
    runtime: Runtime,
    key: str,
    etag: str,
    version_id: str | None = None,
    *,
    modified: float = 0.0,
) -> bool:
    """Delete an object if it is still that one. Repeatable.

    A refused condition (412) or a conflict (409) is no answer yet: the object is looked at again.
    If it is still that one, the delete is sent again.

    Args:
        version_id: in a versioned bucket: that very version is deleted, whatever came after.
        modified: its Last-Modified, in seconds by the store's clock; 0.0: the ETag alone decides.

    Returns:
        False if it was left, because it is another by now.

    Raises:
        StoreError: it is, or may be, still there.
    """
    if version_id not in (None, "", "null"):
        runtime.store.delete_one(key, version_id=version_id)
        return True
    ref = ObjectRef(key, etag, modified)
    last: StoreError | None = None
    for number in range(DELETE_TRIES_MAX):
        if number:
            runtime.clock.sleep(DELETE_PAUSE_SECONDS * 2 ** (number - 1))
        try:
            # HEAD first also where the store knows the condition: one that ignores it deletes
            # anyway, and no condition tells objects of identical bytes apart.
            info = runtime.store.head(key)
            if not ref.is_same(info.etag, info.last_modified):
                return False
            runtime.store.delete_one(key, if_match=etag)
        except NotFound:
            return True
        except PreconditionFailed as error:
            last, etag = error, other_quoting(etag)  # perhaps the quoting (Ceph RGW)
            continue
        except WriteConflict as error:
            last = error
            continue
        except (InvalidRequest, NotSupported):
            # No conditional DELETE: what a neighbour writes between HEAD and DELETE is lost.
            runtime.store.delete_one(key)
        return True
    assert last is not None
    raise last

"""Deleting exactly the object that was looked at, and never what another writer has written since
(I6, I7)."""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.commit import probe
from magic_committer.commit.records import other_quoting
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.protocol.record import ObjectRef
from magic_committer.stores.base import listed

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
    answers: list[StoreError] = []
    for number in range(DELETE_TRIES_MAX):
        if number:
            runtime.clock.sleep(DELETE_PAUSE_SECONDS * 2 ** (number - 1))
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
        wrong = [a for a in answers if isinstance(a, InvalidRequest | NotSupported)]
        if keeps is False or (keeps is None and len(wrong) == DELETE_TRIES_MAX - 1):
            runtime.store.delete_one(key)
            return True
        try:
            runtime.store.delete_one(key, if_match=etag)
            return True
        except PreconditionFailed as error:
            answers.append(error)
            etag = other_quoting(etag)  # perhaps the store wants other quoting (Ceph RGW)
        except (WriteConflict, InvalidRequest, NotSupported) as error:
            answers.append(error)
    raise answers[-1]

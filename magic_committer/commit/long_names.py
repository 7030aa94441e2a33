"""Names that a store cannot hold: a path element over 255 bytes, on stores whose keys are files.

S3 has no such limit, and percent-encoded partition values reach it. A store that keeps keys as
paths of files has: it takes the upload and all its parts, and refuses to complete it, for ever
(versitygw: 500). Whether a store has the limit is its own affair, so it is asked, and only where a
name is that long: such a store calls a HEAD of the key wrong (400). Asked when the file is opened,
and once more before the decision, for others (Hadoop, an older version) open files as well.

What cannot be told is let through: then the job can be undone (`magic_committer.commit.undo`).
"""

from __future__ import annotations

from magic_committer.commit.upload_state import is_listed
from magic_committer.elements import shown
from magic_committer.errors import InvalidRequest, NotFound, PathError, StoreError
from magic_committer.runtime import Runtime

ELEMENT_BYTES_MAX = 255
"""Of one element of a path on a file system (NAME_MAX)."""


_unlimited: set[str] = set()
"""Stores, by their identity, that this process knows to have no such limit."""


def is_long(key: str) -> bool:
    """Whether an element of a key is longer than a file's name may be. Pure."""
    if len(key) * 4 <= ELEMENT_BYTES_MAX:  # no character has more bytes in UTF-8
        return False
    return any(len(element.encode()) > ELEMENT_BYTES_MAX for element in key.split("/"))


def refuse_long_element(runtime: Runtime, key: str) -> None:
    """Ask the store whether it can hold a key, if it has a long element. At most one HEAD and one
    LIST; none for other keys, and none once the store is known to have no such limit.

    Raises:
        PathError: it cannot. Nothing was written.
    """
    store = runtime.store
    if not is_long(key) or store.identity in _unlimited:
        return
    try:
        store.head(key)
    except NotFound:
        pass
    except InvalidRequest as error:
        try:
            there = is_listed(runtime, key)  # a HEAD is wrong for an object of another key, too
        except StoreError:
            return
        if there:
            return
        longest = max(key.split("/"), key=lambda element: len(element.encode()))
        raise PathError(
            f"the store of bucket {store.bucket!r} cannot hold {shown(key)}: its element"
            f" {shown(longest)} has {len(longest.encode())} bytes",
            hint=f"A store that keeps keys as paths of files takes {ELEMENT_BYTES_MAX} bytes for"
            " each element, the committer's own '.pending' included: choose a shorter name, or"
            " shorter partition values",
        ) from error
    except StoreError:
        return
    _unlimited.add(store.identity)

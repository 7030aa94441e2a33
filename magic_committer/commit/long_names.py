"""Names that a store cannot hold: a path element over 255 bytes, on stores whose keys are files.

S3 has no such limit, and percent-encoded partition values can be so long. A store that keeps keys
as paths of files has the limit: it takes the upload and all its parts, and refuses to complete it,
for ever (versitygw: 500). Only the store knows whether it has the limit. So it is asked, once, and
only for a name of that length: it answers a GET of such a key with 400 KeyTooLongError. The key in
the question is in a directory that exists: in a directory that does not exist a file system finds
nothing (404), whatever the name. No object has this key. The question is a GET, because the answer
to a HEAD has no code, and a 400 may then mean an expired token (S3 API).

The question is asked when a file is opened, and again before the decision, because others (Hadoop,
an older version) open files too. If the store does not tell, the name is accepted: the job can then
be undone (`magic_committer.commit.revert`).
"""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.errors import InvalidRequest, NotFound, PathError, StoreError
from magic_committer.hadoop.paths import shown
from magic_committer.stores.base import KEY_BYTES_MAX

ELEMENT_BYTES_MAX = 255
"""Bytes of one element of a path on a file system (NAME_MAX)."""
_ASKED = "x" * (ELEMENT_BYTES_MAX + 1)

_limited: dict[str, bool] = {}
"""What this process has learnt: for each store, by its identity, whether it has the limit."""


def is_long(key: str) -> bool:
    """Whether an element of a key is longer than the name of a file may be. Pure."""
    bytes_max = len(key) if key.isascii() else len(key) * 4  # at most 4 bytes each in UTF-8
    if bytes_max <= ELEMENT_BYTES_MAX:
        return False
    return any(len(element.encode()) > ELEMENT_BYTES_MAX for element in key.split("/"))


def refuse_long_element(runtime: Runtime, key: str, directory: str) -> None:
    """Ask the store whether it can hold a key that has a long element. One GET for the first such
    key in a process, until the store tells; none for other keys. ``directory``: one with an object,
    with its slash: the job's own, or "" for the bucket's root."""
    if not is_long(key) or not _is_limited(runtime, directory):
        return
    longest = max(key.split("/"), key=lambda element: len(element.encode()))
    raise PathError(
        f"the store of bucket {runtime.store.bucket!r} cannot hold {shown(key)}: its element"
        f" {shown(longest)} has {len(longest.encode())} bytes",
        hint=f"A store that keeps keys as paths of files takes {ELEMENT_BYTES_MAX} bytes for each"
        " element, the committer's own '.pending' included: choose a shorter name, or shorter"
        " partition values",
    )


def _is_limited(runtime: Runtime, directory: str) -> bool:
    store = runtime.store
    if store.identity not in _limited:
        fits = len(directory.encode()) + len(_ASKED) <= KEY_BYTES_MAX
        try:
            store.get(f"{directory if fits else ''}{_ASKED}", max_bytes=1)
        except NotFound:
            _limited[store.identity] = False
        except InvalidRequest as error:
            if not 400 <= error.status < 500:
                return False
            _limited[store.identity] = True
        except StoreError:
            return False
    return _limited.get(store.identity, False)

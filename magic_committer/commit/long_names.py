"""Names that a store cannot hold: a path element over 255 bytes, on stores whose keys are files.

S3 has no such limit, and percent-encoded partition values reach it. A store that keeps keys as
paths of files has: it takes the upload and all its parts, and refuses to complete it, for ever
(versitygw: 500). Whether a store has the limit is its own affair, so it is asked, once, and only
where a name is that long: it calls a GET of such a key wrong (400 KeyTooLongError). The key that
is asked for lies in a directory that is there: in one that is not a file system finds nothing
(404), whatever the name. Nobody has an object there; and GET, for an answer to HEAD has no code,
and 400 may then be an expired token's (S3 API).

Asked when the file is opened, and once more before the decision, for others (Hadoop, an older
version) open files as well. What cannot be told is let through: then the job can be undone
(`magic_committer.commit.revert`).
"""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.errors import InvalidRequest, NotFound, PathError, StoreError
from magic_committer.hadoop.elements import shown
from magic_committer.stores.base import KEY_BYTES_MAX

ELEMENT_BYTES_MAX = 255
"""Of one element of a path on a file system (NAME_MAX)."""
_ASKED = "x" * (ELEMENT_BYTES_MAX + 1)

_limited: dict[str, bool] = {}
"""Whether a store has the limit, by its identity: what this process has learnt."""


def is_long(key: str) -> bool:
    """Whether an element of a key is longer than a file's name may be. Pure."""
    if len(key) * 4 <= ELEMENT_BYTES_MAX:  # no character has more bytes in UTF-8
        return False
    return any(len(element.encode()) > ELEMENT_BYTES_MAX for element in key.split("/"))


def refuse_long_element(runtime: Runtime, key: str, directory: str) -> None:
    """Ask the store whether it can hold a key, if it has a long element. One GET for the first of
    them in a process, until it is told; none for other keys.

    Args:
        directory: one in which there is an object, with its slash: the job's own; "": the bucket's
            root.

    Raises:
        PathError: it cannot. Nothing was written.
    """
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

"""What a file system says (an OSError), as the library's errors: the one place for it.

The classes are those of stores, because the callers act alike: a missing file is `NotFound`, a file
that is there is `PreconditionFailed`, and what nobody can tell is `Unanswered`.
"""

from __future__ import annotations

import errno

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
)

_FINAL = {
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.EISDIR: "there is a directory",
    errno.ENOTEMPTY: "there is a directory that is not empty",
    errno.EXDEV: "it lies on another file system, so it cannot be renamed",
    errno.EINVAL: "the file system refuses the name",
    errno.EROFS: "the file system takes no writes",
}
_HINTS = {
    errno.ENOSPC: "Make room on the disk, and call it again",
    errno.EDQUOT: "Make room within the quota, and call it again",
    errno.EMFILE: "Close files, or raise the limit: ulimit -n 4096",
    errno.EXDEV: "Mount nothing inside the destination",
}


def translated(error: OSError, operation: str, url: str, path: str) -> StoreError:
    """The library's error for what a file system said, when it was asked a verb of the port."""
    kind: type[StoreError] = Unanswered
    told = error.strerror or str(error) or type(error).__name__
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = NotFound
    elif isinstance(error, FileExistsError):
        kind = PreconditionFailed
    elif isinstance(error, PermissionError):
        kind = PermissionDenied
    elif error.errno in (errno.ENOTSUP, errno.ENOSYS):
        kind = NotSupported
    elif isinstance(error, IsADirectoryError) or error.errno in _FINAL:
        kind, told = InvalidRequest, _FINAL.get(error.errno or errno.EISDIR, told)
    return kind(
        f"{operation} of {url}{path}: {told}",
        operation=operation,
        bucket=url,
        key=path,
        code=errno.errorcode.get(error.errno or 0, type(error).__name__),
        hint=_HINTS.get(error.errno or 0, ""),
    )


class telling:
    """Translate every OSError of the block. An error that is translated already goes on."""

    __slots__ = ("_place",)

    def __init__(self, operation: str, url: str, path: str) -> None:
        self._place = operation, url, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise translated(error, *self._place) from error

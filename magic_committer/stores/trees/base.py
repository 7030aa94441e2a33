"""The port: what the store of a file system (`magic_committer.stores.tree`) needs from it.

A `FileTree` is rooted at a destination. **All paths are relative to it**, with ``/`` between the
elements. Its callers refuse an empty element, ``.`` and ``..``: so nothing outside of the
destination can be named. What a decision rests on:

* `FileTree.rename` uses its source up: of all processes that rename one source at once, one
  succeeds. The target shows the old file or the whole new one.
* With ``replace=False`` it is exclusive as well: of all that rename to one target, one succeeds.

All errors are StoreErrors. A `NotFound` and a `PreconditionFailed` may be the answer to our own
success (a rename that took effect and failed), so a caller looks before it believes them. After an
`Unanswered` the verb may have taken effect. Every other error means that it did not.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from magic_committer.errors import (
    InvalidRequest,
    MagicError,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.runtime.threads import pass_on

EntryKind = Literal["file", "directory", "other"]
"""``"other"``: a symbolic link, a socket and so on: never followed, never published."""


class TreeEntry(NamedTuple):
    """A file or directory as it is seen. ``modified`` is in seconds since 1970, by the file
    system's clock. ``etag`` is the same before and after a rename. ``links`` is how many names the
    file has."""

    path: str
    kind: EntryKind
    size: int
    modified: float
    etag: str = ""
    links: int = 1

    @property
    def name(self) -> str:
        """The last element."""
        return self.path.rpartition("/")[2]


class MarkedFile(NamedTuple):
    """A file with its mark, as one look saw it. ``entry`` is without the bytes of the mark."""

    entry: TreeEntry
    mark: Mapping[str, Any]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class TreePromises:
    """What a file system keeps beyond the port.

    Attributes:
        attributes: a file has attributes, which a rename keeps, and bytes are written at offsets.
            False: a mark is the end of a file's bytes, and an upload has one part.
        directories: a file can be made only in a directory that exists.
        tells_apart: two files that are written at different times have different etags, also within
            one second.
        answers_at_once: a call takes microseconds.
        refusal: why modes that look at what is there are refused; "": they are not.
    """

    attributes: bool = False
    directories: bool = True
    tells_apart: bool = True
    answers_at_once: bool = False
    refusal: str = ""


class FileTree(Protocol):
    """A directory and all below it. Safe for many threads."""

    @property
    def url(self) -> str:
        """The root's URL, with a ``/`` at its end."""

    @property
    def promises(self) -> TreePromises:
        """What the file system keeps beyond the port."""

    def below(self, directory: str) -> FileTree:
        """The tree of a directory below."""

    def make_root(self) -> None:
        """Make the root and its parents, where directories are real. Repeatable."""

    def stat(self, path: str) -> TreeEntry | None:
        """Look at one path; None: nothing is there. Never lags. "" is the root."""

    def list(self, directory: str) -> Iterator[TreeEntry]:
        """The direct children of a directory, in no order; none if it does not exist."""

    def look(self, path: str, bytes_max: int | None = None, *, marked: bool) -> MarkedFile | None:
        """A file with its mark if it may have one (``marked``), and with its bytes if it has at
        most ``bytes_max``; None: there is none, or a directory. Raises InvalidRequest: it is a
        link, or no ordinary file."""

    def make(self, path: str, mark: Mapping[str, Any] | None, body: bytes) -> TreeEntry:
        """Make a whole file at a path that nobody else has, with its mark; None: without one.
        Raises NotFound: the directory does not exist."""

    def reader(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises NotFound."""

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing. Its bytes are visible under this path at once, or when it is
        closed. It need not be buffered: ``write`` may take fewer bytes than it is given, as that of
        a raw file. What its ``write`` and ``close`` raise is an OSError or a StoreError. Raises
        PreconditionFailed: something is there. NotFound: the directory does not exist (only where
        directories are real)."""

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Move a file, with its etag and its mark, into a directory that exists. ``replace``: over
        a file that is there. Raises NotFound: the source or the target's directory does not exist.
        PreconditionFailed: ``replace`` is False, and something is at the target. InvalidRequest:
        the target is a directory."""

    def make_directory(self, path: str) -> bool:
        """Make one directory. Repeatable. Gives whether it was made by this call. Raises NotFound:
        its parent does not exist. PreconditionFailed: a file is there."""

    def remove(self, path: str) -> bool:
        """Delete a file or a link. Repeatable. Gives whether there was one, as far as it is
        known."""

    def remove_directory(self, path: str) -> bool:
        """Delete an empty directory. False if it is not empty; a missing one is fine."""

    def sync(self, paths: Sequence[str]) -> None:
        """Make files and the entries of directories last through a power cut. Does nothing where a
        close does that."""

    def mount_of(self, path: str) -> str:
        """What is the same for all directories between which a file can be renamed."""


# What is made of the verbs ------------------------------------------------------------------------


def parent_of(path: str) -> str:
    """The directory that a path is in; "" for the root."""
    return path.rpartition("/")[0]


def add_parents(found: set[str], path: str) -> None:
    """Add the directories that a path is in, without the root, up to one that is there already."""
    directory = parent_of(path)
    while directory and directory not in found:
        found.add(directory)
        directory = parent_of(directory)


def make_directories(tree: FileTree, path: str) -> None:
    """Make a directory and its parents. Repeatable."""
    done = ""
    for element in path.strip("/").split("/"):
        if element:
            done = f"{done}/{element}" if done else element
            tree.make_directory(done)


def walk(tree: FileTree, directory: str) -> Iterator[TreeEntry]:
    """Everything below a directory: each directory before what is in it."""
    waiting = [directory]
    while waiting:
        for entry in tree.list(waiting.pop()):
            yield entry
            if entry.kind == "directory":
                waiting.append(entry.path)


# What a file system says, as the library's errors -------------------------------------------------
#
# The classes are those of stores, because the callers act alike: a missing file is `NotFound`, a
# file that is there is `PreconditionFailed`, and what nobody can tell is `Unanswered`.


NOT_THERE = (FileNotFoundError, NotADirectoryError)
_FINAL = {
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.EISDIR: "there is a directory",
    errno.ENOTEMPTY: "there is a directory that is not empty",
    errno.EXDEV: "it lies on another file system, so it cannot be renamed",
    errno.EINVAL: "the file system refuses the name",
    errno.EROFS: "the file system accepts no writes",
}
_HINTS = {
    errno.ENOSPC: "Make room on the disk, and call it again",
    errno.EDQUOT: "Make room within the quota, and call it again",
    errno.EMFILE: "Close files, or raise the limit: ulimit -n 4096",
    errno.EXDEV: "Mount nothing inside the destination",
}
_OF_STATUS: Mapping[int, type[StoreError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: PreconditionFailed,
    412: PreconditionFailed,
    501: NotSupported,
}


def translated(error: Exception, operation: str, url: str, path: str) -> StoreError:
    """The library's error for what a file system said, when it was asked a verb of the port. What a
    signal handler raised meanwhile is raised again."""
    pass_on(error)
    if not isinstance(error, OSError):
        return of_driver(error, operation, url, path)
    kind: type[StoreError] = Unanswered
    number, told = error.errno or 0, error.strerror or str(error) or type(error).__name__
    if error.errno is None and told.startswith("Forbidden"):  # as gcsfs says it
        number = errno.EACCES
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = NotFound
    elif isinstance(error, FileExistsError):
        kind = PreconditionFailed
    elif isinstance(error, PermissionError) or number == errno.EACCES:
        kind = PermissionDenied
    elif number in (errno.ENOTSUP, errno.ENOSYS):
        kind = NotSupported
    elif isinstance(error, IsADirectoryError) or number in _FINAL:
        kind, told = InvalidRequest, _FINAL.get(number or errno.EISDIR, told)
    code, hint = errno.errorcode.get(number, type(error).__name__), _HINTS.get(number, "")
    message = f"{operation} of {url}{path}: {told}"
    return kind(message, operation=operation, bucket=url, key=path, code=code, hint=hint)


def of_driver(error: Exception, operation: str, url: str, path: str) -> StoreError:
    """`translated`, for what a driver raised: by the status of HTTP in its ``status_code``,
    ``status`` or ``code``. Pure."""
    said = [str(getattr(error, name, "")) for name in ("status_code", "status", "code")]
    status = next((int(one) for one in said if one.isdecimal() and int(one)), 0)
    refused = 400 <= status < 500 and status not in (408, 429)
    kind = _OF_STATUS.get(status, InvalidRequest if refused else Unanswered)
    if not status and isinstance(error, NotImplementedError):
        kind = NotSupported
    code = type(error).__name__
    message = f"{operation} of {url}{path}: {code}: {error}"
    return kind(message, operation=operation, bucket=url, key=path, status=status, code=code)


class telling(NamedTuple):
    """Translate every OSError of the block, or all that ``raises`` names. An error that is
    translated already goes on."""

    operation: str
    url: str
    path: str
    raises: type[Exception] = OSError

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self.raises) and not isinstance(error, MagicError):
            raise translated(error, self.operation, self.url, self.path) from error

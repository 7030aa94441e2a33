"""The port: what a committer of renames asks of a file system, in eleven verbs.

A `FileTree` is rooted at a job's destination. **All paths are relative to it**, with ``/`` between
the elements and without ``.`` and ``..``: so nothing outside of the destination can be named.

What a decision rests on:

* `FileTree.create` is exclusive, and shows a whole file or none. Of all processes that create one
  path at once, one succeeds.
* `FileTree.rename` uses its source up: of all processes that rename one source at once, one
  succeeds. The target shows the old file or the whole new one.

What an answer means: a `NotFound` and a `PreconditionFailed` may be the answer to our own success
(a rename that took effect and failed), so a caller looks before it believes them. After an
`Unanswered` the verb may have taken effect. Every other error means that it did not. Listings may
lag behind: a file that was just made may be missing. `FileTree.stat` and `FileTree.read` do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

from magic_committer.errors import PathError

EntryKind = Literal["file", "directory", "other"]
"""``"other"``: a symbolic link, a socket and so on: never followed, never published."""

CONTROL_BYTES_MAX = 64 * 1024
"""Bytes of a small control file: a record, a sign of life."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or directory as it is seen.

    Attributes:
        path: relative to the tree's root.
        kind: what it is.
        size: in bytes; 0 for directories.
        modified: when it was last written, in seconds since 1970, by the file system's clock.
        etag: the same before and after a rename, and another one for every other file; "" where
            the file system has no such mark.
        device: the same for all places between which a file can be renamed.
    """

    path: str
    kind: EntryKind
    size: int
    modified: float
    etag: str = ""
    device: str = ""

    @property
    def name(self) -> str:
        """The last element."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class TreePromises:
    """What a file system keeps beyond the port.

    Attributes:
        directories: a file can be made only in a directory that exists. A paused process then
            cannot bring back the record of a job whose directory is gone.
        rename_is_atomic: False: a rename is a copy and a delete.
        replace_is_atomic: False: a rename over a file deletes that file first. For a moment the
            target shows none; who dies in between leaves the source, and the next call goes on.
        visible_while_open: False: what is written to a file can be read only when it is closed.
        batch_files: how many files a thread takes at once: many where a call takes microseconds.
        path_bytes_max: bytes that a path may have; 0: nobody says.
    """

    directories: bool = True
    rename_is_atomic: bool = True
    replace_is_atomic: bool = True
    visible_while_open: bool = True
    batch_files: int = 1
    path_bytes_max: int = 0


class FileTree(Protocol):
    """A directory and all below it. Safe for many threads."""

    @property
    def url(self) -> str:
        """The root's URL, with a ``/`` at its end."""
        ...

    @property
    def promises(self) -> TreePromises:
        """What the file system keeps beyond the port."""
        ...

    def make_root(self) -> None:
        """Make the root and its parents, where directories are real. Repeatable."""
        ...

    def stat(self, path: str) -> TreeEntry | None:
        """Look at one path; None: nothing is there. Never lags. "" is the root."""
        ...

    def list(self, directory: str) -> Iterator[TreeEntry]:
        """The direct children of a directory, in no order; none if it does not exist. May lag."""
        ...

    def read(self, path: str, bytes_max: int) -> bytes:
        """Read a whole file.

        Raises:
            NotFound: it does not exist.
            InvalidRequest: it has more than ``bytes_max`` bytes.
        """
        ...

    def reader(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises NotFound as `read` does."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Make a file, whole, that was not there. It lasts: a power cut does not undo it.

        Raises:
            PreconditionFailed: something is there.
            NotFound: the directory does not exist (only where directories are real).
        """
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing. Its bytes are visible under this path at once, or when it is
        closed. It need not be buffered: ``write`` may take fewer bytes than it is given, as that of
        a raw file. What its ``write`` and ``close`` raise is an OSError or a StoreError.

        Raises:
            PreconditionFailed: something is there.
            NotFound: the directory does not exist (only where directories are real).
        """
        ...

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Move a file, with its etag. The target's directory must exist.

        Args:
            source: a file; or a directory, where directories are real and the target is free.
            target: where it goes.
            replace: True: over a file that is there. False: raise.

        Raises:
            NotFound: the source or the target's directory does not exist.
            PreconditionFailed: ``replace`` is False, and something is at the target.
            InvalidRequest: the target is a directory.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Make one directory. Repeatable: one that is there is fine.

        Raises:
            NotFound: its parent does not exist.
            PreconditionFailed: a file is there.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file or a link. Repeatable: a missing one is fine."""
        ...

    def remove_directory(self, path: str) -> bool:
        """Delete an empty directory. False if it is not empty; a missing one is fine."""
        ...

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Make files and the entries of directories last through a power cut. Does nothing where a
        close does that."""
        ...


# What is made of the verbs ------------------------------------------------------------------------


def check_path(path: str, url: str) -> None:
    """See that a path names something below the root, or the root itself. Pure.

    Args:
        path: relative to the root.
        url: the root's URL, for the message.

    Raises:
        PathError: it has an empty element, ``.``, ``..`` or a NUL.
    """
    elements = path.split("/")
    if path and (".." in elements or "." in elements or "" in elements or "\0" in path):
        raise PathError(f"{path!r} is no path below {url}")


def parent_of(path: str) -> str:
    """The directory that a path is in; "" for the root."""
    return path.rpartition("/")[0]


def add_parents(found: set[str], path: str) -> None:
    """Add the directories that a path is in, without the root, up to one that is there already."""
    directory = parent_of(path)
    while directory and directory not in found:
        found.add(directory)
        directory = parent_of(directory)


def make_directories(tree: FileTree, path: str, *, below: str = "") -> None:
    """Make a directory and its parents. Repeatable.

    Args:
        tree: the file system.
        path: the directory.
        below: a directory that is not made: if it is gone, NotFound is raised.
    """
    done = below
    for element in path[len(below) :].strip("/").split("/"):
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


def remove_tree(tree: FileTree, directory: str) -> None:
    """Delete a directory and everything below it, files first. Repeatable."""
    directories = [directory]
    for entry in walk(tree, directory):
        if entry.kind == "directory":
            directories.append(entry.path)
        else:
            tree.remove(entry.path)
    for path in reversed(directories):
        tree.remove_directory(path)

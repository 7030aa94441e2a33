"""A file system of fsspec behind the port. What differs between them is in `dialects`.

* What a driver raises becomes the library's errors: an OSError by its errno, an answer of HTTP by
  its status. Everything else is `Unanswered`: nobody can tell whether it took effect.
* `FsspecTree.make_root` does not believe the table of dialects alone: it creates one file twice,
  and refuses a file system that lets it.
* No listing is kept: what another process made is seen. Listings may lag behind all the same.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, cast

from magic_committer._runtime import new_id
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
from magic_committer.file_trees.base import TreeEntry, TreePromises, check_path
from magic_committer.file_trees.dialects import Dialect, Info, kind_of, seconds_of
from magic_committer.file_trees.os_errors import translated

_OF_STATUS: dict[int, type[StoreError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: PreconditionFailed,
    412: PreconditionFailed,
    501: NotSupported,
}


class FsspecTree:
    """A directory of a file system of fsspec.

    Args:
        fs: the file system; it keeps no listings.
        root: the directory, as the file system writes paths.
        url: its URL, with a ``/`` at its end.
        dialect: how it creates and renames.
    """

    def __init__(self, fs: Any, root: str, url: str, dialect: Dialect) -> None:
        self.url = url
        self._fs = fs
        self._root = root.rstrip("/")
        self._dialect = dialect

    def __repr__(self) -> str:
        return f"FsspecTree({self.url!r}, {type(self._dialect).__name__})"

    @property
    def promises(self) -> TreePromises:
        return self._dialect.promises

    def make_root(self) -> None:
        """Make the root and its parents, and see that a create is exclusive here. Repeatable.

        Raises:
            NotSupported: the second create of one file succeeded.
        """
        if not self._dialect.virtual:
            with self._telling("make_directory", ""):
                self._fs.makedirs(self._root, exist_ok=True)
        probe = f".magic-committer-{new_id()}.probe"
        self.create(probe, b"1")
        try:
            self.create(probe, b"2")
        except PreconditionFailed:
            return
        finally:
            self.remove(probe)
        raise NotSupported(
            f"{self.url} lets two writers create the same file, and a job is decided by a file that"
            " only one can create",
            operation="create", bucket=self.url, key=probe, code="NotExclusive",
            hint="Write to another file system, for example file:///…",
        )  # fmt: skip

    def at(self, path: str) -> str:
        """A path of the tree as the file system writes it."""
        check_path(path, self.url)
        return f"{self._root}/{path}" if path else self._root

    def stat(self, path: str) -> TreeEntry | None:
        where = self.at(path)
        with self._telling("stat", path):
            try:
                return self._entry(path, self._dialect.info(self._fs, where))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, directory: str) -> Iterator[TreeEntry]:
        where = self.at(directory)
        prefix = f"{directory}/" if directory else ""
        with self._telling("list", directory):
            try:
                children = self._dialect.children(self._fs, where)
            except (FileNotFoundError, NotADirectoryError):
                return
        for info in children:
            told = str(info["name"]).rstrip("/")
            name = told.rpartition("/")[2]
            # A file is listed as itself, and an object store may keep a marker of a directory.
            if told.strip("/") != where.strip("/") and name:
                yield self._entry(prefix + name, info)

    def read(self, path: str, bytes_max: int) -> bytes:
        with self.reader(path) as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise InvalidRequest(
                f"{self.url}{path} has more than {bytes_max} bytes",
                operation="read", bucket=self.url, key=path, code="TooLarge",
            )  # fmt: skip
        return data

    def reader(self, path: str) -> BinaryIO:
        where = self.at(path)
        with self._telling("read", path):
            return self._told_file("read", path, self._dialect.reader(self._fs, where))

    def create(self, path: str, data: bytes) -> None:
        where = self.at(path)
        with self._telling("create", path):
            self._dialect.create(self._fs, where, data)

    def open(self, path: str) -> BinaryIO:
        where = self.at(path)
        with self._telling("open", path):
            return self._told_file("open", path, self._dialect.writer(self._fs, where))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        old, new = self.at(source), self.at(target)
        if self._dialect.looks_first and self._is_directory(target):
            kind = InvalidRequest if replace else PreconditionFailed
            raise kind(
                f"rename of {self.url}{source}: {target} is a directory",
                operation="rename", bucket=self.url, key=source, code="EISDIR",
            )  # fmt: skip
        with self._telling("rename", source):
            if replace:
                self._dialect.replace(self._fs, old, new)
            else:
                self._dialect.claim(self._fs, old, new)

    def make_directory(self, path: str) -> None:
        where = self.at(path)
        with self._telling("make_directory", path):
            there = self.stat(path) if self._dialect.virtual else None
            try:
                if there is None and not self._dialect.virtual:
                    self._fs.mkdir(where, create_parents=False)
            except FileNotFoundError:
                raise
            except OSError:
                there = self.stat(path)
                if there is None:
                    raise
            if there is not None and there.kind != "directory":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where)

    def remove(self, path: str) -> None:
        where = self.at(path)
        with self._telling("remove", path):
            try:
                self._dialect.remove(self._fs, where)
            except (FileNotFoundError, NotADirectoryError):
                return

    def remove_directory(self, path: str) -> bool:
        where = self.at(path)
        with self._telling("remove_directory", path):
            if any(True for _ in self.list(path)):
                return False
            if self._dialect.virtual:
                return True
            try:
                return self._dialect.remove_empty(self._fs, where)
            except (FileNotFoundError, NotADirectoryError):
                return True
            except OSError:
                if any(True for _ in self.list(path)):  # filled meanwhile
                    return False
                raise

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Do nothing: a close makes a file last, as far as its server does."""

    # Inside ---------------------------------------------------------------------------------------

    def _entry(self, path: str, info: Info) -> TreeEntry:
        kind = kind_of(info)
        size = int(info.get("size") or 0) if kind == "file" else 0
        etag = self._dialect.etag(info) if kind == "file" else ""
        return TreeEntry(path, kind, size, seconds_of(info), etag)

    def _is_directory(self, path: str) -> bool:
        entry = self.stat(path)
        return entry is not None and entry.kind == "directory"

    @contextmanager
    def _telling(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except MagicError:
            raise
        except OSError as error:
            raise translated(self._dialect.told(error), verb, self.url, path) from error
        except Exception as error:
            raise of_driver(error, verb, self.url, path) from error

    def _told_file(self, verb: str, path: str, file: BinaryIO) -> BinaryIO:
        return cast("BinaryIO", ToldFile(file, lambda: self._telling(verb, path)))


def of_driver(error: Exception, verb: str, url: str, path: str) -> StoreError:
    """The library's error for what a driver raised that is no OSError. Pure.

    Args:
        error: what it raised; a status of HTTP is taken from ``status_code``, ``status`` or
            ``code``.
        verb, url, path: what was asked, for the message.
    """
    status = 0
    for name in ("status_code", "status", "code"):
        told = str(getattr(error, name, ""))
        if not status and told.isdecimal():
            status = int(told)
    refused = 400 <= status < 500 and status not in (408, 429)
    kind = _OF_STATUS.get(status, InvalidRequest if refused else Unanswered)
    if not status and isinstance(error, NotImplementedError):
        kind = NotSupported
    return kind(
        f"{verb} of {url}{path}: {type(error).__name__}: {error}",
        operation=verb, bucket=url, key=path, status=status, code=type(error).__name__,
    )  # fmt: skip


class ToldFile(io.BufferedIOBase):
    """A driver's file, whose errors are the library's.

    Args:
        file: the driver's.
        telling: a context that translates what is raised in it.
    """

    def __init__(self, file: BinaryIO, telling: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._file = file
        self._telling = telling
        self._ended = False

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def read(self, size: int | None = -1, /) -> bytes:
        self._checked()
        with self._telling():
            # pyarrow's files take no -1.
            return self._file.read() if size is None or size < 0 else self._file.read(size)

    def write(self, data: Any, /) -> int:
        self._checked()
        with self._telling():
            # Drivers differ in what they return, and take all of it or raise.
            self._file.write(data)
        return memoryview(data).nbytes

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._checked()
        with self._telling():
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        self._checked()
        with self._telling():
            return self._file.tell()

    def flush(self) -> None:
        if not self._ended and self._file.writable():
            with self._telling():
                self._file.flush()

    def close(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            with self._telling():
                self._file.close()
        finally:
            super().close()

    def _checked(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

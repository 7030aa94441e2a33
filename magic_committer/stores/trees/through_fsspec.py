"""A file system of fsspec behind the port. What differs between them is in `dialects`.

* **A mark is the end of the file**: one line of JSON behind the bytes, and one with its length. So
  it is there when the file is, a rename keeps it, and nothing lies beside. Only control objects
  have one. Hadoop 3.5.0 reads a set up to the end of its JSON (TaskManifest.load). The
  mark has a drawn id, which is the file's etag: by it versions differ where times do not.
* What a driver raises becomes the library's errors: an OSError by its errno, an answer of HTTP by
  its status. Everything else is `Unanswered`: nobody can tell whether it took effect.
* `FsspecTree.make_root` does not believe the table of dialects alone: it renames two files to one
  target exclusively, and refuses a file system that lets it.
* No listing is kept: what another process made is seen.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, cast
from urllib.parse import quote

import orjson

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PreconditionFailed,
    Unanswered,
)
from magic_committer.runtime.components import new_id
from magic_committer.stores.trees.base import (
    NOT_THERE,
    EntryKind,
    MarkedFile,
    TreeEntry,
    TreePromises,
    telling,
)

_MARK = "magic-committer"
_BEGIN = b'\n{"%s":{' % _MARK.encode()
TAIL_BYTES = 8 * 1024
"""A mark has fewer bytes."""
FOOTER_BYTES = 10
MAKES_MAX = 8
"""How often the root is tried to be made again."""
LOOKS_MAX = 3
"""How often a file is read of which too few bytes come."""

Info = Mapping[str, Any]
"""What fsspec knows of a path."""


class FsspecTree:
    """A directory of a file system of fsspec, which keeps no listings. ``root``: the directory, as
    the file system writes paths. ``url`` ends in a ``/``. What begins with ``_`` gets paths
    of the file system, and differs between its kinds (`dialects`)."""

    driver: ClassVar[str] = ""
    """The fsspec class that it was written for, as ``module:name``."""
    package: ClassVar[str] = ""
    """What to install for it, beside fsspec."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of that class. None may keep listings."""
    promises: ClassVar[TreePromises] = TreePromises()
    looks_first: ClassVar[bool] = True
    """A rename onto a directory goes into it, or gives no reason: so the target is looked at
    before."""

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self.url = url
        self._fs = fs
        self._root = root.rstrip("/")
        self._probed = False

    @staticmethod
    def connected(fs: Any) -> None:
        """Prepare a file system that was just connected."""

    def below(self, directory: str) -> FsspecTree:
        return type(self)(self._fs, self.at(directory), f"{self.url}{quote(directory)}/")

    def make_root(self) -> None:
        """See `FileTree.make_root`, and see that a rename is exclusive here. Raises NotSupported:
        the second rename to one target succeeded."""
        if self._probed:
            return
        tries = range(MAKES_MAX, -1, -1) if self.promises.directories else ()
        with self._telling("make_directory", ""):
            for left in tries:
                try:
                    self._fs.makedirs(self._root, exist_ok=True)
                    break
                except OSError:  # another process may just have made one of them
                    if not left:
                        raise
        names = [f".magic-committer-{new_id()}.probe" for _ in range(3)]
        try:
            for name in names[:2]:
                self.make(name, None, b"1")
            self.rename(names[0], names[2], replace=False)
            self.rename(names[1], names[2], replace=False)
        except PreconditionFailed:
            self._probed = True
            return
        finally:
            for name in names:
                self.remove(name)
        raise NotSupported(
            f"{self.url} lets two writers rename to the same target, and a job is decided by a file"
            " that only one can create",
            operation="rename", bucket=self.url, key=names[2], code="NotExclusive",
            hint="Write to another file system, for example file:///…",
        )  # fmt: skip

    def at(self, path: str) -> str:
        """A path of the tree as the file system writes it."""
        return f"{self._root}/{path}" if path else self._root

    def stat(self, path: str) -> TreeEntry | None:
        with self._telling("stat", path):
            try:
                return self._entry(path, self._info(self.at(path)))
            except NOT_THERE:
                return None

    def list(self, directory: str) -> Iterator[TreeEntry]:
        where = self.at(directory)
        prefix = f"{directory}/" if directory else ""
        with self._telling("list", directory):
            try:
                children = self._fs.ls(where, detail=True)
            except NOT_THERE:
                return
        for info in children:
            told = str(info["name"]).rstrip("/")
            name = told.rpartition("/")[2]
            # A file is listed as itself, and an object store may keep a marker of a directory.
            if told.strip("/") != where.strip("/") and name:
                yield self._entry(prefix + name, info)

    def look(self, path: str, bytes_max: int | None = None, *, marked: bool) -> MarkedFile | None:
        for _ in range(LOOKS_MAX):
            seen = self.stat(path)
            if seen is None or seen.kind == "directory":
                return None
            if seen.kind != "file":
                raise InvalidRequest("it is a link", code="NoFile")
            if not marked and (bytes_max is None or seen.size > bytes_max):
                return MarkedFile(seen, {})
            try:
                with self.reader(path) as file:
                    if bytes_max is None:
                        file.seek(max(0, seen.size - TAIL_BYTES))
                    data = file.read()
            except NotFound:
                return None
            whole = seen.size if bytes_max is not None else min(seen.size, TAIL_BYTES)
            if len(data) == whole:
                break  # what was deleted meanwhile may come short: its mark would be lost
        else:
            raise Unanswered(f"read of {self.url}{path}: {len(data)} of {whole} bytes came")
        end, mark = _mark_of(data) if marked else (len(data), {})
        size = seen.size - (len(data) - end)
        entry = seen._replace(size=size, etag=str(mark.get("i", seen.etag)))
        wanted = bytes_max is not None and size <= bytes_max
        return MarkedFile(entry, mark, data[:end] if wanted else b"")

    def make(self, path: str, mark: Mapping[str, Any] | None, body: bytes) -> TreeEntry:
        end, etag = b"", ""
        if mark is not None:
            etag = new_id()
            line = b"\n" + orjson.dumps({_MARK: {**mark, "i": etag}})
            end = line + b"\n%08d\n" % len(line)
        with self._telling("create", path), self._writer(self.at(path)) as file:
            file.write(body + end)
        if etag:
            return TreeEntry(path, "file", len(body), 0.0, etag)
        seen = self.stat(path)
        if seen is None:
            raise Unanswered(f"{self.url}{path} was just written, and is gone")
        return seen

    def reader(self, path: str) -> BinaryIO:
        return self._told_file("read", path, self._reader)

    def open(self, path: str) -> BinaryIO:
        return self._told_file("open", path, self._writer)

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        there = self.stat(target) if self.looks_first else None
        if there is not None and there.kind == "directory":
            kind = InvalidRequest if replace else PreconditionFailed
            raise kind(
                f"rename of {self.url}{source}: {target} is a directory",
                operation="rename", bucket=self.url, key=source, code="EISDIR",
            )  # fmt: skip
        move = self._replace if replace else self._claim
        with self._telling("rename", source):
            move(self.at(source), self.at(target))

    def make_directory(self, path: str) -> bool:
        if not self.promises.directories:
            return False
        with self._telling("make_directory", path):
            try:
                self._fs.mkdir(self.at(path), create_parents=False)
            except FileNotFoundError:
                raise
            except OSError:
                there = self.stat(path)
                if there is None:
                    raise
                if there.kind != "directory":
                    raise is_there(path) from None
                return False
            return True

    def remove(self, path: str) -> bool:
        with self._telling("remove", path):
            try:
                self._fs.rm_file(self.at(path))
            except NOT_THERE:
                return False
            return True

    def remove_directory(self, path: str) -> bool:
        if not self.promises.directories:
            return True
        with self._telling("remove_directory", path):
            if any(True for _ in self.list(path)):
                return False
            try:
                return self._remove_empty(self.at(path))
            except NOT_THERE:
                return True
            except OSError:
                if any(True for _ in self.list(path)):  # filled meanwhile
                    return False
                raise

    def sync(self, paths: Sequence[str]) -> None:
        """Do nothing: a close makes a file last, as far as its server does."""

    def mount_of(self, path: str) -> str:
        """One for all: what one server shows is one file system to its clients."""
        return ""

    # Inside ---------------------------------------------------------------------------------------

    def _entry(self, path: str, info: Info) -> TreeEntry:
        modified, told = seconds_of(info), info.get("type")
        if told == "file" and not info.get("islink"):  # a link is never followed
            return TreeEntry(path, "file", int(info.get("size") or 0), modified, self._etag(info))
        kind: EntryKind = "other" if told != "directory" or info.get("islink") else "directory"
        return TreeEntry(path, kind, 0, modified)

    def _telling(self, operation: str, path: str) -> telling:
        return telling(operation, self.url, path, Exception)  # a driver raises anything

    def _told_file(self, operation: str, path: str, opener: Callable[[str], BinaryIO]) -> BinaryIO:
        with (told := self._telling(operation, path)):
            file = opener(self.at(path))
        return cast("BinaryIO", ToldFile(file, lambda: told))

    # What differs ---------------------------------------------------------------------------------

    def _info(self, path: str) -> Info:
        """Look at a path; a link is not followed. Raises FileNotFoundError."""
        return cast("Info", self._fs.info(path))

    def _reader(self, path: str) -> BinaryIO:
        return cast("BinaryIO", self._fs.open(path, "rb"))

    def _writer(self, path: str) -> BinaryIO:
        """Open a new file. Raises FileExistsError."""
        return cast("BinaryIO", self._fs.open(path, "xb"))

    def _claim(self, source: str, target: str) -> None:
        """Rename, in one step that fails if the target exists: FileExistsError."""
        raise NotImplementedError

    def _replace(self, source: str, target: str) -> None:
        self._fs.mv(source, target)

    def _remove_empty(self, path: str) -> bool:
        """Delete a directory that was seen to be empty; False: it is not any more."""
        self._fs.rmdir(path)
        return True

    def _etag(self, info: Info) -> str:
        """What is the same before and after a rename: time and size, if there is nothing else."""
        return f"{int(seconds_of(info) * 1e6):x}-{int(info.get('size') or 0):x}"


def is_there(path: str) -> FileExistsError:
    """The error of a path that is taken."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def seconds_of(info: Info) -> float:
    """When a file was last written, in seconds since 1970; 0.0 where that is unknown. Pure."""
    for name in ("mtime", "last_modified", "modification_time", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return value / (1000 if name == "modification_time" else 1)  # HDFS: milliseconds
    return 0.0


def _mark_of(data: bytes) -> tuple[int, Mapping[str, Any]]:
    """Where a file's own bytes end, and its mark; empty if it has none. Pure."""
    end = len(data) - FOOTER_BYTES
    number = data[max(0, end) :]
    if end > 0 and number[:1] == number[-1:] == b"\n" and number[1:-1].isdigit():
        begin = end - int(number)
        if begin >= 0 and data.startswith(_BEGIN, begin):
            with suppress(orjson.JSONDecodeError):
                return begin, dict(orjson.loads(data[begin:end])[_MARK])
    return len(data), {}


class ToldFile(io.BufferedIOBase):
    """A driver's file. What it raises is translated by the context that ``telling`` gives."""

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
        # pyarrow's files take no -1.
        return cast("bytes", self._told("read", *(() if size is None or size < 0 else (size,))))

    def write(self, data: Any, /) -> int:
        self._told("write", data)  # drivers differ in what they return: all of it, or they raise
        return memoryview(data).nbytes

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return cast("int", self._told("seek", offset, whence))

    def tell(self) -> int:
        return cast("int", self._told("tell"))

    @property
    def size(self) -> int:
        """How many bytes a file that is read has: for fsspec's ``read_block``."""
        here = self.tell()
        size = self.seek(0, io.SEEK_END)
        self.seek(here)
        return size

    def flush(self) -> None:
        if not self._ended and self._file.writable():
            self._told("flush")

    def close(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            with self._telling():
                self._file.close()
        finally:
            super().close()

    def _told(self, method: str, *arguments: Any) -> Any:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        with self._telling():
            return getattr(self._file, method)(*arguments)

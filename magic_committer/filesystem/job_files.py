"""`JobFileSystem`: one task as a file system of fsspec, and the files that it gives.

Paths are relative to the destination; ``""`` and ``"/"`` are the destination itself. A path with a
scheme (``s3://bucket/table/x``, ``file:///data/table/x``, ``magic://…``) means the same file if it
is below the destination.

What a question is answered with:

* what this task wrote through any of its file systems, or with `Task.open`;
* directories that were made here: S3 has none, but writers ask for what they have made. An empty
  one is not published, whatever the destination is;
* with ``read_through``: also what the destination holds, without committers' own.
"""

from __future__ import annotations

import errno
import io
import pickle
import re
import threading
from collections.abc import Sized
from contextlib import nullcontext
from datetime import UTC, datetime
from os import fspath, strerror
from typing import Any, BinaryIO, NoReturn, cast

from fsspec.spec import AbstractFileSystem

from magic_committer import errors
from magic_committer.errors import NotYetAnObject, OptionError, PathError, WrongType
from magic_committer.errors.messages import RELATIVE_NAME
from magic_committer.filesystem import sink as sinks
from magic_committer.filesystem.sink import PROTOCOL, Info, ShelvedFile, Sink, directory_info
from magic_committer.hadoop.paths import shown
from magic_committer.options import MiB, attributes_of
from magic_committer.stores.base import Attributes
from magic_committer.stores.trees.through_fsspec import ToldFile
from magic_committer.upload import FileState, TaskFile, TextUpload
from magic_committer.upload.file import Buffer

COPY_BYTES = 1 * MiB
"""Bytes of a file that are copied at once."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TEXT_ONLY = ("encoding", "errors", "newline")
SHARE_OF_A_FILE = 8
"""A file is kept if it needs no more than this part of all: one file does not crowd out many."""


class WrittenFile(TaskFile):
    """A file of a task, opened through a file system. It can only be written, from start to end.
    The bytes of an upload are also kept while it is small.

    An exception that leaves ``with`` gives the file up, as every file of a task does. It is not
    closed when it is dropped: a file dropped without a close has lost bytes, and the task's commit
    refuses that (`FileStillOpen`).
    """

    def __init__(self, file: ShelvedFile, system: JobFileSystem) -> None:
        self._file = file
        assert isinstance(file.stream, TaskFile)  # it was just opened
        self._stream = file.stream
        self.pid = self._stream.pid
        self.take_back = self._take_back
        self._system = system
        self._held: bytearray | None = bytearray()
        if not system._file_bytes_max:
            self._let_go()

    def __repr__(self) -> str:
        return f"<WrittenFile {self._file.name!r} {self._stream!r}>"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._stream.name

    @property
    def state(self) -> FileState:
        return self._stream.state

    @property
    def length(self) -> int:
        return self._stream.length

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def two_at_once(self) -> errors.UploadFailed:
        return self._stream.two_at_once()

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def write(self, data: Buffer, /) -> int:
        count = self._stream.write(data)
        if self._held is not None:
            if self._system._take_room(count, len(self._held)):
                self._held += data if isinstance(data, bytes) else memoryview(data).tobytes()
            else:
                self._let_go()
        return count

    def _let_go(self) -> None:
        """Keep nothing of this file; from now on a write goes to the task's file itself."""
        held, self._held = self._held, None
        self._system._give_room_back(held)
        self.write = self._stream.write  # type: ignore[method-assign]

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        if self._held is not None:
            self._file.kept, self._held = bytes(self._held), None

    def abort(self) -> None:
        """Give the file up: nothing of it is published."""
        if self._held is not None:
            self._let_go()
        self._stream.abort()

    def _take_back(self, _: TaskFile) -> None:
        self._stream.take_back(self._stream)
        kept, self._file.kept = self._file.kept, None
        self._system._give_room_back(kept)

    def commit(self) -> None:
        """Of a transaction of fsspec: nothing is to be done, since the job publishes."""

    def discard(self) -> None:
        """Of a transaction of fsspec that has failed: take the file out of its task."""
        self._system._discard(self._file)

    def __del__(self) -> None:
        # Instead of io.IOBase's method, which closes, and so would hand in half a file.
        pass


class JobFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One task as a file system of fsspec: `Task.filesystem` makes it."""

    protocol = PROTOCOL
    root_marker = ""
    cachable = False  # each is of one task

    def __init__(
        self, sink: Sink, *, unique: bool, read_through: bool, keep_bytes_max: int
    ) -> None:
        if isinstance(keep_bytes_max, bool) or not isinstance(keep_bytes_max, int):
            raise WrongType(
                f"keep_bytes_max is a number of bytes, not {keep_bytes_max!r:.80}",
                hint=f"Pass keep_bytes_max={sinks.KEEP_BYTES_MAX}, or 0 to keep nothing",
            )
        if keep_bytes_max < 0:
            raise OptionError(f"keep_bytes_max={keep_bytes_max}: there are 0 bytes or more")
        super().__init__()
        self._sink = sink
        self._unique = unique
        self._read_through = read_through
        self._bytes_max = keep_bytes_max if sink.waiting is None else 0  # a disk can be read
        self._file_bytes_max = self._bytes_max // SHARE_OF_A_FILE
        self._free = self._bytes_max
        self._lock = threading.Lock()
        self._strip_protocol = self._relative  # fsspec's own is a class's, which has no destination

    def __repr__(self) -> str:
        return f"<JobFileSystem {self._sink.title} {self._sink.home.url}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            "the file system of a job writes in one process and does not travel."
            f" {errors.WrongProcess.advice}"
        )

    def _relative(self, path: Any) -> Any:
        """A path, or a list of them, relative to the destination. Raises PathError: it is a URL
        that is not below the destination."""
        if isinstance(path, list):
            return [self._relative(one) for one in path]
        text = fspath(path)
        if not isinstance(text, str):
            raise WrongType(f"a path is text, not {type(text).__name__}", hint=RELATIVE_NAME)
        if not _URL.match(text):
            text = text.strip("/")
            return "" if text == "." else text.removeprefix("./")
        home = self._sink.home
        scheme, _, below = text.partition("://")
        name = sinks.name_below(home.roots, below) if scheme.lower() in home.schemes else None
        if name is None:
            raise PathError(
                f"{shown(text)} is not below {home.url}, where {self._sink.title} writes",
                hint=RELATIVE_NAME,
            )
        return name

    def unstrip_protocol(self, name: str) -> str:
        """The full URL of a file: where it will be visible."""
        return f"{PROTOCOL}://{self._sink.home.roots[0]}{self._relative(name)}"

    def _take_room(self, count: int, before: int) -> bool:
        """Keep ``count`` more bytes of a file that has ``before``. False: there is no room."""
        with self._lock:
            if before + count > self._file_bytes_max or count > self._free:
                return False
            self._free -= count
            return True

    def _give_room_back(self, kept: Sized | None) -> None:
        with self._lock:
            self._free += len(kept or b"")

    # Questions ------------------------------------------------------------------------------------

    def info(self, path: Any, **kwargs: Any) -> Info:
        """What is there. Raises FileNotFoundError."""
        name = self._relative(path)
        file = self._sink.shelf.get(name) if name else None
        if file is not None:
            return _of_file(file)
        if self._sink.shelf.is_directory(name):
            return directory_info(name)
        found = self._sink.home.look(name) if self._read_through else None
        if found is None:
            raise self._missing(name)
        return found

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is directly in a directory; of a file, itself. Raises FileNotFoundError."""
        name = self._relative(path)
        info = self.info(name)
        found = [info] if info["type"] == "file" else self._children(name)
        found.sort(key=lambda one: one["name"])
        return found if detail else [one["name"] for one in found]

    def _children(self, name: str) -> list[Info]:
        files, directories = self._sink.shelf.children(name)
        found = {file.name: _of_file(file) for file in files}
        for directory in directories:
            found.setdefault(directory, directory_info(directory))
        if self._read_through:
            for info in self._sink.home.children(name):
                found.setdefault(info["name"], info)
        return list(found.values())

    def created(self, path: Any) -> Any:
        return datetime.fromtimestamp(self.info(path).get("mtime", 0.0), UTC)

    modified = created

    def _missing(self, name: str) -> FileNotFoundError:
        where = f"{self._sink.title} has written no {shown(name)}"
        also = f", and {self._sink.home.url} has none" if self._read_through else ""
        hint = "" if self._read_through else "; with read_through=True the destination is shown too"
        return FileNotFoundError(errno.ENOENT, f"{where}{also}{hint}", name)

    # Writing and reading --------------------------------------------------------------------------

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file: ``"rb"`` and ``"r"`` to read, ``"wb"``, ``"w"``, ``"xb"``, ``"x"`` to write.
        Raises OptionError: ``compression``: its wrapper does not close the file. Raises
        NotYetAnObject: a file of the task cannot be read, or is still open. Otherwise as Python's
        ``open``, and as `Task.open`."""
        if compression not in (None, "infer"):
            raise OptionError(
                f"open(compression={compression!r}) would leave the file open",
                hint=f"Write `with fsspec.open(url, mode, compression={compression!r})`, or give"
                " the open file to the compressor: gzip.open(file, 'wb')",
            )
        if "b" in mode or "r" in mode:
            return super().open(path, mode, block_size, cache_options, **kwargs)
        text = {name: kwargs.pop(name, None) for name in _TEXT_ONLY}
        binary = f"{mode.replace('t', '')}b"
        file = super().open(path, binary, block_size, cache_options, **kwargs)
        return TextUpload(file, **text)  # which aborts where Python's closes

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        attributes: Attributes | None = None,
        **unknown: Any,
    ) -> WrittenFile | BinaryIO:
        name = self._relative(path)
        if unknown:
            raise WrongType(
                f"open({shown(name)}) does not take {', '.join(sorted(unknown))}",
                hint="Pass attributes=magic_committer.Attributes(…) for the object's headers",
            )
        if mode == "rb":
            # Wrapped: it is closed when a reader such as pyarrow drops it, without a warning.
            return cast("BinaryIO", ToldFile(self._reader(name), nullcontext))
        if mode not in ("wb", "xb"):
            raise NotYetAnObject(
                f"{shown(name)} cannot be opened with mode {mode!r}: a file of a job is written"
                " once, from start to end",
                hint="Open it with mode 'wb', or 'xb' if it must not be there yet; what seeks is"
                " for local_file(name)",
            )
        if mode == "xb" and self.exists(name):
            raise FileExistsError(errno.EEXIST, strerror(errno.EEXIST), name)
        given = attributes_of(attributes)
        self._make_way(name)
        file = self._sink.open(name, unique=self._unique, attributes=given)
        return WrittenFile(file, self)

    def _make_way(self, name: str) -> None:
        """Take a file of this name out of the task, so that there can be another one."""
        shelf = self._sink.shelf
        if shelf.is_directory(name):
            raise IsADirectoryError(errno.EISDIR, strerror(errno.EISDIR), name)
        before = shelf.get(name)
        if before is not None and before.is_open:
            raise NotYetAnObject(
                f"{shown(name)} is open for writing already", hint="Close it first, or remove it"
            )
        if before is not None:
            self._discard(before)

    def _reader(self, name: str) -> BinaryIO:
        file = self._sink.shelf.get(name)
        try:
            if file is not None:
                waiting = self._sink.waiting
                if waiting is None or file.is_open:
                    return io.BytesIO(self._bytes_of(file, "read"))
                return waiting.reader(file.stored_name)
            if self.info(name)["type"] == "directory":
                raise IsADirectoryError(errno.EISDIR, strerror(errno.EISDIR), name)
            return self._sink.home.reader(name)
        except errors.NotFound as error:
            raise FileNotFoundError(
                errno.ENOENT, f"{shown(name)} is gone: {error.message}", name
            ) from error

    def _bytes_of(self, file: ShelvedFile, doing: str) -> bytes:
        """The bytes of a closed file of the task. Raises NotYetAnObject: it is open, or an upload
        whose bytes were not kept; the message says that it cannot be ``doing`` now."""
        if file.kept is not None:
            return file.kept
        if file.is_open:
            raise NotYetAnObject(
                f"{shown(file.name)} is still being written: it cannot be {doing}",
                hint="Close it first",
            )
        raise NotYetAnObject(
            f"{shown(file.name)} ({file.stream.length:,} bytes) cannot be {doing} before the job"
            " commits: it is an upload on its final key, no object yet, and its bytes were not kept"
            f" here: at most {self._bytes_max:,} bytes are, and {self._file_bytes_max:,}"
            " of one file",
            hint="Write it under its final name at once; or let more be kept:"
            f" filesystem(keep_bytes_max={8 * max(file.stream.length, MiB):_})",
        )

    # Changing -------------------------------------------------------------------------------------

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        """Note a directory. Raises FileExistsError if it is there."""
        self.makedirs(path)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Note a directory and those above it. Raises FileExistsError."""
        name = self._relative(path)
        shelf = self._sink.shelf
        if shelf.get(name) is not None or (shelf.is_directory(name) and not exist_ok):
            raise FileExistsError(errno.EEXIST, strerror(errno.EEXIST), name)
        shelf.make_directory(name)

    def rmdir(self, path: Any) -> None:
        """Forget an empty directory."""
        name = self._relative(path)
        if self.info(name)["type"] != "directory":
            raise NotADirectoryError(errno.ENOTDIR, strerror(errno.ENOTDIR), name)
        if self._children(name):
            raise OSError(errno.ENOTEMPTY, strerror(errno.ENOTEMPTY), name)
        self._sink.shelf.remove_directory(name)

    def _rm(self, path: Any) -> None:
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Take files out of the task; forget directories. Raises PermissionError: data of the
        destination is among them, and nothing was removed. Otherwise as `Task.discard`, and as
        Python's own calls."""
        names = self._own(path, recursive, maxdepth)
        for name in sorted(names, reverse=True):  # what is in a directory comes first
            file = self._sink.shelf.get(name)
            if file is not None:
                self._discard(file)
            elif name and self._sink.shelf.is_directory(name):
                self.rmdir(name)

    def _own(self, path: Any, recursive: bool, maxdepth: int | None) -> list[str]:
        """What a path means, if nothing of it is the destination's already."""
        names: list[str] = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        for name in names:
            if self._sink.shelf.get(name) is None and self.info(name)["type"] == "file":
                home = self._sink.home
                raise PermissionError(
                    errno.EPERM,
                    f"{self._sink.title} deletes no {home.holds} of {home.url} by itself: mode="
                    "'replace' or 'replace_partitions' replaces what is there when it commits",
                    name,
                )
        return names

    def _discard(self, file: ShelvedFile) -> None:
        self._sink.discard(file.name, file.stored_name)
        kept, file.kept = file.kept, None
        self._give_room_back(kept)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Write a second file with the bytes of another. Raises NotYetAnObject."""
        source, target = self._relative(path1), self._relative(path2)
        if source == target:
            return
        if not kwargs.get("rename") or self.isdir(source):
            copy_file(self, source, target)
            return
        file = self._sink.shelf.get(source)
        if file is None:
            raise self._missing(source)
        if self._sink.waiting is None:
            copy_file(self, source, target)
            self._discard(file)
        else:
            self._make_way(target)
            self._sink.rename(file, target, unique=self._unique)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename. On a file system files are renamed; on S3 kept files are written again under
        their new names, and the old ones are taken out of the task. Raises NotYetAnObject, and
        nothing was renamed: one of them is open, or an upload whose bytes were not kept (the key of
        an upload is fixed when it begins). OSError: a directory would go into one that it holds
        already. And what `rm` raises."""
        target = self._relative(path2)
        if self._relative(path1) == target:
            return
        names, shelf = self._own(path1, recursive, maxdepth), self._sink.shelf
        if recursive and target in names and shelf.is_directory(target):
            raise OSError(errno.EINVAL, f"{shown(target)} is in what is to be renamed", target)
        for name in names:
            file = shelf.get(name)
            if file is not None and (self._sink.waiting is None or file.is_open):
                self._bytes_of(file, "renamed")
        self.copy(
            path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", rename=True
        )
        for name in sorted(names, reverse=True):
            if name and shelf.is_directory(name) and not self._children(name):
                shelf.remove_directory(name)


def _of_file(file: ShelvedFile) -> Info:
    return {
        "name": file.name, "type": "file", "size": file.stream.length, "mtime": file.begun,
        "pending": True,
    }  # fmt: skip


def copy_file(system: AbstractFileSystem, source: str, target: str) -> None:
    """Copy within a file system that has no copy of its own; a directory is made. Raises
    NotYetAnObject: the bytes of the source were not kept."""
    if system.isdir(source):
        system.makedirs(target, exist_ok=True)
        return
    with system.open(source, "rb") as read, system.open(target, "wb") as file:
        while data := read.read(COPY_BYTES):
            file.write(data)

"""`JobFileSystem`: one task as a file system of fsspec.

Paths are relative to the destination; ``""`` and ``"/"`` are the destination itself. A path with a
scheme (``s3://bucket/table/x``, ``magic://…``) means the same file if it is below the destination.

What a question is answered with:

* what this task wrote through any of its file systems, or with `Task.open`;
* directories that were made here: S3 has none, but writers ask for what they have made;
* with ``read_through``: also the objects below the destination, without committers' own.
"""

from __future__ import annotations

import errno
import io
import pickle
from collections.abc import Iterator
from os import fspath, strerror
from typing import Any, NoReturn, cast

from fsspec.spec import AbstractFileSystem

from magic_committer._arguments import attributes_of
from magic_committer._hints import RELATIVE_NAME
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotYetAnObject,
    OptionError,
    PathError,
    WrongProcess,
    WrongType,
)
from magic_committer.filesystem.kept import KeptBytes
from magic_committer.filesystem.shelf import ShelvedFile
from magic_committer.filesystem.sink import Sink
from magic_committer.filesystem.written import WrittenFile
from magic_committer.hadoop.paths import is_control_element, parse_url, shown
from magic_committer.options import MiB
from magic_committer.stores.base import Attributes, ObjectInfo
from magic_committer.upload import TextUpload, UploadStream

PROTOCOL = "magic"
READ_BYTES_MAX = 64 * MiB
"""The largest object of the destination that is read, whole, with ``read_through``."""

_SCHEMES = (f"{PROTOCOL}://", "s3://", "s3a://", "s3n://")
_TEXT_ONLY = ("encoding", "errors", "newline")

Info = dict[str, Any]


class JobFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One task as a file system of fsspec: `Task.filesystem` makes it.

    Args:
        sink: the task.
        unique: put the job's UUID into the name of every file.
        read_through: show and read the destination's objects, too.
        keep_bytes_max: bytes of closed files that may be read again before the commit.
    """

    protocol = PROTOCOL
    root_marker = ""
    cachable = False  # each is of one task

    def __init__(
        self, sink: Sink, *, unique: bool, read_through: bool, keep_bytes_max: int
    ) -> None:
        super().__init__()
        self._sink = sink
        self._unique = unique
        self._read_through = read_through
        self._kept = KeptBytes(keep_bytes_max)
        self._strip_protocol = self._relative  # fsspec's own is a class's, which has no destination

    def __repr__(self) -> str:
        return f"<JobFileSystem {self._sink.title} {self._sink.dest.url}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            "the file system of a job writes in one process and does not travel."
            f" {WrongProcess.advice}"
        )

    def _relative(self, path: Any) -> Any:
        """A path, or a list of them, relative to the destination.

        Raises:
            PathError: it is a URL that is not below the destination.
        """
        if isinstance(path, list):
            return [self._relative(one) for one in path]
        text = fspath(path)
        if not isinstance(text, str):
            raise WrongType(f"a path is text, not {type(text).__name__}", hint=RELATIVE_NAME)
        if text.startswith(_SCHEMES):
            return self._below(text)
        text = text.strip("/")
        return "" if text == "." else text.removeprefix("./")

    def _below(self, url: str) -> str:
        dest = self._sink.dest
        place = parse_url(f"s3://{url.partition('://')[2]}")
        key = place.key.rstrip("/")
        if place.bucket == dest.bucket and f"{key}/" == (dest.prefix or "/"):
            return ""
        if place.bucket != dest.bucket or not dest.contains(key):
            raise PathError(
                f"{shown(url)} is not below {dest.url}, where {self._sink.title} writes",
                hint=RELATIVE_NAME,
            )
        return dest.relative(key)

    def unstrip_protocol(self, name: str) -> str:
        """The full URL of a file: where it will be visible."""
        dest = self._sink.dest
        return f"{PROTOCOL}://{dest.bucket}/{dest.prefix}{self._relative(name)}"

    # Questions ------------------------------------------------------------------------------------

    def info(self, path: Any, **kwargs: Any) -> Info:
        """What is there. Raises FileNotFoundError."""
        name = self._relative(path)
        file = self._sink.shelf.get(name) if name else None
        if file is not None:
            return _of_file(file)
        if self._sink.shelf.is_directory(name):
            return _of_directory(name)
        found = self._at_destination(name) if self._read_through else None
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
            found.setdefault(directory, _of_directory(directory))
        if self._read_through:
            for info in self._listed(name):
                found.setdefault(info["name"], info)
        return list(found.values())

    def created(self, path: Any) -> Any:
        return self._time(path)

    def modified(self, path: Any) -> Any:
        return self._time(path)

    def _time(self, path: Any) -> Any:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.info(path).get("mtime", 0.0), UTC)

    def _missing(self, name: str) -> FileNotFoundError:
        where = f"{self._sink.title} has written no {shown(name)}"
        also = f", and {self._sink.dest.url} has none" if self._read_through else ""
        hint = "" if self._read_through else "; with read_through=True the destination is shown too"
        return FileNotFoundError(errno.ENOENT, f"{where}{also}{hint}", name)

    # The destination ------------------------------------------------------------------------------

    def _at_destination(self, name: str) -> Info | None:
        if _is_control(name):
            return None
        store, key = self._sink.runtime.store, self._sink.dest.prefix + name
        try:
            return self._of_object(store.head(key))
        except NotFound:
            pass
        for page in store.list(f"{key}/"):
            if any(not _is_control(self._sink.dest.relative(one.key)) for one in page.objects):
                return _of_directory(name)
        return None

    def _listed(self, name: str) -> Iterator[Info]:
        prefix = self._sink.dest.prefix + (f"{name}/" if name else "")
        for page in self._sink.runtime.store.list(prefix, delimiter="/"):
            for one in page.objects:
                if one.key != prefix:
                    yield self._of_object(one)
            for directory in page.prefixes:
                below = self._sink.dest.relative(directory.removesuffix("/"))
                if not _is_control(below):
                    yield _of_directory(below)

    def _of_object(self, one: ObjectInfo) -> Info:
        name = self._sink.dest.relative(one.key)
        return {
            "name": name, "type": "file", "size": one.size, "mtime": one.last_modified,
            "ETag": one.etag, "pending": False,
        }  # fmt: skip

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

        Raises:
            OptionError: ``compression``: its wrapper does not close the file.
            FileNotFoundError, FileExistsError, IsADirectoryError: as Python's ``open``.
            NotYetAnObject: a file of the task cannot be read, or is still open.
            PathError, UploadFailed, JobNotRunning, TaskFailed: as `Task.open`.
        """
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
        return TextUpload(cast(UploadStream, file), **text)  # which aborts where Python's closes

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        attributes: Attributes | None = None,
        **unknown: Any,
    ) -> WrittenFile | io.BytesIO:
        name = self._relative(path)
        if unknown:
            raise WrongType(
                f"open({shown(name)}) does not take {', '.join(sorted(unknown))}",
                hint="It takes attributes=magic_committer.Attributes(…) for the object's headers",
            )
        if mode == "rb":
            return io.BytesIO(self._read(name))
        if mode not in ("wb", "xb"):
            raise NotYetAnObject(
                f"{shown(name)} cannot be opened with mode {mode!r}: a file of a job is written"
                " once, from start to end",
                hint="Open it with mode 'wb', or 'xb' if it must not be there yet",
            )
        if mode == "xb" and self.exists(name):
            raise FileExistsError(errno.EEXIST, strerror(errno.EEXIST), name)
        return self._write(name, attributes_of(attributes))

    def _write(self, name: str, attributes: Attributes) -> WrittenFile:
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
        file = self._sink.open(name, unique=self._unique, attributes=attributes)
        return WrittenFile(file, self._kept, self._discard)

    def _read(self, name: str) -> bytes:
        file = self._sink.shelf.get(name)
        if file is not None:
            return self._bytes_of(file, "read")
        info = self.info(name)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, strerror(errno.EISDIR), name)
        key = self._sink.dest.key(name)
        try:
            return self._sink.runtime.store.get(key, max_bytes=READ_BYTES_MAX).body
        except InvalidRequest as error:
            if error.code == "TooLarge":
                error.advice = (
                    f"Read objects of more than {READ_BYTES_MAX:,} bytes with a file system of S3"
                )
            raise

    def _bytes_of(self, file: ShelvedFile, doing: str) -> bytes:
        """What was kept of a file.

        Raises:
            NotYetAnObject: nothing; the message says that it cannot be ``doing`` now.
        """
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
            f" here: at most {self._kept.bytes_max:,} bytes are, and {self._kept.file_bytes_max:,}"
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
        """Take files out of the task, and abort their uploads; forget directories.

        Raises:
            FileNotFoundError: there is no such file or directory. Nothing was removed.
            PermissionError: an object of the destination is among them. Nothing was removed.
            OSError: a directory is not empty, without ``recursive``.
            TaskFailed, StoreError: as `Task.discard`.
        """
        names = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        for name in names:
            if self._sink.shelf.get(name) is None and self.info(name)["type"] == "file":
                raise self._not_deleted(name)
        for name in sorted(names, reverse=True):  # what is in a directory comes first
            file = self._sink.shelf.get(name)
            if file is not None:
                self._discard(file)
            elif name and self._sink.shelf.is_directory(name):
                self.rmdir(name)

    def _not_deleted(self, name: str) -> PermissionError:
        return PermissionError(
            errno.EPERM,
            f"{self._sink.title} deletes no object of {self._sink.dest.url} by itself:"
            " mode='replace' or 'replace_partitions' replaces what is there when it commits",
            name,
        )

    def _discard(self, file: ShelvedFile) -> None:
        kept = file.kept
        self._sink.discard(file)
        if kept is not None:
            file.kept = None
            self._kept.give_back(len(kept))

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Write a second file with the bytes of a kept one. Raises NotYetAnObject."""
        copy_file(self, self._relative(path1), self._relative(path2))

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename: write kept files again under the new name, and take the old ones out.

        Raises:
            NotYetAnObject: the bytes of one of them were not kept: the key of an upload is fixed
                when it begins. Nothing was renamed.
        """
        for name in self.expand_path(path1, recursive=recursive, maxdepth=maxdepth):
            file = self._sink.shelf.get(name)
            if file is not None:
                self._bytes_of(file, "renamed")
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)


def _of_file(file: ShelvedFile) -> Info:
    return {
        "name": file.name, "type": "file", "size": file.stream.length, "mtime": file.begun,
        "pending": True,
    }  # fmt: skip


def _of_directory(name: str) -> Info:
    return {"name": name, "type": "directory", "size": 0}


def copy_file(system: AbstractFileSystem, source: str, target: str) -> None:
    """Copy within a file system that has no copy of its own: through memory; a directory is made.
    Raises NotYetAnObject: the bytes of the source were not kept."""
    if system.isdir(source):
        system.makedirs(target, exist_ok=True)
        return
    content = system.cat_file(source)
    with system.open(target, "wb") as file:
        file.write(content)


def _is_control(name: str) -> bool:
    return any(map(is_control_element, name.split("/")))

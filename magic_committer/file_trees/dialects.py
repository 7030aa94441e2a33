"""What fsspec has no verb for: how each kind of file system creates exclusively and renames.

fsspec gives all file systems the same verbs, and each of them means something else: ``mv``
replaces, refuses, copies and deletes, or does nothing and tells nobody. The committers need two
promises (`base`): a create of which one succeeds, whole; and a rename that uses its source up. A
`Dialect` says how one kind keeps them. What cannot keep them is refused by name, with the reason
(`REFUSED`).

| protocol | create | rename | etag | directories | seen |
|---|---|---|---|---|---|
| ``file`` | written beside, linked | ``rename(2)`` | inode and time | real | run |
| ``memory`` | under a lock of this process | under the same lock | none | as needed | run |
| ``sftp``, ``ssh`` | written beside, SSH_FXP_RENAME | posix-rename | none | real | read |
| ``hdfs`` | written beside, renamed | the NameNode's, none over a file | none | as needed | read |
| ``gs``, ``gcs`` | ``ifGenerationMatch=0`` | ``moveTo`` | MD5 or CRC32C | none | read |

*Run*: the contract (tests/unit/test_file_trees.py) runs on the real thing. *Read*: the code of the
driver and of the server was read, and the contract runs on a stand-in that was written after it.
On fake-gcs-server ``gs`` was tried once by hand: of eight threads one created; names, listings and
reads held; a rename could not be tried, because that server has no ``moveTo``.

What was read:

* OpenSSH's sftp-server answers SSH_FXP_RENAME by ``link`` and ``unlink``, which fails if the name
  is taken, and by a look and a rename where the disk has no links. Other servers may look first.
* libhdfs calls ``FileSystem.rename``. The NameNode answers false if the target exists, which
  becomes EIO, whatever the reason: so an EIO is followed by a look. pyarrow's streams overwrite,
  and it deletes directories with all that is in them.
* gcsfs sends the condition for ``mode="create"``, and gives 412 as FileExistsError. Its own ``mv``
  falls back to a copy and a delete and tells nobody: so ``moveTo`` is called here. An etag of the
  content is the same for two files of the same bytes, which does no harm.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, cast

from magic_committer._runtime import new_id
from magic_committer.file_trees.base import EntryKind, TreePromises

SOCKET_SECONDS = 60.0
"""How long a driver waits for one answer, where the driver itself would wait for ever."""

Info = Mapping[str, Any]
"""What fsspec tells of a path."""


class Dialect:
    """How one kind of file system keeps the port's promises. Paths are the file system's own.

    Attributes:
        promises: what it keeps beyond the port.
        virtual: directories are nothing but beginnings of names: nobody makes or deletes them.
        looks_first: a rename onto a directory goes into it, or gives no reason: so the target is
            looked at before.
        options: arguments of the fsspec class. None may keep listings.
    """

    promises: ClassVar[TreePromises] = TreePromises()
    virtual: ClassVar[bool] = False
    looks_first: ClassVar[bool] = True
    options: ClassVar[Mapping[str, Any]] = {}

    def connected(self, fs: Any) -> None:
        """Prepare a file system that was just connected."""

    def info(self, fs: Any, path: str) -> Info:
        """Look at a path; a link is not followed. Raises FileNotFoundError."""
        return cast("Info", fs.info(path))

    def reader(self, fs: Any, path: str) -> BinaryIO:
        """Open a file for reading."""
        return cast("BinaryIO", fs.open(path, "rb"))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        """Open a new file. Raises FileExistsError."""
        return cast("BinaryIO", fs.open(path, "xb"))

    def create(self, fs: Any, path: str, data: bytes) -> None:
        """Make a whole file, exclusively: it is written beside its place, and claims it."""
        beside = f"{path}.{new_id()}.tmp"
        try:
            with self.writer(fs, beside) as file:
                file.write(data)
            self.claim(fs, beside, path)
        finally:
            with suppress(FileNotFoundError, NotADirectoryError):
                fs.rm_file(beside)

    def claim(self, fs: Any, source: str, target: str) -> None:
        """Rename, in one step that fails if the target exists: FileExistsError."""
        raise NotImplementedError

    def replace(self, fs: Any, source: str, target: str) -> None:
        """Rename over what is there, as `promises` says."""
        fs.mv(source, target)

    def remove_empty(self, fs: Any, path: str) -> bool:
        """Delete a directory that was seen to be empty; False: it is not any more."""
        fs.rmdir(path)
        return True

    def etag(self, info: Info) -> str:
        """What is the same before and after a rename; "" if there is no such thing."""
        return ""


class LocalDialect(Dialect):
    """fsspec's own local files. `local.LocalTree` does the same with fewer calls, and syncs."""

    def claim(self, fs: Any, source: str, target: str) -> None:
        if fs.isdir(source):
            fs.mv(source, target)
            return
        fs.link(source, target, follow_symlinks=False)
        fs.rm_file(source)

    def etag(self, info: Info) -> str:
        return f"{info['ino']:x}-{int(info['mtime'] * 1e6):x}"


class MemoryDialect(Dialect):
    """fsspec's memory: it looks and then writes, in two steps, so one lock makes them one. It lives
    as long as the process."""

    promises = TreePromises(directories=False)
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def reader(self, fs: Any, path: str) -> BinaryIO:
        return io.BytesIO(fs.cat_file(path))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        with self._lock:
            return super().writer(fs, path)

    def create(self, fs: Any, path: str, data: bytes) -> None:
        with self._lock:
            fs.pipe_file(path, data, mode="create")

    def claim(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if fs.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self.replace(fs, source, target)

    def replace(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if not fs.isfile(source):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            fs.cp_file(source, target)
            fs.rm_file(source)


class SftpDialect(Dialect):
    """OpenSSH's rules: see the head of the module."""

    def connected(self, fs: Any) -> None:
        fs.ftp.get_channel().settimeout(SOCKET_SECONDS)

    def writer(self, fs: Any, path: str) -> BinaryIO:
        # "xb" alone opens no file for writing: paramiko asks for the right only if there is a "w".
        try:
            return cast("BinaryIO", fs.open(path, "wxb"))
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:  # the server says "Failure", whatever the reason
            try:
                self.info(fs, path)
            except FileNotFoundError:
                raise error from None
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error

    def info(self, fs: Any, path: str) -> Info:
        found = fs.ftp.lstat(path)
        kinds = {0o040000: "directory", 0o100000: "file"}
        kind = kinds.get((found.st_mode or 0) & 0o170000, "other")
        return {"name": path, "type": kind, "size": found.st_size, "mtime": found.st_mtime}

    def claim(self, fs: Any, source: str, target: str) -> None:
        _told_why(self, fs, source, target, lambda: fs.ftp.rename(source, target))

    def replace(self, fs: Any, source: str, target: str) -> None:
        fs.mv(source, target)


class HdfsDialect(Dialect):
    """HDFS, by pyarrow and libhdfs."""

    promises = TreePromises(directories=False, replace_is_atomic=False, visible_while_open=False)

    def writer(self, fs: Any, path: str) -> BinaryIO:
        """Open a new file. The look before it is no lock: names of files must be unique anyway."""
        if fs.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return cast("BinaryIO", fs.open(path, "wb"))

    def claim(self, fs: Any, source: str, target: str) -> None:
        _told_why(self, fs, source, target, lambda: fs.mv(source, target))

    def replace(self, fs: Any, source: str, target: str) -> None:
        try:
            self.claim(fs, source, target)
        except FileExistsError:
            with suppress(FileNotFoundError):
                fs.rm_file(target)
            self.claim(fs, source, target)

    def remove_empty(self, fs: Any, path: str) -> bool:
        """Delete a directory by renaming it first. pyarrow deletes with all that is in it, and so
        would take a file that came after the look. Nobody knows the new name, so no file comes
        later; one that came before goes back."""
        aside = f"{path}.{new_id()}.gone"
        self.claim(fs, path, aside)
        came = [str(info["name"]) for info in fs.ls(aside, detail=True)]
        for one in came:
            fs.makedirs(path, exist_ok=True)
            self.claim(fs, one, f"{path}/{one.rpartition('/')[2]}")
        fs.rmdir(aside)
        return not came


class GoogleDialect(Dialect):
    """Google Cloud Storage, by gcsfs: conditions on generations, and `moveTo`."""

    promises = TreePromises(directories=False, visible_while_open=False)
    virtual = True
    looks_first = False
    options: ClassVar[Mapping[str, Any]] = {
        "use_listings_cache": False,
        "requests_timeout": SOCKET_SECONDS,
    }

    def create(self, fs: Any, path: str, data: bytes) -> None:
        fs.pipe_file(path, data, mode="create")

    def claim(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target, ifGenerationMatch="0")

    def replace(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target)

    def etag(self, info: Info) -> str:
        return str(info.get("md5Hash") or info.get("crc32c") or "")

    def _move(self, fs: Any, source: str, target: str, **conditions: str) -> None:
        bucket, old, _ = fs.split_path(source)
        _, new, _ = fs.split_path(target)
        fs.call(
            "POST", "b/{}/o/{}/moveTo/o/{}", bucket, old, new,
            headers={"Content-Type": "application/json"}, json_out=True, **conditions,
        )  # fmt: skip


def _told_why(
    dialect: Dialect, fs: Any, source: str, target: str, rename: Callable[[], object]
) -> None:
    """Rename by a call that says only that it failed, and find out why by looking: the source first
    (`renaming` says why)."""
    try:
        rename()
    except (FileExistsError, PermissionError):
        raise
    except OSError as error:
        dialect.info(fs, source)  # FileNotFoundError: it is gone
        try:
            dialect.info(fs, target)
        except FileNotFoundError:
            raise error from None
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error


DIALECTS: Mapping[str, type[Dialect]] = {
    "file": LocalDialect,
    "local": LocalDialect,
    "memory": MemoryDialect,
    "sftp": SftpDialect,
    "ssh": SftpDialect,
    "hdfs": HdfsDialect,
    "gs": GoogleDialect,
    "gcs": GoogleDialect,
}
"""The dialects by fsspec's protocol."""

_BY_COPY = (
    "adlfs renames by a copy that it does not wait for, and then deletes the source: a file can be"
    " lost"
)
REFUSED: Mapping[str, str] = {
    "abfs": _BY_COPY,
    "abfss": _BY_COPY,
    "az": _BY_COPY,
    "adl": "Data Lake Storage Gen1 is retired",
    "smb": "Samba looks before it renames, so two drivers may both decide one job",
    "webhdfs": "its rename does not say whether it took place",
    "s3": "a rename on S3 is a copy",
    "s3a": "a rename on S3 is a copy",
}
"""Why a protocol is not taken."""
INSTEAD: Mapping[str, str] = {
    "smb": "Mount the share, and write to file:///…",
    "webhdfs": "Write to hdfs://…, with pyarrow and Hadoop's client libraries",
    "s3": "The committer 'magic' writes there, without renames: committer='magic'",
    "s3a": "The committer 'magic' writes there, without renames: committer='magic'",
}
"""What can be done instead of a refused protocol."""


def kind_of(info: Info) -> EntryKind:
    """What fsspec says a path is: a link is never followed. Pure."""
    if info.get("islink"):
        return "other"
    kind = info.get("type")
    return cast("EntryKind", kind) if kind in ("file", "directory") else "other"


def seconds_of(info: Info) -> float:
    """When a file was last written, in seconds since 1970; 0.0 where nobody tells. Pure."""
    for name in ("mtime", "last_modified", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0

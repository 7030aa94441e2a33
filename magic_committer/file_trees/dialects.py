"""What fsspec has no verb for: how each kind of file system creates exclusively and renames.

fsspec gives all file systems the same verbs, and each of them means something else: ``mv``
replaces, refuses, copies and deletes, or does nothing and tells nobody. The store needs two
promises (`base`): a rename that uses its source up, and one that is exclusive. A `Dialect` says how
one kind keeps them. What cannot keep them is refused by name, with the reason
(`stores.urls.REFUSED`).

| protocol | exclusive rename | rename | etag of data | directories |
|---|---|---|---|---|
| ``memory`` | under a lock of this process | under the same lock | the file's own | as needed |
| ``sftp``, ``ssh`` | link and unlink | posix-rename | seconds and size | real |
| ``hdfs`` | the NameNode's | the NameNode's | milliseconds and size | real |
| ``gs``, ``gcs`` | ``moveTo``, ``ifGenerationMatch=0`` | ``moveTo`` | MD5 or CRC32C | none |

None of them has attributes that this library can set through its driver: the mark of a control
object is the end of its bytes (`through_fsspec`). Times of whole seconds tell two files of one size
not apart: on SFTP the modes that replace are refused.

The contract and whole jobs run on the real servers (tests/real_trees): OpenSSH, a NameNode and
DataNodes of Hadoop 3.5.0; for ``gs`` on fake-gcs-server, where a proxy answers ``moveTo``, which
that server has not. What they showed:

* A package may take a protocol over in fsspec's own table, as sshfs and hdfs-native do. So each
  dialect names the class that it was written for, and no other is taken.
* paramiko's client is for one thread (`sftp_sessions`).
* OpenSSH's sftp-server answers SSH_FXP_RENAME by ``link`` and ``unlink``, which fails if the name
  is taken, and by a look and a rename where the disk has no links. So a create is a
  hardlink@openssh.com, and where there are no links it fails. It says "Failure", whatever the
  reason: so a failure is followed by a look.
* pyarrow's HDFS cannot be used: its move deletes a file at the target and goes on, and its streams
  overwrite. hdfs-native gives the NameNode's own answers. It tells no inode, so no etag.
* webhdfs of fsspec cannot either: it forgets what a rename answered, and takes a DataNode's error
  for the bytes of a file.
* gcsfs sends the condition for ``mode="create"``, and gives 412 as FileExistsError. Its own ``mv``
  falls back to a copy and a delete and tells nobody: so ``moveTo`` is called here. An etag of the
  content is the same for two files of the same bytes, which does no harm. 403 is an OSError without
  a number.
* adlfs (2026.8) starts a copy, does not wait for it, and deletes the source.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, cast

from magic_committer.file_trees.base import EntryKind, TreePromises
from magic_committer.file_trees.sftp_sessions import SOCKET_SECONDS, SftpSessions

Info = Mapping[str, Any]
"""What fsspec tells of a path."""


class Dialect:
    """How one kind of file system keeps the port's promises. Paths are the file system's own."""

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

    def connected(self, fs: Any) -> None:
        """Prepare a file system that was just connected."""

    def info(self, fs: Any, path: str) -> Info:
        """Look at a path; a link is not followed. Raises FileNotFoundError."""
        return cast("Info", fs.info(path))

    def children(self, fs: Any, path: str) -> Iterable[Info]:
        """What is in a directory."""
        return cast("Iterable[Info]", fs.ls(path, detail=True))

    def reader(self, fs: Any, path: str) -> BinaryIO:
        """Open a file for reading."""
        return cast("BinaryIO", fs.open(path, "rb"))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        """Open a new file. Raises FileExistsError."""
        return cast("BinaryIO", fs.open(path, "xb"))

    def remove(self, fs: Any, path: str) -> None:
        """Delete a file. Raises FileNotFoundError."""
        fs.rm_file(path)

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

    def told(self, error: OSError) -> OSError:
        """An error of the driver, with the number that the driver has left out."""
        return error

    def etag(self, info: Info) -> str:
        """What is the same before and after a rename: time and size, if there is nothing else."""
        return f"{int(seconds_of(info) * 1e6):x}-{int(info.get('size') or 0):x}"


class MemoryDialect(Dialect):
    """fsspec's memory: it looks and then writes, in two steps, so one lock makes them one. It lives
    as long as the process."""

    driver = "fsspec.implementations.memory:MemoryFileSystem"
    promises = TreePromises(directories=False)
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def reader(self, fs: Any, path: str) -> BinaryIO:
        return io.BytesIO(fs.cat_file(path))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        with self._lock:
            return super().writer(fs, path)

    def claim(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if fs.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self.replace(fs, source, target)

    def replace(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if not fs.isfile(source):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            fs.store[target] = fs.store.pop(source)
            fs.store[target].path = target

    def etag(self, info: Info) -> str:
        return super().etag({"mtime": info["created"], "size": info["size"]})


class SftpDialect(Dialect):
    """OpenSSH's rules, by paramiko: see the head of the module."""

    driver = "fsspec.implementations.sftp:SFTPFileSystem"
    package = "paramiko"
    promises = TreePromises(tells_apart=False)

    def connected(self, fs: Any) -> None:
        if not isinstance(fs.ftp, SftpSessions):
            fs.ftp = SftpSessions(fs)

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
        """By a link and an unlink. On a disk without links this fails; there SSH_FXP_RENAME looks,
        and then renames, so that two may rename to one target."""
        _told_why(self, fs, source, target, lambda: _link(fs, source, target))
        with suppress(FileNotFoundError):
            self.remove(fs, source)


def _link(fs: Any, source: str, target: str) -> None:
    try:
        fs.ftp.hardlink(source, target)
    except OSError as error:
        # The source was written by us, in this directory: no right is missing.
        if isinstance(error, PermissionError) or "unsupported" in str(error).lower():
            told = "the server makes no hard links here (hardlink@openssh.com)"
            raise OSError(errno.ENOTSUP, told) from error
        raise


class HdfsDialect(Dialect):
    """HDFS, by hdfs-native: the NameNode itself creates and renames under its lock, and says why it
    refused."""

    driver = "hdfs_native.fsspec:HdfsFileSystem"
    package = "hdfs-native"

    def writer(self, fs: Any, path: str) -> BinaryIO:
        # What fs.open has no argument for. The class is the one beside the driver's, which may be a
        # stand-in of tests.
        options = sys.modules[type(fs).__module__].WriteOptions
        made = fs.client.create(path, options(overwrite=False, create_parent=False))
        return cast("BinaryIO", made)

    def claim(self, fs: Any, source: str, target: str) -> None:
        fs.client.rename(source, target, False)

    def replace(self, fs: Any, source: str, target: str) -> None:
        fs.client.rename(source, target, True)

    def remove_empty(self, fs: Any, path: str) -> bool:
        try:
            fs.rmdir(path)
        except RuntimeError as error:
            if "PathIsNotEmptyDirectoryException" not in str(error):
                raise
            return False
        return True


class GoogleDialect(Dialect):
    """Google Cloud Storage, by gcsfs: conditions on generations, and `moveTo`."""

    driver = "gcsfs.core:GCSFileSystem"
    package = "gcsfs"
    promises = TreePromises(directories=False)
    looks_first = False
    options: ClassVar[Mapping[str, Any]] = {
        "use_listings_cache": False,
        "requests_timeout": SOCKET_SECONDS,
    }

    def claim(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target, ifGenerationMatch="0")

    def replace(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target)

    def told(self, error: OSError) -> OSError:
        if error.errno is None and str(error).startswith("Forbidden"):
            return PermissionError(errno.EACCES, str(error))
        return error

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
    """Rename by a call that says only that it failed, and find out why by looking.

    The source first: if another driver has done this rename, the source is gone and the target is
    there, and the file at the target is ours, not a stranger's.
    """
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
    "memory": MemoryDialect,
    "sftp": SftpDialect,
    "ssh": SftpDialect,
    "hdfs": HdfsDialect,
    "gs": GoogleDialect,
    "gcs": GoogleDialect,
}
"""The dialects by fsspec's protocol."""


def kind_of(info: Info) -> EntryKind:
    """What fsspec says a path is: a link is never followed. Pure."""
    if info.get("islink"):
        return "other"
    kind = info.get("type")
    return cast("EntryKind", kind) if kind in ("file", "directory") else "other"


def seconds_of(info: Info) -> float:
    """When a file was last written, in seconds since 1970; 0.0 where nobody tells. Pure."""
    for name in ("mtime", "last_modified", "modification_time", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return value / (1000 if name == "modification_time" else 1)  # HDFS: milliseconds
    return 0.0

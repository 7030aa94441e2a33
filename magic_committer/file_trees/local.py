"""A local disk, or a network file system that is mounted: `pathlib`'s world, behind the port.

* `LocalTree.create` writes a file beside its place, syncs it, and links it into place: ``link``
  fails if the name is taken, and no reader sees half a file. Over NFS it is exclusive too. What
  fails after the link is never told as a refusal: the file is there.
* `LocalTree.rename` without ``replace`` links and unlinks. A crash between the two leaves one file
  with two names; the next call sees that they are the same, and goes on.
* The etag is the inode and the time of the last write, to the nanosecond. Both stay in a rename.
* A disk without hard links (FAT, exFAT, many FUSE mounts) is refused at the first create. There are
  other exclusive creates (``renameat2``), but such disks do not keep an inode's number either: a
  recovery would take the job's own files for those of others.
* A symbolic link is ``"other"``: it is never followed below the root. The root itself may be one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat as modes
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from magic_committer._runtime import new_id
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    Unanswered,
)
from magic_committer.file_trees.base import EntryKind, TreeEntry, TreePromises, check_path
from magic_committer.file_trees.os_errors import telling, translated

SYNC_EACH_MAX = 32
"""Up to so many files are synced one by one; more of them by one ``syncfs``, where there is one."""
BATCH_FILES = 256
PATH_BYTES_MAX = os.pathconf("/", "PC_PATH_MAX") - 1 if hasattr(os, "pathconf") else 255
"""Bytes of a path that the system takes in one call: 4,095 on Linux."""

_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))

_WRITE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""Not blocking: the open of a FIFO would wait for a writer."""


class LocalTree:
    """A directory of this machine.

    Args:
        root: an absolute path. It need not exist yet: `make_root` makes it.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        longest = PATH_BYTES_MAX - 1 - len(os.fsencode(self._root))
        self.promises = TreePromises(batch_files=BATCH_FILES, path_bytes_max=max(1, longest))
        self.url = f"file://{quote(self._root.rstrip('/'))}/"

    def __repr__(self) -> str:
        return f"LocalTree({self._root!r})"

    def make_root(self) -> None:
        """Make the root and its parents, and make them last. Repeatable."""
        missing, above = list[str](), self._root
        while not os.path.lexists(above):
            above = os.path.dirname(above)
            missing.append(above)
        with telling("make_directory", self.url, ""):
            try:
                os.makedirs(self._root, exist_ok=True)
            except FileExistsError as error:
                raise FileExistsError(error.errno, "a file is there, and no directory") from error
            for directory in missing:
                with suppress(PermissionError):  # it may be written to, and not be read
                    _sync_directory(directory)

    def at(self, path: str) -> str:
        """Where a path of the tree is on this machine."""
        check_path(path, self.url)
        return f"{self._root}/{path}" if path else self._root

    def stat(self, path: str) -> TreeEntry | None:
        where = self.at(path)
        try:
            # The root itself may be a link.
            return _entry(path, os.lstat(where) if path else os.stat(where))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translated(error, "stat", self.url, path) from error

    def list(self, directory: str) -> Iterator[TreeEntry]:
        prefix = f"{directory}/" if directory else ""
        with telling("list", self.url, directory):
            try:
                scan = os.scandir(self.at(directory))
            except (FileNotFoundError, NotADirectoryError):
                return
        with scan:
            while True:
                with telling("list", self.url, directory):
                    child = next(scan, None)  # it asks the disk too
                    if child is None:
                        return
                    try:
                        found = _entry(prefix + child.name, child.stat(follow_symlinks=False))
                    except FileNotFoundError:  # removed meanwhile
                        continue
                yield found

    def read(self, path: str, bytes_max: int) -> bytes:
        with telling("read", self.url, path), self.reader(path) as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise InvalidRequest(
                f"{self.url}{path} has more than {bytes_max} bytes",
                operation="read", bucket=self.url, key=path, code="TooLarge",
            )  # fmt: skip
        return data

    def reader(self, path: str) -> BinaryIO:
        with telling("read", self.url, path):
            descriptor = os.open(self.at(path), _READ)
            if modes.S_ISREG(os.fstat(descriptor).st_mode):
                return open(descriptor, "rb")
            os.close(descriptor)
        raise InvalidRequest(
            f"{self.url}{path} is no ordinary file",
            operation="read", bucket=self.url, key=path, code="NoFile",
        )  # fmt: skip

    def create(self, path: str, data: bytes) -> None:
        target = self.at(path)
        beside = f"{target}.{new_id()}.tmp"
        with telling("create", self.url, path):
            try:
                descriptor = os.open(beside, _WRITE_NEW, 0o666)
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                try:
                    os.link(beside, target)
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        raise self._has_no_links(path, error) from error
                    raise
            except BaseException:
                with suppress(OSError):  # the first error tells more
                    os.unlink(beside)
                raise
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(beside)
            _sync_directory(os.path.dirname(target))
        except OSError as error:
            told = translated(error, "create", self.url, path)
            if isinstance(told, NotFound):
                raise told from error
            raise Unanswered(  # it is there: this is no refusal
                told.message, operation="create", bucket=self.url, key=path, code=told.code,
                hint=told.hint,
            ) from error  # fmt: skip

    def _has_no_links(self, path: str, error: OSError) -> NotSupported:
        return NotSupported(
            f"{self.url} is on a disk without hard links ({error.strerror}), and a job is decided"
            " by a file that only one process can create, whole",
            operation="create", bucket=self.url, key=path, code="NoLinks",
            hint="Write to a disk that has them (ext4, xfs, NFS and most others; not FAT, exFAT and"
            " many FUSE mounts), and copy the files from there",
        )  # fmt: skip

    def open(self, path: str) -> BinaryIO:
        with telling("open", self.url, path):
            # Not buffered: a forked child would write what its copy of the buffer holds.
            return cast("BinaryIO", open(os.open(self.at(path), _WRITE_NEW, 0o666), "wb", 0))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        old, new = self.at(source), self.at(target)
        try:
            if replace or os.path.isdir(old):
                os.rename(old, new)
                return
            try:
                os.link(old, new, follow_symlinks=False)
            except FileExistsError:
                if not os.path.samestat(os.lstat(old), os.lstat(new)):
                    raise
            os.unlink(old)
        except OSError as error:
            raise translated(error, "rename", self.url, source) from error

    def make_directory(self, path: str) -> None:
        with telling("make_directory", self.url, path):
            where = self.at(path)
            try:
                os.mkdir(where)
            except FileExistsError:
                if not os.path.isdir(where):
                    raise

    def remove(self, path: str) -> None:
        with telling("remove", self.url, path), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.at(path))

    def remove_directory(self, path: str) -> bool:
        with telling("remove_directory", self.url, path):
            try:
                os.rmdir(self.at(path))
            except (FileNotFoundError, NotADirectoryError):
                return True
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
            return True

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        paths, directories = list(files), list(directories)
        if len(paths) + len(directories) > SYNC_EACH_MAX and _sync_file_system(self._root):
            return
        for path in paths:
            with telling("sync", self.url, path):
                descriptor = os.open(self.at(path), os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        for directory in directories:
            with telling("sync", self.url, directory):
                _sync_directory(self.at(directory))


def _entry(path: str, found: os.stat_result) -> TreeEntry:
    kind: EntryKind = "other"
    if modes.S_ISREG(found.st_mode):
        kind = "file"
    elif modes.S_ISDIR(found.st_mode):
        kind = "directory"
    size = found.st_size if kind == "file" else 0
    etag = f"{found.st_ino:x}-{found.st_mtime_ns:x}"
    return TreeEntry(path, kind, size, found.st_mtime, etag, f"{found.st_dev:x}")


def _sync_directory(path: str) -> None:
    """Make a directory's entries last. Where a directory cannot be opened they do so anyway."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(root: str) -> bool:
    """Write out everything of the file system that holds ``root``: one call for any number of
    files. False where there is no such call."""
    if not sys.platform.startswith("linux"):
        return False
    descriptor = os.open(root, os.O_RDONLY)
    try:
        return bool(ctypes.CDLL(None, use_errno=True).syncfs(descriptor) == 0)
    except AttributeError:
        return False
    finally:
        os.close(descriptor)

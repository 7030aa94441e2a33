"""A local disk, or a network file system that is mounted.

* A mark is an extended attribute of a file, in JSON: a rename keeps it.
* `LocalTree.rename` without ``replace`` is exclusive by ``renameat2`` where the system and the file
  system have it; elsewhere (NFS) by a link and an unlink. Who dies between the two leaves one file
  with two names; the next call sees that they are the same, and goes on.
* An etag is inode, time of the last write and size: a rename keeps them, another file has others.
* A symbolic link is ``"other"``: it is never followed below the root. The root itself may be one.
* Many files are synced by one ``syncfs``, which reports errors from Linux 5.8 on.
* A client of NFS may say for 30 seconds that a file is not there which another client has made, so
  the modes that look at what is there are refused, unless ``lookupcache=none`` (or ``positive``,
  which believes no "not there") and ``noac`` are among the mount's options.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat as modes
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import orjson

from magic_committer.errors import InvalidRequest, NotSupported
from magic_committer.hadoop.paths import once
from magic_committer.stores.base import FileSlice
from magic_committer.stores.trees.base import (
    NOT_THERE,
    EntryKind,
    MarkedFile,
    TreeEntry,
    TreePromises,
    telling,
    translated,
)

NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Not blocking: the open of a FIFO would wait for a writer."""
SYNC_EACH_MAX = 32
"""Files and directories that are synced one by one; more of them by one ``syncfs``."""

_REMOTE = ("nfs", "cifs", "smb", "fuse", "lustre", "ceph", "9p", "afs", "gpfs", "beegfs")
_LAGS = (
    "it is on NFS, whose client may say for seconds that a file is not there which another client"
    " has made: mount it with lookupcache=none"
)
_MARK = "user.magic-committer"
_LACKS = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
_NO_LINKS = _LACKS | {errno.EPERM, errno.EMLINK}
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class LocalTree:
    """A directory of this machine, by its absolute path. It need not exist yet."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root).rstrip("/")
        self.url = f"file://{quote(self._root)}/"
        if not hasattr(os, "setxattr"):
            raise NotSupported(
                f"{self.url}: Python sets extended attributes on Linux only, and without them a"
                " job cannot recognise its own files",
                code="NoAttributes",
                hint="Write to S3, or for a try to magic_committer.testing.memory_store()",
            )

    @once
    def promises(self) -> TreePromises:
        """Known when the root is there."""
        kind, options = mount_options(self._root)
        lags = kind.startswith("nfs") and not {"lookupcache=none", "lookupcache=pos"} & options
        return TreePromises(
            attributes=True,
            answers_at_once=not kind.startswith(_REMOTE),
            refusal=_LAGS if lags else "",
        )

    def at(self, path: str) -> str:
        """Where a path of the tree is on this machine."""
        return f"{self._root}/{path}" if path else self._root

    def below(self, directory: str) -> LocalTree:
        return LocalTree(self.at(directory))

    def make_root(self) -> None:
        missing, above = list[str](), self._root
        while not os.path.lexists(above):
            above = os.path.dirname(above)
            missing.append(above)
        with telling("make_directory", self.url, ""):
            try:
                os.makedirs(self._root, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:  # no answer to a create
                raise InvalidRequest(
                    f"{self._root} cannot be made: a file is there, and no directory",
                    code="KeyIsNoPath",
                ) from error
            for directory in missing:
                with suppress(PermissionError):  # it may be written to, and not be read
                    sync(directory)

    # Without `telling`, which takes longer than the call: these are for each file of a job.

    def stat(self, path: str) -> TreeEntry | None:
        try:
            return _entry(path, os.lstat(f"{self._root}/{path}"))  # the root itself may be a link
        except NOT_THERE:
            return None
        except OSError as error:
            raise translated(error, "stat", self.url, path) from error

    def list(self, directory: str) -> Iterator[TreeEntry]:
        prefix = f"{directory}/" if directory else ""
        told = telling("list", self.url, directory)
        with told, suppress(*NOT_THERE), os.scandir(self.at(directory)) as scan:
            for child in scan:
                try:
                    seen = child.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed meanwhile
                    continue
                yield _entry(prefix + child.name, seen)

    def look(self, path: str, bytes_max: int | None = None, *, marked: bool) -> MarkedFile | None:
        descriptor = -1
        try:
            descriptor = os.open(f"{self._root}/{path}", os.O_RDONLY | NO_LINK)
            seen = _entry(path, os.fstat(descriptor))
            if seen.kind == "directory":
                return None
            if seen.kind != "file":
                raise InvalidRequest("it is no ordinary file", code="NoFile")
            wanted = bytes_max is not None and seen.size <= bytes_max
            body = b"".join(_pieces(descriptor, 0, seen.size)) if wanted else b""
            return MarkedFile(seen, mark_of(descriptor), body)
        except NOT_THERE:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InvalidRequest("it is a link", code="NoFile") from error
            raise translated(error, "read", self.url, path) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def make(self, path: str, mark: Mapping[str, Any] | None, body: Any) -> TreeEntry:
        """See `FileTree.make`. ``body``: bytes, or a list of ranges of open files."""
        descriptor = -1
        try:
            descriptor = os.open(f"{self._root}/{path}", _NEW, 0o666)
            end = 0
            for piece in [body] if isinstance(body, bytes) else body:
                end += write_at(descriptor, piece, end)
            if mark is not None:
                set_mark(descriptor, mark)
            return _entry(path, os.fstat(descriptor))
        except OSError as error:
            raise translated(error, "create", self.url, path) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        try:
            move(f"{self._root}/{source}", f"{self._root}/{target}", exclusive=not replace)
        except OSError as error:
            raise translated(error, "rename", self.url, source) from error

    def remove(self, path: str) -> bool:
        try:
            os.unlink(f"{self._root}/{path}")
        except NOT_THERE:
            return False
        except OSError as error:
            raise translated(error, "remove", self.url, path) from error
        return True

    # Called once in a while.

    def reader(self, path: str) -> BinaryIO:
        with telling("read", self.url, path):
            descriptor = os.open(self.at(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            if modes.S_ISREG(os.fstat(descriptor).st_mode):
                return open(descriptor, "rb")
            os.close(descriptor)
        raise InvalidRequest(
            f"{self.url}{path} is no ordinary file",
            operation="read", bucket=self.url, key=path, code="NoFile",
        )  # fmt: skip

    def open(self, path: str) -> BinaryIO:
        with telling("open", self.url, path):
            # Not buffered: a forked child would write what its copy of the buffer holds.
            return cast("BinaryIO", open(os.open(self.at(path), _NEW, 0o666), "wb", 0))

    def take_place(self, path: str, new: str) -> None:
        """Put a new file in the place of another, which must be there."""
        with telling("rename", self.url, path):
            if not rename_by(_EXCHANGE, self.at(new), self.at(path)):
                os.stat(self.at(path))
                os.rename(self.at(new), self.at(path))

    def make_directory(self, path: str) -> bool:
        with telling("make_directory", self.url, path):
            try:
                os.mkdir(self.at(path))
            except FileExistsError:
                if not os.path.isdir(self.at(path)):
                    raise
                return False
            return True

    def remove_directory(self, path: str) -> bool:
        try:
            os.rmdir(f"{self._root}/{path}")
        except NOT_THERE:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise translated(error, "remove_directory", self.url, path) from error
        return True

    def sync(self, paths: Sequence[str]) -> None:
        whole = len(paths) > SYNC_EACH_MAX and _syncs_file_systems()
        for path in [""] if whole else paths:
            try:
                sync(self.at(path), whole=whole)
            except OSError as error:
                raise translated(error, "sync", self.url, path) from error

    def mount_of(self, path: str) -> str:
        with telling("stat", self.url, path):
            return mount_of(self.at(path))


_FORMAT = 0o170000
_KINDS: dict[int, EntryKind] = {modes.S_IFREG: "file", modes.S_IFDIR: "directory"}


def _entry(path: str, seen: os.stat_result) -> TreeEntry:
    size, kind = seen.st_size, _KINDS.get(seen.st_mode & _FORMAT, "other")
    etag = f"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{size:x}"
    return TreeEntry(path, kind, size, seen.st_mtime, etag, seen.st_nlink)


def entry_of(path: str, file: int | str) -> TreeEntry:
    """A file as it is seen, by its descriptor or where it is."""
    return _entry(path, os.stat(file, follow_symlinks=not isinstance(file, str)))


def set_mark(descriptor: int, mark: Mapping[str, Any]) -> None:
    """Set a file's mark. Raises NotSupported: the file system keeps none."""
    try:
        os.setxattr(descriptor, _MARK, orjson.dumps(mark))
    except OSError as error:
        if error.errno not in _LACKS:
            raise
        raise NotSupported(
            f"the file system has no extended attributes ({error}), so a job could not recognise"
            " its own files",
            code="NoAttributes",
            hint="Write to a disk that has them (ext4, xfs, btrfs, NFS 4.2), and copy the files"
            " from there",
        ) from error


def mark_of(file: int | str) -> dict[str, Any]:
    """A file's mark; empty if it has none, or none of ours."""
    try:
        mark = orjson.loads(os.getxattr(file, _MARK))
    except orjson.JSONDecodeError:
        return {}
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOENT, *_LACKS):
            raise
        return {}
    return mark if isinstance(mark, dict) else {}


def _pieces(descriptor: int, offset: int, length: int) -> Iterator[bytes]:
    while length and (piece := os.pread(descriptor, min(length, 1 << 20), offset)):
        yield piece
        offset, length = offset + len(piece), length - len(piece)


def write_at(descriptor: int, piece: Any, offset: int | None) -> int:
    """Write bytes, a slice of a file, or a range of an open file (descriptor, offset and length).
    Gives how many bytes. None: at the end. Raises InvalidRequest: the file is shorter than the
    slice says."""
    if isinstance(piece, FileSlice):
        source = os.open(piece.path, os.O_RDONLY)
        try:
            return write_at(descriptor, (source, piece.offset, piece.length), offset)
        finally:
            os.close(source)
    if isinstance(piece, tuple):
        source, start, length = piece
        if (done := _copy(source, start, length, descriptor, offset or 0)) != length:
            raise InvalidRequest(
                f"the file holds {done} of the slice's {length} bytes", code="IncompleteBody"
            )
        return done
    view = memoryview(piece)
    size = view.nbytes
    while view:
        if offset is None:
            view = view[os.write(descriptor, view) :]
        else:
            done = os.pwrite(descriptor, view, offset)
            view, offset = view[done:], offset + done
    return size


def _copy(source: int, start: int, length: int, target: int, offset: int) -> int:
    """Copy a range, in the kernel where it can. Gives how many bytes there were."""
    done = 0
    try:
        while done < length:
            at = (start + done, offset + done)
            count = os.copy_file_range(source, target, length - done, *at)
            if not count:
                return done
            done += count
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EXDEV, *_LACKS):
            raise
        for data in _pieces(source, start + done, length - done):
            done += write_at(target, data, offset + done)
    return done


def mount_of(path: str) -> str:
    """Device and, on Linux, mount: what a bind mount shows has the same device, and yet nothing can
    be renamed into it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        mount = ""
        with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}") as info:
            mount = next((line for line in info if line.startswith("mnt_id:")), "")
        return f"{os.fstat(descriptor).st_dev} {mount}"
    finally:
        os.close(descriptor)


_NOREPLACE, _EXCHANGE, _HERE = 1, 2, -100
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def rename_by(flag: int, source: str, target: str) -> bool:
    """``renameat2``. False where the system or the file system does not have it."""
    try:
        paths = (_HERE, os.fsencode(source), _HERE, os.fsencode(target))
        if _libc.renameat2(*paths, flag) == 0:
            return True
    except AttributeError:
        return False
    number = ctypes.get_errno()
    if number in _LACKS:
        return False
    raise OSError(number, os.strerror(number), source, None, target)


def move(source: str, target: str, *, exclusive: bool) -> None:
    """Rename a file; ``exclusive``: only if nothing is at the target."""
    if not exclusive:
        os.rename(source, target)
        return
    try:
        if rename_by(_NOREPLACE, source, target):
            return
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:  # it may have both names already
        if not os.path.samestat(os.lstat(source), os.lstat(target)):
            raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            told = f"there is neither an exclusive rename nor a hard link here ({error.strerror})"
            raise OSError(errno.ENOTSUP, told) from error
        raise
    with suppress(FileNotFoundError):
        os.unlink(source)


def _syncs_file_systems() -> bool:
    """Whether there is a ``syncfs``, and it reports errors."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    known = found is not None and (int(found[1]), int(found[2])) >= (5, 8)
    return known and hasattr(_libc, "syncfs")


def sync(path: str, *, whole: bool = False) -> None:
    """Sync a file or directory; ``whole``: the file system that it is on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if not whole:
            os.fsync(descriptor)
        elif _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def mount_options(path: str) -> tuple[str, set[str]]:
    """Type and options of the file system that a path is on, where the system shows them."""
    at, best, found = os.path.realpath(path), "", ("", set[str]())
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, point, kind, options, *_ = line.split(" ")
            point = point.replace("\\040", " ")
            inside = at == point or at.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, found = point, (kind, set(options.split(",")))
    return found

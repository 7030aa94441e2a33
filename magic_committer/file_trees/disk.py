"""What a local disk is asked, beyond Python's own calls: marks, exclusive renames, mounts, syncs.

A mark is an extended attribute of a file, in JSON: a rename keeps it. `move` is exclusive by
``renameat2`` where the system and the file system have it; elsewhere (NFS) by a link and an unlink.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat as modes
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from magic_committer.errors import InvalidRequest, NotSupported
from magic_committer.stores.base import FileSlice

NOT_THERE = (FileNotFoundError, NotADirectoryError)
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Not blocking: the open of a FIFO would wait for a writer."""

_MARK = "user.magic-committer"
_LACKS = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))


@dataclass(slots=True)
class MarkedFile:
    """A file as one descriptor saw it."""

    path: str
    seen: os.stat_result
    mark: dict[str, Any]
    body: bytes = b""

    @property
    def etag(self) -> str:
        return etag_of(self.seen)

    @property
    def is_gone(self) -> bool:
        """Whether it is the last version of an object that was deleted."""
        return "gone" in self.mark


def etag_of(seen: os.stat_result) -> str:
    """Inode, time of the last write and size: a rename keeps them, another file has others."""
    return f"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{seen.st_size:x}"


def set_mark(descriptor: int, mark: Mapping[str, Any]) -> None:
    """Set a file's mark.

    Raises:
        NotSupported: the file system keeps none.
    """
    try:
        os.setxattr(descriptor, _MARK, orjson.dumps(mark))
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _LACKS:
            raise
        raise NotSupported(
            f"the file system has no extended attributes ({error}), and a job's files could not be"
            " told from others'",
            code="NoAttributes",
            hint="Write to a disk that has them (ext4, xfs, btrfs, NFS 4.2), and copy the files"
            " from there",
        ) from error


def names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except NOT_THERE:
        return []


def lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except NOT_THERE:
        return None


def look(path: str, bytes_max: int | None = None) -> MarkedFile | None:
    """A file with its mark, by one descriptor; None: there is none, or a directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_LINK)
    except NOT_THERE:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidRequest("it is a link", code="NoFile") from error
        raise
    try:
        seen = os.fstat(descriptor)
        if modes.S_ISDIR(seen.st_mode):
            return None
        if not modes.S_ISREG(seen.st_mode):
            raise InvalidRequest("it is no ordinary file", code="NoFile")
        wanted = bytes_max is not None and seen.st_size <= bytes_max
        body = b"".join(_pieces(descriptor, 0, seen.st_size)) if wanted else b""
        return MarkedFile(path, seen, mark_of(descriptor), body)
    finally:
        os.close(descriptor)


def mark_of(file: int | str) -> dict[str, Any]:
    """A file's mark; empty if it has none, or none of ours."""
    try:
        mark = orjson.loads(os.getxattr(file, _MARK))
    except (AttributeError, orjson.JSONDecodeError):
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
    Gives how many bytes. None: at the end.

    Raises:
        InvalidRequest: the file is shorter than the slice says.
    """
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
    elif not rename_by(_NOREPLACE, source, target):
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samestat(os.lstat(source), os.lstat(target)):
                raise
        with suppress(FileNotFoundError):
            os.unlink(source)


def exchange(new: str, path: str) -> None:
    """Put a file in the place of another, which must be there."""
    if not rename_by(_EXCHANGE, new, path):
        os.stat(path)
        os.rename(new, path)


def syncs_file_systems() -> bool:
    """Whether ``syncfs`` tells errors."""
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

"""A directory that forgets at a power cut what was not synced, for stores of file trees.

`Power` stands before the calls of the system in `magic_committer.stores.trees.disk`, as
`tests.tree_store.Calls` does, and keeps beside the disk what it would have after a cut: the bytes
and the mark that a file had at its last sync, and the names that a directory had at its last sync.
A real file system may keep more than that; it never promises more.

A rename is one step of the journal: a name that was moved has left its old directory when its new
one is synced (ext4, xfs and btrfs do so).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from magic_committer.stores.trees import disk

MARK = "user.magic-committer"


class Power:
    """What the disk below a directory has for good.

    Args:
        root: the directory, which exists.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._bytes: dict[int, tuple[bytes, bytes | None]] = {}  # by inode
        self._names: dict[int, dict[str, int]] = {}  # by the directory's inode
        self._files = root.with_name(f"{root.name}.files")  # each that was synced, by its inode
        self._files.mkdir()
        self._open: dict[int, int] = {}  # keeps inodes from being used again
        for path in (root, *root.rglob("*")):
            self.sync(os.fspath(path))

    def sync(self, path: str, *, whole: bool = False) -> None:
        if whole:
            for each in (self.root, *self.root.rglob("*")):
                with suppress(FileNotFoundError):
                    self.sync(os.fspath(each))
            return
        seen = os.stat(path)
        if stat.S_ISREG(seen.st_mode):
            mark = None
            with suppress(OSError):
                mark = os.getxattr(path, MARK)
            self._bytes[seen.st_ino] = (Path(path).read_bytes(), mark)
            with suppress(FileExistsError):
                os.link(path, self._files / str(seen.st_ino))
            return
        self._hold(path, seen.st_ino)
        names = {}
        for entry in os.scandir(path):
            with suppress(FileNotFoundError):
                self._hold(entry.path, entry.inode())
                names[entry.name] = entry.inode()
        here = set(names.values())
        for inode, others in self._names.items():  # what was renamed has left where it was
            if inode != seen.st_ino:
                self._names[inode] = {n: i for n, i in others.items() if i not in here}
        self._names[seen.st_ino] = names

    def _hold(self, path: str, inode: int) -> None:
        if inode not in self._open:
            self._open[inode] = os.open(path, os.O_RDONLY)

    def cut(self) -> None:
        """Cut the power: the directory has what lasts. Files keep inode and time."""
        every = (*self._files.iterdir(), *self.root.rglob("*"))
        inodes = {os.lstat(path).st_ino: path for path in every}
        kept = self.root.with_name(f"{self.root.name}.after")
        kept.mkdir()
        self._restore(os.stat(self.root).st_ino, kept, inodes)
        shutil.rmtree(self.root)
        shutil.rmtree(self._files)
        kept.rename(self.root)
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _restore(self, directory: int, at: Path, inodes: dict[int, Path]) -> None:
        for name, inode in self._names.get(directory, {}).items():
            was = inodes.get(inode)
            if inode in self._names:
                (at / name).mkdir()
                self._restore(inode, at / name, inodes)
            elif was is not None and was.is_dir():
                (at / name).mkdir()  # its own names were never synced
            elif was is not None:
                data, mark = self._bytes.get(inode, (b"", None))
                times = was.stat()
                os.link(was, at / name)
                if data != was.read_bytes():
                    (at / name).write_bytes(data)
                if mark is None:
                    with suppress(OSError):
                        os.removexattr(at / name, MARK)
                else:
                    os.setxattr(at / name, MARK, mark)
                os.utime(at / name, ns=(times.st_atime_ns, times.st_mtime_ns))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, the store's syncs are told here, and cost nothing."""
        with patch.object(disk, "sync", self.sync):
            yield

"""A file tree in memory, with the real rules of the port: for tests, simulators and users' tests.

Its calls are single steps: whoever interleaves calls interleaves all there is. `MemoryTree.before`
is called at the beginning of each verb, so that a test may fail it, delay it or kill its caller.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from magic_committer.errors import InvalidRequest, NotFound, PreconditionFailed, StoreError
from magic_committer.file_trees.base import EntryKind, TreeEntry, TreePromises, parent_of


@dataclass(slots=True)
class _Node:
    etag: str
    modified: float
    data: bytes = b""
    children: set[str] = field(default_factory=set)
    is_directory: bool = False


class MemoryTree:
    """A tree that lives as long as this object.

    Args:
        url: its name, with a ``/`` at its end.
        now: the clock that stamps files, in seconds since 1970.
        directories: as in `TreePromises`. False: directories need not be made.
    """

    def __init__(
        self,
        url: str = "tree://memory/",
        *,
        now: Callable[[], float],
        directories: bool = True,
    ) -> None:
        self.url = url
        self.promises = TreePromises(directories=directories)
        self.before: Callable[[str, str], None] = _nothing
        self._now = now
        self._numbers = 0
        self._nodes: dict[str, _Node] = {"": _Node("0", now(), is_directory=True)}

    def __repr__(self) -> str:
        return f"MemoryTree({self.url!r}, {len(self._nodes)} entries)"

    def make_root(self) -> None:
        """Do nothing: the root is always there."""

    def stat(self, path: str) -> TreeEntry | None:
        self.before("stat", path)
        node = self._nodes.get(path)
        return None if node is None else self._entry(path, node)

    def list(self, directory: str) -> Iterator[TreeEntry]:
        self.before("list", directory)
        node = self._nodes.get(directory)
        prefix = f"{directory}/" if directory else ""
        names = sorted(node.children) if node is not None else []
        yield from [self._entry(prefix + name, self._nodes[prefix + name]) for name in names]

    def read(self, path: str, bytes_max: int) -> bytes:
        self.before("read", path)
        data = self._file("read", path).data
        if len(data) > bytes_max:
            raise self._error(
                InvalidRequest, "read", path, f"more than {bytes_max} bytes", "TooLarge"
            )
        return data

    def reader(self, path: str) -> BinaryIO:
        self.before("read", path)
        return io.BytesIO(self._file("read", path).data)

    def create(self, path: str, data: bytes) -> None:
        self.before("create", path)
        self._add("create", path, data)

    def open(self, path: str) -> BinaryIO:
        self.before("open", path)
        self._add("open", path, b"")
        return _WrittenInMemory(lambda data: self._write(path, data))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        self.before("rename", source)
        node = self._nodes.get(source)
        if node is None:
            raise self._error(NotFound, "rename", source, "it does not exist", "ENOENT")
        there = self._nodes.get(target)
        if there is not None and (not replace or node.is_directory):
            raise self._error(PreconditionFailed, "rename", target, "it is there", "EEXIST")
        if there is not None and there.is_directory:
            raise self._error(InvalidRequest, "rename", target, "it is a directory", "EISDIR")
        self._need_parent("rename", target)
        moved = [path for path in self._nodes if path == source or path.startswith(f"{source}/")]
        for path in moved:
            self._nodes[target + path[len(source) :]] = self._nodes.pop(path)
        self._nodes[parent_of(target)].children.add(target.rpartition("/")[2])
        if source != target:  # last: else its directory could vanish, which is the target's too
            self._forget(source)

    def make_directory(self, path: str) -> None:
        self.before("make_directory", path)
        there = self._nodes.get(path)
        if there is not None:
            if not there.is_directory:
                raise self._error(PreconditionFailed, "make_directory", path, "a file", "EEXIST")
            return
        self._need_parent("make_directory", path)
        self._put(path, _Node(self._etag(), self._now(), is_directory=True))

    def remove(self, path: str) -> None:
        self.before("remove", path)
        node = self._nodes.get(path)
        if node is not None and node.is_directory:
            raise self._error(InvalidRequest, "remove", path, "it is a directory", "EISDIR")
        if self._nodes.pop(path, None) is not None:
            self._forget(path)

    def remove_directory(self, path: str) -> bool:
        self.before("remove_directory", path)
        node = self._nodes.get(path)
        if node is None:
            return True
        if node.children:
            return False
        del self._nodes[path]
        self._forget(path)
        return True

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Do nothing: there is no power to cut."""

    # Inside ---------------------------------------------------------------------------------------

    def _etag(self) -> str:
        self._numbers += 1
        return str(self._numbers)

    def _entry(self, path: str, node: _Node) -> TreeEntry:
        kind: EntryKind = "directory" if node.is_directory else "file"
        return TreeEntry(path, kind, len(node.data), node.modified, node.etag)

    def _file(self, verb: str, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None or node.is_directory:
            raise self._error(NotFound, verb, path, "it does not exist", "ENOENT")
        return node

    def _add(self, verb: str, path: str, data: bytes) -> None:
        if path in self._nodes:
            raise self._error(PreconditionFailed, verb, path, "it is there", "EEXIST")
        self._need_parent(verb, path)
        self._put(path, _Node(self._etag(), self._now(), data))

    def _write(self, path: str, data: bytes) -> None:
        node = self._nodes.get(path)
        if node is not None:  # else: deleted while it was open, as on a disk
            node.data, node.modified = data, self._now()

    def _put(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(path.rpartition("/")[2])

    def _need_parent(self, verb: str, path: str) -> None:
        parent = parent_of(path)
        node = self._nodes.get(parent)
        if node is not None and not node.is_directory:
            raise self._error(NotFound, verb, path, "its directory is a file", "ENOTDIR")
        if node is not None:
            return
        if self.promises.directories:
            raise self._error(NotFound, verb, path, "its directory does not exist", "ENOENT")
        self._need_parent(verb, parent)
        self._put(parent, _Node(self._etag(), self._now(), is_directory=True))

    def _forget(self, path: str) -> None:
        """Take a path out of its directory, which vanishes with its last file where directories are
        not real."""
        parent = parent_of(path)
        node = self._nodes[parent]
        node.children.discard(path.rpartition("/")[2])
        if not self.promises.directories and parent and not node.children:
            del self._nodes[parent]
            self._forget(parent)

    def _error(
        self, kind: type[StoreError], verb: str, path: str, why: str, code: str
    ) -> StoreError:
        where = f"{verb} of {self.url}{path}: {why}"
        return kind(where, operation=verb, bucket=self.url, key=path, code=code)


class _WrittenInMemory(io.BytesIO):
    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def flush(self) -> None:
        super().flush()
        if not self.closed:
            self._keep(self.getvalue())

    def close(self) -> None:
        if not self.closed:
            self._keep(self.getvalue())
        super().close()


def _nothing(verb: str, path: str) -> None:
    """Let every verb pass."""

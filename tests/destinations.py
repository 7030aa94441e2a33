"""One test for each kind of destination: S3 in memory, a local disk under each committer of
renames, and a file system of fsspec.

A test that takes the fixture `there` says what holds everywhere. What holds on one kind only is a
test of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.file_trees.base import FileTree, make_directories, parent_of, walk
from magic_committer.file_trees.by_url import tree_for
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_store
from tests.promises.hands import DEST, visible


class There:
    """A destination.

    Attributes:
        url: its URL, without a slash at its end.
        committer: what its jobs are started with; "": what is chosen by itself.
        bare: its URL without the scheme, as ``magic://`` URLs have it.
    """

    url: str
    committer: str = ""

    @property
    def bare(self) -> str:
        """What follows the scheme."""
        return self.url.partition("://")[2]

    @property
    def terms(self) -> dict[str, Any]:
        """The arguments of `start` and `write` that choose the committer."""
        return {"committer": self.committer} if self.committer else {}

    def write(self, **more: Any) -> mc.Writing:
        """`mc.write` there."""
        return mc.write(self.url, **self.terms, **more)

    def start(self, **more: Any) -> mc.Job:
        """`mc.start` there."""
        return mc.start(self.url, **self.terms, **more)

    def data(self) -> dict[str, bytes]:
        """What readers see, without markers."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """All names, markers and hidden ones, too."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """The bytes of one."""
        raise NotImplementedError

    def put(self, name: str, body: bytes) -> None:
        """Another program writes a file."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """What jobs have left: open uploads, or files of tasks. (The record of a job that has ended
        stays where directories cannot be renamed: it is no file of a task.)"""
        raise NotImplementedError


class InBucket(There):
    """On S3."""

    url = DEST

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def data(self) -> dict[str, bytes]:
        return {key.removeprefix("t/"): body for key, body in visible(self.store).items()}

    def names(self) -> list[str]:
        return [key.removeprefix("t/") for key in self.store.keys("t/")]

    def read(self, name: str) -> bytes:
        return self.store.body(f"t/{name}")

    def put(self, name: str, body: bytes) -> None:
        self.store.put(f"t/{name}", body)

    def left(self) -> list[str]:
        return [upload.key for upload in self.store.open_uploads()]


class OnDisk(There):
    """On a file system."""

    def __init__(self, url: str, committer: str) -> None:
        self.url, self.committer = url, committer

    @property
    def tree(self) -> FileTree:
        """The file system, as it is."""
        return tree_for(self.url)

    def names(self) -> list[str]:
        return sorted(entry.path for entry in walk(self.tree, "") if entry.kind == "file")

    def data(self) -> dict[str, bytes]:
        return {
            path: self.read(path)
            for path in self.names()
            if "_temporary" not in path.split("/") and not path.endswith("_SUCCESS")
        }

    def read(self, name: str) -> bytes:
        return self.tree.read(name, 2**30)

    def put(self, name: str, body: bytes) -> None:
        tree = self.tree
        tree.make_root()
        make_directories(tree, parent_of(name))
        tree.create(name, body)

    def left(self) -> list[str]:
        return [
            path for path in self.names() if "00" in path.partition("_temporary/")[2].split("/")
        ]


DISKS = ("manifest", "v1", "v2", "fsspec")
KINDS = ("s3", *DISKS)


def opened(kind: str, directory: Path) -> Iterator[There]:
    """A destination of a kind, and its end."""
    if kind == "s3":
        with memory_store() as store:
            yield InBucket(store)
    elif kind == "fsspec":
        fsspec = pytest.importorskip("fsspec")  # the extra `fsspec`
        yield OnDisk(f"memory:/{directory}/t", "manifest")
        fs = fsspec.filesystem("memory")
        if fs.exists(str(directory)):
            fs.rm(str(directory), recursive=True)
    else:
        yield OnDisk((directory / "t").as_uri(), kind)


@pytest.fixture(params=KINDS)
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[There]:
    """An empty destination of each kind."""
    yield from opened(request.param, tmp_path)


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OnDisk]:
    """An empty destination of each kind that is a file system."""
    for one in opened(request.param, tmp_path):
        assert isinstance(one, OnDisk)
        yield one

"""One test for each kind of destination: S3 in memory, and a local disk under each committer.

A test that takes the fixture `there` says what holds everywhere. What holds on one kind only is a
test of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
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
        return mc.write(self.url, **self.terms, **more)

    def start(self, **more: Any) -> mc.Job:
        return mc.start(self.url, **self.terms, **more)

    def data(self) -> dict[str, bytes]:
        """What readers see, without markers."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """All names, markers and hidden ones, too."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        raise NotImplementedError

    def put(self, name: str, body: bytes) -> None:
        """Another program writes a file."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """What jobs have left: open uploads, or files of tasks."""
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
    """On a local disk."""

    def __init__(self, root: Path, committer: str) -> None:
        self.root, self.url, self.committer = root, root.as_uri(), committer

    def names(self) -> list[str]:
        paths = self.root.rglob("*")
        return sorted(p.relative_to(self.root).as_posix() for p in paths if p.is_file())

    def data(self) -> dict[str, bytes]:
        return {
            path: self.read(path)
            for path in self.names()
            if not path.startswith(CONTROL) and not path.endswith("_SUCCESS")
        }

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def put(self, name: str, body: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(body)

    def left(self) -> list[str]:
        return [path for path in self.names() if path.startswith(WAITING)]


CONTROL = ("__magic", "_temporary/")
WAITING = ("__magic_uploads/", "_temporary/")
DISKS = ("magic", "manifest", "v1", "v2")
KINDS = ("s3", *DISKS)


def opened(kind: str, directory: Path) -> Iterator[There]:
    """A destination of a kind, and its end."""
    if kind == "s3":
        with memory_store() as store:
            yield InBucket(store)
    else:
        yield OnDisk(directory / "t", kind)


@pytest.fixture(params=KINDS)
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[There]:
    """An empty destination of each kind."""
    yield from opened(request.param, tmp_path)


@pytest.fixture(params=DISKS[1:])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OnDisk]:
    """An empty destination of each kind in which tasks' files wait on the file system."""
    for one in opened(request.param, tmp_path):
        assert isinstance(one, OnDisk)
        yield one

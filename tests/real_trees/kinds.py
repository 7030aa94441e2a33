"""Which file systems there are, and which of them a run wants.

    MAGIC_COMMITTER_TEST_TREES=sftp,hdfs    only these
    MAGIC_COMMITTER_TEST_TREES=all          all (`make trees`)

Unset, as in CI: all but ``gs``, whose server takes minutes to build; it too, where it is built.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path

from tests.real_servers.building import cache
from tests.real_servers.getting import ALL, Choice
from tests.real_servers.server import NoServer
from tests.real_trees import google, hdfs, openssh


@contextmanager
def disk(folder: Path) -> Iterator[str]:
    """This machine's disk."""
    yield folder.as_uri()


@contextmanager
def memory(folder: Path) -> Iterator[str]:
    """fsspec's memory, of this process."""
    yield f"memory://{folder.name}"


KINDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "local": disk, "memory": memory, "sftp": openssh.running, "hdfs": hdfs.running,
    "gs": google.running,
}  # fmt: skip
CLIENTS = {"sftp": "paramiko", "hdfs": "hdfs_native", "gs": "gcsfs"}
"""What must be importable."""
OTHER_PROCESSES = ("sftp", "hdfs", "gs")
"""Those that another process reaches; a local disk has tests/chaos."""


def _unset() -> tuple[str, ...]:
    has_google = (cache("servers") / f"fake-gcs-server-{google.VERSION}").exists()
    return tuple(kind for kind in KINDS if kind != "gs" or has_google)


GET: dict[str, Callable[[], object]] = {
    **dict.fromkeys(KINDS, lambda: None), "sftp": openssh.install, "hdfs": hdfs.jars,
    "gs": google.binary,
}  # fmt: skip
CHOICE = Choice("tests/real_trees", "MAGIC_COMMITTER_TEST_TREES", GET, _unset)


def all_wanted() -> bool:
    """Whether this run wants all that there is, and takes its time."""
    return os.environ.get(CHOICE.on) == ALL


@contextmanager
def running(kind: str) -> Iterator[str]:
    """Run the server of a kind; gives the URL of an empty directory. Raises NoServer: it cannot be
    had here, or its client is not installed."""
    if kind in CLIENTS:
        try:
            import_module(CLIENTS[kind])
        except ImportError as error:
            raise NoServer(f"{CLIENTS[kind]} cannot be imported: {error}") from error
    with tempfile.TemporaryDirectory(prefix=f"{kind}-") as folder, KINDS[kind](Path(folder)) as url:
        yield url

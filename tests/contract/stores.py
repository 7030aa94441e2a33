"""The stores that the suite runs on. `tests.deviations` has where each is known to break a rule.

A test that a store is known to fail runs all the same and must fail. The rules are S3's.

A real server joins by environment: ``MAGIC_COMMITTER_TEST_ENDPOINT`` (its URL),
``MAGIC_COMMITTER_TEST_BUCKET`` (an existing bucket), ``MAGIC_COMMITTER_TEST_STORE`` (its row below,
if it has one), and credentials as for every AWS tool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from magic_committer.options import S3Options, Transport
from magic_committer.runtime.components import new_id
from magic_committer.stores.base import ObjectStore
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3 import S3Store
from magic_committer.stores.tree import TreeStore
from magic_committer.stores.trees import disk
from magic_committer.stores.trees.dialects import tree_for
from tests import deviations
from tests.real_servers.server import NoServer
from tests.real_trees import kinds
from tests.servers import HurriedClock, moto_options, moto_server

ENDPOINT = "MAGIC_COMMITTER_TEST_ENDPOINT"
BUCKET = "MAGIC_COMMITTER_TEST_BUCKET"
STORE = "MAGIC_COMMITTER_TEST_STORE"

BY_BOTO3 = "-boto3"
"""Ends the name of a store that is asked by boto3; the same ones without it by the fast way."""
CONTROL = "tree-control"
"""A directory, where the keys are those of control objects. ``tree-links`` cannot rename
exclusively, as NFS. ``fsspec`` is its memory, ``sftp`` a server of OpenSSH where there is one."""
NAMES = (
    "memory",
    "memory-paged",
    "moto",
    "moto-boto3",
    *("tree", CONTROL, "tree-links"),
    *("fsspec", "fsspec-control", "sftp"),
    *(("real", "real-boto3") if ENDPOINT in os.environ else ()),
)


def deviation(name: str, test: str) -> str | None:
    """What the store is known to do instead of what the test claims; None if it keeps the rule."""
    return deviations.deviation(_row(name), test)


def by_chance(name: str, test: str) -> bool:
    """Whether the store does so in some runs only."""
    return deviations.by_chance(_row(name), test)


def _row(name: str) -> str:
    name = name.removesuffix(BY_BOTO3).removesuffix("-links")
    return os.environ.get(STORE, "") if name == "real" else name


@contextmanager
def opened(name: str) -> Iterator[ObjectStore]:
    """A store of that name with an empty bucket (a real one's is as it was)."""
    if name == "memory":
        yield MemoryStore()
        return
    if name == "memory-paged":
        yield MemoryStore(page_keys=2, forgetful_complete=True)
        return
    if name.startswith("tree"):
        with TemporaryDirectory() as root, ExitStack() as stack:
            if name == "tree-links":
                stack.enter_context(patch.object(disk, "rename_by", lambda *_: False))
            yield TreeStore(root, "contract")
        return
    if name in ("fsspec", "fsspec-control"):
        yield TreeStore(tree_for(f"memory://contract-{new_id()}"), "contract")
        return
    if name == "sftp":
        try:
            with kinds.running("sftp") as url:
                yield TreeStore(tree_for(f"{url}/t"), "contract")
        except NoServer as error:
            pytest.skip(str(error))
        return
    transport: Transport = "boto3" if name.endswith(BY_BOTO3) else "fast"
    if name.startswith("moto"):
        with moto_server("contract") as url:
            options = replace(moto_options(url), transport=transport)
            yield S3Store("contract", options, clock=HurriedClock())
    else:
        options = S3Options(
            endpoint_url=os.environ[ENDPOINT], retry_attempts_max=2, transport=transport
        )
        yield S3Store(os.environ[BUCKET], options)

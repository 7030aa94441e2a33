"""Puts the parts together for one process: its store, its threads, its memory for blocks.

This is the only module that knows a store by name. A test, or a program with its own store,
registers that store for its bucket. Every other bucket is S3, reached as the environment says.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable
from weakref import WeakValueDictionary

from magic_committer.errors import NotSupported, OptionError, WrongType
from magic_committer.options import S3Options, shown
from magic_committer.runtime.components import (
    Clock,
    Progress,
    ProgressFunction,
    Runtime,
    SystemClock,
    no_progress,
)
from magic_committer.runtime.threads import ThreadPool, of_handler
from magic_committer.stores.base import ObjectStore
from magic_committer.stores.urls import is_tree
from magic_committer.upload import BlockSource

logger = logging.getLogger("magic_committer")

pool = ThreadPool()
blocks = BlockSource()

OtherBuckets = Literal["raise", "allow"]
"""What a bucket without a registered store is: an error, or S3 as the environment says."""


_registered: list[tuple[Runtime, OtherBuckets]] = []
"""The newest last. Items are only appended and removed. Both are atomic, so that there is no lock
that a fork could leave locked."""


def register_store(
    store: ObjectStore, clock: Clock | None = None, *, other_buckets: OtherBuckets = "allow"
) -> None:
    """Use ``store`` for its bucket in this process, in place of S3: for tests (see
    `magic_committer.testing`) and for a program's own stores. Holds for all threads. If the bucket
    already has a store, the new one is used until it is unregistered. ``clock``: for the waits of
    its jobs; None: this machine's. ``other_buckets="raise"``: meanwhile every bucket without a
    registered store is an `OptionError`, so that nothing can reach the real S3."""
    if other_buckets not in get_args(OtherBuckets):
        raise OptionError(
            f"other_buckets={other_buckets!r} is none of {', '.join(get_args(OtherBuckets))}"
        )
    _registered.append((Runtime(store, pool, clock or SystemClock()), other_buckets))


def unregister_store(store: ObjectStore) -> None:
    """Undo `register_store`. Repeatable; a store that is not registered is no error."""
    for one in tuple(_registered):
        if one[0].store is store:
            _registered.remove(one)


def _registered_for(bucket: str) -> Runtime | None:
    """What is registered for a bucket; None: the bucket is S3, or a file tree."""
    known = tuple(_registered)
    for runtime, _ in reversed(known):
        if runtime.store.bucket == bucket:
            return runtime
    if any(others == "raise" for _, others in known) and not is_tree(bucket):
        names = ", ".join(repr(name) for name in sorted({one.store.bucket for one, _ in known}))
        raise OptionError(
            f"bucket {bucket!r} is not in memory, only {names}: nothing was sent to the real one",
            hint=f"Open memory_store({bucket!r}) too; or let other buckets be the real ones:"
            " memory_store(..., other_buckets='allow')",
        )
    return None


Held = dict[str, Any]
"""The stores of a job, by bucket. While it is open, it keeps the credentials and the endpoint with
which it began, whatever the environment is meanwhile."""


def runtime_for(
    bucket: str, s3: S3Options, progress: ProgressFunction, held: Held | None = None
) -> Runtime:
    """The components for one bucket in this process. ``progress``: the caller's function; its
    errors are logged, not raised. ``held``: the job's stores; None: there is no job yet."""
    pool.ready_for_late()
    progress = harmless(progress)
    known = _registered_for(bucket)
    if known is not None:
        return replace(known, progress=progress, pool=pool)
    if is_tree(bucket):
        return Runtime(_tree_store(bucket, held), pool, progress=progress)
    from magic_committer.stores.s3.client import connect  # late: the import of boto3 takes long

    return Runtime(connect(bucket, s3, held), pool, progress=progress)


_tree_stores: WeakValueDictionary[str, ObjectStore] = WeakValueDictionary()
"""One for each directory: it knows what was written and may not last yet."""


def _tree_store(url: str, held: Held | None) -> ObjectStore:
    from magic_committer.stores.tree import TreeStore
    from magic_committer.stores.trees.dialects import tree_for  # late: jobs on S3 have no tree

    store = _tree_stores.get(url)
    if store is None:
        store = _tree_stores.setdefault(url, TreeStore(tree_for(url), url))
    if held is not None:
        held[url] = store
    return store


@runtime_checkable
class BucketSettings(Protocol):
    """What `magic_committer.maintenance.lifecycle` needs from a bucket. A registered store with
    these two methods answers for its bucket."""

    def lifecycle(self) -> Mapping[str, Any]:
        """The lifecycle configuration, in the shape of S3's API; {} if there is none. Raises
        NotSupported: the store has no lifecycle configurations. Raises FormatError: the
        configuration holds something that this library could not write back."""

    def put_lifecycle(self, configuration: Mapping[str, Any]) -> None:
        """Replace the lifecycle configuration. Repeatable."""


def bucket_settings(bucket: str, s3: S3Options) -> BucketSettings:
    """The settings of one bucket."""
    known = _registered_for(bucket)
    if known is not None:
        if isinstance(known.store, BucketSettings):
            return known.store
        raise NotSupported(
            f"the store registered for bucket {bucket!r} has no lifecycle",
            operation="get_lifecycle",
            bucket=bucket,
        )
    from magic_committer.stores.s3.lifecycle import S3Lifecycle  # late, as above

    return S3Lifecycle(bucket, s3)


def harmless(progress: ProgressFunction) -> ProgressFunction:
    """Wrap a caller's function, so that its error cannot come between a decision and its execution.
    The first error is logged; the function is then not called again."""
    if progress is no_progress:
        return progress
    if not callable(progress):
        told = f"progress is a function, not {shown(progress)}"
        raise WrongType(told, hint="Pass progress=print")
    raised = False

    def tell(step: Progress) -> None:
        nonlocal raised
        if raised:
            return
        before = sys.exception()
        try:
            progress(step)
        except Exception as error:
            if of_handler(error, before) is not None:
                raise
            raised = True
            logger.warning("the progress function raised, it is not called again", exc_info=True)

    return tell

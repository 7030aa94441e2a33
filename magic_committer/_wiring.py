"""Where the parts are put together for one process: its store, its threads, its memory for blocks.

The only module that knows a store by name. A test, or a program with a store of its own, registers
it for its bucket; every other bucket is S3, reached as the environment says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from magic_committer._pool import ThreadPool
from magic_committer._runtime import Clock, Progress, ProgressFunction, Runtime, SystemClock
from magic_committer.errors import NotSupported, OptionError
from magic_committer.options import S3Options
from magic_committer.stores.base import ObjectStore
from magic_committer.upload import BlockSource

logger = logging.getLogger("magic_committer")

pool = ThreadPool()
blocks = BlockSource()

OtherBuckets = Literal["raise", "allow"]
"""What a bucket is that no store is registered for: an error, or S3 as the environment says."""


@dataclass(frozen=True, slots=True, eq=False)
class _Registered:
    bucket: str
    store: ObjectStore
    clock: Clock
    others: OtherBuckets


_registered: list[_Registered] = []
"""The newest last. Only ever appended to and removed from, each of which is atomic: no lock that a
fork could leave locked."""


def register_store(
    store: ObjectStore, clock: Clock | None = None, *, other_buckets: OtherBuckets = "allow"
) -> None:
    """Use ``store`` for its bucket in this process, in place of S3: for tests (see
    `magic_committer.testing`) and for stores of one's own. Holds for all threads. If the bucket has
    a store already, the new one is used until it is unregistered.

    Args:
        clock: by which jobs there wait; None: this machine's.
        other_buckets: ``"raise"``: until it is unregistered, every bucket without a registered
            store is an `OptionError`, so that nothing can reach the real S3. ``"allow"``: they are
            reached as the environment says.

    Raises:
        OptionError: ``other_buckets`` is neither. Nothing is registered.
    """
    if other_buckets not in get_args(OtherBuckets):
        raise OptionError(
            f"other_buckets={other_buckets!r} is none of {', '.join(get_args(OtherBuckets))}"
        )
    _registered.append(_Registered(store.bucket, store, clock or SystemClock(), other_buckets))


def unregister_store(store: ObjectStore) -> None:
    """Undo `register_store`. Repeatable; a store that is not registered is fine."""
    for one in tuple(_registered):
        if one.store is store:
            _registered.remove(one)


def _registered_for(bucket: str) -> _Registered | None:
    """Who answers for a bucket; None: S3.

    Raises:
        OptionError: nobody does, and a registered store allows no other buckets.
    """
    known = tuple(_registered)
    for one in reversed(known):
        if one.bucket == bucket:
            return one
    if any(one.others == "raise" for one in known):
        names = ", ".join(repr(name) for name in sorted({one.bucket for one in known}))
        raise OptionError(
            f"bucket {bucket!r} is not in memory, only {names}: nothing was sent to the real one",
            hint=f"Open memory_store({bucket!r}) too; or let other buckets be the real ones:"
            " memory_store(..., other_buckets='allow')",
        )
    return None


@contextmanager
def in_memory(bucket: str) -> Iterator[ObjectStore]:
    """Use an in-memory store for ``bucket`` in this process while the block runs: to try things
    where there is no S3. Every other bucket is an `OptionError` meanwhile. Tests have
    `magic_committer.testing`."""
    from magic_committer.stores.memory import (
        MemoryStore,  # late: nobody else in production needs it
    )

    store = MemoryStore(bucket)
    register_store(store, other_buckets="raise")
    try:
        yield store
    finally:
        unregister_store(store)


def runtime_for(bucket: str, s3: S3Options, progress: ProgressFunction) -> Runtime:
    """The components for one bucket in this process.

    Raises:
        OptionError: no store is registered for the bucket, and one that is allows no others.
    """
    pool.ready_for_late()
    progress = _harmless(progress)
    known = _registered_for(bucket)
    if known is not None:
        return Runtime(store=known.store, pool=pool, clock=known.clock, progress=progress)
    from magic_committer.stores.s3.client import connect  # late: boto3 takes a while to import

    return Runtime(store=connect(bucket, s3), pool=pool, progress=progress)


def buckets(s3: S3Options) -> list[str]:
    """The names of all buckets that this process reaches: the account's, and those of registered
    stores; only these, where one of them allows no other buckets.

    Raises:
        StoreError: the account's could not be listed.
    """
    known = tuple(_registered)
    names = {one.bucket for one in known}
    if any(one.others == "raise" for one in known):
        return sorted(names)
    from magic_committer.stores.s3.client import list_buckets  # late, as above

    return sorted(names.union(list_buckets(s3)))


@runtime_checkable
class BucketSettings(Protocol):
    """What `magic_committer.maintenance.lifecycle` asks of a bucket. A store that is registered in
    this process and has these two methods answers for its bucket."""

    def lifecycle(self) -> Mapping[str, Any]:
        """The lifecycle configuration, in the shape of S3's API; {} if there is none.

        Raises:
            NotSupported: the store has no such thing.
            FormatError: it holds what could not be written again.
        """
        ...

    def put_lifecycle(self, configuration: Mapping[str, Any]) -> None:
        """Replace the lifecycle configuration by another. Repeatable."""
        ...


def bucket_settings(bucket: str, s3: S3Options) -> BucketSettings:
    """The settings of one bucket.

    Raises:
        NotSupported: the store that is registered for the bucket has none.
        OptionError: as `runtime_for`.
    """
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


def _harmless(progress: ProgressFunction) -> ProgressFunction:
    """A caller's function that raises must not come between a decision and its execution: it is
    logged, once, and not asked again."""
    raised = False

    def tell(step: Progress) -> None:
        nonlocal raised
        if raised:
            return
        try:
            progress(step)
        except Exception:
            raised = True
            logger.warning("the progress function raised, it is not called again", exc_info=True)

    return tell

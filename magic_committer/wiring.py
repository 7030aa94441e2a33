"""Where the parts are put together for one process: its store, its threads, its memory for blocks.

The only module that knows a store by name. A test, or a program with a store of its own, registers
it for its bucket; every other bucket is S3, reached as the environment says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from magic_committer.errors import NotSupported
from magic_committer.options import S3Options
from magic_committer.pool import ThreadPool
from magic_committer.runtime import Clock, Progress, ProgressFunction, Runtime, SystemClock
from magic_committer.store import ObjectStore
from magic_committer.upload import BlockSource

logger = logging.getLogger("magic_committer")

pool = ThreadPool()
blocks = BlockSource()
_registered: dict[str, tuple[ObjectStore, Clock]] = {}


def register_store(store: ObjectStore, clock: Clock | None = None) -> None:
    """Use ``store`` for its bucket in this process, in place of S3: for tests (see
    `magic_committer.testing`) and for stores of one's own. ``clock``: by which jobs there wait."""
    _registered[store.bucket] = (store, clock or SystemClock())


def unregister_store(store: ObjectStore) -> None:
    """Undo `register_store`."""
    _registered.pop(store.bucket, None)


@contextmanager
def in_memory(bucket: str) -> Iterator[ObjectStore]:
    """Use an in-memory store for ``bucket`` in this process while the block runs: to try things
    where there is no S3. Tests have `magic_committer.testing`."""
    from magic_committer.memory import MemoryStore  # late: nobody else in production needs it

    store = MemoryStore(bucket)
    register_store(store)
    try:
        yield store
    finally:
        unregister_store(store)


def runtime_for(bucket: str, s3: S3Options, progress: ProgressFunction) -> Runtime:
    """The components for one bucket in this process."""
    pool.ready_for_late()
    progress = _harmless(progress)
    if bucket in _registered:
        store, clock = _registered[bucket]
        return Runtime(store=store, pool=pool, clock=clock, progress=progress)
    from magic_committer.s3.client import connect  # late: boto3 takes a while to import

    return Runtime(store=connect(bucket, s3), pool=pool, progress=progress)


@runtime_checkable
class BucketSettings(Protocol):
    """What `magic_committer.recovery.lifecycle` asks of a bucket. A store that is registered in
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
    """
    if bucket in _registered:
        store, _ = _registered[bucket]
        if isinstance(store, BucketSettings):
            return store
        raise NotSupported(
            f"the store registered for bucket {bucket!r} has no lifecycle",
            operation="get_lifecycle",
            bucket=bucket,
        )
    from magic_committer.s3.lifecycle import S3Lifecycle  # late, as above

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

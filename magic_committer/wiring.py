"""Where the parts are put together for one process: its store, its threads, its memory for blocks.

The only module that knows a store by name. A test, or a program with a store of its own, registers
it for its bucket; every other bucket is S3, reached as the environment says.
"""

from __future__ import annotations

import logging

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


def runtime_for(bucket: str, s3: S3Options, progress: ProgressFunction) -> Runtime:
    """The components for one bucket in this process."""
    pool.ready_for_late()
    progress = _harmless(progress)
    if bucket in _registered:
        store, clock = _registered[bucket]
        return Runtime(store=store, pool=pool, clock=clock, progress=progress)
    from magic_committer.s3.client import connect  # late: boto3 takes a while to import

    return Runtime(store=connect(bucket, s3), pool=pool, progress=progress)


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

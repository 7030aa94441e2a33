"""Objects and uploads on which a store is tried. They are in a job's directory, carry that job's
token, and are removed when the trial ends, however it ends. If a process is killed, they are litter
of its job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, nullcontext
from types import TracebackType
from typing import Any, TypeVar

from magic_committer._patience import cleaning_up
from magic_committer._pool import Outcome
from magic_committer._runtime import Runtime
from magic_committer.errors import NotSupported, StoreError
from magic_committer.protocol.record import JOB_METADATA, ObjectRef
from magic_committer.stores.base import Attributes, Part, UploadInfo, uploads

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("magic_committer")

REQUESTS_IN_FLIGHT = 32
NONCE_CHARS = 8
"""Distinguishes trials of one job that run at once."""


class Scratch:
    """Objects and uploads of one trial, each under a key that nobody else has. They are removed
    when the ``with`` ends, however it ends. What cannot be removed is logged. ``left``: after the
    ``with``, the keys whose uploads stay open, each with the reason."""

    def __init__(self, runtime: Runtime, directory: str, uuid: str) -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.clock = runtime.clock
        self.root = f"{directory}probe-{runtime.ids()[-NONCE_CHARS:]}/"
        self.uuid = uuid
        self.metadata = {JOB_METADATA: uuid}
        self.left: dict[str, StoreError] = {}
        self._keys: set[str] = set()
        self._uploads: list[UploadInfo] = []
        self._unsure: set[str] = set()  # keys that may have an upload whose id is not known

    def key(self, name: str) -> str:
        """A scratch key. Its last element names the job, so that a sweep knows an upload there as
        the job's."""
        return f"{self.root}{name}-mcj{self.uuid}"

    def put(self, name: str) -> ObjectRef:
        """Write a scratch object."""
        key = self.key(name)
        self._keys.add(key)
        written = self.store.put(key, b"object", metadata=self.metadata)
        return ObjectRef(key, written.etag or self.store.head(key).etag)

    def put_over(self, key: str, **condition: Any) -> None:
        """Write other bytes over a scratch object, if the condition holds."""
        self.store.put(key, b"other", metadata=self.metadata, **condition)

    def create(self, name: str) -> str:
        """Start a scratch upload and give its id."""
        key = self.key(name)
        self._unsure.add(key)
        created = self.store.create_upload(key, attributes=Attributes(metadata=self.metadata))
        self._uploads.append(UploadInfo(key, created.upload_id))
        if created.attempts == 1:
            self._unsure.discard(key)
        return created.upload_id

    def upload(self, name: str) -> tuple[str, tuple[Part, ...]]:
        """Make a scratch upload that is ready to complete: its id and its parts."""
        upload_id = self.create(name)
        self._keys.add(self.key(name))
        part = self.store.put_part(self.key(name), upload_id, 1, memoryview(b"upload"))
        return upload_id, (part,)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        steps: tuple[tuple[Callable[[Any], None], Iterable[Any]], ...] = (
            (self._abort, self._uploads),
            (self._abort_all, sorted(self._unsure)),
            (self.store.delete_one, sorted(self._keys)),
        )
        with cleaning_up(error) if error is not None else nullcontext():
            for step, items in steps:
                self._remove(step, items)

    def _remove(self, step: Callable[[Any], None], items: Iterable[Any]) -> None:
        with closing(self.each(step, items)) as outcomes:
            for outcome in outcomes:
                if not isinstance(outcome.error, StoreError):
                    outcome.unwrap()
                    continue
                logger.warning("a probe of the store leaves %s: %s", outcome.item, outcome.error)
                if isinstance(outcome.item, UploadInfo):
                    self.left[outcome.item.key] = outcome.error

    def each(
        self, function: Callable[[T], R], items: Iterable[T]
    ) -> Generator[Outcome[T, R], None, None]:
        """Send many requests at once and give their outcomes, as `Pool.each`."""
        return self.runtime.pool.each(function, items, in_flight=REQUESTS_IN_FLIGHT)

    def _abort(self, upload: UploadInfo) -> None:
        self.store.abort_upload(upload.key, upload.upload_id)

    def _abort_all(self, key: str) -> None:
        try:
            for upload in uploads(self.store, key):
                self._abort(upload)
        except NotSupported:
            return  # nothing can tell whether there is one

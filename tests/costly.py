"""A store on which a needless abort does harm, and one whose listing of uploads lags behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.base import Part, UploadInfo, UploadPage, Written
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock


class CostlyStore(MemoryStore):
    """Aborting an upload that was completed deletes the object at its key (docs/stores.md).

    Attributes:
        lags: its listing shows completed uploads as if they were open.
        done: those that were completed, by id.
        lost: the keys whose object an abort has cost.
    """

    lags = False

    def __init__(self, clock: PatientClock, **rules: Any) -> None:
        super().__init__(clock=clock.now, **rules)
        self.done: dict[str, UploadInfo] = {}
        self.lost: list[str] = []

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **terms: Any
    ) -> Written:
        upload = next((u for u in self.open_uploads(key) if u.upload_id == upload_id), None)
        written = super().complete_upload(key, upload_id, parts, **terms)
        if upload is not None:
            self.done[upload_id] = upload
        return written

    def abort_upload(self, key: str, upload_id: str) -> None:
        super().abort_upload(key, upload_id)
        if upload_id in self.done:
            self.lost.append(key)
            self.delete_object(key)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        if not self.lags:
            yield from super().list_uploads(prefix)
            return
        pages = list(super().list_uploads(prefix))
        shown = [upload for page in pages for upload in page.uploads]
        shown += (upload for upload in self.done.values() if upload.key.startswith(prefix))
        shown.sort(key=lambda upload: (upload.key, upload.upload_id))  # as a store lists them
        yield UploadPage(tuple(shown), pages[-1].seen_at)


@contextmanager
def costly_store(clock: PatientClock | None = None) -> Iterator[CostlyStore]:
    """Use one for the bucket ``bucket`` while the block runs."""
    clock = clock or PatientClock()
    store = CostlyStore(clock)
    register_store(store, clock)
    try:
        yield store
    finally:
        unregister_store(store)

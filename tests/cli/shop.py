"""Open uploads of all kinds of owners, on a store that can be told to behave badly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.hadoop.documents import UploadEtag, encode_pending, new_pending
from magic_committer.hadoop.paths import Destination, java_uri, unique_name
from magic_committer.maintenance.uploads import Clearing, Filters, OpenUploads
from magic_committer.options import Options, S3Options
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.runtime import wiring
from magic_committer.runtime.components import no_progress
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.base import UploadInfo, UploadPage
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.at_once import AtOnce
from tests.costly import CostlyStore
from tests.promises.hands import DEST, job_of
from tests.promises.machine import DAY, YOUNG

__all__ = ["DAY", "DEST", "YOUNG"]

GONE = "0" * 32
"""The UUID of a job that has no record."""
LATER = ("--older-than", "1h", "--yes")
FOREIGN = ("--foreign", *LATER)


class Listing(CostlyStore, AtOnce):
    """A store on which the abort of a completed upload costs its object, and whose listing of
    uploads can be told to lie.

    Attributes:
        at_once: it takes many requests from one thread.
        young: of these keys a listing by exact key says that they began just now.
        ageless: of these keys it does not say when they began.
        unseen: of these it shows nothing.
        ghosts: uploads that it shows first, as if they were open.
        deaf: so many aborts of each upload have no effect.
    """

    def __init__(self, clock: PatientClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.at_once = False
        self.young: set[str] = set()
        self.ageless: set[str] = set()
        self.unseen: set[str] = set()
        self.ghosts: tuple[UploadInfo, ...] = ()
        self.deaf = 0
        self._heard: dict[str, int] = {}

    def many(self) -> Any:
        return self if self.at_once else None

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        ghosts = tuple(one for one in self.ghosts if one.key.startswith(prefix))
        if ghosts:
            yield UploadPage(ghosts, self.clock.now())
        for page in super().list_uploads(prefix):
            shown = page.uploads if prefix not in self.unseen else ()
            if prefix in self.young:
                shown = tuple(replace(one, initiated=page.seen_at) for one in shown)
            shown = tuple(
                replace(one, initiated=None) if one.key in self.ageless else one for one in shown
            )
            yield replace(page, uploads=shown)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._heard[upload_id] = self._heard.get(upload_id, 0) + 1
        if self._heard[upload_id] > self.deaf:
            super().abort_upload(key, upload_id)


@dataclass
class Shop:
    """A store, its clock, and hands for it."""

    store: Listing
    clock: PatientClock
    command: Callable[..., Any]

    def orphans(self, count: int) -> list[str]:
        """Uploads of a job without a record; their ids."""
        return [
            self.store.start_upload(f"t/{unique_name(f'{number:05}.csv', GONE)}")
            for number in range(count)
        ]

    def open(self) -> set[str]:
        return {one.upload_id for one in self.store.open_uploads()}

    def later(self, seconds: float) -> None:
        self.clock.ahead += seconds

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        ran = self.command("uploads", *arguments, "--format", "json")
        assert ran.code in (0, 46), ran.err
        listed: list[dict[str, Any]] = ran.json()["rows"]
        return listed

    def owners(self, path: str = DEST) -> dict[str, tuple[str, str]]:
        """Class and job of each upload, by id."""
        return {row["upload_id"]: (row["class"], row["job"]) for row in self.rows("list", path)}

    def abort(self, *options: object) -> Any:
        return self.command("uploads", "abort", DEST, "--yes", *options)

    def actions(self, *options: object) -> list[str]:
        """What an abort does to each upload that was chosen."""
        return [row["action"] for row in self.rows("abort", DEST, "--yes", *options)]


def put_pending(
    store: MemoryStore, place: str, key: str, upload_id: str, *, uuid: str = "",
    extra: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """A `.pending` at ``place`` that names an upload, of a job's UUID or of none."""
    pending = new_pending(
        uri=java_uri("bucket", key), upload_id=upload_id, bucket="bucket", destination_key=key,
        created_ms=0, etags=(UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', None, None),),
        length=3, extra_data=extra or {}, task_id="t",
    )  # fmt: skip
    metadata = {JOB_METADATA: uuid} if uuid else {}
    store.put_object(f"{place}/x.pending", encode_pending(pending), metadata=metadata)


def pending_job(job_id: str = "j", files: int = 3) -> mc.Job:
    """A running job with one committed task."""
    return job_of({f"{job_id}-{n}.csv": b"abc" for n in range(files)}, job_id=job_id)


def planned(
    age: float = YOUNG, *, hadoop: bool = False, sizes: bool = True, progress: Any = no_progress
) -> Clearing:
    """A run of ``uploads abort`` as it is told to the operator, before the question is answered."""
    runtime = wiring.runtime_for("bucket", S3Options(), progress)
    found = OpenUploads(
        runtime, Destination("bucket", "t/"), Filters(age), sizes=sizes,
        options=Options(commit_threads=4),
    )  # fmt: skip
    return Clearing(found, hadoop=hadoop)


@pytest.fixture
def shop(command: Callable[..., Any]) -> Iterator[Shop]:
    """The bucket ``bucket``."""
    clock = PatientClock()
    store = Listing(clock)
    register_store(store, clock)
    yield Shop(store, clock, command)
    store.before = store.after = None
    unregister_store(store)

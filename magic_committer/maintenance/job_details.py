"""One job in detail: what `inspect` says about it, its plan, and its files, each with its state.
Only reads. A file needs a few requests, so only the first files are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.load import stored_uploads
from magic_committer.commit.plans import load_plan
from magic_committer.commit.ready import ReadyUpload, from_pending
from magic_committer.commit.upload_state import UploadState, upload_state
from magic_committer.errors import FormatError, NotFound
from magic_committer.hadoop.paths import (
    SAVED_SUFFIXES,
    SET_SUFFIXES,
    Destination,
    JobPaths,
    set_name,
)
from magic_committer.maintenance.inspect import (
    Listing,
    inspect_job,
    pendings_of,
)
from magic_committer.maintenance.reports import FoundJob
from magic_committer.protocol.record import TASK_METADATA, JobRecord, StartedJob, State

FATES: Mapping[UploadState, str] = {
    UploadState.OPEN: "open",
    UploadState.VISIBLE: "visible",
    UploadState.GONE: "missing",
    UploadState.UNKNOWN: "unknown",
}
"""What to call the state of an upload."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """One file of a job.

    Attributes:
        task: its task's id; "" as long as its attempt is not committed.
        fate: the state of its upload. ``"open"``; ``"visible"``: it became the object at its key;
            ``"missing"``: it is gone, and the object at its key is not what it became;
            ``"unknown"``: nobody can tell now.
    """

    key: str
    bytes: int
    task: str
    upload_id: str
    fate: str

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class ShownJob:
    """One job in detail.

    Attributes:
        plan: the key of the plan that the record names; "" if there is none.
        listed: the first files: of the plan if there is one, otherwise of what the tasks left.
    """

    found: FoundJob
    plan: str
    listed: tuple[ShownFile, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        listed = [file.to_dict() for file in self.listed]
        return {**self.found.to_dict(), "plan": self.plan, "listed": listed}


def show_job(
    runtime: Runtime, dest: Destination, job_id: str, dead_after: float, files_max: int
) -> ShownJob | None:
    """Look at one job. None if there is none with that id.

    Args:
        runtime, dest, job_id: the components, the destination and the id.
        dead_after: the age in seconds from which ``would`` takes a running job for dead.
        files_max: how many files are looked at.

    Raises:
        PathError: the id cannot be used.
        StoreError: the store did not answer.
    """
    found = inspect_job(runtime, dest, job_id, dead_after)
    if found is None:
        return None
    if found.kind == "unreadable":
        return ShownJob(found, "", ())
    seen = records.read(runtime, JobPaths(dest, job_id).record)
    record = seen.record if seen is not None else None
    if record is None or record.plan is None or record.state is State.CLOSED:
        plan, uploads = "", _left(runtime, dest, found, record)
    else:
        plan, uploads = record.plan.key, _planned(runtime, dest, record)
    listed = (
        ShownFile(u.key, u.length, task, u.upload_id, FATES[upload_state(runtime, u).state])
        for u, task in uploads
    )
    return ShownJob(found, plan, tuple(islice(listed, files_max)))


def _planned(
    runtime: Runtime, dest: Destination, record: JobRecord
) -> Iterator[tuple[ReadyUpload, str]]:
    """The plan's uploads with their tasks. What has been swept meanwhile is passed over."""
    assert record.plan is not None
    with suppress(NotFound):
        job = StartedJob.attached(record, dest.url, "")
        plan = load_plan(runtime, job, record.plan)
        for planned in plan.sets:
            one: Iterable[Any] = stored_uploads(runtime, job, [planned], missing_is_fine=True)
            for uploads, _ in one:
                yield from ((upload, planned.task) for upload in uploads)


def _left(
    runtime: Runtime, dest: Destination, found: FoundJob, record: JobRecord | None
) -> Iterator[tuple[ReadyUpload, str]]:
    """What the tasks left, each upload once. ``found.problem`` says what cannot be read."""
    directories: tuple[str, ...] = (f"{dest.prefix}{found.directory}",)
    owns = None
    if record is not None:
        directories = record.paths(dest).directories
        owns = StartedJob.attached(record, dest.url, "").owns
    known: set[str] = set()
    for info in Listing(runtime, *directories):
        if not info.key.endswith(SAVED_SUFFIXES):
            continue
        try:
            pendings, metadata = pendings_of(runtime, info)
            uploads = [from_pending(pending, info.key) for pending in pendings]
        except (NotFound, FormatError):
            continue
        if owns is not None and not owns(metadata):
            continue
        task = ""
        if info.key.endswith(SET_SUFFIXES):
            name = set_name(info.key)
            task = metadata.get(TASK_METADATA) or name
        for upload in uploads:
            if upload.name not in known:
                known.add(upload.name)
                yield upload, task

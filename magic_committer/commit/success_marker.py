"""`_SUCCESS`: written last, and never over the marker of a job that ran after ours (I8).

Marker first, record second: what the record says then holds for the marker that was read. The PUT
is conditional on what was read, so a late one fails by itself. Ours may be written if

* there is no marker;
* it is the one that our ``completed`` record names: it was there when we completed;
* the job that it describes completed earlier than ours. Each marker holds the Last-Modified of its
  job's ``completed`` record; a foreign one counts by its own.

Of jobs that overlap and complete in the same second either may stay.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.errors import (
    FormatError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.formats import (
    SUCCESS_BYTES_MAX,
    SuccessData,
    decode_success,
    encode_success,
    new_success,
)
from magic_committer.hadoop.statistics import Statistics
from magic_committer.protocol.plan import Plan
from magic_committer.protocol.record import ObjectRef, State

DIAGNOSTIC_UUID = "magic-committer.job"
DIAGNOSTIC_COMPLETED = "magic-committer.completed"
DIAGNOSTIC_NONCE = "magic-committer.nonce"
DIAGNOSTIC_STARTED = "magic-committer.started"
"""When the job was started, by the starter's clock."""

MARKER_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class Marker:
    """A `_SUCCESS` as it is stored.

    Attributes:
        uuid: of its job; "" for one that is not ours.
        completed: when its job completed, in seconds by the store's clock.
        modified: its Last-Modified: every empty `_SUCCESS` has the same ETag.
    """

    etag: str
    uuid: str
    completed: float
    modified: float


def read_marker(runtime: Runtime, key: str) -> Marker | None:
    """Read a marker of whatever kind: ours, Hadoop's, an empty one. One GET."""
    try:
        stored = runtime.store.get(key, max_bytes=SUCCESS_BYTES_MAX)
    except NotFound:
        return None
    except InvalidRequest as error:
        if error.code != "TooLarge":
            raise
        info = runtime.store.head(key)
        return Marker(info.etag, "", info.last_modified, info.last_modified)
    info = stored.info
    try:
        diagnostics = decode_success(stored.body, key).diagnostics or {}
        uuid = diagnostics.get(DIAGNOSTIC_UUID, "")
        completed = float(diagnostics[DIAGNOSTIC_COMPLETED]) if uuid else info.last_modified
    except (FormatError, KeyError, ValueError):
        return Marker(info.etag, "", info.last_modified, info.last_modified)  # a foreign program's
    return Marker(info.etag, uuid, completed, info.last_modified)


def marker_ref(runtime: Runtime, key: str) -> ObjectRef:
    """The marker that is there now, for the ``completed`` record; an empty etag if none is."""
    marker = read_marker(runtime, key)
    return ObjectRef(key, marker.etag, marker.modified) if marker else ObjectRef(key, "")


def may_replace(marker: Marker, named: ObjectRef | None, completed: float) -> bool:
    """Whether our marker may take the place of another's. Pure."""
    if named is not None and named.is_same(marker.etag, marker.modified):
        return True
    return marker.completed < completed


def success_data(
    job_id: str,
    plan: Plan,
    statistics: Statistics,
    filenames: Sequence[str],
    started: float,
    now: float,
) -> SuccessData:
    """What `_SUCCESS` says of a job; `write_marker` adds its diagnostics.

    Args:
        filenames: the first of its files, for people. started: when the record says that the job
            was started. now: both in seconds since 1970.
    """
    document = statistics.to_dict()
    return new_success(
        timestamp_ms=int(now * 1000),
        hostname=socket.gethostname(),
        committer="magic",
        description=f"magic-committer job {job_id}",
        job_id=job_id,
        job_id_source="magic-committer",
        metrics=document["counters"],
        diagnostics={
            "magic-committer.files": str(plan.files),
            "magic-committer.bytes": str(plan.data_bytes),
            "magic-committer.tasks": str(len(plan.sets)),
            DIAGNOSTIC_STARTED: repr(started),
        },
        filenames=tuple(filenames),
        iostatistics=document,
    )


def write_marker(runtime: Runtime, key: str, record_key: str, success: SuccessData) -> str:
    """Write `_SUCCESS` if it is ours to write. Repeatable.

    Args:
        success: without the diagnostics that are added here.

    Returns:
        "" if it is written, or was; else why it was left.

    Raises:
        StoreError: the store failed; the job is committed all the same.
    """
    last: StoreError | None = None
    before: Marker | None = None
    quoted = True
    for _ in range(MARKER_TRIES_MAX):
        try:
            marker = read_marker(runtime, key)
            seen = records.read(runtime, record_key)
        except Unanswered as error:
            last = error
            continue
        if before is not None and before == marker:
            quoted = not quoted  # unchanged and refused: the quoting was not understood (Ceph RGW)
        before = marker
        if seen is None or seen.record.state is not State.COMPLETED:
            return "the job was finished by somebody else"
        record = seen.record
        if marker is not None and marker.uuid == record.uuid:
            return ""
        if marker is not None and not may_replace(marker, record.marker, seen.last_modified):
            return "a job that completed later has marked the destination"
        body = encode_success(
            replace(
                success,
                diagnostics={
                    **success.diagnostics,
                    DIAGNOSTIC_UUID: record.uuid,
                    DIAGNOSTIC_COMPLETED: repr(seen.last_modified),
                    DIAGNOSTIC_NONCE: runtime.ids(),
                },
            )
        )
        try:
            if marker is None:
                runtime.store.put(key, body, if_none_match=True)
            else:
                etag = marker.etag if quoted else records.other_quoting(marker.etag)
                runtime.store.put(key, body, if_match=etag)
        except (PreconditionFailed, NotFound, WriteConflict, Unanswered) as error:
            last = error
            continue  # perhaps by our own success: from the top
        return ""
    assert last is not None
    raise last

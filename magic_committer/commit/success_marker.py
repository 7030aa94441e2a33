"""`_SUCCESS`: written last, and never over the marker of a job that ran after ours (I8).

The marker is read first, the record second: what the record says then holds for that marker. The
PUT is conditional on the marker that was read, so a late PUT fails by itself. Ours may be written
in three cases:

* there is no marker;
* our ``completed`` record names the marker: it was there when we completed;
* the job of the marker completed earlier than ours. Each marker holds the Last-Modified of its
  job's ``completed`` record; for a marker of another program its own Last-Modified counts.

If two jobs overlap and complete in the same second, either marker may stay.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from msgspec.structs import replace

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
from magic_committer.protocol.record import ObjectRef, StartedJob, State
from magic_committer.protocol.rules import Marker, may_replace_marker
from magic_committer.stores.base import listed

DIAGNOSTIC_UUID = "magic-committer.job"
DIAGNOSTIC_COMPLETED = "magic-committer.completed"
DIAGNOSTIC_NONCE = "magic-committer.nonce"
DIAGNOSTIC_STARTED = "magic-committer.started"
"""When the job was started, by the starter's clock."""

MARKER_TRIES_MAX = 5


def read_marker(runtime: Runtime, key: str) -> Marker | None:
    """Read a marker of any kind: ours, Hadoop's, an empty one. One GET; a listing tells ETag and
    time of one that cannot be read."""
    try:
        stored = runtime.store.get(key, max_bytes=SUCCESS_BYTES_MAX)
    except NotFound:
        return None
    except InvalidRequest as error:
        # It is large, or encrypted with a key that is not ours: another program's.
        if error.code != "TooLarge" and error.status != 400:
            raise
        found = listed(runtime.store, key)
        if found is None:
            return None
        return Marker(found.etag, "", found.last_modified, found.last_modified)
    info = stored.info
    try:
        diagnostics = decode_success(stored.body, key).diagnostics or {}
        uuid = diagnostics.get(DIAGNOSTIC_UUID, "")
        completed = float(diagnostics[DIAGNOSTIC_COMPLETED]) if uuid else info.last_modified
    except (FormatError, KeyError, ValueError):
        return Marker(info.etag, "", info.last_modified, info.last_modified)  # another program's
    return Marker(info.etag, uuid, completed, info.last_modified)


def marker_ref(runtime: Runtime, key: str) -> ObjectRef:
    """The marker that is there now, for the ``completed`` record. Its etag is "" if there is
    none."""
    marker = read_marker(runtime, key)
    return ObjectRef(key, marker.etag, marker.modified) if marker else ObjectRef(key, "")


def success_data(
    job: StartedJob,
    plan: Plan,
    statistics: Statistics,
    filenames: Sequence[str],
    started: float,
    now: float,
) -> SuccessData:
    """What `_SUCCESS` says about a job. `write_marker` adds the diagnostics."""
    document = statistics.to_dict()
    return new_success(
        timestamp_ms=int(now * 1000),
        hostname=socket.gethostname(),
        committer=job.terms.committer,
        description=f"magic-committer job {job.id}",
        job_id=job.id,
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


def write_marker(
    runtime: Runtime,
    key: str,
    own: records.Seen,
    success: SuccessData,
    *,
    just_now: bool = False,
) -> str:
    """Write `_SUCCESS` if our marker may be written. Repeatable. Gives "" if it is written now or
    was before; otherwise why it was not.

    ``just_now``: this process has just completed the job. If its record names no marker then, none
    was there, and it is not looked for again: the PUT takes no other's place. One that was there is
    read again, as empty markers of other programs all have one ETag."""
    last: StoreError | None = None
    before: Marker | None = None
    quoted = True
    first = own.record.marker
    absent = just_now and first is not None and not first.etag
    absent = absent and own.record.terms.conditional_writes == "on"
    for number in range(MARKER_TRIES_MAX):
        try:
            marker = None if absent and not number else read_marker(runtime, key)
            seen = records.read_own(runtime, own.key, own.record.uuid)
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
        if marker is not None and not may_replace_marker(marker, record.marker, seen.last_modified):
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
            continue  # perhaps by our own success: start again
        return ""
    assert last is not None
    raise last

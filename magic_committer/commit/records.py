"""The job record on the store: create it, read it, swap it, delete it.

Invariants:

* A swap is conditional on the exact ETag of the state that it leaves. The stored record decides,
  whatever the answer was: after 412, 404, 409 or a lost reply the record is read back. If it holds
  our own nonce, the swap won.
* **An unanswered swap is unknown as long as the state that it leaves is still there.** The same
  bytes are sent again. The old state proves nothing, because the first request may still take
  effect. If a refusal (an expired token, for example) follows an unanswered request, it refuses
  only the second one: the result is what is read back, or `OutcomeUnknown`. The adapter sends a
  request again by itself, so this can happen with one `put`: an error with ``attempts`` above 1 may
  hide a request that takes effect.
* **A refused swap is read back, once.** Between us and the store may be a gateway that refuses
  (400, 403, 501) what the store has already done. Nothing was decided only if the old state is
  there. What denies the read as well (an expired token) leaves it unknown.
* A 412 with the record unchanged means that the store did not understand a quoted ``If-Match``
  (Ceph RGW): the swap is sent again unquoted.
* With ``conditional_writes="off"`` a swap is read, compare, write: S3A's guarantees, no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

from magic_committer._hints import ID_USED_ONCE
from magic_committer._runtime import Runtime
from magic_committer.commit.steps import again
from magic_committer.errors import (
    ConditionsNotSupported,
    FormatError,
    InvalidRequest,
    JobExists,
    MagicError,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PathError,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.paths import (
    JSON,
    MAGIC_JOB_PREFIX,
    PLAN_PREFIX,
    RECORD,
    Destination,
    JobPaths,
)
from magic_committer.protocol.record import JOB_METADATA, RECORD_BYTES_MAX, JobRecord
from magic_committer.remedy import Remedy
from magic_committer.stores.base import Written, same_etag
from magic_committer.stores.urls import url_of

SWAP_TRIES_MAX = 6
"""How often a swap without a clear answer is sent. Each time includes the store's own retries."""
SWAP_PAUSE_SECONDS = 0.5
"""Pause before the second try, in seconds. It doubles each time."""

_UUID = re.compile(r"[0-9a-f]{32}")
_PLAN = re.compile(rf"{PLAN_PREFIX}[A-Za-z0-9._=-]{{1,128}}\{JSON}")

_UNCLEAR = (PreconditionFailed, NotFound, WriteConflict, Unanswered)
"""Answers after which the stored record is read: each may hide our own success."""


def may_still_land(error: StoreError) -> bool:
    """Whether a failed request may have taken effect or may still do so: it, or an earlier sending
    of it, got no answer. Pure."""
    return error.sent and (isinstance(error, Unanswered) or error.attempts > 1)


class StoredVersion(Protocol):
    """A version of an object whose versions replace each other, one by one: a record, a ledger."""

    @property
    def etag(self) -> str: ...
    @property
    def nonce(self) -> str: ...


V = TypeVar("V", bound=StoredVersion)


def write(
    runtime: Runtime,
    key: str,
    body: bytes,
    nonce: str,
    leaves: V | None,
    read_back: Callable[[StoreError], V | None],
    unclear: Callable[[StoreError], MagicError],
    metadata: Mapping[str, str] | None = None,
    *,
    reads_refusals: bool = False,
) -> Written | V | None:
    """Replace the version ``leaves`` of an object; None: there is none yet. Gives the answer; or,
    after an unclear one, the version that is there now. If that has our ``nonce``, the write won.

    A clear refusal is raised: the write has not won, and will not; with ``reads_refusals`` only if
    ``leaves`` is still there. ``unclear`` makes the error for tries without any clear answer."""
    etag, doubtful = leaves.etag if leaves is not None else "", False
    for number in again(runtime.clock, SWAP_TRIES_MAX, SWAP_PAUSE_SECONDS):
        condition: Any = {"if_match": etag} if etag else {"if_none_match": True}
        try:
            written = runtime.store.put(key, body, metadata=metadata, **condition)
            return written._replace(attempts=number + written.attempts)
        except StoreError as error:
            doubtful = doubtful or may_still_land(error)
            final = not doubtful and is_final(error)
            if final and not (error.sent and reads_refusals):
                raise
            now = read_back(error)
            unchanged = same_etag(now.etag, leaves.etag) if now and leaves else now is leaves
            if final and unchanged:
                raise
            last = error
        if not unchanged or (now is not None and now.nonce == nonce):
            return now
        if etag and isinstance(last, PreconditionFailed):
            etag = other_quoting(etag)
    raise unclear(last)


# The record ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it is stored: its content, and the ETag that a swap must name to leave it."""

    key: str
    record: JobRecord
    etag: str
    last_modified: float
    seen_at: float

    @property
    def nonce(self) -> str:
        """The nonce of this version."""
        return self.record.nonce


@dataclass(frozen=True, slots=True)
class Swapped:
    """The result of a swap. ``now``: the job's stored record; None if there is none any more, or it
    is that of a later job with the same id. ``won``: it is the record that was swapped in."""

    won: bool
    now: Seen | None


@dataclass(frozen=True, slots=True)
class Created:
    """A record that was just created. ``undisturbed``: by one request with an answer at once."""

    seen: Seen
    undisturbed: bool


def read(runtime: Runtime, key: str) -> Seen | None:
    """Read a record; None if there is none. One GET. The object must be a record that names its own
    directory and destination (`_check_is_at_home`)."""
    try:
        stored = runtime.store.get(key, max_bytes=RECORD_BYTES_MAX)
    except NotFound:
        return None
    info = stored.info
    record = JobRecord.decode(stored.body, key)
    _check_is_at_home(record, key, runtime.store.bucket)
    return Seen(key, record, info.etag, info.last_modified, info.seen_at)


def read_own(runtime: Runtime, key: str, uuid: str) -> Seen | None:
    """As `read`; None also if a later job has the given id: its record has another UUID."""
    seen = read(runtime, key)
    return seen if seen is not None and seen.record.uuid == uuid else None


def _check_is_at_home(record: JobRecord, key: str, bucket: str) -> None:
    """Check a record against its key. Pure.

    Anyone who may write below the destination may have written the record, and operators with more
    rights obey it. So a record may only speak of its own directory and destination
    (docs/security.md).
    """
    directory, _, name = key.rpartition("/")
    parent, slash, element = directory.rpartition("/")
    if (element, name) != (f"{MAGIC_JOB_PREFIX}{record.id}", RECORD):
        raise FormatError(key, "id", f"is {record.id!r}: the record of another job lies here")
    if not _UUID.fullmatch(record.uuid) or not (record.given_id or record.uuid == record.id):
        raise FormatError(key, "uuid", f"is {record.uuid!r}: no UUID of job {record.id!r}")
    try:
        paths = _home(bucket, parent + slash, record.id, record.adopted)
    except PathError as error:
        raise FormatError(key, "adopted", error.message) from error
    plan = record.plan.key if record.plan is not None else ""
    if plan and not _PLAN.fullmatch(plan.removeprefix(paths.directory)):
        raise FormatError(key, "plan", f"is {plan!r}: no plan of the job")
    if record.marker is not None and record.marker.key != paths.dest.success_key:
        raise FormatError(
            key, "marker", f"is {record.marker.key!r}: not {paths.dest.success_key!r}"
        )


@lru_cache(maxsize=1024)
def _home(bucket: str, prefix: str, job_id: str, adopted: str) -> JobPaths:
    return JobPaths(Destination(bucket, prefix), job_id, adopted)


def create(runtime: Runtime, key: str, record: JobRecord) -> Created:
    """Write the first version of a record, ``If-None-Match: *``. OutcomeUnknown: no clear answer
    came, and a record with that nonce may still appear. StoreError: there is no such record, and
    will be none."""
    if record.terms.conditional_writes == "off":
        now = read(runtime, key)
        if now is not None:
            raise _exists(now)
        written = runtime.store.put(key, record.encode(), metadata=_metadata(record))
        return Created(_stored(key, record, written), written.attempts == 1)

    def unclear(_: StoreError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the record of job {record.id!r} could not be written: the store gives no clear"
            " answer",
            job_id=record.id,
            hint="Start a new job; nothing of this one will become visible",
        )

    try:
        found = write(
            runtime, key, record.encode(), record.nonce, None,
            partial(_read_back, runtime, key, record.id), unclear, _metadata(record),
        )  # fmt: skip
    except NotSupported as error:
        answer = f"refuses it ({error.status} {error.code})"
        raise undecidable(runtime, "If-None-Match", answer) from error
    except StoreError as error:
        raise error.ending(f"job {record.id!r} was not started") from error
    assert found is not None
    if isinstance(found, Written):
        return Created(_stored(key, record, found), found.attempts == 1)
    if found.nonce != record.nonce:
        raise _exists(found)
    return Created(found, False)


def swap(runtime: Runtime, leaves: Seen, record: JobRecord) -> Swapped:
    """Replace the record ``leaves`` by ``record``, if no other process was faster. OutcomeUnknown:
    it may have won, or may still win. StoreError: the store refused it at once (permissions): it
    has not won, and will not."""
    if record.terms.conditional_writes == "off":
        return _unconditional_swap(runtime, leaves, record)
    key = leaves.key
    now = write(
        runtime, key, record.encode(), record.nonce, leaves,
        partial(_read_back, runtime, key, record.id), lambda _: _unclear(runtime, key, record),
        _metadata(record), reads_refusals=True,
    )  # fmt: skip
    if isinstance(now, Written):
        return Swapped(True, _stored(key, record, now))
    if now is not None and now.record.uuid != record.uuid:
        now = None
    return Swapped(now is not None and now.nonce == record.nonce, now)


def remove(runtime: Runtime, leaves: Seen) -> bool:
    """Delete the record ``leaves``, if nobody changed it. Repeatable. False if there is another
    record than ``leaves``, or if the store refuses conditional deletes."""
    etag = leaves.etag
    for _ in again(runtime.clock, SWAP_TRIES_MAX, SWAP_PAUSE_SECONDS):
        try:
            runtime.store.delete_one(leaves.key, if_match=etag)
            return True
        except (PreconditionFailed, WriteConflict):
            now = read(runtime, leaves.key)
        except (InvalidRequest, NotSupported):
            return False
        if now is None:
            return True
        if not same_etag(now.etag, leaves.etag):
            return False
        etag = other_quoting(etag)
    return False


def undecidable(runtime: Runtime, name: str, how: str) -> ConditionsNotSupported:
    """The error for a store that ignores a condition on which the decision of a job rests."""
    return ConditionsNotSupported(
        f"the store of bucket {runtime.store.bucket!r} does not keep {name} on PutObject: it {how}",
        hint="No job can be decided once there, in any mode. Options(conditional_writes='off')"
        " works all the same, with S3A's guarantees only: one driver, no recovery beside it",
    )


def is_final(error: StoreError) -> bool:
    """Whether a failed first request took no effect, and will not. Pure."""
    return not error.sent or not isinstance(error, _UNCLEAR)


def _exists(now: Seen) -> JobExists:
    return JobExists(
        f"job {now.record.id!r} exists already, it is {now.record.state}",
        job_id=now.record.id,
        hint=ID_USED_ONCE,
    )


def _unconditional_swap(runtime: Runtime, leaves: Seen, record: JobRecord) -> Swapped:
    now = read(runtime, leaves.key)
    if now is None or not same_etag(now.etag, leaves.etag):
        won = now is not None and now.record.nonce == record.nonce
        return Swapped(won, now if now is not None and now.record.uuid == record.uuid else None)
    try:
        written = runtime.store.put(leaves.key, record.encode(), metadata=_metadata(record))
    except StoreError as error:
        if not may_still_land(error):
            raise
        now = _read_back(runtime, leaves.key, record.id, error)
        if now is not None and now.record.nonce == record.nonce:
            return Swapped(True, now)
        raise _unclear(runtime, leaves.key, record) from error
    return Swapped(True, _stored(leaves.key, record, written))


def _ask_again(runtime: Runtime, key: str, job_id: str) -> tuple[Remedy, ...]:
    dest = url_of(runtime.store.bucket, key[: key.rindex(MAGIC_JOB_PREFIX)])
    return (Remedy("show", dest, job_id, "ask again later"),)


def _unclear(runtime: Runtime, key: str, record: JobRecord) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"whether job {record.id!r} is {record.state} cannot be told: the store gives no clear"
        " answer",
        job_id=record.id,
        remedies=_ask_again(runtime, key, record.id),
    )


def _read_back(runtime: Runtime, key: str, job_id: str, why: StoreError) -> Seen | None:
    try:
        return read(runtime, key)
    except StoreError as error:
        raise OutcomeUnknown(
            f"a write of job {job_id!r}'s record was not answered clearly, and the record cannot"
            f" be read: {error.message}",
            job_id=job_id,
            remedies=_ask_again(runtime, key, job_id),
        ) from why


def _stored(key: str, record: JobRecord, written: Written) -> Seen:
    # The reply to a PUT has no Last-Modified. A caller that needs it reads the record again.
    return Seen(key, record, written.etag, last_modified=0.0, seen_at=0.0)


def _metadata(record: JobRecord) -> dict[str, str]:
    return {JOB_METADATA: record.uuid}


def other_quoting(etag: str) -> str:
    """The ETag with quotes if it has none, and without if it has some."""
    return etag[1:-1] if etag.startswith('"') else f'"{etag}"'

"""The versioned objects of jobs on the store: the record, its last state, the marker `_SUCCESS`.

`write` is the one way to replace a version; ledgers use it too (`stream`).

Invariants:

* A swap is conditional on the exact ETag of the state that it leaves. The stored record decides,
  whatever the answer was: after 412, 404, 409 or a lost reply the record is read back. If it holds
  our own nonce, the swap won.
* **An unanswered swap is unknown as long as the state that it leaves is still there.** The same
  bytes are sent again. The old state proves nothing, because the first request may still take
  effect. If a refusal (an expired token, for example) follows an unanswered request, it refuses
  only the second one: the result is what is read back, or `OutcomeUnknown`. The adapter sends a
  request again by itself, so this can happen with one `put`: an error with ``attempts`` above 1 may
  hide a request that the store carries out.
* **A refused swap is read back, once.** Between us and the store may be a gateway that refuses
  (400, 403, 501) what the store has already done. Nothing was decided only if the old state is
  there. What denies the read as well (an expired token) leaves it unknown.
* A 412 with the record unchanged means that the store did not understand a quoted ``If-Match``
  (Ceph RGW): the swap is sent again unquoted.
* With ``conditional_writes="off"`` a swap is read, compare, write: S3A's guarantees, no more.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice, takewhile
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from magic_committer.errors import (
    ConditionsNotSupported,
    Decider,
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
from magic_committer.errors.messages import ID_USED_ONCE, Remedy
from magic_committer.hadoop.documents import (
    SUCCESS_BYTES_MAX,
    SuccessData,
    decode_success,
    encode_success,
    new_success,
)
from magic_committer.hadoop.paths import (
    ID_CHARS_MAX,
    JSON,
    MAGIC_JOB_PREFIX,
    PLAN_PREFIX,
    RECORD,
    Destination,
    JobPaths,
)
from magic_committer.hadoop.statistics import Statistics
from magic_committer.protocol.plan import Plan
from magic_committer.protocol.record import (
    JOB_METADATA,
    RECORD_BYTES_MAX,
    JobRecord,
    Marker,
    ObjectRef,
    StartedJob,
    State,
    may_replace_marker,
)
from magic_committer.runtime.components import Runtime, again
from magic_committer.stores.base import Written, listed, same_etag
from magic_committer.stores.urls import url_of

SWAP_TRIES_MAX = 6
"""How often a swap without a clear answer is sent. Each time includes the store's own retries."""
SWAP_PAUSE_SECONDS = 0.5
"""Pause before the second try, in seconds. It doubles each time."""

_UUID = re.compile(r"[0-9a-f]{32}")
_PLAN = re.compile(rf"{PLAN_PREFIX}[A-Za-z0-9._=-]{{1,{ID_CHARS_MAX}}}\{JSON}")

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
    raise unclear(last) from last


# The record ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it is stored: its content, and the ETag that a swap must name to leave it."""

    key: str
    record: JobRecord
    etag: str
    last_modified: float = 0.0
    """0.0 if this process has just written it: the reply to a PUT does not tell."""
    seen_at: float = 0.0

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


def create(runtime: Runtime, key: str, record: JobRecord) -> tuple[Seen, bool]:
    """Write the first version of a record, ``If-None-Match: *``. Gives it, and whether it is
    undisturbed: written by one request with an answer at once. OutcomeUnknown: no clear answer
    came, and a record with that nonce may still appear. StoreError: there is no such record, and
    will be none."""
    metadata = {JOB_METADATA: record.uuid}
    if record.terms.conditional_writes == "off":
        now = read(runtime, key)
        if now is not None:
            raise _exists(now)
        written = runtime.store.put(key, record.encode(), metadata=metadata)
        return Seen(key, record, written.etag), written.attempts == 1

    def unclear(error: StoreError) -> OutcomeUnknown:
        again = "Start a new job; nothing of this one will become visible"
        return OutcomeUnknown(
            f"the record of job {record.id!r} could not be written: {error.message}",
            job_id=record.id,
            hint=f"{error.advice}. {again}" if error.advice else again,
        )

    try:
        found = write(
            runtime, key, record.encode(), record.nonce, None,
            partial(_read_back, runtime, key, record.id), unclear, metadata,
        )  # fmt: skip
    except NotSupported as error:
        if error.code == "NoAttributes":  # of a disk: its error says what to do
            raise error.ending(f"job {record.id!r} was not started") from None
        answer = f"refuses it ({error.status} {error.code})"
        raise undecidable(runtime, "If-None-Match", answer) from error
    except StoreError as error:
        raise error.ending(f"job {record.id!r} was not started") from error
    assert found is not None
    if isinstance(found, Written):
        return Seen(key, record, found.etag), found.attempts == 1
    if found.nonce != record.nonce:
        raise _exists(found)
    return found, False


def swap(runtime: Runtime, leaves: Seen, record: JobRecord) -> Swapped:
    """Replace the record ``leaves`` by ``record``, if no other process was faster. OutcomeUnknown:
    it may have won, or may still win. StoreError: the store refused it at once (permissions): it
    has not won, and will not."""
    if record.terms.conditional_writes == "off":
        return _unconditional_swap(runtime, leaves, record)
    key = leaves.key
    now = write(
        runtime, key, record.encode(), record.nonce, leaves,
        partial(_read_back, runtime, key, record.id), partial(_unclear, runtime, key, record),
        {JOB_METADATA: record.uuid}, reads_refusals=True,
    )  # fmt: skip
    if isinstance(now, Written):
        return Swapped(True, Seen(key, record, now.etag))
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


def decider(role: str) -> Decider:
    """This process, as a record names it."""
    return Decider(role, socket.gethostname(), os.getpid())


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
        written = runtime.store.put(
            leaves.key, record.encode(), metadata={JOB_METADATA: record.uuid}
        )
    except StoreError as error:
        if not may_still_land(error):
            raise
        now = _read_back(runtime, leaves.key, record.id, error)
        if now is not None and now.record.nonce == record.nonce:
            return Swapped(True, now)
        raise _unclear(runtime, leaves.key, record, error) from error
    return Swapped(True, Seen(leaves.key, record, written.etag))


def _unknown(runtime: Runtime, key: str, job_id: str, message: str) -> OutcomeUnknown:
    dest = url_of(runtime.store.bucket, key[: key.rindex(MAGIC_JOB_PREFIX)])
    ask = Remedy("show", dest, job_id, "ask again later")
    return OutcomeUnknown(message, job_id=job_id, remedies=(ask,))


def _unclear(runtime: Runtime, key: str, record: JobRecord, error: StoreError) -> OutcomeUnknown:
    unknown = f"whether job {record.id!r} is {record.state} is unknown"
    message = f"{unknown}: no clear answer came ({error.message})"
    return _unknown(runtime, key, record.id, message)


def _read_back(runtime: Runtime, key: str, job_id: str, why: StoreError) -> Seen | None:
    try:
        return read(runtime, key)
    except StoreError as error:
        message = (
            f"a write of job {job_id!r}'s record was not answered clearly, and the record cannot"
            f" be read: {error.message}"
        )
        raise _unknown(runtime, key, job_id, message) from why


def other_quoting(etag: str) -> str:
    """The ETag with quotes if it has none, and without if it has some."""
    return etag[1:-1] if etag.startswith('"') else f'"{etag}"'


# Closed records -----------------------------------------------------------------------------------
#
# If another process than its driver ended a job, one small object stays.
# A closed record answers a process that still asks what became of its job. After a day it may be
# deleted if its id was drawn, as such an id is never used again. A given id is taken for 30 days.
# Then the id starts a new job. A task of the old job cannot write into the new one: its fence is
# the ETag of the old record, and its tokens hold the old UUID. A driver counts a record of another
# UUID as none. Only a process that slept for 30 days and knows nothing but the id (`attach`), or
# slept between two requests of its sweep, could reach the new job.
#
# A process that leaves a closed record looks at some others, from its own place in the listing on,
# so the jobs of a destination share this work. A process that reads records for other reasons
# deletes old ones as well. A job that deletes its own record pays nothing. Nothing here makes a job
# fail: the next process tries again.


logger = logging.getLogger("magic_committer")

FORGET_AFTER_SECONDS = 24 * 3600.0
"""A closed record stays for this many seconds, for drivers that still ask what became of their
job."""
FORGET_GIVEN_AFTER_SECONDS = 30 * 24 * 3600.0
"""The same for a given id: so long a repeat of the id is refused, or (`exist_ok`) reads what became
of the job."""
GRAIN_SECONDS = 1.0
"""S3 gives times in whole seconds, rounded down: an object that is 0.1 s old may look 1 s old."""
LOOKED_AT_MAX = 100
"""How many records one job reads for this: one page of the listing, and as many GETs."""
DELETED_MAX = 20
"""How many records one job deletes for this."""
BATCHES_PER_LOOK = 10
"""One in this many micro-batches of a stream looks at others: each batch leaves a record, and one
look a second would read 100 a second. The looks delete twice as many as the batches leave."""
IN_FLIGHT = 16


def age_of(seen_at: float, since: float) -> float:
    """How many seconds have passed at least, by two times of a store.

    A limit must hold for the real times, not only for the rounded ones. Otherwise a limit of one
    second would take a job for dead that gives five signs of life in a second.
    """
    return max(0.0, seen_at - since - GRAIN_SECONDS)


def finish(
    runtime: Runtime,
    seen: Seen,
    outcome_word: str,
    may_remove: bool,
    warnings: list[str],
    *,
    look: bool = True,
) -> State:
    """The last arrow: delete the record, or close it for processes that still ask.

    Errors become warnings: the record stays, and recovery finishes the job. Gives the record's last
    state. ``look``: look at some other closed records too."""
    try:
        if may_remove and remove(runtime, seen):
            return State.ABSENT
        closed = seen.record.step(State.CLOSED, runtime.ids(), outcome=outcome_word, marker=None)
        swapped = swap(runtime, seen, closed)
    except (StoreError, OutcomeUnknown) as error:
        warnings.append(f"the job's record could not be finished: {error}")
        return seen.record.state
    if swapped.won and look:
        forget_some(runtime, seen.key)
    return swapped.now.record.state if swapped.now else State.ABSENT


def may_forget(seen: Seen) -> bool:
    """Whether a record is closed, and old enough to be deleted. Pure."""
    record = seen.record
    limit = FORGET_GIVEN_AFTER_SECONDS if record.given_id else FORGET_AFTER_SECONDS
    return record.state is State.CLOSED and age_of(seen.seen_at, seen.last_modified) >= limit


def forget(runtime: Runtime, seen: Seen) -> bool:
    """Delete a record that `may_forget` allows, ``If-Match``. Repeatable. A failure is logged."""
    if not may_forget(seen):
        return False
    try:
        return remove(runtime, seen)
    except MagicError as error:
        logger.info("the closed record %s was left: %s", seen.key, error)
        return False


def forget_some(runtime: Runtime, own_record: str) -> int:
    """Delete old closed records beside the job's own: at most `DELETED_MAX`, after looking at
    `LOOKED_AT_MAX`. Repeatable. A failure is logged. The look begins behind the own record and goes
    round. Gives how many were deleted."""
    deleted, look = 0, partial(read, runtime)
    try:
        keys = islice(_others(runtime, own_record), LOOKED_AT_MAX)
        with closing(runtime.pool.each(look, keys, in_flight=IN_FLIGHT)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome.error, MagicError):
                    logger.info("%s could not be looked at: %s", outcome.item, outcome.error)
                    continue
                seen = outcome.unwrap()
                deleted += seen is not None and forget(runtime, seen)
                if deleted >= DELETED_MAX:
                    break
    except MagicError as error:
        logger.info("old closed records were left: %s", error)
    return deleted


def _others(runtime: Runtime, own_record: str) -> Iterator[str]:
    """Keys of the other records of a destination: first those behind the own one, then those before
    it."""
    own = own_record.removesuffix(RECORD)
    prefix = own[: own[:-1].rfind("/") + 1] + MAGIC_JOB_PREFIX

    def directories(start_after: str) -> Iterator[str]:
        for page in runtime.store.list(prefix, delimiter="/", start_after=start_after):
            yield from page.prefixes

    behind = (directory for directory in directories(own_record) if directory > own)
    before = takewhile(lambda directory: directory < own, directories(""))
    return (f"{directory}{RECORD}" for directory in chain(behind, before))


# The marker ---------------------------------------------------------------------------------------
#
# `_SUCCESS`: written last, and never over the marker of a job that ran after ours (I8).
# The marker is read first, the record second: what the record says then holds for that marker. The
# PUT is conditional on the marker that was read, so a late PUT fails by itself. Ours may be written
# in three cases:
#
# * there is no marker;
# * our ``completed`` record names the marker: it was there when we completed;
# * the job of the marker completed earlier than ours. Each marker holds the Last-Modified of its
#   job's ``completed`` record; for a marker of another program its own Last-Modified counts.
#
# If two jobs overlap and complete in the same second, either marker may stay.


DIAGNOSTIC_UUID = "magic-committer.job"
DIAGNOSTIC_COMPLETED = "magic-committer.completed"
DIAGNOSTIC_NONCE = "magic-committer.nonce"
DIAGNOSTIC_STARTED = "magic-committer.started"
"""When the job was started, by the starter's clock."""

MARKER_TRIES_MAX = 5


def read_marker(runtime: Runtime, key: str) -> Marker | None:
    """Read a marker of any kind: ours, Hadoop's, an empty one. One GET; of one that cannot be
    read, a listing shows ETag and time."""
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
    own: Seen,
    success: SuccessData,
    *,
    just_now: bool = False,
) -> str:
    """Write `_SUCCESS` if our marker may be written. Repeatable. Gives "" if it is written now or
    was before; otherwise why it was not.

    ``just_now``: this process has just completed the job. If its record names no marker then, none
    was there, and nobody looks again: the PUT replaces no other. One that was there is read again,
    as empty markers of other programs all have one ETag."""
    last: StoreError | None = None
    before: Marker | None = None
    quoted = True
    first = own.record.marker
    absent = just_now and first is not None and not first.etag
    absent = absent and own.record.terms.conditional_writes == "on"
    for number in range(MARKER_TRIES_MAX):
        try:
            marker = None if absent and not number else read_marker(runtime, key)
            seen = read_own(runtime, own.key, own.record.uuid)
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
                etag = marker.etag if quoted else other_quoting(marker.etag)
                runtime.store.put(key, body, if_match=etag)
        except (PreconditionFailed, NotFound, WriteConflict, Unanswered) as error:
            last = error
            continue  # perhaps by our own success: start again
        return ""
    assert last is not None
    raise last

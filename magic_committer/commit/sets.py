"""What the tasks left: `.pendingset`s, read from the store in bounded memory, and their uploads in
the form that commit needs.

Writers and committers share only a `.pending`. S3A's format lacks some fields; they are in its
``extraData``, which Hadoop keeps and ignores: the token that identifies a completed object, the
checksum of the whole object, and the sizes of the parts. (The sizes are for a part whose ETag
changed by a late retry under SSE-KMS: it has the same number, size and checksum.)

Each accepted set is read once. Its uploads go, packed, to a local spool (memory up to 2 MiB, then a
temporary file), because they are needed twice: all of them are checked before anything becomes
visible, and then they are completed. A recovery has no spool; it reads the sets that the plan
names.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, zip_longest
from typing import IO, Any, NamedTuple, TypeVar, cast, get_args

from msgspec import Raw, Struct, msgpack

from magic_committer.errors import FormatError, InvalidRequest, NotFound, PathError, StoreError
from magic_committer.hadoop.documents import (
    PENDINGSET_BYTES_MAX,
    Pending,
    PendingSet,
    UploadEtag,
    new_pending,
)
from magic_committer.hadoop.manifests import EXTRA_ATTEMPT, EXTRA_JOB, EXTRA_TASK, decode_set
from magic_committer.hadoop.paths import (
    check_name,
    owner_of,
    set_name,
    shown,
    waiting_path,
)
from magic_committer.protocol.plan import PLAN_BYTES_MAX, Plan, PlannedSet, check_plan
from magic_committer.protocol.record import (
    ATTEMPT_METADATA,
    JOB_METADATA,
    TASK_METADATA,
    ObjectRef,
    StartedJob,
)
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.runtime.threads import Outcome
from magic_committer.stores.base import (
    PART_NUMBER_MAX,
    Checksum,
    ChecksumAlgorithm,
    ObjectInfo,
    Part,
    StoredObject,
    same_etag,
)
from magic_committer.stores.urls import is_tree

EXTRA_TOKEN = "magic-committer.token"
EXTRA_CHECKSUM = "magic-committer.checksum"
EXTRA_PART_BYTES = "magic-committer.part-bytes"
EXTRA_ABORTED = "magic-committer.aborted"
"""``"true"`` in a `.pendingset` without commits: a *tombstone*. The attempt was aborted, and nobody
can commit it any more, because the key of its set is taken."""

RUN_CHARS_MAX = 24
"""Characters of one run of sizes: 13 digits, a star, 5 digits, and some more."""

_ALGORITHMS = frozenset(get_args(ChecksumAlgorithm))


class ReadyUpload(NamedTuple):
    """One upload. Anyone who has its parts can complete it; its remover needs no more than what
    identifies it and the object that it becomes. ``token``:
    `magic_committer.protocol.record.token`; "" for Hadoop's uploads. ``multipart_etag``: for an
    upload without a token: MD5 of the parts' MD5s, ``-N``; "" if it cannot be computed. Both are
    empty if only a listing shows the upload."""

    key: str
    upload_id: str
    token: str = ""
    multipart_etag: str = ""
    parts: tuple[Part, ...] = ()
    length: int = 0
    checksum: Checksum | None = None

    @property
    def name(self) -> str:
        """Key and id in one string, for sets of uploads."""
        return upload_name(self.key, self.upload_id)

    @property
    def bare(self) -> ReadyUpload:
        """As its remover needs it: without parts, of which there may be 10,000."""
        return self._replace(parts=())


def upload_name(key: str, upload_id: str) -> str:
    """Key and id of an upload in one string; no key holds a NUL (paths.py)."""
    return f"{key}\0{upload_id}"


def is_tombstone(extra_data: Mapping[str, str] | None) -> bool:
    """Whether a `.pendingset` with this ``extraData`` says that its attempt was aborted."""
    return (extra_data or {}).get(EXTRA_ABORTED) == "true"


def to_pending(
    job: StartedJob, attempt: str, upload: ReadyUpload, *, bucket: str, uri: str, created_ms: int
) -> Pending:
    """Make the `.pending` of an upload whose parts are all stored."""
    extra = {EXTRA_PART_BYTES: _runs(part.size for part in upload.parts)}
    if upload.token:
        extra |= {EXTRA_TOKEN: upload.token, EXTRA_JOB: job.uuid, EXTRA_ATTEMPT: attempt}
    if upload.checksum is not None:
        extra[EXTRA_CHECKSUM] = f"{upload.checksum.algorithm}:{upload.checksum.value}"
    return new_pending(
        uri=uri,
        upload_id=upload.upload_id,
        bucket=bucket,
        destination_key=upload.key,
        created_ms=created_ms,
        etags=tuple(map(etag_of, upload.parts)),
        length=upload.length,
        extra_data=extra,
        job_id=job.id,
        task_id=attempt,
    )


def from_pending(pending: Pending, source: str) -> ReadyUpload:
    """Read a checked `.pending` for completing. Errors call it ``source``."""
    extra, etags = pending.extra_data or {}, pending.etags
    whole = str(pending.length) if is_tree(pending.bucket) else ""  # a file that waits
    told = extra.get(EXTRA_PART_BYTES, whole)
    sizes = part_sizes(told, len(etags), pending.length, source)
    parts = tuple(
        Part(number, etag.etag, size, _known(etag.checksum_algorithm, etag.checksum))
        if isinstance(etag, UploadEtag)
        else Part(number, etag, size)
        for number, (etag, size) in enumerate(zip(etags, sizes, strict=True), 1)
    )
    algorithm, _, value = extra.get(EXTRA_CHECKSUM, "").partition(":")
    token = extra.get(EXTRA_TOKEN, "")
    return ReadyUpload(
        pending.destination_key,
        pending.upload_id,
        token,
        "" if token else pending.multipart_etag() or "",
        parts,
        pending.length,
        _known(algorithm, value),
    )


def _known(algorithm: str | None, value: str | None) -> Checksum | None:
    # Algorithms that S3 does not have are dropped, as Hadoop does: the ETag alone decides then.
    known = algorithm in _ALGORITHMS and value
    return Checksum(cast("ChecksumAlgorithm", algorithm), value) if known and value else None


class RowCheck:
    """What one upload of a job must be, before anything becomes visible."""

    def __init__(self, job: StartedJob) -> None:
        self._job = job
        self._dest = job.paths.dest
        self._token = f"{job.uuid}."
        self._waits = job.waits and job.paths.task_attempts[len(self._dest.prefix) :]

    def problem(self, key: str, upload_id: str, token: str) -> str | None:
        """What is wrong with an upload; None if nothing is."""
        if self._waits:
            waiting = waiting_path(key, upload_id)
            if waiting is None or not waiting[0].startswith(self._waits):
                return f"{key}: its upload {upload_id!r} is no file of a task of this job"
            token = self._token
        if not self._dest.contains(key):
            return f"{key}: lies outside the destination {self._dest.url}"
        try:
            check_name(self._dest.relative(key))
        except PathError as error:
            return f"{shown(key)}: {error.message}"
        if not (token.startswith(self._token) or (self._job.adopted and not token)):
            return f"{key}: its token {token!r} is not of this job"
        return None


def etag_of(part: Part) -> UploadEtag:
    """What a `.pending` says of a part."""
    return UploadEtag(part.etag, *(part.checksum or ()))


def _runs(sizes: Iterable[int]) -> str:
    """Run lengths: ``"8388608*3,100"``."""
    runs = ((size, sum(1 for _ in group)) for size, group in groupby(sizes))
    return ",".join(f"{size}*{count}" if count > 1 else str(size) for size, count in runs)


def part_sizes(text: str, parts: int, length: int, source: str) -> list[int]:
    """The sizes of an upload's parts, by its ``extraData``; all 0 if that names none."""
    if parts == 1 and text == str(length):
        return [length]
    sizes = _sizes(text, source)
    if sizes and (len(sizes) != parts or sum(sizes) != length):
        raise FormatError(
            source, f"extraData.{EXTRA_PART_BYTES}", "does not add up to the parts and the length"
        )
    return sizes or [0] * parts


def _sizes(text: str, source: str) -> list[int]:
    sizes: list[int] = []
    for run in text.split(",") if text else ():
        size, _, count = run.partition("*")
        digits = size.isdecimal() and (count or "1").isdecimal() and len(run) <= RUN_CHARS_MAX
        if not digits or len(sizes) + int(count or 1) > PART_NUMBER_MAX:
            raise FormatError(
                source, f"extraData.{EXTRA_PART_BYTES}", f"{run[:RUN_CHARS_MAX]!r} is not a size"
            )
        sizes += [int(size)] * int(count or 1)
    return sizes


# Spooling -----------------------------------------------------------------------------------------


class NamedUpload(Struct, array_like=True, frozen=True, gc=False):
    """What is checked of an upload: the first fields of a `ReadyUpload`."""

    key: str
    upload_id: str
    token: str


_PACKER = msgpack.Encoder()
_UNPACKER = msgpack.Decoder(tuple[list[ReadyUpload], dict[str, Any]])
_NAMES = msgpack.Decoder(tuple[list[NamedUpload], Raw])


def pack(uploads: Sequence[ReadyUpload], statistics: Mapping[str, Any]) -> bytes:
    """Pack a set's uploads and statistics, for a local spool."""
    return _PACKER.encode((uploads, statistics))


# Reading what the tasks left ----------------------------------------------------------------------
#
# **Who owns a set?** A set in a listing of the job's directory may belong to another run by its
# UUID: a given id may be used again, and a zombie of the earlier run writes to the same directory.
# Such a set is passed over. The UUID is in two places: in the object's metadata and in the set's
# ``extraData``. Metadata may get lost (a proxy, a copy of the bucket). A writer of the one can
# write the other too, so the body is believed if there is no metadata. A set without any UUID might
# be ours: passing it over could publish a part of the job as if it were all of it. So it is
# reported (`Loaded.nobodys`), and the commit decides nothing. A set with two different UUIDs was
# not written by a task.
#
# Memory: the sets in flight (`LOADING_BYTES_MAX` of JSON, at most `LOADING_SETS_MAX` sets, or one
# larger set alone), one unpacked set, or `SPREAD_SETS` small ones, and the spool's 2 MiB. A plan
# does not say how large its sets are, and the size in a task's result or a listing may be wrong
# now. If a set is larger than that (or than `SMALL_SET_BYTES`, if no size is known), reading stops;
# the set is read again at the end, alone.


R = TypeVar("R")

LOADING_SETS_MAX = 64
LOADING_BYTES_MAX = 2 * 1024**2
"""Bytes of JSON of the sets that are read at the same time. Unpacked they take some ten times that;
if somebody forged them, at most 36 MiB more than 18 times (`magic_committer.hadoop.documents`)."""
SMALL_SET_BYTES = LOADING_BYTES_MAX // 16
"""Bytes of a set of some 130 files. Sets of unknown size are read side by side up to this size."""
SPOOL_MEMORY_BYTES_MAX = 2 * 1024**2

SPREAD_SETS = 8
"""How many sets are mixed, when uploads are completed."""
SPREAD_BYTES_MAX = 128 * 1024
"""Bytes in the spool of a set that is mixed with others: some 400 files."""

NOBODYS_MAX = 100
"""How many sets without an owner are named. There may be millions."""


@dataclass(frozen=True, slots=True)
class SetRef:
    """A `.pendingset` to load. ``etag``, ``task`` and ``attempt`` are "" if they are not known
    before. ``own``: what it holds, if this process has stored it a moment ago."""

    key: str
    etag: str = ""
    task: str = ""
    attempt: str = ""
    size: int = 0
    own: PendingSet | None = None


@dataclass(frozen=True, slots=True)
class LoadedSet:
    """A loaded set without its uploads; they are in the spool at ``offset``."""

    key: str
    etag: str
    task: str
    attempt: str
    uuid: str
    last_modified: float
    files: int
    bytes: int
    offset: int
    packed_bytes: int


def choose_attempts(loaded: Iterable[LoadedSet], uuid: str) -> list[LoadedSet]:
    """Choose one attempt for each task: the newest; for equal times, by key. Pure.

    The rule is fixed, so that all drivers that list the same sets make the same choice. ``uuid``:
    the job's UUID. Sets of another UUID never count; "" is the UUID of Hadoop's sets. Gives the
    chosen ones, in the order of their tasks."""
    newest: dict[str, LoadedSet] = {}
    for one in loaded:
        if one.uuid == uuid:
            rivals = (newest.get(one.task, one), one)
            newest[one.task] = max(rivals, key=lambda rival: (rival.last_modified, rival.key))
    return [newest[task] for task in sorted(newest)]


@dataclass(slots=True)
class Loaded:
    """What `load` has read."""

    sets: list[LoadedSet] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    nobodys: list[str] = field(default_factory=list)


Uploads = Iterator[tuple[Iterable[ReadyUpload], Mapping[str, Any]]]
"""Uploads set by set, each to be gone through once, with the set's statistics."""


class Spool:
    """Uploads on local disk, set by set. It leaves nothing behind when it is closed, or after a
    kill."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115 (closed by __exit__)
            max_size=SPOOL_MEMORY_BYTES_MAX, prefix="magic-committer-"
        )
        self.accepted: Sequence[LoadedSet] = ()
        """What the job accepts of the sets in it."""
        self._end = 0
        self._is_elsewhere = False
        """The file's place is not its end: something was read."""

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, packed: bytes) -> int:
        """Append what `pack` packed. Gives its offset."""
        offset = self._end
        if self._is_elsewhere:  # a seek writes what is buffered
            self._file.seek(offset)
            self._is_elsewhere = False
        self._file.write(packed)
        self._end += len(packed)
        return offset

    def named(self) -> Iterator[NamedUpload]:
        """What is checked of the accepted sets' uploads. One set is unpacked at a time."""
        for loaded in self.accepted:
            yield from _NAMES.decode(self._read(loaded))[0]

    def uploads(self) -> Uploads:
        """Large sets one by one; small ones mixed, `SPREAD_SETS` at a time, one upload of each in
        turn: a task's files often lie in one directory, and S3 limits requests for each prefix."""
        small = [one for one in self.accepted if one.packed_bytes <= SPREAD_BYTES_MAX]
        for loaded in self.accepted:
            if loaded.packed_bytes > SPREAD_BYTES_MAX:
                yield self.read(loaded)
        together = -(-len(small) // SPREAD_SETS)
        for first in range(together):
            read = [self.read(loaded) for loaded in small[first::together]]
            for _, statistics in read[1:]:
                yield (), statistics
            mixed = chain.from_iterable(zip_longest(*(uploads for uploads, _ in read)))
            yield (upload for upload in mixed if upload is not None), read[0][1]

    def read(self, loaded: LoadedSet) -> tuple[list[ReadyUpload], dict[str, Any]]:
        """The uploads of a set, and its statistics."""
        return _UNPACKER.decode(self._read(loaded))

    def _read(self, loaded: LoadedSet) -> bytes:
        self._is_elsewhere = True
        self._file.seek(loaded.offset)
        return self._file.read(loaded.packed_bytes)


def load(
    runtime: Runtime, job: StartedJob, refs: Iterable[SetRef], spool: Spool, total: int | None
) -> Loaded:
    """Read sets into the spool. One GET each; nothing of one that this process has stored a moment
    ago.

    ``total`` is None for sets of a listing: pass over objects of another job, whatever they hold (a
    directory that an id names may hold litter of another run), and tombstones of aborted attempts.
    See the module's head."""
    loaded = Loaded()
    with closing(_reading(runtime, job, refs, listed=total is None)) as outcomes:
        for outcome in outcomes:
            ref = outcome.item
            try:
                info, content = outcome.unwrap()
            except _PassedOverError:
                continue
            except _NobodysError:
                if len(loaded.nobodys) < NOBODYS_MAX:
                    loaded.nobodys.append(ref.key)
                continue
            except (FormatError, NotFound) as error:
                loaded.problems.append(error.message)
                continue
            loaded.sets.append(
                LoadedSet(
                    ref.key, info.etag, content.task, content.attempt, content.uuid,
                    info.last_modified, content.files, content.data_bytes,
                    spool.append(content.packed), len(content.packed),
                )
            )  # fmt: skip
            runtime.progress(Progress("load", len(loaded.sets), total, "tasks"))
    return loaded


def stored_uploads(
    runtime: Runtime, job: StartedJob, sets: Iterable[PlannedSet], *, missing_is_fine: bool
) -> Uploads:
    """The uploads of planned sets, read from the store. Each upload is checked against the
    destination and the job, as before the decision: somebody who may write a record below one
    destination must not make its reader act elsewhere (docs/security.md). NotFound: a set is gone,
    and the job may be finished: read its record again."""
    right, directory = RowCheck(job), job.paths.tree
    refs = (SetRef(directory + s.name, s.etag, s.task, s.attempt) for s in sets)
    with closing(_reading(runtime, job, refs)) as outcomes:
        for outcome in outcomes:
            try:
                _, content = outcome.unwrap()
            except NotFound:
                if missing_is_fine:
                    continue
                raise
            uploads, statistics = _UNPACKER.decode(content.packed)
            for upload in uploads:
                if problem := right.problem(*upload[:3]):
                    raise FormatError(outcome.item.key, "commits", problem)
            yield uploads, statistics


def set_bytes_max(told: int) -> int:
    """How many bytes of a control object to read side by side with others. ``told``: its size, if
    known. A larger object was changed since, or its size is unknown."""
    return min(max(told, SMALL_SET_BYTES), PENDINGSET_BYTES_MAX)


class SetContent(NamedTuple):
    """What a commit needs of a set, ``packed`` as in its spool."""

    task: str
    attempt: str
    uuid: str
    files: int
    data_bytes: int
    packed: bytes


class _PassedOverError(Exception):
    """The object is in the listing, but is no attempt of this job: it is another job's, or a
    tombstone."""


class _LargerError(Exception):
    """The set is larger than expected, or than what is read of a set of unknown size."""


class _NobodysError(Exception):
    """The object is in the listing, but names no owner."""


def _reading(
    runtime: Runtime, job: StartedJob, refs: Iterable[SetRef], *, listed: bool = False
) -> Generator[Outcome[SetRef, tuple[ObjectInfo, SetContent]], None, None]:
    bucket = runtime.store.bucket

    def read(ref: SetRef, bytes_max: int) -> tuple[ObjectInfo, SetContent]:
        if ref.own is not None:
            now = runtime.clock.now()
            content = content_of(ref.own, ref.task, ref.attempt, job.uuid, bucket, ref.key)
            return ObjectInfo(ref.key, ref.size, ref.etag, now, now), content
        try:
            stored = runtime.store.get(ref.key, max_bytes=bytes_max)
        except InvalidRequest as error:
            if error.code != "TooLarge":
                raise
            if bytes_max < PENDINGSET_BYTES_MAX:
                raise _LargerError from error
            raise FormatError(ref.key, "", f"has over {PENDINGSET_BYTES_MAX} bytes") from error
        return stored.info, _parse(stored, ref, job, bucket, listed)

    larger: list[SetRef] = []
    beside = runtime.pool.each(
        lambda ref: read(ref, _room_for(ref)),
        refs,
        in_flight=LOADING_SETS_MAX,
        weigh=_room_for,
        weight_max=LOADING_BYTES_MAX,
    )
    with closing(beside) as first:
        for outcome in first:
            if isinstance(outcome.error, _LargerError):
                larger.append(outcome.item)
            else:
                yield outcome
    if larger:
        whole = partial(read, bytes_max=PENDINGSET_BYTES_MAX)
        yield from runtime.pool.each(whole, larger, in_flight=1)


def each_listed(
    runtime: Runtime, read: Callable[[ObjectInfo], R], infos: Iterable[ObjectInfo]
) -> Generator[Outcome[ObjectInfo, R], None, None]:
    """Read control objects of a listing side by side, at most `LOADING_BYTES_MAX` bytes at once.
    Close the generator, as the pool's ``each``."""
    return runtime.pool.each(
        read,
        infos,
        in_flight=runtime.in_flight,
        weigh=lambda info: info.size,
        weight_max=LOADING_BYTES_MAX,
    )


def _room_for(ref: SetRef) -> int:
    """How many bytes of a set are read while others are."""
    told = max(ref.size, LOADING_BYTES_MAX // LOADING_SETS_MAX)
    return min(told, PENDINGSET_BYTES_MAX) if ref.size else SMALL_SET_BYTES


def _content(
    stored: StoredObject, ref: SetRef, job: StartedJob, bucket: str, listed: bool
) -> PendingSet:
    """Read a set. Of those that are ``listed``, another job's are passed over, by their metadata or
    by their body."""

    def decoded() -> PendingSet:
        if ref.etag and not same_etag(stored.info.etag, ref.etag):
            raise FormatError(
                ref.key, "", "is not the version that the task wrote: its ETag differs"
            )
        return decode_set(stored.body, ref.key, bucket)

    if not listed or job.owns(stored.info.metadata):
        return decoded()
    if (stored.info.metadata or {}).get(JOB_METADATA):
        raise _PassedOverError
    try:
        extra = decode_set(stored.body, ref.key, bucket).extra_data or {}
    except FormatError:
        raise _NobodysError from None  # a set that cannot be read cannot name its owner either
    if not (uuid := extra.get(EXTRA_JOB)):
        raise _NobodysError
    if not job.owns({JOB_METADATA: uuid}):
        raise _PassedOverError
    return decoded()


def _parse(
    stored: StoredObject, ref: SetRef, job: StartedJob, bucket: str, listed: bool
) -> SetContent:
    content = _content(stored, ref, job, bucket, listed)
    key, metadata, extra = ref.key, stored.info.metadata or {}, content.extra_data or {}
    told, kept = extra.get(EXTRA_JOB, ""), metadata.get(JOB_METADATA, "")
    if is_tombstone(extra):
        if listed:
            raise _PassedOverError
        raise FormatError(key, "extraData", "says that the attempt was aborted")
    if content.job_id not in ("", job.id):
        raise FormatError(key, "jobId", f"is {content.job_id!r}, the job is {job.id!r}")
    if told and kept and told != kept:
        raise FormatError(
            key, f"extraData.{EXTRA_JOB}", f"is {told!r}, the object's metadata says {kept!r}"
        )
    task = extra.get(EXTRA_TASK) or metadata.get(TASK_METADATA, "")
    attempt = extra.get(EXTRA_ATTEMPT) or metadata.get(ATTEMPT_METADATA, "")
    for name, wanted, found in (("task", ref.task, task), ("attempt", ref.attempt, attempt)):
        if wanted and found and wanted != found:
            raise FormatError(key, f"extraData.{name}", f"is {found!r}, not {wanted!r}")
    uuid = told or kept
    if uuid and not (task and attempt):
        raise FormatError(key, "extraData", "names a job of ours, but no task or no attempt")
    if not uuid:  # Hadoop's set: named for the task; its uploads name the attempt
        uuid = owner_of("", key) or ""
        task = task or ref.task or set_name(key)
        attempt = attempt or (content.commits[0].task_id if content.commits else "")
    return content_of(content, task, attempt, uuid, bucket, key)


def content_of(
    content: PendingSet, task: str, attempt: str, uuid: str, bucket: str, key: str
) -> SetContent:
    """What a commit needs of a set."""
    uploads: list[ReadyUpload] = []
    for n, pending in enumerate(content.commits):
        if pending.bucket != bucket:
            reason = f"is {pending.bucket!r}, the job's is {bucket!r}"
            raise FormatError(key, f"commits[{n}].bucket", reason)
        uploads.append(from_pending(pending, f"{key}: commits[{n}]"))
    data_bytes = sum(upload.length for upload in uploads)
    packed = pack(uploads, content.iostatistics or {})
    return SetContent(task, attempt, uuid, len(uploads), data_bytes, packed)


# Stored plans -------------------------------------------------------------------------------------
#
# Written before the decision, read back, and checked against the job that names them.


logger = logging.getLogger("magic_committer")


def store_plan(runtime: Runtime, job: StartedJob, plan: Plan) -> ObjectRef:
    """Store a plan at a key of its own. One PUT."""
    key = job.paths.plan(plan.nonce)
    body = plan.encode()
    written = runtime.store.put(key, body, metadata={JOB_METADATA: job.uuid})
    return ObjectRef(key, written.etag)


def drop_plan(runtime: Runtime, job: StartedJob, key: str) -> None:
    """Delete a plan by which nobody decides; "" means: no plan. If it stays, it is litter that the
    sweep may delete."""
    if not key:
        return
    try:
        runtime.store.delete_one(key)
    except StoreError as error:
        logger.warning("job %s: %s could not be deleted: %s", job.id, key, error)


def load_plan(runtime: Runtime, job: StartedJob, ref: ObjectRef) -> Plan:
    """Read the plan that a job's record names, and check it against the job. One GET. NotFound:
    another process has finished the job: read the record again."""
    stored = runtime.store.get(ref.key, max_bytes=PLAN_BYTES_MAX)
    if not same_etag(stored.info.etag, ref.etag):
        raise FormatError(ref.key, "", "is not the version that the job's record names")
    plan = Plan.decode(stored.body, ref.key)
    check_plan(plan, job, ref.key)
    return plan

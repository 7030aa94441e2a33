"""A ready upload: all parts are stored, and it is not completed. What `.pending` says, in the form
that commit needs.

Writers and committers share only a `.pending`. S3A's format lacks some fields; they are in its
``extraData``, which Hadoop keeps and ignores: the token that identifies a completed object, the
checksum of the whole object, and the sizes of the parts. (The sizes are for a part whose ETag
changed by a late retry under SSE-KMS: it has the same number, size and checksum.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast, get_args

import orjson

from magic_committer.errors import FormatError, PathError
from magic_committer.hadoop.formats import Pending, UploadEtag, new_pending
from magic_committer.hadoop.paths import Destination, check_name, shown
from magic_committer.protocol.record import StartedJob
from magic_committer.stores.base import PART_NUMBER_MAX, Checksum, ChecksumAlgorithm, Part

EXTRA_TOKEN = "magic-committer.token"
EXTRA_CHECKSUM = "magic-committer.checksum"
EXTRA_PART_BYTES = "magic-committer.part-bytes"
EXTRA_JOB = "magic-committer.job"
EXTRA_TASK = "magic-committer.task"
EXTRA_ATTEMPT = "magic-committer.attempt"
EXTRA_ABORTED = "magic-committer.aborted"
"""``"true"`` in a `.pendingset` without commits: a *tombstone*. The attempt was aborted, and nobody
can commit it any more, because the key of its set is taken."""

RUN_CHARS_MAX = 24
"""Characters of one run of sizes: 13 digits, a star, 5 digits, and some more."""

_ALGORITHMS = frozenset(get_args(ChecksumAlgorithm))


@dataclass(frozen=True, slots=True)
class ReadyUpload:
    """One upload. Anyone who has this value can complete it.

    Attributes:
        token: `magic_committer.protocol.record.token`; "" for Hadoop's uploads.
        multipart_etag: MD5 of the parts' MD5s, ``-N``; "" if it cannot be computed. It identifies
            the completed object of an upload without a token.
        length: bytes of the object.
    """

    key: str
    upload_id: str
    parts: tuple[Part, ...]
    length: int
    checksum: Checksum | None
    token: str
    multipart_etag: str

    @property
    def name(self) -> str:
        """Key and id in one string, for sets of uploads."""
        return upload_name(self.key, self.upload_id)


def upload_name(key: str, upload_id: str) -> str:
    """Key and id of an upload in one string; no key holds a NUL (paths.py)."""
    return f"{key}\0{upload_id}"


def is_tombstone(extra_data: Mapping[str, str] | None) -> bool:
    """Whether a `.pendingset` with this ``extraData`` says that its attempt was aborted."""
    return (extra_data or {}).get(EXTRA_ABORTED) == "true"


def to_pending(
    job: StartedJob,
    attempt: str,
    *,
    bucket: str,
    uri: str,
    key: str,
    upload_id: str,
    parts: Sequence[Part],
    length: int,
    checksum: Checksum | None,
    token: str,
    created_ms: int,
) -> Pending:
    """Make the `.pending` of an upload whose parts are all stored."""
    extra = {EXTRA_PART_BYTES: _runs(part.size for part in parts)}
    if token:
        extra[EXTRA_TOKEN] = token
        extra[EXTRA_JOB] = job.uuid
        extra[EXTRA_ATTEMPT] = attempt
    if checksum is not None:
        extra[EXTRA_CHECKSUM] = f"{checksum.algorithm}:{checksum.value}"
    return new_pending(
        uri=uri,
        upload_id=upload_id,
        bucket=bucket,
        destination_key=key,
        created_ms=created_ms,
        etags=tuple(_etag(part) for part in parts),
        length=length,
        extra_data=extra,
        job_id=job.id,
        task_id=attempt,
    )


def from_pending(pending: Pending, source: str) -> ReadyUpload:
    """Read a validated `.pending` for completing.

    Raises:
        FormatError: our own fields in ``extraData`` do not fit the other fields.
    """
    extra = pending.extra_data or {}
    sizes = _sizes(extra.get(EXTRA_PART_BYTES, ""), source)
    if sizes and (len(sizes) != len(pending.etags) or sum(sizes) != pending.length):
        raise FormatError(
            source, f"extraData.{EXTRA_PART_BYTES}", "does not add up to the parts and the length"
        )
    parts = tuple(
        Part(
            number,
            etag.etag,
            sizes[number - 1] if sizes else 0,
            _checksum(etag.checksum_algorithm, etag.checksum),
        )
        for number, etag in enumerate(pending.etags, 1)
    )
    algorithm, _, value = extra.get(EXTRA_CHECKSUM, "").partition(":")
    return ReadyUpload(
        key=pending.destination_key,
        upload_id=pending.upload_id,
        parts=parts,
        length=pending.length,
        checksum=_checksum(algorithm, value),
        token=extra.get(EXTRA_TOKEN, ""),
        multipart_etag=pending.multipart_etag() or "",
    )


def check_upload(upload: ReadyUpload, job: StartedJob, dest: Destination) -> str | None:
    """What is wrong with one upload; None if nothing is. Pure."""
    if not dest.contains(upload.key):
        return f"{upload.key}: lies outside the destination {dest.url}"
    try:
        check_name(dest.relative(upload.key))
    except PathError as error:
        return f"{shown(upload.key)}: {error.message}"
    if not 1 <= len(upload.parts) <= PART_NUMBER_MAX:
        return f"{upload.key}: has {len(upload.parts)} parts, not 1 to {PART_NUMBER_MAX}"
    if not (upload.token.startswith(f"{job.uuid}.") or (job.adopted and not upload.token)):
        return f"{upload.key}: its token {upload.token!r} is not of this job"
    return None


def _etag(part: Part) -> UploadEtag:
    if part.checksum is None:
        return UploadEtag(part.etag, None, None)
    return UploadEtag(part.etag, part.checksum.algorithm, part.checksum.value)


def _checksum(algorithm: str | None, value: str | None) -> Checksum | None:
    # Algorithms that S3 does not have are dropped, as Hadoop does: the ETag alone decides then.
    if not value or algorithm not in _ALGORITHMS:
        return None
    return Checksum(cast(ChecksumAlgorithm, algorithm), value)


def _runs(sizes: Iterable[int]) -> str:
    """Run lengths: ``"8388608*3,100"``."""
    runs = ((size, sum(1 for _ in group)) for size, group in groupby(sizes))
    return ",".join(f"{size}*{count}" if count > 1 else str(size) for size, count in runs)


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


def pack(uploads: Iterable[ReadyUpload], statistics: Mapping[str, Any]) -> bytes:
    """Pack a set's uploads and statistics into few bytes, for a local spool."""
    return orjson.dumps([statistics, [_row(upload) for upload in uploads]])


def unpack(data: bytes) -> tuple[list[ReadyUpload], Mapping[str, Any]]:
    """Read what `pack` packed."""
    statistics, rows = orjson.loads(data)
    return [_unrow(row) for row in rows], statistics


def _row(upload: ReadyUpload) -> list[Any]:
    return [
        upload.key,
        upload.upload_id,
        upload.length,
        upload.token,
        upload.multipart_etag,
        _pair(upload.checksum),
        [(part.etag, part.size, _pair(part.checksum)) for part in upload.parts],
    ]


def _unrow(row: list[Any]) -> ReadyUpload:
    key, upload_id, length, token, multipart_etag, checksum, parts = row
    return ReadyUpload(
        key=key,
        upload_id=upload_id,
        parts=tuple(
            Part(number, etag, size, Checksum(*pair) if pair else None)
            for number, (etag, size, pair) in enumerate(parts, 1)
        ),
        length=length,
        checksum=Checksum(*checksum) if checksum else None,
        token=token,
        multipart_etag=multipart_etag,
    )


def _pair(checksum: Checksum | None) -> tuple[str, str] | None:
    return (checksum.algorithm, checksum.value) if checksum else None

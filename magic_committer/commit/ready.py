"""A ready upload: all parts are stored, and it is not completed. What `.pending` says, in the form
that commit needs.

Writers and committers share only a `.pending`. S3A's format lacks some fields; they are in its
``extraData``, which Hadoop keeps and ignores: the token that identifies a completed object, the
checksum of the whole object, and the sizes of the parts. (The sizes are for a part whose ETag
changed by a late retry under SSE-KMS: it has the same number, size and checksum.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, get_args

import orjson

from magic_committer.errors import FormatError, PathError
from magic_committer.hadoop.formats import Pending, UploadEtag, new_pending
from magic_committer.hadoop.paths import (
    COMMITTERS_OWN,
    Destination,
    check_name,
    shown,
)
from magic_committer.protocol.record import StartedJob
from magic_committer.stores.base import PART_NUMBER_MAX, Checksum, ChecksumAlgorithm, Part
from magic_committer.stores.urls import is_tree

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
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*\Z")
DIRECTORIES_MAX = 10_000
"""How many directories a `RowCheck` remembers."""


class ReadyUpload(NamedTuple):
    """One upload. Anyone who has this value can complete it. ``token``:
    `magic_committer.protocol.record.token`; "" for Hadoop's uploads. ``multipart_etag``: for an
    upload without a token: MD5 of the parts' MD5s, ``-N``; "" if it cannot be computed. It
    identifies the completed object."""

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
    """Read a checked `.pending` for completing."""
    return upload_of(row_of(pending, source))


class RowCheck:
    """What one upload of a job must be, before anything becomes visible.

    A plain name in a directory that was found right needs no look of its own: most files of a job
    share few directories."""

    def __init__(self, job: StartedJob, dest: Destination) -> None:
        self._job = job
        self._dest = dest
        self._token = f"{job.uuid}."
        self._waits = job.waits and job.paths.task_attempts[len(dest.prefix) :]
        self._right: set[str] = set()
        """Directories in which a plain name is right."""

    def problem(self, key: str, upload_id: str, token: str, parts: int) -> str | None:
        """What is wrong with an upload; None if nothing is."""
        if self._waits:
            if not self._waits_here(key, upload_id):
                return f"{key}: its upload {upload_id!r} is no file of a task of this job"
            token = self._token
        name = key.rpartition("/")[2]
        if not _PLAIN_NAME.match(name) or name.endswith(COMMITTERS_OWN):
            return self._look(key, token, parts)
        directory = key[: -len(name)]
        if directory in self._right and 1 <= parts <= PART_NUMBER_MAX and self._is_ours(token):
            return None
        problem = self._look(key, token, parts)
        if problem is None and len(self._right) < DIRECTORIES_MAX:
            self._right.add(directory)
        return problem

    def _waits_here(self, key: str, upload_id: str) -> bool:
        """Whether an upload is a file of an attempt of this job: as `waiting_path`, but quicker."""
        path, _, _ = upload_id.rpartition("#")
        home = len(path) - len(key)
        attempt = path[len(self._waits) : home - 1]
        named = path.startswith(self._waits) and attempt != "" and "/" not in attempt
        return named and home > len(self._waits) and path[home - 1 :] == f"/{key}"

    def _is_ours(self, token: str) -> bool:
        return token.startswith(self._token)

    def _look(self, key: str, token: str, parts: int) -> str | None:
        if not self._dest.contains(key):
            return f"{key}: lies outside the destination {self._dest.url}"
        try:
            check_name(self._dest.relative(key))
        except PathError as error:
            return f"{shown(key)}: {error.message}"
        if not 1 <= parts <= PART_NUMBER_MAX:
            return f"{key}: has {parts} parts, not 1 to {PART_NUMBER_MAX}"
        if not (self._is_ours(token) or (self._job.adopted and not token)):
            return f"{key}: its token {token!r} is not of this job"
        return None


def _etag(part: Part) -> UploadEtag:
    return UploadEtag(part.etag, *(_pair(part.checksum) or ()))


def _runs(sizes: Iterable[int]) -> str:
    """Run lengths: ``"8388608*3,100"``."""
    runs = ((size, sum(1 for _ in group)) for size, group in groupby(sizes))
    return ",".join(f"{size}*{count}" if count > 1 else str(size) for size, count in runs)


def part_sizes(text: str, parts: int, length: int, source: str) -> list[int]:
    """The sizes of an upload's parts, as ``extraData`` tells them; all 0 if it tells none."""
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


Row = tuple[str, str, str, int, int, str, Any, Any]
"""An upload as JSON: what is checked of it (key, upload id, token, number of parts), and what else
Complete needs: length, multipart ETag, checksum, parts. A part is an ETag, a size and a checksum; a
checksum is an algorithm and a value, or None."""
_CHECKED = 4
"""How many columns of a row are checked."""


def pack(rows: Sequence[Row], statistics: Mapping[str, Any]) -> bytes:
    """Pack a set's rows and statistics into few bytes, for a local spool: first the columns that
    are checked, which are read more often."""
    columns = list(zip(*rows, strict=True))
    return b"\n".join(map(orjson.dumps, (columns[:_CHECKED], [statistics, *columns[_CHECKED:]])))


def unpack(data: bytes) -> tuple[Iterator[Row], Mapping[str, Any]]:
    """Read what `pack` packed."""
    checked, _, rest = data.partition(b"\n")
    statistics, *columns = orjson.loads(rest)
    return zip(*orjson.loads(checked), *columns, strict=True), statistics


def unpack_checked(data: bytes) -> Iterator[tuple[str, str, str, int]]:
    """Read what is checked of the uploads that `pack` packed: key, upload id, token, number of
    parts."""
    return zip(*orjson.loads(data[: data.index(b"\n")]), strict=True)


def row_of(pending: Pending, source: str) -> Row:
    """The row of a checked `.pending`. Errors call it ``source``."""
    extra, etags = pending.extra_data or {}, pending.etags
    whole = str(pending.length) if is_tree(pending.bucket) else ""  # a file that waits
    told = extra.get(EXTRA_PART_BYTES, whole)
    sizes = part_sizes(told, len(etags), pending.length, source)
    parts = [
        (etag.etag, size, _known(etag.checksum_algorithm, etag.checksum))
        if isinstance(etag, UploadEtag)
        else (etag, size, None)
        for etag, size in zip(etags, sizes, strict=True)
    ]
    algorithm, _, value = extra.get(EXTRA_CHECKSUM, "").partition(":")
    token = extra.get(EXTRA_TOKEN, "")
    return (
        pending.destination_key,
        pending.upload_id,
        token,
        len(etags),
        pending.length,
        "" if token else pending.multipart_etag() or "",
        _known(algorithm, value),
        parts,
    )


def _known(algorithm: str | None, value: str | None) -> tuple[str, str] | None:
    # Algorithms that S3 does not have are dropped, as Hadoop does: the ETag alone decides then.
    return (algorithm, value) if algorithm and value and algorithm in _ALGORITHMS else None


def upload_of(row: Row) -> ReadyUpload:
    """The upload of a row."""
    key, upload_id, token, _, length, multipart_etag, checksum, parts = row
    stored = [
        Part(number, etag, size, Checksum(*pair) if pair else None)
        for number, (etag, size, pair) in enumerate(parts, 1)
    ]
    whole = Checksum(*checksum) if checksum else None
    return ReadyUpload(key, upload_id, tuple(stored), length, whole, token, multipart_etag)


def _pair(checksum: Checksum | None) -> tuple[str, str] | None:
    return (checksum.algorithm, checksum.value) if checksum else None

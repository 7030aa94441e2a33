"""The files that committers leave for each other: `.pending`, `.pendingset` and `_SUCCESS`.

Compatible with Hadoop's S3A in both directions (run against 3.3.4, 3.3.6, 3.4.1, 3.4.2 and 3.5.0;
``tests/golden`` has what these releases wrote): string etags (up to 3.4.1) and object etags (from
3.4.2), pretty (3.3.4) and compact.

Invariants:

* For any bytes, the only error is `FormatError`. It names object, field and reason.
* What is written passes the same checks as what is read, before the first byte is handed out.
* Decoding and encoding gives the same bytes for Hadoop's compact files, with the form of etags that
  they had: unknown fields, also in etags and commits, and the order of fields are kept.
* The versions are 2 (`.pending` and each commit) and 3 (`.pendingset`); a missing one is accepted,
  as in Hadoop.

Stricter than Hadoop's reader, which converts values, wherever that could lose data:

* uri, uploadId, bucket, destinationKey, jobId, taskId, etags, length and commits must be there with
  the right type. Hadoop reads a set without commits as an empty one, and no length as 0;
* refused: digits in a string, fractions, numbers beyond 64 bits, a field that appears twice,
  anything before or after the object, UTF-16, a byte order mark;
* refused: no etags or more than 10,000 (Complete would fail), a partCount that is not their number
  (Hadoop ignores it), a wrong checksum, a mixed list of etags (Hadoop too);
* refused in a set: two commits with one destination (Hadoop too), a commit of another job (Hadoop
  does not look);
* refused: control characters in keys, buckets, ids and etags, keys over 1,024 bytes.

As lenient as Hadoop: unknown fields; null for text, date, filename, extraData and iostatistics;
unknown checksum algorithms (such a part is completed by its ETag alone).

What we write ourselves is also sealed (see `magic_committer.hadoop.json`): for Hadoop, a set that
has lost a commit is well-formed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Literal

from magic_committer.errors import FormatError
from magic_committer.hadoop import fields, json
from magic_committer.hadoop.fields import EMPTY_STATISTICS, SUCCESS_NAME
from magic_committer.hadoop.json import (
    IF_THERE,
    REQUIRED,
    Document,
    Fields,
    Invalid,
    Rule,
    Unknown,
)
from magic_committer.stores.base import PART_NUMBER_MAX
from magic_committer.stores.urls import is_tree

PENDING_VERSION = 2
PENDINGSET_VERSION = 3

PENDING_BYTES_MAX = 8 * 1024**2
"""10,000 parts with checksums take 2 MiB."""
PENDINGSET_BYTES_MAX = 32 * 1024**2
"""Some 35,000 files of one task. Reading takes up to 8 times its size in memory; for a forged one
up to 18 times (docs/security.md)."""
SUCCESS_BYTES_MAX = 4 * 1024**2
SUCCESS_FILENAMES_MAX = 100
"""How many names a `_SUCCESS` lists (Hadoop's SUCCESS_MARKER_FILE_LIMIT)."""

EtagForm = Literal["objects", "strings"]

_MD5 = re.compile(r"[0-9a-f]{32}\Z")


# Values -------------------------------------------------------------------------------------------
# `unknown` holds fields that we do not know; `order` has the fields in the order of the file, ()
# for Hadoop's own order. With both a file can be written again as it was.


@dataclass(frozen=True, slots=True)
class UploadEtag:
    """One part of an upload, as Complete needs it. Its number is its place in the list, from 1.

    Attributes:
        etag: as the store sent it, usually with quotes.
        checksum: in base64, with its algorithm; both or none.
    """

    etag: str
    checksum_algorithm: str | None = None
    checksum: str | None = None
    unknown: Unknown = ()
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)


SIZE_ONLY = "size:"
"""Begins what stands for the ETag of a file whose task has told none: its size is all."""


@dataclass(frozen=True, slots=True)
class Pending:
    """One upload that waits for its Complete (Hadoop's SinglePendingCommit).

    Attributes:
        uri: the magic path that was written to; for staging committers, the destination.
        destination_key: where the object becomes visible.
        created, saved: milliseconds since the epoch.
        job_id, task_id: "" until the task is committed; ``task_id`` names the attempt.
        filename: the name of the `.pending`; None inside it and if there was none.
        length: bytes of the object.
        sealed: whether it is, or was, written with a seal.
    """

    uri: str
    upload_id: str
    bucket: str
    destination_key: str
    etags: tuple[UploadEtag, ...]
    length: int
    job_id: str = ""
    task_id: str = ""
    filename: str | None = None
    created: int = 0
    saved: int = 0
    date: str = ""
    text: str = ""
    extra_data: Mapping[str, str] = field(default_factory=dict)
    iostatistics: Mapping[str, Any] = field(default_factory=lambda: EMPTY_STATISTICS)
    unknown: Unknown = ()
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)
    sealed: bool = field(default=False, compare=False)

    def multipart_etag(self) -> str | None:
        """The ETag of the completed object on AWS and most stores: the MD5 of the parts' MD5s and
        their number, in quotes. None if a part's etag is not an MD5.

        With SSE-KMS or SSE-C a part's etag looks like an MD5 but is none: the result is then no
        object's ETag.
        """
        if is_tree(self.bucket) and len(self.etags) == 1:  # a file that waits, and keeps its own
            return self.etags[0].etag or f"{SIZE_ONLY}{self.length}"
        digest = hashlib.md5(usedforsecurity=False)
        for part in self.etags:
            value = part.etag.strip('"')
            if not _MD5.match(value):
                return None
            digest.update(bytes.fromhex(value))
        return f'"{digest.hexdigest()}-{len(self.etags)}"'


@dataclass(frozen=True, slots=True)
class PendingSet:
    """All uploads of one committed task attempt.

    Attributes:
        job_id: "" for staging committers.
        sealed: whether it is, or was, written with a seal; never for Hadoop's own sets.
    """

    job_id: str
    commits: tuple[Pending, ...]
    extra_data: Mapping[str, str] = field(default_factory=dict)
    iostatistics: Mapping[str, Any] = field(default_factory=lambda: EMPTY_STATISTICS)
    unknown: Unknown = ()
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)
    sealed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class SuccessData:
    """The marker of a committed job, or a job's report. The manifest committer's has the same form.

    Attributes:
        timestamp: milliseconds since the epoch.
        filenames: the first files, with a leading "/".
    """

    success: bool = True
    timestamp: int = 0
    date: str = ""
    hostname: str = ""
    committer: str = ""
    description: str = ""
    job_id: str = ""
    job_id_source: str = ""
    metrics: Mapping[str, int] = field(default_factory=dict)
    diagnostics: Mapping[str, str] = field(default_factory=dict)
    filenames: tuple[str, ...] = ()
    state: str | None = None
    stage: str | None = None
    iostatistics: Mapping[str, Any] = field(default_factory=lambda: EMPTY_STATISTICS)
    unknown: Unknown = ()
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)


# Making -------------------------------------------------------------------------------------------


def java_date(ms: int) -> str:
    """Java's ``Date.toString()`` in UTC for milliseconds since the epoch. Raises OverflowError: the
    time is after the year 9999."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[at.weekday()]
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{day} {months[at.month - 1]} {at:%d %H:%M:%S} UTC {at.year}"


def new_pending(*, created_ms: int, **values: Any) -> Pending:
    """Make a pending of ours, of the fields of `Pending`. It is not checked yet: `encode_pending`
    checks it."""
    date = java_date(created_ms)
    return Pending(created=created_ms, saved=created_ms, date=date, sealed=True, **values)


def new_pendingset(
    *,
    job_id: str,
    commits: Iterable[Pending],
    extra_data: Mapping[str, str],
    iostatistics: Mapping[str, Any],
) -> PendingSet:
    """Make a pendingset of ours. The commits' own statistics are emptied, as Hadoop does: the
    caller has added them up in ``iostatistics``."""
    emptied = tuple(
        commit
        if commit.iostatistics is EMPTY_STATISTICS
        else replace(commit, iostatistics=EMPTY_STATISTICS)
        for commit in commits
    )
    return PendingSet(job_id, emptied, extra_data, iostatistics, sealed=True)


def new_success(
    *, timestamp_ms: int, committer: str = "magic", filenames: Iterable[str] = (), **values: Any
) -> SuccessData:
    """Make a marker of ours, of the fields of `SuccessData`. ``filenames`` are keys; the first
    `SUCCESS_FILENAMES_MAX` are listed."""
    listed = islice(filenames, SUCCESS_FILENAMES_MAX)
    return SuccessData(
        timestamp=timestamp_ms,
        date=java_date(timestamp_ms),
        committer=committer,
        filenames=tuple("/" + name.removeprefix("/") for name in listed),
        **values,
    )


# Decoding and encoding ----------------------------------------------------------------------------


def decode_pending(data: bytes, source: str) -> Pending:
    """Read a `.pending`. Errors call the object ``source``."""
    with _naming(source):
        document, sealed = json.parse(data, PENDING_BYTES_MAX)
        return _read_pending(document, sealed)


def decode_pendingset(data: bytes, source: str) -> PendingSet:
    """Read a `.pendingset`, or a staging committer's file of the same form."""
    with _naming(source):
        document, sealed = json.parse(data, PENDINGSET_BYTES_MAX)
        return _read_pendingset(document, sealed)


def decode_success(data: bytes, source: str) -> SuccessData:
    """Read a `_SUCCESS` or a summary report, of S3A's committers or of the manifest committer. As
    in Hadoop, only two things are refused: wrong types, and a name that is wrong or null. Raises
    FormatError: it cannot be trusted. An empty marker is from the classic file committer."""
    with _naming(source):
        document, _ = json.parse(data, SUCCESS_BYTES_MAX)
        return _read_success(document)


def encode_pending(pending: Pending, etag_form: EtagForm = "objects", *, source: str = "") -> bytes:
    """Write a `.pending` in one line. ``"strings"`` leaves the parts' checksums out."""
    with _naming(source or f"pending of {pending.destination_key!r}"):
        document = _pending_document(pending, etag_form)
        _read_pending(document)
        return json.serialise(document, PENDING_BYTES_MAX, sealed=pending.sealed)


def encode_pendingset(
    pendingset: PendingSet,
    etag_form: EtagForm = "objects",
    *,
    source: str = "",
    is_plain: Callable[[Document, bytes], bool] | None = None,
) -> bytes:
    """Write a `.pendingset` in one line. ``"strings"`` leaves the parts' checksums out.
    ``is_plain``: whether a reader trusts this document and its bytes: a quick look at every field
    and its depth. Where it says no, or is None, the strict reader looks."""
    with _naming(source or f"pendingset of job {pendingset.job_id!r}"):
        document = _pendingset_document(pendingset, etag_form)
        write = partial(json.serialise, document, PENDINGSET_BYTES_MAX, sealed=pendingset.sealed)
        if is_plain is not None and is_plain(document, data := write(shallow=True)):
            return data
        _read_pendingset(document)
        return write()


def encode_success(success: SuccessData, *, source: str = "") -> bytes:
    """Write a `_SUCCESS` in one line. Errors call the object ``source``."""
    with _naming(source or f"_SUCCESS of job {success.job_id!r}"):
        document = _success_document(success)
        _read_success(document)
        return json.serialise(document, SUCCESS_BYTES_MAX, sealed=False)


@contextmanager
def _naming(source: str) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise FormatError(source, error.field, error.reason) from None


# Fields -------------------------------------------------------------------------------------------


def _etags(values: list[Any]) -> tuple[UploadEtag, ...]:
    if not 1 <= len(values) <= PART_NUMBER_MAX:
        raise Invalid("", f"has {len(values)} parts; an upload has 1 to {PART_NUMBER_MAX}")
    form = type(values[0])
    parts = []
    for index, value in enumerate(values):
        try:
            if type(value) is not form:
                raise Invalid("", "is not of the form of the first: strings or objects, not both")
            parts.append(_etag(value))
        except Invalid as error:
            raise error.within(f"[{index}]") from None
    return tuple(parts)


def _etag(value: Any) -> UploadEtag:
    if isinstance(value, str):
        return UploadEtag(fields.part_etag(value))
    if not isinstance(value, dict):
        raise Invalid("", "is neither a string nor an object")
    etag = UploadEtag(**json.read_fields(_ETAG_FIELDS, value))
    fields.check_checksum(etag.checksum_algorithm, etag.checksum)
    return etag


def _commits(values: list[Any]) -> tuple[Pending, ...]:
    commits: dict[str, Pending] = {}
    for index, value in enumerate(values):
        try:
            if not isinstance(value, dict):
                raise Invalid("", "is not an object")
            commit = _read_pending(value)
            key = commit.destination_key
            if key in commits:
                raise Invalid("destinationKey", f"{key!r} is written to twice")
        except Invalid as error:
            raise error.within(f"[{index}]") from None
        commits[key] = commit
    return tuple(commits.values())


_NONE: Mapping[str, Any] = {}
_ETAG_FIELDS = Fields(
    etag=Rule("etag", str, REQUIRED, fields.part_etag),
    checksumAlgorithm=Rule("checksum_algorithm", str, None),
    checksum=Rule("checksum", str, None),
)
_PENDING_FIELDS = Fields(
    version=Rule("", int, IF_THERE, fields.one_of_a_kind(PENDING_VERSION)),
    filename=Rule("filename", str, None),
    uri=Rule("uri", str, REQUIRED, fields.uri),
    uploadId=Rule("upload_id", str, REQUIRED, fields.upload_id),
    bucket=Rule("bucket", str, REQUIRED, fields.bucket),
    destinationKey=Rule("destination_key", str, REQUIRED, fields.key),
    created=Rule("created", int, 0, fields.int64),
    saved=Rule("saved", int, 0, fields.int64),
    date=Rule("date", str, ""),
    jobId=Rule("job_id", str),
    taskId=Rule("task_id", str),
    text=Rule("text", str, ""),
    etags=Rule("etags", list, REQUIRED, _etags),
    extraData=Rule("extra_data", dict, _NONE, fields.texts),
    length=Rule("length", int, REQUIRED, fields.length),
    iostatistics=Rule("iostatistics", dict, _NONE, fields.statistics),
    partCount=Rule("", int, None),
)
PENDING_NAMES = tuple(_PENDING_FIELDS)
"""The fields of a `.pending`, in the order of writing."""
_PENDINGSET_FIELDS = Fields(
    version=Rule("", int, IF_THERE, fields.one_of_a_kind(PENDINGSET_VERSION)),
    jobId=Rule("job_id", str),
    commits=Rule("commits", list, REQUIRED, _commits),
    extraData=Rule("extra_data", dict, _NONE, fields.texts),
    iostatistics=Rule("iostatistics", dict, _NONE, fields.statistics),
)
PENDINGSET_NAMES = tuple(_PENDINGSET_FIELDS)
_SUCCESS_FIELDS = Fields(
    name=Rule("", str, IF_THERE, fields.one_of_a_kind(SUCCESS_NAME)),
    success=Rule("success", bool, True),
    timestamp=Rule("timestamp", int, 0, fields.int64),
    date=Rule("date", str, ""),
    hostname=Rule("hostname", str, ""),
    committer=Rule("committer", str, ""),
    description=Rule("description", str, ""),
    jobId=Rule("job_id", str, ""),
    jobIdSource=Rule("job_id_source", str, ""),
    metrics=Rule("metrics", dict, _NONE, fields.metrics),
    diagnostics=Rule("diagnostics", dict, _NONE, fields.diagnostics),
    filenames=Rule("filenames", list, (), fields.filenames),
    state=Rule("state", str, None),
    stage=Rule("stage", str, None),
    iostatistics=Rule("iostatistics", dict, _NONE, fields.statistics),
)


def _read_pending(document: Document, sealed: bool = False) -> Pending:
    pending = Pending(**json.read_fields(_PENDING_FIELDS, document), sealed=sealed)
    count = document.get("partCount")
    if count not in (None, len(pending.etags)):
        raise Invalid("partCount", f"is {count}, but there are {len(pending.etags)} etags")
    return pending


def _read_pendingset(document: Document, sealed: bool = False) -> PendingSet:
    pendingset = PendingSet(**json.read_fields(_PENDINGSET_FIELDS, document), sealed=sealed)
    for index, commit in enumerate(pendingset.commits):
        if commit.job_id and pendingset.job_id not in ("", commit.job_id):
            where = f"commits[{index}].jobId"
            raise Invalid(where, f"is {commit.job_id!r}, the set's is {pendingset.job_id!r}")
    return pendingset


def _read_success(document: Document) -> SuccessData:
    return SuccessData(**json.read_fields(_SUCCESS_FIELDS, document))


def _pending_document(pending: Pending, etag_form: EtagForm) -> Document:
    if etag_form == "strings":
        etags: Sequence[Any] = [part.etag for part in pending.etags]
    else:
        etags = [json.write_fields(_ETAG_FIELDS, part, {}) for part in pending.etags]
    computed = {"version": PENDING_VERSION, "etags": etags, "partCount": len(etags)}
    return json.write_fields(_PENDING_FIELDS, pending, computed)


def _pendingset_document(pendingset: PendingSet, etag_form: EtagForm) -> Document:
    commits = [_pending_document(commit, etag_form) for commit in pendingset.commits]
    computed = {"version": PENDINGSET_VERSION, "commits": commits}
    return json.write_fields(_PENDINGSET_FIELDS, pendingset, computed)


def _success_document(success: SuccessData) -> Document:
    computed = {"name": SUCCESS_NAME, "filenames": list(success.filenames)}
    return json.write_fields(_SUCCESS_FIELDS, success, computed)

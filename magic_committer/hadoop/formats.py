"""The files that committers leave for each other: `.pending`, `.pendingset` and `_SUCCESS`.

Compatible with Hadoop's S3A in both directions (run against 3.3.4, 3.3.6, 3.4.1, 3.4.2 and 3.5.0;
``tests/golden`` has what these releases wrote): string etags (up to 3.4.1) and object etags (from
3.4.2), pretty (3.3.4) and compact.

Invariants:

* For any bytes, the only error is `FormatError`. It names object, field and reason.
* What is written passes the same checks as what is read, before the first byte is handed out.
* Decoding and encoding gives the same bytes for Hadoop's compact `.pending`, but for our seal, with
  the form of etags that it had. Unknown fields are not kept: nobody writes Hadoop's files again.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import force_setattr, replace

from magic_committer.errors import FormatError
from magic_committer.hadoop import fields, json
from magic_committer.hadoop.fields import EMPTY_STATISTICS
from magic_committer.hadoop.json import Invalid
from magic_committer.stores.base import PART_NUMBER_MAX
from magic_committer.stores.urls import is_tree

PENDING_VERSION: Literal[2] = 2
PENDINGSET_VERSION: Literal[3] = 3

PENDING_BYTES_MAX = 8 * 1024**2
"""10,000 parts with checksums take 2 MiB."""
PENDINGSET_BYTES_MAX = 32 * 1024**2
"""Some 35,000 files of one task. Reading takes up to 8 times its size in memory; for a forged one
up to 18 times (docs/security.md)."""
SUCCESS_BYTES_MAX = 4 * 1024**2
SUCCESS_FILENAMES_MAX = 100
"""How many names a `_SUCCESS` lists (Hadoop's SUCCESS_MARKER_FILE_LIMIT)."""

SuccessName = Literal["org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"]
SUCCESS_NAME: SuccessName = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"
EtagForm = Literal["objects", "strings"]

_MD5 = re.compile(r"[0-9a-f]{32}\Z")


# Values -------------------------------------------------------------------------------------------


class UploadEtag(Struct, frozen=True, gc=False, rename="camel"):
    """One part of an upload, as Complete needs it. Its number is its place in the list, from 1.

    Attributes:
        etag: as the store sent it, usually with quotes.
        checksum: in base64, with its algorithm; both or none.
    """

    etag: fields.Etag
    checksum_algorithm: str | None = None
    checksum: str | None = None


SIZE_ONLY = "size:"
"""Begins what stands for the ETag of a file whose task has told none: its size is all."""


@json.readable
class Pending(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One upload that waits for its Complete (Hadoop's SinglePendingCommit).

    Attributes:
        filename: the name of the `.pending`; None inside it and if there was none.
        uri: the magic path that was written to; for staging committers, the destination.
        destination_key: where the object becomes visible.
        created, saved: milliseconds since the epoch.
        job_id, task_id: "" until the task is committed; ``task_id`` names the attempt.
        etags: those of its parts; of Hadoop up to 3.4.1 strings, see `parts`.
        length: bytes of the object.
        iostatistics: as JSON.
    """

    version: Literal[2] = PENDING_VERSION
    filename: str | None = None
    uri: fields.Uri
    upload_id: fields.UploadId
    bucket: fields.Bucket
    destination_key: fields.Key
    created: fields.Int64 = 0
    saved: fields.Int64 = 0
    date: str | None = ""
    job_id: str
    task_id: str
    text: str | None = ""
    etags: Annotated[
        tuple[UploadEtag | fields.Etag, ...], Meta(min_length=1, max_length=PART_NUMBER_MAX)
    ]
    extra_data: dict[str, str] | None = field(default_factory=dict)
    length: fields.Length
    iostatistics: Raw = EMPTY_STATISTICS
    part_count: int | None = None

    @property
    def parts(self) -> Iterator[UploadEtag]:
        """Its parts, in whatever form they were written."""
        return (UploadEtag(part) if isinstance(part, str) else part for part in self.etags)

    def multipart_etag(self) -> str | None:
        """The ETag of the completed object on AWS and most stores: the MD5 of the parts' MD5s and
        their number, in quotes. None if a part's etag is not an MD5.

        With SSE-KMS or SSE-C a part's etag looks like an MD5 but is none: the result is then no
        object's ETag.
        """
        parts = [part.etag for part in self.parts]
        if is_tree(self.bucket) and len(parts) == 1:  # a file that waits, and keeps its own
            return parts[0] or f"{SIZE_ONLY}{self.length}"
        digest = hashlib.md5(usedforsecurity=False)
        for part in parts:
            value = part.strip('"')
            if not _MD5.match(value):
                return None
            digest.update(bytes.fromhex(value))
        return f'"{digest.hexdigest()}-{len(parts)}"'


@json.readable
class PendingSet(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """All uploads of one committed task attempt. ``job_id`` is "" for staging committers."""

    version: Literal[3] = PENDINGSET_VERSION
    job_id: str
    commits: tuple[Pending, ...]
    extra_data: dict[str, str] | None = field(default_factory=dict)
    iostatistics: dict[str, Any] | None = field(default_factory=dict)


@json.readable
class SuccessData(Struct, frozen=True, rename="camel", kw_only=True):
    """The marker of a committed job, or a job's report. The manifest committer's has the same form.

    Attributes:
        timestamp: milliseconds since the epoch.
        filenames: the first files, with a leading "/".
    """

    name: SuccessName = SUCCESS_NAME
    success: bool = True
    timestamp: fields.Int64 = 0
    date: str = ""
    hostname: str = ""
    committer: str = ""
    description: str = ""
    job_id: str = ""
    job_id_source: str = ""
    metrics: dict[str, fields.Int64] = field(default_factory=dict)
    diagnostics: dict[str, str] = field(default_factory=dict)
    filenames: tuple[str, ...] = ()
    state: str | None = None
    stage: str | None = None
    iostatistics: dict[str, Any] = field(default_factory=dict)


# Making -------------------------------------------------------------------------------------------


def java_date(ms: int) -> str:
    """Java's ``Date.toString()`` in UTC for milliseconds since the epoch. Raises OverflowError: the
    time is after the year 9999."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[at.weekday()]
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{day} {months[at.month - 1]} {at:%d %H:%M:%S} UTC {at.year}"


def new_pending(
    *,
    created_ms: int,
    etags: tuple[UploadEtag, ...],
    job_id: str = "",
    task_id: str = "",
    **values: Any,
) -> Pending:
    """Make a pending of ours, of the fields of `Pending`. It is not checked yet: `encode_pending`
    checks it."""
    return Pending(
        created=created_ms,
        saved=created_ms,
        date=java_date(created_ms),
        job_id=job_id,
        task_id=task_id,
        etags=etags,
        part_count=len(etags),
        **values,
    )


def new_pendingset(
    *,
    job_id: str,
    commits: Iterable[Pending],
    extra_data: dict[str, str],
    iostatistics: dict[str, Any],
) -> PendingSet:
    """Make a pendingset of ours. The commits' own statistics are emptied, as Hadoop does: the
    caller has added them up in ``iostatistics``."""
    emptied = tuple(
        commit
        if commit.iostatistics is EMPTY_STATISTICS
        else replace(commit, iostatistics=EMPTY_STATISTICS)
        for commit in commits
    )
    return PendingSet(
        job_id=job_id, commits=emptied, extra_data=extra_data, iostatistics=iostatistics
    )


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
        pending = json.parse(data, Pending, PENDING_BYTES_MAX)
        _check(pending)
        return pending


def decode_pendingset(data: bytes, source: str) -> PendingSet:
    """Read a `.pendingset`, or a staging committer's file of the same form."""
    with _naming(source):
        pendingset = json.parse(data, PendingSet, PENDINGSET_BYTES_MAX)
        _check_set(pendingset)
        return pendingset


def decode_success(data: bytes, source: str) -> SuccessData:
    """Read a `_SUCCESS` or a summary report, of S3A's committers or of the manifest committer. As
    in Hadoop, only two things are refused: wrong types, and a name that is wrong or null. Raises
    FormatError: it cannot be trusted. An empty marker is from the classic file committer."""
    with _naming(source):
        document = json.parse(data, json.Document, SUCCESS_BYTES_MAX)
        known = {n: v for n, v in document.items() if v is not None or n == "name"}
        for name, read in (("metrics", fields.metrics), ("diagnostics", fields.diagnostics)):
            if isinstance(known.get(name), dict):
                known[name] = read(known[name])
        return json.convert(known, SuccessData)


def encode_pending(pending: Pending, etag_form: EtagForm = "objects", *, source: str = "") -> bytes:
    """Write a `.pending` in one line, with a seal. ``"strings"`` leaves the parts' checksums
    out."""
    with _naming(source or f"pending of {pending.destination_key!r}"):
        data = json.serialise(_in_form(pending, etag_form), PENDING_BYTES_MAX, sealed=True)
        _check(pending)
        return data


def encode_pendingset(
    pendingset: PendingSet, etag_form: EtagForm = "objects", *, source: str = ""
) -> bytes:
    """Write a `.pendingset` in one line, with a seal. ``"strings"`` leaves the parts' checksums
    out."""
    with _naming(source or f"pendingset of job {pendingset.job_id!r}"):
        commits = tuple(_in_form(commit, etag_form) for commit in pendingset.commits)
        whole = replace(pendingset, commits=commits)
        data = json.serialise(whole, PENDINGSET_BYTES_MAX, sealed=True)
        _check_set(pendingset)
        return data


def encode_success(success: SuccessData, *, source: str = "") -> bytes:
    """Write a `_SUCCESS` in one line. Errors call the object ``source``."""
    with _naming(source or f"_SUCCESS of job {success.job_id!r}"):
        json.check_map(success.iostatistics, "iostatistics")
        return json.serialise(success, SUCCESS_BYTES_MAX, sealed=False)


def _in_form(pending: Pending, etag_form: EtagForm) -> Pending:
    if etag_form == "objects":
        return pending
    return replace(pending, etags=tuple(part.etag for part in pending.parts))


@contextmanager
def _naming(source: str) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise FormatError(source, error.field, error.reason) from None


def _check(pending: Pending, above: int = 1) -> None:
    """Look at what the types do not say; ``above`` is how deep it stands. Raises `Invalid`."""
    fields.check_key(pending.destination_key)
    fields.check_bucket(pending.bucket)
    form = type(pending.etags[0])
    for number, part in enumerate(pending.etags):
        try:
            if type(part) is not form:
                raise Invalid("", "is not of the form of the first: strings or objects, not both")
            if isinstance(part, UploadEtag):
                fields.check_checksum(part.checksum_algorithm, part.checksum)
        except Invalid as error:
            raise error.within(f"etags[{number}]") from None
    if pending.part_count not in (None, len(pending.etags)):
        reason = f"is {pending.part_count}, but there are {len(pending.etags)} etags"
        raise Invalid("partCount", reason)
    if pending.iostatistics == EMPTY_STATISTICS:
        kept = EMPTY_STATISTICS
    else:
        kept = pending.iostatistics.copy()
        json.check_raw(kept, "iostatistics", above)
    force_setattr(pending, "iostatistics", kept)  # it held the bytes of the whole document


def _check_set(pendingset: PendingSet) -> None:
    json.check_map(pendingset.iostatistics, "iostatistics")
    keys: set[str] = set()
    for number, commit in enumerate(pendingset.commits):
        try:
            _check(commit, above=3)
            key = commit.destination_key
            if key in keys:
                raise Invalid("destinationKey", f"{key!r} is written to twice")
            if commit.job_id and pendingset.job_id not in ("", commit.job_id):
                reason = f"is {commit.job_id!r}, the set's is {pendingset.job_id!r}"
                raise Invalid("jobId", reason)
        except Invalid as error:
            raise error.within(f"commits[{number}]") from None
        keys.add(key)

"""The one reader and writer of JSON, by msgspec: Hadoop's files, and the library's own documents.

Invariants:

* For any bytes, `parse` raises only `Invalid`, which names field and reason. Size, depth and the
  number of values have limits.
* While it is read, a document needs at most some 18 times its size in memory (measured:
  docs/security.md). It has at most one value for every `BYTES_A_VALUE_MIN` bytes; this is counted
  before it is parsed. ``[],[],[]`` would take 37 times its size.
* What `parse` accepts has one meaning: no field appears twice (readers disagree on which one
  counts), and no number lost digits. A document that is written again as it was read has one.
* A *sealed* document ends in the SHA-256 of what is before it. Every change is refused, even one
  that leaves the document well-formed: a missing commit, a changed letter of an upload id. Hadoop
  ignores the field, and its own files have none.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import orjson
from msgspec import Meta, Raw, Struct, field
from msgspec.structs import force_setattr, replace

from magic_committer.errors import FormatError, MagicError, WrongType
from magic_committer.errors.messages import UPGRADE
from magic_committer.stores.base import KEY_BYTES_MAX, PART_NUMBER_MAX
from magic_committer.stores.urls import is_tree

T = TypeVar("T")
Document = dict[str, Any]
"""A JSON object of any kind."""

DEPTH_MAX = 16
"""How deep objects and lists may be nested. Hadoop's deepest file, a pendingset, has six levels."""
BYTES_A_VALUE_MIN = 16
"""The least size of a value on average, if a document has more than `VALUES_FREE` values. Values of
committers have 24 bytes and more: names, ids and ETags are long."""
VALUES_FREE = 10_000
"""A document may have this many values, however short they are."""
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
SEAL = "contentSha256"
_SEAL_BYTES = len(f',"{SEAL}":""}}') + 64
"""Bytes of a seal, which comes last, with the bracket behind it."""
_MARK = f',"{SEAL}":'.encode()
_SEALED = re.compile(rb'"%s"\s*:' % SEAL.encode())

# Up to the beginning of the next value. Possessive: no input makes it try again what it has passed.
_VALUE = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^",\[{])*+[,\[{]', re.DOTALL)


def _plain(value: object) -> str | int:
    """What msgspec does not know: a text or number of a class of its own, as numpy's."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_READERS: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Any, Document)
}


def readable(kind: type[T]) -> type[T]:
    """Decorate a kind of document: its reader is made now, as the module is imported. Two threads
    that make one at once crash the process (msgspec looks at a kind's fields in Python)."""
    _READERS[kind] = msgspec.json.Decoder(kind)
    return kind


def reader_of(kind: Any) -> Callable[[bytes], Any]:
    """What reads a line of JSON as one of a kind. It raises `DecodeError` or UnicodeDecodeError."""
    return msgspec.json.Decoder(kind).decode


def lines_of(values: Iterable[Any]) -> bytes:
    """Write values as JSON, a line each."""
    return _ENCODER.encode_lines(values)


class Invalid(Exception):
    """A field cannot be trusted. The formats turn it into a `FormatError` that names the object.

    Attributes:
        field: JSON path; "" for the whole document.
        hint: what to do; "" if nothing is to be said.
    """

    def __init__(self, field: str, reason: str, hint: str = "") -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason
        self.hint = hint

    def within(self, parent: str) -> Invalid:
        """The same error, with the path from the document that holds ``parent``."""
        dot = "." if self.field and not self.field.startswith("[") else ""
        return Invalid(f"{parent}{dot}{self.field}", self.reason, self.hint)


def parse(data: bytes, kind: type[T], bytes_max: int) -> T:
    """Read one JSON object of a kind. Raises Invalid: it is too large, too deep, has too many
    values, is not UTF-8, not JSON, not of the kind, or ambiguous, or its seal does not match."""
    if len(data) > bytes_max:
        raise Invalid("", f"has {len(data)} bytes, at most {bytes_max} are read")
    if not data:
        raise Invalid("", "has no data (0 bytes)")
    refuse_crowded(data)
    body = _unsealed(data)
    value = _read(body, kind)
    if (kind is Document or _ENCODER.encode(value) != body) and SEAL in _unambiguous(body):
        raise Invalid(SEAL, "is not the last field, or stands twice")
    return value


def _unsealed(data: bytes) -> bytes:
    if not (data[-_SEAL_BYTES:].startswith(_MARK) or _SEALED.search(data)):
        return data
    body = data[:-_SEAL_BYTES] + b"}"
    if data[-_SEAL_BYTES:] == _seal(body) and body != b"{}":
        return body
    document = _unambiguous(data)  # perhaps somebody has changed its white space
    if not isinstance(document, dict) or SEAL not in document:
        return data  # the name of the field is a text in it
    seal = document.pop(SEAL)
    body = _ENCODER.encode(document)
    if seal != hashlib.sha256(body).hexdigest():
        raise Invalid(SEAL, "does not match: the document was changed after it was written")
    return body


def convert(document: Document, kind: type[T]) -> T:
    """Read JSON values as one of a kind that is `readable`. Raises `Invalid`; its cause is the
    error of the kind's own check, if that refused them."""
    assert kind in _READERS
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        wrong, own = _wrong(str(error), document), error.__cause__
        if isinstance(own, MagicError):
            wrong.reason, wrong.hint = own.message, own.hint
        raise wrong from own


def serialise(value: object, bytes_max: int, *, sealed: bool) -> bytes:
    """Write one JSON object compactly, with its seal if ``sealed``. NaN becomes null. Raises
    Invalid: it is what `parse` would refuse, or holds something that JSON cannot hold."""
    try:
        body = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid("", f"cannot be written as JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    data = body[:-1] + _seal(body) if sealed else body
    if len(data) > bytes_max:
        raise Invalid("", f"would have {len(data)} bytes, at most {bytes_max} are read")
    refuse_crowded(data)
    _read(body, type(value))
    return data


def _seal(body: bytes) -> bytes:
    return b'%s"%s"}' % (_MARK, hashlib.sha256(body).hexdigest().encode())


def _read(body: bytes, kind: type[T]) -> T:
    try:
        value: T = _READERS[kind].decode(body)
        return value
    except msgspec.ValidationError as error:
        raise _wrong(str(error), _unambiguous(body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None


def refuse_crowded(data: bytes) -> None:
    """Refuse a document with very many, very short values before it is parsed: each costs some 60
    to 240 bytes of memory, however short it is. Raises Invalid: it has more than
    `VALUES_FREE` values, with less than `BYTES_A_VALUE_MIN` bytes for each."""
    most = VALUES_FREE + len(data) // BYTES_A_VALUE_MIN
    if 1 + len(data) - len(data.translate(None, b",[{")) <= most:
        return
    # Commas and brackets inside texts do not count: go through them one by one, as far as
    # necessary.
    values, place = 1, _VALUE.match(data)
    while place is not None and values <= most:
        values, place = values + 1, _VALUE.match(data, place.end())
    if values > most:
        raise Invalid("", f"has over {most} values in {len(data)} bytes: no more are read")


def check_map(document: object, field: str, above: int = 1) -> None:
    """Refuse a field that is nested deeper than `DEPTH_MAX`, ``above`` levels of the whole document
    being above it, or has a number beyond 64 bits (`Invalid`)."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX + 1 - above):
        for one in level:
            if type(one) is int and not INT64_MIN <= one <= UINT64_MAX:
                raise Invalid(field, f"has the number {one:.8g}, which is beyond 64 bits")
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    raise _too_deep(field)


def check_raw(data: msgspec.Raw, field: str, above: int) -> None:
    """`check_map` for a field that was not read: a map or null, which has one meaning."""
    try:
        if not isinstance(_unambiguous(bytes(data), above), dict | None):
            raise Invalid("", "is not an object")
    except Invalid as error:
        raise error.within(field) from None


def _fits(number: int) -> bool:
    return INT64_MIN <= number <= UINT64_MAX


def _too_deep(field: str = "") -> Invalid:
    return Invalid(field, f"is nested deeper than {DEPTH_MAX} levels")


# What is wrong ------------------------------------------------------------------------------------


def _values(body: bytes) -> Any:
    try:
        return _READERS[Any].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None


def _unambiguous(body: bytes, above: int = 0) -> Any:
    """The values of a document, which has one meaning. They are made last: the look before needs as
    much memory."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        names = set()
        for name, _ in pairs:
            if name in names:
                raise Invalid(name, "appears twice in one object")
            names.add(name)

    def exact(digits: str) -> None:
        # Longer ones are not converted: the time for that grows with the square of their length.
        if len(digits) > 20 or not _fits(int(digits)):
            field = next(_beyond(_values(body), ""), "")
            raise Invalid(field, f"is a number beyond 64 bits ({digits:.24})")

    try:
        json.loads(body, object_pairs_hook=once, parse_int=exact)
    except (ValueError, RecursionError) as error:
        raise Invalid("", f"is not JSON: {error}") from None
    document = _values(body)
    check_map(document, "", above)
    return document


def _beyond(value: Any, field: str) -> Iterator[str]:
    """The JSON paths of numbers that nobody can keep."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _beyond(child, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _beyond(child, f"{field}[{index}]")
    elif type(value) is int and not _fits(value):
        yield field


_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a fraction",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}
_PLACE = re.compile(r"(.*) - at `\$((?:\.\w+|\[\d+\]|\[\.\.\.\])*)`", re.DOTALL)
_NAMED = re.compile(r"Object (missing required|contains unknown) field `(.*?)`?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")


def _wrong(message: str, document: Any) -> Invalid:
    """What msgspec says of a document, as field and reason. Its paths do not name what is wrong in
    a map, of texts or of numbers."""
    found = _PLACE.fullmatch(message)  # the last one: an unknown word is quoted before
    what, path = found.groups() if found else (message, "")
    field, value = "", document
    for name, index, anything in _STEP.findall(path):
        if anything:
            texts = "Expected `str`" in what
            right = (
                isinstance(v, str) if texts else type(v) is int and INT64_MIN <= v <= INT64_MAX
                for v in value.values()
            )
            name = next((name for name, fine in zip(value, right, strict=True) if not fine), "")
        field += f"[{index}]" if index else f".{name}"
        try:
            value = value[int(index) if index else name]
        except (LookupError, TypeError):  # it is missing; or an unknown field's name looks so
            value = None
    if named := _NAMED.fullmatch(what):
        field = f"{field}.{named[2]}".removeprefix(".")
        if named[1] == "missing required":
            return Invalid(field, "is missing")
        return Invalid(field, "is unknown to this version", UPGRADE)
    reason = re.search(r"\(\?#(.+?)\)", what) or re.match("(.+?)(?:, got|$)", what)
    assert reason is not None
    wanted = re.sub(r"\w+", lambda one: _WORDS.get(one[0], one[0]), reason[1])
    wanted = wanted.replace("`", "").replace(" | ", " or ")
    shown = msgspec.json.encode(value).decode()
    shown = f"{shown[:64]}…" if len(shown) > 64 else shown
    told = "is " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    if isinstance(value, dict | list):  # it may hold what is nobody's to see
        told = f"is {'an object' if isinstance(value, dict) else 'a list'}"
    hint = ""
    if wanted.startswith("Invalid enum"):
        wanted, hint = "which this library does not know", UPGRADE
    return Invalid(field.removeprefix("."), f"{told}, {wanted[:1].lower()}{wanted[1:]}", hint)


# What the values of Hadoop's files may be ---------------------------------------------------------
#
# As types: the kinds below say which field has which. A comment in a pattern is what an error says.
# What no pattern says is checked here.


EMPTY_STATISTICS = Raw(
    b'{"counters":{},"gauges":{},"minimums":{},"maximums":{},"meanstatistics":{}}'
)
"""Those of a commit in a set: the set has them. They are not looked at, as nothing depends on
them."""
CHECKSUM_BYTES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}

_PLAIN = r"(?#it is empty, or has a control character)\A[^\x00-\x1f\x7f-\x9f]+\Z"
# What java.net.URI accepts in a path: a raw blank fails in Hadoop.
_URI_TEXT = r'[^\x00-\x20\x7f-\x9f\s"<>\[\]\\^`{|}%]*+'

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Length = Annotated[int, Meta(ge=0, le=INT64_MAX)]
UploadId = Annotated[str, Meta(pattern=_PLAIN, max_length=4096)]
"""Far more than any store uses (AWS: some 130)."""
Text = Annotated[str, Meta(min_length=1)]
Bucket = Annotated[str, Meta(pattern=_PLAIN)]
"""Its name, or the URL of a directory."""
Key = Annotated[
    str,
    Meta(pattern=r"(?#it is empty, begins with '/', or has a control character)\A(?!/)" + _PLAIN),
]
Uri = Annotated[
    str,
    Meta(
        pattern="(?#no URI that Java could read)"
        rf"\A(?!\Z){_URI_TEXT}(?:%[0-9A-Fa-f]{{2}}{_URI_TEXT})*+\Z"
    ),
]
Etag = Annotated[str, Meta(pattern=r'(?#no ETag)\A("?)[!#-~]+\1\Z')]
"""Of a part, with or without quotes."""


def check_checksum(algorithm: str | None, value: str | None) -> None:
    """A part's checksum: base64, with the size of the algorithm; None without an algorithm."""
    if (value is None) != (algorithm is None):
        raise Invalid("checksum", "and its algorithm go together")
    if value is None:
        return
    try:
        size = len(binascii.a2b_base64(value.encode("ascii"), strict_mode=True))
    except ValueError:
        raise Invalid("checksum", "is not base64") from None
    if size != CHECKSUM_BYTES.get(str(algorithm), size):
        raise Invalid("checksum", f"has {size} bytes, which is no {algorithm}")


# Hadoop's files -----------------------------------------------------------------------------------
#
# The files that committers leave for each other: `.pending`, `.pendingset` and `_SUCCESS`.
#
# Compatible with Hadoop's S3A in both directions (run against 3.3.4, 3.3.6, 3.4.1, 3.4.2 and 3.5.0;
# ``tests/golden`` has what these releases wrote): string etags (up to 3.4.1) and object etags (from
# 3.4.2), pretty (3.3.4) and compact.
#
# Invariants:
#
# * For any bytes, the only error is `FormatError`. It names object, field and reason.
# * What is written passes the same checks as what is read, before the first byte is handed out.
# * Decoding and encoding gives the same bytes for Hadoop's compact `.pending`, but for our seal,
#   with the form of etags that it had. Unknown fields are not kept: nobody writes Hadoop's files
#   again.
# * The versions are 2 (`.pending` and each commit) and 3 (`.pendingset`); a missing one is
#   accepted, as in Hadoop.
#
# Stricter than Hadoop's reader, which converts values, wherever that could lose data:
#
# * uri, uploadId, bucket, destinationKey, jobId, taskId, etags, length and commits must be there
#   with the right type. Hadoop reads a set without commits as an empty one, and no length as 0;
# * refused: digits in a string, fractions, numbers beyond 64 bits, a field that appears twice,
#   anything before or after the object, UTF-16, a byte order mark;
# * refused: no etags or more than 10,000 (Complete would fail), a partCount that is not their
#   number (Hadoop ignores it), a wrong checksum, a mixed list of etags (Hadoop too);
# * refused in a set: two commits with one destination (Hadoop too), a commit of another job (Hadoop
#   does not look);
# * refused: control characters in keys, buckets, ids and etags, keys over 1,024 bytes.
#
# As lenient as Hadoop: unknown fields; null for text, date, filename, extraData and iostatistics;
# unknown checksum algorithms (such a part is completed by its ETag alone).
#
# What we write ourselves is also sealed: for Hadoop, a set that has lost a commit is well-formed.


PENDING_VERSION: Literal[2] = 2
PENDINGSET_VERSION: Literal[3] = 3

PENDING_BYTES_MAX = 8 * 1024**2
"""10,000 parts with checksums take 2 MiB."""
PENDINGSET_BYTES_MAX = 32 * 1024**2
"""Some 35,000 files of one task. Reading needs up to 8 times its size in memory; for a forged one
up to 18 times (docs/security.md)."""
SUCCESS_BYTES_MAX = 4 * 1024**2
SUCCESS_FILENAMES_MAX = 100
"""How many names a `_SUCCESS` and a `JobReport` list (Hadoop: SUCCESS_MARKER_FILE_LIMIT, 100)."""

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

    etag: Etag
    checksum_algorithm: str | None = None
    checksum: str | None = None


SIZE_ONLY = "size:"
"""Begins what stands for the ETag of a file whose task named none: its size is all."""


@readable
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
    uri: Uri
    upload_id: UploadId
    bucket: Bucket
    destination_key: Key
    created: Int64 = 0
    saved: Int64 = 0
    date: str | None = ""
    job_id: str
    task_id: str
    text: str | None = ""
    etags: Annotated[tuple[UploadEtag | Etag, ...], Meta(min_length=1, max_length=PART_NUMBER_MAX)]
    extra_data: dict[str, str] | None = field(default_factory=dict)
    length: Length
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


@readable
class PendingSet(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """All uploads of one committed task attempt. ``job_id`` is "" for staging committers."""

    version: Literal[3] = PENDINGSET_VERSION
    job_id: str
    commits: tuple[Pending, ...]
    extra_data: dict[str, str] | None = field(default_factory=dict)
    iostatistics: dict[str, Any] | None = field(default_factory=dict)


@readable
class SuccessData(Struct, frozen=True, rename="camel", kw_only=True):
    """The marker of a committed job, or a job's report. The manifest committer's has the same form.

    Attributes:
        timestamp: milliseconds since the epoch.
        filenames: the first files, with a leading "/".
    """

    name: SuccessName = SUCCESS_NAME
    success: bool = True
    timestamp: Int64 = 0
    date: str = ""
    hostname: str = ""
    committer: str = ""
    description: str = ""
    job_id: str = ""
    job_id_source: str = ""
    metrics: dict[str, Int64] = field(default_factory=dict)
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
    with naming(source):
        pending = parse(data, Pending, PENDING_BYTES_MAX)
        _check(pending)
        return pending


def decode_pendingset(data: bytes, source: str) -> PendingSet:
    """Read a `.pendingset`, or a staging committer's file of the same form."""
    with naming(source):
        pendingset = parse(data, PendingSet, PENDINGSET_BYTES_MAX)
        _check_set(pendingset)
        return pendingset


def decode_success(data: bytes, source: str) -> SuccessData:
    """Read a `_SUCCESS` or a summary report, of S3A's committers or of the manifest committer. As
    in Hadoop, only two things are refused: wrong types, and a name that is wrong or null. Raises
    FormatError: it cannot be trusted. An empty marker is from the classic file committer."""
    with naming(source):
        document = parse(data, Document, SUCCESS_BYTES_MAX)
        known = {n: v for n, v in document.items() if v is not None or n == "name"}
        # As Hadoop reads them: of a fraction its whole part; as a text also a number, or true.
        if isinstance(metrics := known.get("metrics"), dict):
            known["metrics"] = {
                name: int(v) if isinstance(v, float) else v for name, v in metrics.items()
            }
        if isinstance(told := known.get("diagnostics"), dict):
            known["diagnostics"] = {
                name: orjson.dumps(v).decode() if isinstance(v, bool | int | float) else v
                for name, v in told.items()
            }
        return convert(known, SuccessData)


def encode_pending(pending: Pending, etag_form: EtagForm = "objects") -> bytes:
    """Write a `.pending` in one line, with a seal. ``"strings"`` leaves the parts' checksums
    out."""
    with naming(f"pending of {pending.destination_key!r}"):
        data = serialise(_in_form(pending, etag_form), PENDING_BYTES_MAX, sealed=True)
        _check(pending)
        return data


def encode_pendingset(
    pendingset: PendingSet, etag_form: EtagForm = "objects", *, source: str = ""
) -> bytes:
    """Write a `.pendingset` in one line, with a seal. ``"strings"`` leaves the parts' checksums
    out."""
    with naming(source or f"pendingset of job {pendingset.job_id!r}"):
        commits = tuple(_in_form(commit, etag_form) for commit in pendingset.commits)
        whole = replace(pendingset, commits=commits)
        data = serialise(whole, PENDINGSET_BYTES_MAX, sealed=True)
        _check_set(pendingset)
        return data


def encode_success(success: SuccessData) -> bytes:
    """Write a `_SUCCESS` in one line."""
    with naming(f"_SUCCESS of job {success.job_id!r}"):
        check_map(success.iostatistics, "iostatistics")
        return serialise(success, SUCCESS_BYTES_MAX, sealed=False)


def _in_form(pending: Pending, etag_form: EtagForm) -> Pending:
    if etag_form == "objects":
        return pending
    return replace(pending, etags=tuple(part.etag for part in pending.parts))


@contextmanager
def naming(source: str) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise FormatError(source, error.field, error.reason) from None


def _check(pending: Pending, above: int = 1) -> None:
    """Look at what the types do not say; ``above`` is how deep it stands. Raises `Invalid`."""
    size, bucket = len(pending.destination_key.encode()), pending.bucket
    if size > KEY_BYTES_MAX:
        raise Invalid("destinationKey", f"has {size} bytes, S3 accepts {KEY_BYTES_MAX}")
    if "/" in bucket and not is_tree(bucket):
        raise Invalid("bucket", f"is {bucket!r:.64}: it has a '/'")
    form = type(pending.etags[0])
    for number, part in enumerate(pending.etags):
        try:
            if type(part) is not form:
                raise Invalid("", "is not of the form of the first: strings or objects, not both")
            if isinstance(part, UploadEtag):
                check_checksum(part.checksum_algorithm, part.checksum)
        except Invalid as error:
            raise error.within(f"etags[{number}]") from None
    if pending.part_count not in (None, len(pending.etags)):
        reason = f"is {pending.part_count}, but there are {len(pending.etags)} etags"
        raise Invalid("partCount", reason)
    if pending.iostatistics == EMPTY_STATISTICS:
        kept = EMPTY_STATISTICS
    else:
        kept = pending.iostatistics.copy()
        check_raw(kept, "iostatistics", above)
    force_setattr(pending, "iostatistics", kept)  # it held the bytes of the whole document


def _check_set(pendingset: PendingSet) -> None:
    check_map(pendingset.iostatistics, "iostatistics")
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


# The library's own documents ----------------------------------------------------------------------
#
# Reading and writing the library's own JSON: records, ledgers, results. A `Struct` says what a
# document holds. The reader is strict: it refuses a wrong type, a field that is missing, and an
# unknown one, because it might be a field that must not be dropped.
#
# A field with a default is one that earlier versions did not know: it is left out where it has its
# default, so that they can read all other documents.


_JSON_ONLY = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS


class OwnDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of what this library writes as JSON, and of the values in it. Decorate each with
    `readable`."""


def read_document(data: bytes, source: str, bytes_max: int, version: int) -> dict[str, Any]:
    """Parse one of our JSON objects, and take its version out."""
    if len(data) > bytes_max:
        raise FormatError(source, "", f"has {len(data)} bytes, more than {bytes_max}")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(source, "", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise FormatError(source, "", "is not a JSON object")
    check_version(document, source, version, UPGRADE)
    return document


def check_version(document: dict[str, Any], source: str, version: int, hint: str) -> None:
    """Take the version out of a document, and refuse another one."""
    if "version" not in document:
        raise FormatError(source, "version", "is missing")
    found = document.pop("version")
    if type(found) is not int or found != version:
        reason = f"is {found!r:.40}, this library knows {version}"
        raise FormatError(source, "version", reason, hint=hint)


def given_dict(values: object, what: str) -> dict[str, Any]:
    """The JSON values that a caller passed to ``from_dict``. Raises WrongType: it is not a dict.
    Raises FormatError: it holds what is no JSON. The value is not shown, because it is long."""
    if isinstance(values, Mapping):
        try:
            given: dict[str, Any] = orjson.loads(orjson.dumps(dict(values), option=_JSON_ONLY))
        except orjson.JSONEncodeError as error:
            raise FormatError(f"{what}.from_dict", "", f"is no JSON: {error}") from None
        return given
    text = isinstance(values, str | bytes)
    raise WrongType(
        f"{what}.from_dict needs a dict, not {type(values).__name__}",
        hint=f"Read the JSON first: {what}.from_dict(json.loads(text))"
        if text
        else f"Pass what {what}.to_dict() gave",
    )


def read_fields(kind: type[T], values: dict[str, Any], source: str) -> T:
    """Read JSON values as one of a kind. Raises FormatError: a field is missing, unknown, of the
    wrong type, or impossible."""
    try:
        read = convert(values, kind)
    except Invalid as error:
        raise FormatError(source, error.field, error.reason, hint=error.hint) from error.__cause__
    for name, held in values.items():
        part = getattr(read, name, None)
        if is_dataclass(part):  # msgspec passes over what they do not have
            known = {one.name for one in fields(part)}
            for inner in held:
                if inner not in known:
                    reason = "is unknown to this version"
                    raise FormatError(source, f"{name}.{inner}", reason, hint=UPGRADE)
    return read


def refuse_missing(kind: type[msgspec.Struct], values: Mapping[str, Any], source: str) -> None:
    """Refuse a value that lacks a field of a kind, whatever its default: where one was lost,
    another is not guessed."""
    for name in kind.__struct_fields__:
        if name not in values:
            raise FormatError(source, name, "is missing")


def plain(value: Any) -> dict[str, Any]:
    """A document as JSON values."""
    values: dict[str, Any] = msgspec.to_builtins(value)
    return values

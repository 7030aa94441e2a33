"""The port: what the library asks of an object store, in thirteen verbs and their values.

A store is bound to one bucket. Its verbs mirror S3's requests one to one, so that the order of
requests, on which the commit protocol rests, can be read in the callers. Rules for every
implementation (``tests/contract`` holds them against each):

* Every verb may be called from many threads at once. No verb keeps a reference to the caller's
  buffers after it has returned.
* No value of an SDK crosses this line: what goes in and out is defined here.
* A verb that raises `Unanswered` may have taken effect, may not, or may still. Retries happen
  below this line, in one layer; a result's ``attempts`` tells how often the request was sent.
* Reads after writes are consistent (S3, since 2020). `list_uploads` is a hint only: not listed
  never means gone (no store promises it).
* ETags are opaque, quotes included as the store sent them; compare with `same_etag`.
* Times are the store's clock, in seconds since the epoch. Age is ``seen_at - last_modified``:
  both come from the same reply, so no client clock is involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from magic_committer.errors import StoreError

# S3's limits (S3 API, "Multipart upload limits"), which every store is held to

PART_NUMBER_MAX = 10_000
PART_BYTES_MIN = 5 * 1024**2
"""Every part but the last must have this size."""
PART_BYTES_MAX = 5 * 1024**3
OBJECT_BYTES_MAX = PART_NUMBER_MAX * PART_BYTES_MAX
KEY_BYTES_MAX = 1024
METADATA_BYTES_MAX = 2048
PAGE_KEYS_MAX = 1000
DELETE_KEYS_MAX = 1000

ChecksumAlgorithm = Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum as S3 writes it: the big-endian digest in base64."""

    algorithm: ChecksumAlgorithm
    value: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a data object is born with; frozen by S3 when its upload is created.

    ``metadata`` keys are lower-case ASCII without the ``x-amz-meta-`` prefix. Everything that is
    None is left to the bucket's or the store options' default.
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    content_encoding: str | None = None
    content_disposition: str | None = None
    cache_control: str | None = None
    storage_class: str | None = None
    acl: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """``length`` bytes of a local file from ``offset``: the body of a part that waits on disk.
    The file must not change until the verb returns."""

    path: str
    offset: int
    length: int


PartBody = memoryview | FileSlice


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object, without its bytes.

    ``metadata`` is None where the reply does not carry it (listings). ``seen_at`` is the ``Date``
    of the reply.
    """

    key: str
    size: int
    etag: str
    last_modified: float
    seen_at: float
    metadata: Mapping[str, str] | None = None
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its bytes, for small control objects."""

    info: ObjectInfo
    body: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to `put` and `complete_upload`. ``etag`` may be "" where the store leaves it out
    of Complete's reply (Ceph RGW): HEAD has it."""

    etag: str
    version_id: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class CreatedUpload:
    """The answer to `create_upload`. With ``attempts`` above 1 there may be a second upload of the
    key whose id nobody knows (counterexamples.md, #18)."""

    upload_id: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A stored part, as Complete wants it named."""

    number: int
    etag: str
    size: int
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """An open upload as a listing shows it. ``initiated`` is None where the store leaves it out;
    never decide ownership by it (stores.md)."""

    key: str
    upload_id: str
    initiated: float | None = None
    storage_class: str = ""
    owner: str = ""
    initiator: str = ""


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """One page of a listing, at most 1,000 entries. ``prefixes`` are the common prefixes up to the
    delimiter, if one was asked for."""

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UploadPage:
    """One page of open uploads, at most 1,000. ``seen_at`` is the ``Date`` of the reply."""

    uploads: tuple[UploadInfo, ...]
    seen_at: float


class ObjectStore(Protocol):
    """One bucket of an object store. All errors are `magic_committer.errors.StoreError`s.

    Every verb may raise `PermissionDenied`, `Unanswered` and `InvalidRequest`; the docstrings name
    the others.
    """

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        ...

    @property
    def identity(self) -> str:
        """Names process-independent endpoint and bucket, e.g. ``"https://host:9000/bucket"``:
        the key under which what was learnt about a store is remembered. Never holds a secret."""
        ...

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        """Read a whole object of at most ``max_bytes`` bytes.

        Raises:
            NotFound: it is not there.
            InvalidRequest: it is larger; ``code`` is ``"TooLarge"``. Nothing more was read.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Read an object's properties and user metadata.

        Raises:
            NotFound: it is not there.
        """
        ...

    def put(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str | None = None,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> Written:
        """Write a small object in one request (never multipart).

        Args:
            if_none_match: only if there is no object of that key (``If-None-Match: *``).
            if_match: only if the object's ETag is this. Sent exactly as given: quoted as a store
                returned it, or unquoted where the store understands only that (Ceph RGW).

        Raises:
            PreconditionFailed: the condition did not hold, or a retry met its own success.
            NotFound: ``if_match`` on a key that is not there.
            WriteConflict: a conditional write of the key was under way.
        """
        ...

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        """Delete objects in batches of 1,000; keys that are absent are fine. Repeatable.

        Returns:
            The keys that could not be deleted, each with its error; empty if all went well.
        """
        ...

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        """Delete one object, or one version of it; an absent key is fine.

        Raises:
            PreconditionFailed: the object's ETag is another.
            NotFound: never for a missing key (stores differ: it counts as deleted).
        """
        ...

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        """List objects whose keys start with ``prefix``, in key order, a request a page.

        Pages come as they are asked for; the iterator is not shared between threads. Keys that do
        not start with ``prefix`` are never given (some stores ignore it).
        """
        ...

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        """Start a multipart upload. ``checksum``: the algorithm of its parts and, for the CRCs, of
        the whole object (``ChecksumType=FULL_OBJECT``; SHA: ``COMPOSITE``). Each call makes
        one more upload."""
        ...

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: PartBody,
        *,
        checksum: Checksum | None = None,
    ) -> Part:
        """Store part ``number`` (1 to 10,000). Repeatable: the last one stored wins.

        Raises:
            NotFound: the upload is not open (``code`` is ``"NoSuchUpload"``).
            InvalidRequest: the checksum does not match the bytes.
        """
        ...

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        """The stored parts in order of number, all pages.

        Raises:
            NotFound: the upload is not open.
        """
        ...

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        length: int | None = None,
        checksum: Checksum | None = None,
        if_none_match: bool = False,
    ) -> Written:
        """Make the object visible out of its parts.

        Args:
            length: total bytes; the store refuses another sum where it can (``MpuObjectSize``).
            checksum: of the whole object, where the upload was created for one.

        Raises:
            NotFound: the upload is not open: completed, aborted, or never was.
            PreconditionFailed: ``if_none_match`` and the key exists. The upload stays open.
            WriteConflict: with ``if_none_match``: final (S3 API).
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort an upload; one that is not open is fine. Repeatable.

        Parts in flight may outlive it: list and abort again (S3 API). A success proves nothing on
        some stores (stores.md, 4).
        """
        ...

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """List open uploads whose keys start with ``prefix``, a request a page.

        Raises:
            NotSupported: the store has no such listing.
        """
        ...


@runtime_checkable
class Retrying(Protocol):
    """A store that sends requests again by itself, and can leave that."""

    def once(self) -> ObjectStore:
        """The same bucket, each request sent once."""
        ...


def sent_once(store: ObjectStore) -> ObjectStore:
    """The store with its own retries off, where it has any: for a question whose answer may well be
    an error that is final and does not look it."""
    return store.once() if isinstance(store, Retrying) else store


def same_etag(a: str, b: str) -> bool:
    """Whether two ETags name the same bytes, whatever the quoting. An empty one equals nothing."""
    a, b = a.strip().strip('"'), b.strip().strip('"')
    return bool(a) and a == b


def same_time(a: float, b: float) -> bool:
    """Whether two Last-Modified may be of one write. Pure.

    Both are whole seconds on S3; some stores give fractions in listings and whole seconds in
    headers, of one and the same write.
    """
    return abs(a - b) < 1.0


def objects(
    store: ObjectStore, prefix: str, *, delimiter: str = "", start_after: str = ""
) -> Iterator[ObjectInfo]:
    """All objects below ``prefix``, page by page."""
    for page in store.list(prefix, delimiter=delimiter, start_after=start_after):
        yield from page.objects


def uploads(store: ObjectStore, prefix: str) -> Iterator[UploadInfo]:
    """All open uploads below ``prefix``, page by page."""
    for page in store.list_uploads(prefix):
        yield from page.uploads

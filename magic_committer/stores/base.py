"""The port: what the library needs from an object store, in verbs and their values.

A store belongs to one bucket. Its verbs mirror S3's requests one to one, so that the order of
requests, on which the commit protocol rests, can be read in the callers. Rules for every
implementation (``tests/contract`` checks each implementation):

* Many threads may call every verb at the same time. No verb keeps a reference to the caller's
  buffers after it has returned.
* No value of an SDK crosses this line: all arguments and results are defined here.
* A verb that raises `Unanswered` may have taken effect, may not have, or may still do so. Retries
  happen below this line, in one layer. A result's ``attempts`` says how often the request was sent.
* Reads after writes are consistent (S3, since 2020). `list_uploads` is only a hint: an upload that
  is not listed may still exist (no store promises a complete list).
* ETags are opaque, with the quotes that the store sent; compare them with `same_etag`.
* Times are the store's clock, in seconds since the epoch. Age is ``seen_at - last_modified``: both
  come from the same reply, so no client clock is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from magic_committer.errors import InvalidRequest, NotFound, PermissionDenied, StoreError
from magic_committer.runtime.threads import SLICE_SECONDS, Errand
from magic_committer.stores.urls import url_of

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
T = TypeVar("T")

# S3's limits (S3 API, "Multipart upload limits"), which hold for every store

PART_NUMBER_MAX = 10_000
PART_BYTES_MIN = 5 * 1024**2
"""Every part but the last must have at least this size."""
PART_BYTES_MAX = 5 * 1024**3
KEY_BYTES_MAX = 1024
METADATA_BYTES_MAX = 2048
PAGE_KEYS_MAX = 1000
DELETE_KEYS_MAX = 1000

ChecksumAlgorithm = Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]


class Checksum(NamedTuple):
    """A checksum as S3 writes it: the big-endian digest in base64."""

    algorithm: ChecksumAlgorithm
    value: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """Properties of a data object. S3 fixes them when its upload is created.

    Attributes:
        metadata: user metadata; the keys are lower-case ASCII without the ``x-amz-meta-`` prefix.
            Default: none.
        content_type, content_encoding, content_disposition, cache_control: the headers of these
            names; None (default): the store's default.
        storage_class, acl: S3's names, for example ``"STANDARD_IA"``; None (default): as
            `S3Options` says, or else the bucket.
        tags: the object's tags, in addition to those of `S3Options`. Default: none.
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    content_encoding: str | None = None
    content_disposition: str | None = None
    cache_control: str | None = None
    storage_class: str | None = None
    acl: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


PIECE_BYTES = 256 * 1024
"""Bytes that are read of a file at a time: each thread that sends holds as many."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """``length`` bytes of a local file from ``offset``: the body of a part that waits on disk. The
    file must not change until the verb returns."""

    path: str
    offset: int
    length: int

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, `PIECE_BYTES` at a time; fewer than ``length`` if the file is shorter."""
        left = self.length
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset)
            while left and (piece := file.read(min(left, PIECE_BYTES))):
                yield piece
                left -= len(piece)

    def read(self) -> bytes:
        """All its bytes. Raises `InvalidRequest`: the file is shorter."""
        data = b"".join(self.pieces())
        if len(data) != self.length:
            message = f"the file holds {len(data)} of the slice's {self.length} bytes"
            raise InvalidRequest(message, code="IncompleteBody")
        return data


@dataclass(frozen=True, slots=True)
class ObjectSlice:
    """``length`` bytes, at least 1, from ``offset`` of an object that has this ETag and
    ``object_bytes`` bytes, in a bucket of the same endpoint: the body of a part that the store
    copies by itself."""

    bucket: str
    key: str
    etag: str
    offset: int
    length: int
    object_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the object. Then no range is named: S3 accepts one only if the
        object has more than 5 MiB."""
        return self.length == self.object_bytes


PartBody = memoryview | FileSlice
"""The body of a part that is sent. Memory is one piece of bytes, which must not change until the
verb returns."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object, without its bytes.

    ``metadata`` is None if the reply does not carry it (listings). ``seen_at`` is the ``Date`` of
    the reply.
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


class Written(NamedTuple):
    """The answer to `put` and `complete_upload`. ``etag`` may be "" if the store leaves it out of
    the reply to Complete (Ceph RGW): HEAD has it."""

    etag: str
    version_id: str | None = None
    attempts: int = 1


class CreatedUpload(NamedTuple):
    """The answer to `create_upload`. If ``attempts`` is above 1, the key may have a second upload
    whose id nobody knows (counterexamples.md, #18)."""

    upload_id: str
    attempts: int = 1


class Part(NamedTuple):
    """A stored part, in the form that Complete needs."""

    number: int
    etag: str
    size: int
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """An open upload as a listing shows it. ``initiated`` is None if the store leaves it out; never
    decide ownership by it (stores.md). ``metadata``: the user's; None: not shown, as by S3."""

    key: str
    upload_id: str
    initiated: float | None = None
    storage_class: str = ""
    owner: str = ""
    initiator: str = ""
    metadata: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """One page of a listing, at most 1,000 entries. ``prefixes`` are the common prefixes up to the
    delimiter, if there is one."""

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file of a task that waits, as it was seen."""

    path: str  # relative to the store's root
    size: int
    etag: str
    modified: float
    regular: bool  # False: it is a link, a socket and so on, and cannot be published


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
        """The endpoint and the bucket, the same in every process, e.g.
        ``"https://host:9000/bucket"``. What was learnt about a store is remembered under this name.
        It never holds a secret."""
        ...

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        """Read a whole object of at most ``max_bytes`` bytes.

        Raises:
            NotFound: the object does not exist. A store may answer 403 for that: see `looked`.
            InvalidRequest: the object is larger; ``code`` is ``"TooLarge"``. Nothing more was read.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Read an object's properties and user metadata. Raises `NotFound` as `get`."""
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
            if_none_match: write only if there is no object with that key (``If-None-Match: *``).
            if_match: write only if the object has this ETag. It is sent exactly as given: with
                quotes as a store returned it, or without if the store understands only that (Ceph
                RGW).

        Raises:
            PreconditionFailed: the condition did not hold, or a retry met its own success.
            NotFound: ``if_match`` for a key without an object.
            WriteConflict: a conditional write of the key was in progress.
        """
        ...

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        """Delete objects in batches of 1,000. Missing keys are no error. Repeatable. Gives the keys
        that could not be deleted, each with its error."""
        ...

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        """Delete one object, or one version of it. A missing key is no error (stores differ: it
        counts as deleted).

        Raises:
            PreconditionFailed: the object does not have the ETag ``if_match``.
        """
        ...

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        """List objects whose keys start with ``prefix``, in key order, with one request for each
        page.

        A page is requested when it is needed; threads must not share the iterator. Keys that do not
        start with ``prefix`` are never given (some stores ignore the prefix). ``delimiter``: keys
        are grouped up to this text behind the prefix; "": they are not.
        """
        ...

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        """Start a multipart upload. Each call starts another upload. ``checksum``: the algorithm
        for its parts and, for the CRCs, for the whole object (``ChecksumType=FULL_OBJECT``; SHA:
        ``COMPOSITE``)."""
        ...

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: PartBody | ObjectSlice,
        *,
        checksum: Checksum | None = None,
    ) -> Part:
        """Store part ``number`` (1 to 10,000). Repeatable: the last one that is stored counts.
        ``checksum``: that of the bytes; none for an `ObjectSlice`.

        Raises:
            NotFound: the upload is not open (``code`` is ``"NoSuchUpload"``); or the object of an
                `ObjectSlice` is gone.
            PreconditionFailed: the object of an `ObjectSlice` has another ETag.
            InvalidRequest: the checksum does not match the bytes.
        """
        ...

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        """The stored parts in order of number, all pages. Raises `NotFound`: the upload is not
        open."""
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
        """Make the object of the parts visible.

        Args:
            parts: all its parts, in order of number.
            length: the sum of all bytes; stores that can check it refuse another sum
                (``MpuObjectSize``). None: not checked.
            checksum: of the whole object, if the upload was created for one.

        Raises:
            NotFound: the upload is not open: it was completed, was aborted, or never existed.
            PreconditionFailed: ``if_none_match``, and the key has an object. The upload stays open.
            WriteConflict: with ``if_none_match``: final (S3 API).
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort an upload. An upload that is not open is no error. Repeatable.

        Parts in flight may outlive the abort: list and abort again (S3 API). On some stores a
        success proves nothing (stores.md, "What else differs").
        """
        ...

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """List open uploads whose keys start with ``prefix``, with one request for each page.
        Raises `NotSupported`: the store has no such listing."""
        ...


class DirectoryStore(ObjectStore, Protocol):
    """A store that is a directory of a file system, where files of tasks wait."""

    def below(self, prefix: str) -> DirectoryStore:
        """The store of a directory below, whose jobs keep what waits in it."""
        ...

    def waiting_files(self, directory: str) -> Iterator[WaitingFile]:
        """Everything below a directory of a job that is no directory. Links are not followed."""
        ...

    def clear(self, directory: str) -> int:
        """Remove a directory of a job with everything below it. Gives how many files there were.
        Repeatable. Raises `StoreError`: something is left."""
        ...


# Requests as values: the arguments of each verb of the port --------------------------------------


class Put(NamedTuple):
    key: str
    body: bytes
    metadata: Mapping[str, str] | None = None
    content_type: str | None = None
    if_none_match: bool = False
    if_match: str | None = None


class CompleteUpload(NamedTuple):
    key: str
    upload_id: str
    parts: Sequence[Part]
    length: int | None = None
    checksum: Checksum | None = None
    if_none_match: bool = False


class AbortUpload(NamedTuple):
    """``once``: send it once, because it follows from a look, which is old by the time of a second
    try."""

    key: str
    upload_id: str
    once: bool = False


class ListParts(NamedTuple):
    key: str
    upload_id: str


class Head(NamedTuple):
    key: str


class FindUpload(NamedTuple):
    """Whether `ObjectStore.list_uploads` of a key shows one upload of that key."""

    key: str
    upload_id: str


class CreateUpload(NamedTuple):
    """``errand``: it ends with this one; None: with the present one."""

    key: str
    attributes: Attributes
    checksum: ChecksumAlgorithm | None = None
    errand: Errand | None = None


NO_BODY = memoryview(b"")


@dataclass(slots=True)
class PutPart:
    """``errand``: as for `CreateUpload`. Who has sent it drops its ``body``: an error may keep
    it."""

    key: str
    upload_id: str
    number: int
    body: PartBody | ObjectSlice
    checksum: Checksum | None = None
    errand: Errand | None = None


Ask = CompleteUpload | AbortUpload | ListParts | Head | FindUpload | CreateUpload | PutPart
Answer = Written | ObjectInfo | tuple[Part, ...] | UploadPage | CreatedUpload | Part | StoreError
"""What an `Ask` is answered: for a Complete and an abort a `Written` (for an abort: with an empty
ETag), for `FindUpload` a page with the upload, or with none if the listing does not show it, for
others what the verb returns; otherwise the error."""
Steps = Generator[Ask, Any, None]
"""A work that yields requests, and is sent their answers."""


def found_on(page: UploadPage, ask: FindUpload) -> UploadPage | None:
    """The answer to `FindUpload` that a page of the listing gives. None: a later page may show the
    upload. Pure."""
    named = (ask.key, ask.upload_id)
    shown = tuple(one for one in page.uploads if (one.key, one.upload_id) == named)
    if shown or any(one.key > ask.key for one in page.uploads):
        return replace(page, uploads=shown)
    return None


def ask_by_verb(store: ObjectStore, ask: Ask) -> Answer:
    """Ask a store by its verb. Raises as the verb."""
    if isinstance(ask, CompleteUpload):
        key, upload_id, parts, length, checksum, absent = ask
        return store.complete_upload(
            key, upload_id, parts, length=length, checksum=checksum, if_none_match=absent
        )
    if isinstance(ask, AbortUpload):
        (sent_once(store) if ask.once else store).abort_upload(ask.key, ask.upload_id)
        return Written("")
    if isinstance(ask, ListParts):
        return tuple(store.list_parts(ask.key, ask.upload_id))
    if isinstance(ask, Head):
        return store.head(ask.key)
    if isinstance(ask, FindUpload):
        page = UploadPage((), 0.0)
        for page in store.list_uploads(ask.key):
            if (found := found_on(page, ask)) is not None:
                return found
        return replace(page, uploads=())
    if isinstance(ask, CreateUpload):
        return store.create_upload(ask.key, attributes=ask.attributes, checksum=ask.checksum)
    body, ask.body = ask.body, NO_BODY
    return store.put_part(ask.key, ask.upload_id, ask.number, body, checksum=ask.checksum)


def by_verbs(store: ObjectStore, work: Generator[Ask, Any, R]) -> R:
    """Do a work by a store's verbs, one after the other, in this thread."""
    return run(work, partial(ask_by_verb, store))


class Many(Protocol):
    """Sends many requests at once, in the caller's thread."""

    def ask_each(
        self,
        next_ask: Callable[[], tuple[T, Ask] | None],
        *,
        in_flight: int,
        look_seconds: float = SLICE_SECONDS,
    ) -> Generator[tuple[T, Answer], None, None]:
        """Ask for each, as by its verb: with the same retries, answers and errors. Gives what the
        caller knows each request by, with its answer, in the order of the answers. The iteration
        ends when nothing is in flight, and there is no next request. If it is left early, it waits
        for what is in flight, after Ctrl-C only briefly.

        Args:
            next_ask: gives the next request, with what the caller knows it by; None: there is none
                now. Called when there is room, and again after each answer that was given.
            in_flight: how many at once, at most; fewer while the store asks for fewer.
            look_seconds: after so long without an answer ``next_ask`` is called again.
        """
        ...


# What a store may have beside its verbs -----------------------------------------------------------


def sent_once(store: ObjectStore) -> ObjectStore:
    """The store without its own retries, by its method ``once``, if it has any. For questions to
    which a store may give a final error that looks temporary."""
    once: Callable[[], ObjectStore] = getattr(store, "once", lambda: store)
    return once()


def many_of(store: ObjectStore) -> Many | None:
    """The store's way to send many requests at once, by its method ``many``. None: it has none, as
    it was set up; use the verbs in threads."""
    many: Callable[[], Many | None] = getattr(store, "many", lambda: None)
    return many()


def refusal_of(store: ObjectStore, committer: str, mode: str) -> str:
    """Why a store cannot serve such jobs, by its method ``refusal``; "": it can, or it has none."""
    refusal: Callable[[str, str], str] = getattr(store, "refusal", lambda *_: "")
    return refusal(committer, mode)


def not_held(store: ObjectStore, keys: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Why a store cannot hold the objects of these keys, all together: a sentence for each that it
    cannot, by its method ``not_held``. ``keys`` is called once for each pass over them."""
    held: Callable[[Callable[[], Iterable[str]]], Iterator[str]]
    held = getattr(store, "not_held", lambda _: iter(()))
    return held(keys)


def transport_of(store: ObjectStore) -> str:
    """What sends the store's requests, in one phrase, and why not the fastest way: its pair
    ``transport``. "" if it has no way to say so."""
    name, why = getattr(store, "transport", ("", ""))
    return f"{name} ({why})" if why else name


# Works, and what is made of the verbs -------------------------------------------------------------


def run(work: Generator[A, B, R], ask: Callable[[A], B]) -> R:
    """Do a work that yields requests: ask for one after the other. Gives its result."""
    try:
        asked = next(work)
        while True:
            try:
                answer = ask(asked)
            except Exception as error:
                asked = work.throw(error)
            else:
                asked = work.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


def working(
    work: Generator[A, B, R], ask: Callable[[A], Generator[T, Any, B]]
) -> Generator[T, Any, R]:
    """`run`, where ``ask`` is a generator itself. (`run` by this takes twice as long, and a commit
    asks it once for each file.)"""
    try:
        asked = next(work)
        while True:
            try:
                answer = yield from ask(asked)
            except Exception as error:
                asked = work.throw(error)
            else:
                asked = work.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


def looked(
    store: ObjectStore, key: str, look: A, page: Callable[[], A], shows: Callable[[B], bool]
) -> Generator[A, B, B]:
    """Do a GET or a HEAD of a key, as a work (`run`); for adapters. AWS answers 403, not 404, for a
    missing key to who may not list by that very request: under a policy that allows s3:ListBucket
    for some prefixes, that is everybody, for a GET names no prefix. So after a 403 the key is
    listed.

    ``look`` is the request, ``page`` gives the request for the listing, and ``shows`` says whether
    its answer shows the key.

    Raises:
        NotFound: there is no object. Its ``status`` is 403 if the listing alone shows that.
        StoreError: as ``look`` is answered. A refusal stands if the listing, or a second look at a
            key that it shows, is refused as well.
    """
    try:
        return (yield look)
    except PermissionDenied as refused:
        if refused.status != 403:
            raise
        try:
            there = shows((yield page()))
        except StoreError as error:
            raise refused from error
        if not there:
            raise NotFound(
                f"{refused.operation} {url_of(store.bucket, key)}: it is refused (403), and a"
                " listing shows no object there",
                operation=refused.operation,
                bucket=store.bucket,
                key=key,
                status=refused.status,
                attempts=refused.attempts,
            ) from refused
    return (yield look)  # it may have come meanwhile


def listed(store: ObjectStore, key: str) -> ObjectInfo | None:
    """The object at a key as a listing shows it, without metadata; None if it shows none. One page:
    with the key as prefix, the key comes first."""
    for page in store.list(key):
        return next((info for info in page.objects if info.key == key), None)
    return None


def delete_each(delete: Callable[[str], object], keys: Iterable[str]) -> dict[str, StoreError]:
    """Delete objects one by one. Gives the keys that could not be deleted, each with its error."""
    failed: dict[str, StoreError] = {}
    for key in keys:
        try:
            delete(key)
        except StoreError as error:
            failed[key] = error
    return failed


def named_parts(wanted: Sequence[Part], stored: Mapping[int, Part]) -> list[int]:
    """The numbers of the parts that a Complete names, by S3's rules for the list. Raises
    `InvalidRequest`."""
    numbers = [part.number for part in wanted]
    if not numbers:
        raise InvalidRequest("it names no parts", code="MalformedXML")
    if numbers != sorted(set(numbers)):
        raise InvalidRequest("it names its parts out of order", code="InvalidPartOrder")
    for number, etag, _, checksum in wanted:
        have = stored.get(number)
        if have is None:
            raise InvalidRequest(f"there is no part {number}", code="InvalidPart")
        if not same_etag(etag, have.etag):
            message = f"part {number} has the ETag {have.etag}, not {etag}"
            raise InvalidRequest(message, code="InvalidPart")
        if checksum is not None and checksum != have.checksum:
            raise InvalidRequest(f"part {number} has another checksum", code="InvalidPart")
    return numbers


def same_etag(a: str, b: str) -> bool:
    """Whether two ETags name the same bytes, with or without quotes. "" equals nothing."""
    a, b = a.strip().strip('"'), b.strip().strip('"')
    return bool(a) and a == b


def same_time(a: float, b: float) -> bool:
    """Whether two Last-Modified may belong to the same write: some stores give fractions in
    listings and whole seconds in headers."""
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

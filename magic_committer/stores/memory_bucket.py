"""The state of one bucket in memory, and S3's rules on it: no lock, no hook, no I/O.

`memory.MemoryStore` holds a lock around each call. A method either changes the bucket completely,
or it raises and changes nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
)
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    PART_BYTES_MAX,
    PART_BYTES_MIN,
    PART_NUMBER_MAX,
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ObjectInfo,
    ObjectPage,
    ObjectSlice,
    Part,
    StoredObject,
    UploadInfo,
    UploadPage,
    Written,
    delete_each,
    named_parts,
    same_etag,
)

_REFUSALS: Mapping[str, tuple[type[StoreError], int]] = {
    "AccessDenied": (PermissionDenied, 403),
    "NoSuchBucket": (BucketNotFound, 404),
    "NoSuchKey": (NotFound, 404),
    "NoSuchUpload": (NotFound, 404),
    "PreconditionFailed": (PreconditionFailed, 412),
    "TooLarge": (InvalidRequest, 200),
}
"""For S3's codes their class and status; all others are `InvalidRequest`, 400."""


@dataclass(slots=True)
class StoredPart:
    body: bytes
    md5: bytes
    part: Part


@dataclass(slots=True)
class OpenUpload:
    key: str
    upload_id: str
    number: int  # grows with every upload: the order of their start
    initiated: float
    attributes: Attributes
    checksum: ChecksumAlgorithm | None
    initiator: str
    parts: dict[int, StoredPart] = field(default_factory=dict)


@dataclass(slots=True)
class StoredBytes:
    pieces: tuple[bytes, ...]
    size: int
    etag: str
    last_modified: float
    attributes: Attributes
    upload_id: str = ""  # the upload that it was made of: these two identify a second Complete
    named: tuple[tuple[int, str], ...] = ()


_buckets: WeakValueDictionary[str, Bucket] = WeakValueDictionary()
"""The newest bucket of each name in this process: what may be copied from."""


@dataclass(eq=False)
class Bucket:
    """Objects and open uploads. Arguments as for `magic_committer.stores.memory.MemoryStore`."""

    name: str
    page_keys: int
    forgetful_complete: bool
    clock: Callable[[], float]
    ids: Callable[[], str]
    part_bytes_min: int
    missing_is_refused: bool
    objects: dict[str, StoredBytes] = field(default_factory=dict)
    uploads: dict[str, OpenUpload] = field(default_factory=dict)
    _upload_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _listed: tuple[object, list[str]] = (None, [])
    """The objects of the last listing, and their keys; nothing, if a key has come or gone since."""

    def __post_init__(self) -> None:
        _buckets[self.name] = self

    # Objects -------------------------------------------------------------------------------------

    def get(self, key: str, max_bytes: int) -> StoredObject:
        found = self._find(key, looks=True)
        if found.size > max_bytes:
            message = f"has {found.size} bytes, more than the {max_bytes} that were asked for"
            raise refused("TooLarge", message)
        return StoredObject(self._info(key, found, full=True), b"".join(found.pieces))

    def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._find(key, looks=True), full=True)

    def put(
        self,
        key: str,
        body: bytes,
        attributes: Attributes,
        *,
        etag: str = "",
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> Written:
        _check_key(key)
        _check_metadata(attributes.metadata)
        if if_none_match and if_match is not None:
            raise refused("InvalidArgument", "If-Match and If-None-Match exclude each other")
        if if_none_match:
            self._check_absent(key)
        if if_match is not None:
            self._check_etag(if_match, self._find(key))
        etag = etag or quoted(md5(body))
        self._store(key, StoredBytes((body,), len(body), etag, self._now(), attributes))
        return Written(etag)

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        failed = delete_each(self.delete_one, keys)
        return {key: placed(error, "delete_one", self.name, key) for key, error in failed.items()}

    def delete_one(
        self, key: str, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        _check_key(key)
        if version_id not in (None, "null"):
            raise refused("InvalidArgument", "the bucket has no versions")
        if (found := self.objects.get(key)) is not None:
            if if_match is not None:
                self._check_etag(if_match, found)
            del self.objects[key]
            self._listed = None, []

    def _store(self, key: str, stored: StoredBytes) -> None:
        if key not in self.objects:
            self._listed = None, []
        self.objects[key] = stored

    def object_page(self, prefix: str, delimiter: str, bound: str) -> tuple[ObjectPage, str | None]:
        """One page of the keys from ``bound`` on, and where the next one begins (None: there is
        none)."""
        found: list[ObjectInfo] = []
        prefixes: list[str] = []
        of, keys = self._listed
        if of is not self.objects or len(keys) != len(self.objects):
            # Python orders text by code point, which is the binary order of UTF-8 (S3 API).
            keys = sorted(self.objects)
            self._listed = self.objects, keys
        for key in itertools.islice(keys, bisect_left(keys, max(prefix, bound)), None):
            if not key.startswith(prefix):
                break
            if prefixes and key.startswith(prefixes[-1]):
                continue
            if len(found) + len(prefixes) == self.page_keys:
                return ObjectPage(tuple(found), tuple(prefixes)), key
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                found.append(self._info(key, self.objects[key], full=False))
            else:
                prefixes.append(key[: end + len(delimiter)])
        return ObjectPage(tuple(found), tuple(prefixes)), None

    # Uploads -------------------------------------------------------------------------------------

    def open(
        self,
        key: str,
        attributes: Attributes,
        checksum: ChecksumAlgorithm | None = None,
        initiator: str = "",
    ) -> str:
        """Create an upload and give its id."""
        _check_key(key)
        _check_metadata(attributes.metadata)
        number, upload_id = next(self._upload_numbers), self.ids()
        self.uploads[upload_id] = OpenUpload(
            key, upload_id, number, self._now(), attributes, checksum, initiator
        )
        return upload_id

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: bytes,
        digest: bytes,
        checksum: Checksum | None,
    ) -> Part:
        upload = self._find_upload(key, upload_id)
        if not 1 <= number <= PART_NUMBER_MAX:
            message = f"part number {number} is not between 1 and {PART_NUMBER_MAX}"
            raise refused("InvalidArgument", message)
        if len(body) > PART_BYTES_MAX:
            raise refused("EntityTooLarge", f"part {number} has more than {PART_BYTES_MAX} bytes")
        _check_algorithm(upload, checksum)
        # What S3 stores for the part is its own sum of the bytes.
        stored = checksums.of(upload.checksum, body) if upload.checksum is not None else None
        if checksum is not None and stored is not None and checksum != stored:
            message = f"the bytes have {stored.algorithm} {stored.value}, not {checksum.value}"
            raise refused("BadDigest", message)
        part = Part(number, quoted(digest), len(body), stored)
        upload.parts[number] = StoredPart(body, digest, part)
        return part

    def copy_part(self, key: str, upload_id: str, number: int, source: ObjectSlice) -> Part:
        """Store a part from an object of this bucket, or of another one of this process."""
        held = self if source.bucket == self.name else _buckets.get(source.bucket)
        if held is None:
            raise refused("NoSuchBucket", f"there is no bucket {source.bucket}")
        found = held.objects.get(source.key)
        if found is None:
            raise refused("NoSuchKey", f"there is no object {source.bucket}/{source.key}")
        self._check_etag(source.etag, found)
        whole = b"".join(found.pieces)
        if not source.is_whole and len(whole) <= PART_BYTES_MIN:
            message = "The specified copy source is not supported as a byte-range copy source"
            raise refused("InvalidRequest", message)
        body = whole[source.offset : source.offset + source.length]
        if len(body) != source.length or not body:
            raise refused("InvalidRange", "the range is not in the object")
        return self.put_part(key, upload_id, number, body, md5(body), None)

    def part_page(self, key: str, upload_id: str, after: int) -> tuple[Sequence[Part], int | None]:
        """One page of the parts behind number ``after``, and the number before the next page."""
        stored = self._find_upload(key, upload_id).parts
        numbers = sorted(number for number in stored if number > after)
        page = [stored[number].part for number in numbers[: self.page_keys]]
        return page, page[-1].number if len(numbers) > len(page) else None

    def complete(
        self,
        key: str,
        upload_id: str,
        wanted: Sequence[Part],
        length: int | None,
        checksum: Checksum | None,
        if_none_match: bool,
    ) -> Written:
        named = tuple((part.number, part.etag.strip('"')) for part in wanted)
        done = self.objects.get(key)
        again = done is not None and (done.upload_id, done.named) == (upload_id, named)
        if done is not None and again and not self.forgetful_complete:
            if if_none_match:
                self._check_absent(key)
            return Written(done.etag)
        upload = self._find_upload(key, upload_id)
        if if_none_match:
            self._check_absent(key)
        stored = self._named_parts(upload, wanted)
        size = sum(len(part.body) for part in stored)
        if length is not None and length != size:
            message = f"the parts have {size} bytes, not the {length} that were stated"
            raise refused("InvalidRequest", message)
        _check_whole(upload, stored, checksum)
        etag = quoted(md5(b"".join(part.md5 for part in stored)), len(stored))
        pieces = tuple(part.body for part in stored)
        del self.uploads[upload_id]
        # S3: the Last-Modified of an object from an upload is the time of its Create
        of = (upload.initiated, upload.attributes, upload_id, named)
        self._store(key, StoredBytes(pieces, size, etag, *of))
        return Written(etag)

    def abort(self, key: str, upload_id: str) -> None:
        upload = self.uploads.get(upload_id)
        if upload is not None and upload.key == key:
            del self.uploads[upload_id]

    def upload_page(
        self, prefix: str, bound: tuple[str, int]
    ) -> tuple[UploadPage, tuple[str, int] | None]:
        """One page of the uploads from ``bound`` on, and where the next one begins (None: there is
        none)."""
        found: list[UploadInfo] = []
        held = [one for one in self.uploads.values() if one.key.startswith(prefix)]
        for upload in sorted(held, key=in_order):
            if len(found) == self.page_keys:
                return UploadPage(tuple(found), self._now()), in_order(upload)
            if in_order(upload) >= bound:
                found.append(upload_info(upload))
        return UploadPage(tuple(found), self._now()), None

    # Rules ---------------------------------------------------------------------------------------

    def _now(self) -> float:
        return float(int(self.clock()))

    def _find(self, key: str, *, looks: bool = False) -> StoredBytes:
        _check_key(key)
        found = self.objects.get(key)
        if found is None and self.missing_is_refused and looks:
            message = "without s3:ListBucket the store does not say that there is no such object"
            raise refused("AccessDenied", message)
        if found is None:
            raise refused("NoSuchKey", "there is no such object")
        return found

    def _find_upload(self, key: str, upload_id: str) -> OpenUpload:
        _check_key(key)
        upload = self.uploads.get(upload_id)
        if upload is None or upload.key != key:
            message = f"upload {upload_id!r} is not open: completed, aborted, or never was"
            raise refused("NoSuchUpload", message)
        return upload

    def _info(self, key: str, found: StoredBytes, *, full: bool) -> ObjectInfo:
        metadata = dict(found.attributes.metadata) if full else None
        return ObjectInfo(
            key, found.size, found.etag, found.last_modified, self._now(), metadata=metadata
        )

    def _check_absent(self, key: str) -> None:
        if key in self.objects:
            message = "there is an object already, If-None-Match did not hold"
            raise refused("PreconditionFailed", message)

    def _check_etag(self, if_match: str, found: StoredBytes) -> None:
        if not same_etag(if_match, found.etag):
            message = f"the object's ETag is {found.etag}, If-Match {if_match} did not hold"
            raise refused("PreconditionFailed", message)

    def _named_parts(self, upload: OpenUpload, wanted: Sequence[Part]) -> Sequence[StoredPart]:
        """The stored parts that Complete names, by S3's rules for the list."""
        try:
            named_parts(wanted, {number: one.part for number, one in upload.parts.items()})
        except InvalidRequest as error:
            raise refused(error.code, error.message) from None
        composite = upload.checksum is not None and not checksums.joins(upload.checksum)
        stored = [upload.parts[part.number] for part in wanted]
        for part, have in zip(wanted, stored, strict=True):
            if part.checksum is None and composite:
                message = f"part {part.number} comes without its {upload.checksum}"
                raise refused("InvalidRequest", message)
            if len(have.body) < self.part_bytes_min and part is not wanted[-1]:
                message = f"part {part.number} has {len(have.body)} bytes and is not the last"
                raise refused("EntityTooSmall", message)
        return stored


def _check_key(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise refused("InvalidURI", "the key is not UTF-8") from None
    if size == 0:
        raise refused("InvalidArgument", "the key is empty")
    if size > KEY_BYTES_MAX:
        message = f"the key has {size} bytes, at most {KEY_BYTES_MAX} are allowed"
        raise refused("KeyTooLongError", message)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    text = "".join(name + value for name, value in metadata.items())
    if not text.isascii():
        raise refused("InvalidArgument", "metadata is not ASCII")
    if len(text) > METADATA_BYTES_MAX:
        message = f"metadata has {len(text)} bytes, at most {METADATA_BYTES_MAX} are allowed"
        raise refused("MetadataTooLarge", message)


def _check_algorithm(upload: OpenUpload, given: Checksum | None) -> None:
    if given is not None and given.algorithm != upload.checksum:
        message = f"a checksum of {given.algorithm}, but the upload's is {upload.checksum}"
        raise refused("InvalidRequest", message)


def _check_whole(upload: OpenUpload, stored: Sequence[StoredPart], given: Checksum | None) -> None:
    """Check the checksum of the whole object: over all bytes for CRCs, over the parts' sums for
    SHAs."""
    if given is None:
        return
    _check_algorithm(upload, given)
    parts = [one.part for one in stored]
    sums = [(part.checksum, part.size) for part in parts if part.checksum is not None]
    if checksums.joins(given.algorithm):
        computed = checksums.whole(sums)
        held = {computed.value} if computed else set()
    else:
        value = checksums.composite([part for part, _ in sums]).value
        held = {value, value.rpartition("-")[0]}
    if given.value not in held:
        message = f"the object has {given.algorithm} {min(held)}, not {given.value}"
        raise refused("BadDigest", message)


def refused(code: str, message: str) -> StoreError:
    """A refusal in S3's words, which `placed` gives its place."""
    cls, status = _REFUSALS.get(code, (InvalidRequest, 400))
    return cls(f"{message} ({status} {code})", status=status, code=code)


def placed(error: StoreError, verb: str, bucket: str, key: str) -> StoreError:
    """The same error, of a request; one that has its place keeps it."""
    if not error.operation:
        error.operation, error.bucket, error.key = verb, bucket, key
        error.message = f"{verb} {bucket}/{key}: {error.message}"
        error.args = (error.message,)
    return error


def in_order(upload: OpenUpload) -> tuple[str, int]:
    """The order of uploads: by key, and then of their start."""
    return upload.key, upload.number


def upload_info(upload: OpenUpload) -> UploadInfo:
    return UploadInfo(
        upload.key,
        upload.upload_id,
        initiated=upload.initiated,
        storage_class=upload.attributes.storage_class or "STANDARD",
        initiator=upload.initiator,
    )


def frozen(attributes: Attributes) -> Attributes:
    """A copy that the caller cannot change. Names of metadata are in lower case, as HTTP makes
    them."""
    metadata = {name.lower(): value for name, value in attributes.metadata.items()}
    return replace(attributes, metadata=metadata, tags=dict(attributes.tags))


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def quoted(digest: bytes, parts: int = 0) -> str:
    return f'"{digest.hex()}-{parts}"' if parts else f'"{digest.hex()}"'

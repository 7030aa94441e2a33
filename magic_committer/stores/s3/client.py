"""The store on S3's API: every verb of the port is one request. It is sent by the fast way (`fast`)
or by boto3 (`via_boto3`), which is chosen once, when the store is made.

Invariants:

* Each request goes through `S3Store._asking`: one retry layer, one translation of errors. A verb
  that can be asked many at once is written once, as a generator of requests.
* No value of the SDK leaves this package. A body is opened again for each attempt.
* Listings are paged here and filtered again by prefix: some stores ignore it (stores.md). A page
  that says "more" without saying where is an error, never the end.
* A store may be used after a fork.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import logging
import os
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    OptionError,
    StoreError,
)
from magic_committer.options import S3Options
from magic_committer.runtime.components import Clock, SystemClock
from magic_committer.runtime.threads import SLICE_SECONDS
from magic_committer.stores.base import (
    DELETE_KEYS_MAX,
    NO_BODY,
    AbortUpload,
    Answer,
    Ask,
    Checksum,
    ChecksumAlgorithm,
    CompleteUpload,
    CreatedUpload,
    CreateUpload,
    FileSlice,
    FindUpload,
    Head,
    ListParts,
    Many,
    ObjectInfo,
    ObjectPage,
    ObjectSlice,
    Part,
    PartBody,
    Put,
    PutPart,
    StoredObject,
    UploadInfo,
    UploadPage,
    Written,
    delete_each,
    found_on,
    looked,
    working,
)
from magic_committer.stores.checksum import joins
from magic_committer.stores.s3.answers import Reply
from magic_committer.stores.s3.config import (
    NotPlain,
    customer_key_headers,
    encryption_headers,
    is_express,
    surroundings,
)
from magic_committer.stores.s3.errors import per_key
from magic_committer.stores.s3.fast import Fast
from magic_committer.stores.s3.http import Waits, waited
from magic_committer.stores.s3.many import Loop, each_result
from magic_committer.stores.s3.requests import CHECKSUM_FIELDS, Call
from magic_committer.stores.s3.retry import Attempts

if TYPE_CHECKING:
    from magic_committer.stores.s3.via_boto3 import ViaBoto3

R = TypeVar("R")
T = TypeVar("T")

Work = Generator[Call, tuple[Reply, int], R]
"""What one verb asks: it yields requests, is sent each reply with how often it was asked for, or is
thrown the error, and returns the verb's result."""

_log = logging.getLogger("magic_committer")


class _PageStart(NamedTuple):
    """Where a page of uploads begins; ``before``: the page before it, for a listing by key."""

    markers: Mapping[str, str] = {}
    by_key: bool = False
    before: Sequence[UploadInfo] = ()


class S3Store:
    """One bucket of S3, or of a store with its protocol. Implements
    `magic_committer.stores.base.ObjectStore`; safe for many threads. `connect` gives a shared one.
    Raises `OptionError`: the options cannot be used together with the environment."""

    def __init__(
        self, bucket: str, options: S3Options | None = None, *, clock: Clock | None = None
    ) -> None:
        self._bucket = bucket
        self._options = options or S3Options()
        self._clock = clock or SystemClock()
        self._customer_key = customer_key_headers(self._options)
        self._encryption = encryption_headers(self._options, self._customer_key)
        self._payer = {"RequestPayer": "requester"} if self._options.requester_pays else {}
        self._way = self._make()

    def __repr__(self) -> str:
        return f"S3Store({self.identity!r})"

    @property
    def bucket(self) -> str:
        return self._bucket

    @property
    def identity(self) -> str:
        return f"{self._way.endpoint}/{self._bucket}"

    @property
    def transport(self) -> tuple[str, str]:
        """Which way requests go: ``"fast"`` or ``"boto3"``; and why, if it is the latter."""
        return ("fast", "") if isinstance(self._way, Fast) else ("boto3", self._way.why)

    def once(self) -> S3Store:
        """The same bucket over the same connections. Each request is sent once."""
        single = copy.copy(self)
        single._options = replace(self._options, retry_attempts_max=1)
        return single

    # Objects -------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        wanted = {**self._named(key), **self._customer_key}
        call = Call("get", "GetObject", key, wanted, bytes_max=max_bytes)
        reply = self._do(self._looking(call))
        return StoredObject(self._object(key, reply, size=len(reply["Body"])), reply["Body"])

    def head(self, key: str) -> ObjectInfo:
        return self._do(self._heading(Head(key)))

    def _heading(self, asked: Head) -> Work[ObjectInfo]:
        wanted = {**self._named(asked.key), **self._customer_key}
        reply = yield from self._looking(Call("head", "HeadObject", asked.key, wanted))
        return self._object(asked.key, reply)

    def _looking(self, call: Call) -> Work[Reply]:
        """A GET or a HEAD, as `magic_committer.stores.base.looked`."""

        def page() -> Call:
            return Call("list", "ListObjectsV2", call.key, {"Prefix": call.key, **self._payer})

        def shows(answer: tuple[Reply, int]) -> bool:
            return any(one["Key"] == call.key for one in answer[0].get("Contents", ()))

        return (yield from looked(self, call.key, call, page, shows))[0]

    def put(self, key: str, body: bytes, **given: Any) -> Written:
        asked = Put(key, body, **given)
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        wanted = self._named(
            key,
            # S3 wants it where Object Lock retains all; S3 Express refuses it.
            ContentMD5=None if is_express(self._bucket) else md5,
            Metadata=asked.metadata or None,
            ContentType=asked.content_type,
            IfNoneMatch="*" if asked.if_none_match else None,
            IfMatch=asked.if_match,
            **self._encryption,
        )
        reply, attempts = self._ask(Call("put", "PutObject", key, wanted, bytes(body)))
        return Written(reply.get("ETag", ""), reply.get("VersionId"), attempts)

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        failed: dict[str, StoreError] = {}
        source = iter(keys)
        while batch := tuple(itertools.islice(source, DELETE_KEYS_MAX)):
            try:
                failed.update(self._delete_batch(batch))
            except (NotSupported, InvalidRequest):
                # Some stores refuse the batch, because of its checksum or always (stores.md).
                failed.update(delete_each(self.delete_one, batch))
            except StoreError as error:  # the batch as a whole: it holds for each of its keys
                failed.update(dict.fromkeys(batch, error))
        return failed

    def _delete_batch(self, batch: Sequence[str]) -> Mapping[str, StoreError]:
        wanted = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
        named = batch[0] if len(batch) == 1 else ""
        parameters = {"Delete": wanted, **self._payer}
        reply, attempts = self._ask(Call("delete", "DeleteObjects", named, parameters))
        return {
            one["Key"]: per_key(
                one.get("Code", ""), one.get("Message", ""), self._bucket, one["Key"], attempts
            )
            for one in reply.get("Error", ())
            if one.get("Code") != "NoSuchKey"
        }

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        wanted = self._named(key, IfMatch=if_match, VersionId=version_id)
        with suppress(NotFound):
            self._ask(Call("delete_one", "DeleteObject", key, wanted))

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        place = {"StartAfter": start_after} if start_after else {}
        fixed = {"Prefix": prefix, **self._payer}
        if delimiter:
            fixed["Delimiter"] = delimiter
        while True:
            call = Call("list", "ListObjectsV2", prefix, {**fixed, **place})
            reply, attempts = self._ask(call)
            seen_at = self._seen_at(reply)
            yield ObjectPage(
                tuple(
                    ObjectInfo(key, one["Size"], one.get("ETag", ""), one["LastModified"], seen_at)
                    for one in reply.get("Contents", ())
                    if (key := one["Key"]).startswith(prefix)
                ),
                tuple(
                    one["Prefix"]
                    for one in reply.get("CommonPrefixes", ())
                    if one["Prefix"].startswith(prefix)
                ),
            )
            place = self._following(call, reply, attempts, "ContinuationToken")
            if not place:
                return

    # Uploads -------------------------------------------------------------------------------------

    def create_upload(self, key: str, **given: Any) -> CreatedUpload:
        return self._do(self._creating(CreateUpload(key, **given)))

    def _creating(self, asked: CreateUpload) -> Work[CreatedUpload]:
        attributes, checksum = asked.attributes, asked.checksum
        tags = {**dict(self._options.tags), **attributes.tags}
        wanted = self._named(
            asked.key,
            Metadata=attributes.metadata or None,
            ContentType=attributes.content_type,
            ContentEncoding=attributes.content_encoding,
            ContentDisposition=attributes.content_disposition,
            CacheControl=attributes.cache_control,
            StorageClass=attributes.storage_class or self._options.storage_class,
            ACL=attributes.acl or self._options.acl,
            Tagging=urllib.parse.urlencode(tags) or None,
            ChecksumAlgorithm=checksum,
            ChecksumType=_checksum_type(checksum),
            **self._encryption,
        )
        reply, attempts = yield Call(
            "create_upload", "CreateMultipartUpload", asked.key, wanted, errand=asked.errand
        )
        return CreatedUpload(reply["UploadId"], attempts)

    def put_part(
        self, key: str, upload_id: str, number: int, body: PartBody | ObjectSlice, **given: Any
    ) -> Part:
        asked = PutPart(key, upload_id, number, body, **given)
        del body
        return self._do(self._putting_part(asked))

    def _putting_part(self, asked: PutPart) -> Work[Part]:
        key, number, checksum = asked.key, asked.number, asked.checksum
        body, asked.body = asked.body, NO_BODY
        wanted = self._of_upload(asked)
        wanted.update(PartNumber=number, **self._customer_key, **_checksum_named(checksum))
        size = body.nbytes if isinstance(body, memoryview) else body.length
        if isinstance(body, FileSlice):
            os.stat(body.path)  # a file that is not there is no error of the store
        call = Call("put_part", "UploadPart", key, wanted, errand=asked.errand)
        if isinstance(body, ObjectSlice):
            call.operation = "UploadPartCopy"
            wanted["CopySource"] = f"{body.bucket}/{body.key}"
            wanted["CopySourceIfMatch"] = body.etag
            if not body.is_whole:
                last = body.offset + body.length - 1
                wanted["CopySourceRange"] = f"bytes={body.offset}-{last}"
        else:
            call.body = body
        try:
            reply, _ = yield call
        except StoreError as error:
            clear_frames(error.__traceback__)  # who keeps the error keeps no body with it
            raise
        finally:
            body = call.body = NO_BODY
        return Part(number, reply["ETag"], size, _checksum_of(reply) or checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        return self._do(self._listing_parts(ListParts(key, upload_id)))

    def _listing_parts(self, asked: ListParts) -> Work[tuple[Part, ...]]:
        parts: list[Part] = []
        place: dict[str, Any] = {}
        while True:
            wanted = {**self._of_upload(asked), **self._customer_key, **place}
            call = Call("list_parts", "ListParts", asked.key, wanted)
            reply, attempts = yield call
            parts += [
                Part(one["PartNumber"], one["ETag"], one["Size"], _checksum_of(one))
                for one in reply.get("Part", ())
            ]
            place = self._following(call, reply, attempts, "PartNumberMarker")
            if not place:
                return tuple(parts)

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **given: Any
    ) -> Written:
        return self._do(self._completing(CompleteUpload(key, upload_id, parts, **given)))

    def _completing(self, asked: CompleteUpload) -> Work[Written]:
        parts = [
            {"PartNumber": one.number, "ETag": one.etag, **_checksum_named(one.checksum)}
            for one in asked.parts
        ]
        wanted = self._of_upload(asked)
        wanted.update(MultipartUpload={"Parts": parts}, **self._customer_key)
        if asked.length is not None:
            wanted["MpuObjectSize"] = asked.length
        if asked.if_none_match:
            wanted["IfNoneMatch"] = "*"
        if asked.checksum is not None:
            wanted.update(_checksum_named(asked.checksum))
            wanted["ChecksumType"] = _checksum_type(asked.checksum.algorithm)
        call = Call("complete_upload", "CompleteMultipartUpload", asked.key, wanted)
        call.conflict_final = asked.if_none_match
        reply, attempts = yield call
        return Written(reply.get("ETag", ""), reply.get("VersionId"), attempts)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._do(self._aborting(AbortUpload(key, upload_id)))

    def _aborting(self, asked: AbortUpload) -> Work[Written]:
        wanted = self._of_upload(asked)
        with suppress(NotFound):
            yield Call("abort_upload", "AbortMultipartUpload", asked.key, wanted, once=asked.once)
        return Written("")

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        place: _PageStart | None = _PageStart()
        while place is not None:
            page, place = self._do(self._upload_page(prefix, place))
            yield page

    def _finding(self, asked: FindUpload) -> Work[UploadPage]:
        place: _PageStart | None = _PageStart()
        while place is not None:
            page, place = yield from self._upload_page(asked.key, place)
            if (found := found_on(page, asked)) is not None:
                return found
        return replace(page, uploads=())

    def _upload_page(
        self, prefix: str, at: _PageStart
    ) -> Work[tuple[UploadPage, _PageStart | None]]:
        """One page of uploads, and where the next one begins; None: it is the last.

        versitygw refuses both markers together (stores.md). The listing then goes on by key alone,
        from the last key whose uploads were all on the page before, and drops duplicates.
        """
        wanted = {"Prefix": prefix, **at.markers, **self._payer}
        call = Call("list_uploads", "ListMultipartUploads", prefix, wanted)
        try:
            reply, attempts = yield call
        except InvalidRequest:
            if at.by_key or "UploadIdMarker" not in at.markers or not at.before:
                raise
            by_key = _PageStart({"KeyMarker": next(_key_markers(at.before))}, True, at.before)
            return (yield from self._upload_page(prefix, by_key))
        page = [_upload_of(one) for one in reply.get("Upload", ())]
        repeated = {(one.key, one.upload_id) for one in at.before} if at.by_key else set()
        shown = (one for one in page if (one.key, one.upload_id) not in repeated)
        held = tuple(one for one in shown if one.key.startswith(prefix))
        if at.by_key:
            ahead = (key for key in _key_markers(page) if key > at.markers["KeyMarker"])
            reply.update(NextKeyMarker=next(ahead, ""), NextUploadIdMarker="")
        place = self._following(call, reply, attempts, "KeyMarker", "UploadIdMarker")
        given = UploadPage(held, self._seen_at(reply))
        return given, _PageStart(place, at.by_key, page) if place else None

    def _following(self, call: Call, reply: Reply, attempts: int, *markers: str) -> dict[str, Any]:
        """The parameters that request the page behind this one; none: it is the last. A page that
        says "more", and not where, is an error."""
        if not reply.get("IsTruncated"):
            return {}
        place = {name: said for name in markers if (said := reply.get(f"Next{name}"))}
        before = {name: call.parameters[name] for name in markers if name in call.parameters}
        is_ahead = place.get("PartNumberMarker", 1) > before.get("PartNumberMarker", 0)
        if place and place != before and is_ahead:
            return place
        where = f" s3://{self._bucket}/{call.key}" if self._bucket else ""
        raise NotSupported(
            f"{call.verb}{where} failed: the listing says that there is more, and not where",
            operation=call.verb,
            bucket=self._bucket,
            key=call.key,
            status=200,
            attempts=attempts,
            hint="The store cannot be listed past one page",
        )

    # Many requests -------------------------------------------------------------------------------

    def many(self) -> Many | None:
        """Itself, by the fast way (`magic_committer.stores.base.many_of`)."""
        return self if isinstance(self._way, Fast) else None

    def ask_each(
        self,
        next_ask: Callable[[], tuple[T, Ask] | None],
        *,
        in_flight: int,
        look_seconds: float = SLICE_SECONDS,
    ) -> Generator[tuple[T, Answer], None, None]:
        """Implements `magic_committer.stores.base.Many`."""
        assert isinstance(self._way, Fast)
        loop: Loop[T] = Loop(self._way.http, self._clock, in_flight)
        asking = partial(self._asking, over=loop)

        def next_work() -> tuple[T, Waits[Answer]] | None:
            if (new := next_ask()) is None:
                return None
            return new[0], working(_WORKS[type(new[1])](self, new[1]), asking)

        yield from each_result(loop, next_work, look_seconds)

    # The way of a request ------------------------------------------------------------------------

    def _do(self, work: Work[R]) -> R:
        return waited(working(work, self._asking), self._clock.sleep)

    def _ask(self, call: Call) -> tuple[Reply, int]:
        """Send a request until it is answered, in this thread. Gives the reply, and how often the
        request was sent."""
        return waited(self._asking(call), self._clock.sleep)

    def _asking(self, call: Call, over: Loop[Any] | None = None) -> Waits[tuple[Reply, int]]:
        return Attempts(self._options, self._clock, self._way, self._bucket, call).ask(over)

    def _make(self) -> Fast | ViaBoto3:
        options = self._options
        try:
            return Fast(self._bucket, options, self._clock)
        except NotPlain as reason:
            if options.transport == "fast":
                raise OptionError(
                    f"transport='fast' cannot be used: {reason}",
                    hint="Use transport='auto': boto3 then sends the requests",
                ) from None
            from magic_committer.stores.s3.via_boto3 import ViaBoto3  # late: boto3 takes a while

            if options.transport == "auto":
                _log.info("s3://%s: boto3 sends the requests: %s", self._bucket, reason)
            return ViaBoto3(self._bucket, options, str(reason))

    def _object(self, key: str, reply: Reply, *, size: int | None = None) -> ObjectInfo:
        return ObjectInfo(
            key,
            reply["ContentLength"] if size is None else size,
            reply["ETag"],
            reply["LastModified"],
            self._seen_at(reply),
            metadata=reply["Metadata"],
            version_id=reply.get("VersionId"),
        )

    def _seen_at(self, reply: Reply) -> float:
        """The reply's ``Date``. This machine's time if a store leaves it out or sends no valid
        date."""
        seen_at: float | None = reply["SeenAt"]
        return float(int(self._clock.now())) if seen_at is None else seen_at

    def _named(self, key: str, **more: Any) -> dict[str, Any]:
        """The parameters of a request on a key. None is not sent."""
        given = {name: value for name, value in more.items() if value is not None}
        return {"Key": key, **self._payer, **given}

    def _of_upload(
        self, asked: PutPart | ListParts | CompleteUpload | AbortUpload
    ) -> dict[str, Any]:
        return {"Key": asked.key, **self._payer, "UploadId": asked.upload_id}


_WORKS: Mapping[type, Callable[[S3Store, Any], Work[Any]]] = {
    CompleteUpload: S3Store._completing,
    AbortUpload: S3Store._aborting,
    ListParts: S3Store._listing_parts,
    Head: S3Store._heading,
    FindUpload: S3Store._finding,
    CreateUpload: S3Store._creating,
    PutPart: S3Store._putting_part,
}


# Values -------------------------------------------------------------------------------------------


def _checksum_of(reply: Reply) -> Checksum | None:
    for algorithm, name in CHECKSUM_FIELDS.items():
        if name in reply:
            return Checksum(algorithm, reply[name])
    return None


def _checksum_named(checksum: Checksum | None) -> dict[str, Any]:
    return {} if checksum is None else {CHECKSUM_FIELDS[checksum.algorithm]: checksum.value}


def _checksum_type(algorithm: ChecksumAlgorithm | None) -> str | None:
    if algorithm is None:
        return None
    return "FULL_OBJECT" if joins(algorithm) else "COMPOSITE"


def _upload_of(one: Reply) -> UploadInfo:
    people = _who(one.get("Owner")), _who(one.get("Initiator"))
    since, kept = one.get("Initiated"), one.get("StorageClass", "")
    return UploadInfo(one["Key"], one["UploadId"], since, kept, *people)


def _who(person: Mapping[str, str] | None) -> str:
    return (person or {}).get("DisplayName") or (person or {}).get("ID", "")


def _key_markers(page: Sequence[UploadInfo]) -> Iterator[str]:
    """Keys from which a listing can go on if it has no upload markers, the best first. First the
    last keys whose uploads are all on the page; then the very last key, some of whose uploads may
    be missed."""
    last = page[-1].key if page else ""
    yield from (one.key for one in reversed(page) if one.key != last)
    yield last


# One store for each way to it --------------------------------------------------------------------

STORES_MAX = 16
"""How many stores that no job uses are kept, with their connections, for the next job."""

_Wanted = tuple[str, S3Options, frozenset[tuple[str, str]]]
_lock = threading.Lock()
_connected: deque[S3Store] = deque(maxlen=STORES_MAX)
"""Those that were wanted last, the newest at the end."""
_in_use: WeakValueDictionary[_Wanted, S3Store] = WeakValueDictionary()
"""These, and those that jobs still have."""


def connect(
    bucket: str, options: S3Options | None = None, held: dict[str, Any] | None = None
) -> S3Store:
    """The process's store for that bucket and those options, as the environment is now. Connections
    are shared. A store for which no credentials were found is not kept: the next call looks again.
    ``held``: the stores that the caller had before, by bucket: they stay what they were, whatever
    the environment is now. Raises as `S3Store`."""
    held = {} if held is None else held
    mine: S3Store | None = held.get(bucket)
    if mine is not None:
        return mine
    options = options or S3Options()
    wanted = (bucket, options, surroundings())
    with _lock:
        store = _in_use.get(wanted)
        if store is None:
            store = S3Store(bucket, options)
            if not store._way.has_credentials:
                return store
            _in_use[wanted] = store
        elif store in _connected:
            _connected.remove(store)
        _connected.append(store)
        held[bucket] = store
        return store


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""The store on S3's API: every verb of the port is one request, in the SDK's words. It is sent by
the fast way (`transport`) or by boto3's client (`ways`).

Invariants:

* Each request goes through `S3Store._ask`: one retry layer, one translation of errors.
* No value of the SDK leaves this module. A body is opened again for each attempt.
* Listings are paged here and filtered again by prefix: some stores ignore it (stores.md). A page
  that says "more" without saying where is an error, never the end.
* A store may be used after a fork: the child makes its own clients.
"""

from __future__ import annotations

import copy
import itertools
import os
import threading
import urllib.parse
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary, finalize

from magic_committer._runtime import Clock, SystemClock
from magic_committer.errors import InvalidRequest, NotFound, NotSupported, StoreError
from magic_committer.options import S3Options
from magic_committer.stores.base import (
    DELETE_KEYS_MAX,
    AbortUpload,
    Ask,
    Attributes,
    Batch,
    Checksum,
    ChecksumAlgorithm,
    CompleteUpload,
    CreatedUpload,
    FileSlice,
    FindUpload,
    ListParts,
    ObjectInfo,
    ObjectPage,
    Part,
    PartBody,
    Pieces,
    StoredObject,
    UploadInfo,
    UploadPage,
    Written,
    looked,
)
from magic_committer.stores.s3.asking import ask
from magic_committer.stores.s3.batch import S3Batch
from magic_committer.stores.s3.errors import SDK_ERRORS, per_key
from magic_committer.stores.s3.sdk import (
    customer_key_headers,
    encryption_headers,
    make_clients,
    surroundings,
)
from magic_committer.stores.s3.values import (
    CHECKSUM_FIELDS,
    Reply,
    checksum_of,
    checksum_type,
    given,
    key_markers,
    listed,
    named_part,
    object_of,
    parts_of,
    seen_at_of,
    upload_of,
)
from magic_committer.stores.s3.ways import Ways, make_ways, send_part, whole_object

R = TypeVar("R")


class S3Store:
    """One bucket of S3, or of a store with its protocol. Implements
    `magic_committer.stores.base.ObjectStore`; safe for many threads. `connect` gives a shared one.

    Raises:
        OptionError: the options cannot be used together with the environment.
    """

    def __init__(
        self, bucket: str, options: S3Options | None = None, *, clock: Clock | None = None
    ) -> None:
        self._bucket = bucket
        self._options = options or S3Options()
        self._clock = clock or SystemClock()
        self._customer_key = customer_key_headers(self._options)
        self._encryption = encryption_headers(self._options, self._customer_key)
        self._payer = {"RequestPayer": "requester"} if self._options.requester_pays else {}
        self._made = self._make()

    def __repr__(self) -> str:
        return f"S3Store({self.identity!r})"

    @property
    def bucket(self) -> str:
        return self._bucket

    @property
    def identity(self) -> str:
        return f"{self._made.clients.endpoint}/{self._bucket}"

    @property
    def transport(self) -> tuple[str, str]:
        """Which way requests go: ``"curl"`` or ``"boto3"``; and why, if it is the latter. May ask
        the SDK for credentials.

        Raises:
            StoreError: the SDK cannot prepare a request, for example without credentials.
        """
        ways = self._ways()
        fast = ways.fast
        why = ways.why if fast is None else self._ask("head", "", lambda _: fast.why())[0]
        return ("boto3", why) if why else ("curl", "")

    def once(self) -> S3Store:
        """The same bucket over the same connections. Each request is sent once."""
        single = copy.copy(self)
        single._options = replace(self._options, retry_attempts_max=1)
        return single

    # Objects -------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        def send(ways: Ways) -> tuple[Reply, bytes]:
            reply = whole_object(ways, max_bytes, {**self._named(key), **self._customer_key})
            with closing(reply["Body"]) as body:
                size = reply.get("ContentLength")  # an answer in chunks has none
                if size is None:
                    held = body.read(max_bytes + 1)
                    size = len(held)
                elif size <= max_bytes:
                    held = body.read()
                if size > max_bytes:
                    self._refuse(
                        "get", key, "TooLarge", f"it has {size} bytes, over {max_bytes}", status=200
                    )
                return reply, held

        (reply, data), _ = looked(self, key, lambda: self._ask("get", key, send))
        return StoredObject(object_of(key, reply, self._clock, size=len(data)), data)

    def head(self, key: str) -> ObjectInfo:
        def look() -> tuple[Reply, int]:
            return self._ask(
                "head", key, lambda c: c.hot.head_object(**self._named(key), **self._customer_key)
            )

        reply, _ = looked(self, key, look)
        return object_of(key, reply, self._clock)

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
        wanted = {
            "Metadata": dict(metadata) if metadata else None,
            "ContentType": content_type,
            "IfNoneMatch": "*" if if_none_match else None,
            "IfMatch": if_match,
            **self._encryption,
        }
        extra = given(wanted)
        reply, attempts = self._ask(
            "put", key, lambda c: c.hot.put_object(**self._named(key), Body=bytes(body), **extra)
        )
        return Written(reply.get("ETag", ""), reply.get("VersionId"), attempts)

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        failed: dict[str, StoreError] = {}
        source = iter(keys)
        while batch := tuple(itertools.islice(source, DELETE_KEYS_MAX)):
            try:
                failed.update(self._delete_batch(batch))
            except (NotSupported, InvalidRequest):
                # Some stores refuse the batch, because of its checksum or always (stores.md).
                failed.update(self._delete_singly(batch))
            except StoreError as error:  # the batch as a whole: it holds for each of its keys
                failed.update(dict.fromkeys(batch, error))
        return failed

    def _delete_batch(self, batch: Sequence[str]) -> Mapping[str, StoreError]:
        wanted = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
        reply, attempts = self._ask(
            "delete",
            batch[0] if len(batch) == 1 else "",
            lambda c: c.clients.quick.delete_objects(
                Bucket=self._bucket, Delete=wanted, **self._payer
            ),
        )
        return {
            one["Key"]: per_key(
                one.get("Code", ""), one.get("Message", ""), self._bucket, one["Key"], attempts
            )
            for one in reply.get("Errors", ())
            if one.get("Code") != "NoSuchKey"
        }

    def _delete_singly(self, batch: Sequence[str]) -> Mapping[str, StoreError]:
        failed: dict[str, StoreError] = {}
        for key in batch:
            try:
                self.delete_one(key)
            except StoreError as error:
                failed[key] = error
        return failed

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        extra = given({"IfMatch": if_match, "VersionId": version_id})
        with suppress(NotFound):
            self._ask("delete_one", key, lambda c: c.hot.delete_object(**self._named(key), **extra))

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        place = given({"StartAfter": start_after or None})
        fixed = {"Bucket": self._bucket, "Prefix": prefix, **self._payer}
        if delimiter:
            fixed["Delimiter"] = delimiter
        while True:
            reply, attempts = self._list_page(prefix, {**fixed, **place})
            seen_at = seen_at_of(reply, self._clock)
            yield ObjectPage(
                tuple(
                    listed(one, seen_at)
                    for one in reply.get("Contents", ())
                    if one["Key"].startswith(prefix)
                ),
                tuple(
                    one["Prefix"]
                    for one in reply.get("CommonPrefixes", ())
                    if one["Prefix"].startswith(prefix)
                ),
            )
            if not reply.get("IsTruncated"):
                return
            token = reply.get("NextContinuationToken")
            if not token or token == place.get("ContinuationToken"):
                self._refuse_page("list", prefix, attempts)
            place = {"ContinuationToken": token}

    def _list_page(self, prefix: str, wanted: Mapping[str, Any]) -> tuple[Reply, int]:
        return self._ask("list", prefix, lambda c: c.hot.list_objects_v2(**wanted))

    # Uploads -------------------------------------------------------------------------------------

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        tags = {**dict(self._options.tags), **attributes.tags}
        wanted = {
            "Metadata": dict(attributes.metadata) or None,
            "ContentType": attributes.content_type,
            "ContentEncoding": attributes.content_encoding,
            "ContentDisposition": attributes.content_disposition,
            "CacheControl": attributes.cache_control,
            "StorageClass": attributes.storage_class or self._options.storage_class,
            "ACL": attributes.acl or self._options.acl,
            "Tagging": urllib.parse.urlencode(tags) or None,
            "ChecksumAlgorithm": checksum,
            "ChecksumType": checksum_type(checksum),
            **self._encryption,
        }
        extra = given(wanted)
        reply, attempts = self._ask(
            "create_upload",
            key,
            lambda c: c.hot.create_multipart_upload(**self._named(key), **extra),
        )
        return CreatedUpload(reply["UploadId"], attempts)

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: PartBody,
        *,
        checksum: Checksum | None = None,
    ) -> Part:
        wanted = {"UploadId": upload_id, "PartNumber": number, **self._customer_key}
        if checksum is not None:
            wanted[CHECKSUM_FIELDS[checksum.algorithm]] = checksum.value

        def send(ways: Ways) -> Reply:
            try:
                return send_part(ways, body, {**self._named(key), **wanted})
            except EOFError as error:
                self._refuse("put_part", key, "IncompleteBody", str(error))

        size = body.length if isinstance(body, FileSlice) else body.nbytes
        try:
            reply, _ = self._ask("put_part", key, send)
        finally:
            body = Pieces(())  # of `send`, too: the frames of an error keep that function
        return Part(number, reply.get("ETag", ""), size, checksum_of(reply) or checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        parts: list[Part] = []
        marker = 0
        while True:
            reply, attempts = self._part_page(key, upload_id, marker)
            parts += parts_of(reply)
            if not reply.get("IsTruncated"):
                return tuple(parts)
            following = int(reply.get("NextPartNumberMarker") or 0)
            if following <= marker:
                self._refuse_page("list_parts", key, attempts)
            marker = following

    def _part_page(self, key: str, upload_id: str, marker: int) -> tuple[Reply, int]:
        place = {"PartNumberMarker": marker} if marker else {}
        return self._ask(
            "list_parts",
            key,
            lambda c: c.hot.list_parts(
                **self._named(key), UploadId=upload_id, **place, **self._customer_key
            ),
        )

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
        wanted = self._completing(
            CompleteUpload(key, upload_id, parts, length, checksum, if_none_match)
        )
        reply, attempts = self._ask(
            "complete_upload",
            key,
            lambda c: c.patient.complete_multipart_upload(**wanted),
            conflict_final=if_none_match,
        )
        return Written(reply.get("ETag", ""), reply.get("VersionId"), attempts)

    def abort_upload(self, key: str, upload_id: str) -> None:
        with suppress(NotFound):
            self._ask(
                "abort_upload",
                key,
                lambda c: c.hot.abort_multipart_upload(**self._named(key), UploadId=upload_id),
            )

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        place: dict[str, str] = {}
        by_key = False
        before: Sequence[UploadInfo] = ()
        while True:
            try:
                reply, attempts = self._upload_page(prefix, place)
            except InvalidRequest:
                # versitygw refuses both markers together (stores.md): go on by key alone, from the
                # last key whose uploads were all on the page before, and drop duplicates.
                if by_key or "UploadIdMarker" not in place or not before:
                    raise
                by_key, place = True, {"KeyMarker": next(key_markers(before))}
                continue
            page = [upload_of(one) for one in reply.get("Uploads", ())]
            repeated = {(one.key, one.upload_id) for one in before} if by_key else set()
            yield UploadPage(
                tuple(
                    one
                    for one in page
                    if one.key.startswith(prefix) and (one.key, one.upload_id) not in repeated
                ),
                seen_at_of(reply, self._clock),
            )
            if not reply.get("IsTruncated"):
                return
            if by_key:
                ahead = (key for key in key_markers(page) if key > place["KeyMarker"])
                following = given({"KeyMarker": next(ahead, None)})
            else:
                following = given(
                    {
                        "KeyMarker": reply.get("NextKeyMarker") or None,
                        "UploadIdMarker": reply.get("NextUploadIdMarker") or None,
                    }
                )
            if not following or following == place:
                self._refuse_page("list_uploads", prefix, attempts)
            before, place = page, following

    def _upload_page(self, prefix: str, place: Mapping[str, str]) -> tuple[Reply, int]:
        return self._ask(
            "list_uploads",
            prefix,
            lambda c: c.hot.list_multipart_uploads(
                Bucket=self._bucket, Prefix=prefix, **place, **self._payer
            ),
        )

    # Many requests -------------------------------------------------------------------------------

    def batch(self) -> Batch | None:
        """Implements `magic_committer.stores.base.Batching`, where there is the fast way."""
        fast = self._ways().fast
        try:
            if fast is None or fast.why("CompleteMultipartUpload"):
                return None
        except SDK_ERRORS:  # no credentials: the verbs say so
            return None
        return S3Batch(fast, self._options, self._clock, self._bucket, self._wanted)

    def _wanted(self, ask: Ask) -> dict[str, Any]:
        if isinstance(ask, CompleteUpload):
            return self._completing(ask)
        if isinstance(ask, FindUpload):
            return {"Bucket": self._bucket, "Prefix": ask.key, **self._payer}
        named = self._named(ask.key)
        if isinstance(ask, AbortUpload):
            return {**named, "UploadId": ask.upload_id}
        named |= self._customer_key
        return {**named, "UploadId": ask.upload_id} if isinstance(ask, ListParts) else named

    def _completing(self, ask: CompleteUpload) -> dict[str, Any]:
        wanted = {
            **self._named(ask.key),
            "UploadId": ask.upload_id,
            "MultipartUpload": {"Parts": [named_part(part) for part in ask.parts]},
            "MpuObjectSize": ask.length,
            "IfNoneMatch": "*" if ask.if_none_match else None,
            **self._customer_key,
        }
        if ask.checksum is not None:
            wanted[CHECKSUM_FIELDS[ask.checksum.algorithm]] = ask.checksum.value
            wanted["ChecksumType"] = checksum_type(ask.checksum.algorithm)
        return given(wanted)

    # The way of a request ------------------------------------------------------------------------

    def _ask(
        self,
        verb: str,
        key: str,
        send: Callable[[Ways], R],
        *,
        conflict_final: bool = False,
    ) -> tuple[R, int]:
        """Send a request until it is answered. Gives the reply, and how often the request was
        sent."""
        ways = self._ways()
        return ask(
            self._options,
            self._clock,
            ways.clients.endpoint,
            self._bucket,
            verb,
            key,
            lambda: send(ways),
            conflict_final=conflict_final,
        )

    def _make(self) -> Ways:
        _close_unused()
        made = make_ways(self._bucket, self._options, self._payer, self._clock)
        finalize(made, _unused.append, replace(made)).atexit = False
        return made

    def _ways(self) -> Ways:
        made = self._made
        if made.clients.pid != os.getpid():
            with _lock:
                if self._made.clients.pid != os.getpid():
                    self._made = self._make()
                made = self._made
        return made

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": key, **self._payer}

    def _refuse(self, verb: str, key: str, code: str, message: str, *, status: int = 0) -> NoReturn:
        raise InvalidRequest(
            f"{verb} s3://{self._bucket}/{key} failed: {message}",
            operation=verb,
            bucket=self._bucket,
            key=key,
            status=status,
            code=code,
        )

    def _refuse_page(self, verb: str, prefix: str, attempts: int) -> NoReturn:
        raise NotSupported(
            f"{verb} s3://{self._bucket}/{prefix} failed: the listing says that there is more, "
            "and not where",
            operation=verb,
            bucket=self._bucket,
            key=prefix,
            status=200,
            attempts=attempts,
            hint="The store cannot be listed past one page",
        )


# The account --------------------------------------------------------------------------------------


def list_buckets(options: S3Options, *, clock: Clock | None = None) -> Iterator[str]:
    """The names of all buckets of the account, a request for each page. Repeatable.

    Raises:
        PermissionDenied: ``s3:ListAllMyBuckets`` is not allowed.
        NotSupported: the store has no such listing; or it says that there is more, and not where.
        StoreError: they could not be listed.
    """
    clients = make_clients(options)
    place: dict[str, str] = {}

    def send() -> Reply:
        reply: Reply = clients.quick.list_buckets(**place)
        return reply

    clock = clock or SystemClock()
    while True:
        reply, attempts = ask(options, clock, clients.endpoint, "", "list_buckets", "", send)
        yield from (one["Name"] for one in reply.get("Buckets", ()))
        token = reply.get("ContinuationToken")
        if not token:
            return
        if token == place.get("ContinuationToken"):
            raise NotSupported(
                "list_buckets failed: the listing says that there is more, and not where",
                operation="list_buckets",
                status=200,
                attempts=attempts,
            )
        place = {"ContinuationToken": token}


# One store for each way to it --------------------------------------------------------------------

STORES_MAX = 16
"""How many stores that no job uses are kept, with their connections, for the next job."""

_Wanted = tuple[str, S3Options, frozenset[tuple[str, str]]]
_lock = threading.Lock()
_connected: OrderedDict[_Wanted, S3Store] = OrderedDict()
"""Those that were wanted last, the newest at the end."""
_in_use: WeakValueDictionary[_Wanted, S3Store] = WeakValueDictionary()
"""These, and those that jobs still have."""
_unused: deque[Ways] = deque()
"""Copies of ways that nothing has any more. The collector of garbage may find one in any thread and
at any place, so that they are closed later, where nothing is held."""


def connect(
    bucket: str, options: S3Options | None = None, held: dict[str, Any] | None = None
) -> S3Store:
    """The process's store for that bucket and those options, as the environment is now. Connections
    are shared. A store for which no credentials were found is not kept: the next call looks again.

    Args:
        bucket, options: of the store.
        held: the stores that the caller had before, by bucket: they stay what they were, whatever
            the environment is now. None: the caller had none.

    Raises:
        OptionError: as for `S3Store`.
    """
    held = {} if held is None else held
    if bucket in held:
        mine: S3Store = held[bucket]
        return mine
    options = options or S3Options()
    wanted = (bucket, options, surroundings())
    with _lock:
        store = _in_use.get(wanted)
        if store is None:
            store = S3Store(bucket, options)
            if store._made.clients.credentials is None and not options.anonymous:
                return store
            _in_use[wanted] = store
        _connected[wanted] = store
        _connected.move_to_end(wanted)
        if len(_connected) > STORES_MAX:
            _connected.popitem(last=False)
        held[bucket] = store
        return store


def _close_unused() -> None:
    with suppress(IndexError):
        while True:
            ways = _unused.popleft()
            if ways.clients.pid != os.getpid():
                continue  # its connections are the parent's
            ways.clients.quick.close()
            ways.clients.patient.close()
            if ways.fast is not None:
                ways.fast.engine.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

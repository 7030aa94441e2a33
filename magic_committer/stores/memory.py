"""An object store in a dict, with S3's real rules: for the library's tests, and for users' tests.

It is strict on purpose: what passes here should pass on any store that keeps S3's rules. The rules
are in `magic_committer.stores.memory_bucket`. Invariants:

* One lock is held around the effect of each request. So requests take effect one at a time, in some
  order, at once and for everybody (S3 since 2020). Neither I/O nor a hook runs under the lock.
* There is no chance, and no clock and no ids but those that are passed in: the same calls give the
  same store.
* No reference to a caller's buffer is kept. Complete copies no bytes: an object is its parts.
* What S3 refuses is refused, with S3's code: small parts, wrong order, wrong ETags, checksums and
  lengths, long keys, large metadata. A refused request changes nothing.

A scheduler, a fault injector or a user's test sets two hooks, `MemoryStore.before` and
`MemoryStore.after`. They see every request (`Request`) before its effect, and its answer after it.
**Hooks and `Request` are public** (docs/testing.md): their arguments and the names of the fields do
not change within a major release; fields may be added.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from magic_committer.errors import InvalidRequest, StoreError
from magic_committer.runtime.components import SystemClock, new_id
from magic_committer.stores.base import (
    DELETE_KEYS_MAX,
    PAGE_KEYS_MAX,
    PART_BYTES_MIN,
    Attributes,
    ChecksumAlgorithm,
    CompleteUpload,
    CreatedUpload,
    FileSlice,
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
    listed,
    looked,
    run,
)
from magic_committer.stores.memory_bucket import (
    Bucket,
    frozen,
    in_order,
    md5,
    placed,
    quoted,
    upload_info,
)

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request on its way to the store, as the hooks see it.

    Attributes:
        verb: the port's verb (`stores.base.ObjectStore`): ``get``, ``head``, ``put``, ``delete``
            (one batch), ``delete_one``, ``list`` (one page), ``create_upload``, ``put_part``,
            ``list_parts`` (one page), ``complete_upload``, ``abort_upload``, ``list_uploads`` (one
            page).
        key: the key, or the prefix of a listing; "" for a batch of deletes.
        upload_id: for verbs on one upload; otherwise "".
        part: for ``put_part``: the number of the part; otherwise 0.
        if_match: for ``put`` and ``delete_one`` with this condition: the ETag, as given; otherwise
            None.
        if_none_match: whether ``put`` or ``complete_upload`` fails if the key has an object.
        keys: for a batch of deletes: its keys; otherwise empty.
        size: for ``put`` and ``put_part``: bytes of the body; otherwise 0.
        effect: a function that carries the request out, now, and returns its reply or raises its
            `StoreError`. It calls no hook and counts no request. It may be called at any time, from
            any thread, more than once, or never: so a hook can delay or repeat a request.
    """

    verb: str
    key: str
    upload_id: str = ""
    part: int = 0
    if_match: str | None = None
    if_none_match: bool = False
    keys: tuple[str, ...] = ()
    size: int = 0
    effect: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)


Before = Callable[[Request], object]
After = Callable[[Request, Any], Any]

_instances = itertools.count(1)


class MemoryStore:
    """One bucket in memory. Implements `stores.base.ObjectStore`; safe for many threads.

    Args:
        bucket: the bucket's name.
        page_keys: entries of a listing's page, 1 to 1,000. Small pages make tests of paging cheap.
        forgetful_complete: True: a second Complete of an upload raises `NotFound` (as MinIO and
            others do). False: it gives the first answer again as long as the object is the same (as
            AWS does).
        clock: the store's clock, in seconds since the epoch. Times in replies are whole seconds, as
            on S3.
        ids: draws upload ids.
        part_bytes_min: the least size of every part but the last, in bytes. Make it small for tests
            of many parts.
        missing_is_refused: True: a GET or HEAD of a missing key is answered with 403, as AWS does
            to who may not list the whole bucket (README, "Permissions"). False (default): with 404.

    Attributes:
        before: called with each `Request` before it is carried out, in the sender's thread. If it
            raises, the caller gets its error, and the request has no effect. Its return value is
            ignored. None: not called.
        after: called with each `Request` that was carried out and its reply or `StoreError`. If it
            raises, the caller gets this error instead (a lost reply). If it returns something other
            than None, the caller gets that instead; a `StoreError` is raised. The reply to a
            listing is a pair: the page, and where the next one begins. None: not called.
        requests: how many requests of each verb were sent. Each page and each batch counts as one.
            Requests that ``before`` refused count too; effects that a hook calls do not.
    """

    def __init__(
        self,
        bucket: str = "bucket",
        *,
        page_keys: int = PAGE_KEYS_MAX,
        forgetful_complete: bool = False,
        clock: Callable[[], float] | None = None,
        ids: Callable[[], str] | None = None,
        part_bytes_min: int = PART_BYTES_MIN,
        missing_is_refused: bool = False,
    ) -> None:
        if not 1 <= page_keys <= PAGE_KEYS_MAX:
            raise ValueError(f"page_keys is between 1 and {PAGE_KEYS_MAX}")
        self.before: Before | None = None
        self.after: After | None = None
        self.requests: Counter[str] = Counter()
        self._identity = f"memory:{next(_instances)}/{bucket}"
        self._lock = threading.Lock()
        self._bucket = Bucket(
            bucket,
            page_keys,
            forgetful_complete,
            clock or SystemClock().now,
            ids or new_id,
            part_bytes_min,
            missing_is_refused,
        )

    def __repr__(self) -> str:
        held = self._bucket
        return (
            f"MemoryStore({held.name!r}, objects={len(held.objects)}, uploads={len(held.uploads)})"
        )

    @property
    def bucket(self) -> str:
        return self._bucket.name

    @property
    def identity(self) -> str:
        return self._identity

    # The port ------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        return self._look("get", key, partial(self._bucket.get, key, max_bytes))

    def head(self, key: str) -> ObjectInfo:
        return self._look("head", key, partial(self._bucket.head, key))

    def _look(self, verb: str, key: str, effect: Callable[[], R]) -> R:
        def look() -> R:
            return self._send(Request(verb, key), effect)

        def page() -> Callable[[], Any]:
            return partial(listed, self, key)

        return cast(R, run(looked(self, key, look, page, bool), lambda ask: ask()))

    def put(self, key: str, body: bytes, **given: Any) -> Written:
        asked = Put(key, bytes(body), **given)
        attributes = Attributes(metadata=asked.metadata or {}, content_type=asked.content_type)
        at: dict[str, Any] = {"if_none_match": asked.if_none_match, "if_match": asked.if_match}
        etag = quoted(md5(asked.body))  # not under the lock
        effect = partial(self._bucket.put, key, asked.body, frozen(attributes), etag=etag, **at)
        return self._send(Request("put", key, size=len(asked.body), **at), effect)

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        failed: dict[str, StoreError] = {}
        source = iter(keys)
        while batch := tuple(itertools.islice(source, DELETE_KEYS_MAX)):
            effect = partial(self._bucket.delete, batch)
            try:
                failed.update(self._send(Request("delete", "", keys=batch), effect))
            except StoreError as error:  # the batch as a whole: it holds for each of its keys
                failed.update(dict.fromkeys(batch, error))
        return failed

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        effect = partial(self._bucket.delete_one, key, if_match, version_id)
        self._send(Request("delete_one", key, if_match=if_match), effect)

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        bound: str | None = start_after + "\0" if start_after else ""  # the first text behind it
        while bound is not None:
            effect = partial(self._bucket.object_page, prefix, delimiter, bound)
            page, bound = self._send(Request("list", prefix), effect)
            yield page

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        effect = partial(self._bucket.open, key, frozen(attributes), checksum)
        return self._send(Request("create_upload", key), lambda: CreatedUpload(effect()))

    def put_part(
        self, key: str, upload_id: str, number: int, body: PartBody | ObjectSlice, **given: Any
    ) -> Part:
        checksum = PutPart(key, upload_id, number, body, **given).checksum
        slices = FileSlice | ObjectSlice
        size = body.length if isinstance(body, slices) else memoryview(body).nbytes
        asked = Request("put_part", key, upload_id=upload_id, part=number, size=size)
        place = (key, upload_id, number)
        if isinstance(body, ObjectSlice):
            return self._send(asked, partial(self._bucket.copy_part, *place, body))
        try:
            kept = body.read() if isinstance(body, FileSlice) else bytes(body)
        except InvalidRequest as error:
            raise placed(error, "put_part", self.bucket, key) from None
        effect = partial(self._bucket.put_part, *place, kept, md5(kept), checksum)
        return self._send(asked, effect)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        parts: list[Part] = []
        after: int | None = 0
        while after is not None:
            effect = partial(self._bucket.part_page, key, upload_id, after)
            page, after = self._send(Request("list_parts", key, upload_id=upload_id), effect)
            parts += page
        return tuple(parts)

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **given: Any
    ) -> Written:
        named = CompleteUpload(key, upload_id, tuple(parts), **given)
        asked = Request(
            "complete_upload", key, upload_id=upload_id, if_none_match=named.if_none_match
        )
        return self._send(asked, partial(self._bucket.complete, *named))

    def abort_upload(self, key: str, upload_id: str) -> None:
        effect = partial(self._bucket.abort, key, upload_id)
        self._send(Request("abort_upload", key, upload_id=upload_id), effect)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        bound: tuple[str, int] | None = (prefix, 0)
        while bound is not None:
            effect = partial(self._bucket.upload_page, prefix, bound)
            page, bound = self._send(Request("list_uploads", prefix), effect)
            yield page

    # For tests: looks and deeds that are nobody's request: no hook, no count ------------------

    def keys(self, prefix: str = "") -> tuple[str, ...]:
        """The keys of all objects that start with ``prefix``, in order."""
        with self._lock:
            return tuple(sorted(key for key in self._bucket.objects if key.startswith(prefix)))

    def body(self, key: str) -> bytes:
        """An object's bytes. KeyError if there is none."""
        with self._lock:
            return b"".join(self._bucket.objects[key].pieces)

    def attributes(self, key: str) -> Attributes:
        """The properties that an object was created with. KeyError if there is none."""
        with self._lock:
            return self._bucket.objects[key].attributes

    def open_uploads(self, prefix: str = "") -> tuple[UploadInfo, ...]:
        """All open uploads whose keys start with ``prefix``, by key and then in the order of their
        start."""
        with self._lock:
            found = [u for u in self._bucket.uploads.values() if u.key.startswith(prefix)]
            return tuple(upload_info(u) for u in sorted(found, key=in_order))

    def put_object(
        self, key: str, body: bytes = b"", *, metadata: Mapping[str, str] | None = None
    ) -> str:
        """Write an object as another program would. Repeatable: the object is replaced.

        Args:
            key: the object's key.
            body: its bytes; none by default.
            metadata: its user metadata; None (default): none.

        Returns:
            The object's ETag.

        Raises:
            StoreError: S3 would refuse it too: the key is too long, or the metadata too large.
        """
        attributes = frozen(Attributes(metadata=metadata or {}))
        effect = partial(self._bucket.put, key, bytes(body), attributes)
        return self._carry_out("put", key, effect).etag

    def delete_object(self, key: str) -> None:
        """Delete an object as another program would."""
        self._carry_out("delete_one", key, partial(self._bucket.delete_one, key))

    def start_upload(self, key: str, *, initiator: str = "another program") -> str:
        """Start an upload as another program would. Returns its id."""
        effect = partial(self._bucket.open, key, Attributes(), initiator=initiator)
        return self._carry_out("create_upload", key, effect)

    def drop_upload(self, upload_id: str) -> None:
        """Abort an upload as a lifecycle rule would. KeyError if it is not open."""
        with self._lock:
            self._bucket.abort(self._bucket.uploads[upload_id].key, upload_id)

    # The way of a request ------------------------------------------------------------------------

    def _send(self, request: Request, effect: Callable[[], R]) -> R:
        before, after = self.before, self.after
        with self._lock:
            self.requests[request.verb] += 1
        carry_out = partial(self._carry_out, request.verb, request.key, effect)
        object.__setattr__(request, "effect", carry_out)  # made for this call; nobody has a copy
        if before is not None:
            before(request)
        if after is None:
            return carry_out()
        answer: Any
        try:
            answer = carry_out()
        except StoreError as error:
            answer = error
        if (changed := after(request, answer)) is not None:
            answer = changed
        if isinstance(answer, StoreError):
            raise answer
        return cast(R, answer)

    def _carry_out(self, verb: str, key: str, effect: Callable[[], R]) -> R:
        with self._lock:
            try:
                return effect()
            except StoreError as error:
                placed(error, verb, self.bucket, key)
                raise

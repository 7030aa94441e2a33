"""What a job may do and can do under a destination, found out by trying: permissions, one S3 action
after the other; which of S3's rules the store keeps; and what the library promises there.

Invariants:

* **Nothing is left behind**, whatever is denied. An object is put only after DeleteObject was
  allowed; an upload is created only after AbortMultipartUpload was allowed. Before, both are tried
  on things that do not exist. If one of them is denied, the others are tried on such things too: S3
  checks the permission first. (A bucket with versions keeps those of the scratch objects.)
* All of it is in a job's directory of its own, with that job's token: if this process is killed,
  cleanup recognises it.
* A denial does not stop the rest. "Denied" is said only if it is certain: of GetObject only after a
  GET of an object that is there. To who may not list by that very request S3 answers 403 for a
  missing one as well.
* `Capabilities` says what the store was found to do; `verdicts` says what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from magic_committer._runtime import Runtime
from magic_committer._wiring import BucketSettings
from magic_committer.commit.probe import Capabilities, probe_all
from magic_committer.doctor.capabilities import TO_PROBE, Verdict, verdicts
from magic_committer.doctor.policies import (
    ABORT,
    DELETE,
    GET,
    LIFECYCLE,
    LIST,
    LIST_UPLOADS,
    PARTS,
    PERMISSIONS,
    PUT,
    Permission,
    Role,
    directories_above,
)
from magic_committer.errors import (
    FormatError,
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    StoreError,
    Unanswered,
)
from magic_committer.hadoop.paths import MAGIC_JOB_PREFIX, RECORD, Destination
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.base import Attributes, Part, refusal_of, transport_of, uploads

NO_UPLOAD = "magic-committer-doctor-no-such-upload"
"""An upload id that no store has given."""
NO_ETAG = '"00000000000000000000000000000000"'
SCRATCH_BYTES_MAX = 1024
LISTED = "an object that is not there answers 403 as well: a job lists its key then, and goes on"
UNTOLD = "without s3:ListBucket an object that is not there answers 403 as well"
WRONG_CREDENTIALS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
ON_BUCKETS = frozenset({LIFECYCLE, LIST_UPLOADS})
"""Allowed for the whole bucket or not at all: no policy can limit them to a prefix."""

Answer = Literal["ok", "denied", "unsupported", "unanswered", "error", "unknown"]
"""``unsupported``: the store has no such call. ``unknown``: the store did not say, or was not
asked."""


@dataclass(frozen=True, slots=True)
class Asked(Permission):
    """A permission, the URL on which it was tried, and what the store said, unless that is ok."""

    on: str
    answer: Answer = "unknown"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out about a destination.

    Attributes:
        store: its endpoint and bucket.
        problem: why ``can`` is empty, if the store was not asked or only in part.
        left: scratch objects and uploads that could not be removed.
        transport: what sends the requests, ``"fast"`` or ``"boto3 (why)"``; "": not known.
    """

    dest: str
    store: str
    permissions: tuple[Asked, ...]
    can: Capabilities
    problem: str
    verdicts: tuple[Verdict, ...]
    left: tuple[str, ...]
    transport: str

    def lacks(self, role: Role, answer: Answer) -> bool:
        """Whether an action that a role needs got this answer."""
        return any(role in a.roles and a.answer == answer for a in self.permissions)


def diagnose(
    runtime: Runtime,
    dest: Destination,
    settings: BucketSettings | None = None,
    *,
    paging: bool = False,
) -> Diagnosis:
    """Find out what works under a destination. Some 80 requests. Repeatable. ``settings``: of the
    bucket, to ask whether its lifecycle may be read. ``paging``: ask too whether more than 1,000
    uploads are listed: 2,000 more requests. Raises what ends all: no such bucket, no credentials or
    wrong ones, no store."""
    with _Trial(runtime, dest) as scratch:
        found = {one.action: one for one in scratch.ask()}
        found[LIFECYCLE] = scratch.ask_lifecycle(settings)
        above = list(scratch.ask_above())
    asked = (*(found[one.action] for one in PERMISSIONS), *above)
    can, problem = Capabilities(), ""
    if lacking := [action for action in sorted(TO_PROBE) if found[action].answer != "ok"]:
        problem = f"not asked: that wants {', '.join(lacking)}"
    else:
        listing = found[LIST_UPLOADS].answer not in ("denied", "unanswered")
        try:
            can = probe_all(runtime, dest.prefix, paging=paging, listing=listing)
        except StoreError as error:
            problem = str(error)
    denied = {one.action for one in asked if one.answer == "denied" and "committer" in one.roles}
    return Diagnosis(
        dest=dest.url,
        store=runtime.store.identity,
        permissions=asked,
        can=can,
        problem=problem,
        verdicts=tuple(
            replace(one, works=False, sentence=f"is refused: {why}") if why else one
            for one in verdicts(can, denied)
            for why in (refusal_of(runtime.store, "", one.subject),)
        ),
        left=tuple(scratch.left),
        transport=transport_of(runtime.store),
    )


class _Trial:
    """One key in a job's directory, on which each action is tried. Everything is removed when the
    ``with`` ends, however it ends; ``left`` names what is not."""

    def __init__(self, runtime: Runtime, dest: Destination) -> None:
        self._store, self._dest, self._uuid = runtime.store, dest, runtime.ids()
        self._directory = f"{dest.jobs_prefix}{self._uuid}/"
        self._key = f"{self._directory}doctor-mcj{self._uuid}"
        self._metadata = {JOB_METADATA: self._uuid}
        self._object = False  # it may be there
        self._uploads: list[str] = []  # that may be open
        self._unsure = False  # there may be one whose id is not known
        self.left: list[str] = []

    def __enter__(self) -> _Trial:
        return self

    def __exit__(self, *_: object) -> None:
        if self._unsure:
            try:
                listed = {upload.upload_id for upload in uploads(self._store, self._key)}
                self._uploads += listed - set(self._uploads)
            except StoreError:
                self.left.append(f"{self._key}: perhaps an upload")
        for upload in tuple(self._uploads):
            try:
                self._abort(upload)
            except StoreError:
                self.left.append(f"{self._key}: upload {upload}")
        if self._object:
            try:
                self._delete()
            except StoreError:
                self.left.append(self._key)

    def ask(self) -> Iterator[Asked]:
        """All actions under the destination."""
        yield self._tried(LIST, partial(self._first_page, self._directory), first=True)
        yield self._tried(
            LIST_UPLOADS, lambda: next(iter(self._store.list_uploads(self._directory)), None)
        )
        delete = self._tried(DELETE, self._delete)
        put, abort, parts = self._ask_upload()
        if delete.answer == "ok" and put.answer == "ok":
            put, get, delete = self._ask_object()
        else:
            get = self._ask_missing(self._key)
        yield from (put, get, delete, abort, parts)

    def ask_above(self) -> Iterator[Asked]:
        """Whether records above the destination may be found and read, as a cleaner needs."""
        for above in directories_above(self._dest.prefix):
            jobs = f"{above}{MAGIC_JOB_PREFIX}"
            listing = self._tried(LIST, partial(self._first_page, jobs))
            get = self._ask_missing(f"{jobs}{self._uuid}/{RECORD}")
            on = f"s3://{self._dest.bucket}/{above}"
            for one in (listing, get):
                yield replace(one, on=on, use="records above", roles=("cleaner",))

    def ask_lifecycle(self, settings: BucketSettings | None) -> Asked:
        """Whether the bucket's lifecycle may be read."""
        if settings is None:
            detail = "the store that is registered for the bucket has none"
            return replace(self._asked(LIFECYCLE), answer="unsupported", detail=detail)
        try:
            return self._tried(LIFECYCLE, settings.lifecycle)
        except FormatError:  # it may be read; its content is for `lifecycle show`
            return replace(self._asked(LIFECYCLE), answer="ok")

    def _ask_upload(self) -> tuple[Asked, Asked, Asked]:
        """PutObject, AbortMultipartUpload, ListMultipartUploadParts."""
        absent = (NotFound, InvalidRequest)
        abort = self._tried(ABORT, lambda: self._abort(NO_UPLOAD), absent=absent)
        if abort.answer == "denied":
            none = partial(self._store.complete_upload, self._key, NO_UPLOAD, [Part(1, NO_ETAG, 1)])
            put = self._tried(PUT, none, absent=absent)
        else:
            put = self._tried(PUT, self._create)
        if not self._uploads:
            look = partial(self._store.list_parts, self._key, NO_UPLOAD)
            return put, abort, self._tried(PARTS, look, absent=absent)
        upload = self._uploads[0]
        parts = self._tried(PARTS, partial(self._store.list_parts, self._key, upload))
        return put, self._tried(ABORT, lambda: self._abort(upload)), parts

    def _ask_object(self) -> tuple[Asked, Asked, Asked]:
        """PutObject, GetObject, DeleteObject, for an object that exists."""
        self._object = True
        put = self._tried(
            PUT, lambda: self._store.put(self._key, b"object", metadata=self._metadata)
        )
        there = put.answer == "ok"
        get = self._tried(GET, partial(self._get, self._key), absent=() if there else (NotFound,))
        if get.answer == "ok":
            get = replace(get, detail=self._ask_missing(f"{self._key}-missing").detail)
        return put, get, self._tried(DELETE, self._delete)

    def _ask_missing(self, key: str) -> Asked:
        """GetObject, for an object that is not there: a refusal says nothing of the permission."""
        get = self._tried(GET, partial(self._get, key), absent=(NotFound,))
        return get if get.answer != "denied" else replace(get, answer="unknown", detail=UNTOLD)

    def _asked(self, action: str) -> Asked:
        """An action about which nothing is known yet."""
        (one,) = (one for one in PERMISSIONS if one.action == action)
        on = f"s3://{self._dest.bucket}/" if action in ON_BUCKETS else self._dest.url
        return Asked(one.action, one.use, one.roles, on)

    def _tried(
        self,
        action: str,
        send: Callable[[], object],
        *,
        absent: tuple[type[StoreError], ...] = (),
        first: bool = False,
    ) -> Asked:
        """Try a request and give the result. ``absent``: errors that only say that the thing does
        not exist: a caller that gets them is allowed to ask. ``first``: of all requests: if nobody
        answers, or our credentials are wrong, all others would say the same: then it raises."""
        answer: Answer
        try:
            send()
        except StoreError as error:
            nobody = isinstance(error, PermissionDenied) and not error.status
            useless = nobody or isinstance(error, Unanswered) or error.code in WRONG_CREDENTIALS
            if error.code == "NoSuchBucket" or (first and useless):
                raise
            if isinstance(error, NotFound) and error.status == 403:
                return replace(self._asked(action), detail=LISTED)
            if isinstance(error, absent):
                return replace(self._asked(action), answer="ok")
            match error:
                case PermissionDenied():
                    answer = "denied"
                case NotSupported():
                    answer = "unsupported"
                case Unanswered():
                    answer = "unanswered"
                case _:
                    answer = "error"
            return replace(self._asked(action), answer=answer, detail=str(error))
        return replace(self._asked(action), answer="ok")

    def _create(self) -> None:
        self._unsure = True
        try:
            attributes = Attributes(metadata=self._metadata)
            created = self._store.create_upload(self._key, attributes=attributes)
        except (PermissionDenied, InvalidRequest):
            self._unsure = False
            raise
        self._uploads.append(created.upload_id)
        self._unsure = created.attempts > 1

    def _abort(self, upload: str) -> None:
        self._store.abort_upload(self._key, upload)
        if upload in self._uploads:
            self._uploads.remove(upload)

    def _delete(self) -> None:
        self._store.delete_one(self._key)
        self._object = False

    def _get(self, key: str) -> None:
        self._store.get(key, max_bytes=SCRATCH_BYTES_MAX)

    def _first_page(self, prefix: str) -> None:
        next(self._store.list(prefix, delimiter="/"), None)  # it may have no page at all

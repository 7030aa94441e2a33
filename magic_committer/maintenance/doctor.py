"""Which role needs which S3 actions, and the smallest policy that allows them. Pure.

This is the one source for the README's policy, for ``doctor --policy`` and for the doctor's
questions; `tests/cli/test_doctor.py` runs jobs that may do no more. Roles:

* ``writer``: a process that only runs tasks of jobs that others started.
* ``committer``: a driver: it starts, commits, aborts and recovers jobs. It may run tasks, too.
* ``cleaner``: `magic_committer.cleanup` from cron. A record says whether the job of an upload is
  over. It may be in any directory above the upload, so those are read as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from magic_committer.commit.probe import (
    STALE_ETAG,
    WHOLE_KEYS_ONLY,
    Capabilities,
    Scratch,
    in_words,
    probe_all,
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
from magic_committer.hadoop.paths import MAGIC, MAGIC_JOB_PREFIX, RECORD, Destination
from magic_committer.maintenance.inspect import at_and_above
from magic_committer.options import FAILING, Mode
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.wiring import BucketSettings
from magic_committer.stores.base import Part, UploadInfo, refusal_of, transport_of

Role = Literal["writer", "committer", "cleaner"]
ROLES: tuple[Role, ...] = get_args(Role)
_NO_TASK: tuple[Role, ...] = ("committer", "cleaner")

PUT, GET, DELETE = "s3:PutObject", "s3:GetObject", "s3:DeleteObject"
ABORT, PARTS = "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"
LIST, LIST_UPLOADS = "s3:ListBucket", "s3:ListBucketMultipartUploads"
LIFECYCLE = "s3:GetLifecycleConfiguration"

POLICY_VERSION = "2012-10-17"
"""The version of the policy language (IAM reference), not a version of ours."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One S3 action (Service Authorization Reference): ``action``. ``use``: what it is needed for.
    ``roles``: who needs it."""

    action: str
    use: str
    roles: tuple[Role, ...]


PERMISSIONS: tuple[Permission, ...] = (
    Permission(PUT, "files, records, plans", ROLES),
    Permission(GET, "records, what tasks left", ROLES),
    Permission(DELETE, "control objects; what a job replaces", ROLES),
    Permission(ABORT, "files that are not committed", ROLES),
    Permission(PARTS, "whether uploads are there, or gone", ROLES),
    Permission(LIST, "what tasks left, jobs, data to replace", ROLES),
    Permission(LIST_UPLOADS, "uploads of killed tasks", _NO_TASK),
    Permission(LIFECYCLE, "the rule that is the backstop", ("cleaner",)),
)
"""Every action that the library uses, except those of ``lifecycle ensure``."""

_ON_OBJECTS = (PUT, GET, DELETE, ABORT, PARTS)


def actions_of(role: Role) -> frozenset[str]:
    """The actions that a role needs."""
    return frozenset(one.action for one in PERMISSIONS if role in one.roles)


def policy(role: Role, dest: Destination) -> dict[str, Any]:
    """The smallest IAM policy for a role under a destination, as JSON for IAM.

    It is for AWS's ordinary partition: elsewhere replace ``arn:aws`` (``arn:aws-cn``). It does not
    contain what encryption by KMS, tags and ACLs need (README, "Permissions").
    """
    needed = actions_of(role)
    bucket = f"arn:aws:s3:::{dest.bucket}"
    below = f"{_literal(dest.prefix)}*"
    higher = list(map(_literal, above(dest))) if role == "cleaner" else []
    prefixes = [below, *(f"{one}{MAGIC}*" for one in higher)]
    within = {"StringLike": {"s3:prefix": prefixes if higher else below}}
    statements: list[dict[str, Any]] = [
        {
            "Sid": "FilesRecordsAndUploads",
            "Action": [action for action in _ON_OBJECTS if action in needed],
            "Resource": f"{bucket}/{below}",
        }
    ]
    if higher:
        records = [f"{bucket}/{one}{MAGIC_JOB_PREFIX}*/{RECORD}" for one in higher]
        statements.append({"Sid": "RecordsAbove", "Action": GET, "Resource": records})
    for sid, action in (
        ("FindObjects", LIST),
        ("FindUploads", LIST_UPLOADS),
        ("LookAtTheLifecycle", LIFECYCLE),
    ):
        if action in needed:
            condition = {"Condition": within} if action == LIST else {}
            statements.append({"Sid": sid, "Action": action, "Resource": bucket, **condition})
    allowed = [{"Sid": one.pop("Sid"), "Effect": "Allow", **one} for one in statements]
    return {"Version": POLICY_VERSION, "Statement": allowed}


def above(dest: Destination) -> list[str]:
    """The directories above a destination's: ``""`` and ``"a/"`` for ``a/b/``."""
    return list(at_and_above(dest.prefix))[:-1]


def _literal(text: str) -> str:
    """Quote a key's text for a policy, which has patterns: ``*``, ``?`` and ``$`` then mean
    themselves (IAM reference, "Policy variables")."""
    return "".join(f"${{{c}}}" if c in "*?$" else c for c in text)


# What the store's ways and the permissions mean ---------------------------------------------------
#
# What the library promises on a store with certain ways, to a user without certain permissions.
# Pure.
#
# The sentences say what a job does: it refuses to start in a mode that the store cannot carry, or
# it does something less safe instead, and says so (docs/stores.md). `tests/cli/test_doctor.py`
# compares them with jobs on stores that behave like real servers.


TO_PROBE = frozenset({PUT, GET, DELETE, ABORT})
"""The actions that are needed to ask the store for its ways, and by every job."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is promised for one thing.

    Attributes:
        subject: the thing: a mode, say.
        works: whether it does; None: it was not found out.
        sentence: what is promised, or lacking.
    """

    subject: str
    works: bool | None
    sentence: str


WORKS = "works: a job is decided once, all of it or nothing; anyone can finish it from any crash"
UNLESS_KILLED = "works, but for a client that is killed during a Complete (see below)"
"""The condition of every mode on a store that may lose a file whose Complete was cut."""
_OFF = "Options(conditional_writes='off')"
FINDING = "finding uploads of killed tasks"
_UNKNOWN = "was not found out"


Told = tuple[bool | None, str]
"""As in a `Verdict`."""


def verdicts(can: Capabilities, denied: Set[str]) -> Iterator[Verdict]:
    """What the library promises on such a store, where these actions are denied that a committer
    needs. Pure."""
    works, sentence = _decided(can, denied)
    # What only MinIO was seen to do. It is said if uploads are listed as only MinIO lists them:
    # nobody could ask without losing something.
    whole = can.notes.get("uploads_by_prefix") == WHOLE_KEYS_ONLY
    loses = can.uploads_by_prefix is False and whole
    for mode in get_args(Mode):
        own = works and mode != "append"
        kept, told = _mode(mode, can) if own else (works, sentence)
        if kept and loses:
            told = UNLESS_KILLED + told.removeprefix("works")
        yield Verdict(mode, kept, told)
    if denied & TO_PROBE:
        off: Told = False, f"does not help: {_wants(denied)}"
    elif can.metadata_kept is False:
        off = False, "does not help: without its metadata nobody knows whose a file is"
    elif works:
        off = True, "works, and is not needed: the store keeps what a decision rests on"
    else:
        off = True, "helps: S3A's guarantees only, one driver a job and no recovery beside it"
    yield Verdict(_OFF, *off)
    yield Verdict("finishing a job again", *_again(can))
    if loses:
        yield Verdict(
            "a client that is killed during Complete",
            False,
            "may lose the file, if the store is MinIO, whose way of listing uploads it has: object"
            " and parts are gone (docs/stores.md). Recovering the job names such keys as lost. With"
            " a lower Options(commit_threads=…) fewer Completes are in flight, and fewer are lost",
        )
    yield Verdict(FINDING, *_killed(can, denied))


def _wants(denied: Set[str]) -> str:
    return f"the policy must allow {', '.join(sorted(denied))}"


def _decided(can: Capabilities, denied: Set[str]) -> Told:
    """What every mode needs; `append` needs no more."""
    if needed := denied & actions_of("committer"):
        return False, f"does not work: {_wants(needed)}"
    for name, verb in (("conditional_put", "PUT If-None-Match"), ("swap", "PUT If-Match")):
        if getattr(can, name) is False:
            how = can.notes.get(name, "does not keep it")
            sentence = f"is refused: of {verb} the store {how}, so no job could be decided once"
            return False, f"{sentence}. {_OFF} helps"
    if can.metadata_kept is False:
        how = can.notes.get("metadata_kept", "does not keep it")
        sentence = f"is refused: the store, or a proxy before it, {how}, so a job's files could not"
        return False, f"{sentence} be distinguished from others'"
    if None in (can.conditional_put, can.swap, can.metadata_kept):
        return None, _UNKNOWN
    return True, WORKS


def _mode(mode: Mode, can: Capabilities) -> Told:
    """What a mode needs beside that."""
    fails = mode in FAILING
    name = "conditional_complete" if fails else "conditional_delete"
    kept, how = getattr(can, name), can.notes.get(name, "does not keep it")
    if kept is None:
        return None, _UNKNOWN
    if kept:
        only = "only what was there when it was planned is deleted"
        return True, f"works: {'nothing is ever written over' if fails else only}"
    if fails:
        sentence = f"is refused: of Complete If-None-Match the store {how}, so a job could write"
        return False, f"{sentence} over what somebody else wrote"
    sentence = f"works, with a warning: of DELETE If-Match the store {how}; a job looks before it"
    return True, f"{sentence} deletes, and what somebody writes between the two is lost"


def _again(can: Capabilities) -> Told:
    if can.second_complete is None:
        return None, _UNKNOWN
    how = "is answered as the first"
    if can.second_complete != "idempotent":
        how = can.notes.get("second_complete", "is answered with 404")
        how += ", and the object is known by its token"
    if can.true_complete is False:
        how += (
            f"; but the store {can.notes.get('true_complete', 'answers 200 falsely')}: each object"
            " is looked at after its Complete, and completing takes some two thirds longer"
        )
    return True, f"works: a second Complete {how}"


def _killed(can: Capabilities, denied: Set[str]) -> Told:
    stay = "they stay until a lifecycle rule removes them"
    if LIST_UPLOADS in denied:
        return False, f"does not work: {_wants({LIST_UPLOADS})}; {stay}"
    if can.uploads_by_prefix is None:
        return None, f"was not found out; where they are not listed {stay}"
    if not can.uploads_by_prefix:
        how = can.notes.get("uploads_by_prefix", "does not list them")
        return False, f"does not work: the store {how}; {stay}"
    return True, "works"


# Finding out by trying ----------------------------------------------------------------------------
#
# What a job may do and can do under a destination, found out by trying: permissions, one S3 action
# after the other; which of S3's rules the store keeps; and what the library promises there.
#
# Invariants:
#
# * **Nothing is left behind**, whatever is denied. An object is put only after DeleteObject was
#   allowed; an upload is created only after AbortMultipartUpload was allowed. Before, both are
#   tried on things that do not exist. If one of them is denied, the others are tried on such things
#   too: S3 checks the permission first. (A bucket with versions keeps those of the scratch
#   objects.)
# * All of it is in a job's directory of its own, with that job's token: if this process is killed,
#   cleanup recognises it.
# * A denial does not stop the rest. "Denied" is said only if it is certain: of GetObject only after
#   a GET of an object that is there. To who may not list by that very request S3 answers 403 for a
#   missing one as well.
# * `Capabilities` says what the store was found to do; `verdicts` says what that means.


NO_UPLOAD = "magic-committer-doctor-no-such-upload"
"""An upload id that no store has given."""
NAME = "doctor"
"""Of the one key on which the actions are tried."""
SCRATCH_BYTES_MAX = 1024
LISTED = "an object that is not there answers 403 as well: a job lists its key then, and goes on"
UNTOLD = "without s3:ListBucket an object that is not there answers 403 as well"
WRONG_CREDENTIALS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
ON_BUCKETS = frozenset({LIFECYCLE, LIST_UPLOADS})
"""Allowed for the whole bucket or not at all: no policy can limit them to a prefix."""

Answer = Literal["ok", "denied", "unsupported", "unanswered", "error", "unknown"]
"""``unsupported``: the store has no such call. ``unknown``: the store did not say, or was not
asked."""
ANSWERS: Mapping[type[StoreError], Answer] = {
    PermissionDenied: "denied", NotSupported: "unsupported", Unanswered: "unanswered",
}  # fmt: skip
"""What an error says; "error" of all others."""


@dataclass(frozen=True, slots=True)
class PermissionAnswer(Permission):
    """An S3 action that was tried.

    Attributes:
        action: its name, as IAM has it.
        use: what it is needed for.
        roles: who needs it.
        on: the URL on which it was tried.
        answer: whether it is allowed (`Answer`).
        detail: what the store said; "" if it is allowed.
    """

    on: str
    answer: Answer = "unknown"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out about a destination.

    Attributes:
        dest: its URL.
        store: its endpoint and bucket.
        permissions: each action that the library uses, and whether it is allowed.
        can: what the store was found to do.
        verdicts: what is promised there: for each mode, and more.
        problem: why ``can`` is empty, if the store was not asked or only in part.
        left: scratch objects and uploads that could not be removed.
        transport: what sends the requests, ``"fast"`` or ``"boto3 (why)"``; "": not known.
    """

    dest: str
    store: str
    permissions: tuple[PermissionAnswer, ...]
    can: Capabilities
    problem: str
    verdicts: tuple[Verdict, ...]
    left: tuple[str, ...]
    transport: str


def lacks(found: Diagnosis, role: Role, answer: Answer) -> bool:
    """Whether an action that a role needs got this answer. Pure."""
    return any(role in a.roles and a.answer == answer for a in found.permissions)


def diagnose(
    runtime: Runtime, dest: Destination, settings: BucketSettings | None = None
) -> Diagnosis:
    """Find out what works under a destination. Some 80 requests. Repeatable. ``settings``: of the
    bucket, to ask whether its lifecycle may be read. Raises what ends all: no such bucket, no
    credentials or wrong ones, no store."""
    with _Trial(runtime, dest) as trial:
        found = {one.action: one for one in trial.ask()}
        found[LIFECYCLE] = trial.ask_lifecycle(settings)
        records = list(trial.ask_above())
    asked = (*(found[one.action] for one in PERMISSIONS), *records)
    can, problem = Capabilities(), ""
    if lacking := [action for action in sorted(TO_PROBE) if found[action].answer != "ok"]:
        problem = f"not asked: that wants {', '.join(lacking)}"
    else:
        listing = found[LIST_UPLOADS].answer not in ("denied", "unanswered")
        try:
            can = probe_all(runtime, dest.prefix, listing=listing)
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
        left=tuple(in_words(one) for one, _ in trial.left),
        transport=transport_of(runtime.store),
    )


class _Trial(Scratch):
    """One key in a job's directory, on which each action is tried."""

    def __init__(self, runtime: Runtime, dest: Destination) -> None:
        uuid = runtime.ids()
        self.dest, self.directory = dest, f"{dest.jobs_prefix}{uuid}/"
        super().__init__(runtime, self.directory, uuid)
        self.at = self.key(NAME)

    def ask(self) -> Iterator[PermissionAnswer]:
        """All actions under the destination."""
        uploads = self.store.list_uploads
        yield self._tried(LIST, partial(self._first_page, self.directory), first=True)
        yield self._tried(LIST_UPLOADS, lambda: next(iter(uploads(self.directory)), None))
        delete = self._tried(DELETE, partial(self.delete, self.at))
        put, abort, parts = self._ask_upload()
        if delete.answer == "ok" and put.answer == "ok":
            put, get, delete = self._ask_object()
        else:
            get = self._ask_missing(self.at)
        yield from (put, get, delete, abort, parts)

    def ask_above(self) -> Iterator[PermissionAnswer]:
        """Whether records above the destination may be found and read, as a cleaner needs."""
        for higher in above(self.dest):
            jobs = f"{higher}{MAGIC_JOB_PREFIX}"
            listing = self._tried(LIST, partial(self._first_page, jobs))
            get = self._ask_missing(f"{jobs}{self.uuid}/{RECORD}")
            on = f"s3://{self.dest.bucket}/{higher}"
            for one in (listing, get):
                yield replace(one, on=on, use="records above", roles=("cleaner",))

    def ask_lifecycle(self, settings: BucketSettings | None) -> PermissionAnswer:
        """Whether the bucket's lifecycle may be read."""
        if settings is None:
            detail = "the store that is registered for the bucket has none"
            return replace(self._asked(LIFECYCLE), answer="unsupported", detail=detail)
        try:
            return self._tried(LIFECYCLE, settings.lifecycle)
        except FormatError:  # it may be read; its content is for `lifecycle show`
            return replace(self._asked(LIFECYCLE), answer="ok")

    def _ask_upload(self) -> tuple[PermissionAnswer, PermissionAnswer, PermissionAnswer]:
        """PutObject, AbortMultipartUpload, ListMultipartUploadParts."""
        store, absent = self.store, (NotFound, InvalidRequest)
        none = UploadInfo(self.at, NO_UPLOAD)
        abort = self._tried(ABORT, partial(self.abort, none), absent=absent)
        if abort.answer == "denied":
            send = partial(store.complete_upload, self.at, NO_UPLOAD, [Part(1, STALE_ETAG, 1)])
            put = self._tried(PUT, send, absent=absent)
        else:
            put = self._tried(PUT, self._create)
        if not self.uploads:
            look = partial(store.list_parts, self.at, NO_UPLOAD)
            return put, abort, self._tried(PARTS, look, absent=absent)
        (upload,) = self.uploads
        parts = self._tried(PARTS, partial(store.list_parts, self.at, upload.upload_id))
        return put, self._tried(ABORT, partial(self.abort, upload)), parts

    def _create(self) -> None:
        try:
            self.create(NAME)
        except (PermissionDenied, InvalidRequest):
            self.unsure.clear()
            raise

    def _ask_object(self) -> tuple[PermissionAnswer, PermissionAnswer, PermissionAnswer]:
        """PutObject, GetObject, DeleteObject, for an object that exists."""
        put = self._tried(PUT, partial(self.put, NAME))
        there = put.answer == "ok"
        get = self._tried(GET, partial(self._get, self.at), absent=() if there else (NotFound,))
        if get.answer == "ok":
            get = replace(get, detail=self._ask_missing(f"{self.at}-missing").detail)
        return put, get, self._tried(DELETE, partial(self.delete, self.at))

    def _ask_missing(self, key: str) -> PermissionAnswer:
        """GetObject, for an object that is not there: a refusal says nothing of the permission."""
        get = self._tried(GET, partial(self._get, key), absent=(NotFound,))
        return get if get.answer != "denied" else replace(get, answer="unknown", detail=UNTOLD)

    def _asked(self, action: str) -> PermissionAnswer:
        """An action about which nothing is known yet."""
        (one,) = (one for one in PERMISSIONS if one.action == action)
        on = f"s3://{self.dest.bucket}/" if action in ON_BUCKETS else self.dest.url
        return PermissionAnswer(one.action, one.use, one.roles, on)

    def _tried(
        self,
        action: str,
        send: Callable[[], object],
        *,
        absent: tuple[type[StoreError], ...] = (),
        first: bool = False,
    ) -> PermissionAnswer:
        """Try a request and give the result. ``absent``: errors that only say that the thing does
        not exist: a caller that gets them is allowed to ask. ``first``: of all requests: if nobody
        answers, or our credentials are wrong, all others would say the same: then it raises."""
        asked = self._asked(action)
        try:
            send()
        except StoreError as error:
            nobody = isinstance(error, PermissionDenied) and not error.status
            useless = nobody or isinstance(error, Unanswered) or error.code in WRONG_CREDENTIALS
            if error.code == "NoSuchBucket" or (first and useless):
                raise
            if isinstance(error, NotFound) and error.status == 403:
                return replace(asked, detail=LISTED)
            if not isinstance(error, absent):
                kinds = (answer for kind, answer in ANSWERS.items() if isinstance(error, kind))
                return replace(asked, answer=next(kinds, "error"), detail=str(error))
        return replace(asked, answer="ok")

    def _get(self, key: str) -> None:
        self.store.get(key, max_bytes=SCRATCH_BYTES_MAX)

    def _first_page(self, prefix: str) -> None:
        next(self.store.list(prefix, delimiter="/"), None)  # it may have no page at all

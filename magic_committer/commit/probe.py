"""What a store can do: each process asks each store once, verb by verb.

Some stores accept a condition and ignore it, on one verb and not on the next. Such a store is worse
than one that refuses: two drivers both win (docs/stores.md). So each verb that a job will use is
tried by itself, with a condition that cannot hold. Invariants:

* Only a clear answer counts. 412 with the object unchanged: the store keeps the condition. The
  request was carried out: the store ignores it. The request was refused as wrong, several times
  with a pause between: the store does not know it. A single 400 or 500 may be an accident, and the
  process would believe it to its end. No answer, or no permission, is an error, and nothing is
  learnt.
* No data of anybody is at risk. What decides a job is tried on its own record, by the process that
  has just created the record, with the same bytes: a store that ignores the condition changes
  nothing. Everything else is tried on scratch objects in the job's directory, with the job's token.
* The scratch objects are removed when the probe ends, however it ends. If a process is killed, they
  are litter of its job: invisible, and removed by its sweep or by cleanup.
* No lock is held during a request: two threads may ask the same at once, and get the same answer.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

from magic_committer.commit import register
from magic_committer.commit.outcome import ended, ended_by_record
from magic_committer.errors import (
    ConditionsNotSupported,
    InvalidRequest,
    NotFound,
    NotSupported,
    PathError,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.errors.messages import Remedy
from magic_committer.hadoop.paths import (
    ELEMENT_BYTES_MAX,
    MAGIC_JOB_PREFIX,
    Destination,
    JobPaths,
    is_long,
    shown,
)
from magic_committer.options import FAILING, REPLACING, Mode, in_both
from magic_committer.protocol.record import JOB_METADATA, TOKEN_METADATA, ObjectRef, State
from magic_committer.runtime.components import Clock, Runtime, again
from magic_committer.runtime.threads import Outcome, cleaning_up
from magic_committer.stores.base import (
    KEY_BYTES_MAX,
    Attributes,
    Part,
    UploadInfo,
    same_etag,
    sent_once,
    uploads,
)
from magic_committer.stores.urls import is_tree

Want = Literal[
    "conditional_put",
    "swap",
    "metadata_kept",
    "conditional_complete",
    "conditional_delete",
    "true_complete",
]
"""What a job may need to know about its store before it relies on it."""

_DONE_WITHOUT: frozenset[Want] = frozenset({"conditional_delete", "true_complete"})
"""What may be lacking: there is another way, which is less safe or slower."""
STALE_ETAG = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
REFUSALS_MIN = 3
"""An answer that may be an accident (400, 500, 501) counts if it came so often in a row."""
REFUSAL_PAUSE_SECONDS = 0.1
"""Seconds before the question is sent the second time. They double each time."""
INTERNAL_ERROR = 500
AWS = re.compile(r"https://s3(?:[.-][a-z0-9.-]+)?\.amazonaws\.com(?:\.cn)?/(?!.*--xa?-s3$)")
"""The identity of a bucket of AWS S3. The directory buckets of S3 Express are not among them: they
list uploads by whole directories."""
STORES_KNOWN_MAX = 64
"""How many stores a process remembers. It forgets the oldest first."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What is known about a store. None means: not asked.

    Attributes:
        conditional_put: a PUT ``If-None-Match: *`` over an object is refused.
        swap: a PUT ``If-Match`` with another ETag than the object's is refused.
        etag_quoting: the form of a *right* ``If-Match`` that a PUT accepts: as the store returned
            it, in quotes, or without (Ceph RGW).
        conditional_complete: a Complete ``If-None-Match: *`` over an object is refused.
        conditional_delete: a DELETE ``If-Match`` is refused with another ETag, and carried out with
            the right one.
        second_complete: the answer to a Complete of a completed upload. ``"idempotent"``: 200
            again; ``"forgetful"``: 404; ``"other"``: another error.
        uploads_by_prefix: a listing by prefix shows the open uploads with this prefix, and no
            others.
        metadata_kept: user metadata comes back as it was sent, for a PUT and for an upload. The
            names are compared as S3 gives them, in lower case; the adapter does this.
        true_complete: a Complete of an aborted upload is refused if there is an object at the key.
            False: the answer is 200 (versitygw), so each object is looked at.
        notes: for each thing that is lacking: how the store answers.
    """

    conditional_put: bool | None = None
    swap: bool | None = None
    etag_quoting: Literal["quoted", "unquoted"] | None = None
    conditional_complete: bool | None = None
    conditional_delete: bool | None = None
    second_complete: Literal["idempotent", "forgetful", "other"] | None = None
    uploads_by_prefix: bool | None = None
    metadata_kept: bool | None = None
    true_complete: bool | None = None
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)


class _Finding(NamedTuple):
    value: Any
    note: str = ""
    repeated: bool = False
    """The question was sent more than once: one of these requests may still be under way."""


_known: dict[str, dict[str, _Finding]] = {}
"""What this process has learnt: by the store's identity, then by the name of the capability."""


def known(identity: str) -> Capabilities:
    """What this process has learnt about a store so far. No request."""
    found = dict(_known.get(identity, {}))
    return Capabilities(
        **{name: finding.value for name, finding in found.items()},
        notes={name: finding.note for name, finding in found.items() if finding.note},
    )


def _learn(identity: str, found: Mapping[str, _Finding]) -> None:
    _known.setdefault(identity, {}).update(found)
    for oldest in list(_known)[:-STORES_KNOWN_MAX]:
        _known.pop(oldest, None)


def trust_memory(identity: str) -> None:
    """Note without asking what is true of the in-memory store: a 200 to Complete, and a listing of
    uploads. The hooks of users' tests then see no request of a probe before those of their own
    files, or of their cleanup."""
    _learn(identity, {"true_complete": _Finding(True), "uploads_by_prefix": _Finding(True)})


def wants_at_setup(mode: Mode) -> frozenset[Want]:
    """What a job of that mode must know before it starts. Pure."""
    wants: set[Want] = {"conditional_put", "swap", "metadata_kept", "true_complete"}
    if mode in FAILING:
        wants.add("conditional_complete")
    if mode in REPLACING:
        wants.add("conditional_delete")
    return frozenset(wants)


def need(runtime: Runtime, paths: JobPaths, seen: register.Seen, wants: Collection[Want]) -> bool:
    """Find out what is wanted and not `known` yet. Repeatable.

    Requests, once for each process and store: ``conditional_put`` and ``swap`` 1 PUT each,
    ``metadata_kept`` 1 HEAD, ``conditional_complete`` 7, ``conditional_delete`` 5,
    ``true_complete`` 7. With conditional writes off only ``true_complete`` is tried, and nothing
    about conditions. For ``conditional_put`` and ``swap`` the record must be as its creator wrote
    it a moment ago: it is written again.

    Gives whether a late PUT of this question could still write the record after its deletion: then
    the record must not be deleted. Where ``conditional_delete`` is False,
    deletes compare first, and an object that another writer puts in between is lost
    (`commit.revert`); where ``true_complete`` is, `commit.uploads` looks at each object."""
    off = seen.record.terms.conditional_writes == "off"
    identity = runtime.store.identity
    late = False
    for name in get_args(Want):
        if name not in wants or (off and name != "true_complete"):
            continue
        found = _known.get(identity, {}).get(name)
        if found is None:
            try:
                found = _ask_for_job(runtime, paths, seen, name)
            except NotFound:
                _refuse_ended(runtime, paths, seen)
                raise
            if found.value is None:
                continue
            if found.value is False:
                _refuse_ended(runtime, paths, seen)
            _learn(identity, {name: found})
            late = late or (name == "conditional_put" and found.repeated)
        if found.value is False and name not in _DONE_WITHOUT:
            raise _refused(runtime, paths.dest, name, found.note)
    return late


def probe_all(runtime: Runtime, prefix: str, *, listing: bool = True) -> Capabilities:
    """Ask everything, whatever is known already: 55 requests. Repeatable.

    All of it happens in ``<prefix>__magic_job-<drawn id>/``. Readers do not see it. If this process
    is killed, cleanup treats it as litter of a job without a record. Without ``listing`` no upload
    is listed, which may be forbidden. If the store did not answer clearly, nothing is left
    behind."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"{prefix!r} is no directory: it lacks its closing slash")
    uuid = runtime.ids()
    directory = f"{prefix}{MAGIC_JOB_PREFIX}{uuid}/"
    found: dict[str, _Finding] = {"etag_quoting": _Finding(None)}
    for name, ask in _QUESTIONS.items():
        if name == "etag_quoting" and not found["swap"].value:
            continue  # a store that ignores conditions accepts every form
        if name == "uploads_by_prefix" and not listing:
            continue
        with Scratch(runtime, directory, uuid) as scratch:
            found[name] = ask(scratch)
    if found["swap"].value and found["etag_quoting"].value is None:
        found["swap"] = _Finding(False, found["etag_quoting"].note)
    _learn(runtime.store.identity, found)
    return known(runtime.store.identity)


def _refuse_ended(runtime: Runtime, paths: JobPaths, seen: register.Seen) -> None:
    """See that the job runs: its end removes what the probe tries, and the store's answer then says
    nothing of the store."""
    now = register.read(runtime, seen.key)
    if now is None or now.record.uuid != seen.record.uuid:
        raise ended(paths.dest.url, paths.job_id, State.ABSENT, "")
    if now.record.state is not State.RUNNING:
        raise ended_by_record(paths.dest.url, now.record)


def _ask_for_job(runtime: Runtime, paths: JobPaths, seen: register.Seen, name: Want) -> _Finding:
    record = seen.record
    put = partial(
        runtime.store.put, seen.key, record.encode(), metadata={JOB_METADATA: record.uuid}
    )
    if name == "metadata_kept":
        return _of_record(runtime, seen)
    if name == "swap":
        return _must_fail(runtime.clock, lambda: put(if_match=STALE_ETAG))
    if name == "conditional_put":
        return _must_fail(runtime.clock, lambda: put(if_none_match=True))
    with Scratch(runtime, paths.directory, record.uuid) as scratch:
        return _QUESTIONS[name](scratch)


def _of_record(runtime: Runtime, seen: register.Seen) -> _Finding:
    """What became of the record's own metadata. Nothing is learnt if it is another record by now:
    somebody ended the job, and the id was used again."""
    info = runtime.store.head(seen.key)
    if not same_etag(info.etag, seen.etag):
        return _Finding(None)
    return _came_back({JOB_METADATA: seen.record.uuid}, info.metadata)


def hides_uploads(runtime: Runtime, prefix: str, ask: bool = True) -> str:
    """How the store hides open uploads from a listing of a directory; "" if it does not. 9
    requests, once for each process and store, in a directory of its own below ``prefix``. None for
    AWS S3, which lists by prefix (S3 API, ListMultipartUploads), and of a file tree: there a caller
    who may only read can look, too. Without ``ask`` nothing is sent: of a store that was not asked
    yet that is said. Repeatable.

    PermissionDenied: the caller may not create and abort uploads, and so cannot ask. If it may
    create and not abort, the error names the uploads that stay open."""
    identity = runtime.store.identity
    if AWS.match(identity) or is_tree(runtime.store.bucket):
        return ""
    found = _known.get(identity, {}).get("uploads_by_prefix")
    if found is None and not ask:
        return NOT_ASKED
    if found is None:
        uuid = runtime.ids()
        with Scratch(runtime, f"{prefix}{MAGIC_JOB_PREFIX}{uuid}/", uuid) as scratch:
            found = _uploads_by_prefix(scratch)
        if found.value or found.note in (_BESIDE, WHOLE_KEYS_ONLY):  # another answer may be odd
            _learn(identity, {"uploads_by_prefix": found})
        left = {
            one.key: why
            for one, why in scratch.left
            if isinstance(one, UploadInfo) and one.upload_id
        }
        for error in left.values():
            raise error.ending(f"uploads of this question stay open: {', '.join(left)}")
    return "" if found.value or found.note == _BESIDE else found.note


def _refused(runtime: Runtime, dest: Destination, name: Want, how: str) -> ConditionsNotSupported:
    if name in ("conditional_put", "swap"):
        condition = "If-Match" if name == "swap" else "If-None-Match"
        return register.undecidable(runtime, condition, how)
    if name == "metadata_kept":
        return ConditionsNotSupported(
            f"the store of bucket {runtime.store.bucket!r}, or a proxy before it, {how}: a job"
            " could not recognise its own files",
            hint="Nothing was started. Let the proxy pass x-amz-meta- headers on as they are",
            remedies=(Remedy("doctor", dest.url, why="ask again"),),
        )
    lost = [in_both(mode) for mode in get_args(Mode) if mode in FAILING]
    left = [in_both(mode) for mode in get_args(Mode) if mode not in FAILING]
    return ConditionsNotSupported(
        f"the store of bucket {runtime.store.bucket!r} does not keep If-None-Match on"
        f" CompleteMultipartUpload: it {how}",
        hint=f"Modes {', '.join(lost)} do not work there: they could write over what somebody else"
        f" wrote. {', '.join(left)} do",
    )


# The questions ------------------------------------------------------------------------------------

_REFUSES_RIGHT = "refuses the right ETag too"
WHOLE_KEYS_ONLY = "does not list an upload by a part of its key"
_BESIDE = "lists uploads beside the prefix"
NOT_ASKED = "was not asked whether it lists an upload by a part of its key"


def _must_fail(clock: Clock, send: Callable[[], object]) -> _Finding:
    """What a store does with a condition that does not hold."""
    repeated, note = False, ""
    for _ in again(clock, REFUSALS_MIN, REFUSAL_PAUSE_SECONDS):
        try:
            send()
        except (PreconditionFailed, WriteConflict) as error:
            return _Finding(True, repeated=repeated or error.attempts > 1)
        except (InvalidRequest, NotSupported) as error:
            note = f"refuses it ({_answer(error)})"
            repeated = repeated or error.attempts > 1
        else:
            return _Finding(False, "ignores it")
    return _Finding(False, note)


def _holds(scratch: Scratch, before: ObjectRef, send: Callable[[], object]) -> _Finding:
    """The same for a scratch object: a store may say 412 and carry the request out all the same."""
    found = _must_fail(scratch.clock, send)
    if not found.value:
        return found
    try:
        same = same_etag(scratch.store.head(before.key).etag, before.etag)
    except NotFound:
        same = False
    return found if same else _Finding(False, "answers that it did not hold, and ignores it")


def _accepted_form(etag: str, send: Callable[[str], object]) -> str | None:
    """The form of the right ETag that the store accepts: as it gave it, or in the other quoting.
    None: it refuses both, twice."""
    for form in (etag, register.other_quoting(etag)) * 2:
        try:
            send(form)
        except (PreconditionFailed, InvalidRequest):
            continue
        return form
    return None


def _answer(error: StoreError) -> str:
    return f"{error.status or ''} {error.code}".strip()


def _conditional_put(scratch: Scratch) -> _Finding:
    before = scratch.put("object")
    return _holds(scratch, before, lambda: scratch.put_over(before.key, if_none_match=True))


def _swap(scratch: Scratch) -> _Finding:
    before = scratch.put("object")
    return _holds(scratch, before, lambda: scratch.put_over(before.key, if_match=STALE_ETAG))


def _etag_quoting(scratch: Scratch) -> _Finding:
    before = scratch.put("object")
    quoted = '"{}"'.format(before.etag.strip('"'))
    form = _accepted_form(quoted, lambda form: scratch.put_over(before.key, if_match=form))
    if form is None:
        return _Finding(None, _REFUSES_RIGHT)
    return _Finding("quoted" if form == quoted else "unquoted")


def _conditional_complete(scratch: Scratch) -> _Finding:
    before = scratch.put("object")
    upload_id, parts = scratch.upload("object")
    complete = partial(scratch.store.complete_upload, before.key, upload_id, parts)
    return _holds(scratch, before, lambda: complete(if_none_match=True))


def _conditional_delete(scratch: Scratch) -> _Finding:
    before = scratch.put("object")

    def delete(etag: str) -> None:
        scratch.store.delete_one(before.key, if_match=etag)

    found = _holds(scratch, before, lambda: delete(STALE_ETAG))
    if not found.value or _accepted_form(before.etag, delete) is not None:
        return found
    return _Finding(False, _REFUSES_RIGHT)


def _second_complete(scratch: Scratch) -> _Finding:
    upload_id, parts = scratch.upload("object")
    complete = partial(scratch.store.complete_upload, scratch.key("object"), upload_id, parts)
    complete()
    try:
        complete()
    except NotFound:
        return _Finding("forgetful")
    except StoreError as error:
        if isinstance(error, Unanswered) and not error.status:
            raise
        return _Finding("other", f"answers {_answer(error)}")  # 403, 400, 500 for ever
    return _Finding("idempotent")


def _metadata_kept(scratch: Scratch) -> _Finding:
    """Ask with a PUT and with an upload: a store may keep the metadata of one and lose the
    other's."""
    sent = {**scratch.metadata, TOKEN_METADATA: f"{scratch.uuid}.Attempt.1"}
    scratch.metadata = sent
    key = scratch.put("object").key
    found = _came_back(sent, scratch.store.head(key).metadata)
    if not found.value:
        return found
    upload_id, parts = scratch.upload("upload")
    key = scratch.key("upload")
    scratch.store.complete_upload(key, upload_id, parts)
    found = _came_back(sent, scratch.store.head(key).metadata)
    return found if found.value else _Finding(False, f"{found.note} of multipart uploads")


def _came_back(sent: Mapping[str, str], got: Mapping[str, str] | None) -> _Finding:
    """What became of user metadata. Pure."""
    got = got or {}
    spelled = {name.lower(): name for name in got}
    for name, value in sent.items():
        if name in got and got[name] != value:
            return _Finding(False, f"changes user metadata ({name} came back as {got[name]!r})")
        if name not in got and name in spelled:
            return _Finding(
                False, f"changes user metadata ({name} came back under the name {spelled[name]!r})"
            )
        if name not in got:
            return _Finding(False, "loses user metadata")
    return _Finding(True)


def _true_complete(scratch: Scratch) -> _Finding:
    before = scratch.put("object")
    upload_id, parts = scratch.upload("object")
    scratch.store.abort_upload(before.key, upload_id)
    # Ceph RGW and moto always answer 500: that is a refusal, and not worth their retries.
    once = store = sent_once(scratch.store)
    for number in again(scratch.clock, REFUSALS_MIN, REFUSAL_PAUSE_SECONDS):
        try:
            store.complete_upload(before.key, upload_id, parts)
        except NotFound:
            return _Finding(True)
        except Unanswered as error:
            if error.status and error.attempts >= REFUSALS_MIN:
                return _Finding(True)  # the store's own retries have asked so often
            if not error.status and (store is scratch.store or number == REFUSALS_MIN - 1):
                raise
            store = once if error.status == INTERNAL_ERROR else scratch.store
        except StoreError:
            continue
        else:
            return _Finding(False, "answers 200 to a Complete of an upload that was aborted")
    return _Finding(True)


def _uploads_by_prefix(scratch: Scratch) -> _Finding:
    inside, _ = scratch.upload("a/object")
    beside, _ = scratch.upload("ab")
    listed = _listed(scratch, "a/")
    if isinstance(listed, _Finding):
        return listed
    if beside in listed:
        return _Finding(False, _BESIDE)
    if inside in listed:
        return _Finding(True)
    whole = _listed(scratch, scratch.key("a/object").removeprefix(scratch.root))
    if isinstance(whole, _Finding):
        return whole
    if inside in whole:
        return _Finding(False, WHOLE_KEYS_ONLY)
    return _Finding(False, "does not list an upload that was created a moment ago")


def _listed(scratch: Scratch, below: str) -> Counter[str] | _Finding:
    """How often each upload is listed; or that uploads cannot be listed."""
    try:
        return Counter(one.upload_id for one in uploads(scratch.store, scratch.root + below))
    except (NotSupported, InvalidRequest) as error:
        return _Finding(False, f"does not list uploads ({_answer(error)})")


_QUESTIONS: Mapping[str, Callable[[Scratch], _Finding]] = {
    "conditional_put": _conditional_put,
    "swap": _swap,
    "etag_quoting": _etag_quoting,
    "conditional_complete": _conditional_complete,
    "conditional_delete": _conditional_delete,
    "second_complete": _second_complete,
    "uploads_by_prefix": _uploads_by_prefix,
    "metadata_kept": _metadata_kept,
    "true_complete": _true_complete,
}


# Names that a store cannot hold -------------------------------------------------------------------
#
# A path element over 255 bytes, on stores whose keys are files.
# S3 has no such limit, and percent-encoded partition values can be so long. A store that keeps keys
# as paths of files has the limit: it accepts the upload and all its parts, and refuses to complete
# it, for ever (versitygw: 500). Only the store knows whether it has the limit. So we ask it, once,
# for such a name (`is_long`): it answers a GET of such a key with 400 KeyTooLongError. The key in
# the question is in a directory that exists: in another a file system finds nothing (404), whatever
# the name. No object has this key. The question is a GET, because the answer to a HEAD has no code,
# and a 400 may then mean an expired token (S3 API).
#
# We ask when a file is opened, and again before the decision, as others (Hadoop, an older version)
# open files too. Without a clear answer the name is accepted: `magic_committer.commit.revert` can
# undo the job.


_ASKED = "x" * (ELEMENT_BYTES_MAX + 1)

_limited: dict[str, bool] = {}
"""What this process has learnt: for each store, by its identity, whether it has the limit."""


def refuse_long_element(runtime: Runtime, key: str, directory: str) -> None:
    """Ask the store whether it can hold a key that has a long element. One GET for the first such
    key in a process, until the store answers; none for other keys. ``directory``: one with an
    object, with its slash: the job's own, or "" for the bucket's root."""
    if not is_long(key) or not _is_limited(runtime, directory):
        return
    longest = max(key.split("/"), key=lambda element: len(element.encode()))
    raise PathError(
        f"the store of bucket {runtime.store.bucket!r} cannot hold {shown(key)}: its element"
        f" {shown(longest)} has {len(longest.encode())} bytes",
        hint=f"A store that keeps keys as paths of files has {ELEMENT_BYTES_MAX} bytes for each"
        " element, the committer's own '.pending' included: choose a shorter name, or shorter"
        " partition values",
    )


def _is_limited(runtime: Runtime, directory: str) -> bool:
    store = runtime.store
    if store.identity not in _limited:
        fits = len(directory.encode()) + len(_ASKED) <= KEY_BYTES_MAX
        try:
            store.get(f"{directory if fits else ''}{_ASKED}", max_bytes=1)
        except NotFound:
            _limited[store.identity] = False
        except InvalidRequest as error:
            if not 400 <= error.status < 500:
                return False
            _limited[store.identity] = True
        except StoreError:
            return False
    return _limited.get(store.identity, False)


# Scratch objects ----------------------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("magic_committer")

REQUESTS_IN_FLIGHT = 32
NONCE_CHARS = 8
"""Distinguishes trials of one job that run at once."""


class Scratch:
    """Objects and uploads of one trial, each under a key that nobody else has. They are removed
    when the ``with`` ends, however it ends. What cannot be removed is logged. ``left``: after the
    ``with``, what stays, each with the reason: an object's key, or an upload, without an id if
    nobody knows whether there is one."""

    def __init__(self, runtime: Runtime, directory: str, uuid: str) -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.clock = runtime.clock
        self.root = f"{directory}probe-{runtime.ids()[-NONCE_CHARS:]}/"
        self.uuid = uuid
        self.metadata = {JOB_METADATA: uuid}
        self.left: list[tuple[UploadInfo | str, StoreError]] = []
        self._keys: set[str] = set()
        self.uploads: dict[UploadInfo, None] = {}  # threads may take one out each
        self.unsure: set[str] = set()  # keys that may have an upload whose id is not known

    def key(self, name: str) -> str:
        """A scratch key. Its last element names the job, so that a sweep knows an upload there as
        the job's."""
        return f"{self.root}{name}-mcj{self.uuid}"

    def put(self, name: str) -> ObjectRef:
        """Write a scratch object."""
        key = self.key(name)
        self._keys.add(key)
        written = self.store.put(key, b"object", metadata=self.metadata)
        return ObjectRef(key, written.etag or self.store.head(key).etag)

    def put_over(self, key: str, **condition: Any) -> None:
        """Write other bytes over a scratch object, if the condition holds."""
        self.store.put(key, b"other", metadata=self.metadata, **condition)

    def create(self, name: str) -> str:
        """Start a scratch upload and give its id."""
        key = self.key(name)
        self.unsure.add(key)
        created = self.store.create_upload(key, attributes=Attributes(metadata=self.metadata))
        self.uploads[UploadInfo(key, created.upload_id)] = None
        if created.attempts == 1:
            self.unsure.discard(key)
        return created.upload_id

    def upload(self, name: str) -> tuple[str, tuple[Part, ...]]:
        """Make a scratch upload that is ready to complete: its id and its parts."""
        upload_id = self.create(name)
        self._keys.add(self.key(name))
        part = self.store.put_part(self.key(name), upload_id, 1, memoryview(b"upload"))
        return upload_id, (part,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with cleaning_up(error) if error is not None else nullcontext():
            self._remove(self.abort, tuple(self.uploads))
            self._remove(self._abort_all, [UploadInfo(key, "") for key in sorted(self.unsure)])
            self._remove(self.delete, sorted(self._keys))

    def _remove(self, step: Callable[[Any], None], items: Iterable[Any]) -> None:
        with closing(self.each(step, items)) as outcomes:
            for outcome in outcomes:
                if not isinstance(outcome.error, StoreError):
                    outcome.unwrap()
                    continue
                self.left.append((outcome.item, outcome.error))
                if not isinstance(outcome.error, NotSupported):  # else nothing can tell
                    left = in_words(outcome.item)
                    logger.warning("a probe of the store leaves %s: %s", left, outcome.error)

    def each(
        self, function: Callable[[T], R], items: Iterable[T]
    ) -> Generator[Outcome[T, R], None, None]:
        """Send many requests at once and give their outcomes, as `Pool.each`."""
        return self.runtime.pool.each(function, items, in_flight=REQUESTS_IN_FLIGHT)

    def abort(self, upload: UploadInfo) -> None:
        """Abort a scratch upload."""
        self.store.abort_upload(upload.key, upload.upload_id)
        self.uploads.pop(upload, None)

    def delete(self, key: str) -> None:
        """Delete a scratch object."""
        self.store.delete_one(key)
        self._keys.discard(key)

    def _abort_all(self, some: UploadInfo) -> None:
        for upload in uploads(self.store, some.key):
            self.abort(upload)


def in_words(left: UploadInfo | str) -> str:
    """What stays of a trial."""
    if isinstance(left, str):
        return left
    return f"{left.key}: {f'upload {left.upload_id}' if left.upload_id else 'perhaps an upload'}"

"""What became of one upload, the one way to remove it, and the one way to complete it.

A store answers the question "is this upload still open?" in many ways: 404 for an upload that was
completed, 403 if a permission is missing, 400 for a customer's key, or not at all. When each caller
read these answers by itself, they read them differently (an open upload was called gone, and its
file was lost). So there is one question, `upload_state`, with four answers:

============ ===================================================================================
``OPEN``     its parts are there: it can be completed, or aborted
``VISIBLE``  the object at its key is what it became
``GONE``     it is not open, and the object at its key, if there is one, is not what it became
``UNKNOWN``  nobody can tell now: a request failed, or was refused. Never taken for another answer
============ ===================================================================================

The question is a work of several requests (`magic_committer.commit.requests`): `looking` and
`removing` are the rules for each caller, for one upload or for 100,000.

An answer holds for one moment. ``OPEN`` may have changed when it arrives. ``VISIBLE`` and ``GONE``
never become ``OPEN`` again: an upload id is used once (S3 API).

And there is one way to remove an upload, `removing`. Invariants:

* It looks first if an upload may have been completed: on some stores the abort of a completed
  upload deletes the object (docs/stores.md). Such an abort is sent once for each look.
* An abort counts only when the parts are gone. Parts in flight outlive an abort (S3 API,
  AbortMultipartUpload), so the abort is sent again.
* It raises nothing. ``LEFT``, with the reason, stands for what could not be removed or could not be
  known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from magic_committer.commit.register import may_still_land
from magic_committer.commit.requests import Pause, Steps, anew, by_verbs
from magic_committer.commit.sets import ReadyUpload
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.documents import SIZE_ONLY
from magic_committer.hadoop.statistics import MATERIALIZE_FILE, Statistics
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import (
    AbortUpload,
    CompleteUpload,
    FindUpload,
    Head,
    ListParts,
    ObjectInfo,
    Part,
    UploadPage,
    Written,
    listed,
    same_etag,
)

ABORTS_MAX = 5
"""How often an upload is aborted if its parts stay."""
ABORT_PAUSE_SECONDS = 0.2
"""Seconds before the second abort of an upload. They double each time."""
NO_BUCKET, NO_UPLOAD = "NoSuchBucket", "NoSuchUpload"
"""The codes of a 404 that says nothing about an upload, and of one that does (S3 API, "Error
responses")."""


class UploadState(Enum):
    """What an upload is."""

    OPEN = "open"
    VISIBLE = "visible"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UploadLook:
    """One look at an upload. ``there``: the object at its key, if the look met one; for ``VISIBLE``
    it is what the upload became. ``ended``: it is not open; can be True for ``UNKNOWN``, if only
    what it became is not known."""

    state: UploadState
    error: StoreError | None = None
    there: ObjectInfo | None = None
    parts: tuple[Part, ...] = ()
    ended: bool = False


def became(upload: ReadyUpload, info: ObjectInfo) -> bool:
    """Whether an object is what the upload became. Pure.

    Our uploads carry a token. Hadoop's uploads have none: for them the multipart ETag decides, so
    two uploads of the same bytes both count.
    """
    if upload.token:
        return (info.metadata or {}).get(TOKEN_METADATA) == upload.token
    if upload.multipart_etag.startswith(SIZE_ONLY):
        return upload.multipart_etag == f"{SIZE_ONLY}{info.size}"
    return bool(upload.multipart_etag) and same_etag(info.etag, upload.multipart_etag)


def upload_state(runtime: Runtime, upload: ReadyUpload) -> UploadLook:
    """Look what an upload is, by verbs; see `looking`."""
    return by_verbs(runtime, looking(runtime, upload))


def looking(runtime: Runtime, upload: ReadyUpload) -> Steps[UploadLook]:
    """Look what an upload is: HEAD, ListParts, and HEAD again if it is not open any more, because
    another process may have completed it in between. Sends no HEAD if nothing identifies the object
    that it would become (`ReadyUpload`). Repeatable; raises no `StoreError`."""
    there: ObjectInfo | None = None
    try:
        there = yield from _object(runtime, upload)
        if there is not None and became(upload, there):
            return UploadLook(UploadState.VISIBLE, None, there, ended=True)
    except Unanswered as error:
        return UploadLook(UploadState.UNKNOWN, error)
    except StoreError:
        # A refusal is no answer. If the parts are there, the upload is open all the same; if not,
        # the second HEAD decides, or gives UNKNOWN.
        pass
    try:
        parts = yield ListParts(upload.key, upload.upload_id)
        return UploadLook(UploadState.OPEN, None, there, parts)
    except StoreError as error:
        if not isinstance(error, NotFound) or error.code == NO_BUCKET:
            return UploadLook(UploadState.UNKNOWN, error, there)
    try:
        there = yield from _object(runtime, upload)
    except StoreError as error:
        return UploadLook(UploadState.UNKNOWN, error, there, ended=True)
    visible = there is not None and became(upload, there)
    state = UploadState.VISIBLE if visible else UploadState.GONE
    return UploadLook(state, None, there, ended=True)


def lacks_parts(upload: ReadyUpload, look: UploadLook) -> bool:
    """Whether an open upload has lost a part, so that nobody can ever complete it. MinIO loses all
    parts if the client of a Complete hangs up (docs/stores.md). All parts were stored when the
    upload became ready, and none is ever sent later. Pure."""
    stored = {part.number for part in look.parts}
    return look.state is UploadState.OPEN and any(p.number not in stored for p in upload.parts)


def _object(runtime: Runtime, upload: ReadyUpload) -> Steps[ObjectInfo | None]:
    if not (upload.token or upload.multipart_etag):
        return None  # nothing identifies it
    return (yield from _at(runtime, upload.key))


def object_at(runtime: Runtime, key: str) -> ObjectInfo | None:
    """The object at a key; None if there is none. One HEAD.

    A store that keeps keys as paths of files answers a HEAD with 400 for a key that it cannot hold:
    a path element over 255 bytes. A store also answers 400 for an object with a customer's key. A
    listing shows which it is: a key that the store cannot hold is not listed."""
    return by_verbs(runtime, _at(runtime, key))


def _at(runtime: Runtime, key: str) -> Steps[ObjectInfo | None]:
    try:
        found: ObjectInfo = yield Head(key)
    except NotFound:
        return None
    except InvalidRequest:
        if listed(runtime.store, key) is not None:
            raise
        return None
    return found


class Removal(Enum):
    """The result of removing an upload."""

    ABORTED = "aborted"
    """The upload was open, and its parts are gone."""
    VISIBLE = "visible"
    """The upload has become its object, and was left alone."""
    GONE = "gone"
    """The upload had ended before."""
    LEFT = "left"
    """The upload is, or may be, still open: `Removed.why`."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The end of one removal. ``why``: for ``LEFT``: the reason, in words; for ``ABORTED``: set if
    nobody could see whether the upload became its object just before the abort. ``sent``: for
    ``LEFT``: an abort was answered with success, but nobody could see that the parts are gone."""

    removal: Removal
    why: str = ""
    error: StoreError | None = None
    sent: bool = False


def remove(runtime: Runtime, upload: ReadyUpload, *, look_first: bool = True) -> Removed:
    """Abort one upload by verbs, unless it has ended; see `removing`."""
    return by_verbs(runtime, to_remove(runtime, upload, look_first=look_first))


def to_remove(runtime: Runtime, upload: ReadyUpload, *, look_first: bool = True) -> Steps[Removed]:
    """`removing`, for `requests.each`: it begins anew if its look is old."""
    return anew(lambda aborted: removing(runtime, upload, look_first=look_first, aborted=aborted))


def removing(
    runtime: Runtime, upload: ReadyUpload, *, look_first: bool = True, aborted: bool = False
) -> Steps[Removed]:
    """Abort one upload, unless it has ended. Repeatable; raises no `StoreError`. ``look_first`` is
    False only if nobody can have completed the upload: it never was in a stored pendingset, or its
    job never commits. ``aborted``: an earlier try has found it open, and its abort may have taken
    effect."""
    failed: StoreError | None = None
    for number in range(ABORTS_MAX):
        if number:
            yield Pause(ABORT_PAUSE_SECONDS * 2 ** (number - 1))
        if look_first and (failed is not None or not number):
            ended = yield from _look(runtime, upload, aborted=aborted)
            if ended is not None:
                return ended
        try:
            yield AbortUpload(upload.key, upload.upload_id, once=look_first)
        except StoreError as error:
            if not (look_first and isinstance(error, Unanswered)):
                return Removed(Removal.LEFT, error.message, error)
            failed, aborted = error, aborted or error.sent  # its look is old by now
            continue
        failed, aborted = None, True
        try:
            if (yield from _is_gone(upload)):
                return (yield from _ended(runtime, upload, look_first))
        except StoreError as error:
            return Removed(Removal.LEFT, error.message, error, sent=True)
    if failed is not None:
        return Removed(Removal.LEFT, failed.message, failed)
    return Removed(Removal.LEFT, f"it is still open after {ABORTS_MAX} aborts")


def _look(runtime: Runtime, upload: ReadyUpload, *, aborted: bool) -> Steps[Removed | None]:
    """Look whether an upload has ended, or must be left alone. None: it may be aborted."""
    look = yield from looking(runtime, upload)
    if look.state is UploadState.VISIBLE:
        return Removed(Removal.VISIBLE)
    if look.ended:
        return _aborted(look.error) if aborted else Removed(Removal.GONE)
    if look.error is not None and not _is_harmless(runtime, upload, look.error):
        why = f"whether it has ended is unknown: {look.error}"
        return Removed(Removal.LEFT, why, look.error)
    return None


def _is_harmless(runtime: Runtime, upload: ReadyUpload, refused: StoreError) -> bool:
    """Whether an abort deletes no object, although ListParts is refused (a permission, a
    customer's key): there is no object at the key. Every answer but "not there" means no."""
    if isinstance(refused, Unanswered):
        return False
    try:
        runtime.store.head(upload.key)
    except StoreError as error:
        return isinstance(error, NotFound)
    return False


def _ended(runtime: Runtime, upload: ReadyUpload, look_first: bool) -> Steps[Removed]:
    """Its parts are gone: by our abort, or because it was completed between the look and the
    abort."""
    if look_first:
        try:
            there = yield from _object(runtime, upload)
        except StoreError as error:  # nothing is left open, whatever the answer would be
            return _aborted(error)
        if there is not None and became(upload, there):
            return Removed(Removal.VISIBLE)
    return Removed(Removal.ABORTED)


def _is_gone(upload: ReadyUpload) -> Steps[bool]:
    """Whether the parts of an aborted upload are gone. After any other refusal than
    "no such upload" ask once more. If ListParts is refused, a listing of the key decides: the
    abort itself was answered with success."""
    for last in (False, True):
        try:
            yield ListParts(upload.key, upload.upload_id)
        except NotFound as error:
            if error.code == NO_BUCKET:
                raise
            if last or error.code == NO_UPLOAD:
                return True
        except Unanswered:
            raise
        except StoreError as refused:
            if not last:
                continue
            try:
                page: UploadPage = yield FindUpload(upload.key, upload.upload_id)
                return not page.uploads
            except StoreError:  # neither is allowed: the first refusal says what is needed
                raise refused from None
        else:
            return False
    raise AssertionError("unreachable")


def _aborted(error: StoreError | None) -> Removed:
    """It is gone by our abort; with the error by which nobody could see whether it was completed
    before that."""
    if error is None:
        return Removed(Removal.ABORTED)
    why = f"whether it was completed just before is unknown: {error.message}"
    return Removed(Removal.ABORTED, why, error)


# Completing ---------------------------------------------------------------------------------------
#
# Anyone may repeat it.
# After a final error of Complete, ask the store what the upload is (`upload_state`). Stores answer
# a second Complete with 200, 404, 403, 400 or 500, so every final error is settled that way, not
# only 404 (protocol.md, "Completing is repeatable"). If the store does not say, the upload is
# unfinished: nobody guesses that a file is lost.
#
# **A 200 is not always true.** versitygw answers 200 for an upload that a killed server left half
# assembled, for ever; and for an upload that was aborted, if there is any object at the key
# (docs/stores.md, "A 200 that is false"). A 200 was never seen to be false for a Complete that was
# sent once, for an upload that was open a moment before. If one of these two does not hold, the
# object is looked at after a 200: the Complete was sent again, or the caller does not know
# (``distrust``). If the object is not there after a wait, the upload is not done. (The wait is for
# the Complete of another process, which may be assembling the object.)
#
# Only a Complete that was sent with ``If-None-Match`` can conflict, and only with an object that is
# really there: a conflict undoes the whole job.
#
# A store may refuse an upload for good: its parts are there, and each Complete gets the same 400.
# Waiting does not help, so the result is `Completion.REFUSED`. An operator can take the object that
# is there, or undo the job. Only an answer that came twice counts, with a pause between. An answer
# about the caller, or about the store's free space, does not count: new credentials or more space
# repair that.


CONFLICT_TRIES_MAX = 3
"""How often a conditional Complete is sent that the store calls a conflict although no object is
there."""
CONFLICT_PAUSE_SECONDS = 0.5
"""Seconds before the second try. They double each time."""
REFUSED_PAUSE_SECONDS = 1.0
"""Seconds before a second Complete, if the store called the first one wrong although the upload is
open."""

_CURABLE_CODES = frozenset(("AuthorizationHeaderMalformed", "IllegalLocationConstraintException"))
_CURABLE_PREFIX = "KMS."
"""Codes of a 400 whose cause is in the settings of the bucket or the caller, not in the request (S3
API, "Error responses")."""
LOOKS_MAX = 7
"""How often an object is looked for if a 200 says that it is there."""
LOOK_PAUSE_SECONDS = 0.2
"""Seconds before the second look. They double each time: 12.6 seconds in all."""


class Completion(Enum):
    """What became of one upload."""

    DONE = "done"
    UNFINISHED = "unfinished"
    """Its upload is open, or nobody can tell: try again."""
    UNRESOLVED = "unresolved"
    """Its upload is gone, and the object at its key is not what it became."""
    LOST = "lost"
    """Its upload is gone, and there is no object at its key: nobody has its bytes, or nobody shows
    them."""
    REFUSED = "refused"
    """Its upload is open, and the store has said twice that it will not complete it."""
    CONFLICT = "conflict"
    """Mode ``fail``: an object of another writer is there, and stays."""


Completed = tuple[Completion, StoreError | None]
"""What became of an upload; and the reason, unless it is done."""


def completing(
    runtime: Runtime,
    upload: ReadyUpload,
    statistics: Statistics,
    *,
    if_none_match: bool,
    distrust: bool,
) -> Steps[Completed]:
    """Complete an upload. Repeatable: an upload that was completed before is done. Raises no
    `StoreError`.

    ``distrust``: look at the object after every 200, with one HEAD, because another process may
    have completed the upload or begun to, or the store is known to answer 200 falsely. Otherwise
    only after a Complete that was sent more than once."""
    monotonic, failed = runtime.clock.monotonic, True
    began = monotonic()
    try:
        try:  # as `_send`, without a generator more for each file of a job
            answer: Any = yield as_request(upload, if_none_match)
        except StoreError as error:
            answer = error
        if type(answer) is Written and answer.attempts == 1 and not distrust:
            done: Completed = Completion.DONE, None
        else:
            done = yield from _go_on(runtime, upload, answer, if_none_match, distrust)
        failed = False
        return done
    finally:
        statistics.took(MATERIALIZE_FILE, monotonic() - began, failed)


def _go_on(
    runtime: Runtime,
    upload: ReadyUpload,
    answer: Written | StoreError,
    if_none_match: bool,
    distrust: bool,
) -> Steps[Completed]:
    """Settle what the first Complete has left open."""
    for number in range(CONFLICT_TRIES_MAX):
        if number:
            yield Pause(CONFLICT_PAUSE_SECONDS * 2 ** (number - 1))
            answer = yield from _send(upload, if_none_match)
        looks = distrust or number > 0
        settled, conflict = yield from _end_of(runtime, upload, answer, if_none_match, looks)
        if not conflict or settled[0] is not Completion.UNFINISHED:
            break
    if settled[0] is not Completion.REFUSED:
        return settled
    # A single refusal may come from a server that was just restarting, or from another process that
    # is completing the upload.
    yield Pause(REFUSED_PAUSE_SECONDS)
    answer = yield from _send(upload, if_none_match)
    again, _ = yield from _end_of(runtime, upload, answer, if_none_match, looks=True)
    first, second = settled[1], again[1]
    same = first and second and (first.status, first.code) == (second.status, second.code)
    if again[0] is Completion.REFUSED and not same:
        return Completion.UNFINISHED, second
    return again


def _end_of(
    runtime: Runtime,
    upload: ReadyUpload,
    answer: Written | StoreError,
    if_none_match: bool,
    looks: bool,
) -> Steps[tuple[Completed, bool]]:
    """What became of an upload by an answer to Complete; and whether that is a conflict. ``looks``:
    the object is looked at after every 200."""
    if isinstance(answer, InvalidRequest):
        answer = yield from _send_stored_parts(upload, if_none_match, answer)
    if isinstance(answer, Written):
        if looks or answer.attempts > 1:
            return (yield from _look_after(runtime, upload, answer)), False
        return (Completion.DONE, None), False
    conflict = if_none_match and isinstance(answer, PreconditionFailed | WriteConflict)
    return (yield from _settle(runtime, upload, answer, conflict)), conflict


def is_refused_for_good(error: StoreError) -> bool:
    """Whether the store calls the request itself wrong, so that neither time nor other credentials
    help: a 4xx other than 401 and 403 (caller, space), 404, 408, 409, 412 and 429. Pure."""
    return (
        isinstance(error, InvalidRequest)
        and 400 <= error.status < 500
        and error.status not in (401, 403)
        and error.code not in _CURABLE_CODES
        and not error.code.startswith(_CURABLE_PREFIX)
        and not may_still_land(error)
    )


def _send(upload: ReadyUpload, if_none_match: bool) -> Steps[Written | StoreError]:
    """Send Complete and give the store's answer, also if it is an error."""
    try:
        written: Written = yield as_request(upload, if_none_match)
    except StoreError as error:
        return error
    return written


def as_request(upload: ReadyUpload, if_none_match: bool) -> CompleteUpload:
    """The Complete of an upload. Pure.

    It has no checksum for an empty object: the checksum proves nothing, and MinIO answers the right
    one with 400 for ever. It has no length for Hadoop's uploads (no token), as Hadoop does: with
    encryption on the client it is the length of the plain text. The ETags of the parts name the
    bytes."""
    return CompleteUpload(
        upload.key,
        upload.upload_id,
        upload.parts,
        upload.length if upload.token else None,
        upload.checksum if upload.length else None,
        if_none_match,
    )


def _send_stored_parts(
    upload: ReadyUpload, if_none_match: bool, refused: InvalidRequest
) -> Steps[Written | StoreError]:
    """Send a refused Complete once more, with the ETags that the store has now. Under SSE-KMS and
    SSE-C a late retry of a part changes its ETag (counterexamples.md, #16)."""
    try:
        parts = same_parts(upload, (yield ListParts(upload.key, upload.upload_id)))
    except StoreError as error:
        return error if isinstance(error, Unanswered) else refused
    if parts is None:
        return refused
    return (yield from _send(upload._replace(parts=parts), if_none_match))


def same_parts(upload: ReadyUpload, stored: Sequence[Part]) -> tuple[Part, ...] | None:
    """The upload's parts with the ETags that the store has now; None if a part is not the same, or
    if nothing changed. Two parts are the same if they have the same number and size, and the same
    ETag or the same checksum by the same algorithm. A size alone proves no bytes. Pure.

    If the store has a checksum for the same part and our part has none, the checksum is taken over:
    an upload that was made with checksums needs them in Complete, and a set of
    ``etag_form="strings"`` has lost them."""
    if len(stored) != len(upload.parts):
        return None
    changed: list[Part] = []
    for ours, theirs in zip(upload.parts, stored, strict=True):
        same_bytes = ours.size == theirs.size and (
            same_etag(ours.etag, theirs.etag)
            or (ours.checksum is not None and ours.checksum == theirs.checksum)
        )
        if ours.number != theirs.number or not same_bytes:
            return None
        changed.append(ours._replace(etag=theirs.etag, checksum=ours.checksum or theirs.checksum))
    return tuple(changed) if tuple(changed) != upload.parts else None


def _settle(
    runtime: Runtime, upload: ReadyUpload, error: StoreError, conflict: bool
) -> Steps[Completed]:
    """What became of an upload after Complete got an error. ``conflict``: the store calls it a
    conflict, and Complete was sent with a condition."""
    look = yield from looking(runtime, upload)
    if look.state is UploadState.VISIBLE:
        return Completion.DONE, None
    if conflict and look.there is not None:
        return Completion.CONFLICT, error
    if look.state is UploadState.GONE and not may_still_land(error):
        # otherwise the store may be completing it: ask again
        return _not_there(look.there), error
    if lacks_parts(upload, look) and not may_still_land(error):
        # It is open and can never be completed; but another process may just be completing it.
        there = yield from _wait_for(upload)
        if isinstance(there, StoreError):
            return Completion.UNFINISHED, there
        seen = there is not None and _is_it(upload, there)
        return (Completion.DONE, None) if seen else (_not_there(there), error)
    if look.state is UploadState.OPEN and is_refused_for_good(error):
        return Completion.REFUSED, error
    if look.error is not None and isinstance(error, NotFound):
        return Completion.UNFINISHED, look.error  # why nobody can tell the reason
    return Completion.UNFINISHED, error


def _not_there(there: ObjectInfo | None) -> Completion:
    return Completion.LOST if there is None else Completion.UNRESOLVED


def _look_after(runtime: Runtime, upload: ReadyUpload, answer: Written) -> Steps[Completed]:
    """Whether the object that a 200 promises is there."""
    there = yield from _wait_for(upload, answer.etag)
    if isinstance(there, StoreError):
        return Completion.UNFINISHED, there
    if there is not None and _is_it(upload, there, answer.etag):
        return Completion.DONE, None
    false = NotFound(
        f"{upload.key}: the store answered CompleteMultipartUpload with success, but"
        f" {'nothing' if there is None else 'another object'} is there",
        operation="complete_upload",
        bucket=runtime.store.bucket,
        key=upload.key,
        status=200,
        attempts=answer.attempts,
    )
    look = yield from looking(runtime, upload)
    if look.state is UploadState.VISIBLE:
        return Completion.DONE, None
    if look.state is UploadState.GONE or lacks_parts(upload, look):
        return _not_there(there), false
    return Completion.UNFINISHED, look.error or false


def _wait_for(upload: ReadyUpload, told: str = "") -> Steps[ObjectInfo | StoreError | None]:
    """Wait until the object at the upload's key is what the upload became: a second Complete may be
    answered before the first one has ended (versitygw). Gives what was there at the last look, or
    the last error. ``told``: the ETag in the answer to Complete."""
    there: ObjectInfo | StoreError | None = None
    for number in range(LOOKS_MAX):
        if number:
            yield Pause(LOOK_PAUSE_SECONDS * 2 ** (number - 1))
        try:
            there = yield Head(upload.key)
        except NotFound:
            there = None
        except Unanswered as error:
            there = error
        except StoreError as error:
            return error  # a refusal will come again
        else:
            assert isinstance(there, ObjectInfo)
            if _is_it(upload, there, told):
                break
    return there


def _is_it(upload: ReadyUpload, there: ObjectInfo, told: str = "") -> bool:
    """Whether an object is what an upload became. The ETag in the answer to Complete counts too.
    Pure.

    Hadoop's uploads have no token. For them the ETag must be the one that follows from the parts.
    If none follows (encryption by a key), it must be the ETag in the store's answer. If the answer
    had none either, any object counts.
    """
    if became(upload, there):
        return True
    if upload.token:
        return False
    if not (upload.multipart_etag or told):
        return True
    return same_etag(there.etag, told)

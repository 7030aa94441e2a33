"""Completing one upload, in a way that anyone may repeat.

After a final error of Complete the store is asked what the upload is (`upload_state`). Stores
answer a second Complete with 200, 404, 403, 400 or 500, so every final error is settled that way,
not only 404 (protocol.md, "Completing is repeatable"). If the store does not tell, the
upload is unfinished: it is never guessed that a file is lost.

**A 200 is not always true.** versitygw answers 200 for an upload that a killed server left half
assembled, for ever; and for an upload that was aborted, if there is any object at the key
(docs/stores.md, "A 200 that is false"). A 200 was never seen to be false for a Complete that was
sent once, for an upload that was open a moment before. If one of these two does not hold, the
object is looked at after a 200: the Complete was sent again, or the caller does not know
(``distrust``). If the object is not there after a wait, the upload is not done. (The wait is for
the Complete of another process, which may be assembling the object.)

Only a Complete that was sent with ``If-None-Match`` can conflict, and only with an object that is
really there: a conflict undoes the whole job.

A store may refuse an upload for good: its parts are there, and each Complete gets the same 400.
Waiting does not help, so the result is `Completion.REFUSED`. An operator can take the object that
is there, or undo the job. Only an answer that came twice counts, with a pause between. An answer
about the caller, or about the store's free space, does not count: new credentials or more space
repair that.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from magic_committer._runtime import Runtime
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.records import may_still_land
from magic_committer.commit.steps import Pause, Start, Steps
from magic_committer.commit.upload_state import UploadState, became, lacks_parts, looking
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.statistics import MATERIALIZE_FILE, Statistics
from magic_committer.stores.base import (
    CompleteUpload,
    Head,
    ListParts,
    ObjectInfo,
    Part,
    Written,
    same_etag,
)

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


def to_complete(
    runtime: Runtime,
    upload: ReadyUpload,
    statistics: Statistics,
    *,
    if_none_match: bool,
    distrust: bool,
) -> Start[Completed]:
    """Complete an upload, as a work for `steps.each`. Repeatable: an upload that was completed
    before is done. The work raises no `StoreError`.

    ``distrust``: look at the object after every 200, with one HEAD, because another process may
    have completed the upload or begun to, or the store is known to answer 200 falsely. Otherwise
    only after a Complete that was sent more than once."""

    def completing(again: bool) -> Steps[Completed]:
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

    return completing


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
        if isinstance(answer, InvalidRequest):
            answer = yield from _send_stored_parts(upload, if_none_match, answer)
        if isinstance(answer, Written):
            if distrust or number or answer.attempts > 1:
                return (yield from _look_after(runtime, upload, answer))
            return Completion.DONE, None
        conflict = conflicts(answer, if_none_match)
        settled = yield from _settle(runtime, upload, answer, conflict)
        if not conflict or settled[0] is not Completion.UNFINISHED:
            break
    if settled[0] is Completion.REFUSED:
        return (yield from _once_more(runtime, upload, if_none_match, settled))
    return settled


def _once_more(
    runtime: Runtime, upload: ReadyUpload, if_none_match: bool, refused: Completed
) -> Steps[Completed]:
    """Send a refused Complete a second time, after a pause. A single refusal may come from a server
    that was just restarting, or from another process that is completing the upload."""
    yield Pause(REFUSED_PAUSE_SECONDS)
    answer = yield from _send(upload, if_none_match)
    if isinstance(answer, InvalidRequest):
        answer = yield from _send_stored_parts(upload, if_none_match, answer)
    if isinstance(answer, Written):
        return (yield from _look_after(runtime, upload, answer))
    conflict = conflicts(answer, if_none_match)
    settled = yield from _settle(runtime, upload, answer, conflict)
    first = refused[1]
    same = first is not None and (first.status, first.code) == (answer.status, answer.code)
    if settled[0] is Completion.REFUSED and not same:
        return Completion.UNFINISHED, answer
    return settled


def conflicts(error: StoreError, if_none_match: bool) -> bool:
    """Whether a conditional Complete met another object, by the store's answer. Pure."""
    return if_none_match and isinstance(error, PreconditionFailed | WriteConflict)


def is_final(error: StoreError) -> bool:
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
    if look.state is UploadState.OPEN and is_final(error):
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
    the error if nobody can tell. ``told``: the ETag in the answer to Complete."""
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

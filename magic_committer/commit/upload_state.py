"""What became of one upload, and the one way to remove an upload. Nothing else asks this question.

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

The question is a work of several requests (`magic_committer.commit.steps`): `looking` and
`UploadRemover.removing` are the rules, whoever asks for them, for one upload or for 100,000.

An answer holds for one moment. ``OPEN`` may have changed when it arrives. ``VISIBLE`` and ``GONE``
never become ``OPEN`` again: an upload id is used once (S3 API).

And there is one `UploadRemover`. Invariants:

* It looks first if an upload may have been completed: on some stores the abort of a completed
  upload deletes the object (docs/stores.md). Such an abort is sent once for each look.
* An abort counts only when the parts are gone. Parts in flight outlive an abort (S3 API,
  AbortMultipartUpload), so the abort is sent again.
* It raises nothing. ``LEFT``, with the reason, stands for what could not be removed or could not be
  known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magic_committer._runtime import Runtime
from magic_committer.commit.ready import ReadyUpload, upload_name
from magic_committer.commit.steps import Pause, Start, Steps, by_verbs
from magic_committer.errors import InvalidRequest, NotFound, StoreError, Unanswered
from magic_committer.hadoop.formats import SIZE_ONLY
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.stores.base import (
    AbortUpload,
    FindUpload,
    Head,
    ListParts,
    ObjectInfo,
    Part,
    UploadPage,
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


@dataclass(frozen=True, slots=True)
class UploadName:
    """An upload, as far as its remover must know it. Token and ETag identify the object that it
    became, as in `ReadyUpload`. Both are empty if only a listing shows the upload: one that has
    ended is then ``GONE``, even if it was completed."""

    key: str
    upload_id: str
    token: str = ""
    multipart_etag: str = ""

    @classmethod
    def of(cls, upload: ReadyUpload) -> UploadName:
        """The name of a ready upload."""
        return cls(upload.key, upload.upload_id, upload.token, upload.multipart_etag)

    @property
    def name(self) -> str:
        """Key and id in one string, as `ReadyUpload.name`."""
        return upload_name(self.key, self.upload_id)


def became(upload: ReadyUpload | UploadName, info: ObjectInfo) -> bool:
    """Whether an object is what the upload became. Pure.

    Our uploads carry a token. Hadoop's uploads have none: for them the multipart ETag decides, so
    two uploads of the same bytes both count.
    """
    if upload.token:
        return (info.metadata or {}).get(TOKEN_METADATA) == upload.token
    if upload.multipart_etag.startswith(SIZE_ONLY):
        return upload.multipart_etag == f"{SIZE_ONLY}{info.size}"
    return bool(upload.multipart_etag) and same_etag(info.etag, upload.multipart_etag)


def upload_state(runtime: Runtime, upload: ReadyUpload | UploadName) -> UploadLook:
    """Look what an upload is, by verbs; see `looking`."""
    return by_verbs(runtime, looking(runtime, upload))


def to_look(runtime: Runtime, upload: ReadyUpload | UploadName) -> Start[UploadLook]:
    """`looking`, to be begun by `steps.each`."""
    return lambda again: looking(runtime, upload)


def looking(runtime: Runtime, upload: ReadyUpload | UploadName) -> Steps[UploadLook]:
    """Look what an upload is: HEAD, ListParts, and HEAD again if it is not open any more, because
    another process may have completed it in between. Sends no HEAD if nothing identifies the object
    that it would become (`UploadName`). Repeatable; raises no `StoreError`."""
    there: ObjectInfo | None = None
    try:
        there = yield from _object(runtime, upload)
        if there is not None and became(upload, there):
            return UploadLook(UploadState.VISIBLE, None, there, ended=True)
    except Unanswered as error:
        return UploadLook(UploadState.UNKNOWN, error)
    except StoreError:
        # A refusal is no answer. If the parts are there, the upload is open all the same; if not,
        # the second HEAD tells, or says UNKNOWN.
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


def _object(runtime: Runtime, upload: ReadyUpload | UploadName) -> Steps[ObjectInfo | None]:
    if not (upload.token or upload.multipart_etag):
        return None  # nothing identifies it
    return (yield from _at(runtime, upload.key))


def object_at(runtime: Runtime, key: str) -> ObjectInfo | None:
    """The object at a key; None if there is none. One HEAD.

    A store that keeps keys as paths of files answers a HEAD with 400 for a key that it cannot hold:
    a path element over 255 bytes. A store also answers 400 for an object with a customer's key. A
    listing tells which it is: a key that the store cannot hold is not listed."""
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


class UploadRemover:
    """Aborts uploads, and proves it. Safe for many threads."""

    def __init__(self, runtime: Runtime, *, look_first: bool = True) -> None:
        """``look_first`` is False only if nobody can have completed the upload: it never was in a
        stored pendingset, or its job never commits."""
        self._runtime = runtime
        self._look_first = look_first

    def remove(self, upload: UploadName) -> Removed:
        """Abort one upload by verbs, unless it has ended; see `removing`."""
        return by_verbs(self._runtime, self.removing(upload))

    def to_remove(self, upload: UploadName) -> Start[Removed]:
        """`removing`, to be begun by `steps.each`."""
        return lambda again: self.removing(upload, aborted=again)

    def removing(self, upload: UploadName, *, aborted: bool = False) -> Steps[Removed]:
        """Abort one upload, unless it has ended. Repeatable; raises no `StoreError`. ``aborted``:
        an earlier try has found it open, and its abort may have taken effect."""
        failed: StoreError | None = None
        for number in range(ABORTS_MAX):
            if number:
                yield Pause(ABORT_PAUSE_SECONDS * 2 ** (number - 1))
            if self._look_first and (failed is not None or not number):
                ended = yield from self._look(upload, aborted=aborted)
                if ended is not None:
                    return ended
            try:
                yield AbortUpload(upload.key, upload.upload_id, once=self._look_first)
            except StoreError as error:
                if not (self._look_first and isinstance(error, Unanswered)):
                    return Removed(Removal.LEFT, error.message, error)
                failed, aborted = error, aborted or error.sent  # its look is old by now
                continue
            failed, aborted = None, True
            try:
                if (yield from self._is_gone(upload)):
                    return (yield from self._ended(upload))
            except StoreError as error:
                return Removed(Removal.LEFT, error.message, error, sent=True)
        if failed is not None:
            return Removed(Removal.LEFT, failed.message, failed)
        return Removed(Removal.LEFT, f"it is still open after {ABORTS_MAX} aborts")

    def _look(self, upload: UploadName, *, aborted: bool) -> Steps[Removed | None]:
        """Look whether an upload has ended, or must be left alone. None: it may be aborted."""
        look = yield from looking(self._runtime, upload)
        if look.state is UploadState.VISIBLE:
            return Removed(Removal.VISIBLE)
        if look.ended:
            return _aborted(look.error) if aborted else Removed(Removal.GONE)
        if look.error is not None and not self._is_harmless(upload, look.error):
            why = f"whether it has ended cannot be told: {look.error}"
            return Removed(Removal.LEFT, why, look.error)
        return None

    def _is_harmless(self, upload: UploadName, refused: StoreError) -> bool:
        """Whether an abort deletes no object, although ListParts is refused (a permission, a
        customer's key): there is no object at the key. Every answer but "not there" means no."""
        if isinstance(refused, Unanswered):
            return False
        try:
            self._runtime.store.head(upload.key)
        except StoreError as error:
            return isinstance(error, NotFound)
        return False

    def _ended(self, upload: UploadName) -> Steps[Removed]:
        """Its parts are gone: by our abort, or because it was completed between the look and the
        abort."""
        if self._look_first:
            try:
                there = yield from _object(self._runtime, upload)
            except StoreError as error:  # nothing is left open, whatever the answer would be
                return _aborted(error)
            if there is not None and became(upload, there):
                return Removed(Removal.VISIBLE)
        return Removed(Removal.ABORTED)

    def _is_gone(self, upload: UploadName) -> Steps[bool]:
        """Whether the parts of an aborted upload are gone. Any other refusal than "no such upload"
        is asked for once more. If ListParts is refused, a listing of the key decides: the abort
        itself was answered with success."""
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
    why = f"whether it was completed just before cannot be told: {error.message}"
    return Removed(Removal.ABORTED, why, error)

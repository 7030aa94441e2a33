"""What is visible of a job that is not to be, and how it is undone.

`refuse_if_published` and its neighbours count what is visible of a job before its decision. Then a
decided job is undone before it has completed (states ``reverting`` and ``reverted``).

For each upload of the plan **abort, then HEAD, then delete** the object if it is what the upload
became. A HEAD first would leave a Complete between the two visible (counterexamples.md, #7). For
the same reason the abort must be proved: an upload whose parts are still there can be completed
after the HEAD. The delete removes exactly the version that was looked at, by its ETag, or by its
version id in a versioned bucket. What another program has written since stays. All of this is
repeatable, by anyone. Only after it `driver` moves the record to ``reverted``, and only then
the job is swept: its pendingsets are needed until then.

The job is decided: whatever fails here raises `AbortIncomplete`, and the work is done again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from magic_committer.commit import probe, requests
from magic_committer.commit.register import DIAGNOSTIC_UUID, other_quoting
from magic_committer.commit.sets import (
    ReadyUpload,
    Uploads,
    each_listed,
    from_pending,
    set_bytes_max,
)
from magic_committer.commit.uploads import (
    Removal,
    Removed,
    UploadLook,
    UploadState,
    became,
    object_at,
    to_remove,
    upload_state,
)
from magic_committer.errors import (
    AbortIncomplete,
    AlreadyVisible,
    FormatError,
    InvalidRequest,
    MagicError,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.errors.messages import KEYS_NAMED_MAX, Remedy, counted_are, name_some
from magic_committer.hadoop.documents import (
    SUCCESS_BYTES_MAX,
    Pending,
    decode_pending,
    decode_success,
)
from magic_committer.hadoop.manifests import decode_set
from magic_committer.hadoop.paths import PENDING_SUFFIX, PENDINGSET_SUFFIX
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import JOB_METADATA, ObjectRef, StartedJob
from magic_committer.runtime.components import Progress, Runtime, again
from magic_committer.runtime.threads import Outcome
from magic_committer.stores.base import ObjectInfo, listed

# What is visible of a job that was not decided ----------------------------------------------------
#
# Which files of a job are visible before its decision: of a Hadoop job, and of algorithms 1 and 2.
# A JVM that died during its commit has made some files visible. An abort of the others would leave
# a part of the job in the table for ever, so it is never done unasked: `refuse_if_published` counts
# the files first, and refuses. If `_SUCCESS` names the job, the job has committed all of its files:
# only its leftovers are swept.
#
# The operator has said that the JVM is dead. So only a process of ours can change the count; such a
# process would move the record on, and the swap to ``aborting`` fails. Invariants:
#
# * Every file that the job's control objects name is looked up, for every application attempt:
#   files of an older attempt are visible too. A listing of uploads is not believed.
# * Nothing is guessed. If the store does not answer, this raises, and nothing is decided. If the
#   ETag does not tell whose object is at a key, the file counts as ``doubtful``, which is as bad as
#   visible.
# * `_SUCCESS` belongs to the job only if three things hold: it names the job, nothing that a commit
#   would publish was stored after it, and none of that is still open. Ids are used again, and an
#   old marker may be there.


@dataclass(slots=True)
class Published:
    """Which files of a job are visible. ``files``: how many destinations its committed tasks have.
    ``waiting``: how many open uploads a commit would publish. ``newest``: the Last-Modified of the
    newest pendingset that a commit would take. ``unread``: why something could not be read, so that
    the files that it names were not looked up."""

    files: int = 0
    visible: int = 0
    doubtful: int = 0
    keys: tuple[str, ...] = ()
    waiting: int = 0
    newest: float = 0.0
    unread: str = ""

    @property
    def any(self) -> bool:
        """Whether a file is visible, or may be."""
        return bool(self.visible or self.doubtful)

    def words(self) -> str:
        """For example ``"6 of 9 files are visible already"``. Pure."""
        maybe = f" (of {self.doubtful} more nobody can tell)" if self.doubtful else ""
        of = counted_are(self.files, "file")
        return f"{self.visible} of {of} visible already{maybe}"


def refuse_if_published(runtime: Runtime, job: StartedJob, *, leave_visible: bool = False) -> str:
    """Refuse to abort a Hadoop job of which files are visible. Gives the files that stay visible,
    in a sentence; "" if there are none."""
    found = published(runtime, job)
    if not found.any:
        return ""
    if leave_visible:
        return f"{found.words()}, and {'stays' if found.files == 1 else 'stay'}"
    raise AlreadyVisible(
        f"job {job.id!r} cannot simply be aborted: {found.words()}, made so by its JVM before it"
        f" died. They would stay, and nobody could finish the job: {name_some(found.keys)}",
        job_id=job.id,
        files=found.files,
        visible=found.visible,
        doubtful=found.doubtful,
        keys=found.keys,
        remedies=(
            Remedy("commit", job.dest, job.id, "finish it"),
            Remedy(
                "abort",
                job.dest,
                job.id,
                "leave these files there, and abort the rest",
                {"leave_visible": True},
            ),
        ),
    )


def published(runtime: Runtime, job: StartedJob) -> Published:
    """Count the visible files. Two or three requests for each file."""
    found = Published()
    files, seen = KeySet(), KeySet()  # ticked in `seen`: visible for sure
    keys: list[str] = []
    named = _named(runtime, job, found)
    with closing(runtime.each(lambda one: upload_state(runtime, one[0]), named)) as outcomes:
        for number, outcome in enumerate(outcomes, 1):
            (upload, counts, taken), look = outcome.item, outcome.unwrap()
            runtime.progress(Progress("look", number, None, "files"))
            if look.error is not None:
                raise look.error
            if counts:
                files.add(upload.key)
            found.waiting += taken and look.state is UploadState.OPEN
            if look.state is UploadState.OPEN or not _may_be(upload, look):
                continue
            files.add(upload.key)
            if seen.add(upload.key) and len(keys) < KEYS_NAMED_MAX:
                keys.append(upload.key)
            if look.state is UploadState.VISIBLE:
                seen.tick(upload.key)
    found.files, found.doubtful = len(files), seen.unticked
    found.visible, found.keys = len(seen) - seen.unticked, tuple(sorted(keys))
    return found


def _may_be(upload: ReadyUpload, look: UploadLook) -> bool:
    """Whether the object at the key is what the upload became, or may be. If a multipart ETag
    differs, nobody can tell (SSE-KMS); if the size differs, it is another object."""
    there = look.there
    return look.state is UploadState.VISIBLE or (there is not None and there.size == upload.length)


def _named(
    runtime: Runtime, job: StartedJob, found: Published
) -> Iterator[tuple[ReadyUpload, bool, bool]]:
    """Each upload that the job's control objects name, once for each kind of control object;
    whether its task committed, and whether a commit would collect it."""
    dest, taken_from = job.paths.dest, job.paths.job_attempt
    known = KeySet()

    read = partial(uploads_in, runtime, job)
    left_by_tasks = (
        info
        for directory in job.paths.directories
        for page in runtime.store.list(directory)
        for info in page.objects
        if info.key.endswith((PENDINGSET_SUFFIX, PENDING_SUFFIX))
    )
    with closing(each_listed(runtime, read, left_by_tasks)) as outcomes:
        for outcome in outcomes:
            key = outcome.item.key
            counts = key.endswith(PENDINGSET_SUFFIX)
            taken = counts and key.rpartition("/")[0] + "/" == taken_from
            if taken:
                found.newest = max(found.newest, outcome.item.last_modified)
            try:
                uploads, _ = outcome.unwrap()
            except NotFound:
                continue
            except FormatError as error:  # a commit refuses it; only an abort helps
                found.unread = found.unread or str(error)
                continue
            for upload in uploads:
                if dest.contains(upload.key) and known.add(f"{counts} {taken} {upload.name}"):
                    yield upload, counts, taken


def uploads_in(
    runtime: Runtime, job: StartedJob, info: ObjectInfo
) -> tuple[list[ReadyUpload], Mapping[str, str]]:
    """Read the uploads that a control object names, and its metadata. None, if it is another
    job's."""
    stored = runtime.store.get(info.key, max_bytes=set_bytes_max(info.size))
    metadata = stored.info.metadata or {}
    if not job.owns(metadata):
        return [], {}
    pendings: tuple[Pending, ...]
    if info.key.endswith(PENDING_SUFFIX):
        pendings = (decode_pending(stored.body, info.key),)
    else:
        pendings = decode_set(stored.body, info.key, runtime.store.bucket).commits
    return [from_pending(p, f"{info.key}: {n}") for n, p in enumerate(pendings)], metadata


# The marker ---------------------------------------------------------------------------------------


def committed_by_hadoop(runtime: Runtime, job: StartedJob) -> bool:
    """Whether the job's own committer wrote `_SUCCESS`. It does so when all files are visible. One
    GET; more only if the marker names the job."""
    written = _marked(runtime, job)
    if written is None:
        return False
    found = published(runtime, job)
    return not (found.waiting or found.unread) and found.newest <= written


def _marked(runtime: Runtime, job: StartedJob) -> float | None:
    """When Hadoop wrote a `_SUCCESS` that names the job; None if there is none."""
    key = job.paths.dest.success_key
    try:
        stored = runtime.store.get(key, max_bytes=SUCCESS_BYTES_MAX)
        success = decode_success(stored.body, key)
    except (NotFound, FormatError):
        return None
    except InvalidRequest as error:
        if error.code != "TooLarge":
            raise
        return None
    ours = DIAGNOSTIC_UUID in success.diagnostics
    named = success.job_id == job.id and success.success and not ours
    return stored.info.last_modified if named else None


# Algorithms 1 and 2 -------------------------------------------------------------------------------
#
# Before the first file becomes visible, a process leaves a mark in the job's directory. So an abort
# can say that what is visible stays. Nobody else asks: where the mark is, data that is there may be
# the job's own.


EARLY = frozenset(("v1", "v2"))
"""The committers of such jobs. The driver of ``v1`` completes all uploads and then decides; each
task of ``v2`` completes its own."""


def mark_begun(runtime: Runtime, job: StartedJob) -> None:
    """Leave the mark. Repeatable."""
    runtime.store.put(_mark(job), b"", metadata={JOB_METADATA: job.uuid})


def has_begun(runtime: Runtime, job: StartedJob) -> bool:
    """Whether a file of the job may be visible that nobody has decided."""
    if job.terms.committer not in EARLY:
        return False
    try:
        runtime.store.head(_mark(job))
    except NotFound:
        return False
    return True


def what_stays(runtime: Runtime, job: StartedJob) -> str:
    """What to say of the files that an aborted job leaves visible; "": it leaves none."""
    who = job.terms.committer
    try:
        begun = has_begun(runtime, job)
    except StoreError as error:  # the job is aborted all the same
        return (
            f"whether committer={who!r} had begun to make files of the job visible is unknown"
            f" ({error.message}): what is visible stays"
        )
    told = f"committer={who!r} had begun to make files of the job visible: they stay"
    return told if begun else ""


def _mark(job: StartedJob) -> str:
    return f"{job.paths.tree}00/_visible"


# Undoing a decided job ----------------------------------------------------------------------------


def undo_all(runtime: Runtime, job: StartedJob, sets: Uploads) -> MagicError | None:
    """Undo every upload of a ``reverting`` job, and go on after single failures. Repeatable. Gives
    the last failure; None: everything is undone."""
    done = 0
    failure: MagicError | None = None
    uploads = (upload for some, _ in sets for upload in some)
    with closing(_each(runtime, job, uploads)) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome.error, StoreError | AbortIncomplete):
                failure = outcome.error
                continue
            outcome.unwrap()
            done += 1
            runtime.progress(Progress("revert", done, None, "files"))
    return failure


def _each(
    runtime: Runtime, job: StartedJob, uploads: Iterator[ReadyUpload]
) -> Generator[Outcome[Any, None], None, None]:
    # It looks first: a visible upload cannot be completed again, and on some stores its abort
    # deletes the object at its key, which may be another writer's by now.
    removals = ((upload, to_remove(runtime, upload)) for upload in uploads)

    def one(end: tuple[ReadyUpload, Removed]) -> None:
        upload, removed = end
        if removed.removal is Removal.LEFT:
            raise AbortIncomplete(f"the upload of {upload.key}: {removed.why}", job_id=job.id)
        info = _became(runtime, upload)
        if info is None or delete_if_same(
            runtime, info.key, info.etag, info.version_id, modified=info.last_modified
        ):
            return
        # It was left, because it is another object by now. Or was the DELETE refused?
        if _became(runtime, upload) is not None:
            raise AbortIncomplete(f"{upload.key} was not deleted", job_id=job.id)

    with closing(requests.each(runtime, removals)) as ended:
        yield from runtime.each(one, ended)


def _became(runtime: Runtime, upload: ReadyUpload) -> ObjectInfo | None:
    """The object at an upload's key, if it is what the upload became. One HEAD."""
    info = object_at(runtime, upload.key)
    return info if info is not None and became(upload, info) else None


# Deleting -----------------------------------------------------------------------------------------
#
# Exactly the object that was looked at, and never what another writer has written since (I6, I7).


DELETE_TRIES_MAX = 4
"""How often a conditional delete is sent that is refused although the object is the same."""
DELETE_PAUSE_SECONDS = 0.2
"""Seconds before the second try. They double each time."""


def delete_if_same(
    runtime: Runtime,
    key: str,
    etag: str,
    version_id: str | None = None,
    *,
    modified: float = 0.0,
) -> bool:
    """Delete an object if it is still the same one. Repeatable.

    A refused condition (412), a conflict (409) or a request that the store calls wrong (400, 501)
    is no answer yet: the object is looked at again. If it is still the same one, the delete is sent
    again. An object that the store refuses to show (a customer's key) is compared by a listing. A
    plain DELETE is sent only to a store that is known to ignore the condition or that calls it
    wrong each time. There, an object that another writer puts between HEAD and DELETE is lost
    (docs/stores.md). False: it was left, because it is another object by now. With ``version_id``,
    in a versioned bucket, exactly that version is deleted, whatever came after. Without
    ``modified`` the ETag alone decides."""
    if version_id not in (None, "", "null"):
        runtime.store.delete_one(key, version_id=version_id)
        return True
    ref = ObjectRef(key, etag, modified)
    keeps = probe.known(runtime.store.identity).conditional_delete
    refused: StoreError | None = None
    wrong = 0
    for _ in again(runtime.clock, DELETE_TRIES_MAX, DELETE_PAUSE_SECONDS):
        # HEAD first, even if the store knows the condition: a store that ignores the condition
        # deletes anyway, and no condition distinguishes objects with the same bytes.
        try:
            info = runtime.store.head(key)
        except NotFound:
            return True
        except (InvalidRequest, PermissionDenied):  # for good: a customer's key (400), a policy
            found = listed(runtime.store, key)
            if found is None:
                return True
            info = found
        if not ref.is_same(info.etag, info.last_modified):
            return False
        if keeps is False or (keeps is None and wrong == DELETE_TRIES_MAX - 1):
            runtime.store.delete_one(key)
            return True
        try:
            runtime.store.delete_one(key, if_match=etag)
            return True
        except (PreconditionFailed, WriteConflict, InvalidRequest, NotSupported) as error:
            refused = error
            wrong += isinstance(error, InvalidRequest | NotSupported)
            if isinstance(error, PreconditionFailed):
                etag = other_quoting(etag)  # perhaps the store wants other quoting (Ceph RGW)
    assert refused is not None
    raise refused

"""Which files of a job are visible before its decision: of a Hadoop job, and of algorithms 1 and 2.

A JVM that died during its commit has made some files visible. An abort of the others would leave a
part of the job in the table for ever, so it is never done unasked: `refuse_if_published` counts the
files first, and refuses. If `_SUCCESS` names the job, the job has committed all of its files: only
its leftovers are swept.

The operator has said that the JVM is dead. So only a process of ours can change the count; such a
process would move the record on, and the swap to ``aborting`` fails. Invariants:

* Every file that the job's control objects name is looked up, for every application attempt: files
  of an older attempt are visible too. A listing of uploads is not believed.
* Nothing is guessed. If the store does not answer, this raises, and nothing is decided. If the ETag
  does not tell whose object is at a key, the file counts as ``doubtful``, which is as bad as
  visible.
* `_SUCCESS` belongs to the job only if three things hold: it names the job, nothing that a commit
  would publish was stored after it, and none of that is still open. Ids are used again, and an old
  marker may be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from magic_committer._quantities import KEYS_NAMED_MAX, counted_are, name_some
from magic_committer._runtime import Progress, Runtime
from magic_committer.commit.load import each_listed, set_bytes_max
from magic_committer.commit.ready import ReadyUpload, from_pending
from magic_committer.commit.success_marker import DIAGNOSTIC_UUID
from magic_committer.commit.upload_state import UploadLook, UploadState, upload_state
from magic_committer.errors import (
    AlreadyVisible,
    FormatError,
    InvalidRequest,
    NotFound,
    StoreError,
)
from magic_committer.hadoop.formats import (
    SUCCESS_BYTES_MAX,
    Pending,
    decode_pending,
    decode_success,
)
from magic_committer.hadoop.manifests import decode_set
from magic_committer.hadoop.paths import PENDING_SUFFIX, PENDINGSET_SUFFIX, Destination
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import JOB_METADATA, StartedJob
from magic_committer.remedy import Remedy
from magic_committer.stores.base import ObjectInfo


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


def refuse_if_published(
    runtime: Runtime, job: StartedJob, in_flight: int, *, leave_visible: bool = False
) -> str:
    """Refuse to abort a Hadoop job of which files are visible. Gives the files that stay visible,
    in a sentence; "" if there are none."""
    found = published(runtime, job, in_flight)
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


def published(runtime: Runtime, job: StartedJob, in_flight: int) -> Published:
    """Count the visible files. Two or three requests for each file."""
    found = Published()
    files, seen = KeySet(), KeySet()  # ticked in `seen`: visible for sure
    keys: list[str] = []
    outcomes = runtime.pool.each(
        lambda named: upload_state(runtime, named[0]),
        _named(runtime, job, found),
        in_flight=in_flight,
    )
    with closing(outcomes):
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
    dest, taken_from = Destination.parse(job.dest), job.paths.job_attempt
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


def committed_by_hadoop(runtime: Runtime, job: StartedJob, in_flight: int) -> bool:
    """Whether the job's own committer wrote `_SUCCESS`. It does so when all files are visible. One
    GET; more only if the marker names the job."""
    written = _marked(runtime, job)
    if written is None:
        return False
    found = published(runtime, job, in_flight)
    return not (found.waiting or found.unread) and found.newest <= written


def _marked(runtime: Runtime, job: StartedJob) -> float | None:
    """When Hadoop wrote a `_SUCCESS` that names the job; None if there is none."""
    key = Destination.parse(job.dest).success_key
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
# Before the first file becomes visible, a process leaves a mark in the job's directory. So whoever
# aborts the job can say that what is visible stays. Nobody else asks: where the mark is, data that
# is there may be the job's own.


EARLY = frozenset(("v1", "v2"))
"""The committers of such jobs. The driver of ``v1`` completes all uploads and then decides; each
task of ``v2`` completes its own."""


def begin(runtime: Runtime, job: StartedJob) -> None:
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


def stays(runtime: Runtime, job: StartedJob) -> str:
    """What to say of the files that an aborted job leaves visible; "": it leaves none."""
    who = job.terms.committer
    try:
        begun = has_begun(runtime, job)
    except StoreError as error:  # the job is aborted all the same
        return (
            f"whether committer={who!r} had begun to make files of the job visible cannot be told"
            f" ({error.message}): what is visible stays"
        )
    told = f"committer={who!r} had begun to make files of the job visible: they stay"
    return told if begun else ""


def _mark(job: StartedJob) -> str:
    return f"{job.paths.tree}00/_visible"

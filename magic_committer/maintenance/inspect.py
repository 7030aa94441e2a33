"""Looking at a job's directory: its record, its age, and what is pending in it. Only reads.

Record first, listing second: nothing in the listing is older than the record, so an age is never
too great for the state. Memory does not grow with the job: the directory is read as a stream, and
only hashes of its files are kept.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import unquote, urlsplit

import orjson

from magic_committer._quantities import age_words, counted, counted_are
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.closed import age_of
from magic_committer.commit.load import (
    LOADING_SETS_MAX,
    Owns,
    StoredSource,
    each_listed,
    load_plan,
    set_bytes_max,
)
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.ready import (
    EXTRA_ABORTED,
    EXTRA_JOB,
    ReadyUpload,
    is_tombstone,
    upload_name,
)
from magic_committer.commit.upload_state import (
    UploadLook,
    UploadState,
    lacks_parts,
    upload_state,
)
from magic_committer.errors import (
    FormatError,
    MagicError,
    NotFound,
    NotSupported,
    StoreError,
    Unanswered,
)
from magic_committer.hadoop.formats import Pending, decode_pending
from magic_committer.hadoop.manifests import decode_set
from magic_committer.hadoop.paths import (
    ALIVE,
    MANIFEST_JOB_PREFIX,
    PENDING_SUFFIX,
    RECORD,
    SAVED_SUFFIXES,
    SET_SUFFIXES,
    TEMPORARY,
    Destination,
    JobPaths,
)
from magic_committer.maintenance.reports import NAMED_MAX, FoundJob, JobKind
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import (
    JOB_METADATA,
    RECORD_BYTES_MAX,
    TASK_METADATA,
    JobRecord,
    StartedJob,
    State,
)
from magic_committer.stores.base import ObjectInfo, objects
from magic_committer.stores.urls import is_tree, url_of

SIGN_BYTES_MAX = 64 * 1024


class Listing:
    """The objects of a job's directories, in the order of the listing; their age is known at the
    end."""

    def __init__(self, runtime: Runtime, *directories: str) -> None:
        self._pages = chain.from_iterable(map(runtime.store.list, directories))
        self._newest = float("-inf")
        self._seen_at = float("inf")
        self.objects = 0

    def __iter__(self) -> Iterator[ObjectInfo]:
        for page in self._pages:
            for info in page.objects:
                self.objects += 1
                self._newest = max(self._newest, info.last_modified)
                self._seen_at = min(self._seen_at, info.seen_at)
                yield info

    def to_end(self) -> Listing:
        """List the rest."""
        for _ in self:
            continue
        return self

    @property
    def age(self) -> float:
        """Seconds, at least, between the last change and the first page of the listing. A later
        page may come much later; it does not say what has changed meanwhile on the earlier ones."""
        return age_of(self._seen_at, self._newest) if self.objects else 0.0


def job_directories(runtime: Runtime, dest: Destination) -> Iterator[str]:
    """The directories of all jobs directly under a destination."""
    for page in runtime.store.list(dest.jobs_prefix, delimiter="/"):
        yield from page.prefixes


def older_job_directories(runtime: Runtime, dest: Destination) -> Iterator[str]:
    """The same for jobs of Hadoop up to 3.3."""
    for page in runtime.store.list(dest.older_jobs_prefix, delimiter="/"):
        yield from page.prefixes


def job_ids(runtime: Runtime, dest: Destination) -> Iterator[str]:
    """The ids of all jobs that have a directory under a destination, in the order of the
    listing."""
    for directory in job_directories(runtime, dest):
        yield directory[len(dest.jobs_prefix) : -1]
    for directory in older_job_directories(runtime, dest):
        yield directory[len(dest.older_jobs_prefix) : -1]


def pendings_of(runtime: Runtime, info: ObjectInfo) -> tuple[list[Pending], dict[str, str]]:
    """The pendings in a `.pending` or `.pendingset`, and the object's metadata. The metadata has
    the job's token even if only ``extraData`` has kept it, and `EXTRA_ABORTED` for a tombstone. One
    GET.

    Raises:
        FormatError: the object cannot be read.
        StoreError: the store did not answer.
    """
    stored = runtime.store.get(info.key, max_bytes=set_bytes_max(info.size))
    metadata = dict(stored.info.metadata or {})
    if info.key.endswith(PENDING_SUFFIX):
        pendings = [decode_pending(stored.body, info.key)]
        extras = [pendings[0].extra_data]
    else:
        pendingset = decode_set(stored.body, info.key, runtime.store.bucket)
        pendings = list(pendingset.commits)
        extras = [pendingset.extra_data, *(pending.extra_data for pending in pendings)]
    for extra in extras:
        if extra and EXTRA_JOB in extra:
            metadata.setdefault(JOB_METADATA, extra[EXTRA_JOB])
        if is_tombstone(extra):
            metadata[EXTRA_ABORTED] = "true"
    return pendings, metadata


# Measuring ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Measured:
    """What is pending in a directory.

    Attributes:
        ours: a key that carries a token of this library; "": none was seen.
        failure: why something could not be read, so that ``ours`` is not certain.
    """

    tasks: KeySet = field(default_factory=KeySet)
    files: int = 0
    bytes: int = 0
    ours: str = ""
    failure: StoreError | None = None
    problems: int = 0
    problem: str = ""
    sign: ObjectInfo | None = None

    def add(self, info: ObjectInfo, pendings: list[Pending], metadata: dict[str, str]) -> None:
        """Count one control object."""
        if metadata.get(JOB_METADATA):
            self.ours = info.key
        if info.key.endswith(SET_SUFFIXES) and EXTRA_ABORTED not in metadata:
            self.tasks.add(metadata.get(TASK_METADATA) or info.key)
        self.files += len(pendings)
        self.bytes += sum(pending.length for pending in pendings)

    def could_not_read(
        self, runtime: Runtime, info: ObjectInfo, error: FormatError | StoreError
    ) -> None:
        """Count an object whose content is not known."""
        self.problems += 1
        self.problem = self.problem or str(error)
        if isinstance(error, StoreError):
            self.failure = error
        elif _carries_token(runtime, info):
            self.ours = info.key


def measure(runtime: Runtime, listing: Listing, owns: Owns | None = None) -> Measured:
    """Count what the tasks left: of one job, or of all owners if there is no record."""
    measured = Measured()

    def worth_reading() -> Iterator[ObjectInfo]:
        for info in listing:
            if info.key.endswith(SAVED_SUFFIXES):
                yield info
            elif info.key.endswith(f"/{ALIVE}"):
                measured.sign = info

    def read(info: ObjectInfo) -> tuple[list[Pending], dict[str, str]]:
        return pendings_of(runtime, info)

    with closing(each_listed(runtime, read, worth_reading())) as outcomes:
        for outcome in outcomes:
            try:
                pendings, metadata = outcome.unwrap()
            except NotFound:
                continue
            except (FormatError, StoreError) as error:
                measured.could_not_read(runtime, outcome.item, error)
                continue
            if owns is None or owns(metadata):
                measured.add(outcome.item, pendings, metadata)
    return measured


@dataclass(slots=True)
class PlanProgress:
    """How far the plan of a ``committing`` job is executed.

    Attributes:
        missing: uploads that are gone or have lost their parts, and did not become the object at
            their key.
        unknown: uploads about which nobody can tell now; ``why`` says the reason. They are never
            counted as missing.
    """

    files: int = 0
    visible: int = 0
    missing: int = 0
    missing_keys: list[str] = field(default_factory=list)
    unknown: int = 0
    why: str = ""


def progress_of(runtime: Runtime, dest: Destination, seen: records.Seen) -> PlanProgress:
    """Look for each upload of the plan: open, visible, or neither.

    It lists the uploads under the destination and asks `upload_state` for each one that the listing
    does not show: the listing is only a hint.

    Raises:
        StoreError, FormatError: the plan or a pendingset cannot be read, perhaps because the job
            has moved on; or the store does not answer.
    """
    assert seen.record.plan is not None
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    plan = load_plan(runtime, job, seen.record.plan)
    source = StoredSource(runtime, job, plan, missing_is_fine=False)
    shown = KeySet()  # not sized by the plan's count, which nobody has checked
    with suppress(NotSupported):
        for page in runtime.store.list_uploads(dest.prefix):
            for upload in page.uploads:
                shown.add(upload_name(upload.key, upload.upload_id))

    def unlisted() -> Iterator[ReadyUpload]:
        for uploads, _ in source.uploads():
            yield from (upload for upload in uploads if upload.name not in shown)

    progress = PlanProgress(plan.files)
    outcomes = runtime.pool.each(
        lambda upload: upload_state(runtime, upload), unlisted(), in_flight=LOADING_SETS_MAX
    )
    with closing(outcomes):
        for outcome in outcomes:
            _count(progress, outcome.item, outcome.unwrap())
    return progress


def _count(progress: PlanProgress, upload: ReadyUpload, look: UploadLook) -> None:
    if isinstance(look.error, Unanswered):
        raise look.error  # the others will fail in the same way
    progress.visible += look.state is UploadState.VISIBLE
    if look.error is not None:
        progress.unknown += 1
        progress.why = progress.why or f"{upload.key}: {look.error}"
    elif look.state is UploadState.GONE or lacks_parts(upload, look):
        progress.missing += 1
        if len(progress.missing_keys) < NAMED_MAX:
            progress.missing_keys.append(upload.key)


# Inspecting ---------------------------------------------------------------------------------------


def inspect_all(runtime: Runtime, dest: Destination, dead_after: float) -> Iterator[FoundJob]:
    """Every job directory under a destination, ours and Hadoop's of either layout."""
    adopted: set[str] = set()
    for directory in job_directories(runtime, dest):
        found = inspect_one(runtime, dest, directory, dead_after)
        if found.adopted:
            adopted.add(JobPaths(dest, found.id, found.adopted).tree)
        yield found
    for directory in older_job_directories(runtime, dest):
        if directory not in adopted:
            yield _older(runtime, dest, directory)
    if is_tree(runtime.store.bucket):
        yield from _of_the_version_before(runtime, dest)


_ENDS = {
    "committing": "mv what is left in its 00/tasks/<attempt>/ to {dest}, rm there what its plan"
    ' names in rows "d", and then ',
    "completed": 'rm in {dest} what its plan names in rows "d", and then ',
    "reverting": 'rm in {dest} what its plan names in rows "f", and then ',
}
"""What is to be done before its directory is removed, by the state of its record."""


def _of_the_version_before(runtime: Runtime, dest: Destination) -> Iterator[FoundJob]:
    """Jobs on a file system whose record is a file for each version. No call ends them."""
    store, jobs = runtime.store, f"{dest.prefix}{TEMPORARY}/{MANIFEST_JOB_PREFIX}"
    for page in store.list(jobs, delimiter="/"):
        for directory in page.prefixes:
            versions = [one.key for one in objects(store, f"{directory}_job-")]
            if not versions:
                continue
            newest = store.get(
                max(versions, key=lambda key: (len(key), key)), max_bytes=RECORD_BYTES_MAX
            )
            found = re.search(rb'"state": ?"([a-z]+)"', newest.body)
            state = found[1].decode() if found else "absent"
            path = shlex.quote(unquote(urlsplit(url_of(store.bucket, directory)).path))
            first = _ENDS.get(state, "").format(dest=dest.url)
            listing = Listing(runtime, directory).to_end()
            yield FoundJob(
                directory[len(jobs) : -1],
                dest.url,
                "unreadable",
                state=state,
                age=listing.age,
                objects=listing.objects,
                directory=directory[len(dest.prefix) :],
                problem="its record is one of the version before, which kept it in _job-1.json",
                would=f"nothing: if its driver is dead, {first}rm -r {path}",
            )


def inspect_job(
    runtime: Runtime, dest: Destination, job_id: str, dead_after: float
) -> FoundJob | None:
    """One job, ours or Hadoop's in either layout. None if there is none with that id.

    Raises:
        PathError: the id cannot be used.
    """
    directory = JobPaths(dest, job_id).directory
    found = inspect_one(runtime, dest, directory, dead_after)
    if found.objects:
        return found
    found = _older(runtime, dest, f"{dest.older_jobs_prefix}{job_id}/")
    return found if found.objects else None


def _older(runtime: Runtime, dest: Destination, directory: str) -> FoundJob:
    job_id = directory[len(dest.older_jobs_prefix) : -1]
    found = FoundJob(job_id, dest.url, "hadoop", directory=directory[len(dest.prefix) :])
    try:
        return _without_record(runtime, found, directory)
    except MagicError as error:
        return _unreadable(runtime, found, directory, error)


def inspect_one(runtime: Runtime, dest: Destination, directory: str, dead_after: float) -> FoundJob:
    """Look at one directory. What cannot be read is in ``problem``, not raised."""
    job_id, below = directory[len(dest.jobs_prefix) : -1], directory[len(dest.prefix) :]
    found = FoundJob(job_id, dest.url, "unreadable", directory=below)
    try:
        seen = records.read(runtime, f"{directory}{RECORD}")
        if seen is None:
            return _without_record(runtime, found, directory)
        return _with_record(runtime, dest, found, seen, dead_after)
    except MagicError as error:
        return _unreadable(runtime, found, directory, error)


def _unreadable(runtime: Runtime, found: FoundJob, directory: str, error: MagicError) -> FoundJob:
    with suppress(StoreError):
        listing = Listing(runtime, directory).to_end()
        found = replace(found, age=listing.age, objects=listing.objects)
    why = "nothing: it cannot be read"
    return replace(found, kind="unreadable", problem=str(error), would=why)


def _without_record(runtime: Runtime, found: FoundJob, directory: str) -> FoundJob:
    listing = Listing(runtime, directory)
    measured = measure(runtime, listing)
    ours = measured.ours or with_token(runtime, directory)
    kind: JobKind = "litter" if ours else "hadoop"
    would = (
        "nothing: its job is over; cleanup takes what it left"
        if ours
        else "nothing: it is Hadoop's; whoever knows that its JVM is dead may adopt it"
    )
    return replace(_measured(found, listing, measured), kind=kind, would=would)


def with_token(runtime: Runtime, directory: str) -> str:
    """A key that carries a job's token; "" if there is none. Objects whose metadata `measure` has
    read are not looked at again."""

    def others() -> Iterator[ObjectInfo]:
        for info in Listing(runtime, directory):
            if not info.key.endswith(SAVED_SUFFIXES):
                yield info

    outcomes = runtime.pool.each(
        lambda info: _carries_token(runtime, info), others(), in_flight=LOADING_SETS_MAX
    )
    with closing(outcomes):
        for outcome in outcomes:
            if outcome.unwrap():
                return outcome.item.key
    return ""


def _carries_token(runtime: Runtime, info: ObjectInfo) -> bool:
    try:
        return JOB_METADATA in (runtime.store.head(info.key).metadata or {})
    except NotFound:
        return False


def _with_record(
    runtime: Runtime,
    dest: Destination,
    found: FoundJob,
    seen: records.Seen,
    dead_after: float,
) -> FoundJob:
    record = seen.record
    listing = Listing(runtime, *record.paths(dest).directories)
    measured = measure(runtime, listing, StartedJob.attached(record, dest.url, "").owns)
    found = replace(
        _measured(found, listing, measured),
        id=record.id,
        kind="ours",
        uuid=record.uuid,
        state=str(record.state),
        outcome=outcome_of(record),
        mode=record.terms.mode,
        accept=record.terms.accept,
        track=record.terms.track,
        given_id=record.given_id,
        started=record.started,
        directory=record.paths(dest).tree[len(dest.prefix) :],
        adopted=record.adopted,
        query=record.batch.query if record.batch is not None else "",
        batch=record.batch.number if record.batch is not None else None,
        checkpoint=record.checkpoint,
    )
    if record.decider is not None:
        who = record.decider
        found = replace(found, role=who.role, host=who.host, pid=who.pid)
    elif measured.sign is not None:
        found = _signed(runtime, found, measured.sign)
    progress: PlanProgress | None = None
    try:
        if record.plan is not None and record.state is not State.CLOSED:
            found = _planned(runtime, dest, found, record)
        if record.state is State.COMMITTING:
            progress = progress_of(runtime, dest, seen)
            found = replace(
                found,
                visible=progress.visible,
                missing=progress.missing,
                missing_keys=tuple(progress.missing_keys),
            )
            if progress.unknown:
                found = replace(
                    found,
                    problem=f"of {counted(progress.unknown, 'file')} nobody can tell now whether"
                    f" they are visible, e.g. {progress.why}",
                )
    except (StoreError, FormatError) as error:
        if not (isinstance(error, NotFound) and record.state is not State.COMMITTING):
            found = replace(found, problem=str(error))
    return replace(found, would=would_do(record, found.age, dead_after, progress))


def _measured(found: FoundJob, listing: Listing, measured: Measured) -> FoundJob:
    problem = f"{measured.problems} unreadable, e.g. {measured.problem}" if measured.problem else ""
    return replace(
        found,
        age=listing.age,
        objects=listing.objects,
        tasks=len(measured.tasks),
        files=measured.files,
        bytes=measured.bytes,
        problem=problem,
    )


def _planned(runtime: Runtime, dest: Destination, found: FoundJob, record: JobRecord) -> FoundJob:
    assert record.plan is not None
    plan = load_plan(runtime, StartedJob.attached(record, dest.url, ""), record.plan)
    return replace(found, tasks=len(plan.sets), files=plan.files, bytes=plan.data_bytes)


def _signed(runtime: Runtime, found: FoundJob, sign: ObjectInfo) -> FoundJob:
    """Add which process last gave a sign of life. A sign that cannot be read is ignored."""
    try:
        told = orjson.loads(runtime.store.get(sign.key, max_bytes=SIGN_BYTES_MAX).body)
        return replace(found, role=str(told["role"]), host=str(told["host"]), pid=int(told["pid"]))
    except (StoreError, ValueError, TypeError, KeyError):
        return found


def would_do(
    record: JobRecord, age: float, dead_after: float, progress: PlanProgress | None = None
) -> str:
    """What `recover` does with a record, in one sentence. Pure."""
    match record.state:
        case State.RUNNING if age < dead_after:
            return (
                f"nothing yet: it may be alive, it changed {age_words(age)} ago; after"
                f" {age_words(dead_after)} abort it"
            )
        case State.RUNNING if record.adopted:
            return "abort it, unless its JVM made files visible: then a person decides"
        case State.RUNNING:
            return "abort it: its uploads are aborted, nothing of it becomes visible"
        case State.COMMITTING:
            return _would_complete(progress)
        case State.COMPLETED:
            return (
                "finish it: all is visible; delete what it replaces, mark the destination, sweep"
                " and close the job"
            )
        case State.REVERTING:
            return "undo it: abort its uploads, delete what is visible of it, sweep, close"
        case State.CLOSED:
            return f"nothing: it was {record.outcome}" + (record.stays and f"; {record.stays}")
        case _:
            return "sweep what it left, and close it"


def _would_complete(progress: PlanProgress | None) -> str:
    if progress is None:
        return "complete its files, mark the destination, sweep and close the job"
    left = progress.files - progress.visible - progress.missing
    if progress.missing:
        return (
            f"complete {counted(left, 'file')} of {progress.files:,}, then stop:"
            f" {counted_are(progress.missing, 'file')} unresolved, for the upload is gone, and the"
            " object there is another"
        )
    return (
        f"complete {counted(left, 'file')} of {progress.files:,}, mark the destination, sweep and"
        " close the job"
    )

"""Looking at a job's directory: its record, its age, and what is pending in it. Only reads.

Record first, listing second: nothing in the listing is older than the record, so an age is never
too great for the state. Memory does not grow with the job: the directory is read as a stream, and
only hashes of its files are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from magic_committer.commit import register
from magic_committer.commit.outcome import outcome_of
from magic_committer.commit.register import age_of
from magic_committer.commit.sets import (
    EXTRA_ABORTED,
    LOADING_SETS_MAX,
    each_listed,
    is_tombstone,
    load_plan,
    set_bytes_max,
    stored_uploads,
    upload_name,
)
from magic_committer.commit.uploads import UploadState, lacks_parts, upload_state
from magic_committer.errors import (
    Decider,
    FormatError,
    MagicError,
    NotFound,
    NotSupported,
    PathError,
    StoreError,
    Unanswered,
)
from magic_committer.errors.messages import NAMED_MAX, age_words, counted, counted_are
from magic_committer.hadoop import documents, paths
from magic_committer.hadoop.documents import OwnDocument, Pending, decode_pending
from magic_committer.hadoop.manifests import EXTRA_JOB, decode_set
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS, FoundJob, JobKind
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import (
    JOB_METADATA,
    TASK_METADATA,
    JobRecord,
    StartedJob,
    State,
)
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.runtime.threads import Outcome
from magic_committer.stores.base import ObjectInfo, uploads
from magic_committer.stores.urls import url_of

T = TypeVar("T")
R = TypeVar("R")

OBJECTS_MAX = 10_000_000
"""Objects that are listed below one path. S3 gives 1,000 of them a request: 10,000 requests, some
20 minutes, and 5 cents."""
DEEPER_PAGES_MAX = 2
"""Pages of a listing in which `has_deeper` looks for a directory, in requests."""
SIGN_BYTES_MAX = 64 * 1024
SIGN_VERSION = 1


@documents.readable
class Sign(OwnDocument, frozen=True):
    """The content of ``_alive.json``: which process last said that a job lives."""

    job: str
    role: str
    host: str
    pid: int

    @classmethod
    def decode(cls, data: bytes, source: str) -> Sign:
        """Read ``_alive.json``; raise `FormatError` if it is none, or of a newer version."""
        read = documents.read_document(data, source, SIGN_BYTES_MAX, SIGN_VERSION)
        return documents.read_fields(cls, read, source)


# Directories --------------------------------------------------------------------------------------


def directory_of(key: str) -> str:
    """The directory of a key: ``"a/b/"`` for ``a/b/c``."""
    return key[: key.rfind("/") + 1]


def at_and_above(directory: str) -> Iterator[str]:
    """A directory and all above it: ``""``, ``"a/"``, ``"a/b/"`` for ``a/b/``."""
    yield ""
    for length, character in enumerate(directory, 1):
        if character == "/":
            yield directory[:length]


def directories(runtime: Runtime, *prefixes: str) -> Iterator[str]:
    """The directories whose names begin with one of these prefixes, by one listing for each."""
    for prefix in prefixes:
        for page in runtime.store.list(prefix, delimiter="/"):
            yield from page.prefixes


def id_in(dest: Destination, directory: str) -> str:
    """The id in the name of a job's directory, in either layout."""
    return directory.removeprefix(dest.jobs_prefix).removeprefix(dest.older_jobs_prefix)[:-1]


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


def changed_ago(runtime: Runtime, *directories: str) -> float:
    """The age of a job's directories, as `Listing.age`."""
    return Listing(runtime, *directories).to_end().age


# Many at once -------------------------------------------------------------------------------------


def each(
    runtime: Runtime,
    function: Callable[[T], R],
    items: Iterable[T],
    in_flight: int = LOADING_SETS_MAX,
) -> Iterator[tuple[T, R | MagicError]]:
    """Give each item with the function's result, or with the error of ours that it raised."""
    return _results(runtime.pool.each(function, items, in_flight=in_flight))


def _results(outcomes: Generator[Outcome[T, R], None, None]) -> Iterator[tuple[T, R | MagicError]]:
    with closing(outcomes):
        for outcome in outcomes:
            error = outcome.error
            yield outcome.item, error if isinstance(error, MagicError) else outcome.unwrap()


def or_raise(result: R | MagicError) -> R:
    """A result of `each`; an error is raised."""
    if isinstance(result, MagicError):
        raise result
    return result


Saved = tuple[list[Pending], dict[str, str]]
"""The pendings in a `.pending` or `.pendingset`, and the object's metadata."""


def each_saved(
    runtime: Runtime, infos: Iterable[ObjectInfo]
) -> Iterator[tuple[ObjectInfo, Saved | MagicError]]:
    """Read what tasks saved, side by side; pass over other objects, and those that are gone."""
    saved = (info for info in infos if info.key.endswith(paths.SAVED_SUFFIXES))
    reading = each_listed(runtime, lambda info: pendings_of(runtime, info), saved)
    return (one for one in _results(reading) if not isinstance(one[1], NotFound))


def pendings_of(runtime: Runtime, info: ObjectInfo) -> Saved:
    """Read one such object. Its metadata has the job's token even if only ``extraData`` has kept
    it, and `EXTRA_ABORTED` for a tombstone. One GET."""
    stored = runtime.store.get(info.key, max_bytes=set_bytes_max(info.size))
    metadata = dict(stored.info.metadata or {})
    extras = []
    if info.key.endswith(paths.PENDING_SUFFIX):
        pendings = [decode_pending(stored.body, info.key)]
    else:
        pendingset = decode_set(stored.body, info.key, runtime.store.bucket)
        pendings, extras = list(pendingset.commits), [pendingset.extra_data]
    for extra in (*extras, *(pending.extra_data for pending in pendings)):
        if extra and EXTRA_JOB in extra:
            metadata.setdefault(JOB_METADATA, extra[EXTRA_JOB])
        if is_tombstone(extra):
            metadata[EXTRA_ABORTED] = "true"
    return pendings, metadata


# One job ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Measured:
    """What is pending in a directory.

    Attributes:
        ours: a key that carries a token of this library; "": none was seen.
        failure: why something could not be read, so that ``ours`` is not certain.
        sign: the last sign of life.
    """

    listing: Listing
    tasks: KeySet = field(default_factory=KeySet)
    files: int = 0
    bytes: int = 0
    ours: str = ""
    failure: StoreError | None = None
    problems: int = 0
    problem: str = ""
    sign: ObjectInfo | None = None

    def told(self) -> dict[str, Any]:
        """These numbers, as `FoundJob` has them."""
        problem = f"{self.problems} unreadable, e.g. {self.problem}" if self.problem else ""
        told = {"age": self.listing.age, "objects": self.listing.objects, "problem": problem}
        return {**told, "tasks": len(self.tasks), "files": self.files, "bytes": self.bytes}


def measure(
    runtime: Runtime, listing: Listing, owns: Callable[..., bool] | None = None
) -> Measured:
    """Count what the tasks left: of one job, or of all owners if there is no record."""
    measured = Measured(listing)

    def infos() -> Iterator[ObjectInfo]:
        for info in listing:
            if info.key.endswith(f"/{paths.ALIVE}"):
                measured.sign = info
            yield info

    for info, saved in each_saved(runtime, infos()):
        if isinstance(saved, MagicError):
            measured.problems += 1
            measured.problem = measured.problem or str(saved)
            if isinstance(saved, StoreError):
                measured.failure = saved
            elif _carries_token(runtime, info):
                measured.ours = info.key
            continue
        pendings, metadata = saved
        if owns is None or owns(metadata):
            if metadata.get(JOB_METADATA):
                measured.ours = info.key
            if info.key.endswith(paths.SET_SUFFIXES) and EXTRA_ABORTED not in metadata:
                measured.tasks.add(metadata.get(TASK_METADATA) or info.key)
            measured.files += len(pendings)
            measured.bytes += sum(pending.length for pending in pendings)
    return measured


def with_token(runtime: Runtime, directory: str) -> str:
    """A key that carries a job's token; "" if there is none. Objects whose metadata `measure` has
    read are not looked at again."""
    listing = Listing(runtime, directory)
    others = (info for info in listing if not info.key.endswith(paths.SAVED_SUFFIXES))
    for info, carries in each(runtime, lambda one: _carries_token(runtime, one), others):
        if or_raise(carries):
            return info.key
    return ""


def _carries_token(runtime: Runtime, info: ObjectInfo) -> bool:
    try:
        return JOB_METADATA in (runtime.store.head(info.key).metadata or {})
    except NotFound:
        return False


@dataclass(slots=True)
class PlanProgress:
    """How far the plan of a ``committing`` job is executed.

    Attributes:
        missing: uploads that are gone or have lost their parts, and did not become the object at
            their key.
        unknown: uploads about which nobody can tell now, and ``why``: they are never missing.
    """

    files: int = 0
    visible: int = 0
    missing: int = 0
    missing_keys: list[str] = field(default_factory=list)
    unknown: int = 0
    why: str = ""


def progress_of(runtime: Runtime, dest: Destination, seen: register.Seen) -> PlanProgress:
    """Look for each upload of the plan: open, visible, or neither. A listing of the uploads is only
    a hint: `upload_state` looks at each one that it does not show. StoreError, FormatError: the
    plan or a pendingset cannot be read, perhaps because the job has moved on; or the store does not
    answer."""
    assert seen.record.plan is not None
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    plan = load_plan(runtime, job, seen.record.plan)
    sets = stored_uploads(runtime, job, plan.sets, missing_is_fine=False)
    shown = KeySet()  # not sized by the plan's count, which nobody has checked
    with suppress(NotSupported):
        for listed in uploads(runtime.store, dest.prefix):
            shown.add(upload_name(listed.key, listed.upload_id))
    progress = PlanProgress(plan.files)
    unlisted = (one for some, _ in sets for one in some if one.name not in shown)
    for upload, looked in each(runtime, lambda one: upload_state(runtime, one), unlisted):
        look = or_raise(looked)
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
    return progress


def inspect_all(runtime: Runtime, dest: Destination, dead_after: float) -> Iterator[FoundJob]:
    """Every job directory under a destination, ours and Hadoop's of either layout."""
    adopted: set[str] = set()
    for directory in directories(runtime, dest.jobs_prefix, dest.older_jobs_prefix):
        if directory in adopted:
            continue
        found = inspect_one(runtime, dest, directory, dead_after)
        if found.adopted:
            adopted.add(f"{dest.prefix}{found.directory}")
        yield found


def inspect_job(runtime: Runtime, dest: Destination, job_id: str) -> FoundJob | None:
    """One job, ours or Hadoop's in either layout. None if there is none with that id."""
    for directory in (JobPaths(dest, job_id).directory, f"{dest.older_jobs_prefix}{job_id}/"):
        found = inspect_one(runtime, dest, directory, DEAD_AFTER_SECONDS)
        if found.objects:
            return found
    return None


def inspect_one(runtime: Runtime, dest: Destination, directory: str, dead_after: float) -> FoundJob:
    """Look at one directory. What cannot be read is in ``problem``, not raised."""
    job_id, below = id_in(dest, directory), directory[len(dest.prefix) :]
    found = FoundJob(job_id, dest.url, "unreadable", directory=below)
    hadoops = directory.startswith(dest.older_jobs_prefix)  # up to 3.3: it has no record
    try:
        seen = None if hadoops else register.read(runtime, f"{directory}{paths.RECORD}")
        if seen is not None:
            return replace(found, **_by_record(runtime, dest, seen, dead_after))
        measured = measure(runtime, Listing(runtime, directory))
        kind: JobKind = "hadoop"
        would = "nothing: it is Hadoop's; adopt it if you know that its JVM is dead"
        if measured.ours or with_token(runtime, directory):
            kind, would = "litter", "nothing: its job is over; cleanup removes what it left"
        return replace(found, **measured.told(), kind=kind, would=would)
    except MagicError as error:
        with suppress(StoreError):
            listing = Listing(runtime, directory).to_end()
            found = replace(found, age=listing.age, objects=listing.objects)
        return replace(found, problem=str(error), would="nothing: it cannot be read")


def _by_record(
    runtime: Runtime, dest: Destination, seen: register.Seen, dead_after: float
) -> dict[str, Any]:
    """The fields of `FoundJob` for a job that has a record."""
    record, who, progress = seen.record, seen.record.decider, None
    job = StartedJob.attached(record, dest.url, "")
    measured = measure(runtime, Listing(runtime, *record.paths(dest).directories), job.owns)
    told = measured.told()
    if who is None and measured.sign is not None:
        with suppress(StoreError, FormatError):  # a sign that cannot be read is ignored
            key = measured.sign.key
            sign = Sign.decode(runtime.store.get(key, max_bytes=SIGN_BYTES_MAX).body, key)
            who = Decider(sign.role, sign.host, sign.pid)
    of_record = ("id", "uuid", "given_id", "started", "adopted", "checkpoint")
    told |= {name: getattr(record, name) for name in of_record}
    told |= {name: getattr(record.terms, name) for name in ("mode", "accept", "track")}
    told |= {"kind": "ours", "state": str(record.state), "outcome": outcome_of(record)}
    told["directory"] = record.paths(dest).tree[len(dest.prefix) :]
    if record.batch is not None:
        told |= {"query": record.batch.query, "batch": record.batch.number}
    if who is not None:
        told |= who.to_dict()
    try:
        if record.plan is not None and record.state is not State.CLOSED:
            plan = load_plan(runtime, job, record.plan)
            told |= {"tasks": len(plan.sets), "files": plan.files, "bytes": plan.data_bytes}
        if record.state is State.COMMITTING:
            progress = progress_of(runtime, dest, seen)
            told |= {"visible": progress.visible, "missing": progress.missing}
            told["missing_keys"] = tuple(progress.missing_keys)
            if progress.unknown:
                files = counted(progress.unknown, "file")
                why = f"of {files} nobody can tell now whether they are visible"
                told["problem"] = f"{why}, e.g. {progress.why}"
    except (StoreError, FormatError) as error:
        if not (isinstance(error, NotFound) and record.state is not State.COMMITTING):
            told["problem"] = str(error)
    return {**told, "would": would_do(record, told["age"], dead_after, progress)}


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
            then = "mark the destination, sweep and close the job"
            if progress is None:
                return f"complete its files, {then}"
            left = progress.files - progress.visible - progress.missing
            many = f"complete {counted(left, 'file')} of {progress.files:,}"
            if not progress.missing:
                return f"{many}, {then}"
            return (
                f"{many}, then stop: {counted_are(progress.missing, 'file')} unresolved, for the"
                " upload is gone, and the object there is another"
            )
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


# Below a path -------------------------------------------------------------------------------------
#
# A job's directory lies directly under its destination, and a bucket may hold hundreds of
# destinations: a look at the bucket itself sees none of their jobs.


def jobs_below(
    runtime: Runtime, dest: Destination
) -> tuple[tuple[Destination, ...], tuple[str, ...]]:
    """List all objects below a path once. Gives the destinations that have jobs there, ours or
    Hadoop's, in the order of their keys; and why not all is known, a sentence each. Memory grows
    with the number of destinations, not of objects."""
    found: dict[str, None] = {}
    problems: list[str] = []
    listed, last = 0, ""
    for page in runtime.store.list(dest.prefix):
        if page.objects and listed >= OBJECTS_MAX:
            problems.append(
                f"{listed:,} objects were listed below {dest.url}, up to the key {last}; what"
                " comes after it was not looked at: give a deeper path"
            )
            break
        for info in page.objects:
            last = info.key
            if (prefix := destination_of(last)) is not None:
                found[prefix] = None
        listed += len(page.objects)
        runtime.progress(Progress("list", listed, None, "objects"))
    destinations: list[Destination] = []
    for prefix in found:
        try:
            destinations.append(Destination(dest.bucket, prefix).alone)
        except PathError as error:
            where = url_of(dest.bucket, prefix)
            problems.append(f"there are jobs under {where} that cannot be looked at: {error}")
    return tuple(destinations), tuple(problems)


def destination_of(key: str) -> str | None:
    """The destination's prefix of the job in whose directory a key lies; None for every other key.
    The first such directory counts: what lies in one is nobody's destination. Pure."""
    if paths.MAGIC not in key:  # nearly all keys: they are not taken apart
        return None
    elements = key.split("/")
    for index, element in enumerate(elements[:-1]):
        older = element == paths.MAGIC and elements[index + 1].startswith(paths.JOB_PREFIX)
        if element.startswith(paths.MAGIC_JOB_PREFIX) or (older and index + 2 < len(elements)):
            return "/".join((*elements[:index], ""))
        if paths.is_control_element(element):
            return None
    return None


def has_deeper(runtime: Runtime, dest: Destination) -> bool:
    """Whether a path has directories of data below it, in which a look at the path itself sees no
    job. True also where `DEEPER_PAGES_MAX` pages do not show it. At most that many requests."""
    for number, page in enumerate(runtime.store.list(dest.prefix, delimiter="/"), 1):
        below = (prefix[len(dest.prefix) : -1] for prefix in page.prefixes)
        if not all(map(paths.is_control_element, below)) or number > DEEPER_PAGES_MAX:
            return True
    return False

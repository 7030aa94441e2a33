"""Conflict modes: what a job means for the data that is there, and for other jobs beside it.

====================== ======================================================================
``append``             writes beside the present data; any number of jobs at once
``fail``               only if the destination holds no data
``fail_partitions``    only if no written partition holds data
``replace``            in the end deletes the data that was there when the job was planned
``replace_partitions`` the same for written partitions (Spark's dynamic partition overwrite)
====================== ======================================================================

*Data* is an object whose path elements below the destination do not begin with ``_`` or ``.``;
empty directory markers do not count. A *partition* is a directory that holds a file of the job, and
its data are the objects directly in it.

The modes other than ``append`` exclude each other by **set up, then look**: each job writes its
record, then looks for other live jobs. So if two start at once, at least one sees the other
(counterexamples.md, #8). A job that sees an older one yields. **The oldest job waits until the
others have yielded, and looks again; it goes on only after a look that shows no other job.** Being
the oldest is not enough: a younger job may have looked before the older one's record was there. Age
is by the store's clock and the same for everybody: Last-Modified of a running record, which is
written once; within one second, the UUIDs decide. The oldest of the jobs that start at once wins,
as soon as the others have removed their records. If one of the others dies before that, no job
wins.

Jobs by partition may run beside each other if their partitions differ. They know their partitions
only when their tasks have ended: **announce, then look, then list**. Each job stores a plan that
names its partitions, then looks at the others' plans, then lists the present data. If two jobs
overlap in time, one sees the other's plan. If they do not, the later one lists what the earlier one
has published. Who sees the plan of an older job, or of one that is decided, yields. The older one
waits as above, with its plan in its place, and lists only after a look that shows no other plan:
age decides only who goes on trying. If a job listed first, another job could begin and end between
the listing and the look: it would leave neither plan nor record, and both sets of files would stay.

``append`` may run beside all modes. What it adds after a ``replace`` is planned stays. While the
``replace`` is being planned, an append's files all stay or all go: **list, look, list again**. A
live job that is decided keeps its files. A job that has ended meanwhile leaves no record. Its work
is what the second listing shows and the first did not; everything is then done once more. The
listings show the directories of jobs below (``t/a/__magic_job-…/``) as well, at no cost: a decided
append there keeps its files, and a ``replace`` beside another decided job there is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import cast

from magic_committer.commit import register
from magic_committer.commit.outcome import dead, told_what_to_do
from magic_committer.commit.register import forget, marker_ref
from magic_committer.commit.sets import ReadyUpload, load_plan, stored_uploads
from magic_committer.commit.sweep import job_records
from magic_committer.commit.uploads import became
from magic_committer.errors import (
    ConflictingJob,
    DestinationExists,
    FormatError,
    NotFound,
    PathError,
)
from magic_committer.hadoop.paths import (
    MAGIC_JOB_PREFIX,
    PLAN_PREFIX,
    RECORD,
    Destination,
    JobPaths,
    is_hidden,
)
from magic_committer.options import BY_PARTITION, EXCLUDING, in_words_of
from magic_committer.protocol.plan import PLAN_BYTES_MAX, KeySet, Plan
from magic_committer.protocol.record import COMMITTED, ObjectRef, StartedJob, State
from magic_committer.runtime.components import Runtime, again
from magic_committer.stores.base import DirectoryStore, ObjectInfo
from magic_committer.stores.urls import is_tree

LISTINGS_MAX = 5
"""How often a ``replace`` begins to list the data while other jobs keep publishing into it. After
that the last listing counts."""
YIELD_LOOKS_MAX = 6
"""How often a job looks whether the younger ones have yielded to it. After that it yields
itself."""
YIELD_PAUSE_SECONDS = 0.25
"""Seconds before the second look. They double each time: 8 seconds in all. A job that yields
removes its record by one request, or by a sweep of a job that has no uploads yet."""
CLOSED_TIDIED_MAX = 100
"""How many old closed records a job deletes if it reads all records anyway."""


# Data that is there -------------------------------------------------------------------------------


def existing(
    runtime: Runtime,
    dest: Destination,
    partitions: Sequence[str] | None,
    jobs_below: set[str] | None = None,
    *,
    first_only: bool = False,
) -> Generator[ObjectInfo, None, None]:
    """Data under the destination, or directly in its partitions (``"dt=1/"``, ``""`` for the
    destination itself), in no order. Hidden directories are not listed.

    Directories are listed side by side, so that many take no longer than necessary; the order of
    looks above is for what others write meanwhile. Other programs may have written keys with empty
    elements (``t//x``). They are data too. A common prefix is used as it is listed, because ``t//``
    without its slashes would be ``t``. ``jobs_below`` collects the directories of jobs whose
    destination lies below this one. ``first_only``: read no more pages of a directory than show
    data."""

    def listed(prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        data: list[ObjectInfo] = []
        below: list[str] = []
        for page in runtime.store.list(prefix, delimiter="/"):
            data += (info for info in page.objects if _is_data(info, dest))
            if first_only and data:
                break
            below += page.prefixes
        return data, below

    level = [dest.prefix] if partitions is None else [dest.prefix + p for p in partitions]
    while level:
        below: list[str] = []
        with closing(runtime.each(listed, level)) as outcomes:
            for outcome in outcomes:
                data, directories = outcome.unwrap()
                yield from data
                below += directories
        if jobs_below is not None:
            jobs_below.update(
                prefix
                for prefix in below
                if prefix[:-1].rpartition("/")[2].startswith(MAGIC_JOB_PREFIX)
                and not prefix.startswith(dest.jobs_prefix)
            )
        shown = (prefix for prefix in below if not is_hidden(dest.relative(prefix)))
        level = list(shown) if partitions is None else []


def _is_data(info: ObjectInfo, dest: Destination) -> bool:
    is_directory_marker = info.key.endswith("/") and info.size == 0
    below = dest.contains(info.key)  # a file "t/" is not
    return below and not is_directory_marker and not is_hidden(dest.relative(info.key))


def partitions_of(dest: Destination, keys: Iterable[str]) -> tuple[str, ...]:
    """The partitions that keys lie in, each with its closing slash, sorted. Pure."""
    names = (dest.relative(key) for key in keys)
    return tuple(sorted({name[: name.rfind("/") + 1] for name in names}))


def refuse_existing_data(
    runtime: Runtime, job: StartedJob, partitions: Sequence[str] | None = None
) -> None:
    """Raise `DestinationExists` if there is data that the job must not find."""
    data = existing(runtime, job.paths.dest, partitions, first_only=True)
    with closing(data):
        for info in data:
            raise destination_exists(job, info.key)


def replaced(
    runtime: Runtime,
    job: StartedJob,
    partitions: Sequence[str] | None,
    rewritten: KeySet,
) -> tuple[tuple[ObjectRef, ...], ObjectRef | None]:
    """What a job of a mode ``replace`` deletes: the present data, without the keys that it writes
    itself, and without the files of live jobs that are decided. Gives the present
    `_SUCCESS` too, if there is one. The Completes of the keys in
    ``rewritten`` replace their old objects."""
    dest = job.paths.dest
    data = partial(existing, runtime, dest, partitions)
    for _ in range(LISTINGS_MAX):
        below = set[str]()
        there = {
            info.key: ObjectRef(info.key, info.etag, info.last_modified)
            for info in data(below)
            if info.key not in rewritten
        }
        theirs, kept = _of_decided_jobs(runtime, job, there, below)
        if not _anything_new(data, there, below, (rewritten, *theirs)):
            break
    marker = marker_ref(runtime, dest.success_key)
    deletes = tuple(ref for ref in there.values() if ref.key not in kept)
    return deletes, marker if marker.etag else None


def _anything_new(
    data: Callable[[set[str]], Generator[ObjectInfo, None, None]],
    there: Mapping[str, ObjectRef],
    jobs_below: Set[str],
    passed_over: Sequence[KeySet],
) -> bool:
    """Whether a second listing shows something that the first did not: data, or a job below. Then a
    job has published while the data was listed, and has perhaps ended: the first listing may hold
    only a part of its files."""
    jobs = set[str]()
    with closing(data(jobs)) as found:
        for info in found:
            known = there.get(info.key)
            if known is not None and known.is_same(info.etag, info.last_modified):
                continue
            if not any(info.key in keys for keys in passed_over):
                return True
    return not jobs <= jobs_below


def _of_decided_jobs(
    runtime: Runtime,
    job: StartedJob,
    there: Mapping[str, ObjectRef],
    jobs_below: Iterable[str],
) -> tuple[list[KeySet], set[str]]:
    """Two things about live appends that are decided: their keys; and those keys of a listing whose
    object is the append's. A key alone does not tell: the append may be about to rewrite an object
    that is to be deleted.

    If an append's plan is gone, the append has completed. All of it shows in the second listing.
    What was read of it before does not count; otherwise a part of it would be kept. If only a set
    is gone, that says nothing: a late attempt deletes its own set, and the job may run on for long.

    Jobs whose destinations lie below count as well, as far as the listing shows their directories.
    None of them looks at jobs above it: one that may delete data itself is no append to be spared.
    Raises `ConflictingJob` if a set is gone and the plan stays (what the job has published is not
    known), or if a job below is decided, and is no append."""
    theirs, kept = list[KeySet](), set[str]()
    here = _At(runtime, job.paths.dest)
    beside = ((here, other) for other in _live_others(runtime, job, tidy=False))
    for home, other in chain(beside, _live_below(here, jobs_below)):
        record = other.record
        if record.state not in COMMITTED or record.plan is None:
            continue
        if record.terms.mode in EXCLUDING:
            if home is not here:
                what = f", in {home.dest.url}, and is publishing"
                raise _conflict(job, other, what, home.dest)
            # The plan was not there at the look at the plans: the job has come to its sweep, and
            # all of it was visible before the listing. A late PUT may bring the plan back.
            continue
        their = StartedJob.attached(record, home.dest.url, other.etag)
        keys, visible = KeySet(), set[str]()
        is_visible = partial(_is_visible, home.runtime)
        with _until_swept(home, job, other):
            plan = load_plan(home.runtime, their, record.plan)
            for uploads, _ in stored_uploads(home.runtime, their, plan.sets, missing_is_fine=False):
                for upload in uploads:
                    keys.add(home.prefix + upload.key)
                shared = [upload for upload in uploads if home.prefix + upload.key in there]
                with closing(runtime.each(is_visible, shared)) as looks:
                    seen = (look.item.key for look in looks if look.unwrap())
                    visible.update(home.prefix + key for key in seen)
            theirs.append(keys)
            kept |= visible
    return theirs, kept


@dataclass(frozen=True, slots=True)
class _At:
    """A destination as its own jobs see it, with their components; ``prefix`` is before its keys in
    a listing from above."""

    runtime: Runtime
    dest: Destination
    prefix: str = ""

    def below(self, dest: Destination) -> _At:
        """A destination below this one. On a file system the store of a directory does not serve
        those below it, and a destination has another name there."""
        if not is_tree(dest.bucket) or not dest.prefix:
            return _At(self.runtime, dest)
        store = cast("DirectoryStore", self.runtime.store).below(dest.prefix)
        prefix = dest.prefix.removesuffix(dest.alone.prefix)
        return _At(replace(self.runtime, store=store), dest.alone, prefix)


@contextmanager
def _until_swept(home: _At, job: StartedJob, other: register.Seen) -> Iterator[None]:
    """Pass over errors about another job's plan and sets that are gone because the job is being
    swept. The plan shows it: the sweep deletes it first, and a live job's plan goes soon. If they
    cannot be trusted, say which job it is and what to do about it."""
    try:
        yield
    except FormatError as error:
        what = f", and what it publishes cannot be read: {error}"
        raise _conflict(job, other, what, home.dest) from error
    except NotFound as missing:
        assert other.record.plan is not None
        for _ in again(home.runtime.clock, YIELD_LOOKS_MAX, YIELD_PAUSE_SECONDS):
            try:
                home.runtime.store.head(other.record.plan.key)
            except NotFound:
                return
        what = f", and what it publishes is not known: {missing}"
        raise _conflict(job, other, what, home.dest) from missing


def _is_visible(runtime: Runtime, upload: ReadyUpload) -> bool:
    try:
        return became(upload, runtime.store.head(upload.key))
    except NotFound:
        return False


def destination_exists(job: StartedJob, key: str) -> DestinationExists:
    """The error of mode ``fail`` for data that is in the way."""
    said = job.said_mode or job.terms.mode
    replace = in_words_of(said, "replace")
    return DestinationExists(
        f"mode {said!r}: {job.dest} holds data, e.g. {key}",
        job_id=job.id,
        hint=f"Use mode 'append' or {replace!r}, or another destination",
    )


# Other jobs ---------------------------------------------------------------------------------------


def refuse_other_jobs(runtime: Runtime, job: StartedJob) -> None:
    """After setup: raise `ConflictingJob` if a live job excludes this one and does not yield to it.
    Two jobs by partition do not exclude each other yet: their plans will tell. Deletes old closed
    records on the way."""

    def excludes(other: register.Seen) -> str | None:
        theirs = other.record.terms.mode
        if theirs not in EXCLUDING or {job.terms.mode, theirs} <= BY_PARTITION:
            return None
        return ""

    _refuse_rivals(runtime, job, excludes, tidy=True)


def refuse_overlapping_plans(runtime: Runtime, job: StartedJob, partitions: Iterable[str]) -> None:
    """After this job's partitions are announced: raise `ConflictingJob` if another live job by
    partition has announced one of them and does not yield to this one. What is listed after the
    last look shows all that an ended job has published."""
    mine = set(partitions)

    def overlaps(other: register.Seen) -> str | None:
        if other.record.terms.mode not in BY_PARTITION:
            return None
        shared = _announced(runtime, job.paths.dest, other) & mine
        return f", and writes {min(shared) or 'its root'} too" if shared else None

    _refuse_rivals(runtime, job, overlaps, tidy=False)


def _refuse_rivals(
    runtime: Runtime,
    job: StartedJob,
    rivals: Callable[[register.Seen], str | None],
    *,
    tidy: bool,
) -> None:
    """Look until no rival is left: yield to who does not yield to this job, wait for the others.
    ``rivals`` gives what a live job does, for the error; None if it is no rival. ``tidy``: delete
    old closed records at the first look."""
    refusal: ConflictingJob | None = None
    for number in again(runtime.clock, YIELD_LOOKS_MAX, YIELD_PAUSE_SECONDS):
        own: register.Seen | None = None
        refusal = None
        for other in _live_others(runtime, job, tidy=tidy and not number):
            what = rivals(other)
            if what is None:
                continue
            own = own or register.read(runtime, job.paths.record)
            if not _yields(other, own):
                raise _conflict(job, other, f"{what}: this one yields to it")
            if other.record.state is State.RUNNING:
                what += ": it is younger, and has not yielded"
            else:
                what += ": it is being ended, and has not gone yet"
            refusal = refusal or _conflict(job, other, what)
        if refusal is None:
            return
    assert refusal is not None
    raise refusal


def _yields(other: register.Seen, own: register.Seen | None) -> bool:
    """Whether another job will yield to this one, if its driver lives: it ends without publishing
    anything, or it runs, is younger, and must see this one. Pure."""
    if other.record.state in (State.ABORTING, State.REVERTING, State.REVERTED):
        return True
    if own is None or not own.record.state is other.record.state is State.RUNNING:
        return False
    return _seniority(own) < _seniority(other)


def _seniority(seen: register.Seen) -> tuple[float, str]:
    """The order in which jobs were started. It is the same for everybody who reads their records
    while they run."""
    return seen.last_modified, seen.record.uuid


def _announced(runtime: Runtime, dest: Destination, other: register.Seen) -> set[str]:
    """The partitions that another job's plans name, whichever of its drivers has stored them."""
    found: set[str] = set()
    for page in runtime.store.list(f"{JobPaths(dest, other.record.id).directory}{PLAN_PREFIX}"):
        for info in page.objects:
            try:
                stored = runtime.store.get(info.key, max_bytes=PLAN_BYTES_MAX)
            except NotFound:
                continue  # its swap lost, or its job is finished
            found.update(Plan.decode(stored.body, info.key).partitions)
    return found


def _live_others(runtime: Runtime, job: StartedJob, *, tidy: bool) -> Iterator[register.Seen]:
    dest, tidied = job.paths.dest, 0
    for key in job_records(runtime, dest):
        if key == job.paths.record:
            continue
        other_id = key.removeprefix(dest.jobs_prefix).removesuffix(f"/{RECORD}")
        with told_what_to_do(dest.url, other_id):
            seen = register.read(runtime, key)
        if seen is None:
            continue
        if seen.record.state is not State.CLOSED:
            yield seen
        elif tidy and tidied < CLOSED_TIDIED_MAX:
            tidied += forget(runtime, seen)


def _live_below(here: _At, directories: Iterable[str]) -> Iterator[tuple[_At, register.Seen]]:
    """The live jobs of directories that a listing showed, each with its destination. One GET for
    each; a directory without a record (Hadoop's, or litter) is passed over."""

    def read(directory: str) -> tuple[_At, register.Seen | None]:
        parent, _, name = directory[:-1].rpartition("/")
        try:
            dest = Destination(here.dest.bucket, f"{parent}/")
        except PathError:  # no job of ours: ``t//__magic_job-…/``
            return here, None
        with told_what_to_do(dest.url, name.removeprefix(MAGIC_JOB_PREFIX)):
            home = here.below(dest)
            return home, register.read(home.runtime, f"{home.dest.prefix}{name}/{RECORD}")

    with closing(here.runtime.each(read, sorted(directories))) as outcomes:
        for outcome in outcomes:
            home, seen = outcome.unwrap()
            if seen is not None and seen.record.state is not State.CLOSED:
                yield home, seen


def _conflict(
    job: StartedJob, other: register.Seen, more: str, home: Destination | None = None
) -> ConflictingJob:
    record = other.record
    return ConflictingJob(
        f"job {record.id!r} ({record.terms.mode}, {record.state}) lives under {job.dest}{more}",
        job_id=job.id,
        hint="Try again when it has ended",
        remedies=dead(home.url if home else job.dest, record.id),
    )

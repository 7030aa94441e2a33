"""Conflict modes: what a job means for the data that is there, and for other jobs beside it.

====================== ======================================================================
``append``             beside what is there; any number of jobs at once
``fail``               only if the destination holds no data
``fail_partitions``    only if no written partition holds data
``replace``            what the destination held when the job was planned goes, in the end
``replace_partitions`` the same by written partition (Spark's dynamic partition overwrite)
====================== ======================================================================

*Data* is an object none of whose path elements below the destination begins with ``_`` or ``.``;
empty directory markers do not count. A *partition* is a directory that holds a file of the job, and
its data are the objects directly in it.

The modes other than ``append`` exclude each other by **set up, then look**: each job writes its
record, then looks for other live ones, so of two that start at once at least one sees the other,
and yields; both may (counterexamples.md, #8). Jobs by partition may run beside each other while
their partitions differ: each stores its plan, then looks at the others' plans. ``append`` may run
beside all: what it adds after the plan stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magic_committer.commit import records
from magic_committer.commit.plan import PLAN_BYTES_MAX, Plan
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.sweep import job_records
from magic_committer.errors import ConflictingJob, DestinationExists, NotFound
from magic_committer.job import StartedJob, State
from magic_committer.options import Mode
from magic_committer.paths import Destination, JobPaths, is_hidden
from magic_committer.runtime import Runtime
from magic_committer.store import ObjectInfo

EXCLUDING: frozenset[Mode] = frozenset({"fail", "fail_partitions", "replace", "replace_partitions"})
BY_PARTITION: frozenset[Mode] = frozenset({"fail_partitions", "replace_partitions"})
FAILING: frozenset[Mode] = frozenset({"fail", "fail_partitions"})
REPLACING: frozenset[Mode] = frozenset({"replace", "replace_partitions"})

CLOSED_TIDIED_MAX = 100
CLOSED_SECONDS = 24 * 3600.0
"""Who lists records anyway deletes so many closed ones that are older than this."""


# Data that is there -------------------------------------------------------------------------------


def existing(
    runtime: Runtime, dest: Destination, partitions: Sequence[str] | None
) -> Iterator[ObjectInfo]:
    """Data under the destination, or directly in its partitions (``"dt=1/"``, ``""`` for the
    destination itself). Hidden directories are not listed into.

    Other programs may have written keys with empty elements (``t//x``): they are data too, and a
    common prefix is taken as it is listed, since ``t//`` without its slashes would be ``t``."""
    deep = partitions is None
    prefixes = [dest.prefix] if partitions is None else [dest.prefix + p for p in partitions]
    while prefixes:
        prefix = prefixes.pop()
        for page in runtime.store.list(prefix, delimiter="/"):
            for info in page.objects:
                is_marker = info.key.endswith("/") and info.size == 0
                below = dest.contains(info.key)  # a file "t/" is not
                if below and not is_marker and not is_hidden(dest.relative(info.key)):
                    yield info
            if deep:
                prefixes += [p for p in page.prefixes if not is_hidden(dest.relative(p))]


def partitions_of(dest: Destination, uploads: Iterable[ReadyUpload]) -> tuple[str, ...]:
    """The partitions that uploads write, each with its closing slash, sorted. Pure."""
    found: set[str] = set()
    for upload in uploads:
        directory, slash, _ = dest.relative(upload.key).rpartition("/")
        found.add(directory + slash)
    return tuple(sorted(found))


def refuse_existing_data(
    runtime: Runtime, job: StartedJob, dest: Destination, partitions: Sequence[str] | None = None
) -> None:
    """Raise `DestinationExists` if there is data where the job must find none."""
    found = next(existing(runtime, dest, partitions), None)
    if found is not None:
        raise destination_exists(job, found.key)


def destination_exists(job: StartedJob, key: str) -> DestinationExists:
    """The error of mode ``fail`` for data that is in the way."""
    return DestinationExists(
        f"mode {job.terms.mode!r}: {job.dest} holds data, e.g. {key}",
        job_id=job.id,
        hint="Use mode 'append' or 'replace', or another destination",
    )


# Other jobs ---------------------------------------------------------------------------------------


def refuse_other_jobs(runtime: Runtime, job: StartedJob, dest: Destination) -> None:
    """After setup: raise `ConflictingJob` if a live job excludes this one. Two jobs by partition do
    not, yet: their plans tell. Tidies old closed records on the way."""
    for other in _live_others(runtime, job, dest, tidy=True):
        if other.record.terms.mode not in EXCLUDING:
            continue
        if {job.terms.mode, other.record.terms.mode} <= BY_PARTITION:
            continue
        raise _conflict(job, other, "")


def refuse_overlapping_plans(
    runtime: Runtime, job: StartedJob, dest: Destination, plan: Plan
) -> None:
    """After this job's plan is stored: raise `ConflictingJob` if another live job by partition has
    planned one of its partitions."""
    mine = set(plan.partitions)
    for other in _live_others(runtime, job, dest, tidy=False):
        if other.record.terms.mode not in BY_PARTITION:
            continue
        directory = JobPaths(dest, other.record.id).directory
        for page in runtime.store.list(f"{directory}plan-"):
            for info in page.objects:
                try:
                    stored = runtime.store.get(info.key, max_bytes=PLAN_BYTES_MAX)
                except NotFound:
                    continue  # its swap lost, or its job is finished
                shared = mine & set(Plan.decode(stored.body, info.key).partitions)
                if shared:
                    raise _conflict(
                        job, other, f", and writes {sorted(shared)[0] or 'its root'} too"
                    )


def _live_others(
    runtime: Runtime, job: StartedJob, dest: Destination, *, tidy: bool
) -> Iterator[records.Seen]:
    own = JobPaths(dest, job.id).record
    tidied = 0
    for key in job_records(runtime, dest):
        if key == own:
            continue
        seen = records.read(runtime, key)
        if seen is None:
            continue
        if seen.record.state is not State.CLOSED:
            yield seen
        elif tidy and tidied < CLOSED_TIDIED_MAX and _is_old(seen):
            records.remove(runtime, seen)
            tidied += 1


def _is_old(seen: records.Seen) -> bool:
    # A given id stays taken until an operator says that no process of its run lives.
    age = seen.seen_at - seen.last_modified
    return age > CLOSED_SECONDS and not seen.record.given_id


def _conflict(job: StartedJob, other: records.Seen, more: str) -> ConflictingJob:
    record = other.record
    return ConflictingJob(
        f"job {record.id!r} ({record.terms.mode}, {record.state}) lives under {job.dest}{more}",
        job_id=job.id,
        hint="Wait until it has ended; if it is dead, finish or abort it:"
        f" magic_committer.attach({job.dest!r}, {record.id!r})",
    )

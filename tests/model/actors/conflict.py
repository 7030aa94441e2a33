"""What a job looks for beside it ("Conflict modes"): live jobs, their plans, the data there is."""

from __future__ import annotations

from collections.abc import Hashable

from tests.model.actors.job import BY_PARTITION, EXCLUDING, Files, Job, Steps, read, sent
from tests.model.store import Delete, List, Plan, Put, Record, directory_of

Entries = tuple[tuple[str, Hashable], ...]
"""Keys and ETags."""


def partitions_of(job: Job, files: Files) -> tuple[str, ...]:
    """The partitions that a job by partition writes; () of any other: the whole destination."""
    if job.mode not in BY_PARTITION:
        return ()
    return tuple(sorted({directory_of(file.key) for file in files}))


def may_start(job: Job) -> Steps:
    """Whether an excluding job is alone, and a `fail` job's destination empty."""
    if job.mode not in EXCLUDING:
        return True
    records = yield from _others(job)
    for key in records:
        record = yield from read(key)
        if record is not None and record.state != "closed" and _excludes(job, record):
            return False
    if job.mode == "fail":
        there = yield List("")
        return not there
    return True


def _excludes(job: Job, other: Record) -> bool:
    """Two jobs by partition do not exclude each other yet: their plans tell."""
    return other.mode in EXCLUDING and not {job.mode, other.mode} <= BY_PARTITION


def _others(job: Job) -> Steps:
    """The records of other jobs."""
    listed = yield List("_")
    return tuple(key for key, _ in listed if key.endswith("/job.json") and key != job.record)


# By partition -------------------------------------------------------------------------------------


def announce(job: Job, me: str, partitions: tuple[str, ...]) -> Steps:
    """Say which partitions are to be written, before anybody's plans are looked at. Returns the
    announcement's key, "" if there is none."""
    if job.mode not in BY_PARTITION or not job.keeps("announced before the look"):
        return ""
    key = job.plan(f"{me}-announced")
    yield from sent(Put(key, Plan(job.uuid, me, (), partitions=partitions)))
    return key


def withdraw(job: Job, announced: str) -> Steps:
    """The announcement of a driver that did not decide is its own to delete."""
    if announced and job.keeps("the loser withdraws its announcement"):
        yield from sent(Delete((announced,)))


def drops_plan(job: Job) -> bool:
    """Whether a loser deletes its plan: if it has one of its own."""
    return job.keeps("the loser deletes its plan") and job.keeps("a plan for each try")


def is_free(job: Job, partitions: tuple[str, ...]) -> Steps:
    """Whether no other live job by partition has planned, or announced, one of the partitions."""
    if job.mode not in BY_PARTITION or not job.keeps("the look at the plans"):
        return True
    records = yield from _others(job)
    for key in records:
        record = yield from read(key)
        if record is None or record.state == "closed" or record.mode not in BY_PARTITION:
            continue
        del record
        listed = yield List(f"{directory_of(key)}plan-")
        plans = tuple(name for name, _ in listed)
        del listed
        for name in plans:
            plan = yield from read(name)
            if plan is not None and set(plan.partitions) & set(partitions):
                return False
    return True


# The data -----------------------------------------------------------------------------------------


def existing(partitions: tuple[str, ...]) -> Steps:
    """The data of the partitions; of the whole destination if there are none."""
    there: Entries = ()
    prefixes = partitions or ("",)
    for prefix in prefixes:
        listed = yield List(prefix)
        there = (*there, *listed)
    return there


def to_delete(job: Job, files: Files, partitions: tuple[str, ...], there: Entries) -> Steps:
    """What of the data goes: not what the job rewrites, nor what an append publishes just now.

    An append is spared whole. If it is live when it is looked for, its plan names what is its. If
    it ended since the data was listed, that listing may show a part of it: the next one shows the
    rest, and the look begins anew.
    """
    while True:
        spared = yield from _of_live_appends(job)
        if not job.keeps("the data is listed again"):
            break
        again = yield from existing(partitions)
        new = tuple(one for one in again if one not in there and one[0] not in spared)
        if not new:
            break
        there = again
    kept = (*spared, *(file.key for file in files))
    return tuple(one for one in there if one[0] not in kept)


def _of_live_appends(job: Job) -> Steps:
    """The keys of decided appends that are not over."""
    if not job.keeps("the second look at decided appends"):
        return ()
    keys: tuple[str, ...] = ()
    records = yield from _others(job)
    for key in records:
        more = yield from _published_by(key)
        keys = (*keys, *more)
    return keys


def _published_by(key: str) -> Steps:
    """The keys of one job's plan, if it is a live append that is decided. Without its plan, or
    without a pendingset of it, it has come further: it is looked at again."""
    while True:
        record = yield from read(key)
        if record is None or record.mode != "append" or record.plan is None:
            return ()
        if record.state not in ("committing", "completed"):
            return ()
        plan = yield from read(record.plan[0])
        names = tuple(name for name, _ in plan.sets) if plan is not None else ()
        keys: tuple[str, ...] = ()
        for name in names:
            found = yield from read(name)
            if found is None:
                plan = None
                break
            keys = (*keys, *(file.key for file in found.files))
        if plan is not None:
            return keys
        if record.state == "completed":
            return ()  # it sweeps: all of it is visible

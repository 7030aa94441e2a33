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


LOOKS = (1, 2)
"""Of the oldest, for the younger ones to yield. Production looks oftener: each look is one more
chance, none is another decision."""


def may_start(job: Job) -> Steps:
    """Whether an excluding job is alone, and a `fail` job's destination empty."""
    if job.mode not in EXCLUDING:
        return True
    alone = yield from _alone(job, None, waits=job.keeps("the oldest waits"))
    if alone and job.mode == "fail":
        there = yield List("")
        return not there
    return alone


def _alone(job: Job, partitions: tuple[str, ...] | None, *, waits: bool) -> Steps:
    """Whether nobody is there who excludes the job, or soon will be: younger ones yield, if it
    ``waits``. ``partitions``: of a job that asks the others' plans; None: their records tell."""
    for _number in LOOKS:
        alone = True
        own: Record | None = None
        records = yield from _others(job)
        for key in records:
            record = yield from read(key)
            if record is None or record.state == "closed":
                continue
            if partitions is None:
                clashes = _excludes(job, record)
            else:
                clashes = yield from _has_planned(key, record, partitions)
            if not clashes:
                continue
            del clashes
            if own is None:
                own = yield from read(job.record)
            if not _yields(record, own):
                return False
            alone = False
            del record
        del records, own
        if alone or not waits:
            return True
    return False


def _yields(other: Record, own: Record | None) -> bool:
    """Whether another job will yield. Which of two is the older is the order of their UUIDs: the
    search starts them in either order, so a younger one may have looked first."""
    if other.state in ("aborting", "reverting", "reverted"):
        return True
    if own is None or not own.state == other.state == "running":
        return False
    return own.uuid < other.uuid


def _excludes(job: Job, other: Record) -> bool:
    """Two jobs by partition do not exclude each other yet: their plans tell."""
    return other.mode in EXCLUDING and not {job.mode, other.mode} <= BY_PARTITION


def _others(job: Job) -> Steps:
    """The records of other jobs."""
    listed = yield List("_")
    return tuple(key for key, _ in listed if key.endswith("/_job.json") and key != job.record)


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
    return (yield from _alone(job, partitions, waits=job.keeps("the older waits by partition")))


def _has_planned(key: str, record: Record, partitions: tuple[str, ...]) -> Steps:
    """Whether a job by partition has one of the partitions in a plan, by its record's key."""
    if record.mode not in BY_PARTITION:
        return False
    listed = yield List(f"{directory_of(key)}_plan-")
    plans = tuple(name for name, _ in listed)
    del listed
    for name in plans:
        plan = yield from read(name)
        if plan is not None and set(plan.partitions) & set(partitions):
            return True
    return False


# The data -----------------------------------------------------------------------------------------


def existing(partitions: tuple[str, ...], *, stops: bool = False) -> Steps:
    """The data of the partitions; of the whole destination if there are none. ``stops``: at the
    first directory with data: more need not be known."""
    there: Entries = ()
    prefixes = partitions or ("",)
    for prefix in prefixes:
        listed = yield List(prefix)
        there = (*there, *listed)
        del listed
        if stops and there:
            break
    return there


LISTINGS = (1, 2, 3, 4, 5)
"""After so many the last listing counts."""


def to_delete(
    job: Job, files: Files, partitions: tuple[str, ...], there: Entries, *, last: bool
) -> Steps:
    """What of the data goes: not what the job rewrites, nor what appends publish that are decided
    and live. One may end between the listing and the look: the listing may show a part of it. The
    next one shows more, and then all is done once more. ``there``, ``last``: the data, if it was
    listed before the look at the plans. Returns None if it is not known what one of them
    publishes."""
    mine = tuple(file.key for file in files)
    for _number in LISTINGS:
        if last:
            there = yield from existing(partitions)
        there = tuple(one for one in there if one[0] not in mine)
        theirs, kept, known = yield from _of_the_decided(job, there)
        if not known:
            return None
        again = False
        if last and job.keeps("the data is listed again"):
            again = yield from _anything_new(partitions, there, (*mine, *theirs))
        if not again:
            break
        del theirs, again
    return tuple(one for one in there if one[0] not in kept)


def _anything_new(
    partitions: tuple[str, ...], there: Entries, passed_over: tuple[str, ...]
) -> Steps:
    """Whether a second listing shows what the first one does not."""
    prefixes = partitions or ("",)
    for prefix in prefixes:
        listed = yield List(prefix)
        new = tuple(one for one in listed if one not in there and one[0] not in passed_over)
        if new:
            return True
        del listed, new
    return False


def _of_the_decided(job: Job, there: Entries) -> Steps:
    """The keys of live appends that are decided; those of them in a listing whose object is
    theirs; and whether that is all."""
    theirs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    if not job.keeps("the look at the decided"):
        return theirs, kept, True
    records = yield from _others(job)
    for key in records:
        record = yield from read(key)
        if record is None or record.state not in ("committing", "completed"):
            continue
        if record.mode in EXCLUDING and job.keeps("only appends are spared"):
            continue  # it is refused, or it has come to its sweep: all of it is there, and goes
        found = yield from _published_by(job, record, there)
        if found is None:
            return theirs, kept, False
        theirs, kept = (*theirs, *found[0]), (*kept, *found[1])
        del found, record
    return theirs, kept, True


def _published_by(job: Job, record: Record, there: Entries) -> Steps:
    """The keys of a job's plan, and those of a listing that are what its uploads became: a key
    alone does not tell, for what is to go may be rewritten by the job. Without its plan, or a
    pendingset of it, the job has completed: the next listing shows all of it, and no part of it
    may be kept."""
    assert record.plan is not None
    theirs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    plan = yield from read(record.plan[0])
    if plan is None:
        return theirs, kept
    listed = tuple(key for key, _ in there)
    for name, _ in plan.sets:
        found = yield from read(name)
        if found is None:
            if job.keeps("a set that is gone is no end"):
                plan = yield from read(record.plan[0])
                if plan is not None:
                    return None
            if job.keeps("spared whole or not at all"):
                return (), ()
            break
        theirs = (*theirs, *(file.key for file in found.files))
        shared = tuple(file for file in found.files if file.key in listed)
        del found
        for file in shared:
            held = yield from read(file.key)
            if held is not None and held.token == file.token:
                kept = (*kept, file.key)
            del held
        del shared
    return theirs, kept

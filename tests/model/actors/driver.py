"""The driver up to the decision: setup, load, check, plan, decide; and abort."""

from __future__ import annotations

from typing import Any

from tests.model.actors.conflict import (
    Entries,
    announce,
    drops_plan,
    existing,
    is_free,
    may_start,
    partitions_of,
    to_delete,
    withdraw,
)
from tests.model.actors.execute import execute, obey, without_record
from tests.model.actors.job import (
    EXCLUDING,
    FAILING,
    Accepted,
    Files,
    Job,
    Steps,
    choose,
    create,
    look_at,
    read,
    sent,
    swap,
)
from tests.model.actors.sweep import finish, sweep
from tests.model.store import (
    OK,
    SUCCESS,
    Delete,
    List,
    ListParts,
    ListUploads,
    Plan,
    Put,
    Record,
    Tell,
    Wait,
)


def setup(job: Job, me: str) -> Steps:
    """Write the record, then look ("Conflict modes"). Returns "started", "retried" if the PUT was
    not answered at once, or why there is no job."""
    if job.given:
        used = yield List(job.directory)
        if used:
            return "exists"
    looks_first = not job.keeps("set up, then look")
    if looks_first:
        free = yield from may_start(job)
        if not free:
            return "conflict"
    started = yield from create(job)
    if started == "exists":
        return "exists"
    if not looks_first:
        free = yield from may_start(job)
        if not free:
            yield from _withdraw(job, me, undisturbed=started == "started")
            return "conflict"
    return started


def _withdraw(job: Job, me: str, *, undisturbed: bool) -> Steps:
    if (undisturbed and not job.given) or not job.keeps("a withdrawn given id is swept"):
        yield from sent(Delete((job.record,), if_match=job.first))
        return
    aborting = job.first._replace(state="aborting", nonce=f"{me} aborting")
    won, _ = yield from swap(job, job.first, aborting)
    if won:
        yield from sweep(job, (), ())
        yield from finish(job, me, aborting, "aborted", may_remove=False)


def driver(
    job: Job, me: str, tasks: tuple[tuple[str, ...], ...], *, starts: bool = True, ends: str = ""
) -> Steps:
    """A whole job: setup, wait for a message of one attempt of each task, commit; abort if a task
    has no attempt left, or if ``ends`` says so. ``tasks``: the attempts of each. ``starts``: else
    somebody has started it."""
    undisturbed = True
    if starts:
        started = yield from setup(job, me)
        if started not in ("started", "retried"):
            return started
        undisturbed = started == "started" or not job.keeps("a retried setup is closed")
        yield Tell(f"{job.id} started", True)
    may_remove = undisturbed and not (job.given and job.keeps("a given id stays closed"))
    accepted: Accepted = ()
    for attempts in tasks:
        message = yield Wait(attempts, attempts)
        if message is None:
            ends = "abort"
        else:
            accepted = (*accepted, message[1])
        del message
    if ends == "abort":
        return (yield from abort(job, me, may_remove=may_remove))
    return (yield from commit(job, me, accepted, may_remove=may_remove))


def start_and_commit(job: Job, accepted: Accepted) -> Steps:
    """A whole job whose tasks are done."""
    begun = yield from setup(job, job.id)
    if begun not in ("started", "retried"):
        return begun
    return (yield from commit(job, job.id, accepted, may_remove=begun == "started"))


def commit(job: Job, me: str, accepted: Accepted, *, may_remove: bool = True) -> Steps:
    """ "Commit", steps 1 to 4; then `execute`. The uploads of messages were all made before: they
    are listed first, beside what follows."""
    listed = None
    listing = job.accept == "listing" or not job.keeps("a job of messages is never listed")
    if not listing and not job.batch:
        listed = yield ListUploads("")
    seen = yield from read(job.record)
    if seen is None or not job.owns(seen):
        return (yield from without_record(job))
    if seen.state != "running":
        return (yield from obey(job, me, seen))
    # 1. Load
    if listing:
        accepted = yield from choose(job)
        good = True
    else:
        if not accepted:
            return "nothing was asked"
        good = yield from _loaded(accepted)
    if not accepted:  # a job without a task is decided by nobody, unless one was faster
        return (yield from _unless_decided(job, me, seen))
    files = tuple(file for _, loaded in accepted for file in loaded.files)
    # 2. Check
    if good and files:
        good = yield from _all_open(job, files, listed)
    del listed
    if not good and job.adopted:  # nobody runs it again as it was: a person decides
        return (yield from _unless_decided(job, me, seen))
    announced = ""
    plan = None
    if good:
        # 3. Plan
        announced, plan = yield from _plan(job, me, accepted, files)
    if plan is None:
        yield from withdraw(job, announced)
        return (yield from _refuse(job, me, seen, may_remove))
    yield from sent(Put(job.plan(me), plan))
    # 4. Decide
    committing = seen._replace(
        state="committing", nonce=f"{me} committing", plan=(job.plan(me), plan)
    )
    won, now = yield from swap(job, seen, committing)
    if won is None:
        return "nothing decided"
    if not won:
        if drops_plan(job) and (now is None or now.plan != committing.plan):
            yield from sent(Delete((job.plan(me),)))
        yield from withdraw(job, announced)
        return (yield from obey(job, me, now))
    del announced
    return (yield from execute(job, me, now, plan, files, may_remove=may_remove))


def _plan(job: Job, me: str, accepted: Accepted, files: Files) -> Steps:
    """What is to be decided; None if another job, or data, is in the way. By partition: announce,
    look at the others' plans, and only then list the data: what a job that has ended in between
    has published is among it. Returns the announcement's key, too."""
    partitions = partitions_of(job, files)
    deletes: Entries = ()
    marker = None
    announced = ""
    if job.mode in EXCLUDING:
        last = job.keeps("the data is listed after the look")
        there: Entries = ()
        if not last:
            there = yield from existing(partitions)
        announced = yield from announce(job, me, partitions)
        free = yield from is_free(job, partitions)
        if not free:
            return announced, None
        if job.mode in FAILING:
            if last:
                there = yield from existing(partitions, stops=True)
            if there:
                return announced, None
        else:
            deletes = yield from to_delete(job, files, partitions, there, last=last)
            if deletes is None:
                return announced, None
            marker = yield from read(SUCCESS)
        del there
    if job.mode != "replace":
        marker = None
    return announced, Plan(job.uuid, me, accepted, deletes, marker, partitions)


def _unless_decided(job: Job, me: str, seen: Record) -> Steps:
    """Decide nothing; but a driver that was faster may have swept what is missed: it is obeyed."""
    now = yield from read(job.record)
    if now != seen:
        return (yield from obey(job, me, now))
    return "nothing was asked"


def _loaded(accepted: Accepted) -> Steps:
    """Whether each accepted pendingset is there, in the version that its message told."""
    good = True
    for key, told in accepted:
        found = yield from read(key)
        good = good and found == told
    return good


def _all_open(job: Job, files: Files, listed: Any) -> Steps:
    """Whether every upload is still open. The listing is a hint: what it does not show is asked.
    Hadoop's may have been completed by their own driver before it died."""
    if listed is None:
        listed = yield ListUploads("")
    unseen = tuple(file for file in files if (file.key, file.upload) not in listed)
    for file in unseen:
        if job.adopted:
            state, _ = yield from look_at(file)
            if state == "gone":
                return False
            continue
        reply = yield ListParts(file.key, file.upload)
        if reply is not OK:
            return False
    return True


def _refuse(job: Job, me: str, seen: Record, may_remove: bool) -> Steps:
    """A check said no: decide *abort*."""
    aborting = seen._replace(state="aborting", nonce=f"{me} aborting")
    won, now = yield from swap(job, seen, aborting)
    if not won:
        return (yield from obey(job, me, now))
    yield from sweep(job, (), ())
    yield from finish(job, me, aborting, "aborted", may_remove=may_remove)
    return "aborted"


def abort(job: Job, me: str, *, may_remove: bool = True) -> Steps:
    """Decide *abort*, sweep."""
    seen = yield from read(job.record)
    if seen is None or not job.owns(seen):
        return (yield from without_record(job))
    decided = False
    if seen.state == "running":
        aborting = seen._replace(state="aborting", nonce=f"{me} aborting")
        decided, seen = yield from swap(job, seen, aborting)
    if seen is None:
        return (yield from without_record(job))
    if seen.state == "aborting":
        yield from sweep(job, (), ())
        yield from finish(job, me, seen, "aborted", may_remove=may_remove and decided)
        return "aborted"
    return seen.outcome if seen.state == "closed" else seen.state

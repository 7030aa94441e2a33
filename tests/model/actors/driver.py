"""The driver up to the decision: setup, load, check, plan, decide; and abort."""

from __future__ import annotations

from collections.abc import Hashable

from tests.model.actors.execute import execute, obey, without_record
from tests.model.actors.job import (
    EXCLUDING,
    Accepted,
    Files,
    Job,
    Steps,
    choose,
    create,
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
    PendingSet,
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
        free = yield from _look(job)
        if not free:
            return "conflict"
    started = yield from create(job)
    if started == "exists":
        return "exists"
    if not looks_first:
        free = yield from _look(job)
        if not free:
            yield from _withdraw(job, me, undisturbed=started == "started")
            return "conflict"
    return started


def _look(job: Job) -> Steps:
    """Whether an excluding job is alone, and a `fail` job's destination empty."""
    if job.mode not in EXCLUDING:
        return True
    listed = yield List("_")
    others = tuple(k for k, _ in listed if k.endswith("/job.json") and k != job.record)
    for key in others:
        record = yield from read(key)
        if record is not None and record.state != "closed" and record.mode in EXCLUDING:
            return False
    if job.mode == "fail":
        there = yield List("")
        return not there
    return True


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
    has no attempt left, or if ``ends`` says so.

    Args:
        tasks: the attempts of each. starts: else somebody has started it.
    """
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


def start_and_commit(job: Job, message: tuple[str, PendingSet]) -> Steps:
    """A whole job whose only task is done."""
    begun = yield from setup(job, job.id)
    if begun not in ("started", "retried"):
        return begun
    return (yield from commit(job, job.id, (message,), may_remove=begun == "started"))


def commit(job: Job, me: str, accepted: Accepted, *, may_remove: bool = True) -> Steps:
    """ "Job commit", steps 1 to 4; then `execute`."""
    seen = yield from read(job.record)
    if seen is None or not job.owns(seen):
        return (yield from without_record(job))
    if seen.state != "running":
        return (yield from obey(job, me, seen))
    # 1. Load
    if job.accept == "listing" or not job.keeps("a job of messages is never listed"):
        accepted = yield from choose(job)
        good = True
    else:
        good = yield from _loaded(accepted)
    files = tuple(file for _, loaded in accepted for file in loaded.files)
    # 2. Check
    if good and files:
        good = yield from _all_open(files)
    deletes: tuple[tuple[str, Hashable], ...] = ()
    marker = None
    if good and job.mode in EXCLUDING:
        there = yield List("")
        if job.mode == "fail":
            good = not there
        else:
            rewritten = tuple(file.key for file in files)
            deletes = tuple((key, etag) for key, etag in there if key not in rewritten)
            marker = yield from read(SUCCESS)
        del there
    if not good:
        return (yield from _refuse(job, me, seen, may_remove))
    # 3. Plan
    plan = Plan(job.uuid, me, accepted, deletes, marker)
    yield from sent(Put(job.plan(me), plan))
    # 4. Decide
    committing = seen._replace(
        state="committing", nonce=f"{me} committing", plan=(job.plan(me), plan)
    )
    won, now = yield from swap(job, seen, committing)
    if not won:
        if _drops_plan(job) and (now is None or now.plan != committing.plan):
            yield from sent(Delete((job.plan(me),)))
        return (yield from obey(job, me, now))
    return (yield from execute(job, me, now, plan, files, may_remove=may_remove))


def _drops_plan(job: Job) -> bool:
    """The loser's plan is its own to delete, if it has one of its own."""
    return job.keeps("the loser deletes its plan") and job.keeps("a plan for each try")


def _loaded(accepted: Accepted) -> Steps:
    """Whether each accepted pendingset is there, in the version that its message told."""
    good = True
    for key, told in accepted:
        found = yield from read(key)
        good = good and found == told
    return good


def _all_open(files: Files) -> Steps:
    """Whether every upload is still open. The listing is a hint: what it does not show is asked."""
    listed = yield ListUploads("")
    unseen = tuple(file for file in files if (file.key, file.upload) not in listed)
    for file in unseen:
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

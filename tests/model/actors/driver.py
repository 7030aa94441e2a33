"""The driver: setup, load, check, plan, decide, abort; whoever executes a decided plan, or obeys
another's decision; and leaving nothing behind."""

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
from tests.model.actors.job import (
    EXCLUDING,
    FAILING,
    LEDGER,
    Accepted,
    Files,
    Job,
    Steps,
    choose,
    create,
    delete_if_same,
    look_at,
    read,
    remove,
    remove_listed,
    sent,
    swap,
)
from tests.model.store import (
    NOT_FOUND,
    OK,
    REFUSED,
    SUCCESS,
    Abort,
    Complete,
    Delete,
    File,
    Get,
    Ledger,
    List,
    ListParts,
    ListUploads,
    Marker,
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


# Job commit, steps 5 to 8 -------------------------------------------------------------------------


def obey(job: Job, me: str, seen: Record | None) -> Steps:
    """Do what the stored record says: a driver that did not decide."""
    if seen is None:
        return (yield from without_record(job))
    if seen.state in ("committing", "completed"):
        return (yield from execute(job, me, seen, None, None, may_remove=False))
    return seen.outcome if seen.state == "closed" else seen.state


def without_record(job: Job) -> Steps:
    """Absent is "unknown", not "aborted" (I10); our marker tells."""
    marker = yield from read(SUCCESS)
    if marker is not None and marker.uuid == job.uuid:
        return "committed"
    return "unknown" if job.keeps("absent means unknown") else "aborted"


def execute(
    job: Job, me: str, seen: Record, plan: Plan | None, files: Files | None, *, may_remove: bool
) -> Steps:
    """Execute the decided plan from where the record stands. ``plan``, ``files``: in the driver's
    memory; None: they are read from the store."""
    stored = plan is None
    if plan is None or not job.keeps("a plan for each try"):
        plan, files = yield from _stored_plan(job, me, seen)
        if plan is None:
            now = yield from read(job.record)
            if seen.state == "completed":  # steps 6 and 7 are done
                yield from sweep(job, (), (), looks_first=True)
                yield from finish(job, me, seen, "committed", may_remove=False)
                return "committed"
            if now == seen:
                return "stuck"
            now = yield from read(job.record)  # it has been moved on: what is it now?
            return (yield from obey(job, me, now))
    assert files is not None
    if not job.keeps("complete before delete"):
        yield from _delete_old(job, plan)
    knows_all = just_now = False
    if seen.state == "committing":
        if plan.marker is not None:
            yield from delete_if_same(SUCCESS, plan.marker)
        done = yield from _complete_all(job, files, distrusts=stored)
        if done == "conflict":
            if job.keeps("a conflict reverts"):
                return (yield from revert(job, me, seen, files))
            return "stuck"
        if done == "done":
            knows_all = True
            just_now, now = yield from _to_completed(job, me, seen)
        else:
            now = yield from read(job.record)
            if now == seen:
                return done
            now = yield from read(job.record)  # it has been moved on: what is it now?
        if now is None:
            return (yield from without_record(job))
        if now.state != "completed" and job.keeps("a state `completed`"):
            return now.outcome if now.state == "closed" else now.state
        seen = now
        del now, done
    yield from _delete_old(job, plan)
    if job.marks:
        yield from _mark(job, me, seen.state, absent=bool(just_now) and seen.marker is None)
    if job.batch and job.keeps("the ledger before finish"):
        yield from _batch_done(job)
    accepted = tuple(key for key, _ in plan.sets)
    yield from sweep(job, files, accepted, looks_first=not knows_all or job.adopted)
    yield from finish(job, me, seen, "committed", may_remove=may_remove)
    return "committed"


def _to_completed(job: Job, me: str, seen: Record) -> Steps:
    """All of it is visible. As `swap`."""
    marker = None
    if job.marks:
        marker = yield from read(SUCCESS)
    if not job.keeps("a state `completed`"):
        return True, seen
    completed = seen._replace(
        state="completed",
        nonce=f"{me} completed",
        marker=marker if job.keeps("`completed` names the marker") else None,
    )
    return (yield from swap(job, seen, completed))


def _stored_plan(job: Job, me: str, seen: Record) -> Steps:
    """The plan that the record names and its files; None, None if something is missing."""
    assert seen.plan is not None
    key, etag = seen.plan
    if job.keeps("recovery reads the plan") or seen.state != "committing":
        plan = yield from read(key)
        if plan is None or (plan != etag and job.keeps("a plan for each try")):
            return None, None
    else:
        chosen = yield from choose(job)
        plan = Plan(job.uuid, me, chosen)
    files: Files = ()
    for key, _ in plan.sets:
        found = yield from read(key)
        if found is None and seen.state == "committing":
            return None, None
        if found is not None:
            files = (*files, *found.files)
    return plan, files


def _complete_all(job: Job, files: Files, *, distrusts: bool) -> Steps:
    """Step 5, past single failures: "done", or what the last one of them was."""
    answer = "done"
    for file in files:
        one = yield from _complete(job, file, distrusts=distrusts)
        if one == "conflict":
            return one
        if one != "done":
            answer = one
    return answer


TRIES = (1, 2, 3)
"""Of a conditional Complete that the store calls a conflict, with nothing there."""


def _complete(job: Job, file: File, *, distrusts: bool) -> Steps:
    """ "Completing is repeatable". ``distrusts``: the plan is a stored one: after a 200
    the object is looked at. (The looks of production that wait for it are one here.)"""
    for number in TRIES:
        reply = yield Complete(file.key, file.upload, if_none_match=_refuses(job))
        if reply is OK and not distrusts:
            return "done"
        if reply is OK:
            found = yield from read(file.key)
            if found is not None and found.token == file.token:
                return "done"
            del found
        elif not job.keeps("completing is repeatable"):
            return "stuck"
        state, there = yield from look_at(file)
        if state == "visible":
            return "done"
        conflict = reply is REFUSED
        if conflict and there:
            return "conflict"
        if state == "gone":
            return "unresolved"
        if not conflict or number == TRIES[-1]:
            break
        del reply, state, there, conflict
    return "unfinished"


def _refuses(job: Job) -> bool:
    return job.mode in FAILING and job.keeps("`fail` never overwrites")


def _delete_old(job: Job, plan: Plan) -> Steps:
    """Step 6. HEAD, compare, delete by ETag: a neighbour's write since the plan is left."""
    for key, etag in plan.deletes:
        if job.keeps("If-Match on deletes"):
            yield from delete_if_same(key, etag)
        else:
            yield from sent(Delete((key,)))


def _mark(job: Job, me: str, state: str, *, absent: bool) -> Steps:
    """Step 7. Marker first, record second: what the record says then holds for that marker. Who has
    just completed the job, and saw none (``absent``), does not look again."""
    tries = 0
    while True:
        tries += 1
        found: Any = NOT_FOUND if absent and tries == 1 else (yield Get(SUCCESS))
        record = yield Get(job.record)
        if record is NOT_FOUND or record.body.state != state:
            return
        marker = None if found is NOT_FOUND else found.body
        if marker is not None:
            if marker.uuid == job.uuid:
                return
            named = record.body.marker == marker
            earlier = marker.completed < record.modified
            if not named and not earlier and job.keeps("a later marker is left"):
                return
        body = Marker(job.uuid, record.modified, f"{me} {tries}")
        reply = yield Put(SUCCESS, body, if_match=marker, if_none_match=marker is None)
        if reply is OK:
            return


def _batch_done(job: Job) -> Steps:
    """Step 4: whoever completes the job does it before `finish`."""
    while True:
        ledger = yield from read(LEDGER)
        if ledger.claim != job.uuid:
            return
        yield Put(LEDGER, Ledger(job.batch), if_match=ledger)


# Leaving nothing behind: sweep, finish, revert ----------------------------------------------------


def sweep(
    job: Job, spared: Files, accepted: tuple[str, ...], *, looks_first: bool = False
) -> Steps:
    """Step 8, all but the record. Whose an upload is, is never inferred. ``looks_first``: leftovers
    may name uploads that were completed: the plan is not known any more."""
    looks = looks_first and job.keeps("the sweep looks first")
    open_uploads = yield ListUploads("")  # beside the next one
    listed = yield List(job.directory)
    found = tuple(key for key, _ in listed if key != job.record)
    del listed
    planned = tuple(file.upload for file in spared)
    passed = yield from _abort_left(job, found, planned, accepted, looks=looks)
    del looks_first
    while True:
        if open_uploads is None:
            open_uploads = yield ListUploads("")
        named = tuple(
            (key, upload)
            for key, upload in open_uploads
            if upload not in planned and upload not in passed and _attributed(job, key)
        )
        open_uploads, passed = None, ()
        aborted = False
        for key, upload in named:
            one = yield from remove_listed(key, upload, looks=looks)
            aborted = aborted or one
            del one
        if not aborted:
            break  # what the listing shows has ended
        del aborted
    mine = found
    if job.given:  # the directory may hold another run's
        mine = yield from _of_this_run(job, found, accepted)
    plans = tuple(key for key in mine if key.startswith(f"{job.directory}_plan-"))
    others = tuple(key for key in mine if key not in plans)
    for keys in (plans, others):
        if keys:
            yield from sent(Delete(keys))


def _abort_left(
    job: Job, found: tuple[str, ...], planned: tuple[str, ...], accepted: tuple[str, ...], *,
    looks: bool,
) -> Steps:  # fmt: skip
    """Abort by id what leftover `.pending`s and pendingsets of ours name. Gives their uploads."""
    left = tuple(
        key for key in found if key.startswith((job.sets, job.tree)) and key not in accepted
    )
    doomed: Files = ()
    for key in left:
        body = yield from read(key)
        if body is not None and job.owns(body):
            named = tuple(f for f in body.files if f.upload not in planned)
            doomed = (*doomed, *(file for file in named if file not in doomed))
            del named
    for file in doomed:
        yield from remove(job, file, looks=looks)
    return tuple(file.upload for file in doomed)


def _of_this_run(job: Job, found: tuple[str, ...], accepted: tuple[str, ...]) -> Steps:
    mine: tuple[str, ...] = ()
    for key in found:
        if key in accepted:
            mine = (*mine, key)
            continue
        body = yield from read(key)
        if body is not None and job.owns(body):
            mine = (*mine, key)
    return mine


def _attributed(job: Job, key: str) -> bool:
    """Whether an upload's name says that it is this job's: equality of a delimited field."""
    return key.rpartition("-")[2] == job.uuid or not job.keeps("never by inference")


def finish(job: Job, me: str, seen: Record, outcome: str, *, may_remove: bool) -> Steps:
    """The record goes if this process decided undisturbed; else it says ``closed``."""
    if may_remove or not job.keeps("all others leave `closed`"):
        reply = yield from sent(Delete((job.record,), if_match=seen))
        if reply is OK:
            return
        now = yield from read(job.record)
        if now is None:
            return
    closed = seen._replace(state="closed", nonce=f"{me} closed", marker=None, outcome=outcome)
    yield from swap(job, seen, closed)


def revert(job: Job, me: str, seen: Record, files: Files | None = None) -> Steps:
    """From `committing`, by swap. ``files``: in a driver's memory; None: they are read."""
    if not job.keeps("revert has its own state"):
        return (yield from undo_plan(job, me, seen, files))
    reverting = seen._replace(state="reverting", nonce=f"{me} reverting")
    won, now = yield from swap(job, seen, reverting)
    if not won and (now is None or now.state != "reverting"):
        return "refused" if now is None else now.state
    return (yield from undo_plan(job, me, now, files if won else None))


def undo_plan(job: Job, me: str, seen: Record, files: Files | None = None) -> Steps:
    """Abort, then HEAD, then delete; then `reverted`, and only then the sweep."""
    if files is None:
        files = yield from planned_files(seen)
        if files is None:
            now = yield from read(job.record)
            return "stuck" if now == seen else "moved"
    for file in files:
        if job.keeps("abort, then HEAD, then delete"):
            yield from remove(job, file, looks=True)
        yield from _take_away(file)
        if not job.keeps("abort, then HEAD, then delete"):
            yield from sent(Abort(file.key, file.upload))
    if job.keeps("a state `reverted`") and job.keeps("revert has its own state"):
        reverted = seen._replace(state="reverted", nonce=f"{me} reverted")
        won, seen = yield from swap(job, seen, reverted)
        if not won and (seen is None or seen.state != "reverted"):
            return "moved"
    yield from sweep(job, (), (), looks_first=True)
    yield from finish(job, me, seen, "reverted", may_remove=False)
    return "reverted"


def planned_files(seen: Record) -> Steps:
    """The files of a record's plan; None if something is missing."""
    assert seen.plan is not None
    plan = yield from read(seen.plan[0])
    if plan is None:
        return None
    files: Files = ()
    for key, _ in plan.sets:
        found = yield from read(key)
        if found is None:
            return None
        files = (*files, *found.files)
    return files


def _take_away(file: File) -> Steps:
    """Delete the object that an upload has become, in the version that was looked at."""
    found = yield from read(file.key)
    if found is None or found.token != file.token:
        return
    gone = yield from delete_if_same(file.key, found)
    if gone:
        return
    found = yield from read(file.key)
    assert found is None or found.token != file.token  # a token is of one upload, and one object

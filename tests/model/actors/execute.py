"""Job commit, steps 5 to 8, by whoever executes the plan; and whoever obeys another's decision."""

from __future__ import annotations

from typing import Any

from tests.model.actors.job import (
    FAILING,
    LEDGER,
    Files,
    Job,
    Steps,
    choose,
    delete_if_same,
    look_at,
    read,
    sent,
    swap,
)
from tests.model.actors.sweep import finish, revert, sweep
from tests.model.store import (
    NOT_FOUND,
    OK,
    REFUSED,
    SUCCESS,
    Complete,
    Delete,
    File,
    Get,
    Ledger,
    Marker,
    Plan,
    Put,
    Record,
)


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

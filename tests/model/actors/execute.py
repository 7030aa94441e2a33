"""Job commit, steps 5 to 8, by whoever executes the plan; and whoever obeys another's decision."""

from __future__ import annotations

from tests.model.actors.job import FAILING, LEDGER, Files, Job, Steps, choose, read, sent, swap
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
    ListParts,
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
    """Execute the decided plan from where the record stands.

    Args:
        plan, files: in the driver's memory; None: they are read from the store.
    """
    if plan is None or not job.keeps("a plan for each try"):
        plan, files = yield from _stored_plan(job, me, seen)
        if plan is None:
            now = yield from read(job.record)
            if seen.state == "completed" and now == seen:  # steps 6 and 7 are done
                yield from sweep(job, (), (), looks_first=True)
                yield from finish(job, me, seen, "committed", may_remove=False)
                return "committed"
            if now == seen:
                return "stuck"
            return (yield from obey(job, me, now))
    assert files is not None
    if not job.keeps("complete before delete"):
        yield from _delete_old(job, plan)
    if seen.state == "committing":
        if plan.marker is not None:
            yield from sent(Delete((SUCCESS,), if_match=plan.marker))
        done = yield from _complete_all(job, files)
        if done != "done":
            return (yield from _not_completed(job, me, seen, done))
        marker = None
        if job.marks:
            marker = yield from read(SUCCESS)
        if job.keeps("a state `completed`"):
            completed = seen._replace(
                state="completed",
                nonce=f"{me} completed",
                marker=marker if job.keeps("`completed` names the marker") else None,
            )
            won, now = yield from swap(job, seen, completed)
            if not won:
                return (yield from obey(job, me, now))
            seen = now
    if job.batch and job.keeps("the ledger before finish"):
        yield from _batch_done(job)
    yield from _delete_old(job, plan)
    if job.marks:
        yield from _mark(job, me, seen.state)
    yield from sweep(job, files, tuple(key for key, _ in plan.sets))
    yield from finish(job, me, seen, "committed", may_remove=may_remove)
    return "committed"


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


def _complete_all(job: Job, files: Files) -> Steps:
    """Step 5, past single failures: "done", or what the last one of them was."""
    answer = "done"
    for file in files:
        one = yield from _complete(job, file)
        if one != "done":
            answer = one
    return answer


def _complete(job: Job, file: File) -> Steps:
    """ "Completing an upload is repeatable"."""
    reply = yield Complete(file.key, file.upload, if_none_match=_refuses(job))
    if reply is OK:
        return "done"
    if not job.keeps("completing is repeatable"):
        return "stuck"
    ours = yield from _is_there(file)
    if ours:
        return "done"
    if reply is REFUSED:
        return "conflict"
    still_open = yield ListParts(file.key, file.upload)
    if still_open is OK:
        return "unfinished"
    ours = yield from _is_there(file)  # another executor may have completed it since
    return "done" if ours else "unresolved"


def _refuses(job: Job) -> bool:
    return job.mode in FAILING and job.keeps("`fail` never overwrites")


def _is_there(file: File) -> Steps:
    found = yield from read(file.key)
    return found is not None and found.token == file.token


def _not_completed(job: Job, me: str, seen: Record, why: str) -> Steps:
    now = yield from read(job.record)
    if now != seen:
        return (yield from obey(job, me, now))
    if why == "conflict" and job.keeps("a conflict reverts"):
        return (yield from revert(job, me, seen))
    return "stuck" if why == "conflict" else why


def _delete_old(job: Job, plan: Plan) -> Steps:
    """Step 6. HEAD, compare, delete by ETag: a neighbour's write since the plan is left."""
    for key, etag in plan.deletes:
        if not job.keeps("If-Match on deletes"):
            yield from sent(Delete((key,)))
            continue
        found = yield from read(key)
        if found == etag:
            yield from sent(Delete((key,), if_match=etag))
        del found


def _mark(job: Job, me: str, state: str) -> Steps:
    """Step 7. Marker first, record second: what the record says then holds for that marker."""
    tries = 0
    while True:
        tries += 1
        found = yield Get(SUCCESS)
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

"""Files without an upload: their bytes lie in the pendingset, and whoever executes the plan PUTs
them. **Production does not do this**; docs/decisions.md ("No file is published by a PUT") says why.

An upload is used up by its Complete: whoever completes it again, however late, changes nothing. A
PUT is not used up. Its condition speaks of the key only, and a key whose file somebody took away
looks as it did before. These programs are the forms of such a PUT that came to mind.

`FORMS` are a condition, and looks at the record around the PUT. ``timed`` is the one form in which
the search finds no fault, on a store that refuses a write by its signature's age *when the write
takes effect*:

* only the holder of the record, who wrote its present version, publishes; whoever else finishes the
  job first writes a version of his own;
* a PUT is signed, then the record is read, then the PUT is sent: if the holder's version is there
  after the signature was made, the signature is older than every successor;
* a successor, and a revert, wait until every signature from before has ended;
* so does the holder, before he moves the record on, if a PUT of his was not answered.
"""

from __future__ import annotations

from tests.model.actors.job import Accepted, Files, Job, Steps, delete_if_same, read, sent, swap
from tests.model.actors.sweep import finish, planned_files, sweep
from tests.model.store import (
    EXPIRED,
    OK,
    UNANSWERED,
    Begin,
    Data,
    Delete,
    File,
    Pass,
    Plan,
    Put,
    Record,
    Sign,
)

FORMS = (
    "plain",
    "if absent",
    "if as planned",
    "look before",
    "look after",
    "look before and after",
)
"""``if as planned``: If-Match with the ETag that the plan noted, If-None-Match where it noted
nothing. The last three are ``if absent`` too, and read the record before, after, or both; whoever
finds afterwards that he was late deletes what he wrote."""

Noted = tuple[Data | None, ...]
"""What lies at the keys of a job's files when it is planned."""


def bytes_of(file: File) -> Data:
    """The object that a file becomes: what its pendingset holds."""
    return Data(*file.token, "whole")


def commit(job: Job, me: str, form: str, accepted: Accepted, there: Noted) -> Steps:
    """Decide a job whose task is done, and finish it."""
    seen = yield from read(job.record)
    if seen is None or seen.state != "running":
        return "not running"
    plan = Plan(job.uuid, me, accepted)
    yield from sent(Put(job.plan(me), plan))
    committing = seen._replace(
        state="committing", nonce=f"{me} committing", plan=(job.plan(me), plan)
    )
    won, now = yield from swap(job, seen, committing)
    if not won:
        if now is None or now.plan != committing.plan:
            yield from sent(Delete((job.plan(me),)))
        return "not running"
    files = tuple(file for _, one in accepted for file in one.files)
    return (yield from _publish(job, me, form, now, files, there))


def recover(job: Job, me: str, form: str, there: Noted) -> Steps:
    """Finish a job from wherever it stands."""
    seen = yield from read(job.record)
    if seen is None or seen.state == "closed":
        return "nothing"
    if seen.state == "running":
        aborting = seen._replace(state="aborting", nonce=f"{me} aborting")
        won, seen = yield from swap(job, seen, aborting)
        if not won:
            return "moved"
    if seen.state == "committing":
        files = yield from planned_files(seen)
        if files is None:
            return "moved"
        if form == "timed" and job.keeps("only the holder publishes"):
            mine = seen._replace(nonce=f"{me} committing")
            won, seen = yield from swap(job, seen, mine)
            if not won:
                return "moved"
            if job.keeps("a successor waits"):
                yield from _outlive()
        return (yield from _publish(job, me, form, seen, files, there))
    if seen.state == "reverting":
        return (yield from _undo(job, me, form, seen))
    return (yield from _end(job, me, seen))


def revert(job: Job, me: str, form: str) -> Steps:
    """``abort --revert``."""
    seen = yield from read(job.record)
    if seen is None or seen.state != "committing":
        return "refused"
    reverting = seen._replace(state="reverting", nonce=f"{me} reverting")
    won, now = yield from swap(job, seen, reverting)
    if not won:
        return "refused"
    return (yield from _undo(job, me, form, now))


def take_away(job: Job, key: str) -> Steps:
    """Another program that takes a file away when its job is over: it has read the file, say, and
    written what it holds elsewhere."""
    record = yield from read(job.record)
    if record is None or record.state == "closed":
        yield from sent(Delete((key,)))
    return "done"


def rewrite(job: Job, key: str, body: Data) -> Steps:
    """Another program that writes a key when the job is over: what had been there before, say."""
    record = yield from read(job.record)
    if record is None or record.state == "closed":
        yield from sent(Put(key, body))
    return "done"


def _publish(job: Job, me: str, form: str, seen: Record, files: Files, there: Noted) -> Steps:
    doubtful = False
    for file, planned in zip(files, there, strict=True):
        if form == "timed":
            one = yield from _put_timed(job, seen, file)
        else:
            one = yield from _put(job, form, seen, file, planned)
        if one not in ("done", "doubtful"):
            return one
        doubtful = doubtful or one == "doubtful"
        del one
    if doubtful and job.keeps("the holder waits for his own"):
        yield from _outlive()
    completed = seen._replace(state="completed", nonce=f"{me} completed")
    won, now = yield from swap(job, seen, completed)
    if not won:
        return "moved"
    return (yield from _end(job, me, now))


def _put(job: Job, form: str, seen: Record, file: File, planned: Data | None) -> Steps:
    """One file, in one of the `FORMS`. An unanswered PUT is sent again."""
    absent = form not in ("plain", "if as planned") or (form == "if as planned" and planned is None)
    match = planned if form == "if as planned" else None
    while True:
        if form.startswith("look before"):
            now = yield from read(job.record)
            if now != seen:
                return "moved"
            del now
        reply = yield Put(file.key, bytes_of(file), if_match=match, if_none_match=absent)
        if reply is UNANSWERED:
            continue
        if form.endswith("after"):
            now = yield from read(job.record)
            if now != seen:
                if reply is OK:
                    yield from delete_if_same(file.key, bytes_of(file))
                return "moved"
            del now
        if reply is OK:
            return "done"
        found = yield from read(file.key)
        return "done" if found is not None and found.token == file.token else "unresolved"


def _put_timed(job: Job, seen: Record, file: File) -> Steps:
    """One file: "doubtful" if a PUT of it was not answered, and may land later."""
    answer = "done"
    while True:
        signed = yield Sign()
        now = yield from read(job.record)
        if now != seen:
            return "moved"
        del now
        if not job.keeps("signed before the read"):
            signed = yield Sign()
        begun = OK
        if not job.keeps("a signature ends when the write takes effect"):
            begun = yield Begin(signed)  # its head is there; the body may take its time
        if begun is EXPIRED:
            continue
        checked = job.keeps("a signature ends when the write takes effect")
        reply = yield Put(
            file.key,
            bytes_of(file),
            if_none_match=job.keeps("only where nothing is"),
            signed=signed if checked and job.keeps("a signature ends") else None,
        )
        if reply is UNANSWERED:
            answer = "doubtful"
        elif reply is OK:
            return answer
        elif reply is not EXPIRED:
            found = yield from read(file.key)
            if found is not None:
                return answer if found.token == file.token else "unresolved"
            del found
        del reply, signed, begun, checked


def _outlive() -> Steps:
    """Wait until every signature that was made before has ended."""
    yield Pass()
    yield Pass()


def _undo(job: Job, me: str, form: str, seen: Record) -> Steps:
    files = yield from planned_files(seen)
    if files is None:
        return "moved"
    if form == "timed" and job.keeps("a revert waits"):
        yield from _outlive()
    for file in files:
        found = yield from read(file.key)
        if found is not None and found.token == file.token:
            yield from delete_if_same(file.key, found)
        del found
    reverted = seen._replace(state="reverted", nonce=f"{me} reverted")
    won, now = yield from swap(job, seen, reverted)
    if not won:
        return "moved"
    return (yield from _end(job, me, now))


def _end(job: Job, me: str, seen: Record) -> Steps:
    """Sweep, and close the record."""
    outcome = {"completed": "committed", "aborting": "aborted", "reverted": "reverted"}[seen.state]
    accepted: tuple[str, ...] = ()
    if seen.plan is not None:
        plan = yield from read(seen.plan[0])
        accepted = () if plan is None else tuple(key for key, _ in plan.sets)
    yield from sweep(job, (), accepted)
    yield from finish(job, me, seen, outcome, may_remove=False)
    return outcome

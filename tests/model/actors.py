"""The protocol's core once more, as the requests of each process. Section names are protocol.md's.

Each process is a generator that yields requests of `tests.model.store` and is sent their replies.
`tests.model.search` says how it must be written. Left out are what no order of requests depends on:
parts of uploads, paging, formats, checksums, proving the store. A batch of deletes is one request.

A rule that tests take away (`tests.model.rules`) is asked for by its name: ``job.keeps(rule)``.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any

from tests.model.store import (
    NOT_FOUND,
    OK,
    REFUSED,
    SUCCESS,
    UNANSWERED,
    Abort,
    Complete,
    Create,
    Data,
    Delete,
    File,
    Get,
    Ledger,
    List,
    ListParts,
    ListUploads,
    Marker,
    PendingSet,
    Plan,
    Put,
    Record,
    Tell,
    Wait,
    record_key,
)

Steps = Generator[Any, Any, Any]

LEDGER = "_stream"
HANDS_OFF = ("committing", "reverting")
EXCLUDING = ("fail", "replace")
Files = tuple[File, ...]


@dataclass(frozen=True)
class Job:
    """A job's names and terms.

    Attributes:
        id: names the directory; uuid: is in every token and in names.
        given: the id was given, not drawn.
        named: names of files carry the UUID.
        batch: of a streaming query; 0: none.
        adopted: it takes what Hadoop left in the directory.
        without: rules that are taken away.
    """

    id: str = "j1"
    uuid: str = "j1"
    mode: str = "append"
    accept: str = "results"
    given: bool = False
    named: bool = True
    batch: int = 0
    marks: bool = True
    adopted: bool = False
    without: frozenset[str] = frozenset()

    def keeps(self, rule: str) -> bool:
        """Whether a rule is in place."""
        return rule not in self.without

    @property
    def directory(self) -> str:
        return f"_{self.id}/"

    @property
    def record(self) -> str:
        return record_key(self.id)

    @property
    def first(self) -> Record:
        """The record as `setup` writes it: its ETag is the fence."""
        return Record(self.uuid, "running", "setup", self.mode)

    def plan(self, me: str) -> str:
        return f"_{self.id}/plan-{me if self.keeps('a plan for each try') else 'v1'}"

    @property
    def tree(self) -> str:
        return f"_{self.id}/tree/"

    @property
    def sets(self) -> str:
        return f"_{self.id}/sets/"

    def set(self, attempt: str) -> str:
        return f"{self.sets}{attempt}"

    def key(self, name: str) -> str:
        """The final key of a file."""
        return f"{name}-{self.uuid}" if self.named else name

    def owns(self, body: Any) -> bool:
        """Whether a control object is this job's: by the UUID, never by the id."""
        if self.adopted and (not body.uuid or not self.keeps("no adoption of our tokens")):
            return True
        return body.uuid == self.uuid or not self.keeps("a UUID for each run")


# Requests that need an answer ---------------------------------------------------------------------


def sent(request: Any) -> Steps:
    """Send a request until it is answered."""
    while True:
        reply = yield request
        if reply is not UNANSWERED:
            return reply


def read(key: str) -> Steps:
    """An object's body, None if there is none."""
    found = yield Get(key)
    return None if found is NOT_FOUND else found.body


def swap(job: Job, leaves: Record, record: Record) -> Steps:
    """Replace a record by another, if nobody was faster. Returns whether it won, and the record as
    it is now. An unanswered swap is unknown while the state it leaves is still there."""
    if not job.keeps("the decision is a swap"):
        yield from sent(Put(job.record, record))
        return True, record
    while True:
        reply = yield Put(job.record, record, if_match=leaves)
        if reply is OK:
            return True, record
        now = yield from read(job.record)
        if now is not None and now.nonce == record.nonce:
            return True, now
        if now != leaves:
            return False, now
        if not job.keeps("an unanswered swap is unknown"):
            return False, leaves._replace(state="aborted")


# A task's attempt ---------------------------------------------------------------------------------


def attempt(
    job: Job,
    name: str,
    task: str = "t",
    files: tuple[str, ...] = ("x",),
    content: str = "whole",
    *,
    driver: str = "",
    tells: bool = True,
) -> Steps:
    """Write, fence, commit, second read ("Task commit and abort", "The fence").

    Args:
        driver: wait until it has started the job. tells: its message reaches the driver.
    """
    if driver:
        started = yield Wait((f"{job.id} started",), (driver,))
        if started is None:
            return "never started"
    written, retried = yield from _write(job, name, files, content)
    record = yield from read(job.record)
    if not _is_running(job, record):
        yield from _undo(job, name, written, retried, record, stored=False)
        return "late"
    body = PendingSet(job.uuid, task, name, written)
    reply = yield from sent(Put(job.set(name), body, if_none_match=True))
    if reply is REFUSED:  # by our own PUT, or one that is swept by now: the second read tells
        yield Get(job.set(name))
    if job.keeps("a second read of the fence"):
        record = yield from read(job.record)
        if not _is_running(job, record) and not _hands_off(job, record):
            yield from _undo(job, name, written, retried, record, stored=True)
            return "late"
    if tells:
        yield Tell(name, (job.set(name), body))
    return "done"


def _write(job: Job, name: str, files: tuple[str, ...], content: str) -> Steps:
    """Create each file's upload; also tells the keys whose Create was sent twice."""
    written: Files = ()
    retried: tuple[str, ...] = ()
    for file in files:
        key = job.key(file)
        data = Data(job.uuid, name, content)
        upload = yield Create(key, data)
        if upload is UNANSWERED:
            retried = (*retried, key)
            upload = yield from sent(Create(key, data))
        written = (*written, File(key, upload, data.token))
    return written, retried


def _is_running(job: Job, record: Record | None) -> bool:
    """The fence: the exact version that setup wrote."""
    if job.keeps("a UUID for each run"):
        return record == job.first
    return record is not None and record.state == "running"


def _hands_off(job: Job, record: Record | None) -> bool:
    """A driver that lists may have accepted the attempt, a revert needs to read it."""
    if record is None or not job.owns(record) or record.state not in HANDS_OFF:
        return False
    return job.keeps(f"hands off while {record.state}")


def _undo(
    job: Job, name: str, files: Files, retried: tuple[str, ...], record: Any, *, stored: bool
) -> Steps:
    if stored:
        found = yield from read(job.set(name))
        if found is not None and job.owns(found):
            yield from sent(Delete((job.set(name),)))
    for file in files:
        yield from sent(Abort(file.key, file.upload))
    if record is not None and job.owns(record) and record.state == "committing":
        return  # one of them may be planned
    if not job.keeps("a retried Create looks for its twin"):
        return
    for key in retried:
        open_uploads = yield ListUploads(key)
        for key_of, upload in open_uploads:
            if key_of == key:
                yield from sent(Abort(key_of, upload))


def attached(job: Job, name: str) -> Steps:
    """An attempt in a process that finds the job by its name."""
    record = yield from read(job.record)
    if record != job.first:
        return "not running"
    return (yield from attempt(job, name))


def closer(job: Job, name: str) -> Steps:
    """A process that opens a path by name, closes the file, and commits nothing."""
    files, retried = yield from _write(job, name, ("x",), "whole")
    pending = f"{job.tree}{name}/x.pending"
    yield from sent(Put(pending, PendingSet(job.uuid, "", name, files)))
    if not job.keeps("a read after each .pending"):
        return "closed"
    record = yield from read(job.record)
    if _is_running(job, record) or _hands_off(job, record):
        return "closed"
    yield from sent(Delete((pending,)))
    yield from _undo(job, name, files, retried, record, stored=False)
    return "late"


def alive(job: Job) -> Steps:
    """A live driver's sign of life (decisions.md, "Liveness")."""
    yield from sent(Put(f"{job.directory}alive", PendingSet(job.uuid, "", "alive", ())))
    if job.keeps("a read after each sign of life"):
        record = yield from read(job.record)
        if not _is_running(job, record) and not _hands_off(job, record):
            yield from sent(Delete((f"{job.directory}alive",)))
    return "done"


# Setup --------------------------------------------------------------------------------------------


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
    started = yield from _create(job)
    if started == "exists":
        return "exists"
    if not looks_first:
        free = yield from _look(job)
        if not free:
            yield from _withdraw(job, me, undisturbed=started == "started")
            return "conflict"
    return started


def _create(job: Job) -> Steps:
    reply = yield Put(job.record, job.first, if_none_match=True)
    if reply is OK:
        return "started"
    while True:
        now = yield from read(job.record)
        if now is not None:
            return "retried" if now.nonce == job.first.nonce and job.owns(now) else "exists"
        reply = yield Put(job.record, job.first, if_none_match=True)
        if reply is OK:
            return "retried"


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


# The driver ---------------------------------------------------------------------------------------


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
    accepted: tuple[tuple[str, PendingSet], ...] = ()
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


def commit(
    job: Job, me: str, accepted: tuple[tuple[str, PendingSet], ...], *, may_remove: bool = True
) -> Steps:
    """ "Job commit", steps 1 to 4; then `execute`."""
    seen = yield from read(job.record)
    if seen is None or not job.owns(seen):
        return (yield from _without_record(job))
    if seen.state != "running":
        return (yield from obey(job, me, seen))
    # 1. Load
    if job.accept == "listing" or not job.keeps("a job of messages is never listed"):
        accepted = yield from _listed(job)
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


def _listed(job: Job) -> Steps:
    """One attempt of each task from a listing, by a fixed rule: here the last name."""
    listed = yield List(job.sets)
    keys = tuple(key for key, _ in listed)
    loaded: tuple[tuple[str, PendingSet], ...] = ()
    for key in keys:
        found = yield from read(key)
        if found is not None and job.owns(found):
            loaded = (*loaded, (key, found))
    return tuple({one.task: (key, one) for key, one in loaded}.values())


def _loaded(accepted: tuple[tuple[str, PendingSet], ...]) -> Steps:
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
        return (yield from _without_record(job))
    decided = False
    if seen.state == "running":
        aborting = seen._replace(state="aborting", nonce=f"{me} aborting")
        decided, seen = yield from swap(job, seen, aborting)
    if seen is None:
        return (yield from _without_record(job))
    if seen.state == "aborting":
        yield from sweep(job, (), ())
        yield from finish(job, me, seen, "aborted", may_remove=may_remove and decided)
        return "aborted"
    return seen.outcome if seen.state == "closed" else seen.state


def obey(job: Job, me: str, seen: Record | None) -> Steps:
    """Do what the stored record says: a driver that did not decide."""
    if seen is None:
        return (yield from _without_record(job))
    if seen.state in ("committing", "completed"):
        return (yield from execute(job, me, seen, None, None, may_remove=False))
    return seen.outcome if seen.state == "closed" else seen.state


def _without_record(job: Job) -> Steps:
    """Absent is "unknown", not "aborted" (I10); our marker tells."""
    marker = yield from read(SUCCESS)
    if marker is not None and marker.uuid == job.uuid:
        return "committed"
    return "unknown" if job.keeps("absent means unknown") else "aborted"


# Job commit, steps 5 to 8 -------------------------------------------------------------------------


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
                yield from sweep(job, (), ())
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
        chosen = yield from _listed(job)
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
    reply = yield Complete(
        file.key, file.upload, if_none_match=job.mode == "fail" and _refuses(job)
    )
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
    return job.keeps("`fail` never overwrites")


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
    """Step 6."""
    for key, etag in plan.deletes:
        yield from sent(Delete((key,), if_match=etag if job.keeps("If-Match on deletes") else None))


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


def sweep(job: Job, spared: Files, accepted: tuple[str, ...]) -> Steps:
    """Step 8, all but the record. Whose an upload is, is never inferred."""
    listed = yield List(job.directory)
    found = tuple(key for key, _ in listed if key != job.record)
    del listed
    planned = tuple(file.upload for file in spared)
    yield from _abort_left(job, found, planned, accepted)
    while True:
        open_uploads = yield ListUploads("")
        named = tuple(
            (key, upload)
            for key, upload in open_uploads
            if upload not in planned and _attributed(job, key)
        )
        del open_uploads
        if not named:
            break
        for key, upload in named:
            yield from sent(Abort(key, upload))
    mine = found
    if job.given:  # the directory may hold another run's
        mine = yield from _of_this_run(job, found, accepted)
    plans = tuple(key for key in mine if key.startswith(f"{job.directory}plan-"))
    others = tuple(key for key in mine if key not in plans)
    for keys in (plans, others):
        if keys:
            yield from sent(Delete(keys))


def _abort_left(
    job: Job, found: tuple[str, ...], planned: tuple[str, ...], accepted: tuple[str, ...]
) -> Steps:
    """Abort by id what leftover `.pending`s and pendingsets of ours name."""
    left = tuple(
        key for key in found if key.startswith((job.sets, job.tree)) and key not in accepted
    )
    doomed: Files = ()
    for key in left:
        body = yield from read(key)
        if body is not None and job.owns(body):
            doomed = (*doomed, *(file for file in body.files if file.upload not in planned))
    for file in doomed:
        yield from sent(Abort(file.key, file.upload))


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


# Recovery -----------------------------------------------------------------------------------------


def recovery(job: Job, me: str, *, may_remove: bool = False) -> Steps:
    """Finish or undo a job from wherever it stands; it is old enough."""
    while True:
        seen = yield from read(job.record)
        if seen is None or seen.state == "closed" or not job.owns(seen):
            return "nothing"
        if seen.state == "running":
            aborting = seen._replace(state="aborting", nonce=f"{me} aborting")
            yield from swap(job, seen, aborting)
            continue
        if seen.state in ("committing", "completed"):
            ended = yield from execute(job, me, seen, None, None, may_remove=may_remove)
            if ended in ("stuck", "unresolved", "unfinished"):
                return ended
        elif seen.state == "reverting":
            ended = yield from _undo_plan(job, me, seen)
            if ended in ("stuck", "unresolved", "unfinished"):
                return ended
        else:
            yield from sweep(job, (), ())
            outcome = "reverted" if seen.state == "reverted" else "aborted"
            yield from finish(job, me, seen, outcome, may_remove=may_remove)


def operator(job: Job, me: str) -> Steps:
    """``abort --revert``: undoes what is decided, refused once it is completed."""
    seen = yield from read(job.record)
    if seen is None or seen.state != "committing":
        return "refused"
    return (yield from revert(job, me, seen))


def revert(job: Job, me: str, seen: Record) -> Steps:
    """From `committing`, by swap."""
    if not job.keeps("revert has its own state"):
        return (yield from _undo_plan(job, me, seen))
    reverting = seen._replace(state="reverting", nonce=f"{me} reverting")
    won, now = yield from swap(job, seen, reverting)
    if not won:
        return "refused" if now is None else now.state
    return (yield from _undo_plan(job, me, now))


def _undo_plan(job: Job, me: str, seen: Record) -> Steps:
    """Abort, then HEAD, then delete; then `reverted`, and only then the sweep."""
    assert seen.plan is not None
    plan = yield from read(seen.plan[0])
    files: Files = ()
    if plan is not None:
        for key, _ in plan.sets:
            found = yield from read(key)
            if found is None:
                plan = None
                break
            files = (*files, *found.files)
    if plan is None:
        now = yield from read(job.record)
        return "stuck" if now == seen else "moved"
    for file in files:
        if job.keeps("abort, then HEAD, then delete"):
            yield from sent(Abort(file.key, file.upload))
        found = yield from read(file.key)
        if found is not None and found.token == file.token:
            yield from sent(Delete((file.key,), if_match=found))
        if not job.keeps("abort, then HEAD, then delete"):
            yield from sent(Abort(file.key, file.upload))
        del found
    if job.keeps("a state `reverted`") and job.keeps("revert has its own state"):
        reverted = seen._replace(state="reverted", nonce=f"{me} reverted")
        won, seen = yield from swap(job, seen, reverted)
        if not won:
            return "moved"
    yield from sweep(job, (), ())
    yield from finish(job, me, seen, "reverted", may_remove=False)
    return "reverted"


def cleanup(job: Job) -> Steps:
    """What a job whose record is absent or closed has left, after an hour."""
    record = yield from read(job.record)
    if record is not None and record.state != "closed":
        return "lives"
    yield from sweep(job, (), ())
    return "clean"


def adopter(job: Job, me: str, without: frozenset[str]) -> Steps:
    """The operator's word that a Hadoop job is dead: write a record, commit from a listing. Never
    where our tokens lie."""
    adopted = Job(job.id, "adopted", accept="listing", named=False, adopted=True, without=without)
    record = yield from read(job.record)
    if record is not None:
        return "refused"
    listed = yield List(job.directory)
    if not listed or (
        adopted.keeps("no adoption of our tokens") and any(b.uuid for _, b in listed)
    ):
        return "refused"
    del listed
    started = yield from _create(adopted)
    if started == "exists":
        return "refused"
    return (yield from commit(adopted, me, (), may_remove=False))


# Neighbours ---------------------------------------------------------------------------------------


def overwriter(key: str) -> Steps:
    """Another program writes a key."""
    yield Put(key, Data("", "", f"foreign {key}"))
    return "done"


def uploader(key: str) -> Steps:
    """Another program uploads, and completes what it uploaded."""
    upload = yield Create(key, Data("", "", "foreign"))
    reply = yield Complete(key, upload)
    return "done" if reply is OK else "robbed"


# Streams ------------------------------------------------------------------------------------------


def batch(
    job: Job, me: str, others: tuple[Job, ...], accepted: tuple[tuple[str, PendingSet], ...]
) -> Steps:
    """One run of a micro-batch: setup, then "Streams" 1 to 4. ``others``: the runs it may find."""
    if job.keeps("the record before the claim"):
        yield from _create(job)
    claimed = yield from _claim(job, me, others)
    if not job.keeps("the record before the claim"):
        yield from _create(job)
    if claimed is None:
        return "unsettled"
    if not claimed:
        yield from abort(job, me, may_remove=False)
        return "done before"
    return (yield from commit(job, me, accepted, may_remove=False))


def _claim(job: Job, me: str, others: tuple[Job, ...]) -> Steps:
    """Whether the batch is this job's to publish; None: the run before it cannot be settled now."""
    while True:
        ledger = yield from read(LEDGER)
        if ledger.done >= job.batch:
            return False
        if not job.keeps("a claim in the ledger") or ledger.claim == job.uuid:
            return True
        claimant = tuple(other for other in others if other.uuid == ledger.claim)
        for other in claimant:
            removes = not job.keeps("a settled run stays closed")
            ended = yield from recovery(other, me, may_remove=removes)
            if ended != "nothing" and job.keeps("an unsettled run stops the next"):
                return None
        if claimant:
            now = yield from read(LEDGER)
            if now != ledger:
                continue
        yield Put(LEDGER, Ledger(ledger.done, job.uuid), if_match=ledger)


def _batch_done(job: Job) -> Steps:
    """Step 4: whoever completes the job does it before `finish`."""
    while True:
        ledger = yield from read(LEDGER)
        if ledger.claim != job.uuid:
            return
        yield Put(LEDGER, Ledger(job.batch), if_match=ledger)

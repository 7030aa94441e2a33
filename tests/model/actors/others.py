"""Who finds the job from outside: recovery, operators, cleanup, runs of a stream, neighbours."""

from __future__ import annotations

from tests.model.actors.driver import abort, commit, execute, finish, revert, sweep, undo_plan
from tests.model.actors.job import LEDGER, Accepted, Job, Steps, create, read, swap
from tests.model.store import OK, Complete, Create, Data, Ledger, List, Put


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
            ended = yield from undo_plan(job, me, seen)
            if ended in ("stuck", "unresolved", "unfinished"):
                return ended
        else:
            yield from sweep(job, (), (), looks_first=seen.state == "reverted")
            outcome = "reverted" if seen.state == "reverted" else "aborted"
            yield from finish(job, me, seen, outcome, may_remove=may_remove)


def operator(job: Job, me: str) -> Steps:
    """``abort --revert``: undoes what is decided, refused once it is completed."""
    seen = yield from read(job.record)
    if seen is None or seen.state != "committing":
        return "refused"
    return (yield from revert(job, me, seen))


def cleanup(job: Job) -> Steps:
    """What a job whose record is absent or closed has left, after an hour."""
    record = yield from read(job.record)
    if record is not None and record.state != "closed":
        return "lives"
    yield from sweep(job, (), (), looks_first=record is None or record.outcome == "committed")
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
    started = yield from create(adopted)
    if started == "exists":
        return "refused"
    return (yield from commit(adopted, me, (), may_remove=False))


def overwriter(key: str) -> Steps:
    """Another program writes a key."""
    yield Put(key, Data("", "", f"foreign {key}"))
    return "done"


def uploader(key: str) -> Steps:
    """Another program uploads, and completes what it uploaded."""
    upload = yield Create(key, Data("", "", "foreign"))
    reply = yield Complete(key, upload)
    return "done" if reply is OK else "robbed"


def batch(job: Job, me: str, others: tuple[Job, ...], accepted: Accepted) -> Steps:
    """One run of a micro-batch: setup, then "Streams" 1 to 4. ``others``: the runs it may find."""
    started = ""
    if job.keeps("the record before the claim"):
        started = yield from create(job)
    claimed = yield from _claim(job, me, others)
    if not job.keeps("the record before the claim"):
        yield from create(job)
    undisturbed = started == "started"
    if claimed is None:
        return "unsettled"
    if not claimed:
        yield from abort(job, me, may_remove=undisturbed)
        return "done before"
    return (yield from commit(job, me, accepted, may_remove=undisturbed))


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

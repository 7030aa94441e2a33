"""Leaving nothing behind: sweep, finish, revert."""

from __future__ import annotations

from tests.model.actors.job import (
    Files,
    Job,
    Steps,
    delete_if_same,
    read,
    remove,
    remove_listed,
    sent,
    swap,
)
from tests.model.store import OK, Abort, Delete, File, List, ListUploads, Record


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

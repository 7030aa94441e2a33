"""Two handles on one attempt: one commits it, one aborts it ("Two handles" in protocol.md).

The attempt's file is closed: its `.pending` lies in the attempt's tree, its upload is open.
"""

from __future__ import annotations

from tests.model.actors.job import Files, Job, Steps, hands_off, is_running, read, remove, sent
from tests.model.store import REFUSED, Delete, File, List, PendingSet, Put


def committing(job: Job, name: str, task: str, own: Files) -> Steps:
    """Commit the attempt. ``own``: the files that this handle has closed; it may have none."""
    keys, files = yield from _tree(job, name)
    stored: Files = ()
    if not files or not set(own) <= set(files):  # another handle has committed it, or undoes it
        found = yield from read(job.set(name))
        if not _is_set(job, found) or not set(own) <= set(found.files):
            yield from aborting(job, name, task, own)
            return "failed"
        stored = found.files
        del found
    else:
        if own:  # its own Creates are covered
            record = yield from read(job.record)
            if not is_running(job, record):
                if hands_off(job, record):
                    yield from aborting(job, name, task, own)
                else:
                    yield from _undo_late(job, name, own)
                return "late"
            del record
        body = PendingSet(job.uuid, task, name, files)
        reply = yield from sent(Put(job.set(name), body, if_none_match=True))
        stored = files
        if reply is REFUSED:
            found = yield from read(job.set(name))
            if found is not None and (found.aborted or not set(files) <= set(found.files)):
                yield from aborting(job, name, task, own)  # claimed by an aborter
                return "failed"
            del found
        del body, reply
    del stored
    record = yield from read(job.record)
    if not is_running(job, record) and not hands_off(job, record):
        yield from _undo_late(job, name, own)
        return "late"
    if keys:
        yield from sent(Delete(keys))
    return "done"


def aborting(job: Job, name: str, task: str, own: Files = ()) -> Steps:
    """Abort the attempt: a handle that knows its name. It claims the pendingset's key first: who
    wins the key decides whether the attempt is committed or undone. ``own``: the files that this
    handle has closed."""
    claims = job.keeps("claim before undo")
    claimed = False
    found = None
    if claims:
        tombstone = PendingSet(job.uuid, task, name, (), aborted=True)
        reply = yield from sent(Put(job.set(name), tombstone, if_none_match=True))
        claimed = reply is not REFUSED
        del reply, tombstone
    if not claimed:
        found = yield from read(job.set(name))
        claimed = found is not None and job.owns(found) and found.aborted
        found = found.files if _is_set(job, found) else None
    record = yield from read(job.record)
    ended = not is_running(job, record) and not hands_off(job, record)
    del record
    if found is not None and not ended:
        return "committed, or may be"
    if claimed and ended and job.keeps("a read after each claim"):
        yield from sent(Delete((job.set(name),)))  # the job's sweep may be over
    yield from _undo(job, name, own, found, looks=ended or (not claimed and claims))
    return "aborted the attempt"


def _undo_late(job: Job, name: str, own: Files) -> Steps:
    """The job has ended: whatever was accepted is completed or undone by now."""
    found = yield from read(job.set(name))
    found = found.files if _is_set(job, found) else None
    yield from _undo(job, name, own, found, looks=True)


def _is_set(job: Job, found: PendingSet | None) -> bool:
    """Whether the attempt is committed, and by this run."""
    return found is not None and job.owns(found) and not found.aborted


def _tree(job: Job, name: str) -> Steps:
    """The keys of the attempt's `.pending`s, and the files that they name."""
    listed = yield List(f"{job.tree}{name}/")
    keys = tuple(key for key, _ in listed)
    del listed
    files: Files = ()
    for key in keys:
        body = yield from read(key)
        if body is not None and job.owns(body):
            files = (*files, *body.files)
    return keys, files


def _undo(job: Job, name: str, own: Files, stored: Files | None, *, looks: bool) -> Steps:
    """Abort all that is known of the attempt; then delete what names it. ``stored``: the files of
    its pendingset, if it has one. ``looks``: a driver may have accepted it."""
    keys, files = yield from _tree(job, name)
    doomed: tuple[File, ...] = tuple(dict.fromkeys((*own, *(stored or ()), *files)))
    del files
    for file in doomed:
        yield from remove(job, file, looks=looks)
    if stored is not None:
        yield from sent(Delete((job.set(name),)))
    if keys:
        yield from sent(Delete(keys))

"""Two handles on one attempt: one commits it, one aborts it ("Two handles" in protocol.md).

The attempt's file is closed: its `.pending` lies in the attempt's tree, its upload is open.
"""

from __future__ import annotations

from tests.model.actors.job import Files, Job, Steps, hands_off, is_running, read, remove, sent
from tests.model.store import REFUSED, Delete, File, List, PendingSet, Put


def committing(job: Job, name: str, task: str, own: File) -> Steps:
    """Commit the attempt: the handle that closed its file."""
    _, files = yield from _tree(job, name)
    body = PendingSet(job.uuid, task, name, (own,))
    if own not in files:  # another handle has committed it, or undoes it
        found = yield from read(job.set(name))
        if found != body:
            return "failed"
    else:
        reply = yield from sent(Put(job.set(name), body, if_none_match=True))
        if reply is REFUSED:
            found = yield from read(job.set(name))
            if found is not None and found != body:
                return "failed"  # claimed by an aborter
    record = yield from read(job.record)
    if not is_running(job, record) and not hands_off(job, record):
        found = yield from read(job.set(name))
        if found is not None and job.owns(found):
            yield from sent(Delete((job.set(name),)))
        yield from _undo(job, name, stored=True)
        return "late"
    yield from _remove_tree(job, name)
    return "done"


def aborting(job: Job, name: str, task: str) -> Steps:
    """Abort the attempt: a handle that knows its name. It claims the pendingset's key first: who
    wins the key decides whether the attempt is committed or undone."""
    stored = False
    if job.keeps("claim before undo"):
        tombstone = PendingSet(job.uuid, task, name, (), aborted=True)
        reply = yield from sent(Put(job.set(name), tombstone, if_none_match=True))
        if reply is REFUSED:
            found = yield from read(job.set(name))
            stored = found is not None and job.owns(found) and not found.aborted
    else:
        found = yield from read(job.set(name))
        stored = found is not None and job.owns(found)
    record = yield from read(job.record)
    ended = not is_running(job, record) and not hands_off(job, record)
    if stored and not ended:
        return "committed, or may be"
    yield from _undo(job, name, stored=stored)
    takes_back = ended and job.keeps("a read after each claim")
    if stored or takes_back:
        found = yield from read(job.set(name))
        if found is not None and job.owns(found):
            yield from sent(Delete((job.set(name),)))
    return "aborted the attempt"


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


def _remove_tree(job: Job, name: str) -> Steps:
    listed = yield List(f"{job.tree}{name}/")
    keys = tuple(key for key, _ in listed)
    if keys:
        yield from sent(Delete(keys))


def _undo(job: Job, name: str, *, stored: bool) -> Steps:
    """Abort what the tree names, then delete it."""
    keys, files = yield from _tree(job, name)
    for file in files:
        yield from remove(job, file, looks=stored)
    if keys:
        yield from sent(Delete(keys))

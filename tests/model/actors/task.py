"""Attempts of tasks: "Task commit and abort", "The fence"."""

from __future__ import annotations

from typing import Any

from tests.model.actors.job import (
    HANDS_OFF,
    Files,
    Job,
    Steps,
    hands_off,
    is_running,
    read,
    remove,
    remove_listed,
    sent,
)
from tests.model.store import (
    REFUSED,
    UNANSWERED,
    Create,
    Data,
    Delete,
    File,
    Get,
    List,
    ListUploads,
    PendingSet,
    Put,
    Tell,
    Wait,
)


def attempt(
    job: Job, name: str, task: str = "t", files: tuple[str, ...] = ("x",), content: str = "whole",
    *, driver: str = "", tells: bool = True,
) -> Steps:  # fmt: skip
    """Write, fence, commit, second read ("Task commit and abort", "The fence"). ``driver``: wait
    until it has started the job. ``tells``: its message reaches the driver."""
    if driver:
        started = yield Wait((f"{job.id} started",), (driver,))
        if started is None:
            return "never started"
    written, retried = yield from _write(job, name, files, content)
    record = yield from read(job.record)
    if not is_running(job, record):
        yield from _undo(job, name, written, retried, record, stored=False)
        return "late"
    body = PendingSet(job.uuid, task, name, written)
    reply = yield from sent(Put(job.set(name), body, if_none_match=True))
    if reply is REFUSED:  # by our own PUT, or one that is swept by now: the second read tells
        yield Get(job.set(name))
    if job.keeps("a second read of the fence"):
        record = yield from read(job.record)
        if not is_running(job, record) and not hands_off(job, record):
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


def _undo(
    job: Job, name: str, files: Files, retried: tuple[str, ...], record: Any, *, stored: bool
) -> Steps:
    """Abort what is known. ``stored``: its pendingset was, a driver may have accepted it."""
    found = None
    if stored:
        found = yield from read(job.set(name))
        if found is not None and (not job.owns(found) or found.aborted):
            found = None
    looks = stored and job.keeps("look first")
    for file in files:
        yield from remove(job, file, looks=looks)
    if found is not None:  # last: it names what is to be aborted
        yield from sent(Delete((job.set(name),)))
    del found, looks
    yield from _twins(job, retried, record)


def _twins(job: Job, retried: tuple[str, ...], record: Any) -> Steps:
    """The upload of a lost Create: whose id nobody knows."""
    if record is not None and job.owns(record) and record.state in HANDS_OFF:
        return  # one of them may be planned
    if not job.keeps("a retried Create looks for its twin"):
        return
    for key in retried:
        open_uploads = yield ListUploads(key)
        for key_of, upload in open_uploads:
            if key_of == key:
                yield from remove_listed(key_of, upload, looks=True)


def late(job: Job, name: str, stored: tuple[str, PendingSet]) -> Steps:
    """An attempt whose pendingset is stored, and that was paused before the second read."""
    record = yield from read(job.record)
    if is_running(job, record) or hands_off(job, record):
        return "done"
    yield from _undo(job, name, stored[1].files, (), record, stored=True)
    return "late"


def attached(job: Job, name: str) -> Steps:
    """An attempt in a process that finds the job by its name."""
    record = yield from read(job.record)
    if record != job.first:
        return "not running"
    return (yield from attempt(job, name))


def closer(job: Job, name: str, file: str = "x", told: str = "closed") -> Steps:
    """A process that opens a path by name, closes the file, and commits nothing. Who commits the
    attempt may have done so before the file was saved: then it is never published, and says so.
    ``told``: what it returns when the file was closed well."""
    files, retried = yield from _write(job, name, (file,), "whole")
    pending = f"{job.tree}{name}/{file}.pending"
    yield from sent(Put(pending, PendingSet(job.uuid, "", name, files)))
    if not job.keeps("a read after each .pending"):
        return told
    record: Any = None
    if not job.keeps("the set before the fence"):
        record = yield from read(job.record)
    found = yield from read(job.set(name))
    left_out = (
        found is not None
        and job.owns(found)
        and not (not found.aborted and set(files) <= set(found.files))
    )
    del found
    if not left_out and record is None:
        record = yield from read(job.record)
    ended = not left_out and not is_running(job, record) and not hands_off(job, record)
    if not left_out and not ended:
        return told
    yield from sent(Delete((pending,)))
    for one in files:
        yield from remove(job, one, looks=True)
    if retried and record is None:
        record = yield from read(job.record)
    yield from _twins(job, retried, record)
    return "late" if ended else "failed"


def alive(job: Job) -> Steps:
    """A live driver's sign of life (decisions.md, "Liveness")."""
    yield from sent(Put(f"{job.directory}alive", PendingSet(job.uuid, "", "alive", ())))
    if job.keeps("a read after each sign of life"):
        record = yield from read(job.record)
        if not is_running(job, record) and not hands_off(job, record):
            yield from sent(Delete((f"{job.directory}alive",)))
    return "done"


# Two handles on one attempt: one commits it, one aborts it ("Two handles") ------------------------


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
    yield from _undo_known(job, name, own, found, looks=ended or (not claimed and claims))
    return "aborted the attempt"


def _undo_late(job: Job, name: str, own: Files) -> Steps:
    """The job has ended: whatever was accepted is completed or undone by now."""
    found = yield from read(job.set(name))
    found = found.files if _is_set(job, found) else None
    yield from _undo_known(job, name, own, found, looks=True)


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


def _undo_known(job: Job, name: str, own: Files, stored: Files | None, *, looks: bool) -> Steps:
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

"""A job as the model's processes know it, and the requests that need an answer."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tests.model.store import (
    DENIED,
    NOT_FOUND,
    OK,
    UNANSWERED,
    Abort,
    Delete,
    File,
    Get,
    List,
    ListParts,
    PendingSet,
    Put,
    Record,
    record_key,
)

Steps = Generator[Any, Any, Any]

LEDGER = "_stream"
HANDS_OFF = ("committing", "reverting")
FAILING = ("fail", "fail_partitions")
BY_PARTITION = {"fail_partitions", "replace_partitions"}
EXCLUDING = {"fail", "replace", *BY_PARTITION}
Files = tuple[File, ...]
Accepted = tuple[tuple[str, PendingSet], ...]
"""Key and body of pendingsets."""


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
        return f"_{self.id}/_plan-{me if self.keeps('a plan for each try') else 'v1'}"

    @property
    def tree(self) -> str:
        return f"_{self.id}/tree/"

    @property
    def sets(self) -> str:
        return f"_{self.id}/sets/"

    def set(self, attempt: str) -> str:
        return f"{self.sets}{attempt}"

    def key(self, name: str) -> str:
        return f"{name}-{self.uuid}" if self.named else name

    def owns(self, body: Any) -> bool:
        """Whether a control object is this job's: by the UUID, never by the id."""
        if self.adopted and (not body.uuid or not self.keeps("no adoption of our tokens")):
            return True
        return body.uuid == self.uuid or not self.keeps("a UUID for each run")


def sent(request: Any) -> Steps:
    """Send a request until it is answered."""
    while True:
        reply = yield request
        if reply is not UNANSWERED:
            return reply


def read(key: str) -> Steps:
    found = yield Get(key)
    return None if found is NOT_FOUND else found.body


def look_at(file: File) -> Steps:
    """What an upload is: "visible", "open" or "gone"; and whether an object is at its key."""
    found = yield from read(file.key)
    if found is not None and found.token == file.token:
        return "visible", True
    there = found is not None
    del found
    reply = yield ListParts(file.key, file.upload)
    if reply is OK:
        return "open", there
    found = yield from read(file.key)  # another process may have completed it since
    if found is not None and found.token == file.token:
        return "visible", True
    return "gone", found is not None


def remove(job: Job, file: File, *, looks: bool) -> Steps:
    """Abort an upload; where it ``looks``, not one that has ended: perhaps it became its object."""
    if looks:
        state, _ = yield from look_at(file)
        if state != "open":
            return
        del state, _
    yield from sent(Abort(file.key, file.upload))


def remove_listed(key: str, upload: str, *, looks: bool) -> Steps:
    """The same of an upload that only a listing tells of: what it would become is not known.
    Returns whether it was aborted."""
    if looks:
        reply = yield ListParts(key, upload)
        if reply is not OK:
            return False
    yield from sent(Abort(key, upload))
    return True


def delete_if_same(key: str, etag: Any) -> Steps:
    """Delete an object if it is still that one. Returns False if it was left. A refused condition
    is no answer yet: the object is looked at again."""
    while True:
        found = yield from read(key)
        if found != etag:
            return found is None
        del found
        reply = yield from sent(Delete((key,), if_match=etag))
        if reply is OK:
            return True


def swap(job: Job, leaves: Record, record: Record) -> Steps:
    """Replace a record by another, if nobody was faster. Returns whether it won, and the record as
    it is now. An unanswered swap is unknown while the state it leaves is still there; and one that
    was refused when it had not been answered."""
    if not job.keeps("the decision is a swap"):
        yield from sent(Put(job.record, record))
        return True, record
    while True:
        reply = yield Put(job.record, record, if_match=leaves)
        if reply is OK:
            return True, record
        if reply is DENIED and not job.keeps("a refused swap after an unanswered one is unknown"):
            return None, leaves
        now = yield from read(job.record)
        if now is not None and now.nonce == record.nonce:
            return True, now
        if now != leaves:
            return False, now
        if not job.keeps("an unanswered swap is unknown"):
            return False, leaves._replace(state="aborted")


def is_running(job: Job, record: Record | None) -> bool:
    """The fence: the exact version that setup wrote."""
    if job.keeps("a UUID for each run"):
        return record == job.first
    return record is not None and record.state == "running"


def hands_off(job: Job, record: Record | None) -> bool:
    """A driver that lists may have accepted the attempt, a revert needs to read it."""
    if record is None or not job.owns(record) or record.state not in HANDS_OFF:
        return False
    return job.keeps(f"hands off while {record.state}")


def create(job: Job) -> Steps:
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


def choose(job: Job) -> Steps:
    """One attempt of each task from a listing, by a fixed rule: here the last name."""
    listed = yield List(job.sets)
    keys = tuple(key for key, _ in listed)
    loaded: Accepted = ()
    for key in keys:
        found = yield from read(key)
        if found is not None and job.owns(found) and not found.aborted:
            loaded = (*loaded, (key, found))
    return tuple({one.task: (key, one) for key, one in loaded}.values())

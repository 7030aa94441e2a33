"""The model's store: S3 as far as the protocol can tell, as a value.

A store is a dict that nobody changes: `execute` makes the next one. Objects lie under their keys,
open uploads under ``upload:<id>``, and under ``ghost:`` what only the checkers look at. An object's
ETag is its body: S3's is a hash of it, so that two writes of the same bytes cannot be told apart,
here as there. Listings are strongly consistent, one request is one step.

Keys that begin with ``_`` are control objects and `_SUCCESS`; all others are data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any, NamedTuple

SUCCESS = "_SUCCESS"
UPLOAD = "upload:"
GHOST = "ghost:"


class Reply(Enum):
    """Answers without a body."""

    OK = "ok"
    NOT_FOUND = "404"
    REFUSED = "412"
    UNANSWERED = "no answer"
    DENIED = "no answer, then 403"


OK, NOT_FOUND, REFUSED, UNANSWERED, DENIED = Reply

# What lies in the store ---------------------------------------------------------------------------


class Data(NamedTuple):
    """A file of an attempt, open upload or object. ``uuid`` is "" for what another program wrote.
    ``upload`` is the upload that it is, or was."""

    uuid: str
    attempt: str
    content: str
    upload: str = ""

    @property
    def token(self) -> tuple[str, str]:
        """By which an object that an upload became is told."""
        return self.uuid, self.attempt


class File(NamedTuple):
    """What a `.pending` says: an upload that is ready to complete."""

    key: str
    upload: str
    token: tuple[str, str]


class PendingSet(NamedTuple):
    """All files of one committed attempt; also one `.pending`. ``uuid`` is the token in metadata:
    "" on Hadoop's. ``aborted``: a tombstone, by which an aborter claims the key."""

    uuid: str
    task: str
    attempt: str
    files: tuple[File, ...]
    aborted: bool = False


class Plan(NamedTuple):
    """What one try wants decided. ``sets``: key and ETag of the accepted pendingsets; ``deletes``:
    key and ETag of what is to be replaced; ``marker``: the ETag of the old `_SUCCESS`;
    ``partitions``: those of a job by partition. An announcement names nothing but partitions."""

    uuid: str
    nonce: str
    sets: tuple[tuple[str, PendingSet], ...]
    deletes: tuple[tuple[str, Hashable], ...] = ()
    marker: Hashable = None
    partitions: tuple[str, ...] = ()


class Record(NamedTuple):
    """The job record. ``plan`` is key and ETag; ``marker`` the ETag of `_SUCCESS` at completion."""

    uuid: str
    state: str
    nonce: str
    mode: str = "append"
    plan: tuple[str, Hashable] | None = None
    marker: Hashable = None
    outcome: str = ""


class Marker(NamedTuple):
    """`_SUCCESS`: whose, and when its job completed."""

    uuid: str
    completed: int
    nonce: str


class Ledger(NamedTuple):
    """Of a streaming query: the last batch that is published, and who may publish the next."""

    done: int
    claim: str = ""


class Object(NamedTuple):
    """An entry of the store. ``modified``: Last-Modified: how many seconds have passed. ``by``: its
    writer. ``late``: its request landed when the sender had given up or died. ``decided``: its job
    had left ``running`` by then."""

    body: Any
    modified: int
    by: str
    late: bool = False
    decided: bool = False


# Requests -----------------------------------------------------------------------------------------


class Put(NamedTuple):
    key: str
    body: Hashable
    if_match: Hashable = None
    if_none_match: bool = False


class Get(NamedTuple):
    """GET or HEAD. Replies `Found` or NOT_FOUND."""

    key: str


class Found(NamedTuple):
    body: Any
    modified: int


class Delete(NamedTuple):
    """One object, or a batch of them; a condition only on one."""

    keys: tuple[str, ...]
    if_match: Hashable = None


class List(NamedTuple):
    """Replies keys with their ETags, of objects under a prefix; "" lists the data."""

    prefix: str


class Create(NamedTuple):
    """Create an upload and send its parts. Replies its id."""

    key: str
    data: Data


class Complete(NamedTuple):
    key: str
    upload: str
    if_none_match: bool = False


class Abort(NamedTuple):
    key: str
    upload: str


class ListUploads(NamedTuple):
    """Replies key and id of open uploads under a prefix."""

    prefix: str


class ListParts(NamedTuple):
    """Replies whether an upload is open."""

    key: str
    upload: str


class Tell(NamedTuple):
    """No request of S3: a message between processes (a task's result to its driver)."""

    name: str
    body: Hashable


class Wait(NamedTuple):
    """No request of S3: wait for one of these messages. Replies name and body of the first; None
    once all the actors that might send one have ended."""

    names: tuple[str, ...]
    senders: tuple[str, ...]


Store = Mapping[str, Any]
READS = (Get, List, ListUploads, ListParts, Wait)
NOT_OF_S3 = (Tell, Wait)
REQUESTS = (Put, Delete, Create, Complete, Abort, Tell, *READS)


def record_key(job_id: str) -> str:
    return f"_{job_id}/_job.json"


def is_data(key: str) -> bool:
    return not key.startswith(("_", UPLOAD, GHOST))


def directory_of(key: str) -> str:
    """The partition that a key lies in, with its closing slash; "" is the destination's root."""
    directory, slash, _ = key.rpartition("/")
    return directory + slash


def execute(
    store: Store, request: Any, by: str, *, late: bool = False, forgetful: bool = False,
    costly: bool = False,
) -> tuple[Store, Any]:  # fmt: skip
    """The store after a request, and the reply to it. ``forgetful``: a second Complete is NOT_FOUND
    (MinIO and others); else it answers as the first while the object is still that one (AWS).
    ``costly``: the Abort of an upload that was completed takes the object that it became."""
    match request:
        case Get(key):
            held = store.get(key)
            return store, Found(held.body, held.modified) if held else NOT_FOUND
        case List(prefix):
            keys = sorted(k for k in store if (k.startswith(prefix) if prefix else is_data(k)))
            return store, tuple((key, store[key].body) for key in keys)
        case ListUploads(prefix):
            ids = sorted(k[len(UPLOAD) :] for k in store if k.startswith(UPLOAD + prefix))
            return store, tuple((upload.rpartition("#")[0], upload) for upload in ids)
        case ListParts(_, upload):
            return store, OK if UPLOAD + upload in store else NOT_FOUND
        case Put(key, body, if_match, if_none_match):
            return _put(store, key, body, if_match, if_none_match, by, late)
        case Delete(keys, if_match):
            held = store.get(keys[0]) if keys else None
            if if_match is not None and held is not None and held.body != if_match:
                return store, REFUSED
            after = {k: v for k, v in store.items() if k not in keys}
            _note_swept_plans(store, keys, after)
            if held is not None and isinstance(held.body, Record):
                _in_order(after, held.body.uuid, "finished")
            return after, OK
        case Create(key, data):
            count = store.get(f"{GHOST}count {key}", 0) + 1
            upload = f"{key}#{count}"
            made = Object(data._replace(upload=upload), 0, by, late, _decided(store, data.uuid))
            return {**store, UPLOAD + upload: made, f"{GHOST}count {key}": count}, upload
        case Abort(key, upload):
            if costly and _became(store, key, upload):
                return {k: v for k, v in store.items() if k != key}, OK
            return {k: v for k, v in store.items() if k != UPLOAD + upload}, OK
        case Complete(key, upload, if_none_match):
            return _complete(store, key, upload, if_none_match, forgetful)
        case Tell(name, body):
            return {**store, f"{GHOST}message {name}": body}, OK
    raise TypeError(request)


def _put(
    store: Store, key: str, body: Any, if_match: Any, if_none_match: bool, by: str, late: bool
) -> tuple[Store, Reply]:
    held = store.get(key)
    if if_match is not None and (held is None or held.body != if_match):
        return store, REFUSED
    if if_none_match and held is not None:
        return store, REFUSED
    after = dict(store)
    if isinstance(body, Record):
        _remember(store, body, after)
    if isinstance(body, Plan) and body.deletes:
        after[f"{GHOST}beside {body.uuid}"] = _unfinished(store, body.uuid)
    uuid = getattr(body, "uuid", "")
    modified = after.get(GHOST + "clock", 0)
    after[key] = Object(body, modified, by, late, _decided(store, uuid))
    return after, OK


def _remember(store: Store, record: Record, after: dict[str, Any]) -> None:
    """Keep what a record says, for the checkers: it may be gone when they look."""
    state = f"closed {record.outcome}" if record.state == "closed" else record.state
    fate = fate_of(store, record.uuid)
    if fate[-1:] == (state,):
        return
    after[f"{GHOST}fate {record.uuid}"] = (*fate, state)
    if state == "committing" and record.plan is not None:
        key, etag = record.plan
        after[f"{GHOST}plan {record.uuid}"] = store[key].body if key in store else etag
    if state == "completed" and not store.get(GHOST + "clock stands"):
        after[GHOST + "clock"] = store.get(GHOST + "clock", 0) + 1
    if state in ("running", "completed"):
        _in_order(after, record.uuid, state)
    elif record.state == "closed":
        _in_order(after, record.uuid, "finished")


def _in_order(after: dict[str, Any], uuid: str, what: str) -> None:
    """Keep the order of jobs, where a configuration asks for it."""
    if GHOST + "order" in after:
        after[GHOST + "order"] = (*after[GHOST + "order"], (uuid, what))


def fate_of(store: Store, uuid: str) -> tuple[str, ...]:
    """The states that a job's record has been in; ``closed`` with its outcome."""
    fate: tuple[str, ...] = store.get(f"{GHOST}fate {uuid}", ())
    return fate


def plan_of(store: Store, uuid: str) -> Plan | None:
    """The plan that was decided for a job."""
    return store.get(f"{GHOST}plan {uuid}")


def _unfinished(store: Store, but: str) -> tuple[str, ...]:
    """The jobs, but one, that are decided to commit and have not swept their plan: perhaps not all
    that they publish is visible and marked."""
    records = [held.body for held in store.values() if _is_record(held)]
    return tuple(
        sorted(
            record.uuid
            for record in records
            if record.uuid != but
            and record.state in ("committing", "completed")
            and f"{GHOST}over {record.uuid}" not in store
        )
    )


def _note_swept_plans(store: Store, keys: tuple[str, ...], after: dict[str, Any]) -> None:
    """Note the jobs whose decided plan goes: all that they publish is visible and marked."""
    for key in keys:
        held = store.get(key)
        if isinstance(held, Object) and isinstance(held.body, Plan):
            uuid = held.body.uuid
            if plan_of(store, uuid) == held.body and "completed" in fate_of(store, uuid):
                after[f"{GHOST}over {uuid}"] = True


def _is_record(held: Any) -> bool:
    return isinstance(held, Object) and isinstance(held.body, Record)


def beside(store: Store, uuid: str) -> tuple[str, ...]:
    """The jobs that were unfinished when a job planned what it deletes."""
    found: tuple[str, ...] = store.get(f"{GHOST}beside {uuid}", ())
    return found


def _decided(store: Store, uuid: str) -> bool:
    return bool(uuid) and fate_of(store, uuid)[-1:] != ("running",)


def _complete(
    store: Store, key: str, upload: str, if_none_match: bool, forgetful: bool
) -> tuple[Store, Reply]:
    held, opened = store.get(key), store.get(UPLOAD + upload)
    if opened is None:
        same = _became(store, key, upload)
        return store, OK if same and not forgetful else NOT_FOUND
    if if_none_match and held is not None:
        return store, REFUSED
    after = {k: v for k, v in store.items() if k != UPLOAD + upload}
    after[key] = opened._replace(modified=store.get(GHOST + "clock", 0))
    return after, OK


def _became(store: Store, key: str, upload: str) -> bool:
    held = store.get(key)
    return isinstance(held, Object) and getattr(held.body, "upload", "") == upload

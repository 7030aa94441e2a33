"""The store as a value: what lies in production's `MemoryStore`, as the promises read it.

A store is a dict that nobody changes: `World.execute` makes the next one. Objects lie under their
keys below the destination, open uploads under ``upload:<id>``, and under ``ghost:`` what only the
promises look at. The rules of S3 are those of `stores.memory_bucket`: a request is carried out on a
bucket that is filled with what the store holds. Listings are strongly consistent, one request is
one step.

Keys that begin with ``_`` are control objects and `_SUCCESS`; all others are data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from magic_committer.commit.sets import from_pending, is_tombstone
from magic_committer.errors import StoreError
from magic_committer.hadoop.documents import decode_pending, decode_pendingset, decode_success
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.plan import Plan as StoredPlan
from magic_committer.protocol.record import JOB_METADATA, TOKEN_METADATA, JobRecord
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.memory_bucket import OpenUpload, StoredBytes

DEST = Destination.parse("s3://bucket/t")
SUCCESS = "_SUCCESS"
UPLOAD = "upload:"
GHOST = "ghost:"
CLOCK = "ghost:clock"
READS = ("get", "head", "list", "list_uploads", "list_parts")
BEGAN = 1_700_000_000.0
"""The store's time when a search begins, in seconds."""


class Data(NamedTuple):
    """A file of an attempt, open upload or object. ``uuid`` is "" for what another program wrote.
    ``token``: by which an object that an upload became is told."""

    uuid: str
    token: str
    content: str


class Control(NamedTuple):
    """A control object that names files: a `.pending`, a pendingset; or none: a sign of life."""

    uuid: str
    files: tuple[tuple[str, str], ...] = ()


class Plan(NamedTuple):
    """What one try wants decided, by its ``nonce``. ``files``: keys and tokens, where its sets were
    stored; ``deletes``: key, ETag and token of what is to be replaced; ``partitions``: those of a
    job by partition. An announcement names nothing but partitions."""

    uuid: str
    nonce: str
    files: tuple[tuple[str, str], ...]
    deletes: tuple[tuple[str, str, str], ...]
    partitions: tuple[str, ...]


class Record(NamedTuple):
    """The job record. ``plan``: its key."""

    uuid: str
    state: str
    mode: str
    plan: str
    outcome: str


class Marker(NamedTuple):
    """What all jobs share: `_SUCCESS`, and whose it is; a stream's ledger, which is nobody's."""

    uuid: str


class Object(NamedTuple):
    """An entry of the store: ``body`` for the promises, ``raw`` as the bucket has it. ``late``: its
    request landed when the sender had given up or died. ``decided``: its job had left ``running``
    by then; ``by`` whom it was written, then."""

    body: Any
    raw: StoredBytes | OpenUpload
    by: str = ""
    late: bool = False
    decided: bool = False

    @property
    def mark(self) -> tuple[Any, ...]:
        """By which two of them are told apart."""
        raw = self.raw
        if isinstance(raw, OpenUpload):
            etags = (part.part.etag for part in raw.parts.values())
            version: tuple[Any, ...] = (self.body.token, *etags)
        else:
            version = (raw.etag, raw.last_modified, raw.upload_id)
        return (*version, self.by, self.late, self.decided)


Store = Mapping[str, Any]


def is_data(key: str) -> bool:
    return not key.startswith(("_", UPLOAD, GHOST))


def directory_of(key: str) -> str:
    """The partition that a key lies in, with its closing slash; "" is the destination's root."""
    directory, slash, _ = key.rpartition("/")
    return directory + slash


def key_of(store: Store) -> tuple[Any, ...]:
    """By which two stores are told apart."""
    return tuple(sorted((k, v.mark if isinstance(v, Object) else v) for k, v in store.items()))


class World:
    """Carries requests out on stores. ``forgetful``: a second Complete is answered with 404 (MinIO
    and others), else as the first while the object is still that one (AWS). ``costly``: the abort
    of an upload that was completed takes the object that it became."""

    def __init__(self, port: MemoryStore, *, forgetful: bool = False, costly: bool = False) -> None:
        self._bucket = port._bucket
        self._bucket.forgetful_complete = forgetful
        self._costly = costly
        self._clock = 0
        self._upload = ""
        self._bucket.clock = lambda: BEGAN + self._clock
        self._bucket.ids = lambda: self._upload
        self._raw: tuple[Store, Any] = ({}, None)
        self._read: dict[Any, Any] = {}
        self._tokens: dict[tuple[str, str], str] = {}

    def execute(
        self, store: Store, sent: Request, by: str, *, late: bool = False
    ) -> tuple[Store, Any]:
        """The store after a request, and its answer: a value, or the `StoreError`."""
        key = sent.key.removeprefix(DEST.prefix)
        count = f"{GHOST}count {key}"
        self._fill(store, changes=sent.verb not in READS)
        after = dict(store)
        self._upload = sent.upload_id
        if sent.verb == "create_upload":
            after[count] = store.get(count, 0) + 1
            self._upload = f"{key}#{after[count]}"
        try:
            answer = sent.effect()
        except StoreError as error:
            return store, error
        if sent.verb in READS:
            return store, answer
        if self._costly and sent.verb == "abort_upload" and UPLOAD + self._upload not in store:
            held = store.get(key)
            if held is not None and held.raw.upload_id == sent.upload_id:
                del after[key]
        for one in sent.keys or (sent.key,):
            self._note_object(store, after, one, by, late)
        self._note_upload(store, after, by, late)
        return after, answer

    def _fill(self, store: Store, *, changes: bool) -> None:
        """Fill the bucket with what a store holds; with copies, if a request changes it."""
        bucket = self._bucket
        if self._raw[0] is not store:
            held: dict[str, Any] = {
                key: one.raw for key, one in store.items() if isinstance(one, Object)
            }
            opened = {key[len(UPLOAD) :]: r for key, r in held.items() if key.startswith(UPLOAD)}
            objects = {DEST.prefix + k: r for k, r in held.items() if not k.startswith(UPLOAD)}
            self._raw = store, (objects, opened)
        objects, opened = self._raw[1]
        if changes:
            objects = dict(objects)
            opened = {name: replace(one, parts=dict(one.parts)) for name, one in opened.items()}
        bucket.objects, bucket.uploads = objects, opened
        numbers = [one.number for one in opened.values()]
        bucket._upload_numbers = iter((max(numbers, default=0) + 1,))
        self._clock = store.get(CLOCK, 0)

    def _note_object(
        self, store: Store, after: dict[str, Any], at: str, by: str, late: bool
    ) -> None:
        """Note what a request has changed under a key."""
        key = at.removeprefix(DEST.prefix)
        raw, held = self._bucket.objects.get(at), store.get(key)
        if raw is None:
            if held is not None and after.pop(key, None) is not None:
                _note_gone(store, held.body, after)
            return
        if held is not None and raw is held.raw:
            return
        body, was = self._body(store, key, raw), store.get(UPLOAD + raw.upload_id)
        if was is not None:  # S3 shows it from now on, as it was begun
            after[key] = was._replace(body=body, raw=raw)
            return
        if isinstance(body, Record):
            _remember(store, body, after)
        if isinstance(body, Plan) and body.deletes:
            after[f"{GHOST}beside {body.uuid}"] = _unfinished(store, body.uuid)
        raw.last_modified = BEGAN + after.get(CLOCK, 0)
        after[key] = _entry(store, body, raw, by, late)

    def _note_upload(self, store: Store, after: dict[str, Any], by: str, late: bool) -> None:
        name = UPLOAD + self._upload
        opened, held = self._bucket.uploads.get(self._upload), store.get(name)
        if opened is None:
            after.pop(name, None)
            return
        content = b"".join(part.body for part in opened.parts.values()).decode()
        body = _data(opened.attributes.metadata, content)
        if held is None:
            after[name] = _entry(store, body, opened, by, late)
        else:
            after[name] = held._replace(body=body, raw=opened)

    # What objects say -----------------------------------------------------------------------------

    def _body(self, store: Store, key: str, raw: StoredBytes) -> Any:
        """What an object says, for the promises."""
        uuid = raw.attributes.metadata.get(JOB_METADATA, "")
        known = (key, raw.etag, uuid, raw.upload_id)
        found = self._read.get(known)
        if found is None:
            found = self._decoded(store, key, raw, uuid)
            if not isinstance(found, Plan):  # what its sets hold is read as it is stored
                self._read[known] = found
        return found

    def _decoded(self, store: Store, key: str, raw: StoredBytes, uuid: str) -> Any:
        body, name = b"".join(raw.pieces), key.rpartition("/")[2]
        if is_data(key):
            data = _data(raw.attributes.metadata, body.decode())
            self._tokens[key, raw.etag] = data.token
            return data
        if key == SUCCESS:
            said = decode_success(body, key).diagnostics if body else {}
            return Marker((said or {}).get("magic-committer.job", ""))
        if name == "_job.json":
            record = JobRecord.decode(body, DEST.prefix + key)
            plan = record.plan.key.removeprefix(DEST.prefix) if record.plan else ""
            state, mode = str(record.state), record.terms.mode
            return Record(record.uuid, state, mode, plan, record.outcome)
        if name.startswith("_plan-"):
            return self._plan(store, key, StoredPlan.decode(body, key))
        if name.endswith(".pendingset"):
            stored = decode_pendingset(body, key)
            files = () if is_tombstone(stored.extra_data or {}) else stored.commits
            return Control(uuid, tuple(map(_file, files)))
        if name.endswith(".pending"):
            return Control(uuid, (_file(decode_pending(body, key)),))
        if key.startswith("__magic_stream/"):
            return Marker("")
        return Control(uuid)

    def _plan(self, store: Store, key: str, plan: StoredPlan) -> Plan:
        tree = f"{key.rpartition('/')[0]}/"
        sets = (store.get(f"{tree}{one.name}") for one in plan.sets)
        files = tuple(file for held in sets if held is not None for file in held.body.files)
        gone = ((ref.key.removeprefix(DEST.prefix), ref.etag) for ref in plan.deletes)
        deletes = tuple((key, etag, self._tokens.get((key, etag), "")) for key, etag in gone)
        return Plan(plan.uuid, plan.nonce, files, deletes, tuple(plan.partitions))


def _data(metadata: Mapping[str, str], content: str) -> Data:
    mark = metadata.get(TOKEN_METADATA, "")
    return Data(mark.partition(".")[0], mark, content)


def _entry(store: Store, body: Any, raw: Any, by: str, late: bool) -> Object:
    uuid = getattr(body, "uuid", "")
    decided = bool(uuid) and fate_of(store, uuid)[-1:] != ("running",)
    return Object(body, raw, by if decided else "", late, decided)


def _file(pending: Any) -> tuple[str, str]:
    """Key and token of a file that a `.pending` names."""
    upload = from_pending(pending, "")
    return upload.key.removeprefix(DEST.prefix), upload.token


# What the promises remember -----------------------------------------------------------------------


def _remember(store: Store, record: Record, after: dict[str, Any]) -> None:
    """Keep what a record says: it may be gone when they look."""
    state = f"closed {record.outcome}" if record.state == "closed" else record.state
    fate = fate_of(store, record.uuid)
    if fate[-1:] == (state,):
        return
    after[f"{GHOST}fate {record.uuid}"] = (*fate, state)
    if state == "committing" and record.plan:
        held = store.get(record.plan)
        after[f"{GHOST}plan {record.uuid}"] = (
            held.body if held else Plan(record.uuid, "", (), (), ())
        )
    if state == "completed" and not store.get(CLOCK + " stands"):
        after[CLOCK] = store.get(CLOCK, 0) + 1
    if state in ("running", "completed"):
        _in_order(after, record.uuid, state)
    elif record.state == "closed":
        _in_order(after, record.uuid, "finished")


def _note_gone(store: Store, body: Any, after: dict[str, Any]) -> None:
    if isinstance(body, Record):
        _in_order(after, body.uuid, "finished")
    decided = isinstance(body, Plan) and plan_of(store, body.uuid) == body
    if decided and "completed" in fate_of(store, body.uuid):  # all of it is visible and marked
        after[f"{GHOST}over {body.uuid}"] = True


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
    records = [held.body for held in store.values() if is_record(held)]
    decided = (one for one in records if one.state in ("committing", "completed"))
    uuids = (one.uuid for one in decided if one.uuid != but)
    return tuple(sorted(uuid for uuid in uuids if f"{GHOST}over {uuid}" not in store))


def is_record(held: Any) -> bool:
    return isinstance(held, Object) and isinstance(held.body, Record)


def beside(store: Store, uuid: str) -> tuple[str, ...]:
    """The jobs that were unfinished when a job planned what it deletes."""
    found: tuple[str, ...] = store.get(f"{GHOST}beside {uuid}", ())
    return found

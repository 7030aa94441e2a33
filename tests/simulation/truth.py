"""What really happened: a shadow of the store, written from the effects of requests alone.

The checkers (`promises`) judge by this record, never by what the code under test believes. It knows
the formats (it reads records, plans and pendingsets as JSON), and nothing of the library's logic.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from magic_committer.stores.memory import MemoryStore
from tests.plans import read_plan
from tests.simulation.kinds import object_of, shown
from tests.simulation.scheduler import Actor, Scheduler

FOREIGN = "foreign"
JOB_METADATA = "magic-committer-job"
TOKEN_METADATA = "magic-committer-token"
MARKER_JOB = "magic-committer.job"
"""The diagnostic of a `_SUCCESS` that holds its job's UUID."""

DECISIONS = {"committing": "committed", "aborting": "aborted"}
ENDS = ("absent", "closed")


@dataclass(slots=True)
class AttemptTruth:
    """What one attempt wrote. ``files``: bytes by final key. cut: its input ended too early: it
    must never be published. ``told``: its message reached a driver."""

    job: str
    task: str
    name: str
    cut: bool
    files: dict[str, bytes] = field(default_factory=dict)
    told: bool = False
    closed: dict[str, int] = field(default_factory=dict)
    """Files whose close was told to have done well, and when that began."""
    unsure: set[str] = field(default_factory=set)
    """Those whose writer may not have been able to ask whether the attempt is committed."""
    undone: bool = False  # its own task gave it up
    stored_step: int = 0  # when its pendingset was stored; 0: never


@dataclass(slots=True)
class UploadTruth:
    key: str
    job: str
    actor: Actor | None
    step: int
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class HadoopTruth:
    """An upload of a Hadoop job's, which a pendingset of it names."""

    job_id: str
    key: str
    body: bytes


@dataclass(slots=True)
class ObjectTruth:
    """An object as it was last written. ``upload``: what it was made of."""

    job: str
    actor: Actor | None
    step: int
    time: float
    upload: str = ""
    body: bytes = b""
    etag: str = ""
    modified: float = 0.0


@dataclass(slots=True)
class JobTruth:
    """One job, by its record's writes."""

    uuid: str
    id: str
    directory: str
    terms: dict[str, Any]
    given: bool
    state: str = ""
    nonce: str = ""
    decision: str = ""
    decided_step: int = 0
    decided_by: str = ""
    decided_sent: int = 0  # when the request was sent that decided
    set_up_step: int = 0
    ended_step: int = 0  # when its record was closed, or went; 0 before
    swept_step: int = 0
    """When the first plan or pendingset was deleted of it that was completed; 0 before."""
    adopted: bool = False
    plan_key: str = ""
    plan_step: int = 0  # when the decided plan was stored. Whatever it names was looked at before
    plan_since: int = 0
    """When the call began that stored it. Whatever was there before that is in it."""
    partitions: tuple[str, ...] = ()
    tasks: int = 0  # how many tasks the decided plan accepts; each may have no files
    conflicted: bool = False  # A Complete of its met an object of somebody else's
    turned_away: bool = False  # A Complete of its was answered 409 or 412
    nothing_said: bool = False  # A caller said that there is nothing to publish
    nothing_told: bool = False
    """Somebody was told that it is committed, which has published nothing."""
    handed_out: bool = False  # its setup returned: others may know it
    forgotten: bool = False  # an operator deleted its closed record
    refused: bool = False  # its setup raised
    completed_time: float | None = None
    accepted: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Of the decided plan: key, task and attempt by upload id."""
    deletes: dict[str, str] = field(default_factory=dict)
    """Of the decided plan: ETag by key of what is to be deleted, the old marker too."""
    deletes_modified: dict[str, float | None] = field(default_factory=dict)
    """And the Last-Modified, where the plan tells it."""
    deleted: dict[str, int] = field(default_factory=dict)
    """When it deleted them. What is written there later is another object, whatever its bytes."""
    taken_as_is: frozenset[str] = frozenset()  # unresolved keys that the operator accepted
    unknown_plan: str = ""  # why the decided plan could not be read at its decision
    completed: dict[str, int] = field(default_factory=dict)
    """The step at which an upload became an object."""
    checkpoint: str = ""  # of a job of a streaming query: the hash that its record holds
    batch: int | None = None
    """What the job was begun for, of a streaming query; None: it is of none."""

    @property
    def tree(self) -> str:
        """Where its sets are."""
        waits = self.terms.get("committer") in ("manifest", "v1", "v2")
        return f"t/_temporary/manifest_{self.uuid}/" if waits else self.directory


_WAITED = re.compile(r"_temporary/manifest_([0-9a-f]{32})/00/tasks/([^/]+)/")
"""What the id of a file that waits begins with: job and attempt."""


class Truth:
    """The shadow. `note_*` are called at the moment of the effect."""

    def __init__(self, store: MemoryStore, scheduler: Scheduler) -> None:
        self.store = store
        self.scheduler = scheduler
        self.jobs: dict[str, JobTruth] = {}
        self.at_record: dict[str, str] = {}
        self.attempts: dict[tuple[str, str], AttemptTruth] = {}
        self.uploads: dict[str, UploadTruth] = {}
        self.open: set[str] = set()
        self.objects: dict[str, ObjectTruth] = {}
        self.meddled: set[str] = set()
        """Keys that somebody else wrote or deleted after a job of ours had completed them, and keys
        whose upload was taken by a lifecycle rule."""
        self.named: dict[str, str] = {}
        """Uploads that a `.pending` or `.pendingset` of ours names, with its key; also if it is
        gone, unless its own task took it back."""
        self.hadoop: dict[str, HadoopTruth] = {}  # uploads of a Hadoop job, by id
        self.hidden: set[str] = set()  # open uploads that a listing did not show
        self.versions: dict[str, list[tuple[str, float, int]]] = {}
        """Of each key: ETag, Last-Modified and step of all that was ever there."""
        self._heads: dict[tuple[str, str], list[int]] = {}
        """When a process looked at an object; by the process and the key."""
        self.calls: dict[str, int] = {}  # when the call on a job began that a process is in
        self.plans: dict[str, tuple[int, int]] = {}
        """Of each plan: when the call began that stored it, and when it was stored."""
        self.unmarked_by = ""  # the job that deleted the marker last
        self.looked: dict[tuple[str, str], float] = {}
        """How long nothing of a directory had changed when an operator listed it, at most; by the
        operator's name and the directory."""
        self.visits: Counter[str] = Counter()
        self.removed: Counter[tuple[str, str]] = Counter()
        """How many records, control objects and uploads each process has removed."""

    @property
    def step(self) -> int:
        return self.scheduler.steps

    def made_by(self, upload_id: str, key: str) -> tuple[str, AttemptTruth | None]:
        """The job and the attempt of an upload that has become an object."""
        waited = _WAITED.match(upload_id)
        if waited:
            return waited[1], self.attempts.get((waited[1], waited[2]))
        token = self.token_of(key)
        return token.partition(".")[0], self.attempt_of(token)

    def attempt_of(self, token: str) -> AttemptTruth | None:
        job, _, rest = token.partition(".")
        return self.attempts.get((job, rest.rpartition(".")[0]))

    def token_of(self, key: str) -> str:
        """The token of the object that is there."""
        return self.store.attributes(key).metadata.get(TOKEN_METADATA, "")

    # Writes -----------------------------------------------------------------------------------

    def note_upload(self, upload_id: str, key: str, actor: Actor | None) -> None:
        job = actor.job if actor is not None else FOREIGN
        self.uploads[upload_id] = UploadTruth(key, job, actor, self.step, self.scheduler.now)
        self.open.add(upload_id)

    def note_object(
        self, key: str, actor: Actor | None, upload_id: str = "", job: str = FOREIGN
    ) -> ObjectTruth | None:
        """An object was written; returns what was there. ``job``: whose, where nobody acts."""
        before = self.objects.get(key)
        if before is not None and before.upload and before.upload != upload_id:
            self.meddled.add(key)
        if actor is None:
            pass
        elif upload_id in self.hadoop:
            owner = self.adopter(upload_id)
            job = owner.uuid if owner is not None else FOREIGN
        elif upload_id and object_of(key) == "data":
            job, _ = self.made_by(upload_id, key)
        elif object_of(key) == "_SUCCESS":
            job = orjson.loads(self.store.body(key))["diagnostics"][MARKER_JOB]
        else:
            job = self.store.attributes(key).metadata.get(JOB_METADATA, "") or actor.job
        stored = self.store._bucket.objects[key]
        self.objects[key] = ObjectTruth(
            job, actor, self.step, self.scheduler.now, upload_id, self.store.body(key),
            stored.etag, stored.last_modified,
        )  # fmt: skip
        self.versions.setdefault(key, []).append((stored.etag, stored.last_modified, self.step))
        self.open.discard(upload_id)
        return before

    def named_in(self, document: dict[str, Any]) -> list[tuple[str, str]]:
        """The uploads that a set or a `.pending` names, with their keys. In a manifest those are
        files that wait."""
        if "taskAttemptDir" not in document:
            commits = document.get("commits", (document,))
            return [(one["uploadId"], shown(one["destinationKey"])) for one in commits]
        root = self.store.root.as_uri().replace("///", "/") + "/"  # type: ignore[attr-defined]
        return [
            (f"{unquote(one['s'].removeprefix(root))}#{one['e']}",
             shown(unquote(one["d"].removeprefix(root))))
            for one in document["files"]
        ]  # fmt: skip

    def note_named(self, key: str, actor: Actor | None = None) -> None:
        """A `.pending`, a `.pendingset` or a manifest was written."""
        document = orjson.loads(self.store.body(key))
        if "taskAttemptDir" in document:
            there = {one.upload_id for one in self.store.open_uploads()}
            for upload_id, name in self.named_in(document):
                if upload_id in there and upload_id not in self.uploads:
                    self.note_upload(upload_id, name, actor)
        if ("commits" in document or "files" in document) and document["extraData"]:
            extra = document["extraData"]
            who = extra.get("magic-committer.job", ""), extra.get("magic-committer.attempt", "")
            if who in self.attempts:
                known = self.attempts[who]
                known.stored_step = known.stored_step or self.step
        for upload_id, _ in self.named_in(document):
            self.named[upload_id] = key

    def note_taken_back(self, key: str) -> None:
        """A task has deleted a `.pending` or `.pendingset` of its own."""
        self.named = {upload: by for upload, by in self.named.items() if by != key}

    def note_head(self, key: str, actor: Actor) -> None:
        self._heads.setdefault((actor.name, key), []).append(self.step)

    def looked_at(self, key: str, actor: Actor, sent: int) -> int:
        """When a process last looked at an object before it sent a request; 0: never."""
        looks = self._heads.get((actor.name, key), [])
        return max((step for step in looks if step <= sent), default=0)

    def note_look(self, directory: str, actor: Actor) -> None:
        """An operator listed a directory, as it does for its age."""
        times = [there.time for key, there in self.objects.items() if key.startswith(directory)]
        look = (actor.name, directory)
        age = self.scheduler.now - max(times, default=self.scheduler.now)
        self.looked[look] = max(self.looked.get(look, 0.0), age)

    def note_plan_sent(self, key: str, actor: Actor) -> None:
        """A plan is being stored."""
        self.plans.setdefault(key, (self.calls.get(actor.name, self.step), 0))

    def note_plan_stored(self, key: str) -> None:
        since, before = self.plans.get(key, (self.step, 0))
        self.plans[key] = since, before or self.step

    def note_gone(self, key: str) -> ObjectTruth | None:
        """An object was deleted; returns what was there."""
        gone = self.objects.pop(key, None)
        if gone is not None and object_of(key) in ("plan", "pendingset"):
            for job in self.jobs.values():
                if job.state == "completed" and self._is_needed_by(job, key):
                    job.swept_step = job.swept_step or self.step
        if gone is not None and gone.upload:
            self.meddled.add(key)
        return gone

    @staticmethod
    def _is_needed_by(job: JobTruth, key: str) -> bool:
        """Whether a plan or pendingset is one that tells what a job publishes: not that of a late
        attempt which takes its own back."""
        if not key.startswith(job.tree) or key == job.plan_key:
            return key == job.plan_key
        name = key.rpartition("/")[2].removeprefix("_")
        attempt = name.removesuffix(".pendingset").removesuffix("-manifest.json")
        return job.adopted or any(attempt == accepted for _, _, accepted in job.accepted.values())

    def note_record(self, key: str, actor: Actor, sent: int) -> tuple[JobTruth, str] | None:
        """A record was written by a request of step ``sent``: its job, and the state that it left.
        None: the same bytes again."""
        record = orjson.loads(self.store.body(key))
        uuid, state = record["uuid"], record["state"]
        job = self.jobs.get(uuid)
        if job is None:
            job = self.jobs[uuid] = JobTruth(
                uuid, record["id"], key.removesuffix("_job.json"), record["terms"],
                record["given_id"], set_up_step=self.step,
                adopted=bool(record.get("adopted")),
            )  # fmt: skip
        self.at_record[key] = uuid
        if job.nonce == record["nonce"] and job.state != "absent":
            return None
        left, job.state, job.nonce = job.state, state, record["nonce"]
        job.checkpoint = record.get("checkpoint", "")
        self.visits[state] += 1
        if state in DECISIONS and not job.decision:
            job.decision = DECISIONS[state]
            job.decided_step, job.decided_sent = self.step, sent
            job.decided_by = actor.name
            if state == "committing":
                self._read_plan(job, record["plan"])
        if state == "reverting":
            job.decision = "reverted"
        if state == "completed":
            job.completed_time = float(int(self.scheduler.now))
        if state == "closed":
            job.ended_step = self.step
        return job, left

    def note_record_gone(self, key: str) -> JobTruth | None:
        uuid = self.at_record.pop(key, None)
        if uuid is None:
            return None
        job = self.jobs[uuid]
        job.state = "absent"
        job.ended_step = job.ended_step or self.step
        self.visits["absent"] += 1
        return job

    def _read_plan(self, job: JobTruth, plan: dict[str, str]) -> None:
        try:
            key = job.plan_key = shown(plan["key"])
            document = read_plan(self.store.body(key))
            job.plan_since, job.plan_step = self.plans.get(key, (self.step, self.step))
            job.partitions, job.tasks = tuple(document["partitions"]), len(document["sets"])
            if marker := document["marker"]:
                document["deletes"].append(list(marker.values()))
            for told, etag, *modified in document["deletes"]:
                name = shown(told)
                job.deletes[name] = etag
                job.deletes_modified[name] = modified[0] if modified else None
            for name, _etag, task, attempt in document["sets"]:
                document = orjson.loads(self.store.body(job.tree + name))
                for upload_id, key in self.named_in(document):
                    job.accepted[upload_id] = (key, task, attempt)
        except KeyError as error:
            job.unknown_plan = f"{error} is not there"

    # Looks ------------------------------------------------------------------------------------

    def unfinished(self, job: JobTruth) -> list[str]:
        """Keys of a committed job that never became visible."""
        return [
            key
            for upload, (key, _, _) in job.accepted.items()
            if upload not in job.completed and key not in job.taken_as_is
        ]

    def adopter(self, upload_id: str) -> JobTruth | None:
        """The job that a Hadoop job has become whose upload this is."""
        upload = self.hadoop.get(upload_id)
        if upload is None:
            return None
        return next((j for j in self.jobs.values() if j.adopted and j.id == upload.job_id), None)

    def as_planned(self, job: JobTruth, key: str, there: ObjectTruth) -> bool:
        """Whether an object is the one that a plan deletes: it was there when the plan was stored,
        or nobody could tell it from that by ETag and Last-Modified."""
        if job.deletes.get(key) != there.etag:
            return False
        return there.step <= job.plan_step or any(
            (etag, modified) == (there.etag, there.modified) and step <= job.plan_step
            for etag, modified, step in self.versions[key]
        )

    def was_over(self, job: JobTruth, step: int) -> bool:
        """Whether a committed job was at its end then: its record closed or gone; or completed,
        and its sweep had begun to delete what it was planned by."""
        return any(0 < end <= step for end in (job.ended_step, job.swept_step))

    def must_go(self, job: JobTruth, key: str, there: ObjectTruth) -> bool:
        """Whether an object is the one that a plan deletes, by all that the plan tells of it."""
        modified = job.deletes_modified.get(key)
        if there.step > job.deleted.get(key, there.step):
            return False
        return job.deletes.get(key) == there.etag and modified in (None, there.modified)

    def covers(self, job: JobTruth, key: str) -> bool:
        """Whether data at a key is a job's business: all below the destination, or what lies
        directly in the partitions that it writes; nothing hidden."""
        prefix = job.directory.partition("__magic")[0]
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or any(p[:1] in ("_", ".") for p in name.split("/")):
            return False
        if not job.terms["mode"].endswith("partitions"):
            return True
        return self.partition(name) in self.partitions_of(job)

    @staticmethod
    def partition(name: str) -> str:
        """The directory of a file, with its slash; "" for the destination itself."""
        directory, slash, _ = name.rpartition("/")
        return directory + slash

    def partitions_of(self, job: JobTruth) -> set[str]:
        """The partitions that a decided job writes; of another one those of the files that its
        tasks have opened so far."""
        if job.plan_key:
            return set(job.partitions)
        prefix = job.directory.partition("__magic")[0]
        return {
            self.partition(key.removeprefix(prefix))
            for (uuid, _), attempt in self.attempts.items()
            if uuid == job.uuid
            for key in attempt.files
        }

    def overlap(self, one: JobTruth, other: JobTruth) -> bool:
        """Whether two jobs write in one place: by partition, if both are."""
        modes = one.terms["mode"], other.terms["mode"]
        if not all(mode.endswith("partitions") for mode in modes):
            return True
        return bool(self.partitions_of(one) & self.partitions_of(other))

"""What really happened: a shadow of the store, written from the effects of requests alone.

The checkers (`promises`) judge by this record, never by what the code under test believes. It knows
the formats (it reads records, plans and pendingsets as JSON), and nothing of the library's logic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from magic_committer.memory import MemoryStore
from tests.simulation.kinds import object_of
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
    """What one attempt wrote.

    Attributes:
        files: bytes by final key. cut: its input ended too early: it must never be published.
        told: its message reached a driver.
    """

    job: str
    task: str
    name: str
    cut: bool
    files: dict[str, bytes] = field(default_factory=dict)
    told: bool = False


@dataclass(slots=True)
class UploadTruth:
    """An upload that was created."""

    key: str
    job: str
    actor: Actor | None
    step: int


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
    set_up_time: float = 0.0
    handed_out: bool = False
    """Its setup returned: others may know it."""
    forgotten: bool = False
    """An operator deleted its closed record."""
    refused: bool = False
    """Its setup raised."""
    completed_time: float | None = None
    accepted: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Of the decided plan: key, task and attempt by upload id."""
    deletes: dict[str, str] = field(default_factory=dict)
    """Of the decided plan: ETag by key of what is to be deleted, the old marker too."""
    taken_as_is: frozenset[str] = frozenset()
    """Unresolved keys that the operator accepted."""
    unknown_plan: str = ""
    """Why the decided plan could not be read at its decision."""
    completed: dict[str, int] = field(default_factory=dict)
    """The step at which an upload became an object."""


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
        self.looked: dict[tuple[str, str], float] = {}
        """How long nothing of a directory had changed when an operator listed it, at most; by the
        operator's name and the directory."""
        self.visits: Counter[str] = Counter()

    @property
    def step(self) -> int:
        """Now."""
        return self.scheduler.steps

    def attempt_of(self, token: str) -> AttemptTruth | None:
        """The attempt that a token names."""
        job, _, rest = token.partition(".")
        return self.attempts.get((job, rest.rpartition(".")[0]))

    def token_of(self, key: str) -> str:
        """The token of the object that is there."""
        return self.store.attributes(key).metadata.get(TOKEN_METADATA, "")

    # Writes -----------------------------------------------------------------------------------

    def note_upload(self, upload_id: str, key: str, actor: Actor | None) -> None:
        """An upload was created."""
        job = actor.job if actor is not None else FOREIGN
        self.uploads[upload_id] = UploadTruth(key, job, actor, self.step)
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
        elif upload_id and object_of(key) == "data":
            job = self.token_of(key).partition(".")[0]
        elif object_of(key) == "_SUCCESS":
            job = orjson.loads(self.store.body(key))["diagnostics"][MARKER_JOB]
        else:
            job = self.store.attributes(key).metadata.get(JOB_METADATA, "") or actor.job
        self.objects[key] = ObjectTruth(
            job, actor, self.step, self.scheduler.now, upload_id, self.store.body(key),
            self.store._bucket.objects[key].etag,
        )  # fmt: skip
        self.open.discard(upload_id)
        return before

    def note_named(self, key: str) -> None:
        """A `.pending` or `.pendingset` was written."""
        document = orjson.loads(self.store.body(key))
        for one in document.get("commits", (document,)):
            self.named[one["uploadId"]] = key

    def note_taken_back(self, key: str) -> None:
        """A task has deleted a `.pending` or `.pendingset` of its own."""
        self.named = {upload: by for upload, by in self.named.items() if by != key}

    def note_look(self, directory: str, actor: Actor) -> None:
        """An operator listed a directory, as it does for its age."""
        times = [there.time for key, there in self.objects.items() if key.startswith(directory)]
        look = (actor.name, directory)
        age = self.scheduler.now - max(times, default=self.scheduler.now)
        self.looked[look] = max(self.looked.get(look, 0.0), age)

    def note_gone(self, key: str) -> ObjectTruth | None:
        """An object was deleted; returns what was there."""
        gone = self.objects.pop(key, None)
        if gone is not None and gone.upload:
            self.meddled.add(key)
        return gone

    def note_record(self, key: str, actor: Actor) -> tuple[JobTruth, str] | None:
        """A record was written: its job, and the state that it left. None: the same bytes again."""
        record = orjson.loads(self.store.body(key))
        uuid, state = record["uuid"], record["state"]
        job = self.jobs.get(uuid)
        if job is None:
            job = self.jobs[uuid] = JobTruth(
                uuid, record["id"], key.removesuffix("job.json"), record["terms"],
                record["given_id"], set_up_time=self.scheduler.now,
            )  # fmt: skip
        self.at_record[key] = uuid
        if job.nonce == record["nonce"] and job.state != "absent":
            return None
        left, job.state, job.nonce = job.state, state, record["nonce"]
        self.visits[state] += 1
        if state in DECISIONS and not job.decision:
            job.decision = DECISIONS[state]
            job.decided_step = self.step
            job.decided_by = actor.name
            if state == "committing":
                self._read_plan(job, record["plan"])
        if state == "reverting":
            job.decision = "reverted"
        if state == "completed":
            job.completed_time = float(int(self.scheduler.now))
        return job, left

    def note_record_gone(self, key: str) -> JobTruth | None:
        """A record was deleted."""
        uuid = self.at_record.pop(key, None)
        if uuid is None:
            return None
        job = self.jobs[uuid]
        job.state = "absent"
        self.visits["absent"] += 1
        return job

    def _read_plan(self, job: JobTruth, plan: dict[str, str]) -> None:
        try:
            document = orjson.loads(self.store.body(plan["key"]))
            job.deletes = {key: etag for key, etag, *_ in document["deletes"]}
            if document["marker"] is not None:
                key, etag, *_ = document["marker"]
                job.deletes[key] = etag
            for name, _etag, task, attempt in document["sets"]:
                pendingset = orjson.loads(self.store.body(job.directory + name))
                for commit in pendingset["commits"]:
                    key = commit["destinationKey"]
                    job.accepted[commit["uploadId"]] = (key, task, attempt)
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

    def is_data(self, key: str) -> bool:
        """Whether a key is what users see."""
        return object_of(key) == "data"

"""One simulated world: a store, its shadow, its processes, and the jobs that they work on.

Everything the production code needs is handed in as a `Runtime` of the
actor: the store, a pool of strands, the actor's clock, ids in order. The public calls (`start`,
`attach`, `write`, `Job`, `Task`) find theirs in `runtime.wiring`: while a world lives that
gives them the runtime of whoever acts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args
from unittest.mock import patch

from magic_committer.commit import probe, register
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.job import Job
from magic_committer.options import Options
from magic_committer.protocol.record import StartedJob, State, TaskCommit, Terms
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Runtime
from magic_committer.stores.memory import MemoryStore
from magic_committer.upload import BlockSource, local, sender
from tests.concrete import BY_NAME, Uploading
from tests.simulation.faults import NOT_ON_TREES, Injector
from tests.simulation.kinds import object_of
from tests.simulation.promises import Watch
from tests.simulation.scheduler import Actor, ActorClock, Scheduler, Signal, StrandPool
from tests.simulation.tree import Tree
from tests.tree_bucket import in_memory, stamped

DEST = Destination.parse("s3://bucket/t")
"""What tests call the destination, and how their keys begin; `World.dest` is what jobs are told."""
STATE_TURNS_MAX = 250
OPTIONS = Options(commit_threads=4, checksum="off")


@dataclass
class JobRun:
    """A job as its driver and its tasks share it.

    Attributes:
        unique: whether names of files hold the job's UUID.
        files: how many files each attempt writes. partitioned: each task into a directory of its
            own.
        handles: it is driven by `Job` and `Task`, as users have them.
        careless: how its driver calls commit: ``""``: with all results, and what it expects;
            ``"generator"``: with an iterator, the same one again after an error; ``"keyless"``:
            with a result that lost its key on the way; ``"hopes"``: with whatever is there, and
            without saying how many tasks there were; ``"empty"``: it says that there is nothing.
        after: it is started when that is set.
    """

    name: str
    terms: Terms
    job_id: str | None
    tasks: tuple[str, ...]
    unique: bool
    files: int = 1
    partitioned: bool = False
    handles: bool = False
    careless: str = ""
    after: Signal | None = None
    job: Job | None = None
    given: Any = None
    """The iterator that is passed to commit."""
    started: StartedJob | None = None
    ready: Signal = field(default_factory=Signal)
    bell: Signal = field(default_factory=Signal)
    messages: list[TaskCommit] = field(default_factory=list)
    working: dict[str, int] = field(default_factory=dict)
    """How many attempts of a task may still send a message."""

    def first_messages(self) -> list[TaskCommit]:
        """The first message of each task, as Spark accepts them."""
        first: dict[str, TaskCommit] = {}
        for message in self.messages:
            first.setdefault(message.task, message)
        return list(first.values())


def knows_all(identity: str) -> None:
    """Let this process know that a store keeps all that is asked of it."""
    probe._known[identity] = {want: probe._Finding(True) for want in get_args(probe.Want)}


class _Now:
    """The world's time, as a clock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.now = self.monotonic = lambda: scheduler.now
        self.sleep = scheduler.sleep


class World:
    """A store and the processes around it. ``chance``: everything that is drawn is drawn from it.
    ``tree``: the store is a directory of this machine."""

    def __init__(self, chance: random.Random, tree: bool = False) -> None:
        self.chance = chance
        policy = chance.choice(("random", "random", "sticky", "priority", "priority"))
        self.scheduler = Scheduler(chance, policy, chance.choice((0.01, 0.1, 0.4)))
        self._drawn = 0
        self._ends = ExitStack()
        page_keys, forgetful = 3 if chance.random() < 0.1 else 1000, chance.random() < 0.5
        if tree:
            root = self._ends.enter_context(TemporaryDirectory(dir=in_memory()))
            self._ends.enter_context(stamped(lambda: self.scheduler.now))
            self.store: MemoryStore = Tree(
                Path(root), clock=_Now(self.scheduler), page_keys=page_keys, ids=self.new_id
            )
        else:
            self.store = MemoryStore(
                page_keys=page_keys, forgetful_complete=forgetful, clock=lambda: self.scheduler.now,
                ids=self.new_id,
            )  # fmt: skip
        self.dest = Destination.parse(self.store.bucket) if tree else DEST
        self.watch = Watch(self.store, self.scheduler)
        self.injector = Injector(self.store, self.scheduler, self.watch, chance)
        if tree:
            self.injector.left_out = NOT_ON_TREES
        self.blocks = BlockSource()
        self.actors: list[Actor] = []
        self.runs: list[JobRun] = []
        self.query: Any = None
        """What the drivers of a streaming query do (`streams.Query`); None: there is no query."""
        self.latencies: tuple[float, ...] = (0.0,)
        """Of processes, in seconds: from these each one's is drawn."""
        mine: dict[str, Any] = {"pool": self, "blocks": self.blocks}
        mine["runtime_for"] = lambda *_: self.runtime(self.actor)
        self._ends.enter_context(patch.multiple(wiring, **mine))
        probe._known.clear()  # what a process has learnt of its store
        if chance.random() < 0.7:
            knows_all(self.store.identity)
        # The store shows all open uploads: no cleanup asks.
        known = probe._known.setdefault(self.store.identity, {})
        known["uploads_by_prefix"] = probe._Finding(True)

    def knows_that_completes_lie(self) -> None:
        """As if the probe had found that the store answers a Complete with 200 falsely."""
        found = probe._known.setdefault(self.store.identity, {})
        found["true_complete"] = probe._Finding(False)
        self.injector.lies_known = True

    @property
    def actor(self) -> Actor:
        strand = self.scheduler.current
        assert strand is not None
        return strand.actor

    def every(self, seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        """As `ThreadPool.every`, by a strand of the process that acts."""
        ended: list[bool] = []

        def tick() -> None:
            while True:
                self.scheduler.sleep(seconds)
                if ended or not function():
                    return

        self.scheduler.spawn(self.actor, tick)
        return lambda: ended.append(True)

    def new_id(self) -> str:
        self._drawn += 1
        return f"{self._drawn:016x}{0xABCDEF:016x}"

    def start(self, name: str, kind: str, program: Callable[[Actor], object]) -> Actor:
        actor = Actor(name, kind)
        actor.priority = self.chance.random()
        if len(self.latencies) > 1:
            actor.latency = self.chance.choice(self.latencies)
        self.actors.append(actor)
        self.scheduler.spawn(actor, lambda: program(actor))
        return actor

    def runtime(self, actor: Actor) -> Runtime:
        return Runtime(
            store=self.store, pool=StrandPool(self.scheduler, actor),
            clock=ActorClock(self.scheduler, actor), ids=self.new_id,
        )  # fmt: skip

    def committer(self, actor: Actor, job: StartedJob) -> Uploading:
        """A started job in a process, by the committer that it was started with."""
        actor.job = job.uuid
        kind = BY_NAME[job.terms.committer]
        return kind(self.runtime(actor), job, OPTIONS, self.blocks)

    def attach(self, actor: Actor, job_id: str) -> tuple[Uploading, State] | None:
        """A job by its name alone, as `attach` does it; None: there is no record."""
        seen = register.read(self.runtime(actor), JobPaths(self.dest, job_id).record)
        if seen is None:
            return None
        started = StartedJob.attached(seen.record, self.dest.url, seen.etag)
        return self.committer(actor, started), seen.record.state

    # Waiting --------------------------------------------------------------------------------------

    def wait_turns(self, count: int) -> None:
        for _ in range(count):
            self.scheduler.turn()

    def wait_for_state(self, uuid: str, state: str) -> None:
        """Wait until a job's record says so, but not for ever."""
        job = self.watch.truth.jobs[uuid]
        for _ in range(STATE_TURNS_MAX):
            if not state or job.state == state:
                return
            self.scheduler.turn()

    # Other programs -------------------------------------------------------------------------------

    def foreign_put(self, key: str, body: bytes) -> None:
        self.store.put_object(key, body)
        self.watch.foreign_object(key)

    def foreign_delete(self, key: str) -> None:
        self.store.delete_object(key)
        self.watch.truth.note_gone(key)

    def foreign_upload(self, key: str) -> None:
        self.watch.truth.note_upload(self.store.start_upload(key), key, None)

    def foreign_abort(self, upload_id: str) -> None:
        """A lifecycle rule, or a Hadoop neighbour, aborts an upload."""
        truth = self.watch.truth
        self.store.drop_upload(upload_id)
        truth.open.discard(upload_id)
        truth.meddled.add(truth.uploads[upload_id].key)

    def planned_uploads(self) -> list[str]:
        """Open uploads of jobs that are being completed."""
        truth = self.watch.truth
        jobs = [job for job in truth.jobs.values() if job.state == "committing"]
        return sorted(upload for job in jobs for upload in job.accepted if upload in truth.open)

    def open_keys(self) -> list[str]:
        """Keys of data that jobs of ours are writing."""
        truth = self.watch.truth
        keys = {truth.uploads[upload].key for upload in truth.open}
        return sorted(key for key in keys if object_of(key) == "data")

    def own_key(self, key: str) -> str:
        """What a job calls a key of the truth."""
        return self.dest.prefix + key.removeprefix(DEST.prefix)

    def uuid_of(self, job_id: str) -> str:
        """The job whose record lies under an id now; "" if none does."""
        return self.watch.truth.at_record.get(JobPaths(DEST, job_id).record, "")

    def job_ids(self) -> list[str]:
        """The jobs whose records lie under the destination."""
        prefix = f"{DEST.prefix}__magic_job-"
        return [
            key.removeprefix(prefix).partition("/")[0]
            for key in self.store.keys(prefix)
            if key.endswith("/_job.json")
        ]

    def close(self) -> None:
        """End what is left of this world in the process that simulates it."""
        self.store.before = self.store.after = None
        sender._unsettled.clear()
        self._ends.close()
        local._remove_what_is_left()  # as the end of a process does

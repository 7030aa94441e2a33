"""One simulated world of jobs of renames: a tree, its processes, and the jobs they work on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magic_committer._runtime import Runtime
from magic_committer.committers.base import Process
from magic_committer.committers.classic import V1Committer, V2Committer
from magic_committer.committers.manifest import ManifestCommitter, parts_of
from magic_committer.committers.manifest.parts import Parts
from magic_committer.file_trees.base import make_directories, parent_of
from magic_committer.file_trees.memory import MemoryTree
from magic_committer.options import Options
from magic_committer.protocol.record import StartedJob, TaskCommit, Terms
from magic_committer.upload import BlockSource
from tests.simulation.scheduler import Actor, ActorClock, Scheduler, Signal, StrandPool
from tests.tree_simulation.judge import Judge
from tests.tree_simulation.tree import URL, Faults, SeenTree, ToldTree

OPTIONS = Options(commit_threads=3)
COMMITTERS: dict[str, type[ManifestCommitter]] = {
    one.name: one for one in (ManifestCommitter, V1Committer, V2Committer)
}


@dataclass
class JobRun:
    """A job as its driver and its tasks share it.

    Attributes:
        job_id: a given id; None: it is drawn. tasks: to the names that each task writes.
        started: the job, once it is. messages: what tasks have sent.
    """

    name: str
    terms: Terms
    job_id: str | None
    tasks: dict[str, tuple[str, ...]]
    unique: bool
    started: StartedJob | None = None
    ready: Signal = field(default_factory=Signal)
    messages: list[TaskCommit] = field(default_factory=list)
    workers: list[Actor] = field(default_factory=list)

    def accepted(self) -> list[TaskCommit]:
        """The first message of each task."""
        first: dict[str, TaskCommit] = {}
        for message in self.messages:
            first.setdefault(message.task, message)
        return list(first.values())


class World:
    """A tree and the processes around it.

    Args:
        chance: everything that is drawn is drawn from it.
        exclusive: False: the tree does not keep its exclusive create.
    """

    def __init__(self, chance: random.Random, *, exclusive: bool = True) -> None:
        self.chance = chance
        policy = chance.choice(("random", "random", "sticky", "priority", "priority"))
        self.scheduler = Scheduler(chance, policy, chance.choice((0.001, 0.01, 0.1)))
        self.tree = ToldTree(self.scheduler, directories=chance.random() < 0.8, exclusive=exclusive)
        self.faults = Faults(self.scheduler, chance)
        self.judge = Judge(self.tree, self.scheduler, self.faults)
        self.tree.told = self.judge
        self.actors: list[Actor] = []
        self.runs: list[JobRun] = []
        self._drawn = 0
        self._blocks = BlockSource()

    def new_id(self) -> str:
        """The next id: 32 hexadecimal digits."""
        self._drawn += 1
        return f"{self._drawn:016x}{0xABCDEF:016x}"

    def start(self, name: str, kind: str, program: Callable[[Actor], object]) -> Actor:
        """Start a process."""
        actor = Actor(name, kind)
        actor.priority = self.chance.random()
        self.actors.append(actor)
        self.scheduler.spawn(actor, lambda: program(actor))
        return actor

    def process(self, actor: Actor) -> Process:
        """What a process has."""
        seen: Any = SeenTree(self.tree, self.faults, actor)

        def no_store(bucket: str) -> Runtime:
            raise AssertionError(f"a job of renames asks for bucket {bucket!r}")

        return Process(
            no_store,
            StrandPool(self.scheduler, actor),
            self._blocks,
            clock=ActorClock(self.scheduler, actor),
            ids=self.new_id,
            tree_for=lambda url: seen,
        )

    def parts(self, actor: Actor) -> Parts:
        """The components of an operator's call."""
        return parts_of(self.process(actor), URL, OPTIONS)

    def committer(self, actor: Actor, job: StartedJob) -> ManifestCommitter:
        """A started job in a process."""
        actor.job = job.uuid
        return COMMITTERS[job.terms.committer].of(self.process(actor), job, OPTIONS)

    # Other programs -------------------------------------------------------------------------------

    def foreign_put(self, path: str, body: bytes) -> None:
        """Another program writes a file over whatever is there, in one step."""
        self.judge.programs = True
        try:
            make_directories(self.tree, parent_of(path))
            self.tree.remove(path)
            self.tree.create(path, body)
        finally:
            self.judge.programs = False

    def foreign_delete(self, path: str) -> None:
        """Another program deletes a file, and its directory if that is empty."""
        self.judge.programs = True
        try:
            self.tree.remove(path)
            if parent_of(path) and parent_of(path) in self.tree.paths():
                MemoryTree.remove_directory(self.tree, parent_of(path))
        finally:
            self.judge.programs = False

"""What is there before a search begins: production's own processes make it, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magic_committer.protocol.record import StartedJob, TaskCommit, Terms
from tests.model import programs
from tests.model.processes import Ended, Port, Tell, alone, begin
from tests.model.search import Actor
from tests.model.store import DEST, GHOST, Object, Store, World

J1, J2 = "1" * 32, "2" * 32
"""UUIDs of jobs. Which of two is the older within one second is their order."""


class Scene:
    """A store, and who has written into it so far."""

    def __init__(self, *, forgetful: bool = False, costly: bool = False) -> None:
        self._port = Port(part_bytes_min=1)
        self._world = World(self._port, forgetful=forgetful, costly=costly)
        self.store: Store = {}
        self._made: Any = None

    def goes(self, actor: Actor, until: Callable[[Any], bool] = lambda _: False) -> Actor:
        """Let a process go on alone: to its end, or to the first request that it must not send yet.
        Gives it as it stands then."""
        answers: list[Any] = []
        with alone(self._port):
            process, request = begin(self._port, actor.name, actor.program, actor.first_id)
            while not isinstance(request, Ended) and not until(request):
                answer: Any = None
                if isinstance(request, Tell):
                    self._made = request.body
                else:
                    self.store, answer = self._world.execute(self.store, request, actor.name)
                answers.append(answer)
                request = process.switch(answer)
        return Actor(actor.name, actor.program, actor.uuids, actor.first_id, tuple(answers))

    def object(self, key: str, body: bytes = b"old") -> None:
        """An object that was there before anybody began."""
        self.goes(Actor("before", programs.overwrite(key, body)))

    def start(self, what: Terms, uuid: str = J1, job_id: str | None = None) -> StartedJob:
        """A job that somebody has started."""
        program = programs.drive(what, job_id=job_id)
        self.goes(Actor("setup", program, (uuid,), uuid), lambda sent: self._is_told(sent))
        started: StartedJob = self._made
        return started

    def _is_told(self, sent: Any) -> bool:
        if isinstance(sent, Tell):
            self._made = sent.body
        return isinstance(sent, Tell)

    def task(
        self, job: StartedJob, name: str = "a0", task: str = "t", file: str = "x",
        content: str = "whole", *, named: bool = True,
    ) -> TaskCommit:  # fmt: skip
        """An attempt that is committed; its message."""
        program = programs.attempt(job, name, task, file, content, named=named)
        self.goes(Actor(name, program, (job.uuid,)))
        message: TaskCommit = self._made
        return message

    def forget(self, job: StartedJob) -> None:
        """As if the job had not been started yet: its tasks were faster than it."""
        gone = (job.paths.record.removeprefix(DEST.prefix), f"{GHOST}fate {job.uuid}")
        self.store = {
            key: held._replace(decided=False, by="") if isinstance(held, Object) else held
            for key, held in self.store.items()
            if key not in gone
        }

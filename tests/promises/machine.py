"""Jobs in every state of their record, on a store whose clock the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import filter as filter_names
from itertools import count
from typing import Any

import magic_committer as mc
from magic_committer.commit.register import GRAIN_SECONDS
from magic_committer.maintenance.reports import LEFTOVER_AFTER_SECONDS
from magic_committer.options import Mode
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import DEST, Crash, committed_task, control, dies_at, killed

DAY = 86_400.0
YOUNG = LEFTOVER_AFTER_SECONDS
"""What is younger stays."""
READS = {"get", "head", "list", "list_parts", "list_uploads"}
FILES = {"t/1.csv": b"1", "t/2.csv": b"22"}


class Machine:
    """A store with a clock that the test moves, and jobs in any state on it."""

    def __init__(self, s3: MemoryStore, clock: PatientClock) -> None:
        self.s3 = s3
        self.clock = clock

    def job(self, state: str, *, job_id: str | None = None, mode: Mode = "append") -> mc.Job:
        """A job whose driver died in ``state``: two tasks are committed, one was killed."""
        job = mc.start(DEST, job_id=job_id, mode=mode)
        for name in ("1", "2"):
            committed_task(job, name, {f"{name}.csv": name.encode() * int(name)})
        killed(job, "3", "3.csv", unique=True)
        if state == "running":
            return job
        if state in ("committing", "reverting", "reverted"):
            dies_at(self.s3, "complete_upload *t/2.csv", job.commit)
        elif state == "completed":
            dies_at(self.s3, "put *t/_SUCCESS", job.commit)
        elif state == "aborting":
            dies_at(self.s3, "list", job.abort)
        undone = {"reverting": "head *t/1.csv", "reverted": f"list *{job.id}/"}
        if state in undone:
            dies_at(self.s3, undone[state], lambda: mc.abort(DEST, job.id, revert=True))
        if state == "closed":
            mc.abort(DEST, job.id)
        assert mc.attach(DEST, job.id).state == state
        return job

    @property
    def runtime(self) -> Runtime:
        """For what is below the public calls: all in this thread."""
        return Runtime(self.s3, pool=ThreadPool(0), clock=self.clock)

    def later(self, seconds: float) -> None:
        """Let so much time pass that the store's whole seconds tell it."""
        self.clock.ahead += seconds + GRAIN_SECONDS


def left(s3: MemoryStore) -> list[str]:
    return [key.rsplit("/", 1)[-1] for key in control(s3)]


def matching(s3: MemoryStore, pattern: str) -> list[str]:
    """Keys of control objects, as ``"*.pendingset"``."""
    return filter_names(control(s3), pattern)


ENDS = {
    "running": "aborted",
    "committing": "committed",
    "completed": "committed",
    "reverting": "reverted",
    "reverted": "reverted",
    "aborting": "aborted",
    "closed": "aborted",
}
STATES = sorted(ENDS)


class Killer:
    """Takes a step in a process that is killed at its n-th request, before or after that took
    effect.

    Attributes:
        dead: whether it was.
        meanwhile: what others do once a request of the step has taken effect.
    """

    def __init__(self, s3: MemoryStore, number: int, *, after: bool) -> None:
        self.dead = False
        self.meanwhile: Callable[[Request], object] = lambda request: None
        self._s3 = s3
        self._number = number
        self._after = after
        self._sent = self._answered = 0

    def __call__(self, step: Callable[[], object]) -> bool:
        self._s3.before, self._s3.after = self._before, self._answer
        with suppress(Crash):
            step()
        self._s3.before = self._s3.after = None
        return self.dead

    def _before(self, request: Request) -> None:
        self._sent += 1
        self._strike(self._sent, after=False)

    def _answer(self, request: Request, reply: object) -> None:
        self.meanwhile(request)
        self._answered += 1
        self._strike(self._answered, after=True)

    def _strike(self, number: int, *, after: bool) -> None:
        if number == self._number and after is self._after:
            self.dead = True
        if self.dead:  # none of its threads sends anything any more
            raise Crash


def deaths(*, least: int, **rules: Any) -> Iterator[tuple[Machine, Killer]]:
    """What kills a step at its first request, the second, …, until it sends no more (`least`)."""
    for number in count(1):
        killers = []
        for after in (False, True):
            clock = PatientClock()
            with memory_store(clock=clock, **rules) as s3:
                killers.append(Killer(s3, number, after=after))
                yield Machine(s3, clock), killers[-1]
        if not any(killer.dead for killer in killers):
            assert number > least
            return

"""Production and the model are one: what the simulation's actors send is a path of the model's.

The model (tests/model) is searched over all interleavings; the simulation drives production. Here a
sample of schedules, in each of which one process is killed, is recorded call by call: what drivers
sent beside their tasks and their neighbours, and what the recoveries sent that came after.

Left out: calls that raise, and what the model does not know: public handles, careless callers
(`drawing.Focus.plain`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest

from magic_committer.commit import probe, register
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import JobReport
from magic_committer.hadoop.paths import JobPaths
from magic_committer.maintenance import ending
from magic_committer.options import Mode
from magic_committer.protocol.record import StartedJob, State
from magic_committer.runtime.components import Runtime
from tests.model.production import Recorder, Sent, refusal
from tests.simulation import actors, drawing, schedule
from tests.simulation.faults import Fault
from tests.simulation.scheduler import Actor
from tests.simulation.tally import quiet
from tests.simulation.world import DEST, World

SEEDS = 250
PLAIN = drawing.Focus(plain=True)
KINDS = {State.RUNNING: ("abort", 2), State.COMPLETED: ("", 0)}
"""What a recovery is to the model, and after how many reads of the job's age. Of a job whose driver
was killed in the middle of its sweep the model makes other reads."""
REQUESTS = 40
"""Of a schedule; the process is killed at one of the first so many."""


@dataclass(frozen=True)
class Call:
    """What a process sent in one call: of which kind the model's process is, and what it knew."""

    kind: str
    job: StartedJob
    trace: list[Sent]
    known: dict[str, Any]


def killed(chance: random.Random) -> list[Fault]:
    """One process is killed after one of its requests."""
    return [Fault("crash after", "", 1 + int(chance.random() * REQUESTS))]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """The calls that return something, as they are made."""
    made: list[Call] = []
    real_runtime, real_told, real_setup = World.runtime, actors.told, MagicCommitter.setup
    real_recover = ending.Ending.recover_now

    def runtime(self: World, actor: Actor) -> Runtime:
        plain = real_runtime(self, actor)
        return replace(plain, store=Recorder(plain.store))

    def setup(runtime: Any, *arguments: Any) -> MagicCommitter:
        committer = real_setup(runtime, *arguments)
        made.append(Call("setup", committer.job, runtime.store.take(), {}))
        return committer

    def told(
        world: World, committer: MagicCommitter, asked: str, call: Any, handed: Collection[str] = ()
    ) -> bool:
        recorder: Any = committer.runtime.store
        recorder.take()
        kind = asked.rpartition(": ")[2]
        known = {"results": call.args[0]} if kind == "commit" else {}

        def noted() -> JobReport:
            report: JobReport = call()
            made.append(Call(kind, committer.job, recorder.take(), known))
            return report

        return real_told(world, committer, asked, noted, handed)

    def recover_now(self: ending.Ending, *accept: Any, **how: Any) -> Any:
        runtime: Any = self.runtime
        seen = register.read(runtime, JobPaths(DEST, self.job_id).record)
        runtime.store.take()
        recovery = real_recover(self, *accept, **how)
        if seen is not None:
            job = StartedJob.attached(seen.record, DEST.url, seen.etag)
            kind, looks = KINDS.get(seen.record.state, ("recovery", 0))
            made.append(Call(kind, job, runtime.store.take()[looks:], {}))
        return recovery

    monkeypatch.setattr(World, "runtime", runtime)
    monkeypatch.setattr(MagicCommitter, "setup", setup)
    monkeypatch.setattr(actors, "told", told)
    monkeypatch.setattr(ending.Ending, "recover_now", recover_now)
    monkeypatch.setattr(drawing, "draw_faults", lambda chance, *_: killed(chance))
    monkeypatch.setattr(drawing, "others", lambda *_: None)
    monkeypatch.setattr(drawing, "serving", lambda *_: None)
    with quiet():
        yield made


def test_what_actors_send_is_a_path_of_the_model(calls: list[Call]) -> None:
    """Setups, commits and aborts of drivers, and the recoveries of those that were killed, send
    what the model's processes send, and go on as they do."""
    for seed in range(SEEDS):
        world = World(random.Random(seed))
        if "swap" in probe._known[world.store.identity]:  # the model proves no store
            schedule._simulate(world, seed, PLAIN)
        world.close()
    kinds: Counter[str] = Counter()
    commits: Counter[str] = Counter()
    for call in calls:
        terms = call.job.terms
        if call.kind:
            kinds[call.kind] += 1
            commits[terms.mode] += call.kind == "commit"
            commits["given"] += call.kind == "commit" and call.job.given_id
            assert refusal(call.kind, call.trace, call.job, **call.known) == "", call
    assert min(kinds[kind] for kind in ("setup", "commit", "recovery", "abort")) >= 10, kinds
    assert min(commits[mode] for mode in (*get_args(Mode), "given")) >= 5, commits

"""One schedule: a world drawn from a seed, run to its end, recovered, and judged."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from magic_committer.protocol.record import Terms
from tests.simulation.scheduler import NeverEndsError
from tests.tree_simulation import actors, streams
from tests.tree_simulation.tree import FAULTS
from tests.tree_simulation.truth import Violation
from tests.tree_simulation.world import JobRun, World

NAMES = ("old.csv", "dt=1/old.csv", "dt=2/old.csv")
PLACES = ("", "dt=1/", "dt=2/", "a/b/")
MODES = ("append", "append", "replace", "replace", "replace_partitions", "fail", "fail_partitions")
CLASSIC_MODES = ("append", "append", "fail")
COMMITTED_BY = ("manifest",) * 7 + ("v1", "v1", "v2")
DELAYS_SECONDS = (0.0,) * 6 + (0.5, 5.0, 5000.0, 50_000.0)
AFTERWARDS_SECONDS = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule came to."""

    seed: int
    violations: tuple[Violation, ...]
    shape: str
    calls: tuple[str, ...]
    verbs: int
    struck: tuple[tuple[str, str], ...]
    cases: frozenset[str]


def simulate(seed: int, *, exclusive: bool = True) -> Result:
    """Run one schedule. The same seed gives the same one, in every process."""
    world = World(random.Random(seed), exclusive=exclusive)
    shape = populate(world)
    query = streams.populate(world)
    _run(world)
    world.faults.calm()
    world.scheduler.now += AFTERWARDS_SECONDS
    for name in ("last recovery", "once more"):
        world.start(name, "recovery", partial(actors.recover_all, world))
        _run(world)
    if query is not None:
        world.start("last stream", "driver", partial(streams.last_driver, world, query))
        _run(world)
        streams.judge_end(world, query)
    world.judge.end()
    world.start("last cleanup", "cleanup", partial(actors.last_cleanup, world))
    _run(world)
    world.judge.end()
    world.judge.clean()
    world.judge.judge_claims()
    return Result(
        seed,
        tuple(world.judge.violations),
        shape,
        tuple(world.faults.calls),
        world.faults.verbs,
        tuple(world.faults.struck),
        frozenset(world.judge.cases),
    )


def _run(world: World) -> None:
    try:
        world.scheduler.run()
    except NeverEndsError as error:
        world.judge.broken("I5", str(error))
    for actor, raised in world.scheduler.crashes:
        world.judge.broken("I10", f"{actor} raised {raised!r}")
    world.scheduler.crashes.clear()


def populate(world: World) -> str:
    """Draw who is in a world. Gives what was drawn, in words."""
    chance = world.chance
    for name in NAMES:
        if chance.random() < 0.35:
            world.foreign_put(name, b"old " + name.encode())
    if chance.random() < 0.3:
        world.foreign_put("_SUCCESS", b"")
    count = chance.choice((1, 1, 1, 2, 2, 3))
    said = [_job(world, f"job{number}") for number in range(count)]
    for number in range(chance.choice((0, 1, 1, 2, 2, 3))):
        what = chance.choice(
            ("recover", "recover", "abort", "revert", "revert", "force_abort", "cleanup", "cleanup",
             "inspect")
        )  # fmt: skip
        delay = chance.choice(DELAYS_SECONDS) + chance.random() * 3
        world.start(f"op{number}-{what}", "operator", partial(actors.operator, world, what, delay))
        said.append(f"{what} at {delay:.1f}")
    if chance.random() < 0.4:
        names = tuple(sorted({n for run in world.runs for t in run.tasks.values() for n in t}))
        steps = chance.randrange(1, 4)
        world.start("program", "program", partial(actors.program, world, names + NAMES, steps))
        said.append(f"a program, {steps} times")
    faults = FAULTS if chance.random() < 0.3 else FAULTS[:-2]
    strikes = [
        (chance.randrange(20, 60 + 130 * count), chance.choice(faults))
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))
    ]
    world.faults.plan(strikes)
    if not world.tree.promises.directories:
        said.append("no directories")
    return "; ".join(said)


def _job(world: World, name: str) -> str:
    chance = world.chance
    real = world.tree.promises.directories
    committer = chance.choice(COMMITTED_BY) if real else "manifest"
    terms: Any = {
        "track": "memory",
        "committer": committer,
        "accept": chance.choice(("results", "results", "listing")),
        "mode": chance.choice(MODES if committer == "manifest" else CLASSIC_MODES),
        "mark_success": chance.random() < 0.8,
    }
    tasks = {f"t{number}": _names(chance, number) for number in range(chance.choice((1, 2, 2, 3)))}
    run = JobRun(
        name,
        Terms(**terms),
        chance.choice((None, None, "nightly", "nightly", "hourly")),
        tasks,
        unique=chance.random() < 0.3,
    )
    world.runs.append(run)
    delay = chance.choice(DELAYS_SECONDS)
    aborts = chance.random() < 0.1
    for task in run.tasks:
        for attempt in range(chance.choice((1, 1, 1, 2))):
            late, fails = chance.choice((0.0,) * 8 + (1.0, 5000.0)), chance.random() < 0.05
            program = partial(actors.task, world, run, task, attempt, late, fails)
            run.workers.append(world.start(f"{name}-{task}-{attempt}", "task", program))
    world.start(f"{name}-driver", "driver", partial(actors.driver, world, run, delay, aborts))
    if chance.random() < 0.35:
        late, commits = chance.choice((0.0, 1.0, 30.0, 5000.0)), chance.random() < 0.8
        program = partial(actors.second_driver, world, run, late, commits)
        world.start(f"{name}-second", "driver", program)
    return (
        f"{name}: {committer}, {terms['mode']} by {terms['accept']}, id {run.job_id}, {run.tasks}"
    )


def _names(chance: random.Random, number: int) -> tuple[str, ...]:
    """What one task writes. Tasks of different jobs may write the same names."""
    kinds = "ab"[: chance.choice((1, 1, 2))]
    return tuple(sorted(f"{chance.choice(PLACES)}{number}{kind}.csv" for kind in kinds))

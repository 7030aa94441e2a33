"""One schedule: a world drawn from a seed, run to its end, recovered, and judged.

`simulate` is all there is to call: the same seed gives the same schedule, in every process.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial

from magic_committer.maintenance.cleanup import Limits
from tests.simulation import drawing, operators, streams
from tests.simulation.drawing import EVERYTHING, Focus
from tests.simulation.promises import Violation
from tests.simulation.scheduler import NeverEndsError
from tests.simulation.truth import ENDS
from tests.simulation.world import World

REDRAWN_SEEDS = 2**40
"""Away from all seeds that anybody asks for."""
AFTERWARDS_SECONDS = 3600.0
"""Before the last recovery: no request is late any more."""
LAST_LIMITS_SECONDS = (0.0, 900.0)
"""Of the last cleanup."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule came to. ``trace``: a hash of all calls and answers in order. ``calls``: the
    last of them, for people. ``states``: how often a record entered each state. ``struck``: kind of
    request and kind of fault. ``cases``: the checkers that had a case (`judge.CASES`)."""

    seed: int
    violations: tuple[Violation, ...]
    trace: str
    calls: tuple[str, ...]
    shape: str
    actors: int
    tasks: int
    requests: int
    states: Counter[str]
    struck: tuple[tuple[str, str], ...]
    cases: frozenset[str]


def simulate(seed: int, focus: Focus = EVERYTHING) -> Result:
    """Run one schedule. One that ended before any fault struck is none: the next is drawn."""
    for redrawn in itertools.count():
        world = World(random.Random(seed + redrawn * REDRAWN_SEEDS), bool(focus.tree))
        try:
            result = _simulate(world, seed, focus)
        finally:
            world.close()
        if result.struck:
            return result
    raise AssertionError("the loop returns")


def _simulate(world: World, seed: int, focus: Focus) -> Result:
    shape, litter = drawing.populate(world, focus)
    _run(world)
    requests, processes = world.injector.requests, len(world.actors)
    world.injector.calm()
    _recover(world, litter)
    return Result(
        seed=seed, violations=tuple(world.watch.violations), trace=world.injector.trace,
        calls=tuple(map(str, world.injector.calls)), shape=shape, actors=processes,
        tasks=sum(len(run.tasks) for run in world.runs), requests=requests,
        states=world.watch.truth.visits, struck=tuple(world.injector.struck),
        cases=frozenset(world.watch.cases),
    )  # fmt: skip


def _run(world: World) -> None:
    try:
        world.scheduler.run()
    except NeverEndsError as error:
        world.watch.broken("I5", str(error))
    for actor, raised in world.scheduler.crashes:
        world.watch.broken("I10", f"{actor} raised {raised!r}")
    world.scheduler.crashes.clear()


def _recover(world: World, litter: bool) -> None:
    """Everything that was left is recovered, without faults, by two who come one after the other:
    the second finds nothing to do."""
    world.scheduler.now += AFTERWARDS_SECONDS
    world.latencies = (0.0,)
    chance = world.chance
    if any(job.state not in ENDS for job in world.watch.truth.jobs.values()):
        world.watch.met("recovered")
    cleans = chance.random() < 0.3
    world.start("last recovery", "recovery", partial(operators.recover_all, world, cleans))
    _run(world)
    if world.watch.batches_begun >= 0:
        world.start("last replay", "query", partial(streams.replay, world, world.query))
        _run(world)
    left = _contents(world)
    world.start("once more", "recovery", partial(operators.recover_all, world, False))
    _run(world)
    if _contents(world) != left:
        world.watch.broken("I5", "a second recovery changed what the first one left")
    world.watch.end()
    if litter or chance.random() < 0.5:
        _clean_up(world)


def _clean_up(world: World) -> None:
    """One cleanup more, by which all goes that somebody may still tell to be ours."""
    chance = world.chance
    world.scheduler.now += AFTERWARDS_SECONDS
    dead, leftover, closed = (chance.choice(LAST_LIMITS_SECONDS) for _ in range(3))
    forgotten = chance.random() < 0.5
    limits = Limits(dead, leftover, closed, closed if forgotten else 1e9)
    world.start("last cleanup", "cleanup", partial(operators.last_cleanup, world, limits))
    _run(world)
    world.watch.swept(forgotten)


def _contents(world: World) -> list[tuple[str, bytes]]:
    return [(key, world.store.body(key)) for key in world.store.keys()]

"""One schedule: a world drawn from a seed, run to its end, recovered, and judged.

`simulate` is all there is to call: the same seed gives the same schedule, in every process.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from magic_committer.job import Terms
from magic_committer.options import Mode
from magic_committer.recovery.tidy import Limits
from tests.simulation import actors, operators
from tests.simulation.faults import SIGNATURE_SECONDS, Fault, draw_faults
from tests.simulation.kinds import ON_LITTER, ON_REPLACED, ON_TREE, ON_TROUBLE
from tests.simulation.litter import hadoop_job, leave_litter
from tests.simulation.promises import Violation
from tests.simulation.scheduler import NeverEndsError
from tests.simulation.world import DEST, JobRun, World

REDRAWN_SEEDS = 2**40
"""Away from all seeds that anybody asks for."""
AFTERWARDS_SECONDS = 3600.0
"""Before the last recovery: no request is late any more."""
LAST_LIMITS_SECONDS = (0.0, 900.0)
"""Of the last cleanup."""

ENDINGS = (
    ("well",) * 12 + ("slow",) * 3 + ("late",) * 2 + ("raises",) * 2 + ("cut",) * 2 + ("drops",)
)
AFTER = {
    "commit": ("", "", "committing", "completed"),
    "abort": ("", "", "committing"),
    "revert": ("committing", "committing", "completed", ""),
}
"""What a rival waits for."""
MODES: tuple[Mode, ...] = (
    *("append",) * 12, *("replace",) * 3, *("fail",) * 2, *("replace_partitions",) * 2,
    "fail_partitions",
)  # fmt: skip
SLEEPS = (0.0, 0.0, 0.0, 5.0, 60.0, 1500.0, 5000.0)
DEADS = (0.0, 0.0, 20.0, 1000.0, 86_400.0)
"""Ages in seconds from which an operator takes a running job for dead."""
LEFTOVERS = (0.0, 0.0, 5.0, 1000.0)
CLOSEDS = (SIGNATURE_SECONDS, SIGNATURE_SECONDS, 1000.0, 86_400.0)
"""From which age closed records go: not before the last late request, which might bring the job
back. All other limits may be 0 at any time."""
RESTS = (0.0, 0.0, 2000.0, 8000.0)
"""How long a second run of a given id waits after the end of the first."""

DEEDS = ("overwrite", "ahead", "ahead", "delete", "mark", "upload", "write")


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule came to.

    Attributes:
        trace: a hash of all calls and answers in order.
        calls: the last of them, for people.
        states: how often a record entered each state.
        struck: kind of request and kind of fault.
    """

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


@dataclass(frozen=True)
class Focus:
    """What schedules go for that look for one thing.

    Attributes:
        modes: of the main job. others: who is always there. deeds: of the foreigner.
        fault, target: one more fault, at one of the first requests of a kind.
    """

    modes: tuple[Mode, ...] = ()
    others: tuple[str, ...] = ()
    deeds: tuple[str, ...] = ()
    fault: str = ""
    target: str = ""


EVERYTHING = Focus()


def simulate(seed: int, focus: Focus = EVERYTHING) -> Result:
    """Run one schedule. One that ended before any fault struck is none: the next is drawn."""
    for redrawn in itertools.count():
        world = World(random.Random(seed + redrawn * REDRAWN_SEEDS))
        try:
            result = _simulate(world, seed, focus)
        finally:
            world.close()
        if result.struck:
            return result
    raise AssertionError("the loop returns")


def _simulate(world: World, seed: int, focus: Focus) -> Result:
    chance = world.chance
    world.foreign_put(f"{DEST.prefix}_old/foreign.txt", b"foreign")
    world.foreign_upload(f"{DEST.prefix}foreign.csv")
    world.foreign_put("t10/foreign.csv", b"foreign")
    _main_job(world, focus.modes or MODES)
    if chance.random() < 0.3:
        _neighbour(world)
    litter = chance.random() < 0.12 or "litter" in focus.others
    if litter:
        leave_litter(world)
    if chance.random() < 0.1 or "Hadoop" in focus.others:
        hadoop_job(world)
    _others(world, focus)
    _operators(world, focus, litter)
    faults = draw_faults(chance, _expected(world))
    if focus.fault:
        faults.append(Fault(focus.fault, focus.target, 1 + int(chance.random() * 4)))
    world.injector.faults = list(faults)
    shape = _shape(world, faults)
    _run(world)
    requests, processes = world.injector.requests, len(world.actors)
    world.injector.faults = []
    _recover(world, litter)
    return Result(
        seed=seed,
        violations=tuple(world.watch.violations),
        trace=world.injector.trace,
        calls=tuple(map(str, world.injector.calls)),
        shape=shape,
        actors=processes,
        tasks=sum(len(run.tasks) for run in world.runs),
        requests=requests,
        states=world.watch.truth.visits,
        struck=tuple(world.injector.struck),
    )


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
    chance = world.chance
    cleans = chance.random() < 0.3
    world.start("last recovery", "recovery", partial(operators.recover_all, world, cleans))
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
    limits = Limits(dead, leftover, closed, forget_given=chance.random() < 0.5)
    world.start("last cleanup", "cleanup", partial(operators.last_cleanup, world, limits))
    _run(world)
    world.watch.swept(limits.forget_given)


def _contents(world: World) -> list[tuple[str, bytes]]:
    return [(key, world.store.body(key)) for key in world.store.keys()]


# Drawing ------------------------------------------------------------------------------------------


def _main_job(world: World, modes: tuple[Mode, ...]) -> None:
    chance = world.chance
    terms = Terms(
        mode=modes[int(chance.random() * len(modes))],
        accept=chance.choice(("results", "listing")),
        track=chance.choice(("memory", "memory", "s3")),
        exclusive=chance.random() < 0.04,
        mark_success=chance.random() < 0.85,
        checksum="off",
    )
    run = JobRun(
        name="main",
        terms=terms,
        job_id="given" if chance.random() < 0.25 else None,
        tasks=("0", "1", "2") if chance.random() < 0.12 else ("0", "1"),
        unique=chance.random() < 0.6,
        files=2 if chance.random() < 0.15 else 1,
        partitioned=terms.mode.endswith("partitions"),
    )
    if terms.mode != "fail":
        world.foreign_put(f"{DEST.prefix}old.csv", b"old")
    if terms.mode in ("replace", "replace_partitions"):
        world.foreign_put(f"{DEST.prefix}p=0/old.csv", b"old")
        if chance.random() < 0.5:
            world.foreign_put(DEST.success_key, b"")
    _start_job(world, run)
    if run.job_id is not None and chance.random() < 0.4:
        again = JobRun("main", terms, run.job_id, ("0",), run.unique)
        _start_job(world, again, run if chance.random() < 0.5 else None)


def _neighbour(world: World) -> None:
    chance = world.chance
    name = "main" if chance.random() < 0.2 else "neighbour"
    mode: Mode = chance.choice(("append", "append", "fail", "replace", "replace_partitions"))
    terms = Terms(
        mode=mode, accept="results", track="memory", mark_success=True, checksum="off"
    )  # fmt: skip
    run = JobRun(name, terms, None, ("0",), unique=name != "main" and chance.random() < 0.5)
    run.partitioned = mode == "replace_partitions"
    _start_job(world, run)


def _start_job(world: World, run: JobRun, former: JobRun | None = None) -> None:
    chance = world.chance
    world.runs.append(run)
    prefix = f"{run.name}{len(world.runs)}"
    patience = chance.choice(("patient", "patient", "polls", "gives up"))
    rest = chance.choice(RESTS)
    world.start(
        f"{prefix}/driver", "driver", partial(actors.driver, world, run, patience, former, rest)
    )
    small = len(run.tasks) == 1
    for name in run.tasks:
        twins = 1 if small or chance.random() < 0.7 else 2
        shared = run.terms.track == "s3" and chance.random() < 0.3
        run.working[name] = twins
        for number in range(twins):
            ending = "well" if small else chance.choice(ENDINGS)
            who = f"{prefix}/{name}.{number}"
            if shared and number == 0:
                attempt = f"a{name}"
                opener = world.start(
                    f"{who}-writes", "task", partial(actors.by_path, world, run, name, attempt)
                )
                world.start(
                    who, "task", partial(actors.by_name, world, run, name, attempt, opener)
                )  # fmt: skip
            else:
                world.start(who, "task", partial(actors.task, world, run, name, ending))


def _others(world: World, focus: Focus) -> None:
    chance = world.chance
    main = world.runs[0]
    for name, odds, what in (
        ("rival", 0.22, "commit"),
        ("aborter", 0.1, "abort"),
        ("reverter", 0.15, "revert"),
    ):
        if chance.random() < odds or name in focus.others:
            after = chance.choice(AFTER[what])
            delay = int(chance.random() * (12 if after else 90))
            world.start(name, name, partial(actors.rival, world, main, after, delay, what))
    if chance.random() < 0.22 or focus.deeds:
        count = 1 + int(chance.random() * 2)
        deeds = tuple(chance.choice(focus.deeds or DEEDS) for _ in range(count))
        world.start("foreigner", "foreigner", partial(actors.foreign, world, deeds))


def _operators(world: World, focus: Focus, litter: bool) -> None:
    chance = world.chance
    if chance.random() < 0.22 or "recovery" in focus.others:
        world.start("recovery", "recovery", partial(operators.recover, world, _shift(chance)))
    always = litter or "cleanup" in focus.others
    for number in range(2):
        if chance.random() < 0.2 or (always and not number):
            limits = Limits(
                dead=chance.choice(DEADS),
                leftover=chance.choice(LEFTOVERS),
                closed=chance.choice(CLOSEDS),
                forget_given=False,
                finish=chance.random() < 0.9,
            )
            program = partial(operators.cleanup, world, _shift(chance), limits)
            world.start(f"cleanup{number}", "cleanup", program)
    if chance.random() < 0.06 or "inspection" in focus.others:
        program = partial(operators.inspect, world, _shift(chance))
        world.start("inspection", "inspection", program)


def _expected(world: World) -> tuple[str, ...]:
    """Rare kinds of requests that this world's operators are likely to send."""
    kinds = {actor.kind for actor in world.actors}
    if "inspection" in kinds:
        return ("list older jobs",)
    if any(job.state == "absent" for job in world.watch.truth.jobs.values()):
        return ON_LITTER
    main = world.runs[0].terms
    if main.mode == "replace" and DEST.success_key in world.watch.truth.objects:
        return ON_REPLACED
    if world.chance.random() < 0.6:
        return ()
    return ON_TREE if main.track == "s3" else ON_TROUBLE


def _shift(chance: random.Random) -> operators.Shift:
    return operators.Shift(
        delay=int(chance.random() * 120),
        sleep=chance.choice(SLEEPS),
        dead=chance.choice(DEADS),
        dry_run=chance.random() < 0.1,
    )


def _shape(world: World, faults: Iterable[Fault]) -> str:
    jobs = "; ".join(
        f"{run.name}: {run.terms.mode}, {run.terms.accept}, track {run.terms.track},"
        f" id {run.job_id or 'drawn'}, {'unique' if run.unique else 'user'} names,"
        f" {len(run.tasks)} tasks"
        for run in world.runs
    )
    who = ", ".join(actor.name for actor in world.actors)
    return f"{jobs} | {who} | {world.scheduler.policy} | {'; '.join(map(str, faults))}"

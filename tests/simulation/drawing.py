"""What a schedule is made of, drawn from its seed: jobs, their neighbours, operators, faults."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from msgspec import structs

from magic_committer.maintenance.cleanup import Limits
from magic_committer.options import Mode
from magic_committer.protocol.record import USUAL_TERMS, Terms
from tests.concrete import CLASSES, takes
from tests.simulation import actors, callers, operators, streams
from tests.simulation.faults import LEADS_TO, SIGNATURE_SECONDS, Fault, draw_faults, leading_to
from tests.simulation.kinds import ON_LITTER, ON_REPLACED, ON_TREE, ON_TROUBLE
from tests.simulation.litter import HADOOP, hadoop_job, leave_litter
from tests.simulation.scheduler import Actor, Signal
from tests.simulation.world import DEST, JobRun, World

ENDINGS = (
    *("well",) * 24, *("slow",) * 6, *("late",) * 4, *("raises",) * 4, *("cut",) * 4,
    *("drops",) * 2, "forgets",
)  # fmt: skip
AFTER = {
    "commit": ("", "", "committing", "completed"),
    "abort": ("", "", "committing"),
    "revert": ("committing", "committing", "completed", ""),
}
"""What a rival waits for."""
MODES: tuple[Mode, ...] = (
    *("append",) * 9, *("replace",) * 3, *("fail",) * 2, *("replace_partitions",) * 3,
    *("fail_partitions",) * 3,
)  # fmt: skip
BESIDE: tuple[Mode, ...] = (
    *("append",) * 3, "fail", *("replace",) * 2, *("replace_partitions",) * 2, "fail_partitions",
)  # fmt: skip
"""Of neighbours."""
BY_PARTITION: tuple[Mode, ...] = ("replace_partitions", "replace_partitions", "fail_partitions")
"""Of neighbours of a job by partition, mostly."""
NEIGHBOUR = 0.36
WRITER = 0.12
"""How often there is a neighbour of each kind."""
CARELESS = ("generator", "generator", "keyless", "hopes", "hopes", "hopes", "empty")
CARELESS_ODDS = 0.12
STAGED = 0.25
"""How often a job whose attempts stay in their process has its files on local disk."""
STREAM = 0.08
"""How often there is a streaming query."""
HANDLES = 0.2
"""How often a job is driven by `Job` and `Task`."""
LATENCIES = (0.0, 0.0, 0.02, 0.2, 2.0, 10.0)
"""Of processes, in seconds, in schedules where they are not all alike."""
UNEVEN = 0.4
WINDOW = 0.5
"""How often a neighbour begins within the main job's commit, which then stands still a while."""
WINDOWS = {
    "replace": ("list destination", "put plan", "swap record", "complete_upload", "put _SUCCESS"),
    "fail": ("list destination", "put plan", "swap record", "complete_upload"),
    "append": ("put plan", "swap record", "complete_upload", "put _SUCCESS", "get _SUCCESS"),
}
"""At which of the main driver's requests, by its mode without "_partitions"."""
HOLDS = (0.5, 5.0, 40.0, 400.0)
HELD = (
    "put plan", "list jobs", "swap record", "complete_upload", "get _SUCCESS", "delete_one data",
)  # fmt: skip
"""What its next requests of a kind may take, in seconds, and of which kinds."""
TWIN_HELD = (
    "abort_upload", "abort_upload", "list attempt", "get pending", "delete", "put pendingset",
)  # fmt: skip
"""The same for who aborts an attempt that others commit."""
SLEEPS = (0.0, 0.0, 0.0, 5.0, 60.0, 1500.0, 5000.0)
DEADS = (0.0, 0.0, 20.0, 1000.0, 86_400.0)
"""Ages in seconds from which an operator takes a running job for dead."""
LEFTOVERS = (0.0, 0.0, 5.0, 1000.0)
CLOSEDS = (SIGNATURE_SECONDS, SIGNATURE_SECONDS, 1000.0, 86_400.0)
"""From which age closed records go: not before the last late request, which might bring the job
back. All other limits may be 0 at any time."""
RESTS = (0.0, 0.0, 2000.0, 8000.0)
"""How long a second run of a given id waits after the end of the first."""

DEEDS = (
    "overwrite", "ahead", "ahead", "delete", "mark", "mark alike", "mark alike", "overwrite old",
    "same", "same", "upload", "write", "drop", "drop",
)  # fmt: skip


@dataclass(frozen=True)
class Focus:
    """What schedules go for that look for one thing.

    Attributes:
        modes: of the main job. others: who is always there. deeds: of the foreigner.
        fault, target: one more fault, at one of the first requests of a kind.
        plain: no handles, no careless callers, no slow processes: what the model knows.
        tree: the store is a directory, and its jobs are of ``"uploads"`` or of ``"renames"``.
    """

    modes: tuple[Mode, ...] = ()
    others: tuple[str, ...] = ()
    deeds: tuple[str, ...] = ()
    fault: str = ""
    target: str = ""
    plain: bool = False
    tree: Literal["", "uploads", "renames"] = ""


EVERYTHING = Focus()


def populate(world: World, focus: Focus) -> tuple[str, bool]:
    """Draw all that a schedule is made of, and start it. Returns its shape, in words; and whether a
    former job has left litter."""
    chance = world.chance
    world.foreign_put(f"{DEST.prefix}_old/foreign.txt", b"foreign")
    world.foreign_upload(f"{DEST.prefix}foreign.csv")
    if not focus.tree:  # there the destination is all that is
        world.foreign_put("t10/foreign.csv", b"foreign")
    world.injector.abort_costs = chance.random() < 0.4 and not focus.tree
    world.store._bucket.missing_is_refused = chance.random() < 0.2 and not focus.plain
    if chance.random() < UNEVEN and not focus.plain:
        world.latencies = LATENCIES
    driver = main_job(world, focus)
    if chance.random() < NEIGHBOUR or "neighbour" in focus.others:
        neighbour(world, focus, driver)
    if (chance.random() < WRITER or "writer" in focus.others) and not focus.plain:
        writer(world, driver)
    litter = chance.random() < 0.12 or "litter" in focus.others
    if litter:
        leave_litter(world)
    hadoop = chance.random() < 0.1 or bool({"Hadoop", "adopter"} & set(focus.others))
    if hadoop:
        hadoop_job(world)
    others(world, focus, driver)
    serving(world, focus, litter, hadoop)
    if "stream" in focus.others or (_peek(chance) < STREAM and not focus.plain):
        stream(world)
    faults = draw_faults(chance, _expected(world))
    if focus.fault:
        faults.append(Fault(focus.fault, focus.target, 1 + int(chance.random() ** 2 * 4)))
        if focus.target in LEADS_TO:
            faults.append(leading_to(focus.target, chance))
    if any(fault.kind == "false success" for fault in faults) and chance.random() < 0.5:
        world.knows_that_completes_lie()
    world.injector.faults = list(faults)
    return _shape(world, faults), litter


# Jobs ---------------------------------------------------------------------------------------------


def main_job(world: World, focus: Focus) -> Actor:
    chance, modes = world.chance, focus.modes or MODES
    terms = _terms(
        chance, focus,
        mode=modes[int(chance.random() * len(modes))], accept=chance.choice(("results", "listing")),
        track=chance.choice(("memory", "memory", "s3")), mark_success=chance.random() < 0.85,
    )  # fmt: skip
    run = JobRun(
        name="main", terms=terms, job_id="given" if chance.random() < 0.25 else None,
        tasks=("0", "1", "2") if chance.random() < 0.12 else ("0", "1"),
        unique=chance.random() < 0.6, files=2 if chance.random() < 0.15 else 1,
        partitioned=terms.mode.endswith("partitions"),
    )  # fmt: skip
    if not focus.plain:
        run.handles = chance.random() < HANDLES
        if chance.random() < CARELESS_ODDS:
            run.careless = chance.choice(CARELESS)
    if terms.mode != "fail":
        world.foreign_put(f"{DEST.prefix}old.csv", b"old")
    if terms.mode in ("replace", "replace_partitions"):
        world.foreign_put(f"{DEST.prefix}p=0/old.csv", b"old")
    marked = 0.5 if "replace" in terms.mode else 0.2
    if terms.mode != "fail" and chance.random() < marked and not focus.plain:
        world.foreign_put(DEST.success_key, b"")  # as Hadoop's older committers write it
    driver = start_job(world, run)
    if run.job_id is not None and chance.random() < 0.4:
        again = JobRun("main", terms, run.job_id, ("0",), run.unique)
        start_job(world, again, run if chance.random() < 0.5 else None)
    return driver


def _terms(chance: random.Random, focus: Focus, **drawn: Any) -> Terms:
    """The terms of a job, some of them with a staging committer. What draws that is made of the
    state of ``chance``, which stays as it is: schedules without such a job stay as they were."""
    terms = structs.replace(USUAL_TERMS, checksum="off", **drawn)
    if focus.tree == "renames":
        return structs.replace(terms, committer="manifest", track="memory")
    aside = random.Random(f"staged {chance.getstate()}")
    if focus.plain or terms.track != "memory" or aside.random() >= STAGED:
        return terms
    fitting = [n for n in ("directory", "partitioned") if takes(CLASSES[n], terms.mode)]
    return structs.replace(terms, committer=aside.choice(fitting))


def neighbour(world: World, focus: Focus, driver: Actor) -> None:
    chance, main = world.chance, world.runs[0]
    name = "main" if chance.random() < 0.2 else "neighbour"
    modes = BY_PARTITION if main.partitioned and chance.random() < 0.7 else BESIDE
    terms = _terms(
        chance, focus, mode=chance.choice(modes), accept="results", track="memory",
        mark_success=True,
    )  # fmt: skip
    run = JobRun(name, terms, None, ("0",), unique=name != "main" and chance.random() < 0.5)
    run.partitioned = terms.mode.endswith("partitions")
    run.after = _window(world, driver)
    start_job(world, run)


def writer(world: World, driver: Actor) -> None:
    chance, main = world.chance, world.runs[0]
    modes = BY_PARTITION if main.partitioned and chance.random() < 0.7 else BESIDE
    mode = chance.choice(modes)
    names = ("p=0/w.csv", "p=2/w.csv") if mode.endswith("partitions") else ("w.csv",)
    what = callers.Wrote(
        mode=mode, names=names, unique=chance.random() < 0.5, raises=chance.random() < 0.1,
        after=_window(world, driver),
    )  # fmt: skip
    world.start("writer", "driver", partial(callers.writing, world, what))


def _window(world: World, driver: Actor) -> Signal | None:
    """Begin when the main driver sends a request of its commit, which then takes its time."""
    chance = world.chance
    if chance.random() > WINDOW:
        return None
    mode = world.runs[0].terms.mode.removesuffix("_partitions")
    at, signal = chance.choice(WINDOWS[mode]), Signal()
    driver.awaited.setdefault(at, []).append(signal)
    held = at if chance.random() < 0.5 else chance.choice(HELD)
    driver.holds[held] = chance.choice(HOLDS)
    return signal


def start_job(world: World, run: JobRun, former: JobRun | None = None) -> Actor:
    chance = world.chance
    world.runs.append(run)
    prefix = f"{run.name}{len(world.runs)}"
    patience = chance.choice(("patient", "patient", "polls", "gives up"))
    rest = chance.choice(RESTS)
    driver = world.start(
        f"{prefix}/driver", "driver", partial(actors.driver, world, run, patience, former, rest)
    )
    small = len(run.tasks) == 1
    for name in run.tasks:
        twins = 1 if small or chance.random() < 0.7 else 2
        shared = run.terms.track == "s3" and chance.random() < 0.4
        run.working[name] = twins
        for number in range(twins):
            ending = "well" if small else chance.choice(ENDINGS)
            if run.careless == "hopes" and chance.random() < 0.7:
                ending = chance.choice(("forgets", "drops", "raises"))
            who = f"{prefix}/{name}.{number}"
            if shared and number == 0:
                _shared(world, run, name, who)
            else:
                world.start(who, "task", partial(actors.task, world, run, name, ending))
    return driver


def _shared(world: World, run: JobRun, name: str, who: str) -> None:
    """An attempt that one process writes and another one commits; a third may abort it."""
    chance, attempt, written = world.chance, f"a{name}", Signal()
    straggles = chance.random() < 0.3
    opener = partial(actors.by_path, world, run, name, attempt, written, straggles)
    world.start(f"{who}-writes", "task", opener)
    world.start(who, "task", partial(actors.by_name, world, run, name, attempt, written))
    if chance.random() < 0.4:
        delay = int(chance.random() ** 2 * 30)
        program = partial(actors.twin_aborts, world, run, name, attempt, written, delay)
        twin = world.start(f"{who}-aborts", "task", program)
        if chance.random() < 0.7:
            twin.holds[chance.choice(TWIN_HELD)] = chance.choice(HOLDS)


# Others -------------------------------------------------------------------------------------------


def others(world: World, focus: Focus, driver: Actor) -> None:
    """Rivals of the main job, and foreign programs."""
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
    if chance.random() < 0.28 or focus.deeds:
        count = 1 + int(chance.random() * 2)
        deeds = tuple(chance.choice(focus.deeds or DEEDS) for _ in range(count))
        signal = _window(world, driver) if chance.random() < 0.6 else None
        if "drop" in deeds:  # it strikes between the decision and the Completes
            signal = Signal()
            driver.awaited.setdefault("complete_upload", []).append(signal)
            driver.holds["complete_upload"] = chance.choice(HOLDS)
        world.start("foreigner", "foreigner", partial(actors.foreign, world, deeds, signal))


def _peek(chance: random.Random) -> float:
    """A number that is drawn and put back: schedules without a stream stay as they were."""
    state = chance.getstate()
    drawn = chance.random()
    chance.setstate(state)
    return drawn


def stream(world: World) -> None:
    """One or two drivers of a streaming query."""
    chance = world.chance
    mode: Mode = "replace" if chance.random() < 0.25 else "append"
    world.query = what = streams.Query(mode, marks=chance.random() < 0.5)
    for number in range(1 if chance.random() < 0.3 else 2):
        delay = int(chance.random() * 80)
        program = partial(streams.query, world, f"query{number}", what, delay)
        world.start(f"query{number}", "query", program)


def serving(world: World, focus: Focus, litter: bool, hadoop: bool) -> None:
    chance = world.chance
    if chance.random() < 0.22 or "recovery" in focus.others:
        world.start("recovery", "recovery", partial(operators.recover, world, _shift(chance)))
    always = litter or "cleanup" in focus.others
    for number in range(2):
        if chance.random() < 0.2 or (always and not number):
            limits = Limits(
                dead_after=chance.choice(DEADS), leftover_after=chance.choice(LEFTOVERS),
                forget_after=chance.choice(CLOSEDS), forget_given_after=1e9,
                finish=chance.random() < 0.9,
            )  # fmt: skip
            program = partial(operators.cleanup, world, _shift(chance), limits)
            world.start(f"cleanup{number}", "cleanup", program)
    if chance.random() < 0.06 or "inspection" in focus.others:
        program = partial(operators.inspect, world, _shift(chance))
        world.start("inspection", "inspection", program)
    for number in range(2):
        if hadoop and (chance.random() < 0.4 or "adopter" in focus.others):
            commits = chance.random() < 0.7
            program = partial(callers.adopter, world, _shift(chance), HADOOP, commits)
            world.start(f"adopter{number}", "adopter", program)


def _shift(chance: random.Random) -> operators.Shift:
    return operators.Shift(
        delay=int(chance.random() * 120), sleep=chance.choice(SLEEPS), dead=chance.choice(DEADS),
        dry_run=chance.random() < 0.1,
    )  # fmt: skip


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


def _shape(world: World, faults: Iterable[Fault]) -> str:
    jobs = "; ".join(
        f"{run.name}: {run.terms.committer}, {run.terms.mode}, {run.terms.accept},"
        f" track {run.terms.track},"
        f" id {run.job_id or 'drawn'}, {'unique' if run.unique else 'user'} names,"
        f" {len(run.tasks)} tasks{', by handles' if run.handles else ''}"
        f"{', ' + run.careless if run.careless else ''}"
        for run in world.runs
    )
    who = ", ".join(
        f"{actor.name}{f' ({actor.latency} s)' if actor.latency else ''}" for actor in world.actors
    )
    return f"{jobs} | {who} | {world.scheduler.policy} | {'; '.join(map(str, faults))}"

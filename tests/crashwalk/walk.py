"""A small fixed job, killed before and after each of its requests in turn; and its recovery too.

One process starts the job, writes five files in three tasks, and commits. It runs in the
simulator's world (tests/simulation), whose checkers judge the end. `walk` kills it at request 1, 2,
3, …; after each kill a recovery without faults finishes or undoes the job. Two deep, that recovery
is killed at each of its requests as well, and a second one ends it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from msgspec import structs

from magic_committer.commit import probe
from magic_committer.errors import MagicError
from magic_committer.options import Accept, ConditionalWrites, Mode, Track
from magic_committer.protocol.record import MAGIC, USUAL_TERMS, State, TaskCommit
from tests.concrete import CLASSES
from tests.simulation import actors, operators
from tests.simulation.faults import Fault
from tests.simulation.promises import Violation
from tests.simulation.scheduler import Actor
from tests.simulation.world import DEST, OPTIONS, JobRun, World

KILLS = ("crash before", "crash after")
TASK_FILES = {"0": 2, "1": 2, "2": 1}
"""Files of each task: five in all."""
SEED = 4
HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class Case:
    """A kind of job.

    Attributes:
        forgetful: the store forgets an upload that was completed.
        conditional_writes: the job's term.
        aborts: the job aborts itself when its tasks are done.
        reverts: the process that comes after the first kill takes it back where it can
            (``abort --revert``), and does not finish it.
        committer: its name. Staging's files are on local disk until a task commits.
    """

    mode: Mode
    accept: Accept
    track: Track
    given: bool
    unique: bool
    forgetful: bool
    conditional_writes: ConditionalWrites = "on"
    aborts: bool = False
    reverts: bool = False
    committer: str = MAGIC

    def __str__(self) -> str:
        told = [
            self.mode, self.accept, self.track, "given id" if self.given else "drawn id",
            "unique names" if self.unique else "user names",
            "forgetful" if self.forgetful else "idempotent",
        ]  # fmt: skip
        told += [name for name in ("aborts", "reverts") if getattr(self, name)]
        if self.conditional_writes == "off":
            told.append("no conditions")
        if self.committer != MAGIC:
            told.append(self.committer)
        return ", ".join(told)


MODES: tuple[Mode, ...] = get_args(Mode)
ACCEPTS: tuple[Accept, ...] = get_args(Accept)
TRACKS: tuple[Track, ...] = get_args(Track)


STAGING: dict[str, tuple[Mode, ...]] = {
    "directory": ("append", "fail", "replace"),
    "partitioned": ("append", "fail_partitions", "replace_partitions"),
}
"""The staging committers, with the modes of their records."""
_TURNS: tuple[Accept, ...] = ("results", "listing", "listing")


def _plain(mode: Mode, accept: Accept, track: Track) -> Case:
    """Every mode with each ``accept`` and ``track``; so that each also meets both kinds of ids, of
    names and of stores."""
    unique, forgetful = accept == "results", track == "memory"
    return Case(mode, accept, track, given=track == "s3", unique=unique, forgetful=forgetful)


CASES = (
    *(_plain(mode, accept, track) for mode in MODES for accept in ACCEPTS for track in TRACKS),
    *(replace(_plain(mode, "results", "memory"), reverts=True) for mode in MODES),
    *(replace(_plain(mode, "listing", "s3"), aborts=True) for mode in ("append", "replace")),
    replace(_plain("append", "results", "memory"), conditional_writes="off"),
    replace(_plain("append", "listing", "s3"), conditional_writes="off"),
    *(
        replace(_plain(mode, accept, "memory"), committer=committer)
        for committer, modes in STAGING.items()
        for mode, accept in zip(modes, _TURNS, strict=True)
    ),
)


@dataclass(frozen=True)
class Kill:
    """Where a process dies: before or after its n-th request."""

    kind: str
    nth: int


@dataclass(frozen=True)
class End:
    """What a run came to. ``struck``: how many of the kills did strike."""

    struck: int
    violations: tuple[Violation, ...]
    calls: tuple[str, ...]


def run(case: Case, kills: tuple[Kill, ...]) -> End:
    """The job, killed by the first; recoveries, killed by the others; and a last recovery."""
    world = World(random.Random(SEED))
    world.store._bucket.forgetful_complete = case.forgetful
    world.store._bucket.missing_is_refused = case.given  # as under the least policy on AWS
    world.store._bucket.page_keys = 1000
    probe._known.clear()
    try:
        return _run(world, case, kills)
    finally:
        world.close()


def _run(world: World, case: Case, kills: tuple[Kill, ...]) -> End:
    partitioned = case.mode.endswith("partitions")
    if case.mode != "fail":
        world.foreign_put(f"{DEST.prefix}old.csv", b"old")
    if case.mode.startswith("replace"):
        world.foreign_put(f"{DEST.prefix}p=1/old.csv", b"old")
        world.foreign_put(DEST.success_key, b"old")
    world.foreign_upload(f"{DEST.prefix}foreign.csv")
    terms = structs.replace(
        USUAL_TERMS,
        mode=case.mode, accept=case.accept, track=case.track, checksum="off",
        conditional_writes=case.conditional_writes, committer=case.committer,
    )  # fmt: skip
    job_id = "given" if case.given else None
    job = JobRun("main", terms, job_id, tuple(TASK_FILES), case.unique, partitioned=partitioned)
    for number, kill in enumerate((*kills, None)):
        if kill is not None:
            nth = world.injector.requests + kill.nth
            world.injector.faults = [Fault(kill.kind, "", nth)]
        program = partial(operators.recover_all, world, False)
        if number == 0:
            program = partial(_job, world, job, case.aborts)
        elif number == 1 and case.reverts:
            program = partial(_take_back, world)
        elif kill is not None:
            program = partial(operators.recover, world, operators.Shift())
        world.start(f"process {number}", "walker", program)
        world.scheduler.run()
        world.injector.faults = []
        world.scheduler.now += HOUR_SECONDS
    for actor, error in world.scheduler.crashes:
        world.watch.broken("I10", f"{actor} raised {error!r}")
    world.watch.end()
    calls = tuple(map(str, world.injector.calls))
    return End(len(world.injector.struck), tuple(world.watch.violations), calls)


def _take_back(world: World, actor: Actor) -> None:
    """Revert whatever job is there, then finish what could not be taken back."""
    for job_id in world.job_ids():
        operators.abort(world, job_id, True, actor)
    operators.recover_all(world, False, actor)


def _job(world: World, job: JobRun, aborts: bool, actor: Actor) -> None:
    committer = CLASSES[job.terms.committer].setup(
        world.runtime(actor), DEST, job.terms, OPTIONS, world.blocks, job.job_id
    )
    results: list[TaskCommit] = []
    for task, files in TASK_FILES.items():
        attempt = committer.attempt(task)
        known = actors.known_attempt(world, attempt)
        known.told = True
        for number in range(files):
            actors.write_file(world, job, attempt, known, number)
        results.append(attempt.commit())
        known.closed = known.closed or dict.fromkeys(known.files, 0)
    if aborts:
        with suppress(MagicError):
            report = committer.driver().abort()
            world.watch.told(committer.job.uuid, f"{actor}: abort", report.outcome, None)
        return
    wanted = results if job.terms.accept == "results" else None
    with suppress(MagicError):
        report = committer.driver().commit(wanted, list(TASK_FILES))
        world.watch.told(committer.job.uuid, f"{actor}: commit", report.outcome, None)
        assert report.state in (State.ABSENT, State.CLOSED)


def kills(case: Case, before: tuple[Kill, ...]) -> Iterator[tuple[tuple[Kill, ...], End]]:
    """Every kill of the process that comes after those of ``before``, with its end; and at last a
    run in which that process is not killed."""
    nth = 1
    while True:
        for kind in KILLS:
            all_kills = (*before, Kill(kind, nth))
            end = run(case, all_kills)
            yield all_kills, end
            if end.struck < len(all_kills):
                return
        nth += 1


@dataclass
class Walk:
    """What a walk came to. ``points``: at how many points a process was killed. ``failures``: where
    a promise broke."""

    points: int
    failures: list[tuple[tuple[Kill, ...], End]]


def walk(case: Case, depth: int) -> Walk:
    """Kill the job at each request; with ``depth`` 2 its recovery at each of its own, too."""
    walked = Walk(0, [])
    for first, end in kills(case, ()):
        ends = [(first, end)]
        if depth > 1 and end.struck:
            ends += kills(case, first)
        for all_kills, last in ends:
            walked.points += last.struck == len(all_kills)
            if last.violations:
                walked.failures.append((all_kills, last))
    return walked

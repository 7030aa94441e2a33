"""A streaming query: its drivers, each of whose batches is planned and written by one process and
committed by another, as Spark does it (`decisions` judges them).

A driver goes on to the next batch when the commit of one has returned; after an error, or a kill,
it runs the same batch again, by new processes. Two drivers of the same query may run at once. In
the end the whole query is replayed, without faults.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from magic_committer import StreamBatch, api
from magic_committer.errors import MagicError
from magic_committer.job import Job
from magic_committer.maintenance.api import abort_jobs_of
from magic_committer.options import Mode
from magic_committer.protocol.ledger import hash_of
from magic_committer.protocol.record import TaskCommit
from tests.simulation import actors
from tests.simulation.scheduler import Actor
from tests.simulation.world import OPTIONS, JobRun, World

QUERY = "query"
CHECKPOINT = "s3://bucket/checkpoint"
BATCHES = 2
"""Batches that each driver of a query publishes."""
RUNS_MAX = 4
"""Runs of batches, until a driver gives up."""
REPLAYS_MAX = 4
"""Runs of one batch in the last replay, which meets no faults."""
PAUSE_SECONDS = 2.0


@dataclass
class BatchRun:
    """One run of a batch. ``number``: the batch. job, results: what was written, when its first
    process has ended. ``published``: its commit returned. error: what its commit raised."""

    number: int
    job: Job | None = None
    results: list[TaskCommit] = field(default_factory=list)
    published: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """What all drivers of the query do alike. ``mode``: of its jobs: ``"replace"`` where each batch
    holds the whole result. ``marks``: its jobs write `_SUCCESS`."""

    mode: Mode
    marks: bool


def query(world: World, name: str, what: Query, delay: int, actor: Actor) -> None:
    """A driver of the query. It sends nothing itself: its processes do. ``delay``: turns that it
    waits first."""
    world.wait_turns(delay)
    number = 0
    for attempt in range(RUNS_MAX):
        run = BatchRun(number)
        who = f"{name}/{number}.{attempt}"
        _process(world, f"{who}-writes", partial(write, world, run, what))
        if run.job is not None:
            _process(world, f"{who}-commits", partial(commit, world, run))
        if run.published:
            number += 1
        elif (drawn := world.chance.random()) < 0.3:
            _process(world, f"{who}-aborts", partial(abort, world, run))
        elif drawn < 0.4 and run.job is not None:
            _process(world, f"{who}-by-hand", partial(by_hand, world, run))
        if number == BATCHES:
            return


def _process(world: World, name: str, program: Callable[[Actor], object]) -> None:
    """Run a process to its end; it may be killed."""
    started = world.start(name, "driver", program)
    world.scheduler.wait(started.ended)


def write(world: World, run: BatchRun, what: Query, actor: Actor) -> None:
    """Starts the job of a run and writes its file: the driver's planner and its tasks in one."""
    watch = world.watch
    watch.runs_batch(run.number)
    actor.serves_all = True  # its start settles a crashed run that is in the way
    try:
        job = api.start(
            world.dest.url, mode=what.mode, accept="results", track="memory",
            mark_success=what.marks, checkpoint=CHECKPOINT, options=OPTIONS,
        )  # fmt: skip
    except MagicError as error:
        watch.refused(actor.job, error)
        watch.set_up_failed(actor, error)
        return
    watch.truth.jobs[job.uuid].handed_out = True
    watch.truth.jobs[job.uuid].batch = run.number
    actor.serves_all, actor.job = False, job.uuid
    shape = JobRun(f"batch{run.number}", job._started.terms, None, ("0",), unique=True)
    attempt = job.task("0")
    known = actors.known_attempt(world, attempt)
    try:
        actors.write_file(world, shape, attempt, known, 0)
        run.results = [attempt.commit()]
    except MagicError:
        known.undone = True
        for undo in (attempt.abort, job.abort):
            with suppress(MagicError):
                undo()
        return
    known.told, run.job = True, job


def commit(world: World, run: BatchRun, actor: Actor) -> None:
    """Commits a run in a process of its own. It serves all: it settles the run before."""
    assert run.job is not None
    job = Job.from_dict(run.job.to_dict())
    actor.serves_all, actor.job = True, job.uuid
    batch, asked = StreamBatch(QUERY, run.number), f"{actor}: commit"
    since = world.watch.calls(actor)
    try:
        report = job.commit(run.results, batch=batch)
    except MagicError as error:
        run.error = f"{type(error).__name__}: {error}"
        world.watch.told(job.uuid, asked, "", error, since)
        return
    run.published = True
    handed = [result.attempt for result in run.results]
    if report.outcome:
        world.watch.told(job.uuid, asked, report.outcome, None, since, handed)
    world.watch.told_published(run.number, asked, skipped=report.skipped)


def abort(world: World, run: BatchRun, actor: Actor) -> None:
    """Ends a run that failed: by its job, or, if no message of it is there, by the checkpoint."""
    actor.serves_all = True
    if run.job is None or world.chance.random() < 0.5:
        with suppress(MagicError):
            abort_jobs_of(world.runtime(actor), world.dest, hash_of(CHECKPOINT), OPTIONS)
        return
    actor.job = run.job.uuid
    actors.abort(world, Job.from_dict(run.job.to_dict()), actor)


def by_hand(world: World, run: BatchRun, actor: Actor) -> None:
    """Somebody commits a run that failed as if it were any job: without its batch."""
    assert run.job is not None
    actor.serves_all, actor.job = True, run.job.uuid
    job = Job.from_dict(run.job.to_dict())
    actors.told(world, job, f"{actor}: commit", partial(job.commit, run.results))


def replay(world: World, what: Query, actor: Actor) -> None:
    """The query is run once more from its first batch on, without faults: what is published is
    skipped, and what is not is published."""
    for number in range(world.watch.batches_begun + 1):
        for attempt in range(REPLAYS_MAX):
            run = BatchRun(number)
            _process(world, f"last/{number}.{attempt}-w", partial(write, world, run, what))
            _process(world, f"last/{number}.{attempt}-c", partial(commit, world, run))
            if run.published:
                break
            world.scheduler.sleep(PAUSE_SECONDS)
        else:
            world.watch.broken("I5", f"batch {number} cannot be published any more: {run.error}")

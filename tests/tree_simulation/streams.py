"""A streaming query in a world: its drivers run each micro-batch until it is published.

A driver dies, is paused, or runs beside another one; operators end its jobs. Each batch must be
published by one job. That a published job's files are all there is judged as for every job.

What is excused: a batch of which a job was given up by force, for what of it is visible stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.errors import MagicError
from magic_committer.protocol.ledger import StreamBatch, hash_of
from magic_committer.protocol.record import JobReport, TaskCommit, Terms
from magic_committer.stores.base import Attributes
from tests.simulation.scheduler import Actor
from tests.tree_simulation.tree import URL
from tests.tree_simulation.truth import AttemptTruth
from tests.tree_simulation.world import OPTIONS, World

QUERY = "clicks"
CHECKPOINT = hash_of("file:///checkpoint")
TRIES_MAX = 4
"""How often a driver runs a batch that fails, before it gives up."""


@dataclass
class Query:
    """A query.

    Attributes:
        batches: how many there are. mode: of its jobs.
        runs: by the batch's number, the jobs that were to publish it.
        ended: the last driver, without faults, has come through.
    """

    batches: int
    mode: str
    runs: dict[int, list[str]] = field(default_factory=dict)
    ended: bool = False


def driver(world: World, query: Query, delay: float, actor: Actor) -> None:
    """Run the batches in order, each until it is published; give up as Spark does."""
    world.scheduler.sleep(delay)
    for number in range(query.batches):
        for _ in range(TRIES_MAX):
            try:
                told = _run(world, query, number, actor)
            except (MagicError, KeyboardInterrupt):
                world.judge.met("batch failed")
                world.scheduler.sleep(world.chance.choice((0.1, 30.0)))
                continue
            if told.skipped:
                world.judge.met("batch skipped")
                if not any(_published(world, query, n) for n in range(number, query.batches)):
                    world.judge.broken("I10", f"{actor}: batch {number} is told as published")
            break
        else:
            return


def _run(world: World, query: Query, number: int, actor: Actor) -> JobReport:
    terms = Terms(
        track="memory", committer="manifest", accept="results", mode=query.mode,  # type: ignore[arg-type]
        mark_success=False,
    )  # fmt: skip
    committer = ManifestCommitter.start(
        world.process(actor), URL, terms, OPTIONS, checkpoint=CHECKPOINT
    )
    uuid = committer.job.uuid
    actor.job = uuid
    query.runs.setdefault(number, []).append(uuid)
    results = [_task(world, committer, f"t{task}", number) for task in range(2)]
    world.judge.jobs[uuid].handed |= {result.attempt for result in results}
    asked = world.judge.asks(uuid, actor.name, "commit")
    world.faults.interruptible.add(actor.name)
    try:
        report = committer.commit_job(results, expect=2, batch=StreamBatch(QUERY, number))
    except MagicError as error:
        world.judge.raised(asked, error)
        raise
    except KeyboardInterrupt as error:
        world.judge.interrupted(asked, error)
        raise
    finally:
        world.faults.interruptible.discard(actor.name)
    world.judge.returned(asked, report, warnings=report.warnings)
    return report


def _task(world: World, committer: ManifestCommitter, name: str, number: int) -> TaskCommit:
    writing = committer.attempt(name)
    known = AttemptTruth(name)
    world.judge.attempts[committer.job.uuid, writing.attempt] = known
    body = f"batch {number} {name}".encode()
    file = writing.open(f"stream/{number}-{name}.csv", unique=True, attributes=Attributes())
    file.write(body)
    known.files[file.name.removeprefix(URL)] = body
    file.close()
    return writing.commit()


def _published(world: World, query: Query, number: int) -> list[str]:
    jobs = world.judge.jobs
    return [uuid for uuid in query.runs.get(number, ()) if jobs[uuid].decision == "committed"]


def populate(world: World) -> Query | None:
    """Draw whether there is a query in a world, and start its drivers."""
    chance = world.chance
    if chance.random() < 0.8:
        return None
    query = Query(chance.choice((1, 2, 3)), chance.choice(("append", "append", "replace")))
    for number in range(chance.choice((1, 2, 2))):
        delay = chance.choice((0.0, 0.0, 0.0, 5.0, 5000.0))
        world.start(f"stream{number}", "driver", partial(driver, world, query, delay))
    return query


def last_driver(world: World, query: Query, actor: Actor) -> None:
    """The query is started once more, without faults."""
    driver(world, query, 0.0, actor)
    query.ended = True


def judge_end(world: World, query: Query) -> None:
    """Each batch was published once."""
    for number in range(query.batches):
        published = _published(world, query, number)
        given_up = any(world.judge.jobs[uuid].given_up for uuid in query.runs.get(number, ()))
        world.judge.met("batch")
        if len(query.runs.get(number, ())) > 1:
            world.judge.met("batch run again")
        if len(published) > 1 and not given_up:
            world.judge.broken("I2", f"batch {number} is published by {published}")
        later = any(_published(world, query, n) for n in range(number + 1, query.batches))
        if query.ended and not (published or later or given_up):
            world.judge.broken("I2", f"batch {number} is not published")

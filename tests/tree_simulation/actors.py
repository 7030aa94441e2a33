"""What the processes of a world do: drivers, tasks, operators, other programs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    ConflictingJob,
    JobNotRunning,
    MagicError,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    force_abort_tree,
    inspect_tree_job,
    recover_tree,
)
from magic_committer.stores.base import Attributes
from tests.simulation.scheduler import Actor
from tests.tree_simulation.telling import Asked
from tests.tree_simulation.tree import URL
from tests.tree_simulation.truth import AttemptTruth
from tests.tree_simulation.world import COMMITTERS, OPTIONS, JobRun, World

TRIES_MAX = 3
POLLS_MAX = 400
POLL_SECONDS = 0.5
TURNS_MAX = 150
WAIT_TURNS_MAX = 400
LIMITS_SECONDS = (0.0, 0.0, 60.0, 86_400.0)
LONG_AGO = -1e9
"""A limit that every job is older than, whatever the clocks say."""
EVERYTHING = Limits(LONG_AGO, LONG_AGO, LONG_AGO, forget_given_after=LONG_AGO)


# Drivers and tasks --------------------------------------------------------------------------------


def driver(world: World, run: JobRun, delay: float, aborts: bool, actor: Actor) -> None:
    """Start a job, wait for its tasks, commit or abort it."""
    judge = world.judge
    world.scheduler.sleep(delay)
    if run.job_id is not None and any(job.id == run.job_id for job in judge.jobs.values()):
        judge.met("same id")
    try:
        committer = COMMITTERS[run.terms.committer].start(
            world.process(actor), URL, run.terms, OPTIONS, run.job_id
        )
    except MagicError:
        return  # what of it may be visible is judged by the record: nobody has it
    actor.job = committer.job.uuid
    judge.jobs[actor.job].tasks = frozenset(run.tasks)
    run.started = committer.job
    world.scheduler.notify(run.ready)
    if world.chance.random() < 0.2:
        committer.sign_of_life()()
    for _ in range(POLLS_MAX):
        if len(run.accepted()) == len(run.tasks) or not any(w.strands for w in run.workers):
            break
        world.scheduler.sleep(POLL_SECONDS)
    if aborts or len(run.accepted()) < len(run.tasks):
        if world.chance.random() < 0.5:
            ask(world, committer, run, actor, commits=True)
        ask(world, committer, run, actor, commits=False)
        return
    ask(world, committer, run, actor, commits=True)


def second_driver(world: World, run: JobRun, delay: float, commits: bool, actor: Actor) -> None:
    """Another process with the same job: it commits with what has come, or aborts."""
    world.scheduler.await_if_possible(run.ready)
    if run.started is None:
        return
    world.scheduler.sleep(delay)
    ask(world, world.committer(actor, run.started), run, actor, commits=commits)


def ask(
    world: World, committer: ManifestCommitter, run: JobRun, actor: Actor, *, commits: bool
) -> None:
    """Commit or abort a job, again while it is unfinished, and have judged what is told. A person
    may press Ctrl-C, and then asks again."""
    judge, uuid = world.judge, committer.job.uuid
    job = judge.jobs[uuid]
    for _ in range(TRIES_MAX):
        asked = judge.asks(uuid, actor.name, "commit" if commits else "abort")
        world.faults.interruptible.add(actor.name)
        try:
            if commits:
                results = run.accepted() if run.terms.accept == "results" else None
                job.handed |= {result.attempt for result in results or ()}
                job.first_commit = job.first_commit or asked.since
                report = committer.commit_job(results, expect=len(run.tasks))
            else:
                report = committer.abort_job(revert=world.chance.random() < 0.3)
        except MagicError as error:
            judge.raised(asked, error)
            again = (CommitIncomplete, StoreError, OutcomeUnknown, AbortIncomplete, ConflictingJob)
            if not isinstance(error, again):
                return
        except KeyboardInterrupt as error:
            judge.interrupted(asked, error)
        else:
            judge.returned(asked, report, warnings=report.warnings)
            return
        finally:
            world.faults.interruptible.discard(actor.name)
        world.scheduler.sleep(world.chance.choice((0.1, 20.0)))


def task(
    world: World, run: JobRun, name: str, attempt: int, delay: float, fails: bool, actor: Actor
) -> None:
    """One attempt of a task."""
    world.scheduler.await_if_possible(run.ready)
    if run.started is None:
        return
    world.scheduler.sleep(delay)
    judge, uuid = world.judge, run.started.uuid
    job = world.committer(actor, run.started)
    if judge.jobs[uuid].forgotten:
        judge.met("zombie")
    writing = job.attempt(name)
    known = AttemptTruth(name)
    judge.attempts[uuid, writing.attempt] = known
    try:
        for path in run.tasks[name]:
            body = f"{run.name} {name} {attempt} {path}".encode() * 3
            file = writing.open(path, unique=run.unique, attributes=Attributes())
            own = file.name.removeprefix(URL)
            file.write(body)
            known.files[own] = body
            file.close()
        if not fails:
            commit_attempt(world, run, actor, writing, known)
            return
    except MagicError:
        if world.chance.random() < 0.5:
            with suppress(MagicError):
                commit_attempt(world, run, actor, writing, known)
                return
    with suppress(MagicError):
        writing.abort()
        known.given_up = True


def commit_attempt(
    world: World, run: JobRun, actor: Actor, writing: TreeAttempt, known: AttemptTruth
) -> None:
    """Commit an attempt, and send its result. What an error says of the job is judged."""
    judge = world.judge
    assert run.started is not None
    asked = judge.asks(run.started.uuid, actor.name, "commit of an attempt")
    try:
        result = writing.commit()
    except JobNotRunning as error:
        judge.raised(asked, error)
        raise
    run.messages.append(result)
    known.told_step = world.scheduler.steps
    judge.attempt_committed(asked, known)


# Operators ----------------------------------------------------------------------------------------


def operator(world: World, what: str, delay: float, actor: Actor) -> None:
    """One call of an operator, on a job that there is."""
    world.scheduler.sleep(delay)
    if world.chance.random() < 0.5:
        wait_for_state(world, ("committing", "reverting", "completed"))
    else:
        for _ in range(world.chance.randrange(TURNS_MAX)):
            world.scheduler.turn()
    parts, chance, judge = world.parts(actor), world.chance, world.judge
    if what == "cleanup":
        dead, leftover, forget = (chance.choice(LIMITS_SECONDS) for _ in range(3))
        limits = Limits(
            dead, leftover, forget, forget if chance.random() < 0.5 else 1e9, chance.random() < 0.7
        )
        with suppress(StoreError):
            TreeCleaning(parts, limits, dry_run=False).run()
        return
    try:
        jobs = [paths.uuid for paths in records.every_job(parts)]
    except StoreError:
        return
    jobs = [uuid for uuid in jobs if uuid in judge.jobs]
    if not jobs:
        return
    uuid = chance.choice(jobs)
    asked = judge.asks(uuid, actor.name, what)
    try:
        if what == "recover":
            limit = chance.choice(LIMITS_SECONDS)
            told = recover_tree(parts, uuid, dead_after=limit)
            judge.returned(asked, told, warnings=told.report.warnings if told.report else ())
        elif what == "inspect":
            found = inspect_tree_job(parts, uuid, 0.0)
            if found is not None:
                judge.in_passing(asked, found)
        elif what == "force_abort":
            force(world, asked, parts)
        else:
            report = abort_tree(parts, uuid, revert=what == "revert")
            judge.returned(asked, report, warnings=report.warnings)
    except MagicError as error:
        judge.raised(asked, error)


def wait_for_state(world: World, states: tuple[str, ...]) -> None:
    """Wait until some job is in one of the states, and some turns more; but not for ever."""
    for _ in range(WAIT_TURNS_MAX):
        if any(job.state in states for job in world.judge.jobs.values()):
            break
        world.scheduler.turn()
    for _ in range(world.chance.randrange(12)):
        world.scheduler.turn()


def force(world: World, asked: Asked, parts: Any) -> None:
    """Give a job up. Only if its record goes by this call, it is excused what stays visible."""
    judge = world.judge
    judge.forcing[asked.who] = asked.uuid  # also if it takes effect late
    told = force_abort_tree(parts, asked.uuid, dead_after=world.chance.choice(LIMITS_SECONDS))
    if told.report is not None:
        judge.returned(asked, told, warnings=told.report.warnings)


def recover_all(world: World, actor: Actor) -> None:
    """Everything that there is, with no faults any more."""
    parts, judge = world.parts(actor), world.judge
    for paths in list(records.every_job(parts)):
        seen = records.read(parts, paths)
        if seen is None or paths.uuid not in judge.jobs:
            continue
        if str(seen.record.state) != "closed":
            judge.met("recovered")
        asked = judge.asks(paths.uuid, actor.name, "recover")
        try:
            told = recover_tree(parts, paths.uuid, dead_after=LONG_AGO)
        except CommitIncomplete as error:
            names = [*error.unresolved, *error.outstanding]
            judge.accepts(paths.uuid, names)
            told = recover_tree(parts, paths.uuid, dead_after=LONG_AGO, accept=names)
        judge.returned(asked, told, warnings=told.report.warnings if told.report else ())


def last_cleanup(world: World, actor: Actor) -> None:
    """Everything goes."""
    report = TreeCleaning(world.parts(actor), EVERYTHING, dry_run=False).run()
    for error in report.errors:
        world.judge.broken("I5", f"the last cleanup: {error}")


# Other programs -----------------------------------------------------------------------------------


def program(world: World, names: tuple[str, ...], steps: int, actor: Actor) -> None:
    """Write and delete files in the destination, now and then."""
    for number in range(steps):
        world.scheduler.sleep(world.chance.choice((0.0, 0.1, 2.0, 30.0)))
        if world.chance.random() < 0.5:
            wait_for_state(world, ("completed", "reverting"))
        else:
            for _ in range(world.chance.randrange(40)):
                world.scheduler.turn()
        visible = [p for p in world.judge.visible if not p.startswith("_")]
        if visible and world.chance.random() < 0.3:
            path = world.chance.choice(sorted(visible))
            world.foreign_delete(path)
        elif visible and world.chance.random() < 0.6:
            world.foreign_put(world.chance.choice(sorted(visible)), f"{actor} {number}".encode())
        else:
            world.foreign_put(world.chance.choice(names), f"{actor} {number} new".encode())

"""What the processes of a world do: drivers, tasks, operators, other programs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    CommitRefused,
    ConflictingJob,
    DestinationExists,
    IncompleteJob,
    JobNotRunning,
    MagicError,
    OptionError,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    force_abort_tree,
    inspect_tree,
    recover_tree,
)
from magic_committer.stores.base import Attributes
from tests.simulation.scheduler import Actor
from tests.tree_simulation.tree import URL
from tests.tree_simulation.world import OPTIONS, JobRun, World

TRIES_MAX = 3
POLLS_MAX = 400
POLL_SECONDS = 0.5
TURNS_MAX = 150
WAIT_TURNS_MAX = 400
LIMITS_SECONDS = (0.0, 0.0, 60.0, 86_400.0)
EVERYTHING = Limits(0.0, 0.0, 0.0, forget_given=True)


# Drivers and tasks --------------------------------------------------------------------------------


def driver(world: World, run: JobRun, delay: float, aborts: bool, actor: Actor) -> None:
    """Start a job, wait for its tasks, commit or abort it."""
    world.scheduler.sleep(delay)
    if run.job_id is not None and any(job.id == run.job_id for job in world.judge.jobs.values()):
        world.judge.met("same id")
    try:
        committer = ManifestCommitter.start(
            world.process(actor), URL, run.terms, OPTIONS, run.job_id
        )
    except MagicError:
        return  # what of it may be visible is judged by the record: it was never decided
    actor.job = committer.job.uuid
    world.judge.jobs[actor.job].handed_out = True
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
    """Commit or abort a job, again while it is unfinished, and have judged what is told."""
    uuid = committer.job.uuid
    for _ in range(TRIES_MAX):
        before = world.judge.jobs[uuid].decision
        try:
            if commits:
                results = run.accepted() if run.terms.accept == "results" else None
                report = committer.commit_job(results, expect=len(run.tasks))
            else:
                report = committer.abort_job(revert=world.chance.random() < 0.3)
        except MagicError as error:
            judge_error(world, uuid, f"{actor}: {'commit' if commits else 'abort'}", error, before)
            again = (CommitIncomplete, StoreError, OutcomeUnknown, AbortIncomplete, ConflictingJob)
            if not isinstance(error, again):
                return
            world.scheduler.sleep(world.chance.choice((0.1, 20.0)))
            continue
        world.judge.told(uuid, f"{actor}: {'commit' if commits else 'abort'}", report.outcome)
        return


def judge_error(world: World, uuid: str, asked: str, error: MagicError, before: str) -> None:
    """What an error says of a job: see the errors' own words."""
    judge = world.judge
    if isinstance(error, JobNotRunning):
        judge.told(uuid, asked, error.outcome, done=False)
    elif isinstance(error, CommitRefused | DestinationExists):
        report: Any = error.report
        judge.told(uuid, asked, report.outcome if report is not None else "")
    elif isinstance(error, CommitIncomplete):
        decision = judge.jobs[uuid].decision
        if decision not in ("committed", "reverted") and not judge.jobs[uuid].given_up:
            judge.broken("I10", f"{asked} of {uuid} says that it is decided: {error}")
    elif isinstance(error, IncompleteJob | OptionError | ConflictingJob):
        judge.met("told undecided")


def task(
    world: World, run: JobRun, name: str, attempt: int, delay: float, fails: bool, actor: Actor
) -> None:
    """One attempt of a task."""
    world.scheduler.await_if_possible(run.ready)
    if run.started is None:
        return
    world.scheduler.sleep(delay)
    job = world.committer(actor, run.started)
    if world.judge.jobs[run.started.uuid].forgotten:
        world.judge.met("zombie")
    writing = job.attempt(name)
    from tests.tree_simulation.judge import AttemptTruth

    known = AttemptTruth(name)
    world.judge.attempts[run.started.uuid, writing.attempt] = known
    try:
        for path in run.tasks[name]:
            body = f"{run.name} {name} {attempt} {path}".encode() * 3
            file = writing.open(path, unique=run.unique, attributes=Attributes())
            own = file.name.removeprefix(URL)
            file.write(body)
            known.files[own] = body
            file.close()
        if fails:
            writing.abort()
            return
        run.messages.append(writing.commit())
    except MagicError:
        with suppress(MagicError):
            if world.chance.random() < 0.5:
                run.messages.append(writing.commit())
                return
        with suppress(MagicError):
            writing.abort()


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
            dead, leftover, forget, forget_given=chance.random() < 0.5, finish=chance.random() < 0.7
        )
        with suppress(MagicError):
            TreeCleaning(parts, limits, dry_run=False).run()
        return
    if what == "inspect":
        with suppress(MagicError):
            list(inspect_tree(parts, 0.0))
        return
    try:
        jobs = [paths.uuid for paths in records.every_job(parts)]
    except MagicError:
        return
    jobs = [uuid for uuid in jobs if uuid in judge.jobs]
    if not jobs:
        return
    uuid = chance.choice(jobs)
    asked = f"{actor}: {what}"
    before = judge.jobs[uuid].decision
    try:
        if what == "recover":
            limit = chance.choice(LIMITS_SECONDS)
            judge.told(uuid, asked, recover_tree(parts, uuid, dead_after=limit).outcome)
        elif what == "force_abort":
            force(world, uuid, parts)
        else:
            report = abort_tree(parts, uuid, revert=what == "revert")
            judge.told(uuid, asked, report.outcome)
    except MagicError as error:
        judge_error(world, uuid, asked, error, before)


def wait_for_state(world: World, states: tuple[str, ...]) -> None:
    """Wait until some job is in one of the states, and some turns more; but not for ever."""
    for _ in range(WAIT_TURNS_MAX):
        if any(job.state in states for job in world.judge.jobs.values()):
            break
        world.scheduler.turn()
    for _ in range(world.chance.randrange(12)):
        world.scheduler.turn()


def force(world: World, uuid: str, parts: Any) -> None:
    """Give a job up. If it was undone after all, that is judged; else it is excused."""
    job = world.judge.jobs[uuid]
    job.given_up = True
    told = force_abort_tree(parts, uuid, dead_after=world.chance.choice(LIMITS_SECONDS))
    if told.report is not None and told.outcome:
        job.given_up = False
        world.judge.told(uuid, "force_abort", told.outcome)


def recover_all(world: World, actor: Actor) -> None:
    """Everything that there is, with no faults any more."""
    parts, judge = world.parts(actor), world.judge
    for paths in list(records.every_job(parts)):
        seen = records.read(parts, paths)
        if seen is None or paths.uuid not in judge.jobs:
            continue
        if str(seen.record.state) != "closed":
            judge.met("recovered")
        try:
            told = recover_tree(parts, paths.uuid, dead_after=0.0)
        except CommitIncomplete as error:
            names = [*error.unresolved, *error.outstanding]
            judge.met("lost name")
            judge.jobs[paths.uuid].accepted |= set(names)
            told = recover_tree(parts, paths.uuid, dead_after=0.0, accept=names)
        judge.told(paths.uuid, "recovery", told.outcome)


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

"""The programs that actors run: what processes around a job do, well and badly.

Each is an ordinary function of the world and its actor that calls the library. What it is told it
reports to the watch, which knows what is true.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from magic_committer import api
from magic_committer.errors import (
    CommitRefused,
    DestinationExists,
    JobNotRunning,
    JobReport,
    MagicError,
)
from magic_committer.hadoop.paths import unique_name
from magic_committer.job import Job, Task
from magic_committer.protocol.record import MAGIC, State, TaskCommit
from magic_committer.stores.base import Attributes
from tests.concrete import BY_NAME, Uploading, Writing, upload_of
from tests.simulation import operators
from tests.simulation.kinds import shown
from tests.simulation.scheduler import Actor, Signal
from tests.simulation.tree import Tree
from tests.simulation.truth import AttemptTruth
from tests.simulation.world import DEST, OPTIONS, JobRun, World

COMMIT_TRIES_MAX = 3
POLLS_MAX = 6
PLAIN = Attributes()
PAUSE_SECONDS = 2.0
LATE_SECONDS = 40.0
FORMER_TURNS_MAX = 60


# Tasks --------------------------------------------------------------------------------------------


def task(world: World, run: JobRun, name: str, ending: str, actor: Actor) -> None:
    """An attempt of a task: waits for the job, writes its files, commits, tells the driver.

    Args:
        ending: ``"well"``; ``"raises"``: it aborts half-way; ``"cut"``: its input ends too early,
            and it commits, and dies before it tells anybody (I9); ``"drops"``: it dies silently
            with a file open; ``"forgets"``: it closes its files, and never commits; ``"slow"``: it
            waits before it commits; ``"late"``: before it begins.
    """
    world.scheduler.wait(run.ready)
    if run.started is None:
        return
    try:
        with suppress(MagicError):
            _write_and_commit(world, run, opened(world, run, name, actor), ending, actor)
    finally:
        _attempt_ends(world, run, name)


def opened(world: World, run: JobRun, name: str, actor: Actor) -> Writing | Task:
    """A new attempt of a task; by the job's handle, as it travels, where its driver has one."""
    assert run.started is not None
    if run.job is None:
        return world.committer(actor, run.started).attempt(name)
    actor.job = run.started.uuid
    job: Job = pickle.loads(pickle.dumps(run.job))
    return job.task(name)


def _attempt_ends(world: World, run: JobRun, name: str) -> None:
    run.working[name] -= 1
    world.scheduler.notify(run.bell, stays=False)


def _write_and_commit(
    world: World, run: JobRun, attempt: Writing | Task, ending: str, actor: Actor
) -> None:
    known = known_attempt(world, attempt, cut=ending == "cut")
    try:
        if ending == "late":
            world.scheduler.sleep(LATE_SECONDS)
        for number in range(run.files):
            write_file(world, run, attempt, known, number)
            if ending == "raises":
                known.undone = True
                attempt.abort()
                return
        if ending == "slow":
            world.scheduler.sleep(PAUSE_SECONDS)
        if ending == "drops":
            die(world, actor)
        if ending == "forgets":
            actor.hurt = True  # to all others it is one that was killed
            return
        result = attempt.commit()
        if run.terms.committer != MAGIC:  # its files leave its machine with the commit
            known.closed = dict.fromkeys(known.files, 0)
    except MagicError:
        known.undone = True
        with suppress(MagicError):
            attempt.abort()
        raise
    if ending == "cut":
        world.watch.met("cut")
        die(world, actor)
    world.scheduler.turn()
    known.told = True
    run.messages.append(result)
    world.scheduler.notify(run.bell, stays=False)


def die(world: World, actor: Actor) -> None:
    actor.hurt = True
    world.scheduler.kill(actor)
    world.scheduler.turn()


def known_attempt(world: World, attempt: Writing | Task, cut: bool = False) -> AttemptTruth:
    """Note an attempt that begins."""
    inner = attempt._attempt if isinstance(attempt, Task) else attempt
    known = AttemptTruth(inner.job.uuid, inner.task, inner.attempt, cut=cut)
    return world.watch.truth.attempts.setdefault((inner.job.uuid, inner.attempt), known)


def write_file(
    world: World, run: JobRun, attempt: Writing | Task, known: AttemptTruth, number: int
) -> None:
    """One small file of an attempt."""
    name = f"{run.name}-{known.task}-{number}.csv"
    if run.partitioned:
        name = f"p={known.task}/{name}"
    body = f"{known.name} writes {name}".encode()[: 20 if known.cut else None]
    if run.terms.committer != MAGIC:
        _write_local_file(world, run, attempt, known, name, body, beside=number % 2 == 1)
        return
    stream = attempt.open(name, unique=run.unique, attributes=PLAIN)
    key = shown(upload_of(stream).key)
    known.files[key] = body
    stream.write(body)
    began = world.scheduler.steps
    if 0 < known.stored_step < began:
        world.watch.met("closed late")
    stream.close()
    known.closed[key] = began
    if world.actor.hurt:
        known.unsure.add(key)


def _write_local_file(
    world: World, run: JobRun, attempt: Writing | Task, known: AttemptTruth, name: str,
    body: bytes, beside: bool,
) -> None:  # fmt: skip
    """One file of an attempt whose files are on local disk: no request of its store, and nobody
    else has it until the attempt is committed. ``beside``: not in its directory, but by name."""
    key = DEST.key(unique_name(name, known.job) if run.unique else name)
    known.files[key] = body
    if beside:
        with attempt.open(name, unique=run.unique, attributes=PLAIN) as file:
            file.write(body)
        return
    path = attempt.directory(unique=run.unique) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    if isinstance(world.store, Tree):
        world.store.stamp(path)


def by_path(
    world: World, run: JobRun, name: str, shared: str, written: Signal, straggles: bool,
    actor: Actor,
) -> None:  # fmt: skip
    """Closes files of an attempt that goes by a name, and leaves its commit to others. ``written``:
    set when it has closed the file that they wait for. ``straggles``: it closes another one later,
    which they know nothing of."""
    world.scheduler.wait(run.ready)
    try:
        if run.started is None:
            return
        with suppress(MagicError):
            attempt = world.committer(actor, run.started).attempt(name, shared)
            known = known_attempt(world, attempt)
            write_file(world, run, attempt, known, 0)
            world.scheduler.notify(written)
            if straggles:
                world.scheduler.sleep(world.chance.random() * LATE_SECONDS)
                write_file(world, run, attempt, known, 1)
    finally:
        if not actor.dead:
            world.scheduler.notify(written)


def by_name(
    world: World, run: JobRun, name: str, shared: str, written: Signal, actor: Actor
) -> None:
    """Commits an attempt that others wrote, by its name."""
    world.scheduler.wait(run.ready)
    if run.started is None:
        return
    try:
        if world.chance.random() < 0.8:
            world.scheduler.await_if_possible(written)
        attempt = world.committer(actor, run.started).attempt(name, shared)
        try:
            result = attempt.commit()
        except MagicError:
            with suppress(MagicError):
                attempt.abort()
            return
        world.scheduler.turn()
        known = world.watch.truth.attempts.get((attempt.job.uuid, shared))
        if known is not None:
            known.told = True
        run.messages.append(result)
    finally:
        _attempt_ends(world, run, name)


def twin_aborts(
    world: World, run: JobRun, name: str, shared: str, written: Signal, delay: int, actor: Actor
) -> None:
    """Aborts an attempt by its name, while others may be committing it: a scheduler that takes its
    task for lost."""
    world.scheduler.wait(run.ready)
    if run.started is None:
        return
    world.scheduler.await_if_possible(written)
    world.wait_turns(delay)
    with suppress(MagicError):
        world.committer(actor, run.started).attempt(name, shared).abort()
        known = world.watch.truth.attempts.get((run.started.uuid, shared))
        if known is not None:
            known.undone = True


# Drivers ------------------------------------------------------------------------------------------


def driver(
    world: World, run: JobRun, patience: str, former: JobRun | None, rest: float, actor: Actor
) -> None:
    """Starts a job, waits for its tasks, runs failed ones again, commits or aborts.

    Args:
        patience: ``"patient"``; ``"polls"``: goes by the listing alone, tries until all tasks are
            there; ``"gives up"``: aborts after the first failure of a commit, as Spark does.
        former: a run of the same given id: it waits until that is at its end, and ``rest`` seconds.
    """
    if run.after is not None:
        world.scheduler.await_if_possible(run.after)
    if former is not None:
        world.scheduler.wait(former.ready)
        if former.started is not None:
            world.wait_for_state(former.started.uuid, "closed")
            world.wait_turns(int(world.chance.random() * FORMER_TURNS_MAX))
            world.scheduler.sleep(rest)
    try:
        committer = set_up(world, run, actor)
    except MagicError as error:
        world.watch.refused(actor.job, error)
        world.watch.set_up_failed(actor, error)
        return
    finally:
        world.scheduler.notify(run.ready)
    if patience == "polls" and run.terms.accept == "listing":
        for _ in range(POLLS_MAX):
            world.wait_turns(1 + int(world.chance.random() * 20))
            if _commit(world, run, committer, actor):
                return
    _await_tasks(world, run)
    if run.careless in ("", "generator", "keyless") and not _run_missing(world, run):
        abort(world, committer, actor)
        return
    for _ in range(COMMIT_TRIES_MAX):
        if _commit(world, run, committer, actor, run.careless):
            return
        if patience == "gives up":
            break
        world.scheduler.sleep(PAUSE_SECONDS)
    else:
        if world.chance.random() < 0.5:
            return
    abort(world, committer, actor)


def set_up(world: World, run: JobRun, actor: Actor) -> Uploading | Job:
    terms = run.terms
    committer: Uploading | Job
    if run.handles:
        run.job = committer = api.start(
            world.dest.url, mode=terms.mode, accept=terms.accept, track=terms.track,
            job_id=run.job_id, mark_success=terms.mark_success, options=OPTIONS,
            committer=terms.committer,
        )  # fmt: skip
        run.started = run.job._started
    else:
        committer = BY_NAME[terms.committer].setup(
            world.runtime(actor), world.dest, terms, OPTIONS, world.blocks, run.job_id
        )
        run.started = committer.job
    world.watch.truth.jobs[run.started.uuid].handed_out = True
    return committer


def _await_tasks(world: World, run: JobRun) -> None:
    while any(run.working[name] for name in run.tasks):
        world.scheduler.hear(run.bell)
        if _all_done(run):
            break


def _run_missing(world: World, run: JobRun) -> bool:
    """Run tasks once more of which nothing was heard; whether all have done well."""
    retried: set[str] = set()
    for name in run.tasks:
        if name not in retried and not any(m.task == name for m in run.messages):
            retried.add(name)
            run.working[name] += 1
            again = partial(task, world, run, name, "well")
            world.start(f"{run.name}/{name}-again", "task", again)
    while any(run.working[name] for name in retried):
        world.scheduler.hear(run.bell)
    return _all_done(run)


def _all_done(run: JobRun) -> bool:
    return {message.task for message in run.messages} >= set(run.tasks)


def _commit(
    world: World, run: JobRun, committer: Uploading | Job, actor: Actor, careless: str = ""
) -> bool:
    results, expect, handed = _offer(world, run, careless)
    job = world.watch.truth.jobs.get(uuid_of(committer))
    if job is not None and careless == "empty":
        job.nothing_said = True
    commit = committer.commit if isinstance(committer, Job) else committer.driver().commit
    call = partial(commit, results, expect=expect)
    return told(world, committer, f"{actor}: commit", call, handed)


def _offer(
    world: World, run: JobRun, careless: str
) -> tuple[Iterable[TaskCommit] | None, int | list[str] | None, list[str]]:
    """What a driver passes to commit: results, and what it expects; and the attempts with files
    among the results."""
    messages, watch = run.first_messages(), world.watch
    if run.terms.accept == "listing":
        if careless == "hopes" and not messages:
            watch.met("nothing")
        return None, {"hopes": None, "empty": 0}.get(careless, list(run.tasks)), []
    handed = [message.attempt for message in messages if message.files]
    if careless == "empty":
        return [], 0, []
    if careless == "generator":
        again, run.given = run.given is not None, run.given or iter(messages)
        if again and handed:
            watch.met("nothing")
        return run.given, None, [] if again else handed
    if careless == "keyless" and messages:
        watch.met("dropped")
        return [replace(messages[0], key="", etag=""), *messages[1:]], None, handed
    if careless == "hopes":
        if not messages:
            watch.met("nothing")
        return messages, None, handed
    return messages, len(run.tasks), handed


def uuid_of(committer: Uploading | Job) -> str:
    return committer.uuid if isinstance(committer, Job) else committer.job.uuid


def abort(world: World, committer: Uploading | Job, actor: Actor) -> bool:
    call = committer.abort if isinstance(committer, Job) else committer.driver().abort
    return told(world, committer, f"{actor}: abort", call)


def told(
    world: World, committer: Uploading | Job, asked: str, call: Callable[[], JobReport],
    handed: Collection[str] = (),
) -> bool:  # fmt: skip
    """Make a call and report what it told; whether the job has come to an end."""
    uuid, since = uuid_of(committer), world.watch.calls(world.actor)
    try:
        report = call()
    except MagicError as error:
        world.watch.told(uuid, asked, "", error, since)
        return isinstance(error, CommitRefused | DestinationExists | JobNotRunning)
    world.watch.told(uuid, asked, report.outcome, None, since, handed)
    return report.state in (State.ABSENT, State.CLOSED)


def rival(world: World, run: JobRun, after: str, delay: int, what: str, actor: Actor) -> None:
    """A second driver of the same job, or an operator who aborts it. ``after``: the record's state
    that it waits for, "" for none. ``delay``: how many turns it then waits. ``what``: ``"commit"``,
    ``"abort"`` or ``"revert"``."""
    world.scheduler.wait(run.ready)
    if run.started is None:
        return
    world.wait_for_state(run.started.uuid, after)
    world.wait_turns(delay)
    with suppress(MagicError):
        found = world.attach(actor, run.started.id)
        if found is None:
            return
        committer, state = found
        if what != "commit" and world.chance.random() < 0.5:
            operators.abort(world, run.started.id, what == "revert", actor)
        elif what == "revert":
            actor.reverts = True
            told(
                world, committer, f"{actor}: revert", partial(committer.driver().abort, revert=True)
            )
        elif what == "abort":
            abort(world, committer, actor)
        elif run.terms.accept == "listing" or state is not State.RUNNING or _all_done(run):
            _commit(world, run, committer, actor)


# Others -------------------------------------------------------------------------------------------


def foreign(world: World, deeds: tuple[str, ...], after: Signal | None, actor: Actor) -> None:
    """Another program in the same directory. ``after``: it begins when that is set."""
    if after is not None:
        world.scheduler.await_if_possible(after)
    for deed in deeds:
        world.wait_turns(1 + int(world.chance.random() * (60 if deed != "drop" else 3)))
        data = [k for k, o in world.watch.truth.objects.items() if o.upload]
        if deed == "overwrite" and data:
            world.foreign_put(world.chance.choice(data), b"foreign")
        elif deed == "overwrite old":
            world.foreign_put(f"{DEST.prefix}old.csv", world.new_id().encode())
        elif deed == "delete" and data:
            world.foreign_delete(world.chance.choice(data))
        elif deed == "ahead" and (open_keys := world.open_keys()):
            world.foreign_put(world.chance.choice(open_keys), b"foreign")
        elif deed == "drop" and (planned := world.planned_uploads()):
            world.foreign_abort(world.chance.choice(planned))
        elif deed == "same":
            for key in (f"{DEST.prefix}old.csv", f"{DEST.prefix}p=0/old.csv"):
                world.foreign_put(key, b"old")
        elif deed == "mark alike":
            world.foreign_put(DEST.success_key, b"")
        elif deed == "mark":
            world.foreign_put(DEST.success_key, world.new_id().encode())
        elif deed == "upload":
            world.foreign_upload(f"{DEST.prefix}foreign.csv")
        elif deed == "write":
            world.foreign_put(f"{DEST.prefix}foreign-{len(world.injector.calls)}.csv", b"foreign")
        world.injector.note(actor.name, "foreign", deed)

"""Those who go by the public calls alone: `write`, and who adopts a job of Hadoop's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magic_committer import api
from magic_committer.errors import MagicError
from magic_committer.hadoop.paths import unique_name
from magic_committer.maintenance.ending import Ending
from magic_committer.options import Mode
from magic_committer.protocol.record import State
from magic_committer.stores.urls import is_tree
from tests.simulation import actors
from tests.simulation.judge import TOLD
from tests.simulation.operators import Shift
from tests.simulation.scheduler import Actor, Signal
from tests.simulation.world import DEST, OPTIONS, World


@dataclass(frozen=True, slots=True)
class Wrote:
    """What a process writes by `write`. ``names``: of its files. unique: with the job's UUID in
    them. raises: its body fails in the end. ``after``: it begins when that is set."""

    mode: Mode
    names: tuple[str, ...]
    unique: bool
    raises: bool
    after: Signal | None


class BodyFailedError(Exception):
    """The body of a `with write(...)` fails."""


def writing(world: World, what: Wrote, actor: Actor) -> None:
    """One job of one process, all or none."""
    if what.after is not None:
        world.scheduler.await_if_possible(what.after)
    world.watch.calls(actor)
    writer = api.write(world.dest.url, mode=what.mode, options=OPTIONS)
    try:
        writer.__enter__()
    except MagicError as error:
        world.watch.refused(actor.job, error)
        world.watch.set_up_failed(actor, error)
        return
    uuid, body = writer.job.uuid, None
    world.watch.truth.jobs[uuid].handed_out = True
    try:
        _body(world, what, writer)
    except (MagicError, BodyFailedError) as error:
        body = error
    since = world.watch.calls(actor)
    try:
        writer.__exit__(type(body) if body else None, body, None)
    except MagicError as error:
        _told(world, uuid, actor, error, since)
    else:
        if body is None:
            handed = [writer._of.attempt] if writer._of is not None else []
            world.watch.told(uuid, f"{actor}: write", writer.report.outcome, None, since, handed)
        else:
            world.watch.claimed(uuid, f"{actor}: write", body, since)


def _body(world: World, what: Wrote, writer: Any) -> None:
    known = actors.known_attempt(world, writer._own())
    for name in what.names:
        body = f"{writer.id} writes {name}".encode()
        stream = writer.open(name, unique=what.unique)
        key = DEST.key(unique_name(name, writer.job.uuid) if what.unique else name)
        known.files[key] = body
        stream.write(body)
        began = world.scheduler.steps
        stream.close()
        known.closed[key] = began
    if what.raises:
        raise BodyFailedError
    known.told = True


def _told(world: World, uuid: str, actor: Actor, error: MagicError, since: int) -> None:
    asked = f"{actor}: write"
    if type(error).__name__ in TOLD:
        world.watch.told(uuid, asked, "", error, since)
    else:
        world.watch.claimed(uuid, asked, error, since)


def adopter(world: World, shift: Shift, job_id: str, commits: bool, actor: Actor) -> None:
    """An operator who takes Hadoop's job for dead, adopts it, and commits or aborts it: by the
    public handle, as `attach` gives it."""
    shift.begin(world, actor)
    actor.serves_all = actor.reads_only = False
    limit, actor.dead_seconds = actor.dead_seconds, 0.0
    try:
        ending = Ending(world.runtime(actor), world.dest, job_id, dead_after=limit, options=OPTIONS)
        ending.adopt_now()
        if is_tree(world.dest.bucket):  # nothing tells what its uploads become from other files
            world.watch.broken("I6", f"{actor} has adopted a job of Hadoop's on a file system")
    except MagicError:
        if not world.uuid_of(job_id):
            return  # else another one has adopted it
    try:
        job = api.attach(world.dest.url, job_id, options=OPTIONS)
    except MagicError:
        return
    actor.job = job.uuid
    for _ in range(actors.COMMIT_TRIES_MAX):
        since = world.watch.calls(actor)
        try:
            report = job.commit() if commits else job.abort()
        except MagicError as error:
            if type(error).__name__ == "CommitRefused":
                return  # of an adopted job that decides nothing: a person does
            world.watch.told(job.uuid, f"{actor}: adopted", "", error, since)
            world.scheduler.sleep(actors.PAUSE_SECONDS)
            continue
        world.watch.told(job.uuid, f"{actor}: adopted", report.outcome, None, since)
        if report.state in (State.ABSENT, State.CLOSED):
            return

"""What operators run: `recover`, `abort`, `cleanup` and `inspect` as production has them.

An operator serves whatever job it finds, so it has no job of its own; what it may touch the watch
judges by whose it is. An age of 0 is its word that a driver is dead, which may be wrong: then too
every promise holds.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from magic_committer.commit import register
from magic_committer.committers.base import driver_of
from magic_committer.errors import CommitIncomplete, JobTooYoung, MagicError, StoreError
from magic_committer.hadoop.paths import JobPaths
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.ending import Ending
from magic_committer.maintenance.inspect import inspect_all
from magic_committer.maintenance.reports import CleanupReport, Recovery
from magic_committer.protocol.record import State
from tests.simulation.kinds import shown
from tests.simulation.scheduler import Actor
from tests.simulation.world import OPTIONS, World

RECOVERY_TRIES_MAX = 4
PAUSE_SECONDS = 2.0
ENDED = (State.ABSENT, State.CLOSED)
AT_ONCE = Limits(dead_after=0.0, leftover_after=0.0, forget_after=0.0, forget_given_after=1e9)


@dataclass(frozen=True, slots=True)
class Shift:
    """When an operator begins, and what it asks for. ``delay``: turns that it waits first. sleep:
    seconds of virtual time, after that. ``dead``: ``dead_after``. dry_run: it only asks what would
    be done."""

    delay: int = 0
    sleep: float = 0.0
    dead: float = 0.0
    dry_run: bool = False

    def begin(self, world: World, actor: Actor) -> None:
        actor.serves_all = True
        actor.reads_only = self.dry_run
        actor.dead_seconds = self.dead
        world.wait_turns(self.delay)
        if self.sleep:
            world.scheduler.sleep(self.sleep)


# Recovery -----------------------------------------------------------------------------------------


def recover(world: World, shift: Shift, actor: Actor) -> None:
    """Finishes or undoes every job that it finds, once: forward what was decided, back what not."""
    shift.begin(world, actor)
    for job_id in world.job_ids():
        recover_one(world, job_id, actor)


def recover_one(world: World, job_id: str, actor: Actor) -> bool:
    """Recover one job; whether it is at its end."""
    watch, asked, since = world.watch, f"{actor}: recovery", world.scheduler.steps
    uuid = world.uuid_of(job_id)
    try:
        ending = Ending(
            world.runtime(actor), world.dest, job_id,
            dead_after=actor.dead_seconds, options=OPTIONS,
        )  # fmt: skip
        accept = [world.own_key(key) for key in watch.taken(uuid)]
        recovery = ending.recover_now(accept, dry_run=actor.reads_only)
    except JobTooYoung:
        return False
    except MagicError as error:
        if world.uuid_of(job_id) in ("", uuid):
            watch.told(uuid, asked, "", error, since)
        if isinstance(error, CommitIncomplete):
            watch.take_as_is(uuid, map(shown, error.unresolved))
        return False
    heard(world, asked, recovery)
    return recovery.state in ENDED


def heard(world: World, asked: str, recovery: Recovery) -> None:
    """Hold what a recovery tells against the truth."""
    uuid = recovery.uuid or recovery.job_id  # a drawn id is the UUID
    if recovery.dry_run:
        world.watch.told_in_passing(uuid, asked, recovery.outcome)
    elif recovery.outcome:
        world.watch.told(uuid, asked, recovery.outcome, None)


def abort(world: World, job_id: str, revert: bool, actor: Actor) -> None:
    """An operator's `abort`: of a job that may be alive."""
    actor.serves_all = True
    actor.reverts = actor.reverts or revert
    runtime, asked, since = world.runtime(actor), f"{actor}: abort", world.scheduler.steps
    try:
        seen = register.read(runtime, JobPaths(world.dest, job_id).record)
    except MagicError:
        return
    if seen is None:
        return
    uuid = seen.record.uuid
    try:
        report = driver_of(runtime, world.dest, seen, OPTIONS).abort(revert=revert)
    except MagicError as error:
        world.watch.told(uuid, asked, "", error, since)
        return
    world.watch.told(uuid, asked, report.outcome, None)


# Cleanup and looks --------------------------------------------------------------------------------


def cleanup(world: World, shift: Shift, limits: Limits, actor: Actor) -> None:
    """Cleans up, as from cron."""
    shift.begin(world, actor)
    with suppress(StoreError):
        clean(world, limits, actor)


def clean(world: World, limits: Limits, actor: Actor) -> CleanupReport:
    actor.dead_seconds = limits.dead_after
    cleaning = Cleaning(
        world.runtime(actor), world.dest, limits, dry_run=actor.reads_only, options=OPTIONS
    )
    report = cleaning.run()
    for recovery in report.recovered:
        heard(world, f"{actor}: cleanup", recovery)
    return report


def inspect(world: World, shift: Shift, actor: Actor) -> None:
    """Looks at all jobs, and changes nothing."""
    shift.begin(world, actor)
    actor.reads_only = True
    with suppress(StoreError):
        for found in inspect_all(world.runtime(actor), world.dest, shift.dead):
            world.watch.told_in_passing(found.uuid, f"{actor}: inspect", found.outcome)


# The end ------------------------------------------------------------------------------------------


def recover_all(world: World, cleans: bool, actor: Actor) -> None:
    """The last recovery, without faults: again and again until all is at its end. ``cleans``: it
    begins with a cleanup, which recovers all but what needs an operator's word."""
    actor.serves_all = True
    if cleans:
        clean(world, AT_ONCE, actor)
    actor.dead_seconds = 0.0
    for _ in range(RECOVERY_TRIES_MAX):
        left = [job_id for job_id in world.job_ids() if not recover_one(world, job_id, actor)]
        if not left:
            return
        world.scheduler.sleep(PAUSE_SECONDS)


def last_cleanup(world: World, limits: Limits, actor: Actor) -> None:
    """The last cleanup, without faults: afterwards nothing of ours is left, and what it says is
    what it did."""
    actor.serves_all = True
    report = clean(world, limits, actor)
    if report.errors:
        world.watch.broken("I5", f"the last cleanup could not do all: {report.errors}")
    world.watch.told_removed(report, actor)

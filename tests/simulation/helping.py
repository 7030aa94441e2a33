"""Helpers: processes that complete pieces of what a driver has decided, well and badly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from magic_committer.commit.pieces import Piece, PlannedFiles, cut
from magic_committer.errors import MagicError
from magic_committer.protocol.record import StartedJob
from tests.simulation import actors
from tests.simulation.scheduler import Actor
from tests.simulation.world import JobRun, World

ENDINGS = ("well", "well", "well", "slow", "late", "dies", "idle")
"""``"slow"`` and ``"late"``: it waits before it begins, ``"late"`` so long that its job may be
over. ``"dies"``: it is killed while it works. ``"idle"``: it says that it is done, and has done
nothing."""
TWINS = 0.4
"""How often a piece has two helpers, as by speculation."""
GIVEN_UP = 0.25
"""How often the driver is told that its helpers have failed, while they still work."""
HELP_TURNS_MAX = 400
LIVES_TURNS_MAX = 12
PIECE_FILES_MAX = 3


def distributing(world: World, run: JobRun) -> Callable[[PlannedFiles], None]:
    """What a driver gives to commit: it has the pieces completed by other processes, and waits for
    most of them."""

    def distribute(sets: PlannedFiles) -> None:
        chance = world.chance
        assert run.started is not None
        told: list[Piece] = []
        pieces = cut(sets, 1 + int(chance.random() * PIECE_FILES_MAX))
        for number, piece in enumerate(pieces):
            for _ in range(2 if chance.random() < TWINS else 1):
                ending = chance.choice(ENDINGS)
                program = partial(helper, world, run.started, piece, ending, told)
                world.start(f"{run.name}/{number}-{ending}", "helper", program)
        if chance.random() < GIVEN_UP:
            world.wait_turns(int(chance.random() * HELP_TURNS_MAX))
            raise RuntimeError("the Spark job failed")
        for _ in range(HELP_TURNS_MAX):
            if all(piece in told for piece in pieces):
                return
            world.scheduler.turn()

    return distribute


def helper(
    world: World, started: StartedJob, piece: Piece, ending: str, told: list[Piece], actor: Actor
) -> None:
    """One helper with one piece."""
    if ending == "slow":
        world.scheduler.sleep(actors.PAUSE_SECONDS)
    if ending == "late":
        world.scheduler.sleep(actors.LATE_SECONDS)
    if ending == "dies":
        world.scheduler.spawn(actor, partial(_dies, world, actor))
    if ending != "idle":
        with suppress(MagicError):
            world.committer(actor, started).complete_piece(piece)
    told.append(piece)


def _dies(world: World, actor: Actor) -> None:
    world.wait_turns(int(world.chance.random() * LIVES_TURNS_MAX))
    actors.die(world, actor)

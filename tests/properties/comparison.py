"""Every committer by every property: which holds, how often it could have failed, and a witness.

A property holds if no schedule breaks it; its cell says how many tried. A cell without an attempt
is an error: nothing was found out. Where it does not hold, the first schedule that breaks it is
kept. Schedules with fewer cuts and smaller jobs come first, so it is a short one, and no schedule
with fewer cuts shows the breach.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.properties.definitions import PROPERTIES, Property
from tests.properties.play import Play, Size
from tests.properties.schedules import SCENARIOS, Scenario, plays
from tests.properties.stage import Moment, for_people
from tests.properties.subject import Subject

COLLECT_EVERY = 50
"""Plays, after which their garbage is collected: never inside one (`tests.simulation.tally`)."""

BY_NAME = {one.name: one for one in PROPERTIES}


@dataclass
class Cell:
    """One committer, one property.

    Attributes:
        tries: how many schedules could have broken it. witness: one that did; None: none did.
    """

    tries: int = 0
    witness: Witness | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing broke it."""
        return self.witness is None


@dataclass(frozen=True)
class Witness:
    """A schedule that breaks a property.

    Attributes:
        subject, scenario: the committer's name, and what was done. words: what broke.
        cuts: where it was cut. told: what somebody was told, by the number of moments before it.
    """

    subject: str
    scenario: str
    words: str
    size: Size
    moments: tuple[Moment, ...]
    told: tuple[tuple[int, str], ...]


@dataclass
class Column:
    """All cells of one committer."""

    name: str
    cells: dict[str, Cell] = field(default_factory=lambda: {p.name: Cell() for p in PROPERTIES})
    schedules: int = 0


def compare(
    name: str,
    subjects: Sequence[Subject],
    scenarios: Sequence[Scenario] = SCENARIOS,
    only: Sequence[str] = (),
    *,
    every: bool = False,
) -> Column:
    """Try a committer.

    Args:
        subjects: its variants; a property holds if it holds for each of them.
        scenarios: what is done to it.
        only: names of the properties to decide; none: all of them.
        every: try also cuts that are the same as others: see `schedules.tells`.
    """
    column = Column(name)
    wanted = set(only or BY_NAME)
    for scenario in scenarios:
        tests = [name for name in scenario.tests if name in wanted]
        for size in scenario.sizes:
            for subject in subjects:
                if all(column.cells[one].witness for one in tests):
                    break  # nothing is left to be found out
                for play in plays(subject, scenario, size, every=every):
                    column.schedules += 1
                    _judge(column, tests, scenario, play)
                    if column.schedules % COLLECT_EVERY == 0:
                        gc.collect()
    return column


def _judge(column: Column, tests: Sequence[str], scenario: Scenario, play: Play) -> None:
    for name in tests:
        cell = column.cells[name]
        if cell.witness is not None:
            continue
        words = BY_NAME[name].judge(play)
        if words is None:
            continue
        cell.tries += 1
        if words:
            cell.witness = _witness(scenario, play, words)


def _witness(scenario: Scenario, play: Play, words: str) -> Witness:
    told = tuple((one.after, f"{one.by} of {one.job}: {one.outcome}") for one in play.told)
    moments = tuple(replace(one, request=for_people(one.request)) for one in play.stage.moments)
    return Witness(play.subject.name, scenario.name, for_people(words), play.size, moments, told)


def undecided(columns: Sequence[Column]) -> list[str]:
    """Cells that nobody tried to break."""
    return [
        f"{column.name}: {name}"
        for column in columns
        for name, cell in column.cells.items()
        if not cell.tries
    ]


def definition(name: str) -> Property:
    """A property by its name."""
    return BY_NAME[name]

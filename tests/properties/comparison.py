"""Every committer by every property: which holds, how often it could have failed, and a witness.

A property holds if no schedule breaks it; its cell says how many tried. A cell without an attempt
is an error: nothing was found out. Where it does not hold, the first schedule that breaks it is
kept. Schedules with fewer cuts and smaller jobs come first, so it is a short one, and no schedule
with fewer cuts shows the breach.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from tests.properties.definitions import PROPERTIES
from tests.properties.foils import Direct, FileOutput, Locked, SharedList, Stocator
from tests.properties.ours import V1, V2, Directory, Magic, Manifest, Partitioned
from tests.properties.play import Play, Size, Subject
from tests.properties.schedules import SCENARIOS, Scenario, plays
from tests.properties.stage import Moment, for_people
from tests.simulation.tally import quiet

R = TypeVar("R")

COLLECT_EVERY = 50
"""Plays, after which their garbage is collected: never inside one (`tests.simulation.tally`)."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "committers.md"
BEGIN = "<!-- written by `make compare`: begin -->"
END = "<!-- written by `make compare`: end -->"
OURS: dict[str, tuple[Subject, ...]] = {
    "magic": (Magic("magic, by results"), Magic("magic, by listing", "s3", "listing")),
    "directory": (Directory("directory", accept="listing"),),
    "partitioned": (Partitioned("partitioned"),),
    "manifest": (Manifest("manifest, by listing, in a directory", "memory", "listing", "d"),),
    "v1 on files": (V1("v1, by results"),),
    "v2 on files": (V2("v2, by results"),),
}
"""The library's committers: of uploads on a store, of renames on a file tree. A column may have
variants: a property holds for it if it holds for each of them."""

COMPLETE = ("magic", "directory", "partitioned", "manifest")
"""Those of them that keep every property but one."""

FOILS: dict[str, tuple[Subject, ...]] = {
    "v1 on S3": (FileOutput("v1 on S3", 1),),
    "v2 on S3": (FileOutput("v2 on S3", 2),),
    "direct": (Direct("direct"),),
    "Stocator": (Stocator(),),
    "Stocator, any reader": (Stocator("Stocator, any reader", plain=True),),
}
"""What others do on S3."""

FLAWED: dict[str, tuple[Subject, ...]] = {"shared list": (SharedList(),), "locked": (Locked(),)}
"""Not in the table."""
EVERYBODY = {**OURS, **FOILS, **FLAWED}
JUDGES = {one.name: one.judge for one in PROPERTIES}


@dataclass
class Cell:
    """One committer, one property. ``tries``: how many schedules could have broken it. ``witness``:
    one that did; None: none did."""

    tries: int = 0
    witness: Witness | None = None

    @property
    def holds(self) -> bool:
        return self.witness is None


@dataclass(frozen=True)
class Witness:
    """A schedule that breaks a property.

    Attributes:
        subject, scenario: the committer's name, and what was done. words: what broke.
        told: what somebody was told, by the number of moments before it.
    """

    subject: str
    scenario: str
    words: str
    size: Size
    moments: tuple[Moment, ...]
    told: tuple[tuple[int, str], ...]

    def lines(self, name: str) -> Iterator[str]:
        """The schedule, leg by leg: a witness against the property of that name."""
        yield f"{self.subject}: {name}: no"
        yield f"  {self.scenario} ({self.size.tasks} tasks, {self.size.files} files each)"
        done, told = 0, list(self.told)
        for (process, step), group in groupby(self.moments, lambda m: (m.process, m.step)):
            moments = list(group)
            yield f"    {process or 'before all'}: {step or 'nothing'}, {len(moments)} requests"
            yield from _notable(moments)
            done += len(moments)
            while told and told[0][0] <= done:
                yield f"    told by the {told.pop(0)[1]}"
        yield f"  broken: {self.words}"


def _notable(moments: Sequence[Moment]) -> Iterator[str]:
    last = None
    for moment in moments:
        changed = last is not None and moment.view is not last
        last = moment.view
        if moment.note:
            yield f"      {moment.request} [{moment.note}]"
        elif changed:
            there = ", ".join(sorted(moment.view)) or "nothing"
            yield f"      {moment.request}; a reader finds {there}"


@dataclass
class Column:
    """All cells of one committer."""

    name: str
    cells: dict[str, Cell] = field(default_factory=lambda: {name: Cell() for name in JUDGES})
    schedules: int = 0

    @property
    def undecided(self) -> list[str]:
        """Properties that nobody tried to break."""
        return [name for name, cell in self.cells.items() if not cell.tries]


def decide(name: str) -> tuple[Column, float]:
    """Try a committer, without the library's log; and the seconds that it took. A property holds if
    it holds for each variant of it."""
    column, started = Column(name), time.monotonic()
    with quiet():
        for scenario in SCENARIOS:
            for size in scenario.sizes:
                for subject in EVERYBODY[name]:
                    if any(not column.cells[one].witness for one in scenario.tests):
                        _try(column, scenario, size, subject)
    return column, time.monotonic() - started


def _try(column: Column, scenario: Scenario, size: Size, subject: Subject) -> None:
    for play in plays(subject, scenario, size):
        column.schedules += 1
        for one in scenario.tests:
            _judge(column.cells[one], one, scenario, play)
        if column.schedules % COLLECT_EVERY == 0:
            gc.collect()


@contextmanager
def on_all_cores() -> Iterator[Callable[[Callable[[str], R], Iterable[str]], dict[str, Future[R]]]]:
    """Gives a function that starts a call for each of some names, in this order, on all cores. At
    the end of the block what has not begun never will."""
    pool = ProcessPoolExecutor(os.cpu_count())
    try:
        yield lambda call, names: {name: pool.submit(call, name) for name in names}
    finally:
        pool.shutdown(cancel_futures=True)


def _judge(cell: Cell, name: str, scenario: Scenario, play: Play) -> None:
    words = JUDGES[name](play) if cell.witness is None else None
    if words is None:
        return
    cell.tries += 1
    if words:
        told = tuple((one.after, f"{one.by} of {one.job}: {one.outcome}") for one in play.told)
        moments = tuple(replace(m, request=for_people(m.request)) for m in play.moments)
        cell.witness = Witness(
            play.subject.name, scenario.words, for_people(words), play.size, moments, told
        )


# The page -----------------------------------------------------------------------------------------


def generated(columns: Sequence[Column]) -> str:
    """All that docs/committers.md shows of a comparison: the table and what its rows mean."""
    rows = [f"| | {' | '.join(column.name for column in columns)} |"]
    rows.append(f"|---|{'---|' * len(columns)}")
    for name in JUDGES:
        cells = ("yes" if column.cells[name].holds else "**no**" for column in columns)
        rows.append(f"| {name} | {' | '.join(cells)} |")
    tried = " | ".join(f"{column.schedules:,}" for column in columns)
    rows += [f"| schedules | {tried} |", ""]
    rows += [f"* **{one.name}**: {one.says[0].lower()}{one.says[1:]}" for one in PROPERTIES]
    return "\n".join(rows)


def page_with(text: str, page: str) -> str:
    """The page, with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"

"""Which properties the committers keep, decided anew; and that each can be seen to fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.properties import table
from tests.properties.comparison import Column, compare, undecided
from tests.properties.definitions import PROPERTIES
from tests.properties.mutated import FLAWS
from tests.properties.papers import SAID, WHY
from tests.properties.play import Play, run
from tests.properties.schedules import SCENARIOS, SMALL, commits
from tests.properties.stage import DEATHS, STOP, Cut
from tests.properties.subjects import FLAWED, FOILS, OURS
from tests.properties.uploads import Magic
from tests.simulation.tally import quiet

ROOT = Path(__file__).resolve().parents[2]
FLAW_SECONDS_MAX = 120.0
NAMES = [one.name for one in PROPERTIES]


EVERYBODY = {**OURS, **FOILS, **FLAWED}


@cache
def column(name: str) -> Column:
    """One committer by all properties."""
    with quiet():
        return compare(name, EVERYBODY[name])


@pytest.fixture(scope="module")
def columns() -> dict[str, Column]:
    """All committers by all properties."""
    return {name: column(name) for name in EVERYBODY}


@pytest.mark.parametrize("name", EVERYBODY)
def test_a_committer_is_tried_by_every_property(name: str) -> None:
    """No committer keeps a property that nobody tried to break. (The first test: each column takes
    its time here, and all others have them.)"""
    assert undecided([column(name)]) == []


def test_ours_keep_all_but_one(columns: dict[str, Column]) -> None:
    """The library's committers keep every property but that a job's commit is atomic: files appear
    one by one."""
    broken = {
        (name, prop): cell.witness.words
        for name in OURS
        for prop, cell in columns[name].cells.items()
        if cell.witness is not None and prop != "job commit atomic"
    }
    assert broken == {}


@pytest.mark.parametrize("name", NAMES)
def test_each_property_fails_for_somebody(name: str, columns: dict[str, Column]) -> None:
    """There is a committer that breaks it, and its witness ends in what is broken."""
    witnesses = [c.cells[name].witness for c in columns.values() if c.cells[name].witness]
    assert witnesses
    for witness in witnesses:
        assert witness is not None
        lines = list(table.witness_lines(name, witness))
        assert lines[-1] == f"  broken: {witness.words}"
        assert len(lines) > 3


@pytest.mark.parametrize(
    ("flawed", "prop"), [("shared list", "concurrent"), ("locked", "non-blocking")]
)
def test_a_flaw_is_found_where_it_is(flawed: str, prop: str, columns: dict[str, Column]) -> None:
    """A committer made with one flaw breaks the property that forbids it, and Stocator, of which it
    is made, does not."""
    assert columns[flawed].cells[prop].witness is not None
    assert columns["Stocator"].cells[prop].witness is None


@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_in_the_library_turns_a_yes_into_a_no(name: str, columns: dict[str, Column]) -> None:
    """With one line of production changed, the committer breaks the property that it keeps as it
    is."""
    flaw = FLAWS[name]
    assert columns[flaw.committer].cells[flaw.prop].holds
    command = [sys.executable, "-m", "tests.properties.mutated", name]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=FLAW_SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{flaw.committer}: {flaw.prop}: no: " in ran.stdout


def test_the_page_shows_this_table(columns: dict[str, Column]) -> None:
    """docs/committers.md holds what the comparison finds: `make compare WRITE=1` writes it."""
    page = table.PAGE.read_text(encoding="utf-8")
    shown = [columns[name] for name in (*OURS, *FOILS)]
    assert table.page_with(table.generated(shown), page) == page


def test_what_differs_from_the_papers_is_explained(columns: dict[str, Column]) -> None:
    """Each difference from what is said of a committer has its reason; none is too much."""
    differ = {
        (name, prop)
        for name, said in SAID.items()
        for prop, word in said.items()
        if word != columns[name].cells[prop].holds
    }
    assert differ == WHY.keys()


def test_a_witness_has_no_shorter_one(columns: dict[str, Column]) -> None:
    """Schedules come by the number of their cuts, so a witness has as few as can be."""
    cuts = [len(scenario.cuts) for scenario in SCENARIOS]
    assert cuts == sorted(cuts)


def test_every_property_is_tried_with_each_kind_of_cut() -> None:
    """Deaths, stops and lost replies: each of them is among the scenarios, and each property is."""
    kinds = {kind for scenario in SCENARIOS for cut in scenario.cuts for kind in cut}
    assert kinds == {*DEATHS, STOP, "lost reply", "sent twice", "lands late"}
    assert {name for scenario in SCENARIOS for name in scenario.tests} == set(NAMES)


def one_play(cuts: Sequence[Cut]) -> Play:
    """A job of magic whose first attempt is cut."""

    def scenario(play: Play) -> None:
        job = play.begin("J")
        play.run_task(job, "0", play.cut(0))
        commits(play, job)

    with quiet():
        return run(Magic("magic"), SMALL, cuts, scenario)


def test_the_same_cuts_give_the_same_play() -> None:
    """Nothing is drawn: two plays have the same requests, and a reader finds the same."""
    one, two = (one_play([Cut("lost reply", 3)]) for _ in range(2))
    assert one.stage.moments == two.stage.moments
    assert one.struck


def test_a_dead_process_sends_nothing() -> None:
    """After its death no request of a process takes effect."""
    play = one_play([Cut("dies before", 4)])
    own = [m for m in play.stage.moments if m.process == "task 0 of J, attempt 1"]
    assert own[-1].note == "dies before"
    assert len(own) == 4

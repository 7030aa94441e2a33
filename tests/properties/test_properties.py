"""Which properties the committers keep, decided anew; and that each can be seen to fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.properties.comparison import (
    COMPLETE,
    EVERYBODY,
    FOILS,
    OURS,
    PAGE,
    Column,
    decide,
    generated,
    on_all_cores,
    page_with,
)
from tests.properties.definitions import PROPERTIES
from tests.properties.schedules import SCENARIOS
from tests.properties.stage import DEATHS, ERRORS, STOP

NAMES = [one.name for one in PROPERTIES]
Answers = dict[str, Future[tuple[Column, float]]]


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    """Everything is begun at once; a test waits for what it asks."""
    with on_all_cores() as start:
        yield start(decide, EVERYBODY)


@pytest.fixture(scope="module")
def columns(answers: Answers) -> dict[str, Column]:
    """All committers by all properties."""
    return {name: answers[name].result()[0] for name in EVERYBODY}


@pytest.mark.parametrize("name", EVERYBODY)
def test_a_committer_is_tried_by_every_property(name: str, answers: Answers) -> None:
    """No committer keeps a property that nobody tried to break. (The first test: each column takes
    its time here, and all others have them.)"""
    assert answers[name].result()[0].undecided == []


def test_ours_keep_all_but_one(columns: dict[str, Column]) -> None:
    """The library's committers, but the classic ones, keep every property but that a job's commit
    is atomic: files appear one by one."""
    broken = {
        (name, prop): cell.witness.words
        for name in COMPLETE
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
        lines = list(witness.lines(name))
        assert lines[-1] == f"  broken: {witness.words}"
        assert len(lines) > 3


@pytest.mark.parametrize(
    ("flawed", "prop"), [("shared list", "concurrent"), ("locked", "non-blocking")]
)
def test_a_flaw_is_found_where_it_is(flawed: str, prop: str, columns: dict[str, Column]) -> None:
    """It breaks the property that forbids it; Stocator, of which it is made, does not."""
    assert columns[flawed].cells[prop].witness is not None
    assert columns["Stocator"].cells[prop].witness is None


def test_the_page_shows_this_table(columns: dict[str, Column]) -> None:
    """docs/committers.md holds what the comparison finds: `make compare WRITE=1` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    shown = [columns[name] for name in (*OURS, *FOILS)]
    assert page_with(generated(shown), page) == page


def test_every_property_is_tried_with_each_kind_of_cut() -> None:
    """Deaths, stops and lost replies: each of them is among the scenarios, and each property is."""
    kinds = {kind for scenario in SCENARIOS for cut in scenario.cuts for kind in cut}
    assert kinds == {*DEATHS, *ERRORS, STOP}
    assert {name for scenario in SCENARIOS for name in scenario.tests} == set(NAMES)

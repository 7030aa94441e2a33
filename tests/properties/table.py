"""The comparison as text: the table of docs/committers.md, and witnesses for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tests.properties.comparison import Column, Witness
from tests.properties.definitions import PROPERTIES
from tests.properties.stage import Moment

PAGE = Path(__file__).resolve().parents[2] / "docs" / "committers.md"
BEGIN = "<!-- written by `make compare`: begin -->"
END = "<!-- written by `make compare`: end -->"


def generated(columns: Sequence[Column]) -> str:
    """Return all that the page shows of a comparison: the table and what its rows mean."""
    return f"{_table(columns)}\n\n{_definitions()}"


def page_with(text: str, page: str) -> str:
    """The page, with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _definitions() -> str:
    return "\n".join(f"* **{one.name}**: {one.says[0].lower()}{one.says[1:]}" for one in PROPERTIES)


def _table(columns: Sequence[Column]) -> str:
    head = f"| | {' | '.join(column.name for column in columns)} |"
    rows = [head, f"|---|{'---|' * len(columns)}"]
    for one in PROPERTIES:
        cells = ("yes" if column.cells[one.name].holds else "**no**" for column in columns)
        rows.append(f"| {one.name} | {' | '.join(cells)} |")
    tried = " | ".join(f"{column.schedules:,}" for column in columns)
    return "\n".join([*rows, f"| schedules | {tried} |"])


def witness_lines(name: str, witness: Witness) -> Iterator[str]:
    """A schedule, leg by leg."""
    size = witness.size
    yield f"{witness.subject}: {name}: no"
    yield f"  {witness.scenario} ({size.tasks} tasks, {size.files} files each)"
    done = 0
    told = list(witness.told)
    for (process, step), group in groupby(witness.moments, lambda m: (m.process, m.step)):
        moments = list(group)
        yield f"    {process or 'before all'}: {step or 'nothing'}, {len(moments)} requests"
        yield from _notable(moments)
        done += len(moments)
        while told and told[0][0] <= done:
            yield f"    told by the {told.pop(0)[1]}"
    yield f"  broken: {witness.words}"


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

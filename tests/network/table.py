"""The table of the docs: what a job is told, by fault and phase."""

from __future__ import annotations

from collections.abc import Sequence

from tests.network.cells import Cell
from tests.network.proxy import PHASES

WORDS = {
    "committed": "C",
    "incomplete": "I",
    "aborted": "A",
    "refused": "R",
    "not started": "N",
    "undecided": "U",
    "unknown": "?",
}
"""What a job was told, in one letter."""

LEGEND = """\
C committed. I incomplete: decided, `recover` makes all files visible. A aborted, R refused,
N not started: nothing is visible, now or later. U undecided: nothing was decided, the job is
running; `recover` aborts it. ? unknown: either; `recover` tells.
Two letters: `track="s3"`, then `track="memory"`, where they differ."""


def table(ran: Sequence[Cell]) -> str:
    """Markdown: a row for each fault and extent, a column for each phase."""
    rows = [f"| fault | strikes | {' | '.join(PHASES)} |", "|---|---|" + "---|" * len(PHASES)]
    for name, extent in dict.fromkeys((cell.fault.name, cell.extent) for cell in ran):
        row = [name, extent]
        for phase in PHASES:
            here = [c for c in ran if (c.fault.name, c.extent, c.phase) == (name, extent, phase)]
            told = [WORDS.get(cell.told, "!") for cell in here]
            row.append("".join(told if len(set(told)) > 1 else told[:1]))
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join([*rows, "", LEGEND])

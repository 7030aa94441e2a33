"""What a job is told behind a hostile network is true, and comes in time.

All cells run once, beside each other; each test looks at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.chaos.faults import FAULTS, SLOW, SLOW_SECONDS_MAX
from tests.chaos.network import JOB_SECONDS_MAX, NOTHING_TOLD, TRACKS, WAYS, Cell, cells, run_cells
from tests.chaos.proxy import PHASES


@pytest.fixture(scope="session")
def ran() -> list[Cell]:
    """Every cell, run and judged."""
    drawn = cells()
    run_cells(drawn)
    return drawn


def those(ran: Iterable[Cell], wrong: Callable[[Cell], bool]) -> str:
    """The cells of which something is true, a line each."""
    return "\n".join(
        f"{cell}: told {cell.told.outcome} after {cell.seconds:.0f} s ({cell.told.why[:300]}) "
        + "; ".join(cell.broken)
        for cell in ran
        if wrong(cell)
    )


def test_each_fault_struck_in_each_phase_on_each_track(ran: list[Cell]) -> None:
    """No cell is empty: what is never struck proves nothing."""
    struck = Counter((cell.fault.name, cell.phase) for cell in ran if cell.struck)
    assert set(struck) == {(fault.name, phase) for fault in FAULTS for phase in PHASES}
    assert not those(ran, lambda cell: not cell.struck)
    for fault in FAULTS:
        assert {cell.track for cell in ran if cell.fault is fault} == set(TRACKS)
        assert {cell.way for cell in ran if cell.fault is fault} == set(WAYS)


def is_untrue(cell: Cell) -> bool:
    """Told committed: all is there, nothing else, now and later. Told aborted, refused, not started
    or undecided: nothing is. After recovery it is all or nothing, as told; nothing is left over;
    and no error but the library's own was raised."""
    return bool(cell.broken)


def is_not_tried_again(cell: Cell) -> bool:
    """What strikes once costs a try: the job commits, whichever request it struck. But for a 404 to
    the HEAD of the fence: it has no document that could tell whose it is, and the task undoes
    itself."""
    fenced = (cell.fault.name, cell.phase, cell.told.outcome)
    excused = fenced == ("balancer's 404", "fence", "aborted")
    return cell.extent == "once" and cell.told.outcome != "committed" and not excused


def is_half_there(cell: Cell) -> bool:
    """A job that cannot write, save or plan, for good, is told so."""
    early = PHASES.index(cell.phase) < PHASES.index("decide")
    return early and cell.extent == "from then on" and cell.told.outcome not in NOTHING_TOLD


def is_told_as_nothing(cell: Cell) -> bool:
    """I10: from the first Complete on a job is committed, or incomplete and recoverable."""
    late = PHASES.index(cell.phase) >= PHASES.index("complete")
    return late and cell.told.outcome not in ("committed", "incomplete")


def waits_without_end(cell: Cell) -> bool:
    """The end is told within a bound; an answer of a byte each quarter of a second is given up and
    asked for again."""
    return cell.seconds > (SLOW_SECONDS_MAX if cell.fault.name == SLOW else JOB_SECONDS_MAX)


WRONG = (is_untrue, is_not_tried_again, is_half_there, is_told_as_nothing, waits_without_end)


def test_no_cell_breaks_a_promise(ran: list[Cell]) -> None:
    """What each kind of broken promise is stands with its function. Of a store that stalled, which
    is a second fault, only what is untrue is wrong."""
    quick = [cell for cell in ran if not cell.stalled]
    broken = {wrong.__name__: those(quick, wrong) for wrong in WRONG}
    broken["is_untrue"] = those(ran, is_untrue)
    assert not any(broken.values()), broken
    print(f"{len(ran) - len(quick)} of {len(ran)} cells stalled")

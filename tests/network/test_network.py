"""What a job is told behind a hostile network is true, and comes in time.

All cells run once, beside each other; each test looks at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.network.cells import JOB_SECONDS_MAX, TRACKS, WAYS, Cell, cells, run
from tests.network.faults import FAULTS, SLOW, SLOW_SECONDS_MAX
from tests.network.proxy import PHASES


@pytest.fixture(scope="session")
def ran() -> list[Cell]:
    """Every cell, run and judged."""
    drawn = cells()
    run(drawn)
    return drawn


def those(ran: Iterable[Cell], wrong: Callable[[Cell], bool]) -> str:
    """The cells of which something is true, a line each."""
    return "\n".join(
        f"{cell}: told {cell.told} after {cell.seconds:.0f} s ({cell.why[:300]}) "
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


def test_what_was_told_is_true(ran: list[Cell]) -> None:
    """Told committed: all is there, nothing else, now and later. Told aborted, refused, not started
    or undecided: nothing is. After recovery it is all or nothing, as told; nothing is left over;
    and no error but the library's own was raised."""
    assert not those(ran, lambda cell: bool(cell.broken))


def test_what_strikes_once_costs_a_try(ran: list[Cell]) -> None:
    """Every fault that passes is retried below: the job commits, whichever request it struck. But
    for a 404 to the HEAD of the fence: it has no document that could tell whose it is, and the task
    undoes itself."""
    excused = ("balancer's 404", "fence")
    assert not those(
        ran,
        lambda cell: (
            cell.extent == "once"
            and cell.told != "committed"
            and (cell.fault.name, cell.phase, cell.told) != (*excused, "aborted")
        ),
    )


def test_what_lasts_before_the_decision_publishes_nothing(ran: list[Cell]) -> None:
    """A job that cannot write, save or plan is never half there: it is told so."""
    before = PHASES[: PHASES.index("decide")]
    allowed = ("not started", "aborted", "undecided", "refused")
    assert not those(
        ran,
        lambda cell: (
            cell.phase in before and cell.extent == "from then on" and cell.told not in allowed
        ),
    )


def test_what_lasts_after_the_decision_is_never_told_as_nothing(ran: list[Cell]) -> None:
    """I10: from the first Complete on a job is committed, or incomplete and recoverable."""
    after = PHASES[PHASES.index("complete") :]
    assert not those(
        ran,
        lambda cell: cell.phase in after and cell.told not in ("committed", "incomplete"),
    )


def test_no_job_waits_without_end(ran: list[Cell]) -> None:
    """Under every fault but slow bytes the end is told within a bound."""
    assert not those(ran, lambda cell: cell.fault.name != SLOW and cell.seconds > JOB_SECONDS_MAX)


def test_slow_bytes_do_not_hold_a_job(ran: list[Cell]) -> None:
    """An answer of a byte each quarter of a second is given up and asked for again."""
    assert not those(ran, lambda cell: cell.fault.name == SLOW and cell.seconds > SLOW_SECONDS_MAX)

"""Schedules keep the promises, do what they claim to do, and can be replayed."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.simulation.faults import CELLS, FAULTS, ONLY_FOR
from tests.simulation.judge import CASES, ENOUGH_SCHEDULES
from tests.simulation.kinds import KINDS
from tests.simulation.schedule import Result, simulate
from tests.simulation.scheduler import Actor, Killed, NeverEndsError, Scheduler, Signal, StrandPool
from tests.simulation.tally import (
    STATES,
    Tally,
    cases,
    closing,
    quiet,
    quietly,
    run_seeds,
    story,
    table,
)

SCHEDULES = 1500
"""A few seconds of them; CI runs as many as fit in minutes."""
MEAN_REQUESTS_MIN = 40


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Many schedules, from seed 0 on."""
    return list(quietly(0, SCHEDULES))


def test_every_promise_is_kept(results: list[Result]) -> None:
    """No schedule breaks a promise."""
    broken = [result for result in results if result.violations]
    assert not broken, story(broken[0])


def test_schedules_are_as_hard_as_they_claim(results: list[Result]) -> None:
    """Each has at least three processes, two tasks and one fault; 40 requests on average; together
    they visit every state of the record."""
    assert min(result.actors for result in results) >= 3
    assert min(result.tasks for result in results) >= 2
    assert min(len(result.struck) for result in results) >= 1
    assert sum(result.requests for result in results) / SCHEDULES >= MEAN_REQUESTS_MIN
    visited = {state for result in results for state in result.states}
    assert visited == set(STATES)


def test_every_kind_of_request_is_named(results: list[Result]) -> None:
    """The table's rows are the requests that faults struck: no kind is missing in it."""
    assert {kind for result in results for kind, _ in result.struck} <= set(KINDS)


def test_every_checker_had_cases(results: list[Result]) -> None:
    """Each checker had a case in which it could have failed as often as is stated."""
    tally = Tally()
    for result in results:
        tally.count(result)
    assert len(results) >= ENOUGH_SCHEDULES
    assert not tally.too_few, "\n".join(tally.too_few)


def test_a_checker_without_cases_fails_a_run() -> None:
    """A run whose checkers met nothing names each of them."""
    tally = Tally(schedules=ENOUGH_SCHEDULES)
    assert len(tally.too_few) == len(CASES)
    assert len(cases(tally).splitlines()) == len(CASES) + 1


def test_faults_leave_out_only_what_makes_no_sense() -> None:
    """Every fault may strike every kind of request, but for those that `faults.ONLY_FOR` binds to
    kinds that there are."""
    bound = {kind for kinds in ONLY_FOR.values() for kind in kinds}
    assert bound <= set(KINDS)
    free = [fault for fault in FAULTS if fault not in ONLY_FOR]
    assert {(kind, fault) for kind in KINDS for fault in free} <= set(CELLS)
    assert len(CELLS) == len(KINDS) * len(free) + sum(map(len, ONLY_FOR.values()))


def test_a_seed_is_a_schedule(results: list[Result]) -> None:
    """A seed gives the same calls and answers again, after other schedules ran."""
    with quiet():
        assert [simulate(seed).trace for seed in range(30)] == [r.trace for r in results[:30]]


def test_a_seed_is_a_schedule_in_every_process() -> None:
    """Another process, with another order of sets and dicts of text, gives the same trace."""
    told = []
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            (sys.executable, "-m", "tests.simulation", "--seed", "11"),
            env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        told.append(run.stdout.splitlines()[-1])
    assert told[0] == told[1]
    assert "trace" in told[0]


def test_the_closing_line_counts() -> None:
    """The closing line and the table tell what ran."""
    tally = run_seeds(0, 20)
    assert closing(tally, 1.0).startswith("20 schedules, 0 violations, mean ")
    assert len(table(tally).splitlines()) > len(KINDS)


# The scheduler ------------------------------------------------------------------------------------


def scheduler() -> Scheduler:
    """One that draws from a fixed seed."""
    return Scheduler(random.Random(1), "random", 0.1)


def test_a_killed_process_does_nothing_more() -> None:
    """All strands of a killed process are unwound; on their way out turns, sleeps and new strands
    are refused, so that no ``finally`` reaches the store."""
    world, actor, other = scheduler(), Actor("victim", "x"), Actor("killer", "x")
    done: list[str] = []

    def victim() -> None:
        pool = StrandPool(world, actor)
        future = pool.submit(lambda: world.sleep(1000))
        try:
            future.result()
        finally:
            done.append("unwound")
            for step in (world.turn, lambda: world.sleep(1), lambda: pool.submit(world.turn)):
                with pytest.raises(Killed):
                    step()
        done.append("never")

    def killer() -> None:
        world.sleep(10)
        world.kill(actor)

    world.spawn(actor, victim)
    world.spawn(other, killer)
    world.run()
    assert done == ["unwound"]
    assert not world.waiting


def test_a_deadlock_is_an_error() -> None:
    """Strands that wait for what nobody will do are named."""
    world, actor = scheduler(), Actor("lonely", "x")
    world.spawn(actor, lambda: world.wait(Signal()))
    with pytest.raises(NeverEndsError, match="lonely"):
        world.run()


def test_the_pool_bounds_what_is_in_flight() -> None:
    """`each` has at most ``in_flight`` items under way, and gives all of them back."""
    world, actor = scheduler(), Actor("worker", "x")
    running = most = 0
    seen: list[int] = []

    def one(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(9):
            world.turn()
        running -= 1
        return item

    def work() -> None:
        pool = StrandPool(world, actor)
        seen.extend(outcome.unwrap() for outcome in pool.each(one, range(10), in_flight=3))

    world.spawn(actor, work)
    world.run()
    assert most == 3
    assert sorted(seen) == list(range(10))

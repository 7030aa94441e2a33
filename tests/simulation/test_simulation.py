"""Schedules do what they claim to do, and can be replayed. (That they keep the promises, and that
each checker had its cases: the suite ``schedules``, `python -m tests.simulation`, for a minute.)"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from magic_committer.maintenance.cleanup import Cleaning
from tests.simulation.kinds import KINDS
from tests.simulation.schedule import Result
from tests.simulation.scheduler import Actor, Killed, Scheduler, StrandPool
from tests.simulation.tally import STATES, quietly, story

SCHEDULES = 300
MEAN_REQUESTS_MIN = 40


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """The first schedules."""
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


def test_a_cleanup_that_counts_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report is held against what it removed."""
    note = Cleaning._note

    def twice(self: Cleaning, what: str, line: str) -> None:
        note(self, what, line)
        note(self, what, line)

    monkeypatch.setattr(Cleaning, "_note", twice)
    broken = [violation.what for one in quietly(0, 20) for violation in one.violations]
    assert any("says that it removed and left" in what for what in broken)


def test_a_killed_process_does_nothing_more() -> None:
    """All strands of a killed process are unwound; on their way out turns, sleeps and new strands
    are refused, so that no ``finally`` reaches the store."""
    world = Scheduler(random.Random(1), "random", 0.1)
    actor, other = Actor("victim", "x"), Actor("killer", "x")
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

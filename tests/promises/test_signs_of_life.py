"""A job that says that it lives is not taken for dead; its signs go when it ends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer import job as handles
from magic_committer.commit.fence import ALIVE_SECONDS
from magic_committer.protocol.record import State
from magic_committer.runtime import wiring
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, control, fitting, unanswered, visible
from tests.promises.machine import DAY, STATES, YOUNG, Machine, left


class Ticker(ThreadPool):
    """A pool whose time passes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.ticking: list[Callable[[], bool]] = []
        self.seconds: list[float] = []

    def every(self, seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        self.ticking.append(function)
        self.seconds.append(seconds)
        return lambda: self.ticking.remove(function) if function in self.ticking else None

    def tick(self) -> list[bool]:
        return [function() for function in self.ticking]


@pytest.fixture
def ticker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticker]:
    pool = Ticker()
    monkeypatch.setattr(wiring, "pool", pool)
    yield pool
    pool.close()


def test_a_sign_of_life_keeps_a_long_job_alive(machine: Machine, ticker: Ticker) -> None:
    """Silent for days but for its sign, a job is left by cleanup; its commit sweeps the sign."""
    with mc.write(DEST) as job:
        file = job.open("a.csv")
        file.write(b"1")
        machine.later(2 * DAY)
        assert ticker.tick() == [True]
        assert ticker.seconds == [ALIVE_SECONDS]
        machine.later(YOUNG)
        assert mc.cleanup(DEST).jobs_left == 1
        (found,) = mc.inspect(DEST)
        assert found.pid > 0
        assert "_alive.json" in left(machine.s3)
        file.close()
    assert ticker.ticking == []
    assert visible(machine.s3) == {"t/a.csv": b"1"}
    assert control(machine.s3) == []


@pytest.mark.parametrize("begin", [mc.write, mc.start])
def test_the_sign_of_life_ends_with_an_aborted_job(
    machine: Machine, ticker: Ticker, begin: Callable[[str], Any]
) -> None:
    """Each kind of block keeps its job alive; leaving it, also by exception, ends the sign."""
    with pytest.raises(ZeroDivisionError), begin(DEST):
        assert ticker.tick() == [True]
        raise ZeroDivisionError
    assert ticker.ticking == []
    with mc.start(DEST) as job:
        job.commit(expect=0)
    assert ticker.ticking == []
    assert control(machine.s3) == []


@pytest.mark.parametrize("state", STATES)
def test_a_late_sign_takes_itself_back(machine: Machine, ticker: Ticker, state: str) -> None:
    """I4: a paused driver gives it after the sweep: unless the job lives, nothing is left."""
    job = machine.job(state)
    end = job.keep_alive()
    lives = State(state) in (State.RUNNING, State.COMMITTING, State.REVERTING)
    assert ticker.tick() == [lives]
    assert ("_alive.json" in left(machine.s3)) == lives
    end()


def test_the_next_job_of_an_id_keeps_its_sign(machine: Machine, ticker: Ticker) -> None:
    """I6: a driver that slept has written over it, and deletes it not: the job would seem dead."""
    first = mc.start(DEST, job_id="nightly")
    first.keep_alive()
    mc.abort(DEST, "nightly")
    machine.later(30 * DAY)
    assert mc.cleanup(DEST).records_deleted == 1
    lives = mc.start(DEST, job_id="nightly")
    machine.later(2 * DAY)
    assert ticker.tick() == [False]
    assert mc.cleanup(DEST).recovered == ()
    assert lives.state == "running"


def test_a_sign_that_fails_leaves_nothing_behind(machine: Machine, ticker: Ticker) -> None:
    """I4: an unanswered PUT is looked after; an unread record takes the sign back for a while."""
    job = machine.job("running")
    job.keep_alive()
    At(machine.s3, "* *_alive.json", unanswered, after=True)
    assert ticker.tick() == [True]
    assert "_alive.json" in left(machine.s3)
    machine.s3.after = None
    At(machine.s3, "get", unanswered)
    assert ticker.tick() == [True]
    assert "_alive.json" not in left(machine.s3)
    assert ticker.tick() == [True]
    job.abort()
    At(machine.s3, "* *_alive.json", unanswered, after=True)
    assert ticker.tick() == [False]
    assert "_alive.json" not in left(machine.s3)


def test_signs_are_given_by_a_thread_that_ends_with_the_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pool: signs come while the job runs; no thread outlives it, or a dropped job."""
    monkeypatch.setattr(handles, "ALIVE_SECONDS", 0.005)
    given, others = threading.Semaphore(0), threading.enumerate()

    def count(request: Request, reply: object) -> None:
        if fitting("put *_alive.json")(request):
            given.release()

    def tickers() -> list[threading.Thread]:
        there = [one for one in threading.enumerate() if one not in others]
        return [one for one in there if one.name.endswith("-every")]

    s3.after = count
    with mc.write(DEST):
        assert given.acquire(timeout=300)
        assert given.acquire(timeout=300)
        (thread,) = tickers()
    thread.join(timeout=300)
    assert not thread.is_alive()
    dropped = mc.write(DEST).__enter__()
    (thread,) = tickers()
    del dropped
    gc.collect()
    thread.join(timeout=300)
    assert not thread.is_alive()

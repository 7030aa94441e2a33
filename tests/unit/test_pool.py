"""The pool's threads: they work, they end, and nobody ever waits for them in vain."""

from __future__ import annotations

import contextvars
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from magic_committer.runtime import threads as _pool
from magic_committer.runtime.threads import ThreadPool, errand

PERIOD_SECONDS = 0.002
PATIENCE_SECONDS = 300.0


def ticking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ticks-every"]


def gone() -> None:
    for thread in ticking():
        thread.join(PATIENCE_SECONDS)
    assert ticking() == []


def ticks(function: Callable[[], bool]) -> Callable[[], None]:
    """Call it every period, in a pool of its own."""
    return ThreadPool(name="ticks").every(PERIOD_SECONDS, function)


def test_a_function_is_called_until_it_says_no(caplog: pytest.LogCaptureFixture) -> None:
    """Every period, in one thread, which ends with the first False. A failure is logged, and the
    next call may do better. In a pool without threads nobody calls."""
    calls: list[int] = []

    def function() -> bool:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            raise ZeroDivisionError
        return len(calls) < 3

    with caplog.at_level(logging.WARNING, "magic_committer"):
        ticks(function)
        gone()
    assert len(calls) == 3
    assert len(set(calls)) == 1
    assert "ZeroDivisionError" in caplog.text
    end = ThreadPool(0, name="ticks").every(0.0, lambda: True)
    assert ticking() == []
    end()


def test_ending_it_does_not_wait_for_a_call_that_hangs() -> None:
    """The end is said at once; the call under way ends by itself, and is the last."""
    begun, may_end, calls = threading.Event(), threading.Event(), []

    def function() -> bool:
        calls.append(True)
        begun.set()
        return may_end.wait(PATIENCE_SECONDS)

    end = ticks(function)
    assert begun.wait(PATIENCE_SECONDS)
    end()
    end()
    assert len(ticking()) == 1
    may_end.set()
    gone()
    assert len(calls) == 1


def test_a_forked_child_may_end_what_runs_in_its_parent_only() -> None:
    """There is no such thread in the child: it does not wait, and the parent's goes on."""
    called = threading.Semaphore(0)

    def function() -> bool:
        called.release()
        return True

    end = ticks(function)
    for _ in range(20):
        assert ended(forked(lambda: end() or 0)) == 0
    while called.acquire(blocking=False):
        continue
    assert called.acquire(timeout=PATIENCE_SECONDS)
    end()
    gone()


def forked(work: Callable[[], int]) -> int:
    """Start a child that does some work, and ends with its result. Gives its process id."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # if it hangs
        os._exit(work())
    return child


def ended(child: int) -> int:
    """Wait for a child; its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("in_body", [False, True], ids=["in the wait", "in the loop"])
def test_ctrl_c_leaves_a_thread_that_hangs(in_body: bool) -> None:
    """An iteration is left soon; what it has under way is told to end."""
    pool, begun, may_end = ThreadPool(2), threading.Event(), threading.Event()
    told, main = list[bool](), threading.main_thread().ident
    assert main is not None

    def function(number: int) -> None:
        if number == 0:
            return
        begun.set()
        may_end.wait(PATIENCE_SECONDS)
        mine = errand()
        told.append(mine is not None and mine.over)

    def interrupt() -> None:
        assert begun.wait(PATIENCE_SECONDS)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    outcomes = pool.each(function, range(2 if in_body else 3), in_flight=2)
    with pytest.raises(KeyboardInterrupt), closing(outcomes):
        for _ in outcomes:
            if in_body:
                time.sleep(PATIENCE_SECONDS)
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    may_end.set()
    pool.close()
    assert told[0]


@pytest.mark.parametrize("there", [0, 1])
def test_a_pool_that_gets_no_more_threads_works_without(
    there: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system has no more, or the interpreter ends: who asks works, and a log says so."""
    pool = ThreadPool(4)
    for _ in range(there):
        pool.submit(int).result()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    outcomes = pool.each(lambda number: 2 * number, range(20), in_flight=10)
    assert sorted(one.unwrap() for one in outcomes) == list(range(0, 40, 2))
    pool.every(1.0, lambda: True)()
    assert "can't start new thread: its work is done without it" in caplog.text


def test_what_holds_for_the_caller_holds_in_the_threads() -> None:
    """Context variables go with the work, and do not come back."""
    word = contextvars.ContextVar("word", default="")
    pool = ThreadPool(1)
    word.set("outer")

    def change() -> str:
        before = word.get()
        word.set("inner")
        return before

    assert [pool.submit(change).result() for _ in range(2)] == ["outer", "outer"]
    assert word.get() == "outer"
    pool.close()


def test_no_more_threads_than_allowed() -> None:
    """Forty functions at once are run by three threads; who leaves early waits for what is in
    flight; closing ends the threads, and the pool may be used again."""
    pool, seen, three = ThreadPool(3, name="three"), set(), threading.Barrier(3)

    def function(number: int) -> None:
        seen.add(threading.get_ident())
        if number < 3:
            three.wait(PATIENCE_SECONDS)

    def slow(number: int) -> None:
        time.sleep(0.2 * number)
        slept.append(number)

    def alive() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name.startswith("three_")]

    assert len(list(pool.each(function, range(40), in_flight=40))) == 40
    assert len(seen) == 3
    slept: list[int] = []
    with closing(pool.each(slow, range(100), in_flight=3)) as outcomes:
        next(outcomes)
    assert sorted(slept) == [0, 1, 2]
    pool.close()
    assert not alive()
    for _ in range(5):  # an idle one is used before a new one is started
        pool.submit(lambda: None).result()
        until = time.monotonic() + PATIENCE_SECONDS
        while not pool._idle:  # until it has come back
            assert time.monotonic() < until
            time.sleep(0.001)
    assert len(alive()) == 1
    pool.close()


def test_what_a_finalizer_asks_for_without_threads_is_done_by_the_next_ones() -> None:
    """Before the first thread, and after a close: the abort of a dropped file is not lost."""
    pool, done = ThreadPool(2), SimpleQueue[str]()
    for when in ("before", "after"):
        pool.later(partial(done.put, when))
        pool.ready_for_late()
        assert done.get(timeout=60) == when
        pool.close()


def test_the_threads_of_a_dropped_pool_end() -> None:
    """A pool that nobody holds any more leaves no threads behind."""
    pool = ThreadPool(2, name="dropped")
    pool.submit(lambda: None).result()
    threads = [one for one in threading.enumerate() if one.name.startswith("dropped_")]
    assert threads
    del pool
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_a_long_wait_for_a_result_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as it takes; a TimeoutError of the function's own is raised."""
    monkeypatch.setattr(_pool, "LOOK_SECONDS", 0.01)
    pool = ThreadPool(1)

    def slow(error: Exception | None) -> int:
        time.sleep(0.1)
        if error is not None:
            raise error
        return 7

    with pytest.raises(TimeoutError, match="its own"):
        pool.submit(lambda: slow(TimeoutError("its own"))).result()
    assert [one.result for one in pool.each(slow, [None, None], in_flight=1)] == [7, 7]
    pool.close()


@pytest.mark.parametrize("kind", [TimeoutError, Empty])
@pytest.mark.parametrize("wait", ["a result", "an iteration"])
def test_what_a_signal_handler_raises_in_a_wait_is_its_callers(
    kind: type[Exception], wait: str, request: pytest.FixtureRequest
) -> None:
    """Also what a wait of its own would end by: a deadline by SIGALRM raises TimeoutError."""
    pool, may_end = ThreadPool(1), threading.Event()

    def handler(*_: object) -> None:
        may_end.set()  # the function has ended by the time that the wait looks
        raise kind("the caller's")

    def work(_: object) -> bool:
        return may_end.wait(PATIENCE_SECONDS)

    before = signal.signal(signal.SIGALRM, handler)
    request.addfinalizer(partial(signal.signal, signal.SIGALRM, before))
    future = pool.submit(lambda: work(None))
    with pytest.raises(kind, match="the caller's"):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        future.result() if wait == "a result" else list(pool.each(work, [1], in_flight=1))
    pool.close()


HANGS = """
import os, sys, threading
from magic_committer.runtime.threads import ThreadPool
pool = ThreadPool(2)
begun = threading.Event()
pool.submit(lambda: (begun.set(), threading.Event().wait(600)))
begun.wait()
if len(sys.argv) > 1 and os.fork() == 0:
    assert pool.submit(lambda: 7).result() == 7
    sys.exit()
"""


@pytest.mark.parametrize("arguments", [(), ("fork",)], ids=str)
def test_the_interpreter_does_not_wait_for_a_thread_that_hangs(arguments: tuple[str, ...]) -> None:
    """Its end comes soon, whatever still runs; in a forked child too, where no thread does."""
    # From 3.12 on Python warns of a fork beside threads, which is what is tried here.
    command = (sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", HANGS)
    ran = subprocess.run(
        [*command, *arguments], cwd=Path(__file__).parents[2], capture_output=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_thread_of_a_pool_does_itself_what_it_asks_the_pool_for() -> None:
    """Threads that wait for others of their own pool would wait for ever when all of them do."""
    pool = ThreadPool(2)

    def outer(number: int) -> list[int]:
        here = threading.current_thread()

        def inner(item: int) -> int:
            assert threading.current_thread() is here
            return number * 10 + item

        return [outcome.unwrap() for outcome in pool.each(inner, range(3), in_flight=3)]

    done = sorted(n for one in pool.each(outer, range(8), in_flight=8) for n in one.unwrap())
    assert done == [outer * 10 + item for outer in range(8) for item in range(3)]
    pool.close()

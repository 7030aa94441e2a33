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

from magic_committer import _pool
from magic_committer._patience import errand
from magic_committer._pool import ThreadPool

PERIOD_SECONDS = 0.002
PATIENCE_SECONDS = 300.0


def ticking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ticks-every"]


def gone() -> None:
    for thread in ticking():
        thread.join(PATIENCE_SECONDS)
    assert ticking() == []


def test_a_function_is_called_until_it_says_no() -> None:
    """Every period, in one thread, which ends with the first False."""
    calls: list[int] = []

    def function() -> bool:
        calls.append(threading.get_ident())
        return len(calls) < 3

    ThreadPool(name="ticks").every(PERIOD_SECONDS, function)
    gone()
    assert len(calls) == 3
    assert len(set(calls)) == 1


def test_a_function_that_raises_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged, and the next call may do better."""
    calls: list[bool] = []

    def function() -> bool:
        calls.append(True)
        if len(calls) == 1:
            raise ZeroDivisionError
        return False

    with caplog.at_level(logging.WARNING, "magic_committer"):
        ThreadPool(name="ticks").every(PERIOD_SECONDS, function)
        gone()
    assert len(calls) == 2
    assert "ZeroDivisionError" in caplog.text


def test_ending_it_does_not_wait_for_a_call_that_hangs() -> None:
    """The end is said at once; the call under way ends by itself, and is the last."""
    begun, may_end = threading.Event(), threading.Event()
    calls: list[bool] = []

    def function() -> bool:
        calls.append(True)
        begun.set()
        return may_end.wait(PATIENCE_SECONDS)

    end = ThreadPool(name="ticks").every(PERIOD_SECONDS, function)
    assert begun.wait(PATIENCE_SECONDS)
    end()
    end()
    assert len(ticking()) == 1
    may_end.set()
    gone()
    assert len(calls) == 1


def test_a_pool_without_threads_never_calls() -> None:
    """There is nobody who could; ending it is fine all the same."""
    end = ThreadPool(0, name="ticks").every(0.0, lambda: True)
    assert ticking() == []
    end()


def test_a_forked_child_may_end_what_runs_in_its_parent_only() -> None:
    """There is no such thread in the child: it does not wait, and the parent's goes on."""
    called = threading.Semaphore(0)

    def function() -> bool:
        called.release()
        return True

    end = ThreadPool(name="ticks").every(PERIOD_SECONDS, function)
    for _ in range(20):
        child = os.fork()
        if child == 0:
            end()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    while called.acquire(blocking=False):
        continue
    assert called.acquire(timeout=PATIENCE_SECONDS)
    end()
    gone()


# Work ---------------------------------------------------------------------------------------------


def forked(work: Callable[[], int]) -> int:
    """Start a child that does some work, and ends with its result. Gives its process id."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # if it hangs
        os._exit(work())
    return child


ROOT = Path(__file__).parents[2]


def interrupt_soon(begun: threading.Event) -> None:
    """Send this process Ctrl-C once that has begun."""
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        assert begun.wait(PATIENCE_SECONDS)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("in_body", [False, True], ids=["in the wait", "in the loop"])
def test_ctrl_c_leaves_a_thread_that_hangs(in_body: bool) -> None:
    """An iteration is left soon; what it has under way is told to end."""
    pool, begun, may_end = ThreadPool(2), threading.Event(), threading.Event()
    told: list[bool] = []

    def function(number: int) -> None:
        if number == 0:
            return
        begun.set()
        may_end.wait(PATIENCE_SECONDS)
        mine = errand()
        told.append(mine is not None and mine.over)

    interrupt_soon(begun)
    began = time.monotonic()
    outcomes = pool.each(function, range(2 if in_body else 3), in_flight=2)
    with pytest.raises(KeyboardInterrupt):
        try:
            for _ in outcomes:
                if in_body:
                    time.sleep(PATIENCE_SECONDS)
        finally:
            outcomes.close()
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    may_end.set()
    pool.close()
    assert told[0]


@pytest.mark.parametrize("kind", [TimeoutError, Empty], ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("wait", ["a result", "an iteration"])
def test_what_a_signal_handler_raises_in_a_wait_is_its_callers(
    kind: type[Exception], wait: str
) -> None:
    """Also what a wait of its own would end by: a deadline by SIGALRM raises TimeoutError."""
    pool, may_end = ThreadPool(1), threading.Event()

    def handler(*_: object) -> None:
        may_end.set()  # the function has ended by the time that the wait looks
        raise kind("the caller's")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        future = pool.submit(lambda: may_end.wait(PATIENCE_SECONDS))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(kind, match="the caller's"):
            if wait == "a result":
                future.result()
            else:
                list(pool.each(lambda _: may_end.wait(PATIENCE_SECONDS), [1], in_flight=1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        pool.close()


def test_a_forked_child_uses_a_pool_whose_first_use_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread of the parent starts the pool's first threads at the fork: it is not there in
    the child, and nothing waits for it."""
    pool, begun, may_go_on = ThreadPool(2, name="forked"), threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow(thread: threading.Thread) -> None:
        if thread.name.startswith("forked"):
            begun.set()
            assert may_go_on.wait(PATIENCE_SECONDS)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow)
    first = threading.Thread(target=lambda: pool.submit(int).result())
    first.start()
    assert begun.wait(PATIENCE_SECONDS)

    def again() -> int:
        threading.Thread.start = start  # type: ignore[method-assign]
        return pool.submit(lambda: 7).result()

    child = forked(again)
    may_go_on.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    first.join(PATIENCE_SECONDS)
    pool.close()


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


def test_a_long_wait_for_a_result_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as it takes; a TimeoutError of the function's own is raised."""
    monkeypatch.setattr(_pool, "LOOK_SECONDS", 0.01)
    pool = ThreadPool(2)

    def slow(error: type[Exception] | None) -> int:
        time.sleep(0.1)
        if error is not None:
            raise error("its own")
        return 7

    assert pool.submit(lambda: slow(None)).result() == 7
    with pytest.raises(TimeoutError, match="its own"):
        pool.submit(lambda: slow(TimeoutError)).result()
    assert [o.result for o in pool.each(lambda n: slow(None) + n, [1, 2], in_flight=1)] == [8, 9]
    pool.close()


def test_leaving_early_waits_for_what_is_in_flight() -> None:
    """Without Ctrl-C nothing runs on beside who has left the iteration."""
    pool, ended = ThreadPool(4), []

    def function(number: int) -> None:
        time.sleep(0.2 * number)
        ended.append(number)

    outcomes = pool.each(function, range(100), in_flight=3)
    next(outcomes)
    outcomes.close()
    assert sorted(ended) == [0, 1, 2]
    pool.close()


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
    """Forty functions at once are run by three threads; idle ones are used before a new one is
    started; closing ends them, and the pool may be used again."""
    pool, seen, three = ThreadPool(3, name="three"), set(), threading.Barrier(3)

    def function(number: int) -> None:
        seen.add(threading.get_ident())
        if number < 3:
            three.wait(PATIENCE_SECONDS)

    assert len(list(pool.each(function, range(40), in_flight=40))) == 40
    assert len(seen) == 3
    pool.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("three_")]
    for _ in range(5):
        pool.submit(lambda: None).result()
        until = time.monotonic() + PATIENCE_SECONDS
        while not pool._idle:  # until it has come back
            assert time.monotonic() < until
            time.sleep(0.001)
    assert len([one for one in threading.enumerate() if one.name.startswith("three_")]) == 1
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


@pytest.mark.parametrize("fork", [False, True])
def test_the_interpreter_does_not_wait_for_a_thread_that_hangs(fork: bool) -> None:
    """Its end comes soon, whatever still runs; in a forked child too, where no thread does."""
    program = """
import os, sys, threading
from magic_committer._pool import ThreadPool
pool = ThreadPool(2)
begun = threading.Event()
pool.submit(lambda: (begun.set(), threading.Event().wait(600)))
begun.wait()
if len(sys.argv) > 1 and os.fork() == 0:
    assert pool.submit(lambda: 7).result() == 7
    sys.exit()
"""
    arguments = ["fork"] if fork else []
    done = subprocess.run(
        # From 3.12 on Python warns of a fork beside threads, which is what is tried here.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_of_a_pool_does_itself_what_it_asks_the_pool_for() -> None:
    """Threads that wait for others of their own pool would wait for ever when all of them do."""
    pool = ThreadPool(2)

    def outer(number: int) -> list[tuple[int, str]]:
        def inner(item: int) -> tuple[int, str]:
            return number * 10 + item, threading.current_thread().name

        with closing(pool.each(inner, range(3), in_flight=3)) as outcomes:
            done = [outcome.unwrap() for outcome in outcomes]
        assert {name for _, name in done} == {threading.current_thread().name}
        return done

    with closing(pool.each(outer, range(8), in_flight=8)) as outcomes:
        done = sorted(number for outcome in outcomes for number, _ in outcome.unwrap())
    assert done == [outer * 10 + inner for outer in range(8) for inner in range(3)]
    pool.close()


def test_a_forked_child_computes_what_another_thread_was_computing() -> None:
    """No lock that the fork has copied keeps it from that."""
    begun, may_go_on, parent = threading.Event(), threading.Event(), os.getpid()

    class Place:
        @_pool.once
        def key(self) -> str:
            if os.getpid() == parent:
                begun.set()
                assert may_go_on.wait(PATIENCE_SECONDS)
            return "a/b"

    one = Place()
    other = threading.Thread(target=lambda: one.key)
    other.start()
    assert begun.wait(PATIENCE_SECONDS)
    child = forked(lambda: 7 if one.key == Place().key == "a/b" else 1)
    may_go_on.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    other.join(PATIENCE_SECONDS)
    assert one.__dict__ == {"key": "a/b"}

"""The pool's ticking threads: they call, they end, and nobody ever waits for them."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from magic_committer.pool import ThreadPool

PERIOD_SECONDS = 0.002
PATIENCE_SECONDS = 30.0


def ticking() -> list[threading.Thread]:
    """Threads of this file's pools."""
    return [thread for thread in threading.enumerate() if thread.name == "ticks-every"]


def gone() -> None:
    """Wait for their end."""
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
    """In the child there is no such thread; its end is said without waiting, and the parent's goes
    on."""
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

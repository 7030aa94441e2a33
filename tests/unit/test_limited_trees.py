"""A limit of requests per second: kept by all threads together, and no wait outlives Ctrl-C."""

from __future__ import annotations

import itertools
import threading

import pytest

from magic_committer._patience import SLICE_SECONDS, Errand
from magic_committer._runtime import SystemClock
from magic_committer.errors import OptionError, Unanswered
from magic_committer.file_trees.limited import LimitedTree, RateLimit
from magic_committer.file_trees.memory import MemoryTree
from tests.faulty_tree import FaultyTree


class StepClock:
    """Moves when somebody sleeps, and remembers how long each one slept."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        """Seconds."""
        return self.time

    def monotonic(self) -> float:
        """Seconds."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.slept.append(seconds)
        self.time += seconds


def test_a_second_has_so_many_turns_and_no_more() -> None:
    """After a second's worth at once, each turn waits for its time: 110 of them take ten seconds
    at ten a second."""
    clock = StepClock()
    limit = RateLimit(10, clock)
    times = []
    for _ in range(110):
        assert limit.turn()
        times.append(clock.time - 1000.0)
    assert times[9] == pytest.approx(0.0, abs=1e-6)
    assert times[-1] == pytest.approx(10.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times[9:])]
    assert min(gaps) > 0.0999, "evenly, after the burst"


def test_a_pause_saves_up_one_second_only() -> None:
    """After an hour of silence ten requests go at once, not 36,000."""
    clock = StepClock()
    limit = RateLimit(10, clock)
    limit.turn()
    clock.time += 3600
    began = clock.time
    for _ in range(20):
        limit.turn()
    assert clock.time - began == pytest.approx(1.0)


def test_every_verb_takes_one_turn() -> None:
    """Each verb asks the tree once, and the answers are the tree's."""
    clock = StepClock()
    faulty = FaultyTree(MemoryTree(now=lambda: 1.0))
    tree = LimitedTree(faulty, 1, clock)
    tree.make_root()
    tree.make_directory("d")
    tree.create("d/a", b"12")
    with tree.open("b") as file:
        file.write(b"1")
    tree.rename("b", "c")
    entry = tree.stat("c")
    assert entry is not None
    assert entry.size == 1
    assert [e.path for e in tree.list("d")] == ["d/a"]
    assert tree.read("d/a", 2) == tree.reader("d/a").read() == b"12"
    tree.sync(["c"], [""])
    assert tree.remove_directory("d") is False
    tree.remove("c")
    assert len(faulty.asked) == 11, "and `make_root`, which the view does not count"
    assert clock.time - 1000.0 == pytest.approx(11.0)
    assert (tree.url, tree.promises) == (faulty.url, faulty.promises)


def test_a_wait_hears_the_end_of_its_work() -> None:
    """A thread of the pool whose caller pressed Ctrl-C stops waiting within a slice, and asks
    nothing; no sleep is longer than a slice."""
    clock = StepClock()
    faulty = FaultyTree(MemoryTree(now=lambda: 1.0))
    tree = LimitedTree(faulty, 1, clock)
    tree.stat("a")
    work = Errand()
    slept = clock.sleep

    def interrupted(seconds: float) -> None:
        slept(seconds)
        work.end(0.0)

    clock.sleep = interrupted  # type: ignore[method-assign]  # what Ctrl-C does, at this moment
    with work.here(), pytest.raises(Unanswered) as raised:
        tree.stat("b")
    assert raised.value.sent is False
    assert len(clock.slept) == 1
    assert max(clock.slept) <= SLICE_SECONDS
    assert len(faulty.asked) == 1


def test_ctrl_c_ends_a_wait_in_the_main_thread() -> None:
    """KeyboardInterrupt goes through; the next request waits for its turn as if nothing was."""
    clock = StepClock()
    tree = LimitedTree(MemoryTree(now=lambda: 1.0), 1, clock)
    tree.stat("a")
    slept = clock.sleep

    def pressed(seconds: float) -> None:
        raise KeyboardInterrupt

    clock.sleep = pressed  # type: ignore[method-assign]  # the moment of the key
    with pytest.raises(KeyboardInterrupt):
        tree.stat("b")
    clock.sleep = slept  # type: ignore[method-assign]  # and after it
    assert tree.stat("b") is None


def test_threads_share_one_limit() -> None:
    """Eight threads that ask 48 times at 40 a second, after a burst of 40: the last one waits for a
    fifth of a second or more."""
    tree = LimitedTree(MemoryTree(now=lambda: 1.0), 40)
    clock = SystemClock()
    began = clock.monotonic()
    threads = [
        threading.Thread(target=lambda: [tree.stat("a") for _ in range(6)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert clock.monotonic() - began >= 0.19


@pytest.mark.parametrize("per_second", [0, -1, 0.5, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(per_second: float) -> None:
    """Below one a second a commit would never end; and infinity is no limit."""
    with pytest.raises(OptionError, match="per second"):
        LimitedTree(MemoryTree(now=lambda: 1.0), per_second)

"""The faults of file trees do what they say: what judges committers must be right itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magic_committer.errors import (
    MagicError,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unanswered,
)
from magic_committer.file_trees.memory import MemoryTree
from tests.faulty_tree import Died, Fault, FaultyTree, Weather, at, drawn, on, possible

VERBS = (
    "stat", "list", "read", "create", "open", "rename", "make_directory", "remove",
    "remove_directory", "sync",
)  # fmt: skip


@pytest.fixture
def memory() -> MemoryTree:
    """A tree with the file ``a``."""
    tree = MemoryTree(now=lambda: 1.0)
    tree.create("a", b"1")
    return tree


@pytest.mark.parametrize(
    ("fault", "raised", "effect"),
    [
        (Fault.ANSWER_LOST, Unanswered, True),
        (Fault.REQUEST_LOST, Unanswered, False),
        (Fault.RETRIED, NotFound, True),
        (Fault.LATE, Unanswered, False),
        (Fault.DENIED, PermissionDenied, False),
        (Fault.DIES, Died, False),
        (Fault.DIES_AFTER, Died, True),
    ],
)
def test_what_becomes_of_a_rename(
    memory: MemoryTree, fault: Fault, raised: type[BaseException], effect: bool
) -> None:
    """What the process is told, and what is there afterwards."""
    tree = FaultyTree(memory, on("rename", fault))
    with pytest.raises(raised):
        tree.rename("a", "b")
    assert (memory.stat("b") is not None) is effect
    assert tree.befell == [(1, fault)]


@pytest.mark.parametrize(
    ("fault", "raised", "effect"),
    [
        (Fault.ANSWER_LOST, Unanswered, True),
        (Fault.RETRIED, PreconditionFailed, True),
        (Fault.FULL, Unanswered, False),
    ],
)
def test_what_becomes_of_a_create(
    memory: MemoryTree, fault: Fault, raised: type[MagicError], effect: bool
) -> None:
    """A refusal may be the answer to our own first try."""
    tree = FaultyTree(memory, on("create", fault))
    with pytest.raises(raised):
        tree.create("b", b"2")
    assert (memory.stat("b") is not None) is effect


def test_a_create_may_be_forged(memory: MemoryTree) -> None:
    """The promise that is not kept: two creates of one file succeed."""
    FaultyTree(memory, on("create", Fault.FORGED)).create("a", b"2")
    assert memory.read("a", 9) == b"2"


def test_the_dead_stay_dead(memory: MemoryTree) -> None:
    """After its end a process asks nothing more; the other one goes on."""
    weather = Weather()
    one, other = FaultyTree(memory, at({1: Fault.DIES}), weather), FaultyTree(memory)
    for _ in range(2):
        with pytest.raises(Died):
            one.stat("a")
    assert other.stat("a") is not None
    assert len(one.asked) == 1


def test_a_late_request_takes_effect_later(memory: MemoryTree) -> None:
    """After further requests of whomever; or at the end; and then it may fail unheard."""
    weather = Weather()
    one = FaultyTree(memory, on("rename", Fault.LATE), weather)
    other = FaultyTree(memory, weather=weather)
    with pytest.raises(Unanswered):
        one.rename("a", "b")
    seen = [other.stat("b") is not None for _ in range(6)]
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (False, True)
    third = FaultyTree(memory, on("remove", Fault.LATE), weather)
    with pytest.raises(Unanswered):
        third.remove("b")
    weather.settle()
    assert memory.stat("b") is None


def test_a_listing_lags_and_catches_up(memory: MemoryTree) -> None:
    """A file that was just made may be missing in a listing, never in a look; later it is not."""
    missed = 0
    for seed in range(40):
        shared = MemoryTree(now=lambda: 1.0)
        tree = FaultyTree(shared, weather=Weather(seed, lag_requests=4))
        tree.create("b", b"")
        missed += not [*tree.list("")]
        assert tree.stat("b") is not None
        for _ in range(3):
            tree.stat("b")
        assert [entry.path for entry in tree.list("")] == ["b"]
    assert 5 < missed < 35


def test_the_same_seed_draws_the_same() -> None:
    """By request number, whatever else is asked; and only what can befall a verb."""
    first, second = (drawn(7, 0.5, Fault) for _ in range(2))
    told = [(first(n, verb, ""), verb) for n in range(200) for verb in VERBS]
    again = [(second(n, verb, ""), verb) for n in reversed(range(200)) for verb in VERBS[::-1]]
    assert told == again[::-1]
    assert {fault for fault, _ in told if fault} == set(Fault)
    assert all(possible(fault, verb) for fault, verb in told if fault)


@pytest.mark.parametrize("verb", ["stat", "list", "read", "open"])
def test_a_question_cannot_be_late(memory: MemoryTree, verb: str) -> None:
    """What has no effect has none later: a test that says so has made a mistake."""
    tree = FaultyTree(memory, at({1: Fault.LATE}))
    ask: Callable[[str], object] = tree.__getattribute__(verb)
    with pytest.raises(AssertionError):
        tree.read("a", 1) if verb == "read" else ask("a")

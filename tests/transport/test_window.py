"""The window of a batch: how many requests are in flight."""

from __future__ import annotations

import pytest

from magic_committer.commit.window import Window
from magic_committer.errors import NotFound, StoreError, Unanswered

SLOW_DOWN = Unanswered("slow down", status=503, code="SlowDown")


def answered(window: Window, *errors: StoreError | None) -> int:
    """The size after these answers."""
    for error in errors:
        window.answered(error)
    return window.size


def test_a_window_begins_with_all_that_it_may_be() -> None:
    """The caller's number is the upper bound, and successes never lift it."""
    window = Window(8)
    assert window.size == 8
    assert answered(window, *[None] * 100) == 8


@pytest.mark.parametrize("status", [503, 429])
def test_a_store_that_asks_for_fewer_gets_half(status: int) -> None:
    """503 and 429 halve the window."""
    assert answered(Window(8), Unanswered("slow down", status=status)) == 4


def test_one_burst_halves_once() -> None:
    """What was in flight when the window was halved is not a second reason: the first answer to a
    request that was sent later is."""
    window = Window(8)
    assert answered(window, *[SLOW_DOWN] * 8) == 4
    assert answered(window, SLOW_DOWN) == 2


def test_a_window_grows_by_one_for_each_window_of_successes() -> None:
    """It grows by one when as many requests as it holds were answered with success, up to its
    bound."""
    window = Window(4)
    assert answered(window, SLOW_DOWN, None, None) == 3
    assert answered(window, None, None) == 3
    assert answered(window, None) == 4
    assert answered(window, *[None] * 20) == 4


def test_halving_counts_successes_from_anew() -> None:
    """Successes before a halving do not let the window grow after it."""
    window = Window(8)
    answered(window, *[SLOW_DOWN] * 8)
    assert answered(window, None, None, None, SLOW_DOWN) == 2
    assert answered(window, None) == 2
    assert answered(window, None) == 3


def test_a_window_holds_at_least_one() -> None:
    """However often the store asks for fewer, one request is in flight."""
    window = Window(2)
    assert answered(window, *[SLOW_DOWN] * 50) == 1
    assert answered(Window(1), SLOW_DOWN) == 1


@pytest.mark.parametrize(
    "error", [NotFound("gone", status=404), Unanswered("no answer"), Unanswered("x", status=500)]
)
def test_other_failures_change_no_window(error: StoreError) -> None:
    """Only an answer that asks for fewer requests is one."""
    assert answered(Window(8), *[error] * 20) == 8

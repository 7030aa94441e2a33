"""The window of a batch: how many requests are in flight."""

from __future__ import annotations

import pytest

from magic_committer.stores.s3.answers import Refused, Unreadable
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from magic_committer.stores.s3.many import Window

SLOW_DOWN = Refused(503, "SlowDown", "slow down")


def answered(window: Window, *errors: Exception | None) -> int:
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
    assert answered(Window(8), Refused(status, "", "")) == 4


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
    "error",
    [
        Refused(404, "NoSuchUpload", ""),
        Refused(500, "InternalError", ""),
        Unreadable(503, "a page"),
        NoAnswer(Cause.TIME, Sent.PERHAPS, "no answer"),
    ],
)
def test_other_failures_change_no_window(error: Exception) -> None:
    """Only an answer that asks for fewer requests is one."""
    assert answered(Window(8), *[error] * 20) == 8

"""Which item is tried next, which try counts, and when an item is given up: time is a number."""

from __future__ import annotations

import pytest
import tenacity

from magic_committer.engines.executors import DOUBLE_SECONDS_MIN, Tries, Try


def tries(
    items: object = range(3),
    *,
    in_flight: int = 2,
    tries_max: int = 3,
    slow: float | None = None,
    **policy: object,
) -> Tries:
    how = {"wait": tenacity.wait_fixed(5), "stop": tenacity.stop_never, **policy}
    retrying = tenacity.Retrying(**how)  # type: ignore[arg-type]
    return Tries(items, in_flight, tries_max, retrying, slow)  # type: ignore[arg-type]


def begun(of: Tries, now: float = 0.0) -> Try:
    one = of.next(now)
    assert one is not None
    return one


def test_items_that_wait_for_their_next_try_take_room() -> None:
    """Many items that fail do not let the whole iterable into memory."""
    of = tries(range(100), in_flight=2)
    for _ in range(2):
        assert of.ended_badly(begun(of), ValueError(), 0, ask=True)
    assert of.next(0) is None
    assert of.taken == 2


def test_a_failed_item_is_tried_again_after_its_pause() -> None:
    """Not before the policy says so; then before new items."""
    of = tries(range(3), in_flight=1)
    failed = begun(of)
    assert of.ended_badly(failed, ValueError(), 10, ask=True)
    assert of.wait_seconds(10, 60) == 5
    assert of.next(14.9) is None
    assert begun(of, 15).of is failed.of


def test_an_item_has_its_last_try() -> None:
    """`tries_max` ends it, whatever the policy says."""
    of = tries(range(1), tries_max=2)
    assert of.ended_badly(begun(of), ValueError(), 0, ask=True)
    assert not of.ended_badly(begun(of, 5), ValueError(), 5, ask=True)
    assert not of.done


@pytest.mark.parametrize(
    "policy",
    [
        {"retry": tenacity.retry_if_exception_type(OSError)},
        {"stop": tenacity.stop_after_attempt(1)},
        {"stop": tenacity.stop_after_attempt(1), "reraise": True},
        {"stop": tenacity.stop_after_attempt(1), "retry_error_callback": lambda _: 5},
    ],
)
def test_the_policy_may_end_it_before(policy: dict[str, object]) -> None:
    """By its predicate, its stop, and however it then ends."""
    of = tries(range(1), **policy)  # type: ignore[arg-type]
    assert not of.ended_badly(begun(of), ValueError(), 0, ask=True)


def test_a_broken_executor_asks_no_policy() -> None:
    """Its items are tried again at once, as often as they may fail."""
    of = tries(range(1), tries_max=2, retry=tenacity.retry_never)
    assert of.ended_badly(begun(of), ValueError(), 0, ask=False)
    assert not of.ended_badly(begun(of, 0), ValueError(), 0, ask=False)


def with_a_straggler(slow: float | None = 3.0, ended: int = 3) -> tuple[Tries, Try]:
    """After 10 s: the first of four items runs still, the others took 1 s each."""
    of = tries(range(ended + 1), in_flight=2, slow=slow)
    straggler = begun(of)
    for _ in range(ended):
        of.ended_well(begun(of), 1, 10)
    return of, straggler


def test_a_slow_try_is_doubled_once() -> None:
    """After three times the median; not before, and not twice."""
    of, straggler = with_a_straggler()
    assert of.next(12.9) is None
    assert of.wait_seconds(12.5, 60) == pytest.approx(0.5)
    assert begun(of, 13.1).of is straggler.of
    of.flying.pop()
    straggler.of.flying = 1
    assert of.next(99) is None


def test_the_first_of_two_tries_counts() -> None:
    """The other may end well or badly: nothing changes any more."""
    for faster in (0, 1):
        of, straggler = with_a_straggler()
        two = (straggler, begun(of, 100))
        assert of.ended_well(two[faster], 1, 101)
        assert of.done
        assert not of.ended_well(two[1 - faster], 1, 102)
        assert of.accepted == 4


def test_a_try_that_fails_beside_another_waits_for_it() -> None:
    """The item is not given up and not begun a third time while one of its tries runs."""
    of, straggler = with_a_straggler()
    double = begun(of, 100)
    assert of.ended_badly(straggler, ValueError(), 101, ask=True)
    assert of.next(200) is None
    assert of.ended_well(double, 1, 201)


@pytest.mark.parametrize(
    ("slow", "ended"), [(None, 3), (3.0, 2)], ids=["not asked for", "too few have ended"]
)
def test_nothing_is_doubled_without_a_reason(slow: float | None, ended: int) -> None:
    """Only on request, and when there is something to compare with."""
    of, _ = with_a_straggler(slow, ended)
    assert of.next(1000) is None


def test_short_tries_are_not_doubled() -> None:
    """A thousand of a millisecond make no try of a tenth of a second slow."""
    of = tries(range(4), in_flight=2, slow=3.0)
    begun(of)
    for _ in range(3):
        of.ended_well(begun(of), 0.001, 10)
    assert of.next(10 + DOUBLE_SECONDS_MIN - 0.01) is None
    assert of.next(10 + DOUBLE_SECONDS_MIN + 0.01) is not None


def test_a_try_that_waits_in_a_queue_is_not_slow() -> None:
    """One worker, ten tries in its queue: those that wait are no stragglers, however long."""
    of = tries(range(10), in_flight=10, slow=3.0)
    queue = [begun(of) for _ in range(10)]
    for number, one in enumerate(queue[:9]):
        of.ended_well(one, 1, number + 1)
        assert of.next(number + 1) is None

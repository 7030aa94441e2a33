from __future__ import annotations

from collections.abc import Callable

import pytest

from magic_committer.upload.window import REST_MEASURES, SendWindow


class Pipe:
    """A writer and its parts on a line, in time of its own.

    Args:
        window: what is tested.
        rate: how many parts a second the line moves, of so many in flight.
        writer: seconds that the writer needs for a part.
    """

    def __init__(
        self, window: SendWindow, rate: Callable[[int], float], writer: float = 0.001
    ) -> None:
        self.window = window
        self.rate = rate
        self.writer = writer
        self.now = 100.0
        self.in_flight = 0
        self._left = 0.0  # of the oldest part

    def run(self, parts: int) -> list[int]:
        """Hand over so many parts; the size of the window at each."""
        sizes = []
        for _ in range(parts):
            stored = self._passes(self.writer)
            waited = self.in_flight >= self.window.size
            while self.in_flight >= self.window.size:
                stored += self._passes(self._left / self.rate(self.in_flight))
            self.window.handed(stored, self.now, waited=waited)
            self.in_flight += 1
            if self.in_flight == 1:
                self._left = 1.0
            sizes.append(self.window.size)
        return sizes

    def _passes(self, seconds: float) -> int:
        """Let time pass, and give how many parts were stored in it."""
        stored = 0
        self.now += seconds
        while self.in_flight and seconds >= 0:
            needed = self._left / self.rate(self.in_flight)
            if needed > seconds + 1e-12:
                self._left -= seconds * self.rate(self.in_flight)
                break
            seconds -= needed
            self.in_flight -= 1
            stored += 1
            self._left = 1.0
        return stored


def long_line(in_flight: int) -> float:
    """Each part takes a second, however many there are."""
    return float(in_flight)


def saturated(in_flight: int) -> float:
    """More than one part in flight only takes the processor from the others."""
    return (100.0, 80.0, 70.0, 60.0)[min(in_flight, 4) - 1]


def mean(sizes: list[int]) -> float:
    return sum(sizes) / len(sizes)


def test_it_begins_with_one_part() -> None:
    """The first parts of every file are sent one at a time."""
    assert Pipe(SendWindow(64), long_line).run(3) == [1, 1, 1]


@pytest.mark.parametrize("most", [2, 3, 8, 64])
def test_over_a_long_line_it_opens_and_stays_open(most: int) -> None:
    """Where each further part is a gain, the window opens to its maximum, and what it tries later
    costs little."""
    pipe = Pipe(SendWindow(most), long_line)
    pipe.run(10 * most + 20)
    later = pipe.run(40 * most)
    assert max(later) == most
    assert mean(later) > 0.85 * most


def test_on_a_full_machine_it_stays_at_one() -> None:
    """Where a second part in flight is a loss, one is in flight nearly all the time."""
    sizes = Pipe(SendWindow(3), saturated).run(400)
    assert max(sizes) == 2
    assert mean(sizes) < 1.2


def test_a_gain_too_small_to_tell_is_no_reason_to_grow() -> None:
    """A second part that brings five per cent stays out: it costs a block and a sender."""
    sizes = Pipe(SendWindow(8), lambda n: 100 + 5 * n).run(400)
    assert mean(sizes) < 1.3


def test_a_slow_writer_tries_nothing() -> None:
    """A writer that never waits for room is not held back by the window, which stays as it is."""
    assert set(Pipe(SendWindow(8), long_line, writer=5.0).run(200)) == {1}


@pytest.mark.parametrize("most", [3, 16])
def test_it_follows_a_line_that_changes(most: int) -> None:
    """A line that gets full closes the window again; one that gets long opens it."""
    pipe = Pipe(SendWindow(most), long_line)
    pipe.run(60 * most)
    pipe.rate = saturated
    pipe.run(60 * most * REST_MEASURES)
    assert mean(pipe.run(200)) < 2
    pipe.rate = long_line
    pipe.run(100 * REST_MEASURES)
    assert mean(pipe.run(40 * most)) > 0.8 * most


def test_a_maximum_of_one_is_one() -> None:
    """There is nothing to try."""
    assert set(Pipe(SendWindow(1), long_line).run(200)) == {1}


def test_a_clock_that_stands_still_harms_nothing() -> None:
    """Coarse clocks give two times that are equal: the size stays within its limits."""
    window = SendWindow(4)
    for _ in range(500):
        window.handed(8, 1.0, waited=True)
        assert 1 <= window.size <= 4

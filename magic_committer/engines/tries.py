"""Which item is tried next, which try counts, and when an item is given up. Pure, but for the
caller's iterable of items and the caller's policy; time comes in as an argument.

Invariants:

* **One try of each item is accepted: the first that ends well.** What another try of it says later
  changes nothing.
* No item is passed over: the end is reached when each item has an accepted try, or one is given up.
* At most ``in_flight`` tries are in flight, and at most so many items are known: an item is taken
  from the iterable only when there is room. So items may be a generator of millions.
* An item has at most ``tries_max`` failed tries, whatever the policy says.
* A try is doubled only when no item is left to begin, at most once for each item, and not before
  enough others have ended to say what is slow. A wrong guess costs one run, and nothing else.
  Nobody says when an executor begins a try. So all that are in flight are slow when for a while
  none has ended, and none was handed over: what waits in a queue is then no longer behind another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import median
from typing import Any

import tenacity

DOUBLE_AFTER = 3
"""Tries that must have ended well before one is called slow."""
DOUBLE_SECONDS_MIN = 0.5
"""No try is slow before so many seconds."""


@dataclass(eq=False, slots=True)
class OpenItem:
    """An item, by its place in the iterable: what the policy knows of it (``state``), how many
    tries have failed and are in flight, whether one was doubled, and whether one has ended well."""

    number: int
    item: Any
    state: tenacity.RetryCallState
    failures: int = 0
    flying: int = 0
    doubled: bool = False
    accepted: bool = False


@dataclass(eq=False, slots=True)
class Try:
    """One try of an item, in flight. Its future and executor are the caller's."""

    of: OpenItem
    future: Any = None
    executor: Any = None


@dataclass(eq=False)
class Tries:
    """All tries of a run. They are doubled when nothing moves for ``slow`` times the median; None:
    never. ``taken`` counts the items that were taken from the iterable, ``accepted`` those that are
    done, ``begun`` the tries. ``moved`` is when a try was last handed over, or has ended."""

    items: Iterable[Any]
    in_flight: int
    tries_max: int
    policy: tenacity.BaseRetrying
    slow: float | None
    taken: int = 0
    accepted: int = 0
    begun: int = 0
    moved: float = 0.0
    flying: list[Try] = field(default_factory=list)
    _due: list[tuple[float, int, OpenItem]] = field(default_factory=list)
    _exhausted: bool = False
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def __post_init__(self) -> None:
        self._source = iter(self.items)
        self.policy = self.policy.copy()
        self.policy.begin()

    @property
    def done(self) -> bool:
        """Whether each item has an accepted try."""
        return self._exhausted and self.accepted == self.taken

    def next(self, now: float) -> Try | None:
        """What to hand to the executor now; None: nothing, for the present."""
        if len(self.flying) >= self.in_flight:
            return None
        if self._due and self._due[0][0] <= now:
            self.moved = now
            return self._begin(heappop(self._due)[2])
        if not self._exhausted and len(self.flying) + len(self._due) < self.in_flight:
            try:
                item = next(self._source)
            except StopIteration:
                self._exhausted = True
            else:
                state = tenacity.RetryCallState(self.policy, None, (item,), {})
                self.taken += 1
                self.moved = now
                return self._begin(OpenItem(self.taken - 1, item, state))
        # No room for items, but what waits for its pause: nothing is doubled now.
        if not self._due and now - self.moved > self._slow_seconds():
            for one in self.flying:
                if one.of.flying == 1 and not one.of.doubled and not one.of.accepted:
                    one.of.doubled = True
                    return self._begin(one.of)
        return None

    def _begin(self, item: OpenItem) -> Try:
        self.begun += 1
        item.flying += 1
        self.flying.append(Try(item))
        return self.flying[-1]

    def _slow_seconds(self) -> float:
        if self.slow is None or len(self._durations) < DOUBLE_AFTER:
            return float("inf")
        return max(DOUBLE_SECONDS_MIN, self.slow * median(self._durations))

    def wait_seconds(self, now: float, longest: float) -> float:
        """For how long there is nothing to hand out if no try ends, ``longest`` at most."""
        until = now + longest
        if self._due:
            until = min(until, self._due[0][0])
        elif len(self.flying) < self.in_flight and not all(one.of.doubled for one in self.flying):
            until = min(until, self.moved + self._slow_seconds())
        return max(0.0, until - now)

    # What has ended -------------------------------------------------------------------------------

    def ended_well(self, one: Try, seconds: float, now: float) -> bool:
        """Note that a try has ended well. Whether it counts: its twin may have been faster."""
        self._end(one, now)
        self._durations.append(seconds)
        if one.of.accepted:
            return False
        one.of.accepted = True
        self.accepted += 1
        return True

    def ended_badly(self, one: Try, error: BaseException, now: float, *, ask: bool) -> bool:
        """Note that a try has failed. Whether its item goes on: it is tried again, another try of
        it is in flight, or it is accepted already. Without ``ask`` the failure says nothing about
        the item: the policy is not asked, it is tried again at once, as often as it may fail."""
        self._end(one, now)
        item = one.of
        if item.accepted:
            return True
        item.failures += 1
        if item.flying:
            return True
        if item.failures >= self.tries_max:
            return False
        seconds = self._pause(item, error) if ask else 0.0
        if seconds is None:
            return False
        heappush(self._due, (now + seconds, item.number, item))
        return True

    def _end(self, one: Try, now: float) -> None:
        self.moved = now
        self.flying.remove(one)
        one.of.flying -= 1

    def _pause(self, item: OpenItem, error: BaseException) -> float | None:
        """After how many seconds the policy wants another try; None: it wants none."""
        item.state.set_exception((type(error), error, error.__traceback__))
        try:
            said = self.policy.iter(item.state)
        except tenacity.RetryError:
            return None
        except BaseException as raised:
            if raised is error:
                return None
            raise
        if not isinstance(said, tenacity.DoSleep):
            return None  # what a `retry_error_callback` gave
        item.state.prepare_for_next_attempt()
        return float(said)

"""How many parts of one file are sent at once: as many as make it faster. Pure.

One part in flight beside the block that fills is enough where processor or network are full: there
a second sender takes the processor away from the writer. A long line needs many. Nobody can know
beforehand, so the window tries: it begins with one part and grows while the throughput grows. Later
it now and then tries a size above and one below, because lines and neighbours change.

Invariants:

* The size stays between 1 and the given maximum.
* A greater size is kept only if it was faster by `GAIN`; a smaller one if it was not slower by more
  than `LOSS`.
* While the writer never waits for room, no other size is tried: the window is not what holds it
  back.
* No clock: the caller says the times. The same calls give the same sizes.
"""

from __future__ import annotations

MEASURED_PARTS_MIN = 4
"""A size is measured over twice as many hand-overs as it has parts, and over this many at least."""
GAIN = 1.1
"""A greater size is kept if it is this many times as fast."""
LOSS = 0.95
"""A smaller size is kept if it is this many times as fast."""
REST_MEASURES = 8
"""After a size was tried in vain, this many measures pass before the next is tried."""


class SendWindow:
    """The window of one file.

    Args:
        most: the greatest size, 1 or more.

    Attributes:
        size: how many parts may be in flight now.
    """

    def __init__(self, most: int) -> None:
        self.size = 1
        self._most = most
        self._before: tuple[int, float] | None = None  # on trial: the size before, and its rate
        self._grows = True  # the direction of the present or the next trial
        self._rest = 0
        self._skipped = 2  # the first part makes the connection
        self._waited = False
        self._begin(0.0)

    def __repr__(self) -> str:
        return f"<SendWindow {self.size} of {self._most}>"

    def handed(self, stored_bytes: int, now: float, *, waited: bool) -> None:
        """Note that there is room for the next part.

        Args:
            stored_bytes: bytes of the parts whose answers came since the last call.
            now: the time, in seconds, by a clock that never goes back.
            waited: the writer had to wait for this room.
        """
        if self._skipped:  # the size is new, and its parts are not all in flight
            self._skipped -= 1
            self._begin(now)
            return
        self._bytes += stored_bytes
        self._hands += 1
        self._waited = self._waited or waited
        if self._hands < max(MEASURED_PARTS_MIN, 2 * self.size):
            return
        seconds, held_back = now - self._since, self._waited
        rate = self._bytes / seconds if seconds > 0 else float("inf")
        self._begin(now)
        if self._before is not None:
            self._judge(rate, *self._before)
        elif held_back:
            self._rest -= 1
            if self._rest < 0:
                self._try_next(rate)

    def _begin(self, now: float) -> None:
        self._since = now
        self._bytes = self._hands = 0
        self._waited = False

    def _judge(self, rate: float, size: int, before: float) -> None:
        self._before = None
        if rate >= before * (GAIN if self.size > size else LOSS):
            self._try_next(rate)
            return
        self._change(size)
        self._pause()

    def _try_next(self, rate: float) -> None:
        """Try the next size in the present direction; at its end, rest and turn."""
        wanted = self._above() if self._grows else self._below()
        if wanted == self.size:
            self._pause()
            return
        self._before = self.size, rate
        self._change(wanted)

    def _pause(self) -> None:
        self._rest = REST_MEASURES
        self._grows = not self._grows

    def _above(self) -> int:
        return min(self._most, 2 * self.size)

    def _below(self) -> int:
        return max(1, self.size - max(1, self.size // 4))

    def _change(self, size: int) -> None:
        self.size = size
        self._skipped = size

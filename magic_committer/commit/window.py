"""How many requests of a batch are in flight: fewer while the store asks for fewer. Pure.

S3 answers 503 ``SlowDown`` when a prefix gets more requests than it takes, and takes more after a
while. So the window is halved when the store asks for fewer requests, and grows by one when a whole
window of requests was answered with success. This is what TCP does, for the same reason: many
clients who do so share a store fairly, and none has to know its limit.

A store that is too busy answers many requests with 503 at once. All of them were sent before the
window was halved, so together they are one reason to halve it: the window is not halved again until
as many answers have come as were in flight then.
"""

from __future__ import annotations

from magic_committer.errors import StoreError

_SLOWER = frozenset((429, 503))
"""HTTP statuses by which a store asks for fewer requests (RFC 9110, RFC 6585; S3: ``SlowDown``)."""


class Window:
    """The number of requests that may be in flight: from 1 to ``most``.

    Args:
        most: the largest number, and the first one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = most
        self._successes = 0
        self._sent_before = 0
        """Answers that are still to come to requests that were sent before it was halved."""

    def __repr__(self) -> str:
        return f"<Window {self._size} of {self._most}>"

    @property
    def size(self) -> int:
        """How many requests may be in flight now."""
        return self._size

    def answered(self, error: StoreError | None) -> None:
        """Note an answer; None: a success."""
        before, self._sent_before = self._sent_before, max(0, self._sent_before - 1)
        if error is None:
            self._grow()
        elif asks_for_fewer(error) and not before:
            self._sent_before = self._size - 1  # this one has been answered
            self._size = max(1, self._size // 2)
            self._successes = 0

    def _grow(self) -> None:
        if self._size < self._most:
            self._successes += 1
            if self._successes >= self._size:
                self._size += 1
                self._successes = 0


def asks_for_fewer(error: StoreError) -> bool:
    """Whether the store asks for fewer requests. Pure."""
    return error.status in _SLOWER

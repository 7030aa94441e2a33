"""The one retry layer: which failures are tried again, how long after, and when it ends.

The SDK sends each request once. Waits grow by doubling and are drawn at random between half and
whole, so that many clients do not come back together:

* throttled: from `THROTTLED_SECONDS`, to give the store time;
* transient (5xx, time-outs, broken connections, an error inside a 200), conflict (409): from
  `TRANSIENT_SECONDS`;
* skewed (signed too long ago: the machine slept): once more, signed anew;
* everything else is final.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import tenacity

from magic_committer.runtime import Clock
from magic_committer.s3.errors import SDK_ERRORS, answer, kind, never_sent

R = TypeVar("R")

THROTTLED_SECONDS = 1.0
TRANSIENT_SECONDS = 0.1
WAIT_SECONDS_MAX = 20.0
SKEWED_ATTEMPTS_MAX = 2

_log = logging.getLogger("magic_committer")


class Attempts:
    """One request, sent until it is answered or given up.

    Attributes:
        count: how often it was tried.
        sent: whether a try may have reached the store; False only if none can have.

    Args:
        name: what it is, for the log.
        attempts_max, seconds_max: how often it is sent at most, and how late after the first time.
        conflict_final: a 409 is an answer (a conditional Complete, S3 API).
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        attempts_max: int,
        seconds_max: float,
        conflict_final: bool = False,
    ) -> None:
        self._name = name
        self._clock = clock
        self._attempts_max = attempts_max
        self._seconds_max = seconds_max
        self._conflict_final = conflict_final
        self.count = 0
        self.sent = False

    def call(self, send: Callable[[], R]) -> R:
        """Send until it succeeds; raises the last error when it is final, or when no attempts or
        time are left."""
        started = self._clock.monotonic()

        def out_of_bounds(state: tenacity.RetryCallState) -> bool:
            late = self._clock.monotonic() - started + state.upcoming_sleep > self._seconds_max
            return late or state.attempt_number >= self._attempts_max

        def once() -> R:
            self.count += 1
            try:
                return send()
            except SDK_ERRORS as error:
                self.sent = self.sent or not never_sent(error)
                raise

        retrying = tenacity.Retrying(
            retry=self._again,
            wait=self._wait,
            stop=out_of_bounds,
            sleep=self._clock.sleep,
            before_sleep=self._tell,
            reraise=True,
        )
        return retrying(once)

    def _again(self, state: tenacity.RetryCallState) -> bool:
        error = _error(state)
        if not isinstance(error, SDK_ERRORS):
            return False
        found = kind(error)
        if found == "skewed":
            return state.attempt_number < SKEWED_ATTEMPTS_MAX
        return found != "final" and not (found == "conflict" and self._conflict_final)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = _error(state)
        throttled = isinstance(error, SDK_ERRORS) and kind(error) == "throttled"
        first = THROTTLED_SECONDS if throttled else TRANSIENT_SECONDS
        longest = min(WAIT_SECONDS_MAX, first * 2.0 ** (state.attempt_number - 1))
        return tenacity.wait_random(longest / 2, longest)(state)

    def _tell(self, state: tenacity.RetryCallState) -> None:
        error = _error(state)
        found = answer(error) if isinstance(error, SDK_ERRORS) else None
        _log.info(
            "%s: attempt %d failed (%s), again in %.2f s",
            self._name,
            state.attempt_number,
            f"{found.status} {found.code}" if found and found.status else type(error).__name__,
            state.upcoming_sleep,
        )


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None

"""The one retry layer: which failures are tried again, after which wait, and when it ends.

The SDK sends each request once. Waits double and are drawn at random between half and all of it, so
that many clients do not come back at the same time:

* throttled: from `THROTTLED_SECONDS`, to give the store time;
* transient (5xx, time-outs, broken connections, an error inside a 200), conflict (409): from
  `TRANSIENT_SECONDS`;
* skewed (signed too long ago, because the machine slept): once more, with a new signature;
* everything else is final.

**A store that has not answered yet in this process, and where nobody listens, is given up soon**:
its address is more likely wrong than the store away. Not so once the job is decided. From its first
answer on, it has all the time there is.

**Retries end by time**: when the request has been tried for ``seconds_max``, or when its phase has
met only silence for so long (`magic_committer._patience`). The last wait is shortened, so that the
time is used. A try ends with the time, answered or not.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

from magic_committer._patience import (
    GRACE_SECONDS,
    SLICE_SECONDS,
    Errand,
    Kind,
    errand,
    patience,
)
from magic_committer._pool import ThreadPool, result_of
from magic_committer._runtime import Clock
from magic_committer.errors import StoreError
from magic_committer.stores.s3.errors import (
    SDK_ERRORS,
    answer,
    kind,
    let_go,
    never_sent,
    nobody_there,
    not_tls,
    reason,
)
from magic_committer.stores.s3.sockets import Deadline

R = TypeVar("R")

THROTTLED_SECONDS = 1.0
TRANSIENT_SECONDS = 0.1
WAIT_SECONDS_MAX = 10.0
"""The longest wait, in seconds. A store that is back is found after this time at the latest."""
SKEWED_ATTEMPTS_MAX = 2
FIRST_SECONDS = 5.0
"""How long a store is tried that has not answered yet in this process, and where nobody listens.
There are at least two tries."""
LAST_TRY_SECONDS = 1.0
"""Seconds that are kept for the last try; a tenth of the time, if the time is short."""

_BESIDE = ThreadPool(name="magic-committer-request")
"""Sends what the main thread asks. A signal handler may raise in that one at any instant, and the
SDK takes a TimeoutError for its socket's, or loses it: so the main thread only waits."""
_met: set[str] = set()
"""The endpoints that have answered in this process. It only grows, which needs no lock."""
_log = logging.getLogger("magic_committer")


class Attempts:
    """One request, sent until it is answered or given up.

    Attributes:
        count: how often it was tried.
        sent: whether a try may have reached the store; False only if none can have reached it.

    Args:
        verb: the port's verb.
        name: the request's name, for the log.
        endpoint: the store's.
        attempts_max, seconds_max: how often it is sent at most, and for how many seconds it is
            tried.
        try_seconds_max: how long a try may take, see `Deadline`.
        conflict_final: a 409 is an answer (a conditional Complete, S3 API).
    """

    def __init__(
        self,
        verb: str,
        name: str,
        clock: Clock,
        endpoint: str,
        *,
        attempts_max: int,
        seconds_max: float,
        try_seconds_max: float,
        conflict_final: bool = False,
    ) -> None:
        self._verb = verb
        self._name = name
        self._clock = clock
        self._endpoint = endpoint
        self._attempts_max = attempts_max
        self._seconds_max = seconds_max
        self._try_seconds_max = try_seconds_max
        self._conflict_final = conflict_final
        self._patience = patience()
        self._errand = errand()
        self._started = clock.monotonic()
        self._last_try_seconds = min(LAST_TRY_SECONDS, seconds_max / 10)
        self.count = 0
        self.sent = False

    @property
    def left(self) -> float:
        """Seconds for which it may still be tried. 0 or less: give it up."""
        now = self._clock.monotonic()
        own = self._seconds_max - (now - self._started)
        if self._patience is None:
            return own
        return min(own, self._patience.left(self._verb, now, self._seconds_max))

    @property
    def given_up(self) -> bool:
        """Whether not even a first try is made, because other requests of the phase have waited too
        long."""
        return self.left <= 2 * self._last_try_seconds or self._broken_off

    @property
    def _broken_off(self) -> bool:
        return self._errand is not None and self._errand.ended

    def call(self, send: Callable[[], R]) -> R:
        """Send until it succeeds. Raises the last error when it is final, or when no attempts or no
        time are left."""
        try:
            return self._once(send)
        except SDK_ERRORS as error:  # only now: what tries again costs more than a small request
            first = [error]
        retrying = tenacity.Retrying(
            retry=self._again,
            wait=self._wait,
            stop=self._out_of_bounds,
            sleep=self._sleep,
            before_sleep=self._tell,
            reraise=True,
        )

        def again() -> R:
            if first:
                raise first.pop()
            return self._once(send)

        return retrying(again)

    def _once(self, send: Callable[[], R]) -> R:
        self.count += 1
        mine = Errand()  # within the caller's
        deadline = Deadline(self._try_seconds_max, self.left, errand=mine, alive=self._answered)
        before = sys.exception()

        def once() -> R:
            with deadline.during():
                return send()

        try:
            main = threading.current_thread() is threading.main_thread()
            result = _beside(once, mine) if main else once()
        except SDK_ERRORS as error:
            self.sent = self.sent or not never_sent(error)
            if answer(error).status:
                _met.add(self._endpoint)
            let_go(error, before=before)
            if kind(error) not in ("throttled", "transient"):
                self._answered()
            raise
        except StoreError:  # from ``send``: an answer came, and is not accepted
            self._answered()
            raise
        _met.add(self._endpoint)
        self._answered()
        return result

    def _answered(self) -> None:
        if self._patience is not None:
            self._patience.answered(self._verb)

    def _stranger(self, error: BaseException | None) -> bool:
        """Whether the store may well be none: it never answered, and now nobody is there."""
        decided = self._patience is not None and self._patience.kind is Kind.DECIDED
        if decided or self._endpoint in _met:
            return False
        return isinstance(error, SDK_ERRORS) and nobody_there(error)

    def _left_after(self, state: tenacity.RetryCallState) -> float:
        """As `left`, for another try."""
        if state.attempt_number < 2 or not self._stranger(_error(state)):
            return self.left
        first = FIRST_SECONDS + 2 * self._last_try_seconds  # what `_wait` keeps
        return min(self.left, first - (self._clock.monotonic() - self._started))

    def _out_of_bounds(self, state: tenacity.RetryCallState) -> bool:
        return (
            self._left_after(state) < self._last_try_seconds + state.upcoming_sleep
            or state.attempt_number >= self._attempts_max
            or self._broken_off
        )

    def _again(self, state: tenacity.RetryCallState) -> bool:
        error = _error(state)
        if not isinstance(error, SDK_ERRORS):
            return False
        found = kind(error)
        if found == "skewed":
            return state.attempt_number < SKEWED_ATTEMPTS_MAX
        if not_tls(error) and self._stranger(error):
            return False  # another scheme or port never heals
        return found != "final" and not (found == "conflict" and self._conflict_final)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = _error(state)
        throttled = isinstance(error, SDK_ERRORS) and kind(error) == "throttled"
        first = THROTTLED_SECONDS if throttled else TRANSIENT_SECONDS
        longest = min(WAIT_SECONDS_MAX, first * 2.0 ** min(state.attempt_number - 1, 20))
        drawn = tenacity.wait_random(longest / 2, longest)(state)
        # A wait beyond the time ends it (`_out_of_bounds`), unless it is cut to what is left.
        room = self._left_after(state) - 2 * self._last_try_seconds
        return min(drawn, room) if room > 0 else drawn

    def _sleep(self, seconds: float) -> None:
        """Wait; for an errand, not after its end."""
        if self._errand is None:
            self._clock.sleep(seconds)
            return
        ends = self._clock.monotonic() + seconds
        while not self._errand.ended and (left := ends - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, SLICE_SECONDS))

    def _tell(self, state: tenacity.RetryCallState) -> None:
        error = _error(state)
        warns = state.attempt_number == 1 and self._stranger(error)
        _log.log(
            logging.WARNING if warns else logging.INFO,
            "%s: attempt %d failed (%s), again in %.2f s%s",
            self._name,
            state.attempt_number,
            reason(error) if isinstance(error, SDK_ERRORS) else type(error).__name__,
            state.upcoming_sleep,
            f", for some {FIRST_SECONDS:g} s in all: this store has not answered yet"
            if warns
            else "",
        )


def _beside(once: Callable[[], R], errand: Errand) -> R:
    """Do it in another thread. Whatever ends the wait also ends the request: it takes no effect
    after what its caller does next."""

    def unless_over() -> R:
        if errand.over:
            raise InterruptedError("its caller has given it up")
        return once()

    future = _BESIDE.submit(unless_over)
    try:
        return result_of(future)
    finally:
        if not future.done():
            errand.end(0.0)
            future.wait(GRACE_SECONDS)


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None

"""The one retry layer: which failures are tried again, after which wait, and when it ends.

Both ways send each request once. Waits double and are drawn at random between half and all of it,
so that many clients do not come back at the same time:

* throttled: from `THROTTLED_SECONDS`, to give the store time;
* transient (5xx, time-outs, broken connections, an error inside a 200), conflict (409): from
  `TRANSIENT_SECONDS`;
* skewed (signed too long ago, because the machine slept): once more, with a new signature;
* everything else is final.

**A store that has not answered yet in this process, and where nobody listens, is given up soon**:
its address is more likely wrong than the store away. Not so once the job is decided. From its first
answer on, it has all the time there is.

**Retries end by time**: when the request has been tried for as long as its phase allows, or when
the phase has met only silence for so long (`magic_committer.runtime.threads`). The last wait is
shortened, so that the time is used. A try ends with the time, answered or not. When the time of a
phase is used up, a store that answers by errors gets one try for each of the next requests.

`Attempts` says what is next; who waits is not its matter: a thread sleeps, a loop goes on with
other requests meanwhile.
"""

from __future__ import annotations

import logging
import random
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from magic_committer.errors import Unanswered
from magic_committer.options import S3Options
from magic_committer.runtime.components import Clock
from magic_committer.runtime.threads import SLICE_SECONDS, Kind, Patience, errand, patience
from magic_committer.stores.s3.answers import Refused, Reply, read
from magic_committer.stores.s3.errors import kind, nobody_there, not_tls, reason, translate
from magic_committer.stores.s3.http import Deadline, Failure, Sent, Waits
from magic_committer.stores.s3.requests import Call

if TYPE_CHECKING:
    from magic_committer.stores.s3.fast import Fast
    from magic_committer.stores.s3.many import Loop
    from magic_committer.stores.s3.via_boto3 import ViaBoto3

THROTTLED_SECONDS = 1.0
TRANSIENT_SECONDS = 0.1
WAIT_SECONDS_MAX = 10.0
"""The longest wait, in seconds. A store that is back is found after this time at the latest."""
SKEWED_ATTEMPTS_MAX = 2
FIRST_SECONDS = 5.0
"""How long a store is tried that has not answered yet in this process, and where nobody listens.
There are at least two tries."""
LATE_SECONDS = 5.0
"""How long a try may take that is late (`Patience.may_be_late`)."""
LAST_TRY_SECONDS = 1.0
"""Seconds that are kept for the last try; a tenth of the time, if the time is short."""
HURRIED_SECONDS = 0.7
"""How many seconds a store may be silent during the clean-up after Ctrl-C."""
CLEANING_SHARE = 0.25
"""The clean-up after a failure waits for this share of ``retry_seconds_max``: the store has had its
chance."""

_LONG = ("CompleteMultipartUpload", "UploadPartCopy")
"""Operations that the store may work on for minutes."""
_met: set[str] = set()
"""The endpoints that have answered in this process. It only grows, which needs no lock."""
_log = logging.getLogger("magic_committer")


def seconds_max(options: S3Options, now: Patience | None) -> float:
    """For how many seconds a request is tried now, and its phase accepts silence."""
    phase = None if now is None else now.kind
    if phase is Kind.DECIDED:
        return options.decided_seconds_max
    if phase is Kind.CLEANING:
        return options.retry_seconds_max * CLEANING_SHARE
    if phase is Kind.HURRIED:
        return min(HURRIED_SECONDS, options.retry_seconds_max)
    return options.retry_seconds_max


class Attempts:
    """One request of a store. ``bucket`` is "" if it is about the account."""

    def __init__(
        self, options: S3Options, clock: Clock, way: Fast | ViaBoto3, bucket: str, call: Call
    ) -> None:
        self._options = options
        self._clock = clock
        self._way = way
        self._bucket = bucket
        self._call = call
        self._patience = patience()
        self._errand = call.errand or errand()
        self._seconds_max = seconds_max(options, self._patience)
        self._started = 0.0
        self._last_try_seconds = min(LAST_TRY_SECONDS, self._seconds_max / 10)
        self._moved = False
        self._count = 0
        self._tries_max = 1 if call.once else options.retry_attempts_max
        self._sent = False  # whether a try may have reached the store

    def ask(self, over: Loop[Any] | None) -> Waits[tuple[Reply, int]]:
        """Send it until it is answered. Gives the reply, and how often it was sent. Raises
        `StoreError`: the meaning of the last failure. ``over``: as of `fast.Fast.ask`; it hears
        what came of each try."""
        self._started = self._clock.monotonic()
        left = self._left(self._started)
        used_up = left <= 2 * self._last_try_seconds
        if used_up and self._patience and self._patience.may_be_late(self._call.verb):
            self._tries_max, left = 1, LATE_SECONDS
        if left <= 2 * self._last_try_seconds or self._broken_off:
            raise Unanswered(
                f"{self._name} was not sent: the store has not answered for {self._seconds_max:g} s"
                ", or the work was interrupted",
                operation=self._call.verb,
                bucket=self._bucket,
                key=self._call.key,
                attempts=0,
                sent=False,
                hint="Nothing took effect: try again when the store answers",
            )
        options, waits = self._options, self._call.operation in _LONG
        wait_seconds = options.complete_seconds_max if waits else options.read_seconds_max
        alive = None if self._patience is None else self._answered
        while True:
            self._count += 1
            region = self._way.region
            deadline = Deadline(wait_seconds, left, errand=self._errand, alive=alive)
            try:
                answer = yield from self._way.ask(self._call, deadline, over)
                reply = read(self._call.operation, answer)
            except Failure as error:
                if over is not None:
                    over.answered(error.status if error.cause is None else 0)
                # No variable keeps what is raised: it would keep itself by its traceback, and the
                # body.
                wait = self._wait_after(error, region)
                if wait is not None:
                    yield from self._sleep(wait)
                if wait is None or self._broken_off:
                    place = (self._call.verb, self._bucket, self._call.key)
                    raise translate(error, *place, attempts=self._count, sent=self._sent) from error
                left = self._left(self._clock.monotonic())
            else:
                if over is not None:
                    over.answered(HTTPStatus.OK)
                self._answered()
                return reply, self._count

    def _answered(self) -> None:
        """Note that the store has answered, or moves."""
        _met.add(self._way.endpoint)
        if self._patience is not None:
            self._patience.answered(self._call.verb)

    def _wait_after(self, error: Failure, region: str) -> float | None:
        """The seconds to wait after a failure, before the next try; None: there is none. If the
        answer names the bucket's place, ask there, once, at once: the try has done nothing, and is
        not counted. ``region``: the one that was asked."""
        if isinstance(error, Refused) and not self._moved and self._way.moves(error, region):
            self._moved = True
            self._count -= 1
            return 0.0
        self._sent = self._sent or error.sent is not Sent.NEVER
        found = kind(error)
        if self._patience is not None:
            self._patience.failed(self._call.verb, silent=not error.status)
        if error.status:
            _met.add(self._way.endpoint)
            if found not in ("throttled", "transient"):
                self._answered()
        stranger = self._stranger(error)
        if self._broken_off or not self._again(error, found, stranger):
            return None
        first = THROTTLED_SECONDS if found == "throttled" else TRANSIENT_SECONDS
        longest = min(WAIT_SECONDS_MAX, first * 2.0 ** min(self._count - 1, 20))
        wait = random.uniform(longest / 2, longest)
        now = self._clock.monotonic()
        left = self._left(now)
        if stranger:
            first_left = self._started + FIRST_SECONDS - now
            if first_left <= 0 and self._count > 1:
                return None
            wait = min(wait, first_left if first_left > 0 else TRANSIENT_SECONDS)
        if left > 2 * self._last_try_seconds:  # the wait is cut: the time is used
            wait = min(wait, left - 2 * self._last_try_seconds)
        if left < self._last_try_seconds + wait:
            return None
        level, until = logging.INFO, ""
        if self._count == 1 and self._way.endpoint not in _met:
            level = logging.WARNING
            seconds = min(FIRST_SECONDS, left) if stranger else left
            until = f", for some {seconds:.0f} s more: this store has not answered yet"
        said = "%s: attempt %d failed (%s), again in %.2f s%s"
        _log.log(level, said, self._name, self._count, reason(error), wait, until)
        return wait

    def _again(self, error: Failure, found: str, stranger: bool) -> bool:
        if self._count >= self._tries_max:
            return False
        if found == "skewed":
            return self._count < SKEWED_ATTEMPTS_MAX
        if stranger and not_tls(error):
            return False  # another scheme or port never heals
        return found != "final" and not (found == "conflict" and self._call.conflict_final)

    def _stranger(self, error: Failure) -> bool:
        """Whether the store may well be none: it never answered, and now nobody is there."""
        decided = self._patience is not None and self._patience.kind is Kind.DECIDED
        return not decided and self._way.endpoint not in _met and nobody_there(error)

    def _sleep(self, seconds: float) -> Waits[None]:
        """Wait; for an errand, not after its end."""
        if self._errand is None:
            yield seconds
            return
        ends = self._clock.monotonic() + seconds
        while not self._errand.ended and (left := ends - self._clock.monotonic()) > 0:
            yield min(left, SLICE_SECONDS)

    @property
    def _broken_off(self) -> bool:
        """Whether its errand has ended: it is not tried again."""
        return self._errand is not None and self._errand.ended

    @property
    def _name(self) -> str:
        where = f" s3://{self._bucket}/{self._call.key}" if self._bucket else ""
        return f"{self._call.verb}{where}"

    def _left(self, now: float) -> float:
        """Seconds for which it may still be tried. 0 or less: give it up."""
        left = self._seconds_max - (now - self._started)
        if self._patience is not None:
            left = min(left, self._patience.left(self._call.verb, now, self._seconds_max))
        return left

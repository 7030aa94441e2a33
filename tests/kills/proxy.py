"""A small HTTP proxy between a process and its store, which kills the process at the n-th request.

The victim dies by SIGKILL while its request is on the way: before it is passed on, or after it took
effect and before it is answered. Phases are told by the job's record: each PUT of it that the store
accepts begins another one. Nothing that arrives once the victim is dead is passed on, and `settle`
waits for what was, so that nothing of the victim executes later.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.serving import Answering, asked_of, serving


@dataclass(frozen=True)
class Trigger:
    """When to kill.

    Attributes:
        phase: counted are requests while the store has accepted so many versions of the record;
            None: all requests.
        number: at which request, from 1.
        after: once it took effect, instead of before.
    """

    phase: int | None
    number: int
    after: bool


class Killer:
    """The proxy of one process.

    Attributes:
        url: what the process takes for its store.
        seen: how many requests came in each phase.
        killed: whether it was killed.
    """

    def __init__(self, upstream: str, trigger: Trigger | None) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._trigger = trigger
        self._lock = threading.Condition()
        self._victim = 0
        self._passing = 0
        self._phase = 0
        self.seen: Counter[int] = Counter()
        self.killed = False
        self.url = ""

    def aim(self, pid: int) -> None:
        """Say whom to kill: a process that the caller has started. Requests wait for it."""
        with self._lock:
            self._victim = pid
            self._lock.notify_all()

    def settle(self) -> None:
        """Wait until nothing that was passed on is still under way."""
        with self._lock:
            self._lock.wait_for(lambda: self._passing == 0, timeout=60)

    def handle(self, handler: Answering) -> bool:
        """Pass one request on and answer it. False if the victim is dead."""
        body = handler.body()
        fatal = self._is_the_one()
        if fatal is not None and not fatal.after:
            self._kill()
        with self._lock:
            if self.killed:
                return False
            self._passing += 1
        try:
            reply, content = asked_of(
                self._upstream, handler.command, handler.path, handler.headers.items(), body
            )
        finally:
            with self._lock:
                self._passing -= 1
                self._lock.notify_all()
        put_record = handler.command == "PUT" and handler.path.split("?")[0].endswith("/_job.json")
        with self._lock:
            self._phase += put_record and reply.status == 200
        if fatal is not None and fatal.after:
            self._kill()
        if self.killed:
            return False
        handler.tell(reply, content)
        return True

    def _is_the_one(self) -> Trigger | None:
        """Count a request; the trigger, if this is the one to kill at."""
        with self._lock:
            self._lock.wait_for(lambda: self._victim, timeout=60)
            self.seen[self._phase] += 1
            wanted = self._trigger
            if wanted is None or wanted.phase not in (None, self._phase):
                return None
            number = self.seen.total() if wanted.phase is None else self.seen[self._phase]
            return wanted if number == wanted.number else None

    def _kill(self) -> None:
        with self._lock:
            self.killed = True
        os.kill(self._victim, signal.SIGKILL)


@contextmanager
def killer(upstream: str, trigger: Trigger | None = None) -> Iterator[Killer]:
    """Run a proxy in threads of this process. Without a trigger it only counts."""
    proxy = Killer(upstream, trigger)

    class Handler(Answering):
        def answer(self) -> None:
            if not proxy.handle(self):
                self.close_connection = True

    with serving(Handler) as server:
        proxy.url = server.url
        yield proxy

"""A small HTTP proxy between a driver and its store, which strikes at a drawn request.

The blow falls while the request is on its way: before it is passed on, or after it took effect and
before it is answered. It is whatever the runner says: a kill of the whole driver, or of its Python
workers; or a pause, in which the request is held. Of a driver that was killed as a whole nothing
that arrives later is passed on, and `settle` waits for what was: nothing of it executes later.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from tests.serving import END_SECONDS_MAX, Answering, asked_of, serving

HELD_SECONDS_MAX = 300.0
"""A request is held so long at most: then the runner has forgotten it."""
READING = ("GET", "HEAD")


def kind_of(method: str, target: str) -> str:
    """What a request is of a job: by its verb, its key's last element, its query."""
    url = urlsplit(target)
    asked = parse_qs(url.query, keep_blank_values=True)
    name = url.path.rpartition("/")[2]
    if "/__magic_stream/" in url.path:
        return f"{method} ledger"
    if name == "_job.json":
        return f"{method} record"
    if name.startswith("_plan-"):
        return f"{method} plan"
    if name == "_SUCCESS":
        return f"{method} marker"
    if "partNumber" in asked:
        return "UploadPart"
    if "uploadId" in asked:
        return {"POST": "Complete", "DELETE": "Abort"}.get(method, "ListParts")
    if "uploads" in asked:
        return "Create" if method == "POST" else "ListUploads"
    if "list-type" in asked:
        return "List"
    return method


@dataclass(frozen=True)
class Moment:
    """A request of a driver.

    Attributes:
        kind: of which kind (`kind_of`); None: of any.
        number: the how manieth of this kind, from 1.
        after: once it took effect; False: before it is passed on.
    """

    kind: str | None
    number: int
    after: bool


class Striker:
    """The proxy of one driver.

    Attributes:
        url: what the driver takes for its store.
        struck: the kind of the request at which the blow fell, and how many requests had come;
            None: it has not fallen since `arm`.
    """

    def __init__(self, upstream: str, writing: threading.Lock) -> None:
        """Args:
        upstream: the store's URL.
        writing: held while the store writes: moto's conditions are not safe from two threads.
        """
        self._upstream = urlsplit(upstream).netloc
        self._writing = writing
        self._changed = threading.Condition()
        self._moment: Moment | None = None
        self._blow: Callable[[], None] = lambda: None
        self._seen: Counter[str] = Counter()
        self._passing = 0
        self._held = False
        self._is_over = False
        self.struck: str | None = None
        self.url = ""

    def arm(self, moment: Moment, blow: Callable[[], None], *, hold: bool = False) -> None:
        """Strike at the next such moment, counted from now. The request gets no answer; with
        ``hold`` it is kept until `release`, and goes on then."""
        with self._changed:
            self._moment, self._blow, self._held = moment, blow, hold
            self._seen.clear()
            self.struck = None

    def disarm(self) -> None:
        """Let all requests pass."""
        with self._changed:
            self._moment = None

    def release(self) -> None:
        """Let the request go that is held."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def end(self) -> None:
        """The driver is dead: pass nothing on from now."""
        with self._changed:
            self._is_over = True
            self._held = False
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing that was passed on is still under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._passing == 0, END_SECONDS_MAX)

    def handle(self, request: Answering) -> bool:
        """Pass a request on and answer it. False: the driver is dead."""
        body = request.body()
        fatal = self._is_the_one(kind_of(request.command, request.path))
        if fatal is not None and not fatal.after and not self._strike():
            return False
        with self._changed:
            if self._is_over:
                return False
            self._passing += 1
        try:
            headers = list(request.headers.items())
            if request.command in READING:
                reply = asked_of(self._upstream, request.command, request.path, headers, body)
            else:
                with self._writing:
                    reply = asked_of(self._upstream, request.command, request.path, headers, body)
        finally:
            with self._changed:
                self._passing -= 1
                self._changed.notify_all()
        if fatal is not None and fatal.after and not self._strike():
            return False
        if self._is_over:
            return False
        request.tell(*reply)
        return True

    def _is_the_one(self, kind: str) -> Moment | None:
        with self._changed:
            self._seen[kind] += 1
            wanted = self._moment
            if wanted is None or wanted.kind not in (None, kind):
                return None
            number = self._seen.total() if wanted.kind is None else self._seen[kind]
            if number != wanted.number:
                return None
            self._moment = None
            self.struck = kind
            return wanted

    def _strike(self) -> bool:
        """Strike; whether the request goes on: who sent it was only paused."""
        holds = self._held
        self._blow()
        with self._changed:
            assert self._changed.wait_for(lambda: not self._held, HELD_SECONDS_MAX)
        return holds


@contextmanager
def striker(upstream: str, writing: threading.Lock) -> Iterator[Striker]:
    """Run a proxy in threads of this process."""
    proxy = Striker(upstream, writing)

    class Handler(Answering):
        def answer(self) -> None:
            if not proxy.handle(self):
                self.close_connection = True

    with serving(Handler) as server:
        proxy.url = server.url
        yield proxy

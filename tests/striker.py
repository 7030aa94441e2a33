"""A small HTTP proxy between a process and its store, which strikes at a drawn request.

The blow falls while the request is on its way: before it is passed on, or after it took effect and
before it is answered. It is whatever the test says: a kill of the whole process, or of its workers;
or a pause, in which the request is held. Of a process that was killed as a whole nothing that
arrives later is passed on, and `settle` waits for what was: nothing of it executes later.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any
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
    """A request of a process.

    Attributes:
        kind: of which kind (`kind_of`), or in which phase: while the store has accepted so many
            versions of the record; None: any.
        number: the how manieth of these, from 1.
        after: once it took effect; False: before it is passed on.
    """

    kind: str | int | None
    number: int
    after: bool


class Striker:
    """The proxy of one process.

    Attributes:
        url: what the process takes for its store.
        seen: how many requests came since `arm`, of each kind and in each phase.
        struck: the kind of the request at which the blow fell; None: it has not fallen since `arm`.
    """

    def __init__(self, upstream: str, writing: AbstractContextManager[object]) -> None:
        """Args:
        upstream: the store's URL.
        writing: held while the store writes: moto's conditions are not safe from two threads.
        """
        self._upstream = urlsplit(upstream).netloc
        self._writing = writing
        self._changed = threading.Condition()
        self._moment: Moment | None = None
        self._blow: Callable[[], None] = lambda: None
        self.seen: Counter[str | int | None] = Counter()
        self._phase = 0
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
            self.seen.clear()
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
        """The process is dead: pass nothing on from now."""
        with self._changed:
            self._is_over = True
            self._held = False
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing that was passed on is still under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._passing == 0, END_SECONDS_MAX)

    def handle(self, request: Answering) -> bool:
        """Pass a request on and answer it. False: the process is dead."""
        body = request.body()
        kind = kind_of(request.command, request.path)
        fatal = self._is_the_one(kind)
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
        with self._changed:
            self._phase += kind == "PUT record" and reply[0].status == 200
        if fatal is not None and fatal.after and not self._strike():
            return False
        if self._is_over:
            return False
        request.tell(*reply)
        return True

    def _is_the_one(self, kind: str) -> Moment | None:
        with self._changed:
            fits = (None, kind, self._phase)
            self.seen.update(fits)
            wanted = self._moment
            if wanted is None or wanted.kind not in fits or self.seen[wanted.kind] != wanted.number:
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
def striker(
    upstream: str, writing: AbstractContextManager[object] | None = None
) -> Iterator[Striker]:
    """Run a proxy in threads of this process."""
    proxy = Striker(upstream, writing or nullcontext())

    class Handler(Answering):
        def answer(self) -> None:
            if not proxy.handle(self):
                self.close_connection = True

    with serving(Handler) as server:
        proxy.url = server.url
        yield proxy


def _working(tell: Connection, work: Callable[..., None], *arguments: str) -> None:
    try:
        work(*arguments)
    except BaseException:
        tell.send(traceback.format_exc())
        raise


class Victim:
    """A process behind a proxy, which may kill it: it calls ``work`` with the proxy's URL and the
    arguments."""

    def __init__(
        self, context: Any, work: Callable[..., None], proxy: Striker, *arguments: str
    ) -> None:
        self._proxy = proxy
        self._told, tell = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_working, args=(tell, work, proxy.url, *arguments), daemon=True
        )
        self._started = threading.Event()

    def start(self, moment: Moment | None) -> None:
        """Start it; at that moment it is killed."""
        if moment is not None:
            self._proxy.arm(moment, self._kill)
        self._process.start()
        self._started.set()

    def _kill(self) -> None:
        assert self._started.wait(END_SECONDS_MAX)
        self._proxy.end()
        self._process.kill()

    def end(self) -> bool:
        """Wait until it has ended, as it must: by itself without error, or killed. Gives whether it
        was killed."""
        self._process.join(END_SECONDS_MAX)
        killed = self._proxy.struck is not None
        code, wanted, why = self._process.exitcode, -signal.SIGKILL if killed else 0, ""
        with self._told, suppress(EOFError):
            why = self._told.recv() if code != wanted and self._told.poll() else ""
        assert code == wanted, f"{code}, not {wanted}: {why}"
        self._proxy.settle()
        return killed


def struck(
    context: Any,
    upstream: str,
    moment: Moment | None,
    work: Callable[..., None],
    *arguments: str,
) -> bool:
    """Run a process until it ends, or is killed at that moment. Gives whether it was."""
    with striker(upstream) as proxy:
        victim = Victim(context, work, proxy, *arguments)
        victim.start(moment)
        return victim.end()

"""One proxy between clients and their store, as hostile as a test asks: what becomes of a request
its `Line` says. Plain sockets, a thread for each connection.

The blows fall while a request is on its way: before it is passed on, or after it took effect and
before it is answered.
"""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from tests.chaos.faults import (
    FAULT,
    HANG_UP,
    LATE_SECONDS,
    SLOW_PACE_SECONDS,
    SLOW_SECONDS_MAX,
    Extent,
    Fault,
)
from tests.chaos.silent import Mood, be_in_mood
from tests.serving import BODILESS, HOP_BY_HOP, Serving, asked_of, serving
from tests.wire import Wire, headers_of

TOKEN = re.compile(rb"cell-[0-9a-f]{12}")
"""By it the proxy knows a job that has a line of its own: part of every key of its destination."""
SETTLED_SECONDS_MAX = 300.0
HELD_SECONDS_MAX = 300.0
"""A request is held so long at most: then the test has forgotten it."""
READING = ("GET", "HEAD")


@dataclass
class Request:
    """A request as it came; of its body a half, until its line has been asked."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @cached_property
    def key(self) -> str:
        """The path, decoded."""
        return unquote(urlsplit(self.target).path)

    @cached_property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    @cached_property
    def kind(self) -> str:
        """What it is of a job: by its verb, its key's last element, its query."""
        name = self.key.rpartition("/")[2]
        if "/__magic_stream/" in self.key:
            return f"{self.method} ledger"
        if name == "_job.json":
            return f"{self.method} record"
        if name.startswith("_plan-"):
            return f"{self.method} plan"
        if name == "_SUCCESS":
            return f"{self.method} marker"
        if "partNumber" in self.query:
            return "UploadPart"
        if "uploadId" in self.query:
            return {"POST": "Complete", "DELETE": "Abort"}.get(self.method, "ListParts")
        if "uploads" in self.query:
            return "Create" if self.method == "POST" else "ListUploads"
        return "List" if "list-type" in self.query else self.method


class Line:
    """The way of some requests; this one lets all pass.

    Attributes:
        url: what clients take for their store; empty if it is not the line of all.
        versions: how many versions of a job's record the store has accepted.
        slowest: the seconds that the store took for an answer at most.
        reads_all: whether it is asked when the whole body has come.
    """

    reads_all = False

    def __init__(self) -> None:
        self.url = ""
        self.versions = 0
        self.slowest = 0.0
        self.changed = threading.Condition()
        self._passing = 0

    def meets(self, request: Request) -> Fault | None:
        """What is done to a request; None: it passes."""
        return None

    def replied(self, request: Request) -> bool:
        """The store has answered. False: nobody is told."""
        return True

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A request is on its way."""
        with self.changed:
            self._passing += 1
        try:
            yield
        finally:
            with self.changed:
                self._passing -= 1
                self.changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing that was passed on is still under way."""
        with self.changed:
            done = self.changed.wait_for(lambda: not self._passing, SETTLED_SECONDS_MAX)
        assert done, "a request is still under way"


class Proxy:
    """The proxy of many lines.

    Attributes:
        url: what clients take for their store.
        line: the way of requests that name no job with a line of its own.
        ending: set when all is over: nothing is late or slow any more.
        server: what listens.
    """

    server: Serving

    def __init__(
        self, upstream: str, line: Line, writing: AbstractContextManager[object] | None = None
    ) -> None:
        """``writing``: held while the store writes: moto's conditions are not safe from two
        threads."""
        self._upstream = urlsplit(upstream).netloc
        self._writing = writing or nullcontext()
        self._lines: dict[bytes, Line] = {}
        self.line = line
        self.ending = threading.Event()
        self.url = ""

    def lay(self, token: str, line: Line) -> None:
        """From now on the requests that name the token go this way."""
        self._lines[token.encode()] = line

    def _line_of(self, said: bytes) -> Line:
        found = TOKEN.search(said) if self._lines else None
        return self._lines.get(found[0], self.line) if found else self.line

    def serve(self, connection: socket.socket, *_: object) -> None:
        """Answer the requests of one connection until it ends."""
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(connection)
            while self._answer_one(wire):
                pass

    def _answer_one(self, wire: Wire) -> bool:
        """False: the connection has ended, or is to end."""
        head = wire.head()
        if head is None:
            return False
        method, target, _ = head.partition("\r\n")[0].split()
        headers = headers_of(head)
        if "expect" in dict(headers):
            wire.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(dict(headers).get("content-length", 0))

        def more(count: int) -> None:
            request.body += wire.read(count) or b""

        request = Request(method, target, headers, b"")
        more(length // 2)  # a reset in mid-body strikes here
        line = self._line_of(target.encode() + request.body)
        if line.reads_all or (line is self.line and self._lines):
            more(length - len(request.body))
            line = self._line_of(target.encode() + request.body)
        with line.under_way():
            fault = line.meets(request)
            if fault is not None and fault.answered == "by a reset":
                wire.reset()
                return False
            if fault is not None and fault.mood is not None:
                be_in_mood(wire.socket, fault.mood, self.ending)
                return False
            more(length - len(request.body))
            return self._strike(fault, request, line, wire)

    def _strike(self, fault: Fault | None, request: Request, line: Line, wire: Wire) -> bool:
        """Do to a request what the fault says. False: the connection is to end."""
        answered, passed = (fault.answered, fault.passed) if fault else ("", "at once")
        if fault is not None and answered == "with this":
            if passed == "at once":
                self._pass_on(request, line)
            wire.socket.sendall(_for(request, fault.reply))
            return fault.reply.startswith(b"HTTP")
        if passed == "late":
            self.ending.wait(LATE_SECONDS)
        reply = self._pass_on(request, line)
        if not line.replied(request):
            return False
        if answered == "late" and passed == "at once":
            self.ending.wait(LATE_SECONDS)
        if answered == "slowly":
            self._trickle(reply, line, wire.socket)
        elif answered.startswith("cut"):
            wire.socket.sendall(reply[: _cut_at(reply)])
            if answered == "cut by a reset":
                wire.reset()
            return False
        else:
            wire.socket.sendall(reply * 2 if answered == "twice" else reply)
        return True

    def _trickle(self, reply: bytes, line: Line, connection: socket.socket) -> None:
        until = time.monotonic() + SLOW_SECONDS_MAX
        for at in range(len(reply)):
            healed = isinstance(line, Struck) and line.healed
            if healed or time.monotonic() > until or self.ending.is_set():
                connection.sendall(reply[at:])
                return
            connection.sendall(reply[at : at + 1])
            self.ending.wait(SLOW_PACE_SECONDS)

    def _pass_on(self, request: Request, line: Line) -> bytes:
        """Ask the store; its answer as bytes."""
        began = time.monotonic()
        with nullcontext() if request.method in READING else self._writing:
            answer, body = asked_of(
                self._upstream, request.method, request.target, request.headers, request.body
            )
        with line.changed:
            line.slowest = max(line.slowest, time.monotonic() - began)
            line.versions += request.kind == "PUT record" and answer.status == 200
        said = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        if answer.status not in BODILESS:  # first: it says little of a cut head
            length = answer.getheader("Content-Length") if request.method == "HEAD" else None
            said += [f"Content-Length: {length or len(body)}"]
        said += [f"{n}: {v}" for n, v in answer.getheaders() if n.lower() not in HOP_BY_HOP]
        return "\r\n".join(said).encode() + b"\r\n\r\n" + body


def _for(request: Request, reply: bytes) -> bytes:
    """An answer of the network's own; HTTP to HEAD has no body."""
    if request.method != "HEAD" or not reply.startswith(b"HTTP"):
        return reply
    return reply.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def _cut_at(reply: bytes) -> int:
    """Where a reply is cut: in the middle of its body; if it has none, within its ETag; if it has
    none either, in the middle of its head."""
    end = reply.find(b"\r\n\r\n") + 4
    if len(reply) > end + 1:
        return end + (len(reply) - end) // 2
    etag = reply.lower().find(b"etag: ")
    return end // 2 if etag < 0 else etag + len(b'etag: "5d41')


@contextmanager
def proxy(
    upstream: str, line: Line, writing: AbstractContextManager[object] | None = None
) -> Iterator[Proxy]:
    """Run a proxy in threads of this process."""
    made = Proxy(upstream, line, writing)
    with serving(made.serve, ending=made.ending) as server:
        made.server = server
        made.url = line.url = server.url
        yield made


OneLine = TypeVar("OneLine", bound=Line)


@contextmanager
def through(
    line: OneLine, upstream: str, writing: AbstractContextManager[object] | None = None
) -> Iterator[OneLine]:
    """Run a proxy in which all requests go one way; gives that way."""
    with proxy(upstream, line, writing):
        yield line


# One fault in one phase ---------------------------------------------------------------------------

PHASES = (
    "setup", "create", "part", "fence", "save", "check", "plan", "decide", "complete", "done",
    "sweep",
)  # fmt: skip
_RUNNING = {"Create": "create", "UploadPart": "part", "PUT record": "decide", "PUT plan": "plan"}


def phase_of(request: Request, versions: int) -> str:
    """What a job does with this request, whose record has had so many versions."""
    kind = request.kind
    if versions == 0:
        return "setup"
    if kind == "Complete":
        return "complete"
    if versions == 1:
        others = "save" if request.method == "PUT" else "check"
        return _RUNNING.get(kind, "fence" if kind.endswith(" record") else others)
    if versions == 2:
        return "done" if kind == "PUT record" else "complete"
    return "sweep"


class Struck(Line):
    """A job's way on which one fault strikes in one phase; ``struck``: how often it did."""

    def __init__(self, fault: Fault, phase: str, extent: Extent) -> None:
        super().__init__()
        self._fault, self._phase, self._extent = fault, phase, extent
        self.struck = 0
        self.healed = False

    def meets(self, request: Request) -> Fault | None:
        with self.changed:
            here = phase_of(request, self.versions) == self._phase
            again = {"once": False, "always": here, "from then on": True}[self._extent]
            if self.healed or not (again if self.struck else here):
                return None
            self.struck += 1
            return self._fault

    def heal(self) -> None:
        """Nothing strikes any more; returns when nothing that is late is under way."""
        self.healed = True
        self.settle()


# Silence ------------------------------------------------------------------------------------------


class Silence(Line):
    """Lets requests pass until ``chosen`` says yes to one; from then on the store is silent.

    Attributes:
        chosen: as above. only_chosen: other requests pass all the same.
        mood: from then on; None: it hangs up, as a server that is down.
        fell_silent: set when the first request is not answered.
        silent: settable: whether it is so now.
        passed, swallowed: requests, as ``"PUT /b/k?partNumber=1"``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chosen: Callable[[Request], bool] = lambda _: False
        self.only_chosen = False
        self.mood: Mood | None = Mood.SILENT
        self.silent = False
        self.fell_silent = threading.Event()
        self.passed: list[str] = []
        self.swallowed: list[str] = []

    def meets(self, request: Request) -> Fault | None:
        if not self.silent or self.only_chosen:
            self.silent = self.chosen(request)
        silent = self.silent
        (self.swallowed if silent else self.passed).append(f"{request.method} {request.target}")
        if not silent:
            return None
        self.fell_silent.set()
        return Fault("silence", "never", "with this", mood=self.mood)


def of_kind(*kinds: str) -> Callable[[Request], bool]:
    """Whether a request is of these kinds, and no question to the store before a job."""
    return lambda request: request.kind in kinds and "/probe-" not in request.key


# Weather ------------------------------------------------------------------------------------------

SPELL_SECONDS = (0.5, 3.0)
FAIR = "fair"
SPELLS: dict[str, float] = {
    FAIR: 0.0, "reset in the request": 0.2, "reset in the reply": 0.2, "truncated reply": 0.2,
    "503 storm": 0.8, "late reply": 0.3, "slow reply": 0.1,
}  # fmt: skip
"""The faults that strike in some seconds of one kind of weather, and how many of the requests."""


class Weather(Line):
    """Faults in spells: which comes when is drawn from the seed, which request is struck is chance.

    Attributes:
        met: how often each fault struck; ``passed``: requests that nothing was done to.
        spells: what is to come, and for how many seconds; a test may set it.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.met: Counter[str] = Counter()
        self.spells: Iterator[tuple[str, float]] = drawn_spells(seed)
        self._chance = random.Random(f"struck {seed}")
        self._spell, self._until = FAIR, 0.0

    def meets(self, request: Request) -> Fault | None:
        with self.changed:
            if time.monotonic() >= self._until:
                self._spell, seconds = next(self.spells)
                self._until = time.monotonic() + seconds
            struck = self._chance.random() < SPELLS[self._spell]
            self.met[self._spell if struck else "passed"] += 1
            return FAULT[self._spell] if struck else None


def drawn_spells(seed: int) -> Iterator[tuple[str, float]]:
    """Spells, and how many seconds each lasts, without an end."""
    chance = random.Random(f"weather {seed}")
    while True:
        for spell in chance.sample(list(SPELLS), len(SPELLS)):
            yield spell, chance.uniform(*SPELL_SECONDS)


# A blow at a moment -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A request of a process.

    Attributes:
        kind: of which kind, or in which phase: while the store has accepted so many versions of the
            record; None: any.
        number: the how manieth of these, from 1.
        after: once it took effect; False: before it is passed on.
    """

    kind: str | int | None
    number: int
    after: bool


class Striker(Line):
    """The way of one process, which strikes at a moment: the blow is whatever the test says. Of a
    process that was killed as a whole nothing that arrives later is passed on.

    Attributes:
        seen: how many requests came since `arm`, of each kind and in each phase.
        struck: the kind of the request at which the blow fell; None: it has not fallen since `arm`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._moment: Moment | None = None
        self._blow: Callable[[], None] = lambda: None
        self._last: Request | None = None
        self._held = self._is_over = False
        self.seen: Counter[str | int | None] = Counter()
        self.struck: str | None = None

    def arm(self, moment: Moment, blow: Callable[[], None], *, hold: bool = False) -> None:
        """Strike at the next such moment, counted from now. The request gets no answer; with
        ``hold`` it is kept until `release`, and goes on then."""
        with self.changed:
            self._moment, self._blow, self._held = moment, blow, hold
            self.seen.clear()
            self.struck = None

    def disarm(self) -> None:
        """Let all requests pass."""
        with self.changed:
            self._moment = None

    def release(self, *, over: bool = False) -> None:
        """Let the request go that is held. ``over``: its process is dead, pass nothing on."""
        with self.changed:
            self._held = False
            self._is_over = self._is_over or over
            self.changed.notify_all()

    def meets(self, request: Request) -> Fault | None:
        moment = self._reached(request)
        if moment is not None and moment.after:
            self._last = request
        elif moment is not None and not self._strike():
            return HANG_UP
        return HANG_UP if self._is_over else None

    def replied(self, request: Request) -> bool:
        if request is self._last and not self._strike():
            return False
        return not self._is_over

    def _reached(self, request: Request) -> Moment | None:
        with self.changed:
            fits = (None, request.kind, self.versions)
            self.seen.update(fits)
            wanted = self._moment
            if wanted is None or wanted.kind not in fits or self.seen[wanted.kind] != wanted.number:
                return None
            self._moment = None
            self.struck = request.kind
            return wanted

    def _strike(self) -> bool:
        """Strike; whether the request goes on: who sent it was only paused."""
        holds = self._held
        self._blow()
        with self.changed:
            assert self.changed.wait_for(lambda: not self._held, HELD_SECONDS_MAX)
        return holds

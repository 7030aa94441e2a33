"""A small proxy between the library and its store, as hostile as a cell asks.

Plain sockets, a thread for each connection. Each job is known by its token, which is part of every
key of its destination; its phase by the request and by how many versions of its record the store
has accepted. What strikes, and when, stands in the job's `Line`.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tests.network.faults import (
    LATE_SECONDS,
    SLOW_PACE_SECONDS,
    SLOW_SECONDS_MAX,
    Extent,
    Fault,
)
from tests.serving import HOP_BY_HOP, asked_of, serving
from tests.wire import Wire, headers_of

PHASES = (
    "setup", "create", "part", "fence", "save", "check", "plan", "decide", "complete", "done",
    "sweep",
)  # fmt: skip
TOKEN = re.compile(rb"cell-[0-9a-f]{12}")
SETTLED_SECONDS_MAX = 30.0
CUT = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets the connection."""


@dataclass
class Line:
    """The way of one job's requests.

    Attributes:
        fault, phase, extent: what strikes, in which phase, how often; None: nothing.
        struck: how often it did.
        seen: how many requests came in each phase.
        versions: how many versions of the record the store has accepted.
    """

    fault: Fault | None
    phase: str
    extent: Extent
    struck: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    passing: int = 0
    healed: bool = False

    def strikes(self, phase: str) -> Fault | None:
        """Count a request; the fault if this one is struck."""
        self.seen[phase] += 1
        if self.fault is None or self.healed:
            return None
        again = {"once": False, "always": phase == self.phase, "from then on": True}[self.extent]
        if again if self.struck else phase == self.phase:
            self.struck += 1
            return self.fault
        return None


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def key(self) -> str:
        """The path, decoded."""
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> str:
        """What follows the question mark."""
        return urlsplit(self.target).query


def phase_of(request: Request, versions: int) -> str:
    """What a job does with this request."""
    record = request.key.endswith("/_job.json")
    if versions == 0:
        return "setup"
    if request.method == "POST" and "uploadId=" in request.query:
        return "complete"
    if versions == 1:
        if request.method == "POST" and "uploads" in request.query:
            return "create"
        if request.method == "PUT":
            if "partNumber=" in request.query:
                return "part"
            if record:
                return "decide"
            return "plan" if "/_plan-" in request.key else "save"
        return "fence" if record else "check"
    if versions == 2:
        return "done" if record and request.method == "PUT" else "complete"
    return "sweep"


class Proxy:
    """The proxy of all jobs.

    Attributes:
        url: what the library takes for its store.
        ending: set when all is over: nothing is late or slow any more.
        line: the way of requests that name no job.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._lines: dict[bytes, Line] = {}
        self._lock = threading.Condition()
        self.ending = threading.Event()
        self.line: Line | None = None
        self.url = ""

    def lay(self, token: str, line: Line) -> None:
        """From now on the requests that name the token go this way."""
        with self._lock:
            self._lines[token.encode()] = line

    def heal(self, line: Line) -> None:
        """Nothing strikes any more; returns when nothing that was passed on late is under way."""
        with self._lock:
            line.healed = True
            done = self._lock.wait_for(lambda: line.passing == 0, SETTLED_SECONDS_MAX)
        assert done, "a request is still under way"

    def serve(self, connection: socket.socket, *_: object) -> None:
        """Answer the requests of one connection until it ends."""
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(connection)
            while self._answer_one(wire):
                pass

    def _answer_one(self, wire: Wire) -> bool:
        """False: the connection has ended, or is to end."""
        head, connection = wire.head(), wire.socket
        if head is None:
            return False
        method, target, _ = head.partition("\r\n")[0].split()
        headers = headers_of(head)
        length = int(dict(headers).get("content-length", 0))
        body = wire.read(length // 2) or b""  # a reset in mid-body strikes here
        line = self._line_of(target.encode() + body)
        if line is None:
            body += wire.read(length - len(body)) or b""
            line = self._line_of(body)
        if line is None:
            connection.sendall(self._pass_on(Request(method, target, headers, body)))
            return True
        with self._lock:
            phase = phase_of(Request(method, target, headers, body), line.versions)
            fault = line.strikes(phase)
            line.passing += 1
        try:
            if fault is not None and fault.answered == "by a reset":
                wire.reset()
                return False
            body += wire.read(length - len(body)) or b""
            request = Request(method, target, headers, body)
            if fault is not None:
                return self._strike(fault, request, line, connection)
            connection.sendall(self._pass_on(request, line))
            return True
        finally:
            with self._lock:
                line.passing -= 1
                self._lock.notify_all()

    def _strike(
        self, fault: Fault, request: Request, line: Line, connection: socket.socket
    ) -> bool:
        """Do to a request what the fault says. False: the connection is to end."""
        if fault.answered == "with this":
            if fault.passed == "at once":
                self._pass_on(request, line)
            connection.sendall(_for(request, fault.reply))
            return fault.reply.startswith(b"HTTP")
        if fault.passed == "late":
            self.ending.wait(LATE_SECONDS)
        reply = self._pass_on(request, line)
        if fault.answered == "late" and fault.passed == "at once":
            self.ending.wait(LATE_SECONDS)
        if fault.answered == "slowly":
            self._trickle(reply, line, connection)
        elif fault.answered.startswith("cut"):
            connection.sendall(reply[: _cut_at(reply)])
            if fault.answered == "cut by a reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT)
            return False
        else:
            connection.sendall(reply * 2 if fault.answered == "twice" else reply)
        return True

    def _trickle(self, reply: bytes, line: Line, connection: socket.socket) -> None:
        until = time.monotonic() + SLOW_SECONDS_MAX
        for at in range(len(reply)):
            if line.healed or time.monotonic() > until or self.ending.is_set():
                connection.sendall(reply[at:])
                return
            connection.sendall(reply[at : at + 1])
            self.ending.wait(SLOW_PACE_SECONDS)

    def _line_of(self, said: bytes) -> Line | None:
        found = TOKEN.search(said)
        with self._lock:
            return self._lines.get(found[0]) if found else self.line

    def _pass_on(self, request: Request, line: Line | None = None) -> bytes:
        """Ask the store; its answer as bytes."""
        answer, body = asked_of(
            self._upstream, request.method, request.target, request.headers, request.body
        )
        record = request.method == "PUT" and request.key.endswith("/_job.json")
        if line is not None and record and answer.status == 200:
            with self._lock:
                line.versions += 1
        length = answer.getheader("Content-Length") if request.method == "HEAD" else None
        said = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        said += [f"Content-Length: {length or len(body)}"]  # first: it says little of a cut head
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
def proxy(upstream: str) -> Iterator[Proxy]:
    """Run a proxy in threads of this process."""
    made = Proxy(upstream)
    with serving(made.serve, ending=made.ending) as server:
        made.url = server.url
        yield made

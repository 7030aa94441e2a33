"""HTTP byte by byte: a server that plays a script, a proxy, and what hostile ones read with."""

from __future__ import annotations

import base64
import itertools
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.serving import Serving, serving

PIECE_BYTES = 1 << 20


@dataclass
class Asked:
    """A request as it came."""

    head: str
    body: bytes

    def header(self, name: str) -> str:
        """A header's value; "": it has none. The name is in lower case."""
        return dict(headers_of(self.head)).get(name, "")


def headers_of(head: str) -> tuple[tuple[str, str], ...]:
    """The headers of a request; names in lower case."""
    lines = [line.partition(":") for line in head.split("\r\n")[1:]]
    return tuple((name.lower(), text.strip()) for name, _, text in lines)


class Wire:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""

    def _until(self, there: Callable[[], bool]) -> bool:
        while not there():
            got = self.socket.recv(PIECE_BYTES)
            if not got:
                return False
            self._rest += got
        return True

    def head(self) -> str | None:
        """Read a request's head; None: the client has hung up."""
        if not self._until(lambda: b"\r\n\r\n" in self._rest):
            return None
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        return head.decode("latin-1")

    def ask(self) -> Asked | None:
        """Read a whole request; None: the client has hung up."""
        head = self.head()
        length = int(Asked(head or "", b"").header("content-length") or 0)
        body = None if head is None else self.read(length)
        return None if head is None or body is None else Asked(head, body)

    def read(self, count: int) -> bytes | None:
        """Read so many bytes; None: the client has hung up."""
        if not self._until(lambda: len(self._rest) >= count):
            return None
        piece, self._rest = self._rest[:count], self._rest[count:]
        return piece

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket.close(self.socket)


@dataclass
class Raw:
    """A running server.

    Attributes:
        asked: whole requests that came.
        ending: set when the test ends.
        refuses: statuses with which a proxy answers the next requests itself.
    """

    serving: Serving
    ending: threading.Event
    asked: list[Asked] = field(default_factory=list)
    refuses: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.serving.url


Serve = Callable[[Wire, Raw], object]


@contextmanager
def raw_server(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[Raw]:
    """Run one, whose connections are each served by the function, in a thread."""
    held: list[Raw] = []
    ending = threading.Event()

    def one(connection: Any, *_: object) -> None:
        with suppress(OSError):  # the client hangs up when it has what it wants
            serve(Wire(connection), held[0])

    with serving(one, ending=ending, context=context) as running:
        held.append(Raw(running, ending))
        yield held[0]


def playing(*steps: bytes | str | Callable[[], object], again: bool = False) -> Serve:
    """Plays a script on each connection, once or ``again`` and again, and then hangs up. A step is
    what is said, or called; or "ask": read a request, "head": its head only; "wait": until the test
    ends; "reset"."""

    def play(wire: Wire, raw: Raw) -> None:
        for step in itertools.cycle(steps) if again else steps:
            if step == "ask":
                if (asked := wire.ask()) is None:
                    return
                raw.asked.append(asked)
            elif isinstance(step, str):
                does: Any = {"head": wire.head, "wait": raw.ending.wait, "reset": wire.reset}
                does[step]()
            elif isinstance(step, bytes):
                wire.socket.sendall(step)
            else:
                step()

    return play


def password_of(asked: Asked) -> str:
    """The user and password that a proxy is shown."""
    return base64.b64decode(asked.header("proxy-authorization").removeprefix("Basic ")).decode()


def forwarding(upstream: str, password: str = "") -> Serve:
    """Is a real proxy: passes plain requests on, and tunnels encrypted ones. It connects to the one
    server behind it, whatever name it is asked for: a test may name a store that only the proxy can
    reach. ``password``: ``user:password`` that it asks for."""
    target = (urlsplit(upstream).hostname or "", urlsplit(upstream).port or 0)

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            raw.asked.append(asked)
            status = raw.refuses.pop(0) if raw.refuses else 0
            if status or (password and password_of(asked) != password):
                why = 'Proxy-Authenticate: Basic realm="the proxy"\r\nContent-Length: 8'
                wire.socket.sendall(
                    f"HTTP/1.1 {status or 407} No\r\n{why}\r\n\r\n<refused".encode()
                )
                continue
            line, *headers = asked.head.split("\r\n")
            method, url, _ = line.split()
            with socket.create_connection(target) as there:
                if method == "CONNECT":
                    wire.socket.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    return _tunnel(wire.socket, there)
                origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
                assert origin.startswith("http://"), f"not in the form for proxies: {url}"
                kept = [one for one in headers if one[:6].lower() not in ("proxy-", "connec")]
                head = [line.replace(origin, "", 1), *kept, "Connection: close", "\r\n"]
                there.sendall("\r\n".join(head).encode("latin-1") + asked.body)
                while piece := there.recv(PIECE_BYTES):
                    wire.socket.sendall(piece)
        return None

    return serve


def _tunnel(one: Any, other: socket.socket) -> None:
    """Pass bytes on, both ways, until one side ends. One thread: TLS wants it."""
    while True:
        pending = isinstance(one, ssl.SSLSocket) and one.pending()
        ready = [one] if pending else select.select([one, other], [], [])[0]
        for source, sink in ((one, other), (other, one)):
            if source in ready:
                got = source.recv(PIECE_BYTES)
                if not got:
                    return
                sink.sendall(got)

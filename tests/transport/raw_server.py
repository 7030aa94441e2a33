"""A server that is written byte by byte, for what libcurl makes of it; and a `Curl` to ask it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from magic_committer.stores.s3.curl import CurlSettings
from magic_committer.stores.s3.curl_threads import Curl
from magic_committer.stores.s3.sockets import Deadline

from magic_committer.stores.s3.http import HTTPAnswer, HTTPRequest, NoAnswer
from tests.serving import Serving, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SECONDS = 20.0
"""For a request that is to be answered, on a loaded machine."""


@dataclass
class Asked:
    """A request as it came."""

    head: str
    body: bytes

    @property
    def line(self) -> str:
        """Its first line."""
        return self.head.split("\r\n")[0]

    @property
    def headers(self) -> list[str]:
        """All its headers, as they came."""
        return self.head.split("\r\n")[1:-2]


class Wire:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""

    def head(self) -> str | None:
        """Read a request's head; None: the client has hung up."""
        while b"\r\n\r\n" not in self._rest:
            got = self.socket.recv(65536)
            if not got:
                return None
            self._rest += got
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        return head.decode("latin-1") + "\r\n\r\n"

    def ask(self) -> Asked | None:
        """Read a whole request; None: the client has hung up."""
        head = self.head()
        if head is None:
            return None
        length = 0
        for line in head.lower().split("\r\n"):
            if line.startswith("content-length:"):
                length = int(line.split(":")[1])
        while len(self._rest) < length:
            got = self.socket.recv(1 << 20)
            if not got:
                return None
            self._rest += got
        body, self._rest = self._rest[:length], self._rest[length:]
        return Asked(head, body)

    def read_slowly(self, count: int, pause_seconds: float) -> None:
        """Read so many bytes of a body, with pauses."""
        left = count - len(self._rest)
        while left > 0 and (got := self.socket.recv(min(left, 100_000))):
            left -= len(got)
            time.sleep(pause_seconds)

    def say(self, answer: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(answer)

    def reset(self) -> None:
        """Hang up at once."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket.close(self.socket)


@dataclass
class Raw:
    """A running server.

    Attributes:
        url: where it listens.
        asked: whole requests that came.
        ending: set when the test ends.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    serving: Serving | None = None


@contextmanager
def raw_server(
    serve: Callable[[Wire, Raw], object], context: ssl.SSLContext | None = None
) -> Iterator[Raw]:
    """Run one, whose connections are each served by the function, in a thread."""
    raw = Raw()

    def one(connection: Any, *_: object) -> None:
        with suppress(OSError):  # the client hangs up when it has what it wants
            serve(Wire(connection), raw)

    with serving(one, ending=raw.ending, context=context) as running:
        raw.url, raw.serving = running.url, running
        yield raw


def answering(answer: bytes = OK) -> Callable[[Wire, Raw], object]:
    """Answers every request with these bytes, and keeps the connection."""

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            raw.asked.append(asked)
            wire.say(answer)

    return serve


@contextmanager
def curl_with(**settings: Any) -> Iterator[Curl]:
    """A client that is closed at the end."""
    curl = Curl(CurlSettings(**settings))
    try:
        yield curl
    finally:
        curl.close()


def within(seconds: float = SECONDS) -> Deadline:
    """A deadline of so many seconds."""
    return Deadline(seconds, seconds)


def request(url: str, method: str = "GET", body: Any = b"", **others: Any) -> HTTPRequest:
    """A request with one header."""
    return HTTPRequest(method, url, (("x-amz-test", "1"),), body, **others)


def outcome(
    curl: Curl, asked: HTTPRequest, deadline: Deadline | None = None
) -> HTTPAnswer | NoAnswer:
    """What becomes of a request."""
    try:
        return curl.send(asked, deadline or within())
    except NoAnswer as error:
        return error

"""A server that is written byte by byte."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.serving import Serving, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Asked:
    """A request as it came."""

    head: str
    body: bytes


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

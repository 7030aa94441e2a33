"""A store that does not answer, in every manner that there is, and a proxy that begins to do so.

`silent_server` accepts connections and reads requests. `Mood` says what comes then. `moody_proxy`
stands before a server that works, until a request comes that a test has chosen.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from urllib.parse import urlsplit

from tests.serving import Answering, Serving, asked_of, serving

DRIP_SECONDS = 0.3
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 100000\r\n"
    b'ETag: "0123456789abcdef0123456789abcdef"\r\n'
    b"Last-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n\r\n"
)


class Mood(Enum):
    """How a store does not answer."""

    SILENT = "says nothing"
    DRIP = "a byte every 0.3 s"
    HEAD = "the head, then nothing"
    DRIP_BODY = "the head, then a byte every 0.3 s"
    DEAF = "does not even read"


def be_in_mood(
    connection: socket.socket, mood: Mood, ending: threading.Event, *, read: bool
) -> None:
    """Do not answer, until the end. ``read``: the request has not been read yet."""
    if mood is Mood.DEAF:
        ending.wait()
        return
    if read:
        threading.Thread(target=_swallow, args=(connection,), daemon=True).start()
    if mood in (Mood.HEAD, Mood.DRIP_BODY):
        connection.sendall(HEAD)
    if mood in (Mood.DRIP, Mood.DRIP_BODY):
        for byte in (HEAD if mood is Mood.DRIP else b"") + b" " * 100_000:
            connection.sendall(bytes([byte]))
            if ending.wait(DRIP_SECONDS):
                return
    ending.wait()


def _swallow(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            continue


@contextmanager
def silent_server(mood: Mood, context: ssl.SSLContext | None = None) -> Iterator[Serving]:
    """Run one in threads of this process."""
    ending = threading.Event()

    def serve(connection: socket.socket, *_: object) -> None:
        be_in_mood(connection, mood, ending, read=True)

    with serving(serve, ending=ending, context=context) as server:
        yield server


# Beginning to be silent ---------------------------------------------------------------------------

Chosen = Callable[[str, str, str], bool]
"""Whether a request is the one: method, path, query."""


class MoodyProxy:
    """Passes requests on until ``chosen`` says yes to one. From then on it is in a mood.

    Attributes:
        chosen: as above. only_chosen: other requests are passed on all the same.
        probes: requests of a job's questions to the store may be chosen, too.
        mood: from then on; None: it hangs up, as a server that is down.
        fell_silent: set when the first request is not answered.
        silent: settable: whether it is in its mood now.
        passed, swallowed: requests, as ``"PUT /b/k?partNumber=1"``.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.chosen: Chosen = lambda *_: False
        self.only_chosen = False
        self.probes = False
        self.mood: Mood | None = Mood.SILENT
        self.silent = False
        self.fell_silent = threading.Event()
        self.ending = threading.Event()
        self.passed: list[str] = []
        self.swallowed: list[str] = []
        self.url = ""

    def swallows(self, method: str, target: str) -> bool:
        """Whether a request gets no answer."""
        url = urlsplit(target)
        if not self.silent or self.only_chosen:
            asked = self.probes or "/probe-" not in url.path
            self.silent = asked and self.chosen(method, url.path, url.query)
        (self.swallowed if self.silent else self.passed).append(f"{method} {target}")
        if self.silent:
            self.fell_silent.set()
        return self.silent


@contextmanager
def moody_proxy(upstream: str) -> Iterator[MoodyProxy]:
    """Run one in threads of this process."""
    proxy = MoodyProxy(upstream)

    class Handler(Answering):
        def answer(self) -> None:
            body = self.body()
            if proxy.swallows(self.command, self.path):
                self.close_connection = True
                if proxy.mood is not None:
                    be_in_mood(self.connection, proxy.mood, proxy.ending, read=False)
                return
            self.tell(
                *asked_of(proxy.upstream, self.command, self.path, self.headers.items(), body)
            )

    with serving(Handler, ending=proxy.ending) as server:
        proxy.url = server.url
        yield proxy

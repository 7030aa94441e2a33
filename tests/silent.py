"""A store that does not answer, in every manner that there is, and a proxy that begins to do so.

`silent_server` accepts connections and reads requests. `Mood` says what comes then. `moody_proxy`
stands before a server that works, until a request comes that a test has chosen.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

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


class SilentServer:
    """Its address, and how many connections it has taken."""

    def __init__(self, mood: Mood, context: ssl.SSLContext | None) -> None:
        self.mood = mood
        self.taken = 0
        self.ending = threading.Event()
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []

    def accept(self) -> None:
        """Take connections until the end."""
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.taken += 1
                self._open.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            be_in_mood(connection, self.mood, self.ending, read=True)

    def end(self) -> None:
        """Hang up on everybody."""
        self.ending.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            connection.close()


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
def silent_server(mood: Mood, context: ssl.SSLContext | None = None) -> Iterator[SilentServer]:
    """Run one in threads of this process."""
    server = SilentServer(mood, context)
    threading.Thread(target=server.accept, daemon=True).start()
    try:
        yield server
    finally:
        server.end()


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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if proxy.swallows(self.command, self.path):
                self.close_connection = True
                if proxy.mood is not None:
                    with suppress(OSError):
                        be_in_mood(self.connection, proxy.mood, proxy.ending, read=False)
                return
            upstream = http.client.HTTPConnection(proxy.upstream, timeout=60)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                reply = upstream.getresponse()
                content = reply.read()
            finally:
                upstream.close()
            self.send_response_only(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = reply.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hung up is the point."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield proxy
    finally:
        proxy.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()

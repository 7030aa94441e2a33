"""What the tests' own servers and proxies share: listening, a thread a connection, and the end.

`serving` listens on a port of this machine that the kernel chooses. `Answering` is an HTTP request
on one of its connections; `asked_of` and `Answering.tell` pass one on. When the ``with`` ends
nobody listens, all connections are closed and no thread of theirs runs.

A client that hangs up is part of these tests. Any other error in a server of ours is a mistake of
the test, whose client would only see a lost connection: it is printed, and fails the test at the
end.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

LOOPBACK = "127.0.0.1"
END_SECONDS_MAX = 300.0
"""How long the threads may take to end once their connections are closed; and a server behind a
proxy to answer."""
LOOK_SECONDS = 0.01
"""How soon the listening thread sees that it is to end."""
HOP_BY_HOP = frozenset(("connection", "transfer-encoding", "content-length", "keep-alive"))
"""Headers, in lower case, that a proxy says in its own words."""
BODILESS = frozenset((204, 304))
"""Statuses of replies that have neither a body nor a length (RFC 9110)."""

Serve = Callable[[Any, Any, Any], object]
"""Serves one connection to its end: the connection, the client's address, the server."""


class Serving(ThreadingTCPServer):
    """A server in threads of this process.

    Attributes:
        url: where it listens. taken: how many connections it has taken.
        mistakes: errors of ours in its threads.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, serve: Serve, context: ssl.SSLContext | None, host: str) -> None:
        v6 = ":" in host
        self.address_family = socket.AF_INET6 if v6 else socket.AF_INET
        super().__init__((host, 0), serve)  # type: ignore[arg-type]  # it is only called
        self._context = context
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        name = f"[{host}]" if v6 else host
        self.url = f"http{'s' if context else ''}://{name}:{self.server_address[1]}"
        self.taken = 0
        self.mistakes: list[BaseException] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._context is not None:  # hands are shaken in the connection's thread
            connection = self._context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._changed:
            self.taken += 1
            self._open.add(connection)
        return connection, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client or a server behind us that hung up is part of the tests; what else fails is
        not."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError | http.client.HTTPException):
            self.mistakes.append(error)
            super().handle_error(request, client_address)

    def end(self) -> bool:
        """Close everything. False: a thread still runs after all its time."""
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._open:
                with suppress(OSError):  # it has hung up already
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
            return self._changed.wait_for(lambda: not self._open, END_SECONDS_MAX)


@contextmanager
def serving(
    serve: Serve,
    *,
    ending: threading.Event | None = None,
    context: ssl.SSLContext | None = None,
    host: str = LOOPBACK,
) -> Iterator[Serving]:
    """Serve connections, each in a thread of its own.

    Args:
        serve: serves one; an `Answering` is called as this is.
        ending: set at the end, before connections are closed: for threads that wait.
        context: of TLS; None: a plain server.
        host: the address to listen on; OSError if this machine does not have it.
    """
    server = Serving(serve, context, host)
    thread = threading.Thread(target=server.serve_forever, args=(LOOK_SECONDS,))
    thread.start()
    try:
        yield server
    finally:
        if ending is not None:
            ending.set()
        ended = server.end()
        thread.join()
    assert ended, "a connection's thread does not end"
    assert not server.mistakes, f"the test's own server failed: {server.mistakes!r}"


class Answering(BaseHTTPRequestHandler):
    """One HTTP connection; says nothing in a log. Subclasses have ``answer``, for every method."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # a reply's head and body leave together

    def answer(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def handle_expect_100(self) -> bool:
        answered = super().handle_expect_100()
        self.wfile.flush()  # the client waits for it
        return answered

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def tell(self, reply: http.client.HTTPResponse, content: bytes) -> None:
        """Answer with another server's reply."""
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if reply.status not in BODILESS:
            length = reply.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the tests' output is not an access log."""


def asked_of(
    upstream: str, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request to the server behind a proxy; its reply, and the reply's body.

    Every request has a connection of its own: none is sent twice because an idle one was closed.

    Args:
        upstream: host and port.
        headers: as they came; with ``Host``, which the signature covers.
    """
    connection = http.client.HTTPConnection(upstream, timeout=END_SECONDS_MAX)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            if name.lower() not in ("expect", "connection"):
                connection.putheader(name, value)
        connection.putheader("Connection", "close")
        connection.endheaders(body)
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()

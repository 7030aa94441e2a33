"""A real HTTP proxy: it passes plain requests on, tunnels encrypted ones, and asks for a password.

It connects to one server, whatever name it is asked for: so a test may name a store that only the
proxy can reach.
"""

from __future__ import annotations

import base64
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.serving import Answering, asked_of, serving

PIECE_BYTES = 65536


@dataclass
class Forwarder:
    """A running proxy.

    Attributes:
        url: where it listens.
        password: ``user:password`` that it asks for; "": none.
        refuses: statuses with which it answers the next requests itself.
        lines: the first line of each request that it got.
        shown: for each, the password that it got; "" if there was none.
        seen: all bytes of requests that it could read.
    """

    url: str = ""
    password: str = ""
    refuses: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    seen: bytes = b""


@contextmanager
def forwarder(
    upstream: str, *, password: str = "", context: ssl.SSLContext | None = None
) -> Iterator[Forwarder]:
    """Run a proxy in threads of this process.

    Args:
        upstream: the URL of the server behind it.
        password: ``user:password`` that it asks for.
        context: of TLS, for a proxy that is itself reached by TLS.
    """
    made = Forwarder(password=password)
    where = urlsplit(upstream)
    assert where.hostname, upstream
    assert where.port, upstream
    target = (where.hostname, where.port)

    class Handler(Answering):
        def answer(self) -> None:
            body = self.body()
            made.seen += f"{self.requestline}\n{self.headers}".encode() + body
            if self._refused():
                return
            url = urlsplit(self.path)
            assert url.scheme == "http", f"not in the form for proxies: {self.path}"
            path = f"{url.path}?{url.query}" if url.query else url.path
            headers = [
                (name, value)
                for name, value in self.headers.items()
                if not name.lower().startswith("proxy-")
            ]
            reply, content = asked_of(where.netloc, self.command, path, headers, body)
            self.tell(reply, content)

        def do_CONNECT(self) -> None:
            """A tunnel."""
            made.seen += f"{self.requestline}\n{self.headers}".encode()
            if self._refused():
                return
            with socket.create_connection(target) as there:
                self.send_response_only(200)
                self.end_headers()
                self.wfile.flush()
                self.close_connection = True
                with suppress(OSError):
                    _tunnel(self.connection, there)

        def _refused(self) -> bool:
            """Note the request, and answer it if it does not get through."""
            made.lines.append(self.requestline)
            said = self.headers.get("Proxy-Authorization") or ""
            kind, _, coded = said.partition(" ")
            shown = base64.b64decode(coded).decode() if kind == "Basic" else said
            made.shown.append(shown)
            status = made.refuses.pop(0) if made.refuses else 0
            if not status and made.password and shown != made.password:
                status = 407
            if not status:
                return False
            self.send_response_only(status)
            if status == 407:
                self.send_header("Proxy-Authenticate", 'Basic realm="the proxy"')
            self.send_header("Content-Length", "8")
            self.end_headers()
            self.wfile.write(b"<refused")
            return True

    with serving(Handler, context=context) as server:
        made.url = server.url
        yield made


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

"""A store that does not answer, in every manner that there is."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from tests.serving import Serving, serving

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


def be_in_mood(connection: socket.socket, mood: Mood, ending: threading.Event) -> None:
    """Do not answer, until the end."""
    if mood is Mood.DEAF:
        ending.wait()
        return
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
        be_in_mood(connection, mood, ending)

    with serving(serve, ending=ending, context=context) as server:
        yield server

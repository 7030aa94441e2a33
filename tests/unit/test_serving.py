"""The tests' own servers: what is left when they end, and what of their mistakes is told."""

from __future__ import annotations

import socket
import threading
import urllib.request

import pytest

from tests.servers import Reply, error, scripted_server
from tests.serving import Serving, serving


def client_of(server: Serving) -> socket.socket:
    """A connection to it."""
    address: tuple[str, int] = server.socket.getsockname()
    return socket.create_connection(address, timeout=300)


def test_nothing_is_left_of_a_server() -> None:
    """At its end the waiting threads are told, all connections are closed, and nobody listens."""
    ending, before = threading.Event(), set(threading.enumerate())

    def serve(connection: socket.socket, *_: object) -> None:
        connection.recv(1)
        ending.wait()

    with serving(serve, ending=ending) as server:
        silent, waiting = client_of(server), client_of(server)
        waiting.sendall(b"x")
        address = server.socket.getsockname()
        while server.taken < 2:
            ending.wait(0.01)
    with silent, waiting:
        assert (silent.recv(1), waiting.recv(1)) == (b"", b"")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=300)
    for thread in set(threading.enumerate()) - before:
        thread.join(300)
        assert not thread.is_alive()


def test_a_servers_own_mistake_fails_its_test(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that raises is no lost connection: its traceback is printed, and the end fails."""

    def script(_: object) -> Reply:
        raise LookupError("no such answer")

    with (
        pytest.raises(AssertionError, match="no such answer"),
        scripted_server(script) as server,
        pytest.raises(OSError, match="closed connection"),
    ):
        urllib.request.urlopen(server.url, timeout=300)
    assert "LookupError: no such answer" in capsys.readouterr().err


def test_a_client_that_hangs_up_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """A client that leaves in the middle of its reply fails nothing, and nothing is printed."""
    met = []

    def serve(connection: socket.socket, *_: object) -> None:
        try:
            while True:
                connection.sendall(bytes(65_536))
        except OSError as failure:
            met.append(failure)
            raise

    with serving(serve) as server:
        client_of(server).close()
        while not met:
            threading.Event().wait(0.01)
    assert capsys.readouterr().err == ""


def test_a_request_that_asks_to_be_continued_is_at_once() -> None:
    """``Expect: 100-continue`` is answered before the body is read."""
    with (
        scripted_server(lambda asked: error(418, asked.body.decode())) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 30) as client,
        client.makefile("rb") as reader,
    ):
        client.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        client.sendall(b"abc")
        assert reader.readline() == b"\r\n"
        assert reader.readline().startswith(b"HTTP/1.1 418")

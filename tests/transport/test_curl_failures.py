"""What libcurl's failures say: why, and whether the store may have got the request."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pycurl")

from magic_committer.stores.s3.http import Cause, HTTPAnswer, HTTPRequest, NoAnswer, Sent
from tests.network.test_deadlines import certificate
from tests.transport.raw_server import (
    Asked,
    Raw,
    Wire,
    answering,
    curl_with,
    outcome,
    raw_server,
    request,
)

LARGE = memoryview(bytes(8 * 1024**2))
Serve = Callable[[Wire, Raw], object]


def failed(curl: Any, asked: Any) -> tuple[Cause, Sent]:
    """Why a request has no answer, and whether it was sent."""
    got = outcome(curl, asked)
    assert isinstance(got, NoAnswer), got
    assert str(got)
    return got.cause, got.sent


def hang_up(wire: Wire, raw: Raw) -> None:
    """Close the connection before anything is read."""


def reset_at_once(wire: Wire, raw: Raw) -> None:
    """Reset the connection before anything is read."""
    wire.reset()


def reset_after_head(wire: Wire, raw: Raw) -> None:
    """Reset it in the middle of the body."""
    wire.head()
    wire.reset()


def reset_after_request(wire: Wire, raw: Raw) -> None:
    """Reset it when all has come."""
    wire.ask()
    wire.reset()


def close_after_request(wire: Wire, raw: Raw) -> None:
    """Close it when all has come."""
    wire.ask()


def after_request(answer: bytes) -> Serve:
    """Say these bytes when all has come, and close."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        wire.say(answer)

    return serve


def endless(first: bytes, then: bytes) -> Serve:
    """Say these bytes, and others for ever."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        wire.say(first)
        while not raw.ending.is_set():
            wire.say(then)

    return serve


@pytest.mark.parametrize("body", [b"small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "serve", [hang_up, reset_after_head, reset_after_request, close_after_request]
)
def test_a_lost_connection_may_have_carried_the_request(serve: Serve, body: Any) -> None:
    """Once a connection stands, its loss says nothing about the request."""
    with raw_server(serve) as raw, curl_with() as curl:
        assert failed(curl, request(raw.url, "PUT", body)) == (Cause.BROKEN, Sent.PERHAPS)


def test_a_connection_that_is_reset_at_once_has_no_answer() -> None:
    """Reset before anything was read: whether libcurl had begun to send is a race, and it says
    which."""
    with raw_server(reset_at_once) as raw, curl_with() as curl:
        got = {failed(curl, request(f"{raw.url}/{number}")) for number in range(20)}
    assert got <= {(Cause.BROKEN, Sent.PERHAPS), (Cause.CONNECT, Sent.NEVER)}


ANSWER_BROKEN = {
    "nothing but a status": b"HTTP/1.1 200 OK\r\n",
    "half a head": b'HTTP/1.1 200 OK\r\nETag: "1"\r\n',
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Length: 1",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345",
    "no body": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "no last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    "half a last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
    "no chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "a length with a plus": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "a length with a line below": b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "an empty length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
    "a length beyond bounds": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok1",
    "two lengths in one": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok1",
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks and a length": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"
    ),
    "an encoding nobody asked for": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "no length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    "a name with a blank": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 2\r\n\r\nok",
    "a folded header": b"HTTP/1.1 200 OK\r\n folded: 1\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2": b"HTTP/2 200\r\nContent-Length: 2\r\n\r\nok",
}


NOT_HTTP = {
    "half a status": b"HTTP/1.1 20",
    "only a 100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "a switch of protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "garbage": b"\x16\x03\x01\x00\xf0 no HTTP \xff\xfe\r\n\r\n",
    "an old protocol": b"<html>hello</html>",
    "a blank line": b"\r\n\r\n",
}


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        *((said, Sent.ANSWERED) for said in ANSWER_BROKEN.values()),
        *((said, Sent.PERHAPS) for said in NOT_HTTP.values()),
    ],
    ids=[*ANSWER_BROKEN, *NOT_HTTP],
)
def test_a_broken_answer_is_no_answer(said: bytes, sent: Sent) -> None:
    """What is cut off, or says in two ways how long it is, is never given as an answer; bytes that
    do not begin a last answer say nothing about the request, either."""
    with raw_server(after_request(said)) as raw, curl_with() as curl:
        assert failed(curl, request(raw.url, "POST", b"x")) == (Cause.BROKEN, sent)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"y" * 1000 + b"\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"y" * 1000),
    "trailers": (CHUNKED + b"0\r\n", b"X-Trailer: 1\r\n"),
    "chunks": (CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"),
    "a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 4096),
    "a 100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_ended(name: str) -> None:
    """An endless head, header, trailer or body ends at its limit, long before the time is over."""
    sent = Sent.PERHAPS if name == "a 100" else Sent.ANSWERED
    with raw_server(endless(*ENDLESS[name])) as raw, curl_with() as curl:
        asked = request(raw.url, "GET", answer_bytes_max=100_000)
        assert failed(curl, asked) == (Cause.LIMIT, sent)


def test_a_store_that_does_not_listen_got_nothing() -> None:
    """A refused connection and an unknown name: never sent, and said so."""
    with socket.socket() as free, curl_with() as curl:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        assert failed(curl, request(url)) == (Cause.CONNECT, Sent.NEVER)
        assert failed(curl, request("http://name.invalid/")) == (Cause.CONNECT, Sent.NEVER)


def test_a_connection_that_nobody_accepts_ends_in_its_time() -> None:
    """A time-out while connecting: never sent, and said so."""
    with socket.socket() as deaf, curl_with(connect_seconds_max=0.3) as curl:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        at = deaf.getsockname()
        with ExitStack() as full:  # what fills the queue of connections
            for _ in range(4):
                one = full.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(at)
            got = failed(curl, request(f"http://127.0.0.1:{at[1]}/"))
    assert got == (Cause.CONNECT, Sent.NEVER)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("status", ["503 Slow Down", "400 Bad Request"])
def test_an_early_answer_is_not_lost(tmp_path: Path, status: str, tls: bool) -> None:
    """An answer that comes while the body is still being sent is the answer. The server lingers, as
    servers do: a reset right behind the answer may overtake it."""
    answer = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno".encode()
    context, pem = certificate(tmp_path) if tls else (None, None)

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        wire.say(answer)
        while wire.socket.recv(1 << 20):
            continue

    with raw_server(serve, context) as raw, curl_with(ca_file=pem) as curl:
        for _ in range(20):
            got = outcome(curl, request(raw.url, "PUT", LARGE))
            assert isinstance(got, HTTPAnswer), got
            assert (got.status, got.body) == (int(status[:3]), b"no")


# TLS ----------------------------------------------------------------------------------------------


def test_a_certificate_that_is_not_trusted_is_refused(tmp_path: Path) -> None:
    """Never sent, and the cause is the certificate; with its authority, or unverified, it works."""
    context, pem = certificate(tmp_path)
    with raw_server(answering(), context) as raw:
        with curl_with() as curl:
            assert failed(curl, request(raw.url)) == (Cause.CERTIFICATE, Sent.NEVER)
        assert raw.asked == []
        with curl_with(ca_file=pem) as curl:
            assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)
        with curl_with(verify=False) as curl:
            assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    """A trusted certificate counts for the names that it has."""
    context, pem = certificate(tmp_path)
    with raw_server(answering(), context) as raw, curl_with(ca_file=pem) as curl:
        url = raw.url.replace("127.0.0.1", "localhost")
        assert failed(curl, request(url)) == (Cause.CERTIFICATE, Sent.NEVER)
    assert raw.asked == []


def test_a_file_of_authorities_that_is_not_there_is_named() -> None:
    """A wrong CA file is a fault of the certificates; nothing is sent, and the file is named."""
    with raw_server(answering()) as raw, curl_with(ca_file="/nowhere/ca.pem") as curl:
        got = outcome(curl, request(raw.url.replace("http:", "https:")))
    assert isinstance(got, NoAnswer)
    assert (got.cause, got.sent) == (Cause.CERTIFICATE, Sent.NEVER)
    assert "/nowhere/ca.pem" in str(got)


def test_a_store_without_tls_is_no_connection() -> None:
    """TLS that the server does not speak: never sent."""

    def speak(wire: Wire, raw: Raw) -> None:
        wire.say(NOT_HTTP["garbage"])
        wire.socket.recv(65536)

    with raw_server(speak) as raw, curl_with() as curl:
        url = raw.url.replace("http:", "https:")
        assert failed(curl, request(url)) == (Cause.TLS, Sent.NEVER)


def test_a_handshake_that_breaks_off_is_no_connection() -> None:
    """A reset during the handshake of TLS: never sent."""
    with raw_server(reset_at_once) as raw, curl_with() as curl:
        url = raw.url.replace("http:", "https:")
        cause, sent = failed(curl, request(url))
    assert cause in (Cause.TLS, Cause.CONNECT)
    assert sent is Sent.NEVER


def test_a_server_that_wants_a_certificate_gets_it(tmp_path: Path) -> None:
    """The client's certificate is sent; without one nothing is answered."""
    context, pem = certificate(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pem)
    with raw_server(answering(), context) as raw:
        with curl_with(ca_file=pem, client_cert=pem) as curl:
            assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)
        with curl_with(ca_file=pem) as curl:
            got = outcome(curl, request(raw.url))
            assert isinstance(got, NoAnswer)
            assert got.sent is not Sent.ANSWERED


# Proxies ------------------------------------------------------------------------------------------


def tunnel(status: bytes, upstream: list[str]) -> Serve:
    """A proxy: it notes what it is asked for, and answers with this status; with 200 it connects
    to the upstream."""

    def serve(wire: Wire, raw: Raw) -> None:
        head = wire.head()
        assert head is not None
        raw.asked.append(Asked(head, b""))
        wire.say(b"HTTP/1.1 " + status + b"\r\nX-Proxy: 1\r\n\r\n")
        if status.startswith(b"200"):
            host, port = upstream[0].rsplit("/", 1)[1].split(":")
            with socket.create_connection((host, int(port))) as there:
                threading.Thread(target=pump, args=(there, wire.socket)).start()
                pump(wire.socket, there)

    return serve


def pump(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes on until the end."""
    with suppress(OSError):
        while got := one.recv(65536):
            other.sendall(got)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"403 Forbidden"])
def test_a_proxy_that_refuses_got_nothing_of_the_request(status: bytes) -> None:
    """A refused CONNECT: never sent, the proxy is the cause, and its answer is no answer."""
    with raw_server(tunnel(status, [])) as proxy, curl_with(proxy=proxy.url) as curl:
        got = outcome(curl, request("https://store.invalid/k", "PUT", b"x"))
    assert isinstance(got, NoAnswer)
    assert (got.cause, got.sent) == (Cause.PROXY, Sent.NEVER)
    assert status[:3].decode() in str(got)


def test_a_proxy_that_is_not_there_got_nothing() -> None:
    """A proxy that refuses connections, or whose name is unknown: never sent."""
    with curl_with(proxy="http://127.0.0.1:1") as curl:
        assert failed(curl, request("https://store.invalid/k")) == (Cause.PROXY, Sent.NEVER)
    with curl_with(proxy="http://proxy.invalid:1") as curl:
        assert failed(curl, request("https://store.invalid/k")) == (Cause.PROXY, Sent.NEVER)


def test_a_proxy_that_hangs_up_got_nothing_of_the_request() -> None:
    """A CONNECT without an answer: never sent."""
    with raw_server(close_after_request) as proxy, curl_with(proxy=proxy.url) as curl:
        assert failed(curl, request("https://store.invalid/k")) == (Cause.PROXY, Sent.NEVER)


def test_a_tunnel_carries_the_request(tmp_path: Path) -> None:
    """Through a proxy that wants a user the store's own answer comes, with the store's headers."""
    context, pem = certificate(tmp_path)
    with raw_server(answering(), context) as store:
        tunnels = tunnel(b"200 OK", [store.url])
        with raw_server(tunnels) as proxy:
            url = proxy.url.replace("//", "//user:secret@")
            with curl_with(proxy=url, ca_file=pem) as curl:
                got = outcome(curl, request(f"{store.url}/k", "PUT", b"x"))
    assert isinstance(got, HTTPAnswer)
    assert got.body == b"ok"
    assert "x-proxy" not in got.headers
    assert proxy.asked[0].line.startswith("CONNECT 127.0.0.1:")
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in proxy.asked[0].headers
    assert not any("x-amz-test" in line for line in proxy.asked[0].headers)
    assert not any("Proxy-" in line for line in store.asked[0].headers)


# Secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://user:secret@127.0.0.1:1/", None),
        ("http://store.invalid/?X-Amz-Credential=secret", None),
        ("http://user:secret@[::1/", None),
        ("https://store.invalid/", "http://user:secret@127.0.0.1:1"),
        ("https://store.invalid/", "http://user:secret@proxy.invalid:1"),
        ("https://store.invalid/", "gopher://user:secret@proxy.invalid:1"),
        ("https://store.invalid/", "http://user:secret@proxy.invalid:wrong"),
        ("ftp://user:secret@127.0.0.1:1/", None),
    ],
)
def test_no_error_holds_a_secret(url: str, proxy: str | None) -> None:
    """What an error says holds no user of a URL, no query and no header's value. Nothing was
    sent."""
    asked = HTTPRequest("GET", url, (("Authorization", "AWS4 secret"),))
    with curl_with(proxy=proxy) as curl:
        got = outcome(curl, asked)
    assert isinstance(got, NoAnswer)
    assert got.sent is Sent.NEVER
    assert "secret" not in repr(got) + str(got.__cause__) + repr(got.__context__)

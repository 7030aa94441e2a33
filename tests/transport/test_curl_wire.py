"""What libcurl puts on the wire, and takes from it: the request as it is, and nothing else."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pycurl")

from magic_committer._libcurl import available
from magic_committer.stores.base import FileSlice, Pieces
from magic_committer.stores.s3.curl_threads import Curl
from magic_committer.stores.s3.http import HTTPAnswer, HTTPRequest, NoAnswer, Sent
from tests.network.test_deadlines import certificate
from tests.transport.raw_server import (
    OK,
    Raw,
    Wire,
    answering,
    curl_with,
    outcome,
    raw_server,
    request,
    within,
)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    """A server that says yes."""
    with raw_server(answering()) as running:
        yield running


@pytest.fixture(scope="module")
def curl() -> Iterator[Curl]:
    """A client, whose handles are used again for each test's requests."""
    with curl_with() as made:
        yield made


def answered(curl: Curl, asked: HTTPRequest) -> HTTPAnswer:
    """The answer, which there must be."""
    got = outcome(curl, asked)
    assert isinstance(got, HTTPAnswer), got
    return got


def test_it_is_available() -> None:
    """These tests run where pycurl is installed."""
    assert available()


@pytest.mark.parametrize(
    ("method", "body", "framing"),
    [
        ("GET", b"", []),
        ("HEAD", b"", []),
        ("DELETE", b"", []),
        ("PUT", b"", ["Content-Length: 0"]),
        ("POST", b"", ["Content-Length: 0"]),
        ("PUT", b"abc", ["Content-Length: 3"]),
        ("POST", memoryview(b"abc"), ["Content-Length: 3"]),
        ("PUT", memoryview(bytes(3_000_000)), ["Content-Length: 3000000"]),
    ],
)
def test_only_framing_is_added(
    raw: Raw, curl: Curl, method: str, body: Any, framing: list[str]
) -> None:
    """The headers are those of the request, ``Host`` and the body's length: no ``Accept``, no
    ``Expect``, no agent, no encoding; whatever the handle was used for before."""
    headers = (("x-amz-date", "20261101T000000Z"), ("Authorization", "AWS4 a=b, c=d"))
    answered(curl, HTTPRequest(method, f"{raw.url}/k", headers, body))
    host = raw.url.removeprefix("http://")
    expected = [f"Host: {host}", *(f"{name}: {value}" for name, value in headers), *framing]
    assert raw.asked[-1].line == f"{method} /k HTTP/1.1"
    assert sorted(raw.asked[-1].headers) == sorted(expected)
    assert raw.asked[-1].body == bytes(body)


def test_headers_are_sent_as_they_are(raw: Raw, curl: Curl) -> None:
    """Empty values, repeated names, an agent, and colons and blanks in values stay."""
    headers = (
        ("User-Agent", "Boto3/1 md/x"),
        ("x-amz-empty", ""),
        ("x-amz-two", "a"),
        ("x-amz-two", "b"),
        ("x-amz-odd", 'a: b;  c="d"'),
        ("Accept", "text/x"),
        ("Content-Type", "application/xml"),
    )
    answered(curl, HTTPRequest("PUT", raw.url, headers, b"x"))
    sent = raw.asked[-1].headers
    assert [line for line in sent if line.startswith("User-Agent")] == ["User-Agent: Boto3/1 md/x"]
    assert any(line.rstrip() == "x-amz-empty:" for line in sent)
    assert [line for line in sent if line.startswith("x-amz-two")] == [
        "x-amz-two: a",
        "x-amz-two: b",
    ]
    assert 'x-amz-odd: a: b;  c="d"' in sent
    assert [line for line in sent if line.startswith("Accept")] == ["Accept: text/x"]
    assert "Content-Type: application/xml" in sent


@pytest.mark.parametrize(
    "path",
    [
        "/b/a//b",
        "/b//",
        "/b/./x",
        "/b/../x",
        "/b/a%2Fb",
        "/b/%2E%2E/x",
        "/b/k?uploadId=a%2Bb&partNumber=1",
        "/b/k?uploads=",
        "/b/k?uploads",
        "/b/k?prefix=a/../b",
        "/b/%E2%82%AC%20+~",
        "/b/a;b=c,d@e:f!$&'()*",
        "/",
    ],
)
def test_a_path_is_sent_as_it_is(raw: Raw, curl: Curl, path: str) -> None:
    """Nobody tidies the path or the query: they are signed."""
    answered(curl, request(raw.url + path))
    assert raw.asked[-1].line == f"GET {path} HTTP/1.1"


@pytest.mark.parametrize("part", ["\r\nX-Evil: 1", "\n", "\r", "\0"])
def test_a_line_break_in_a_header_is_refused(raw: Raw, curl: Curl, part: str) -> None:
    """A header cannot bring another one with it: nothing is sent."""
    before = len(raw.asked)
    with pytest.raises(ValueError, match="line break"):
        curl.send(HTTPRequest("GET", raw.url, (("x-a", "b" + part),)), within())
    assert len(raw.asked) == before


def test_a_get_with_a_body_is_refused(raw: Raw, curl: Curl) -> None:
    """Requests without bodies have none: nothing is sent, and the client goes on."""
    before = len(raw.asked)
    with pytest.raises(ValueError, match="GET has no body"):
        curl.send(request(raw.url, "GET", b"x"), within())
    assert len(raw.asked) == before
    assert answered(curl, request(raw.url)).body == b"ok"


def test_a_user_in_the_url_is_refused(raw: Raw, curl: Curl) -> None:
    """A URL with a user would be sent with an Authorization of libcurl's."""
    got = outcome(curl, request(raw.url.replace("//", "//user:secret@")))
    assert isinstance(got, NoAnswer)
    assert got.sent is Sent.NEVER


def test_the_environment_is_not_asked(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are the SDK's to read."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with curl_with() as curl:
        assert answered(curl, request(raw.url)).body == b"ok"
    monkeypatch.setenv("no_proxy", "*")
    with raw_server(answering()) as proxy, curl_with(proxy=proxy.url) as curl:
        answered(curl, request("http://store.invalid/k"))
    assert proxy.asked[0].line == "GET http://store.invalid/k HTTP/1.1"


def test_a_netrc_is_not_read(raw: Raw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Passwords of the user's other programs are not sent."""
    (tmp_path / ".netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with curl_with() as curl:
        answered(curl, request(raw.url))
    assert not any("uthorization" in line for line in raw.asked[-1].headers)


def test_an_address_of_ip_version_6_works() -> None:
    """A literal address in brackets is connected to, and is the host."""
    with socket.socket(socket.AF_INET6) as listening:
        try:
            listening.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listening.listen()
        url = f"http://[::1]:{listening.getsockname()[1]}"
        with curl_with() as curl:
            got: list[Any] = []
            thread = threading.Thread(target=lambda: got.append(outcome(curl, request(url))))
            thread.start()
            connection, _ = listening.accept()
            with connection:
                asked = Wire(connection).ask()
                connection.sendall(OK)
                thread.join()
    assert asked is not None
    assert f"Host: {url.removeprefix('http://')}" in asked.headers
    assert isinstance(got[0], HTTPAnswer)


# Answers ------------------------------------------------------------------------------------------


def gives(answer: bytes, method: str = "GET") -> HTTPAnswer:
    """What an answer on the wire becomes."""
    with raw_server(answering(answer)) as raw, curl_with() as curl:
        return answered(curl, request(raw.url, method))


def test_the_head_is_read_as_it_is() -> None:
    """Names in lower case, repeated ones joined, odd bytes kept; steps before (1xx) are not it."""
    got = gives(
        b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n"
        b'HTTP/1.1 200 OK\r\nETag:"1"\r\nX-AMZ-Two:  a \r\nx-amz-two: b\r\nX-Odd: caf\xe9\r\n'
        b"X-Empty:\r\nContent-Length: 2\r\n\r\nok"
    )
    assert got.status == 200
    assert dict(got.headers) == {
        "etag": '"1"',
        "x-amz-two": "a, b",
        "x-odd": "caf\xe9",
        "x-empty": "",
        "content-length": "2",
    }
    assert got.body == b"ok"


def test_chunks_are_joined_and_trailers_are_no_headers() -> None:
    """A body in chunks is whole, and what follows it is not part of the head."""
    got = gives(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nETag: evil\r\n\r\n"
    )
    assert got.body == b"abcde"
    assert "etag" not in got.headers


def test_an_encoding_is_not_undone() -> None:
    """Bytes of an object that was stored compressed are given as they are."""
    got = gives(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
    )
    assert got.body == b"\x1f\x8b\x08\x00"


@pytest.mark.parametrize(
    ("method", "answer", "status"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 200),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404),
    ],
)
def test_an_answer_without_a_body_is_whole(method: str, answer: bytes, status: int) -> None:
    """HEAD, 204 and 304 have no body, whatever the length says; the connection stays."""
    with raw_server(answering(answer)) as raw, curl_with() as curl:
        both = [answered(curl, request(raw.url, method)) for _ in range(2)]
    assert [(one.status, one.body, one.reused) for one in both] == [
        (status, b"", False),
        (status, b"", True),
    ]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_an_answer(status: str) -> None:
    """No redirect is followed: the new address would get our signature."""
    with raw_server(answering()) as other:
        head = f"HTTP/1.1 {status}\r\nLocation: {other.url}/\r\nContent-Length: 0\r\n\r\n"
        got = gives(head.encode())
        assert other.asked == []
    assert got.status == int(status[:3])
    assert got.headers["location"] == f"{other.url}/"


@pytest.mark.parametrize(
    "scheme", ["Basic realm=x", "Digest realm=x, nonce=y", "NTLM", "Negotiate"]
)
def test_a_question_for_a_password_is_an_answer(scheme: str) -> None:
    """A 401 is given as it is: nothing is tried again."""
    head = f"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {scheme}\r\nContent-Length: 0\r\n\r\n"
    with raw_server(answering(head.encode())) as raw, curl_with() as curl:
        assert answered(curl, request(raw.url, "PUT", b"x")).status == 401
    assert len(raw.asked) == 1


def test_cookies_are_not_kept() -> None:
    """A balancer's cookie does not change the next request."""
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; path=/\r\nContent-Length: 0\r\n\r\n"
    with raw_server(answering(head)) as raw, curl_with() as curl:
        answered(curl, request(raw.url))
        answered(curl, request(raw.url))
    assert raw.asked[1].headers == raw.asked[0].headers


@pytest.mark.parametrize("more", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
@pytest.mark.parametrize("body", [b"", b"x", bytes(400_000)])
def test_a_connection_that_was_closed_while_idle_is_no_error(body: bytes, more: bytes) -> None:
    """Nor is one on which the server said something uncalled-for. The next request is sent on a
    new one, once, and is answered."""
    closed = threading.Semaphore(0)

    def serve(wire: Wire, raw: Raw) -> None:
        asked = wire.ask()
        if asked is None:
            return
        raw.asked.append(asked)
        wire.say(OK)
        time.sleep(0.02)
        wire.say(more)
        if more:
            closed.release()
            assert wire.ask() is None
        else:
            wire.socket.close()
            closed.release()

    with raw_server(serve) as raw, curl_with() as curl:
        for number in range(20):
            assert answered(curl, request(f"{raw.url}/{number}", "POST", body)).body == b"ok"
            assert closed.acquire(timeout=10)
    assert [asked.line.split()[1] for asked in raw.asked] == [f"/{n}" for n in range(20)]


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 262_143, 262_144, 5_000_001])
def test_a_body_arrives_as_it_is(raw: Raw, curl: Curl, tmp_path: Path, size: int) -> None:
    """Bytes, views and slices of files of every size arrive to the byte."""
    content = os.urandom(size)
    path = tmp_path / "part"
    path.write_bytes(b"before" + content + b"behind")
    bodies = (
        content,
        memoryview(content),
        memoryview(b"before" + content)[6:],
        memoryview(bytearray(content)),
        Pieces(memoryview(content[at : at + 70_001]) for at in range(0, size, 70_001)),
        Pieces(memoryview(content[at : at + 300]) for at in range(0, size, 300)),  # > PIECES_MAX
        FileSlice(str(path), 6, size),
    )
    for body in bodies:
        answered(curl, request(raw.url, "PUT", body))
        assert raw.asked[-1].body == content


REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_nothing_holds_a_body_that_was_sent(tmp_path: Path, tls: bool) -> None:
    """The caller may use its memory again as soon as it has the answer: no thread that waits for
    the next request still knows the last one."""
    context, pem = certificate(tmp_path) if tls else (None, None)
    pages = mmap.mmap(-1, 1024**2)
    with raw_server(answering(), context) as raw, curl_with(ca_file=pem) as curl:
        for _ in range(3):
            answered(curl, request(raw.url, "PUT", memoryview(pages)))
            pages.resize(len(pages))  # BufferError while there is a view


def test_a_connection_whose_body_was_sent_is_used_again(raw: Raw, curl: Curl) -> None:
    """A large body costs no connection, whoever has sent it."""
    bodies = (memoryview(bytes(3_000_000)), Pieces([memoryview(bytes(400_000))] * 2), b"x")
    for body in bodies:
        answered(curl, request(raw.url, "PUT", body))
    assert [answered(curl, request(raw.url, "PUT", body)).reused for body in bodies] == [True] * 3


def test_a_connection_with_half_a_body_is_not_used_again(curl: Curl) -> None:
    """A server that answers, in order, before it has the body, and keeps the connection, gets
    nothing more on it: the rest of the body would be read as the next request."""
    connections: list[list[str | None]] = []

    def serve(wire: Wire, raw: Raw) -> None:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        heads = [wire.head()]
        connections.append(heads)
        wire.say(REFUSED)
        while heads[-1] is not None:
            heads.append(wire.head())  # of the body, which has empty lines

    body = memoryview(b"GET /smuggled HTTP/1.1\r\n\r\n" * 1_000_000)
    with raw_server(serve) as early:
        for _ in range(3):
            assert answered(curl, request(early.url, "PUT", body)).status == 400
    assert [heads[0] and heads[0].split()[0] for heads in connections] == ["PUT"] * 3
    assert all("PUT" not in (head or "") for heads in connections for head in heads[1:])


def test_a_server_that_closes_does_not_end_the_program(curl: Curl) -> None:
    """Programs that are used in pipes take SIGPIPE as it comes. A body that nobody reads any more
    must not send it."""
    signals: list[int] = []

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        time.sleep(0.05)  # the body fills the socket's buffer
        wire.say(REFUSED)
        wire.socket.shutdown(socket.SHUT_WR)
        wire.reset()

    before = signal.signal(signal.SIGPIPE, lambda number, _: signals.append(number))
    try:
        with raw_server(serve) as early:
            for _ in range(10):
                outcome(curl, request(early.url, "PUT", memoryview(bytes(30_000_000))))
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert signals == []


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_yes_before_the_end_of_the_body_is_no_answer(
    curl: Curl, tmp_path: Path, kind: str
) -> None:
    """A server cannot have what was not sent. What it says of it is not believed."""
    (tmp_path / "part").write_bytes(bytes(30_000_000))
    of_memory = memoryview(bytes(30_000_000))
    body = of_memory if kind == "memory" else FileSlice(str(tmp_path / "part"), 0, 30_000_000)

    def serve(wire: Wire, raw: Raw) -> None:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.head()
        wire.say(OK)
        time.sleep(0.3)
        wire.socket.close()

    with raw_server(serve) as early:
        got = outcome(curl, request(early.url, "PUT", body))
    assert isinstance(got, NoAnswer), got
    assert got.sent is Sent.ANSWERED


def test_a_view_of_larger_items_is_bytes(raw: Raw, curl: Curl) -> None:
    """A view whose items are not bytes is sent byte by byte."""
    answered(curl, request(raw.url, "PUT", memoryview(b"abcdefgh").cast("I")))
    assert raw.asked[-1].body == b"abcdefgh"


@pytest.mark.parametrize("size", [10, 400_000])
def test_a_file_that_is_too_short_is_not_sent(
    raw: Raw, curl: Curl, tmp_path: Path, size: int
) -> None:
    """A slice beyond the file's end, or of no file, is an error before anything is sent."""
    before = len(raw.asked)
    path = tmp_path / "part"
    path.write_bytes(bytes(size))
    with pytest.raises(EOFError, match=f"holds {size - 6} of the slice's {size} bytes"):
        curl.send(request(raw.url, "PUT", FileSlice(str(path), 6, size)), within())
    with pytest.raises(FileNotFoundError):
        curl.send(request(raw.url, "PUT", FileSlice(str(tmp_path / "no"), 0, size)), within())
    assert len(raw.asked) == before


def test_a_file_that_shrinks_is_no_request(curl: Curl, tmp_path: Path) -> None:
    """A file that ends while it is sent ends the request; the bytes are not made up."""
    path = tmp_path / "part"
    path.write_bytes(bytes(50_000_000))

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        os.truncate(path, 10)
        while wire.socket.recv(1 << 20):
            continue

    with raw_server(serve) as shrinking:
        asked = request(shrinking.url, "PUT", FileSlice(str(path), 0, 50_000_000))
        got = outcome(curl, asked)
    assert isinstance(got, NoAnswer)
    assert got.sent is Sent.PERHAPS
    assert "shorter" in str(got)


def test_files_are_closed(raw: Raw, curl: Curl, tmp_path: Path) -> None:
    """A body's file is open while it is sent, and no longer."""
    path = tmp_path / "part"
    path.write_bytes(bytes(400_000))

    def held() -> list[str]:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [link for link in links if os.path.realpath(link) == str(path)]

    for _ in range(3):
        answered(curl, request(raw.url, "PUT", FileSlice(str(path), 0, 400_000)))
        outcome(curl, request("http://127.0.0.1:1/", "PUT", FileSlice(str(path), 0, 400_000)))
    assert held() == []

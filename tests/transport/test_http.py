"""Connections: what is sent at most once, which answers are whole, which connections are kept."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magic_committer._patience import Errand
from magic_committer.stores.base import FileSlice
from magic_committer.stores.s3 import http
from magic_committer.stores.s3.http import (
    Answer,
    Cause,
    Deadline,
    Http,
    HttpRequest,
    Loop,
    Network,
    NoAnswer,
    Sent,
    origin_of,
)
from tests.transport.raw_server import OK, Asked, Raw, Wire, answering, raw_server

SECONDS = 60.0
"""For a request that is to be answered, on a loaded machine."""
BIG = memoryview(bytes(8 * 1024**2))
Send = Callable[[Http, HttpRequest, Deadline], Answer]


def alone(client: Http, request: HttpRequest, deadline: Deadline) -> Answer:
    """Send in this thread."""
    return client.send(request, deadline)


def in_a_loop(client: Http, request: HttpRequest, deadline: Deadline) -> Answer:
    """Send by a loop."""
    loop = Loop(client)
    try:
        loop.start("tag", request, deadline)
        while True:
            for tag, outcome in loop.wait(1.0):
                assert tag == "tag"
                if isinstance(outcome, Answer):
                    return outcome
                try:
                    raise outcome
                finally:
                    del outcome  # or this frame and its traceback hold each other
    finally:
        loop.close()


@pytest.fixture(params=[alone, in_a_loop])
def send(request: pytest.FixtureRequest) -> Send:
    """Each test by both drivers."""
    driver: Send = request.param
    return driver


@pytest.fixture
def client() -> Iterator[Http]:
    """Connections, closed at the end."""
    made = Http(Network(connect_seconds_max=SECONDS))
    yield made
    made.close()


def to(raw: Raw | str, method: str = "GET", body: Any = b"", **more: Any) -> HttpRequest:
    """A request to a server."""
    url = raw if isinstance(raw, str) else raw.url
    return HttpRequest(method, origin_of(url), "/b/k?q", [("x-a", "1")], body, **more)


def within(seconds: float = SECONDS) -> Deadline:
    """A deadline of so many seconds."""
    return Deadline(seconds, seconds)


def ended(send: Send, client: Http, request: HttpRequest, seconds: float = SECONDS) -> Any:
    """What becomes of a request: status and body, or cause and whether it was sent."""
    try:
        answer = send(client, request, within(seconds))
    except NoAnswer as error:
        return error.cause, error.sent
    return answer.status, answer.body


# Answers ------------------------------------------------------------------------------------------

BROKEN = (Cause.BROKEN, Sent.ANSWERED)
TOO_LONG = (Cause.LIMIT, Sent.ANSWERED)
LENGTH = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}"
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS: dict[str, tuple[str, Any]] = {
    "plain": (LENGTH.format(2, "ok"), (200, b"ok")),
    "chunks": (f"{CHUNKED}2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", (200, b"ok!")),
    "chunks with a trailer": (f"{CHUNKED}2\r\nok\r\n0\r\nETag: x\r\n\r\n", (200, b"ok")),
    "no content": ("HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    "until the end": ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it", (200, b"all of it")),
    "HTTP/1.0": ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "no reason": ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (200, b"")),
    "100, 102, 200": (
        f"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\nA: b\r\n\r\n{LENGTH.format(2, 'ok')}",
        (200, b"ok"),
    ),
    "nothing": ("", (Cause.BROKEN, Sent.PERHAPS)),
    "a head that was cut": ("HTTP/1.1 200 OK\r\nETag: a\r\n", BROKEN),
    "a length that was cut": ("HTTP/1.1 200 OK\r\nContent-Le", BROKEN),
    "a body that was cut": (LENGTH.format(9, "ab"), BROKEN),
    "a chunk that was cut": (f"{CHUNKED}9\r\nab", BROKEN),
    "chunks without an end": (f"{CHUNKED}2\r\nab\r\n", BROKEN),
    "only 100": ("HTTP/1.1 100 Continue\r\n\r\n", BROKEN),
    "two lengths": (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nokxyz", BROKEN,
    ),
    "a length below 0": (LENGTH.format(-2, "ok"), BROKEN),
    "a length with a sign": (LENGTH.format("+2", "ok"), BROKEN),
    "a length with a bar": (LENGTH.format("1_0", "okokokokok"), BROKEN),
    "a length and chunks": (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\nok\r\n0\r\n\r\n", BROKEN,
    ),
    "a bad chunk": (f"{CHUNKED}zz\r\nok\r\n", BROKEN),
    "a status that is none": ("HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "a status of two digits": ("HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "a status above 599": ("HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "a NUL": ("HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "bare line feeds": ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", BROKEN),
    "a space before a colon": ("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", BROKEN),
    "a folded line": ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "another protocol": ("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", BROKEN),
    "an upgrade": ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", BROKEN),
    "no HTTP": ("garbage\r\n\r\n", BROKEN),
    "TLS": ("\x16\x03\x01\x02\x00\x01", BROKEN),
    "an endless head": (f"HTTP/1.1 200 OK\r\nA: {'x' * http.HEAD_BYTES_MAX}", TOO_LONG),
    "many headers": (f"HTTP/1.1 200 OK\r\n{'A: b' * 9}\r\n" + "A: b\r\n" * 20_000, TOO_LONG),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_answer_is_whole_or_none(send: Send, client: Http, name: str, method: str) -> None:
    """What a server says before it hangs up, by both drivers; each request arrives once."""
    said, wanted = ANSWERS[name]

    def serve(wire: Wire, raw: Raw) -> None:
        asked = wire.ask()
        assert asked is not None
        raw.asked.append(asked)
        wire.say(said.encode("latin-1"))

    with raw_server(serve) as raw:
        body = b"body" if method == "PUT" else b""
        assert ended(send, client, to(raw, method, body)) == wanted
    assert [asked.body for asked in raw.asked] == [body]


@pytest.mark.parametrize("name", [name for name in ANSWERS if ANSWERS[name][1][0] == 200])
def test_an_answer_that_comes_byte_by_byte_is_the_same(send: Send, client: Http, name: str) -> None:
    """However it is cut into packets."""
    said, wanted = ANSWERS[name]

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        for number in range(len(said)):
            wire.say(said[number : number + 1].encode("latin-1"))

    with raw_server(serve) as raw:
        assert ended(send, client, to(raw)) == wanted


def test_an_answer_to_head_has_no_body(send: Send, client: Http) -> None:
    """Whatever length it names; a byte behind it ends its connection."""
    said = [LENGTH.format(9, "").encode(), LENGTH.format(9, "x").encode(), OK]

    def serve(wire: Wire, raw: Raw) -> None:
        while wire.ask() is not None:
            wire.say(said.pop(0))

    with raw_server(serve) as raw:
        told = [ended(send, client, to(raw, "HEAD")) for _ in range(2)]
        assert ended(send, client, to(raw)) == (200, b"ok")
        assert raw.serving is not None
        assert raw.serving.taken == 2
    assert told == [(200, b"")] * 2


def test_names_of_headers_have_no_case_and_repeated_ones_are_joined(
    send: Send, client: Http
) -> None:
    """As every client does."""
    said = b"HTTP/1.1 204 No\r\nX-A: 1\r\nx-a: 2\r\n\r\n"
    with raw_server(answering(said)) as raw:
        assert send(client, to(raw), within()).headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "said", [LENGTH.format(9, "x" * 9), f"{CHUNKED}9\r\n{'x' * 9}\r\n0\r\n\r\n"]
)
def test_a_success_that_is_too_long_is_told_and_not_read(
    send: Send, client: Http, said: str
) -> None:
    """Its head is there, its body is not; the next request has another connection."""
    with raw_server(answering(said.encode())) as raw:
        for allowed, wanted in ((9, b"x" * 9), (8, b"")):
            answer = send(client, to(raw, bytes_max=allowed), within())
            assert (answer.status, answer.body) == (200, wanted)
            assert (answer.excess != "") is (allowed == 8)


# Sent at most once --------------------------------------------------------------------------------


def test_a_connection_is_used_again_and_a_closed_one_is_not(send: Send, client: Http) -> None:
    """A server may close an idle connection at any time: no request is lost by it, none is sent
    twice."""

    def serve(wire: Wire, raw: Raw) -> None:
        for _ in range(3):
            asked = wire.ask()
            if asked is None:
                return
            raw.asked.append(asked)
            wire.say(OK)

    with raw_server(serve) as raw:
        told = []
        for _ in range(7):
            told.append(ended(send, client, to(raw)))
            time.sleep(0.02)  # the server's end has arrived
        assert raw.serving is not None
        assert raw.serving.taken == 3
    assert told == [(200, b"ok")] * 7
    assert len(raw.asked) == 7


def test_a_second_answer_is_given_to_nobody(send: Send, client: Http) -> None:
    """Bytes behind an answer end its connection, glued on or late."""
    for late in (False, True):

        def serve(wire: Wire, raw: Raw, late: bool = late) -> None:
            while wire.ask() is not None:
                wire.say(OK if late else OK + LENGTH.format(8, "SMUGGLED").encode())
                if late:
                    wire.say(LENGTH.format(8, "SMUGGLED").encode())

        with raw_server(serve) as raw:
            for _ in range(3):
                assert ended(send, client, to(raw)) == (200, b"ok")
                time.sleep(0.02)


def test_a_request_that_dies_on_the_way_is_sent_once(send: Send, client: Http) -> None:
    """On a fresh connection and on a used one: it is told, and nothing is sent again."""

    def serve(wire: Wire, raw: Raw) -> None:
        for _ in range(2):
            asked = wire.ask()
            if asked is None:
                return
            raw.asked.append(asked)
            if len(raw.asked) == 2:
                wire.reset()
                return
            wire.say(OK)

    with raw_server(serve) as raw:
        assert ended(send, client, to(raw)) == (200, b"ok")
        cause, sent = ended(send, client, to(raw))
    assert (cause, sent, len(raw.asked)) == (Cause.BROKEN, Sent.PERHAPS, 2)


DEEDS = (
    "answers",
    "answers",
    "closes",
    "resets",
    "refuses early",
    "cuts",
    "says it twice",
    "is late",
)


@pytest.mark.parametrize("seed", range(3))
def test_no_request_arrives_twice(send: Send, client: Http, seed: int) -> None:
    """Whatever a server does to connections: of 100 requests each arrives once, or not at all and
    then has no answer; what counts as never sent has not arrived."""
    draw = random.Random(seed)
    arrived: Counter[str] = Counter()

    def serve(wire: Wire, raw: Raw) -> None:
        while (head := wire.head()) is not None:
            arrived[head.split()[1]] += 1
            deed = draw.choice(DEEDS)
            if deed == "resets":
                wire.reset()
                return
            if deed == "refuses early":
                wire.say(b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n")
                return
            while not wire.socket.recv(1 << 20).endswith(b"!"):
                pass
            wire.say({"cuts": OK[:-1], "says it twice": OK * 2}.get(deed, OK))
            if deed == "is late":
                time.sleep(0.001)  # the client may be sending its next request by now
            if deed not in ("answers", "says it twice"):
                return

    told: dict[str, Any] = {}
    with raw_server(serve) as raw:
        for number in range(100):
            asked = to(raw, "PUT", memoryview(bytes(100_000) + b"!"))
            asked.target = f"/b/{number}"
            try:
                told[asked.target] = send(client, asked, within()).status
            except NoAnswer as error:
                told[asked.target] = error.sent
    assert set(arrived.values()) == {1}
    assert not [one for one in arrived if told[one] is Sent.NEVER]
    assert not [one for one, what in told.items() if isinstance(what, int) and one not in arrived]
    assert {200, 503} <= set(told.values())


@pytest.mark.parametrize("hangs_up", [True, False])
def test_an_early_refusal_of_a_part_is_heard(send: Send, client: Http, hangs_up: bool) -> None:
    """A 503 that comes while the body goes out, from a server that reads no more of it."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        wire.say(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
        if not hangs_up:
            raw.ending.wait()

    with raw_server(serve) as raw:
        assert ended(send, client, to(raw, "PUT", BIG)) == (503, b"")


def test_a_success_for_a_part_of_a_request_is_none(send: Send, client: Http) -> None:
    """A server that says 200 before it has the body has not stored it."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        wire.say(OK)
        raw.ending.wait()

    with raw_server(serve) as raw:
        assert ended(send, client, to(raw, "PUT", BIG)) == BROKEN


def test_without_a_connection_nothing_was_sent(send: Send, client: Http) -> None:
    """Nobody listens; the name is not known."""
    for url in ("http://127.0.0.1:9", "http://store.invalid"):
        assert ended(send, client, to(url)) == (Cause.CONNECT, Sent.NEVER)


def test_the_next_address_is_tried(
    send: Send, client: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with several addresses, the first of which nobody listens at."""
    with raw_server(answering()) as raw:
        there = origin_of(raw.url)
        found = [(socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_INET, (there.host, there.port))]
        monkeypatch.setattr(http, "_addresses_of", lambda *_: found)
        assert ended(send, client, to("http://store.invalid")) == (200, b"ok")


def test_a_lookup_ends_with_the_request(
    send: Send, client: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal and no deadline ends the system's function."""
    ending = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ending.wait() and [])
    try:
        assert ended(send, client, to("http://slow.invalid"), 0.5) == (Cause.CONNECT, Sent.NEVER)
    finally:
        ending.set()


POINTS: dict[str, tuple[Any, str]] = {
    "between two bytes": (Deadline, "moved"),
    "in a wait": (Deadline, "look"),
    "in the parser": (http._Reading, "on_header"),
    "at the end": (http._Reading, "answer"),
    "in the body's file": (os, "fstat"),
}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, ValueError])
@pytest.mark.parametrize("point", POINTS)
def test_what_a_handler_raises_is_the_callers(
    send: Send,
    client: Http,
    kind: type,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It is no failure of the network. The request went once at most, and its connection is
    closed."""
    owner, name = POINTS[point]
    file = tmp_path / "body"
    file.write_bytes(b"body")
    gone = threading.Event()

    def struck(*arguments: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT if kind is KeyboardInterrupt else signal.SIGALRM)
        return getattr(owner, name)(*arguments)

    def handler(*_: object) -> None:
        raise kind("the caller's")

    def serve(wire: Wire, raw: Raw) -> None:
        raw.asked.append(wire.ask() or Asked("", b""))
        if point != "in a wait":
            wire.say(OK)
        wire.ask()
        gone.set()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with raw_server(serve) as raw:
            monkeypatch.setattr(owner, name, struck)
            with pytest.raises(kind, match=r"^$" if kind is KeyboardInterrupt else "the caller's"):
                send(client, to(raw, "PUT", FileSlice(str(file), 0, 4)), within())
            assert gone.wait(SECONDS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(raw.asked) == 1


@pytest.mark.parametrize("silent", ["connect", "answer", "body"])
def test_time_ends(send: Send, client: Http, silent: str) -> None:
    """A server that never answers, or never reads: the request ends, and says whether it was
    sent."""

    def serve(wire: Wire, raw: Raw) -> None:
        if silent == "answer":
            wire.ask()
        raw.ending.wait()

    with raw_server(serve) as raw:
        body = b"x" if silent != "body" else memoryview(bytes(64 * 1024**2))
        cause, sent = ended(send, client, to(raw, "PUT", body), 0.5)
    assert (cause, sent) == (Cause.TIME, Sent.PERHAPS)


def test_the_end_of_an_errand_ends_a_request(send: Send, client: Http) -> None:
    """Within a slice, long before the deadline."""
    errand = Errand()

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        errand.end(0.0)
        raw.ending.wait()

    with raw_server(serve) as raw, pytest.raises(NoAnswer) as caught:
        send(client, to(raw), Deadline(600.0, 600.0, errand=errand))
    assert caught.value.cause is Cause.TIME


def test_a_line_break_is_never_sent(send: Send, client: Http) -> None:
    """It would be another request."""
    with raw_server(answering()) as raw:
        for header in (("a", "b\r\nc: d"), ("a\n", "b"), ("a", "b\0")):
            asked = to(raw)
            asked.headers.append(header)
            with pytest.raises(http.BadParameter, match="line break"):
                send(client, asked, within())
    assert raw.asked == []


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 3 * 1024**2])
def test_a_body_arrives_whole(send: Send, client: Http, size: int, tmp_path: Path) -> None:
    """From memory, and from a slice of a file."""
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(b"before" + data + b"after")
    with raw_server(answering()) as raw:
        for body in (data, memoryview(data), FileSlice(str(tmp_path / "f"), 6, size)):
            assert ended(send, client, to(raw, "PUT", body)) == (200, b"ok")
    assert [asked.body for asked in raw.asked] == [data] * 3
    assert {asked.head.count("Content-Length") for asked in raw.asked} == {1}


def test_a_file_that_is_too_short_is_not_sent(send: Send, client: Http, tmp_path: Path) -> None:
    """The error says what it holds; no whole request arrives."""
    (tmp_path / "f").write_bytes(b"12345")
    with raw_server(answering()) as raw:
        with pytest.raises(EOFError, match="holds 3 of the slice's 9 bytes"):
            send(client, to(raw, "PUT", FileSlice(str(tmp_path / "f"), 2, 9)), within())
        with pytest.raises(EOFError, match="cannot be read"):
            send(client, to(raw, "PUT", FileSlice(str(tmp_path / "none"), 0, 9)), within())
    assert raw.asked == []


def test_a_request_that_has_ended_holds_nothing(send: Send, client: Http) -> None:
    """Neither its body nor its connection is kept by anything, also after a failure."""

    class Body(bytearray):
        pass

    with raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Le")) as raw:
        body = Body(100_000)
        held = weakref.ref(body)
        assert ended(send, client, to(raw, "PUT", memoryview(body)), 2.0)[0] is Cause.TIME
        del body
        assert held() is None


# A process's connections --------------------------------------------------------------------------


def test_idle_connections_have_a_limit(client: Http) -> None:
    """What is above it is closed; when the client is closed, all are."""
    few = Http(Network(idle_max=2))
    with raw_server(answering()) as raw:
        loop = Loop(few)
        for number in range(5):
            loop.start(number, to(raw), within())
        told: list[int] = []
        while len(told) < 5:
            told += [tag for tag, _ in loop.wait(1.0)]
        loop.close()
        idle = few._idle[origin_of(raw.url)]
        assert (sorted(told), len(idle)) == ([0, 1, 2, 3, 4], 2)
        few.close()
        assert idle == []


def test_a_dropped_client_closes_its_connections() -> None:
    """Nothing is left for the collector to warn of."""
    dropped = Http(Network())
    with raw_server(answering()) as raw:
        alone(dropped, to(raw), within())
        (connection,) = dropped._idle[origin_of(raw.url)]
        del dropped
        assert connection.sock is None


def test_a_forked_child_leaves_its_parents_answers(client: Http) -> None:
    """It closes what is under way. Its parent gets the answer."""
    may_answer = threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        may_answer.wait()
        wire.say(OK)

    with raw_server(serve) as raw:
        loop = Loop(client)
        loop.start("mine", to(raw), within())
        while not any(seat.connection._given for seat in loop._busy):
            assert not list(loop.wait(0.1))
        child = os.fork()
        if child == 0:
            told = [outcome for _, outcome in loop.wait(1.0)]
            os._exit(0 if [type(one) for one in told] == [NoAnswer] else 1)
        assert os.waitpid(child, 0)[1] == 0
        may_answer.set()
        ended: list[Any] = []
        while not ended:
            ended = list(loop.wait(1.0))
        loop.close()
    assert [(tag, answer.body) for tag, answer in ended] == [("mine", b"ok")]


def test_a_loop_has_each_answer_for_who_asked(client: Http) -> None:
    """Answers in any order, over few connections."""

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            number = asked.head.split()[1].encode()
            time.sleep(0.001 * (int(number[1:]) % 7))
            wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(number) + number)

    with raw_server(serve) as raw:
        loop, number = Loop(client), 0
        told: dict[int, Any] = {}
        while len(told) < 200:
            while number < 200 and loop.flying < 16:
                loop.start(
                    number, HttpRequest("GET", origin_of(raw.url), f"/{number}", []), within()
                )
                number += 1
            told |= dict(loop.wait(1.0))
        loop.close()
        assert raw.serving is not None
        assert raw.serving.taken <= 16
    assert {tag: one.body for tag, one in told.items()} == {
        number: f"/{number}".encode() for number in range(200)
    }

"""A request is sent at most once, an answer is whole or none, and only quiet connections are kept.

By both drivers: in the calling thread, and by a loop.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from magic_committer.runtime.components import SystemClock
from magic_committer.runtime.threads import Errand
from magic_committer.stores.base import FileSlice
from magic_committer.stores.s3 import http
from magic_committer.stores.s3.http import Cause, Deadline, Http, HttpRequest, NoAnswer, Sent
from magic_committer.stores.s3.many import Loop, each_result
from tests.wire import Asked, Raw, Wire, playing, raw_server

Outcome = http.Answer | NoAnswer
SECONDS = 60.0
"""For a request that is to be answered, on a loaded machine."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OKS = playing("ask", OK, again=True)
BIG = memoryview(bytes(8 * 1024**2))


def sending(loop: Loop[Any], request: HttpRequest, deadline: Deadline) -> http.Waits[Outcome]:
    """Send a request by a loop; its failure is a value."""
    try:
        return (yield from loop.exchange(request, deadline))
    except NoAnswer as error:
        return error.with_traceback(None)


def looped(
    client: Http, requests: list[HttpRequest], at_once: int, deadline: Deadline | None = None
) -> list[Outcome]:
    """Send requests by one loop; what became of each."""
    loop: Loop[int] = Loop(client, SystemClock(), at_once)
    left = enumerate(requests)

    def next_work() -> tuple[int, http.Waits[Outcome]] | None:
        number, request = next(left, (0, None))
        until = deadline or Deadline(SECONDS, SECONDS)
        return None if request is None else (number, sending(loop, request, until))

    told: dict[int, Any] = dict(each_result(loop, next_work, 1.0))
    return [told[number] for number in range(len(requests))]


class Driver:
    """Sends requests over connections of its own: alone, in this thread, or by a loop."""

    def __init__(self, by_loop: bool) -> None:
        self._by_loop = by_loop
        self.http = Http(http.Network(connect_seconds_max=SECONDS))

    def send(self, request: HttpRequest, deadline: Deadline | None = None) -> http.Answer:
        """Send a request once."""
        deadline = deadline or Deadline(SECONDS, SECONDS)
        if not self._by_loop:
            return http.waited(self.http.exchange(request, deadline))
        (outcome,) = looped(self.http, [request], 1, deadline)
        try:
            if isinstance(outcome, http.Answer):
                return outcome
            raise outcome
        finally:
            del outcome  # or this frame and its traceback hold each other

    def ended(self, request: HttpRequest, seconds: float = SECONDS) -> Any:
        """What becomes of a request: status and body, or cause and whether it was sent."""
        try:
            answer = self.send(request, Deadline(seconds, seconds))
        except NoAnswer as error:
            return error.cause, error.sent
        return answer.status, answer.body


@pytest.fixture(params=[False, True], ids=["alone", "in a loop"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Each test by both drivers; its connections are closed at the end."""
    made = Driver(request.param)
    yield made
    made.http.close()


def to(raw: Raw | str, method: str = "GET", body: Any = b"", **more: Any) -> HttpRequest:
    """A request to a server."""
    url = raw if isinstance(raw, str) else raw.url
    return HttpRequest(method, http.origin_of(url), "/b/k?q", [("x-a", "1")], body, **more)


BROKEN = (Cause.BROKEN, Sent.ANSWERED)
TOO_LONG = (Cause.LIMIT, Sent.ANSWERED)
LENGTH = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}"
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EMPTY = "\r\nContent-Length: 0\r\n\r\n"
SPOKEN: dict[str, tuple[str, Any]] = {
    "plain": (LENGTH.format(2, "ok"), (200, b"ok")),
    "chunks": (f"{CHUNKED}2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", (200, b"ok!")),
    "chunks with a trailer": (f"{CHUNKED}2\r\nok\r\n0\r\nETag: x\r\n\r\n", (200, b"ok")),
    "no content": ("HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    "until the end": ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it", (200, b"all of it")),
    "HTTP/1.0": ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "no reason": (f"HTTP/1.1 200{EMPTY}", (200, b"")),
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
    "two lengths": (LENGTH.format("2\r\nContent-Length: 5", "okxyz"), BROKEN),
    **{f"a length of {one}": (LENGTH.format(one, "okokokokok"), BROKEN)
       for one in ("-2", "two", "+2", "1_0")},
    "a length and chunks": (
        LENGTH.format("5\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n"), BROKEN,
    ),
    "a bad chunk": (f"{CHUNKED}zz\r\nok\r\n", BROKEN),
    **{f"status {one}": (f"HTTP/1.1 {one} OK{EMPTY}", BROKEN) for one in ("2x0", "99", "600")},
    "a NUL": (f"HTTP/1.1 200 OK\r\nA: b\0c{EMPTY}", BROKEN),
    "bare line feeds": ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", BROKEN),
    "a space before a colon": ("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", BROKEN),
    "a folded line": (f"HTTP/1.1 200 OK\r\nA: b\r\n c{EMPTY}", BROKEN),
    "another protocol": (f"HTTP/2.0 200 OK{EMPTY}", BROKEN),
    "an upgrade": ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", BROKEN),
    "no HTTP": ("garbage\r\n\r\n", BROKEN),
    "TLS": ("\x16\x03\x01\x02\x00\x01", BROKEN),
    "an endless head": (f"HTTP/1.1 200 OK\r\nA: {'x' * http.HEAD_BYTES_MAX}", TOO_LONG),
    "many headers": (f"HTTP/1.1 200 OK\r\n{'A: b' * 9}\r\n" + "A: b\r\n" * 20_000, TOO_LONG),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize(("method", "pieces"), [("GET", 1), ("PUT", 1), ("PUT", 400)])
def test_an_answer_is_whole_or_none(driver: Driver, name: str, method: str, pieces: int) -> None:
    """What a server says before it hangs up, however it is cut into packets; each request arrives
    once."""
    said, wanted = SPOKEN[name][0].encode("latin-1"), SPOKEN[name][1]
    body, size = b"body" if method == "PUT" else b"", max(1, len(said) // pieces)
    cut = [said[at : at + size] for at in range(0, len(said), size)]
    with raw_server(playing("ask", *cut)) as raw:
        assert driver.ended(to(raw, method, body)) == wanted
    assert [asked.body for asked in raw.asked] == [body]


LENGTHS = ("\r\nContent-Length: 9\r\n\r\n", "\r\nContent-Length: 9\r\n\r\nx")


def test_an_answer_to_head_has_no_body(driver: Driver) -> None:
    """Whatever length it names, or none; a byte behind it ends its connection."""
    said = [f"HTTP/1.1 200 OK{more}".encode() for more in ("\r\n\r\n", *LENGTHS)]
    with raw_server(playing("ask", said[0], "ask", said[1], "ask", said[2])) as raw:
        assert [driver.ended(to(raw, "HEAD")) for _ in range(4)] == [(200, b"")] * 4
        assert raw.serving.taken == 2


def test_names_of_headers_have_no_case_and_repeated_ones_are_joined(driver: Driver) -> None:
    """A server that says a header twice, in two spellings, has said both values of one."""
    with raw_server(playing("ask", b"HTTP/1.1 204 No\r\nX-A: 1\r\nx-a: 2\r\n\r\n")) as raw:
        assert driver.send(to(raw)).headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "said",
    [
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: 2\r\n\r\n",
        "HTTP/1.1 103 E\r\nX-A: 2\r\n\r\nHTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_headers_are_those_of_the_answers_head(driver: Driver, said: str) -> None:
    """None of a trailer, and none of an answer before the last."""
    with raw_server(playing("ask", said.encode())) as raw:
        assert driver.send(to(raw)).headers["x-a"] == "1"


@pytest.mark.parametrize(
    "said", [LENGTH.format(9, "x" * 9), f"{CHUNKED}9\r\n{'x' * 9}\r\n0\r\n\r\n"]
)
def test_a_success_that_is_too_long_is_told_and_not_read(driver: Driver, said: str) -> None:
    """Its head is there, its body is not; the next request has another connection."""
    with raw_server(playing("ask", said.encode(), again=True)) as raw:
        for allowed, wanted in ((9, b"x" * 9), (8, b""), (9, b"x" * 9)):
            answer = driver.send(to(raw, bytes_max=allowed))
            assert (answer.status, answer.body) == (200, wanted)
            assert (answer.excess != "") is (allowed == 8)


def has_come(client: Http, raw: Raw) -> None:
    """Wait until the idle connection has what the server did after its answer."""
    for connection in client._idle.get(http.origin_of(raw.url), ()):
        assert connection.wait(http.READ, SECONDS)


def test_a_connection_is_used_again_and_a_closed_one_is_not(driver: Driver) -> None:
    """A server may close an idle connection at any time: no request is lost by it, none is sent
    twice. One that dies on the way, on a used connection, is told, and is not sent again."""
    with raw_server(playing("ask", OK, "ask", OK, "ask", OK)) as raw:
        for number in range(1, 8):
            assert driver.ended(to(raw)) == (200, b"ok")
            if number % 3 == 0:
                has_come(driver.http, raw)
        assert raw.serving.taken == 3
    assert len(raw.asked) == 7
    with raw_server(playing("ask", OK, "ask", "reset")) as raw:
        assert driver.ended(to(raw)) == (200, b"ok")
        assert driver.ended(to(raw)) == (Cause.BROKEN, Sent.PERHAPS)
    assert len(raw.asked) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_second_answer_is_given_to_nobody(driver: Driver, late: bool) -> None:
    """Bytes behind an answer end its connection, glued on or late."""
    smuggled = LENGTH.format(8, "SMUGGLED").encode()
    said = [OK, smuggled] if late else [OK + smuggled]
    with raw_server(playing("ask", *said, again=True)) as raw:
        for number in range(1, 4):
            assert driver.ended(to(raw)) == (200, b"ok")
            has_come(driver.http, raw)
            assert raw.serving.taken == number


def test_a_system_without_poll_waits_by_select(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has none."""
    monkeypatch.setattr(http, "_Selector", selectors.SelectSelector)
    monkeypatch.setattr(Http, "may_block", False)
    with raw_server(OKS) as raw:
        assert [driver.ended(to(raw, "PUT", body)) for body in (b"x", BIG)] == [(200, b"ok")] * 2
    assert driver.ended(to("http://127.0.0.1:9")) == (Cause.CONNECT, Sent.NEVER)


SLOW_DOWN = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [([SLOW_DOWN], (503, b"")), ([SLOW_DOWN, "wait"], (503, b"")), ([OK, "wait"], BROKEN)],
)
def test_an_answer_before_the_end_of_the_body_counts_if_it_is_a_refusal(
    driver: Driver, steps: Any, wanted: Any
) -> None:
    """A 503 of a server that reads no more is heard; one that says 200 before it has the body has
    not stored it."""
    with raw_server(playing("head", *steps)) as raw:
        assert driver.ended(to(raw, "PUT", BIG), 10.0) == wanted


def test_a_connection_with_half_a_body_is_not_used_again(driver: Driver) -> None:
    """What is left of a refused part would be read as the next request."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        wire.socket.sendall(SLOW_DOWN if raw.serving.taken == 1 else OK)
        raw.ending.wait()

    with raw_server(serve) as raw:
        assert driver.ended(to(raw, "PUT", BIG)) == (503, b"")
        assert driver.ended(to(raw), 10.0) == (200, b"ok")
        assert raw.serving.taken == 2


def test_a_head_without_an_end_is_not_read_on(driver: Driver) -> None:
    """A server that is none does not fill the memory, however long it goes on."""
    sent: list[int] = []

    def serve(wire: Wire, _: Raw) -> None:
        wire.ask()
        wire.socket.sendall(b"HTTP/1.1 200 OK\r\nA: ")
        while len(sent) < 300:
            wire.socket.sendall(b"x" * http.HEAD_BYTES_MAX)
            sent.append(1)

    with raw_server(serve) as raw:
        assert driver.ended(to(raw), 20.0) == TOO_LONG
    assert len(sent) < 300


def test_a_body_goes_on_after_a_100_that_nobody_asked_for(driver: Driver) -> None:
    """It is no answer: the server waits for the rest."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.head()
        wire.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)  # the client's buffer is full, and it has heard it
        if wire.read(len(BIG)):
            wire.socket.sendall(OK)

    with raw_server(serve) as raw:
        assert driver.ended(to(raw, "PUT", BIG), 20.0) == (200, b"ok")


def test_the_next_address_is_tried(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with several addresses, the first of which nobody listens at."""
    with raw_server(OKS) as raw:
        there = http.origin_of(raw.url)
        found = [(socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_INET, (there.host, there.port))]
        monkeypatch.setattr(http, "_addresses_of", lambda *_: found)
        assert driver.ended(to("http://store.invalid")) == (200, b"ok")


DEEDS = (
    "answers", "answers", "closes", "resets", "refuses early", "cuts", "says it twice", "is late",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_no_request_arrives_twice(driver: Driver, seed: int) -> None:
    """Whatever a server does to connections: of 100 requests each arrives once, or not at all and
    then has no answer; what counts as never sent has not arrived."""
    draw = random.Random(seed)
    arrived: Counter[str] = Counter()

    def serve(wire: Wire, raw: Raw) -> None:
        while (head := wire.head()) is not None:
            arrived[head.split()[1]] += 1
            deed = draw.choice(DEEDS)
            if deed == "resets":
                return wire.reset()
            if deed == "refuses early":
                return wire.socket.sendall(b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n")
            wire.read(int(Asked(head, b"").header("content-length")))
            wire.socket.sendall({"cuts": OK[:-1], "says it twice": OK * 2}.get(deed, OK))
            if deed == "is late":
                time.sleep(0.001)  # the client may be sending its next request by now
            if deed not in ("answers", "says it twice"):
                return None
        return None

    told: dict[str, Any] = {}
    with raw_server(serve) as raw:
        for number in range(100):
            asked = to(raw, "PUT", memoryview(bytes(100_000)))
            asked.target = f"/b/{number}"
            told[asked.target] = driver.ended(asked)
    assert set(arrived.values()) == {1}
    assert not [one for one in arrived if told[one][1] is Sent.NEVER]
    assert not [one for one, what in told.items() if what[0] in (200, 503) and one not in arrived]
    assert {200, 503} <= {what[0] for what in told.values()}


def test_a_lookup_ends_with_the_request(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal and no deadline ends the system's function."""
    ending = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ending.wait() and [])
    try:
        assert driver.ended(to("http://slow.invalid"), 0.5) == (Cause.CONNECT, Sent.NEVER)
    finally:
        ending.set()


POINTS: dict[str, tuple[Any, str]] = {
    "between two bytes": (Deadline, "moved"),
    "in a wait": (Deadline, "look"),
    "in the parser": (http._Reading, "on_header"),
    "at the end": (http._Reading, "answer"),
    "in the body's file": (os, "stat"),
}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, ValueError])
@pytest.mark.parametrize("point", POINTS)
def test_what_a_handler_raises_is_the_callers(
    driver: Driver, kind: type, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
            wire.socket.sendall(OK)
        with suppress(OSError):
            wire.ask()
        gone.set()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with raw_server(serve) as raw:
            monkeypatch.setattr(owner, name, struck)
            with pytest.raises(kind, match=r"^$" if kind is KeyboardInterrupt else "the caller's"):
                driver.send(to(raw, "PUT", FileSlice(str(file), 0, 4)))
            assert gone.wait(SECONDS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(raw.asked) == 1


@pytest.mark.parametrize("silent", ["connect", "answer", "body", "errand"])
def test_time_ends(driver: Driver, silent: str) -> None:
    """A server that never answers, or never reads: the request ends, and says whether it was sent;
    and so it does with its errand, within a slice, long before the deadline."""
    errand, seconds = Errand(), 600.0 if silent == "errand" else 0.5
    steps: dict[str, Any] = {"answer": ["ask"], "errand": ["ask", lambda: errand.end(0.0)]}
    body = b"x" if silent != "body" else memoryview(bytes(64 * 1024**2))
    server = raw_server(playing(*steps.get(silent, []), "wait"))
    with server as raw, pytest.raises(NoAnswer) as caught:
        driver.send(to(raw, "PUT", body), Deadline(seconds, seconds, errand=errand))
    assert (caught.value.cause, caught.value.sent) == (Cause.TIME, Sent.PERHAPS)


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 3 * 1024**2])
def test_a_body_arrives_whole(driver: Driver, size: int, tmp_path: Path) -> None:
    """From memory, and from a slice of a file."""
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(b"before" + data + b"after")
    with raw_server(OKS) as raw:
        for body in (data, memoryview(data), FileSlice(str(tmp_path / "f"), 6, size)):
            assert driver.ended(to(raw, "PUT", body)) == (200, b"ok")
    assert [asked.body for asked in raw.asked] == [data] * 3
    assert {asked.head.count("Content-Length") for asked in raw.asked} == {1}


@pytest.mark.parametrize(
    ("header", "file", "why"),
    [
        ("b\r\nc: d", "", "line break"),  # it would be another request
        ("b\n", "", "line break"),
        ("b\0", "", "line break"),
        ("b", "f", "holds 3 of the slice's 9 bytes"),
        ("b", "none", "cannot be read"),
    ],
)
def test_what_cannot_be_sent_whole_is_not_sent(
    driver: Driver, tmp_path: Path, header: str, file: str, why: str
) -> None:
    """A header that is none, a file that is too short: the error says it, and nothing arrives."""
    (tmp_path / "f").write_bytes(b"12345")
    body = FileSlice(str(tmp_path / file), 2, 9) if file else b""
    with raw_server(OKS) as raw:
        for name, value in (("a", header), (f"a{header[1:]}", "b")):
            asked = to(raw, "PUT", body)
            asked.headers.append((name, value))
            with pytest.raises(NoAnswer, match=why):
                driver.send(asked)
        assert file or raw.serving.taken == 0  # what cannot be written does not even connect
    assert raw.asked == []


def test_a_request_that_has_ended_holds_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its body nor its connection is kept by anything, also after a failure, nor what that
    waited by: a selector is held by its own map until it is closed."""

    class Body(bytearray):
        pass

    class Noted(selectors.SelectSelector):
        def __init__(self) -> None:
            super().__init__()
            held.append(weakref.ref(self))

    monkeypatch.setattr(http, "_Selector", Noted)
    with raw_server(playing("ask", b"HTTP/1.1 200 OK\r\nContent-Le", "wait")) as raw:
        body = Body(100_000)
        held: list[weakref.ref[Any]] = [weakref.ref(body)]
        assert driver.ended(to(raw, "PUT", memoryview(body)), 2.0)[0] is Cause.TIME
        del body
        assert [one() for one in held] == [None] * len(held)


def test_idle_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is above it is closed, and of old ones one for each that becomes idle: nobody would use
    them again. When the client is closed, or dropped, all are: nothing is left for the collector to
    warn of."""
    client, dropped = Http(http.Network(idle_max=4)), Http(http.Network())
    with raw_server(OKS) as raw:
        looped(client, [to(raw)] * 5, 5)
        idle = client._idle[http.origin_of(raw.url)]
        old = list(idle)
        assert len(old) == 4
        monkeypatch.setattr(http, "IDLE_SECONDS_MAX", time.monotonic() - max(c._since for c in old))
        for left in (3, 2):
            client.give_back(idle.pop())
            assert len(idle) == left
        assert [one.sock is None for one in old[:3]] == [True, True, False]
        client.close()
        assert idle == []
        http.waited(dropped.exchange(to(raw), Deadline(SECONDS, SECONDS)))
        (connection,) = dropped._idle[http.origin_of(raw.url)]
        del dropped
        assert connection.sock is None


def test_a_forked_child_leaves_its_parents_answers() -> None:
    """It closes what is under way, and hears what it asks itself, over connections that take the
    numbers of those; its parent gets the answers."""
    may_answer = threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            raw.asked.append(asked)
            if asked.head.startswith("GET"):
                may_answer.wait()
            wire.socket.sendall(OK)

    def begin(tag: str, method: str) -> None:
        for _ in range(3):
            loop.start(tag, sending(loop, to(raw, method), Deadline(SECONDS, SECONDS)))

    with raw_server(serve) as raw:
        client = Http(http.Network(connect_seconds_max=SECONDS))
        loop: Loop[str] = Loop(client, SystemClock(), 9)
        begin("mine", "GET")
        while len(raw.asked) < 3:
            loop.wait(0.1)
        child = os.fork()
        if child == 0:
            until = time.monotonic() + SECONDS / 4
            loop._look_at = 0.0  # what was lost is found before an answer can come
            begin("own", "PUT")
            while len(loop.ended) < 6 and time.monotonic() < until:
                loop.wait(0.1)
            told = sorted((tag, type(one).__name__) for tag, one in loop.ended)
            os._exit(told != [("mine", "NoAnswer")] * 3 + [("own", "Answer")] * 3)
        assert os.waitpid(child, 0)[1] == 0
        may_answer.set()
        while len(loop.ended) < 3:
            loop.wait(1.0)
        loop.close()
        client.close()
    assert [(tag, answer.body) for tag, answer in loop.ended] == [("mine", b"ok")] * 3


def test_an_idle_connection_may_be_closed_in_the_moment_of_an_answer() -> None:
    """The loop hears of both at once, and the work that goes on first finds it closed."""
    slow, idle = threading.Event(), threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        asked = wire.ask()
        if asked is not None and asked.head.startswith("PUT"):
            slow.wait(SECONDS)
            wire.socket.sendall(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            return
        wire.socket.sendall(OK)
        idle.wait(SECONDS)

    with raw_server(serve) as raw:
        client = Http(http.Network())
        loop: Loop[str] = Loop(client, SystemClock(), 2)
        deadline = Deadline(SECONDS, SECONDS)

        def twice() -> http.Waits[Outcome]:
            yield from sending(loop, to(raw, "PUT"), deadline)
            return (yield from sending(loop, to(raw), deadline))

        loop.start("twice", twice())
        loop.start("once", sending(loop, to(raw), deadline))
        while not loop.ended:
            loop.wait(0.1)
        loop.wait(0.0)  # the system forgets which of them was ready last
        (busy,) = loop._busy
        (resting,) = loop._idle[http.origin_of(raw.url)]
        for event, connection in ((slow, busy.connection), (idle, resting)):  # in this order
            event.set()
            assert connection is not None
            assert connection.wait(http.READ, SECONDS)
        while len(loop.ended) < 2:
            loop.wait(0.1)
        loop.close()
        client.close()
    assert [(tag, one.body) for tag, one in loop.ended] == [("once", b"ok"), ("twice", b"ok")]


@pytest.mark.parametrize("registered", [False, True])
def test_who_is_interrupted_waits_for_a_request_that_has_just_left(
    monkeypatch: pytest.MonkeyPatch, registered: bool
) -> None:
    """Ctrl-C comes before, or just after, the loop's selector knows of its connection."""
    patient: list[bool] = []

    def serve(wire: Wire, raw: Raw) -> None:
        wire.ask()
        wire.socket.sendall(OK)
        wire.ask()
        wire.socket.settimeout(0.1)
        try:
            wire.socket.recv(1)
        except TimeoutError:
            patient.append(True)
        wire.socket.sendall(OK)

    with raw_server(serve) as raw:
        client = Http(http.Network())
        http.waited(client.exchange(to(raw), Deadline(SECONDS, SECONDS)))  # a kept connection
        real = selectors.DefaultSelector.register

        def register(*arguments: Any) -> Any:
            monkeypatch.undo()
            if registered:
                real(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(selectors.DefaultSelector, "register", register)
        with pytest.raises(KeyboardInterrupt):
            looped(client, [to(raw)], 1)
        client.close()
    assert patient == [True]

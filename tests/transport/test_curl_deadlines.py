"""No request by libcurl outlives its deadline, and none is cut off while bytes move."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

pytest.importorskip("pycurl")

from magic_committer._patience import SLICE_SECONDS, Errand
from magic_committer.stores.s3.http import Cause, HTTPAnswer, NoAnswer, Sent
from magic_committer.stores.s3.sockets import Deadline
from tests.silent import Mood, silent_server
from tests.transport.raw_server import (
    OK,
    Raw,
    Wire,
    curl_with,
    outcome,
    raw_server,
    request,
    within,
)

WAIT_SECONDS = 0.6
SLOW_BYTES = 8_000_000
LOADED_SECONDS = 4.0
"""What a loaded machine may add."""


@pytest.mark.parametrize("size", [0, 10, 100_000_000], ids=["no body", "small", "large"])
@pytest.mark.parametrize("mood", list(Mood))
def test_a_silent_store_is_left_in_time(mood: Mood, size: int) -> None:
    """Silent, deaf or slow: the wait ends when the deadline does; it may have been sent."""
    body = memoryview(bytearray(size)) if size else b""
    with silent_server(mood) as server, curl_with() as curl:
        begun = time.monotonic()
        got = outcome(curl, request(server.url, "PUT", body), within(WAIT_SECONDS))
        seconds = time.monotonic() - begun
    assert isinstance(got, NoAnswer), mood
    assert got.cause is Cause.TIME
    began = mood in (Mood.HEAD, Mood.DRIP_BODY)
    assert got.sent is (Sent.ANSWERED if began else Sent.PERHAPS)
    assert WAIT_SECONDS <= seconds < WAIT_SECONDS + SLICE_SECONDS + LOADED_SECONDS


def test_bytes_that_move_add_time() -> None:
    """A body that is read slowly, but fast enough, is sent to its end, far beyond the time for one
    wait."""

    def serve(wire: Wire, raw: Raw) -> None:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.head()
        wire.read_slowly(SLOW_BYTES, 0.03)
        wire.say(OK)

    body = memoryview(bytearray(SLOW_BYTES))
    with raw_server(serve) as raw, curl_with() as curl:
        begun = time.monotonic()
        got = outcome(curl, request(raw.url, "PUT", body), Deadline(1.0, 1.0))
        seconds = time.monotonic() - begun
    assert isinstance(got, HTTPAnswer), got
    assert seconds > 1.0


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_before_the_end_of_the_body_adds_no_time(reads: bool) -> None:
    """A server that answers at once, then takes the body, or does not, and says a byte now and
    then: the wait ends as if it had been silent."""
    ended = threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.head()
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1200000\r\n\r\n")
        if reads:
            wire.read_slowly(SLOW_BYTES, 0.005)
        while not ended.wait(0.1):
            wire.say(b"x")

    body = memoryview(bytearray(SLOW_BYTES))
    with raw_server(serve) as raw, curl_with() as curl:
        begun = time.monotonic()
        got = outcome(curl, request(raw.url, "PUT", body), Deadline(1.0, 1.0))
        seconds = time.monotonic() - begun
        ended.set()
    assert isinstance(got, NoAnswer), got
    assert (got.cause, got.sent) == (Cause.TIME, Sent.ANSWERED)
    assert 1.0 <= seconds < 2.0 + LOADED_SECONDS


def in_pieces(wire: Wire, raw: Raw) -> None:
    """Answer 1.2 MB, in twelve pieces with a pause after each."""
    wire.ask()
    wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1200000\r\n\r\n")
    for _ in range(12):
        wire.say(bytes(100_000))
        time.sleep(0.1)


def test_an_answer_that_moves_adds_time() -> None:
    """So is an answer that comes in pieces; each silence is shorter than the time for one wait."""
    with raw_server(in_pieces) as raw, curl_with() as curl:
        got = outcome(curl, request(raw.url), Deadline(0.5, 0.5))
    assert isinstance(got, HTTPAnswer), got
    assert len(got.body) == 1_200_000


def test_a_sign_of_life_is_given_while_bytes_move() -> None:
    """`Deadline`'s ``alive`` is called during a long transfer."""
    alive: list[float] = []
    deadline = Deadline(20, 20, alive=lambda: alive.append(time.monotonic()))
    with raw_server(in_pieces) as raw, curl_with() as curl:
        assert isinstance(outcome(curl, request(raw.url), deadline), HTTPAnswer)
    assert alive


@pytest.mark.parametrize("size", [10, 10_000_000], ids=["small", "large"])
def test_the_end_of_an_errand_ends_its_requests(size: int) -> None:
    """An errand that ends takes its request with it, within a slice."""
    errand = Errand()
    deadline = Deadline(60, 60, errand=errand)
    with silent_server(Mood.SILENT) as server, curl_with() as curl:
        threading.Timer(0.3, errand.end, (0.0,)).start()
        begun = time.monotonic()
        got = outcome(curl, request(server.url, "PUT", memoryview(bytes(size))), deadline)
        seconds = time.monotonic() - begun
    assert isinstance(got, NoAnswer)
    assert got.cause is Cause.TIME
    assert seconds < 0.3 + SLICE_SECONDS + LOADED_SECONDS


def test_each_request_has_its_own_deadline() -> None:
    """Among many in one thread, the ones whose time is over end, and the others go on."""
    release = threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            if "slow" in asked.line:
                release.wait(20)
            wire.say(OK)

    def requests() -> Any:
        for number in range(20):
            yield number, request(f"{raw.url}/{'slow' if number < 3 else 'quick'}")

    def deadline() -> Deadline:
        made.append(within(WAIT_SECONDS if len(made) < 2 else 60))
        return made[-1]

    made: list[Deadline] = []
    with raw_server(serve) as raw, curl_with() as curl:
        got: dict[int, Any] = {}
        for key, one in curl.send_each(requests(), in_flight=lambda: 20, deadline=deadline):
            got[key] = one
            if len(got) == 19:
                release.set()
    late = {key for key, one in got.items() if isinstance(one, NoAnswer)}
    assert late == {0, 1}
    assert {got[key].cause for key in late} == {Cause.TIME}
    assert len(got) == 20


def test_a_request_that_waits_for_a_connection_ends_in_time() -> None:
    """What waits for one of the connections was never sent, and ends at its own deadline."""
    with silent_server(Mood.SILENT) as server, curl_with(connections_max=1) as curl:
        first = threading.Thread(target=outcome, args=(curl, request(server.url), within(3)))
        first.start()
        while not server.taken:
            time.sleep(0.01)
        got = outcome(curl, request(server.url), within(WAIT_SECONDS))
        first.join()
    assert isinstance(got, NoAnswer)
    assert (got.cause, got.sent) == (Cause.TIME, Sent.NEVER)
    assert server.taken == 1


def test_after_its_time_a_connection_is_not_used_again() -> None:
    """The late answer to one request is never given to the next."""

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            name = asked.line.split()[1]
            if name == "/late":
                time.sleep(2 * WAIT_SECONDS)
            wire.say(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n{name}".encode())

    with raw_server(serve) as raw, curl_with() as curl:
        assert isinstance(outcome(curl, request(f"{raw.url}/late"), within(WAIT_SECONDS)), NoAnswer)
        for number in range(5):
            got = outcome(curl, request(f"{raw.url}/{number}"))
            assert isinstance(got, HTTPAnswer)
            assert got.body == f"/{number}".encode()
            time.sleep(0.2)


def test_glued_answers_are_not_given_to_the_next_request() -> None:
    """A second answer behind the first one belongs to nobody."""

    def serve(wire: Wire, raw: Raw) -> None:
        first = True
        while wire.ask() is not None:
            wire.say(OK + (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" if first else b""))
            first = False

    with raw_server(serve) as raw, curl_with() as curl:
        for _ in range(20):
            got = outcome(curl, request(raw.url))
            assert isinstance(got, HTTPAnswer)
            assert got.body == b"ok"

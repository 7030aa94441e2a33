"""libcurl would send again by itself: nothing arrives twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pycurl")

from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from tests.transport.raw_server import (
    Raw,
    Wire,
    curl_with,
    outcome,
    raw_server,
    request,
)

KILLS = 200


def killing(wire: Wire, raw: Raw) -> None:
    """Answers one request of a connection. The next one is read, and the connection is closed."""
    asked = wire.ask()
    if asked is None:
        return  # libcurl was about to send again, and was stopped
    raw.asked.append(asked)
    wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    asked = wire.ask()
    if asked is not None:
        raw.asked.append(asked)
        if len(raw.asked) % 2:
            wire.reset()


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("GET", b""),
        ("HEAD", b""),
        ("DELETE", b""),
        ("PUT", b""),
        ("POST", b""),
        ("PUT", b"small"),
        ("POST", b"<Complete/>"),
        ("PUT", memoryview(bytes(300_000))),
    ],
)
def test_a_killed_connection_gets_a_request_once(method: str, body: Any) -> None:
    """Of 200 connections that die when they are used again, none makes a request arrive twice."""
    with raw_server(killing) as raw, curl_with() as curl:
        got = [
            outcome(curl, request(f"{raw.url}/{number}", method, body))
            for number in range(2 * KILLS)
        ]
    arrived = Counter(asked.line for asked in raw.asked)
    assert set(arrived.values()) == {1}
    assert len(arrived) == 2 * KILLS
    lost = [one for one in got if isinstance(one, NoAnswer)]
    assert len(lost) == KILLS
    assert {(one.cause, one.sent) for one in lost} == {(Cause.BROKEN, Sent.PERHAPS)}

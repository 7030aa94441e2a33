"""What a hostile network does to a request: each fault, and when it strikes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.chaos.silent import Mood

PATIENCE_SECONDS = 1.5
"""How long the library waits for an answer in this suite."""
LATE_SECONDS = PATIENCE_SECONDS + 0.4
"""When an answer, or a request, comes that nobody waits for any more."""
SLOW_PACE_SECONDS = 0.25
"""Between two bytes of a slow answer: below any time-out of a read."""
SLOW_SECONDS_MAX = 20.0
"""After that the rest of a slow answer comes at once, so that a test ends also where the library
would wait for ever."""

Passed = Literal["at once", "late", "never"]
Answered = Literal[
    "with this", "cut by a reset", "cut by an end", "twice", "late", "slowly", "by a reset",
]  # fmt: skip
Extent = Literal["once", "always", "from then on"]
"""Which requests of a job a fault strikes: the first of the phase; each of the phase; the first of
the phase and each one after it."""


@dataclass(frozen=True)
class Fault:
    """One thing that a network, or what stands in it, does.

    Attributes:
        name: a word for the table.
        passed: whether, and when, the store gets the request.
        answered: what the client gets.
        reply: the bytes, where it is answered with this; none: the connection ends.
        extents: how often it may strike.
        mood: how it is not answered, instead.
    """

    name: str
    passed: Passed
    answered: Answered
    reply: bytes = b""
    extents: tuple[Extent, ...] = ("once", "always")
    mood: Mood | None = None


def http(status: str, body: str, kind: str = "application/xml") -> bytes:
    """An answer on the wire."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def error(status: str, code: str) -> bytes:
    """S3's error document with a status."""
    words = f"<Error><Code>{code}</Code><Message>the network says so</Message></Error>"
    return http(status, words)


HANG_UP = Fault("hang up", "never", "with this")
PAGE = "<html><head><title>Log in</title></head><body>Please log in first.</body></html>"
SLOW = "slow reply"
THEN: tuple[Extent, ...] = ("from then on",)
ONCE: tuple[Extent, ...] = ("once",)

FAULTS = (
    Fault("reset in the request", "never", "by a reset"),
    Fault("reset in the reply", "at once", "cut by a reset"),
    Fault("truncated reply", "at once", "cut by an end"),
    Fault("glued replies", "at once", "twice"),
    Fault("late reply", "at once", "late"),
    Fault("late request", "late", "late"),
    Fault("503 storm", "never", "with this", error("503 Slow Down", "SlowDown")),
    Fault("500 after the effect", "at once", "with this", error("500 Oops", "InternalError")),
    Fault("error in a 200", "never", "with this", error("200 OK", "InternalError")),
    Fault("page with 200", "never", "with this", http("200 OK", PAGE, "text/html")),
    Fault("balancer's 404", "never", "with this", http("404 Not Found", "no way", "text/plain")),
    Fault("garbage", "never", "with this", b"\x16\x03\x01\x00\xf0 no HTTP \xff\xfe\r\n\r\n"),
    Fault("expired token", "never", "with this", error("403 Forbidden", "ExpiredToken"), THEN),
    Fault(
        "skewed clock", "never", "with this", error("403 Forbidden", "RequestTimeTooSkewed"), THEN
    ),
    Fault("outage", "never", "by a reset", extents=THEN),
    Fault(SLOW, "at once", "slowly", extents=ONCE),
)
FAULT = {fault.name: fault for fault in FAULTS}

"""Bad weather between the library and its store: resets, bursts of 503, slow answers.

A proxy passes requests on, and does something to a part of them. What it does comes in spells,
which are drawn from the seed; which request is struck is chance: it depends on how many come.
"""

from __future__ import annotations

import io
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from urllib.parse import urlsplit

from tests.serving import Answering, asked_of, serving

SPELL_SECONDS = (0.5, 3.0)
SLOW_SECONDS_MAX = 2.0
PIECES = 8
SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>bad weather</Message><RequestId>W</RequestId></Error>"
)
RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets the connection."""


@dataclass(frozen=True)
class Spell:
    """Some seconds of one kind of weather.

    Attributes:
        name: what is done to requests.
        share: to how many of them.
    """

    name: str
    share: float


SPELLS = (
    Spell("fair", 0.0),
    Spell("reset before the store", 0.2),
    Spell("reset after the effect", 0.2),
    Spell("answer cut off", 0.2),
    Spell("503", 0.8),
    Spell("slow answer", 0.3),
    Spell("answer in pieces", 0.3),
)


class Weather:
    """The proxy.

    Attributes:
        url: what the library takes for its store.
        struck: how often each thing was done; ``passed``: requests that nothing was done to.
        spells: the weather to come; a test may set it.
    """

    def __init__(self, upstream: str, seed: int) -> None:
        self.url = ""
        self.struck: Counter[str] = Counter()
        self.ending = threading.Event()
        self.upstream = urlsplit(upstream).netloc
        self.spells: Iterator[tuple[Spell, float]] = drawn(seed)
        self._chance = random.Random(f"struck {seed}")
        self._spell, self._until = SPELLS[0], 0.0
        self._lock = threading.Lock()

    def strikes(self) -> str:
        """What is done to the next request; "" if nothing is."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._spell, seconds = next(self.spells)
                self._until = time.monotonic() + seconds
            struck = self._chance.random() < self._spell.share
            self.struck[self._spell.name if struck else "passed"] += 1
            return self._spell.name if struck else ""

    def slowness(self) -> float:
        """For how many seconds an answer is kept back."""
        with self._lock:
            return self._chance.uniform(0.1, SLOW_SECONDS_MAX)


def drawn(seed: int) -> Iterator[tuple[Spell, float]]:
    """Spells, and how many seconds each lasts, without an end."""
    chance = random.Random(f"weather {seed}")
    while True:
        for spell in chance.sample(SPELLS, len(SPELLS)):
            yield spell, chance.uniform(*SPELL_SECONDS)


class _Passing(Answering):
    """One connection through the proxy."""

    weather: Weather

    def answer(self) -> None:
        struck = self.weather.strikes()
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length // 2)
        if struck == "reset before the store":  # in the middle of the body, if there is one
            self._reset()
            return
        body += self.rfile.read(length - len(body))
        if struck == "503":
            self._refuse()
            return
        headers = tuple(self.headers.items())
        reply, content = asked_of(self.weather.upstream, self.command, self.path, headers, body)
        said = self._said(reply, content)
        if struck == "reset after the effect":
            self._reset()
        elif struck == "answer cut off":
            self.connection.sendall(said[: len(said) // 2])
            self._reset()
        elif struck == "answer in pieces":
            self._send_in_pieces(said)
        else:
            if struck == "slow answer":
                self.weather.ending.wait(self.weather.slowness())
            self.connection.sendall(said)

    def _said(self, reply: HTTPResponse, content: bytes) -> bytes:
        """The whole answer, as it goes over the wire."""
        kept, self.wfile = self.wfile, io.BytesIO()
        try:
            self.tell(reply, content)
            return self.wfile.getvalue()
        finally:
            self.wfile = kept

    def _send_in_pieces(self, said: bytes) -> None:
        step = len(said) // PIECES + 1
        for start in range(0, len(said), step):
            self.connection.sendall(said[start : start + step])
            self.weather.ending.wait(SLOW_SECONDS_MAX / PIECES)

    def _refuse(self) -> None:
        self.send_response_only(503)
        self.send_header("Content-Length", str(len(SLOW_DOWN)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(SLOW_DOWN)

    def _reset(self) -> None:
        """Hang up at once: what ends a connection usually would say goodbye first."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        os.close(self.connection.detach())


@contextmanager
def weather(upstream: str, seed: int) -> Iterator[Weather]:
    """Run it, in threads of this process."""
    made = Weather(upstream, seed)
    handler = type("Handler", (_Passing,), {"weather": made})
    with serving(handler, ending=made.ending) as server:
        made.url = server.url
        yield made

"""A proxy between a client and an S3 server: notes every request, and stops a job at one of them.

A stopped job's requests are neither forwarded nor answered, from the one that the test says on: to
the store it is as if the client had died there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from tests.serving import Answering, asked_of, serving

BODY_LOOKED_AT_BYTES = 64 * 1024
"""Of a DeleteObjects, to see whose keys it names."""

VERBS = (
    "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload",
    "ListParts", "ListMultipartUploads", "ListObjects", "PutObject", "GetObject", "HeadObject",
    "DeleteObject", "DeleteObjects",
)  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """A request. ``about``: its path, query and, of a DeleteObjects, body, decoded."""

    verb: str
    key: str
    about: str


@dataclass
class Stop:
    """Where a job is stopped. ``dest``: its destination in the bucket, ending in ``/``. ``at``:
    whether to stop at a request, by what was sent for the destination before."""

    dest: str
    at: Callable[[list[Sent], Sent], bool]
    sent: list[Sent] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)

    def holds(self, sent: Sent) -> bool:
        """Whether the request goes nowhere. Called under the wire's lock."""
        if self.dest not in sent.about:
            return False
        if not self.reached.is_set() and self.at(self.sent, sent):
            self.reached.set()
        self.sent.append(sent)
        return self.reached.is_set()


@dataclass
class Wire:
    """A running proxy. ``url``: where it listens. sent: all requests, in the order of their
    arrival."""

    url: str = ""
    sent: list[Sent] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> list[Sent]:
        """What was sent since it was asked last."""
        with self.lock:
            taken = self.sent[:]
            self.sent.clear()
        return taken

    def holds(self, sent: Sent) -> bool:
        """Note a request; whether it goes nowhere."""
        with self.lock:
            self.sent.append(sent)
            return any(stop.holds(sent) for stop in self.stops)


def verb_of(method: str, key: str, query: dict[str, list[str]]) -> str:
    """S3's name of a request; with its HTTP method where it is none of those in `VERBS`."""
    if "uploadId" in query:
        return {
            "PUT": "UploadPart", "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload", "GET": "ListParts",
        }[method]  # fmt: skip
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "delete" in query:
        return "DeleteObjects"
    if not key:
        return "ListObjects" if method == "GET" and "list-type" in query else f"{method} bucket"
    return f"{method.capitalize()}Object"


@contextmanager
def running(server: str) -> Iterator[Wire]:
    """Run a proxy in front of a server, given by its URL."""
    wire, backend = Wire(), urlsplit(server).netloc

    class Handler(Answering):
        def answer(self) -> None:
            body = self.body()
            url = urlsplit(self.path)
            _, _, key = unquote(url.path).lstrip("/").partition("/")
            verb = verb_of(self.command, key, parse_qs(url.query, keep_blank_values=True))
            about = unquote(self.path)
            if verb == "DeleteObjects":
                about += body[:BODY_LOOKED_AT_BYTES].decode("utf-8", "replace")
            if wire.holds(Sent(verb, key, about)):
                wire.ended.wait()
                self.close_connection = True
                return
            self.tell(*asked_of(backend, self.command, self.path, self.headers.items(), body))

    with serving(Handler, ending=wire.ended) as listening:
        wire.url = listening.url
        yield wire

"""The way between clients and an S3 server: notes every request, and stops a job at one of them.

A stopped job's requests are neither forwarded nor answered, from the one that the test says on: to
the store it is as if the client had died there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.chaos.faults import Fault
from tests.chaos.proxy import Line, Request
from tests.chaos.silent import Mood

VERBS = {
    "Create": "CreateMultipartUpload", "UploadPart": "UploadPart",
    "Complete": "CompleteMultipartUpload", "Abort": "AbortMultipartUpload",
    "ListParts": "ListParts", "ListUploads": "ListMultipartUploads", "List": "ListObjects",
    "PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject",
    "delete": "DeleteObjects",
}  # fmt: skip
"""S3's names of requests."""
STOPPED = Fault("stopped", "never", "with this", mood=Mood.SILENT)


@dataclass(frozen=True)
class Sent:
    """A request. ``about``: its path, query and, of a DeleteObjects, body, decoded."""

    verb: str
    key: str
    about: str


def sent(request: Request) -> Sent:
    """A request as it is noted; one of a bucket with its HTTP method."""
    _, _, key = request.key.lstrip("/").partition("/")
    about = unquote(request.target)
    kind = "delete" if "delete" in request.query else request.kind.partition(" ")[0]
    if kind == "delete":
        about += request.body.decode("utf-8", "replace")
    elif not key and kind == request.method:
        return Sent(f"{kind} bucket", key, about)
    return Sent(VERBS.get(kind, kind), key, about)


@dataclass
class Stop:
    """Where a job is stopped. ``dest``: its destination in the bucket, ending in ``/``. ``at``:
    whether to stop at a request, by what was sent for the destination before."""

    dest: str
    at: Callable[[list[Sent], Sent], bool]
    sent: list[Sent] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)

    def holds(self, sent: Sent) -> bool:
        """Whether the request goes nowhere."""
        if self.dest not in sent.about:
            return False
        if not self.reached.is_set() and self.at(self.sent, sent):
            self.reached.set()
        self.sent.append(sent)
        return self.reached.is_set()


class Wire(Line):
    """The way. ``sent``: all requests, in the order of their arrival."""

    reads_all = True

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sent] = []
        self.stops: list[Stop] = []

    def meets(self, request: Request) -> Fault | None:
        came = sent(request)
        with self.changed:
            self.sent.append(came)
            return STOPPED if any(stop.holds(came) for stop in self.stops) else None

    def take(self) -> list[Sent]:
        """What was sent since it was asked last."""
        with self.changed:
            taken = self.sent[:]
            self.sent.clear()
        return taken

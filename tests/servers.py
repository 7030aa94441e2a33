"""Servers for tests: moto's, as a child process, and one that answers as a test says.

Both listen on a port of 127.0.0.1 that the kernel chooses, and are gone when their ``with`` ends.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3

from magic_committer.options import S3Options, Transport
from magic_committer.runtime.components import SystemClock
from tests.serving import LOOPBACK, Answering, serving
from tools import moto_server as _moto

DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
DATE_SECONDS = 1_795_176_000.0
"""The scripted server's clock, which stands."""


TRANSPORT: ContextVar[Transport] = ContextVar("transport", default="auto")
"""What sends the requests of the stores that tests make."""


@contextmanager
def moto_server(bucket: str = "") -> Iterator[str]:
    """Run moto's server, with an empty bucket if it has a name; gives the server's URL. All it
    stored is gone afterwards."""
    with _moto.running() as url:
        if bucket:
            make_bucket(url, bucket)
        yield url


def moto_options(url: str) -> S3Options:
    """The way to moto's server, without the environment; it takes any credentials."""
    return S3Options(
        endpoint_url=url,
        region="us-east-1",
        access_key=_moto.CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=_moto.CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        retry_attempts_max=2,
        transport=TRANSPORT.get(),
    )


def make_bucket(url: str, bucket: str) -> None:
    """Make an empty bucket on moto's server, which takes unsigned requests too."""
    request = urllib.request.Request(f"{url}/{bucket}", method="PUT")
    urllib.request.urlopen(request, timeout=300).close()


def outside(way: S3Options) -> Any:
    """S3's own client: what others see of a bucket. Nothing of the library is in between."""
    return boto3.client(
        "s3",
        endpoint_url=way.endpoint_url,
        region_name=way.region,
        aws_access_key_id=way.access_key,
        aws_secret_access_key=way.secret_key,
    )


@dataclass(frozen=True)
class Asked:
    """A request as the scripted server got it; names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What the scripted server answers.

    Attributes:
        lost: close the connection instead, as if the answer had been lost.
        hung: say nothing until the server ends: the client's time-out must end the wait.
        missing: bytes that the length promises and the body lacks.
    """

    status: int = 200
    body: bytes | str = b""
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    hung: bool = False
    missing: int = 0


def error(status: int, code: str, message: str = "as the test wants") -> Reply:
    body = (
        f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>R1</RequestId></Error>"
    )
    return Reply(status, body, {"x-amz-request-id": "R1"})


def document(verb: str, inside: str = "") -> Reply:
    """S3's document for a verb by its name in the API: ``document("ListParts")``."""
    root = "ListBucketResult" if verb == "ListObjects" else f"{verb}Result"
    return Reply(body=f"<{root}>{inside}</{root}>")


Script = Callable[[Asked], Reply]


class ScriptedServer:
    """Answers each request with what ``script`` says; ``asked`` holds all it got."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.ending = threading.Event()
        self.url = ""

    def said(self, *replies: Reply) -> None:
        """Answer with these in turn, the last one again and again."""
        waiting = list(replies)
        self.script = lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


@contextmanager
def scripted_server(
    script: Script = lambda _: Reply(),
    *,
    context: ssl.SSLContext | None = None,
    host: str = LOOPBACK,
) -> Iterator[ScriptedServer]:
    """Run a scripted server in threads of this process; ``context`` and ``host`` as of
    `serving`."""
    scripted = ScriptedServer(script)

    class Handler(Answering):
        def answer(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, unquote(url.path), query, headers, self.body())
            scripted.asked.append(asked)
            reply = scripted.script(asked)
            if reply.hung:
                scripted.ending.wait()
            if reply.lost or reply.hung:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response_only(reply.status)
            for name, value in {"Date": DATE, **reply.headers}.items():
                if value:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + reply.missing))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            self.close_connection = self.close_connection or reply.missing > 0

    with serving(Handler, ending=scripted.ending, context=context, host=host) as server:
        scripted.url = server.url
        yield scripted


def way(url: str, **more: Any) -> S3Options:
    """The way to a server that checks no signature; ``more``: options besides, or instead."""
    given: dict[str, Any] = {
        "endpoint_url": url,
        "region": "us-east-1",
        "access_key": "the-access-key",
        "secret_key": "the-secret-key",
        "transport": TRANSPORT.get(),
    }
    return S3Options(**{**given, **more})


class HurriedClock(SystemClock):
    """The system's clock, but nobody waits: ``slept`` holds how long they would have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return super().monotonic() + sum(self.slept)


@contextmanager
def moto_in_the_environment() -> Iterator[str]:
    """A server with a bucket ``bucket``, which also workers find, by the environment."""
    with moto_server("bucket") as url:
        before = dict(os.environ)
        os.environ.update(_moto.CREDENTIALS, AWS_ENDPOINT_URL=url)
        try:
            yield url
        finally:
            os.environ.clear()
            os.environ.update(before)

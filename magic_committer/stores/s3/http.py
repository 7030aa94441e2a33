"""One HTTP request and its answer, as the fast transport sends them: the values between the module
that builds S3's requests and the module that moves bytes. Pure.

Invariants:

* An `HTTPRequest` is complete: its URL is quoted, it is signed, its headers are all that is sent.
  What moves the bytes adds nothing but the framing, and sends it **at most once**.
* An `HTTPAnswer` is whole: the head ended, the body has the length that the head promised. Whether
  it is S3's answer is not decided here.
* What is not an answer is a `NoAnswer`. It says whether the store may have got the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from magic_committer.stores.base import PartBody


class Sent(Enum):
    """Whether the store may have got a request."""

    NEVER = "never"
    """Not one byte of it left: it certainly took no effect."""
    PERHAPS = "perhaps"
    """It may have arrived, as a whole or not."""
    ANSWERED = "answered"
    """It arrived: an answer began, and could not be read to its end."""


class Cause(Enum):
    """Why there is no answer."""

    CONNECT = "connect"
    """No connection: name not known, refused, no route, or not in time."""
    PROXY = "proxy"
    """The proxy refused, or could not be reached."""
    TLS = "tls"
    """No encrypted connection, for another reason than the certificate."""
    CERTIFICATE = "certificate"
    """The store's certificate is not trusted, or is for another name."""
    TIME = "time"
    """The request's time was over, or its errand has ended."""
    BROKEN = "broken"
    """The connection ended, or what came is not HTTP."""
    LIMIT = "limit"
    """The head or the body of the answer is over its limit."""


class NoAnswer(Exception):
    """A request that got no whole answer.

    Attributes:
        cause: why.
        sent: whether the store may have got the request.
        why: the reason in words, without secrets.
        where: the scheme, host and port that the request was for, or of the proxy that failed; ""
            until whoever built the request has set it.
    """

    def __init__(self, cause: Cause, sent: Sent, why: str) -> None:
        super().__init__(why)
        self.cause = cause
        self.sent = sent
        self.why = why
        self.where = ""


@dataclass(slots=True)
class HTTPRequest:
    """A request that is ready to be sent.

    Attributes:
        method: the HTTP method.
        url: the whole URL, quoted. It is sent as it is.
        headers: all headers, with the signature; without ``Content-Length`` and ``Host``.
        body: what is sent. It must not change until the request has ended.
        answer_bytes_max: a longer body of the answer ends the request (`Cause.LIMIT`).
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | PartBody = b""
    answer_bytes_max: int = 16 * 1024**2


@dataclass(slots=True)
class HTTPAnswer:
    """A whole answer.

    Attributes:
        status: the HTTP status; never 1xx.
        headers: names in lower case. Of a repeated one, the values joined by ``", "``.
        body: the bytes, decoded from chunks; never from an encoding.
        reused: it came on a connection that was used before.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    reused: bool = False

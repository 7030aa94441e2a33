"""HTTP/1.1 as a server reads it from a socket: lines, and bodies that are not kept.

Bodies pass in pieces through one fixed buffer for each connection. Where only their length matters,
Linux discards them without a copy.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

BUFFER_BYTES = 1024**2
HEAD_BYTES = 16 * 1024
"""How much is read at once while lines are looked for: what belongs to a body is copied once."""

# tcp(7): with MSG_TRUNC received bytes are discarded instead of copied.
DISCARD = socket.MSG_TRUNC if sys.platform == "linux" else 0


class Hung(ConnectionError):
    """The client hung up in the middle of a request."""


class Wire:
    """One connection's incoming side."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def line(self) -> bytes:
        """The next line without its end. EOFError: the client hung up before it."""
        while (at := self._buffer.find(b"\n", self._start, self._end)) < 0:
            held = self._end - self._start
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
            got = self._socket.recv_into(self._view[held : held + HEAD_BYTES])
            if not got:
                raise EOFError("the client hung up")
            self._end += got
        line = bytes(self._view[self._start : at])
        self._start = at + 1
        return line.rstrip(b"\r")

    def take(self, count: int, *, discard: bool = False) -> Iterator[memoryview]:
        """The next ``count`` bytes in pieces, each valid until the next one is asked for. With
        ``discard`` only the pieces' lengths are right."""
        if held := min(count, self._end - self._start):
            self._start += held
            yield self._view[self._start - held : self._start]
            count -= held
        flags = socket.MSG_WAITALL | (DISCARD if discard else 0)
        while count:
            got = self._socket.recv_into(self._view, min(count, BUFFER_BYTES), flags)
            if not got:
                raise Hung("the body is shorter than its length")
            yield self._view[:got]
            count -= got


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body. Names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def length(self) -> int:
        """Bytes of the body as the header tells; 0 for one in HTTP's chunks."""
        return int(self.headers.get("content-length", 0))

    @property
    def in_aws_chunks(self) -> bool:
        """Whether the body is framed once more (S3 API: ``aws-chunked``)."""
        return "aws-chunked" in self.headers.get("content-encoding", "")


def read_head(wire: Wire) -> Head:
    """The next request's line and headers. EOFError: there is none."""
    method, target, _ = wire.line().decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while line := wire.line():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    url = urlsplit(target)
    return Head(method, unquote(url.path), dict(parse_qsl(url.query, True)), headers)


def read_body(wire: Wire, head: Head, *, discard: bool) -> Iterator[memoryview]:
    """The body in pieces, as the client meant it: without any framing. With ``discard`` only the
    sum of the pieces' lengths is right."""
    if "chunked" in head.headers.get("transfer-encoding", ""):
        sent = _http_chunks(wire)
    else:
        plain = discard and not head.in_aws_chunks
        sent = wire.take(head.length, discard=plain)
    return _aws_chunks(sent) if head.in_aws_chunks else sent


def _http_chunks(wire: Wire) -> Iterator[memoryview]:
    """RFC 9112, section 7.1."""
    while size := int(wire.line().partition(b";")[0], 16):
        yield from wire.take(size)
        wire.line()
    while wire.line():  # trailers
        pass


def _aws_chunks(sent: Iterable[memoryview]) -> Iterator[memoryview]:
    """The same shape in a body that comes in any pieces; trailers are skipped."""
    left = 0
    ended = False
    line = bytearray()
    for piece in sent:
        while piece and not ended:
            if left:
                yield piece[:left]
                taken = min(left, len(piece))
                left -= taken
                piece = piece[taken:]
                continue
            line.append(piece[0])
            piece = piece[1:]
            if line.endswith(b"\n"):
                size = line.partition(b";")[0].strip()  # empty: the end of the chunk before
                line.clear()
                left = int(size or b"0", 16)
                ended = bool(size) and not left

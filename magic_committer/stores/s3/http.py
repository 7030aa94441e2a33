"""HTTP/1.1 over connections of our own: one state machine, and what waits for its socket.

`Connection.exchange` is one request and its answer, from the connection to the last byte. It is a
generator: it yields what it waits for (`Waits`), and never waits by itself. Two things drive it:
`waited` in the calling thread, and `many.Loop` for many works of one thread. llhttp (httptools)
reads the answer.

Invariants:

* A request is sent **at most once**. A connection is looked at before it is used again; one that
  the server has closed, or on which it has said what nobody asked for, is not used.
* Whether the store may have got a request is always known (`Sent`): it got nothing as long as no
  byte was given to the kernel.
* An answer is whole, or it is a `NoAnswer`: its head has ended, within a limit, and its body has
  the length that the head promised. A connection is kept only after a whole answer to a whole
  request, with not a byte behind it.
* Every wait, also that of a send that blocks, ends within `SLICE_SECONDS`, and then looks at the
  request's `Deadline`, which is that of the whole request: no byte now and then keeps it open for
  ever.
* A connection belongs to the process that made it: a forked child closes those of its parent.
"""

from __future__ import annotations

import base64
import errno
import os
import selectors
import socket
import ssl
import struct
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import httptools

from magic_committer.runtime.threads import (
    BESIDE,
    SLICE_SECONDS,
    Errand,
    Future,
    of_handler,
    renewed_in_children,
)
from magic_committer.stores.base import FileSlice, PartBody

R = TypeVar("R")

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

DOCUMENT_BYTES_MAX = 16 * 1024**2
"""A longer answer that is not an object ends the request."""
HEAD_BYTES_MAX = 64 * 1024
RECEIVE_BYTES = 32 * 1024
SEALED_BYTES = 128 * 1024
"""So much is encrypted and sent at once."""
JOINED_BYTES_MAX = 64 * 1024
"""A body up to this size leaves in one packet with its head."""
IDLE_SECONDS_MAX = 15.0
"""A connection that was idle for longer is not used again: the server may be about to close it."""
ADDRESS_SECONDS = 30.0
"""How long addresses are used without asking again. Balancers change theirs every minute."""
OLD_ADDRESS_SECONDS = 300.0
"""How long they are used while we ask again."""
NEXT_ADDRESS_SECONDS = 2.0
"""After so long without a connection the next address is tried, if there is one."""
BYTES_PER_SECOND_MIN = 16 * 1024
"""Bytes that move add time: a faster transfer is never cut off, however large. 64 parts at once
over a line of 8 Mbit/s are faster."""
SIGN_OF_LIFE_BYTES = 256 * 1024
"""After this many moved bytes the store counts as not silent."""

_SLICE = struct.pack("ll", 0, int(SLICE_SECONDS * 1e6))  # a `timeval`
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # Windows has no poll
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError)
_HUNG_UP = (BrokenPipeError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_BODILESS = (204, 304)
"""Statuses of answers that have neither a body nor a length (RFC 9110)."""


class Sent(Enum):
    """Whether the store may have got a request."""

    NEVER = "never"  # not one byte of it left: it certainly took no effect
    PERHAPS = "perhaps"  # it may have arrived, as a whole or not
    ANSWERED = "answered"  # an answer began, and could not be read to its end


class Cause(Enum):
    """Why there is no answer."""

    CONNECT = "connect"  # no connection: name not known, refused, no route, or not in time
    PROXY = "proxy"  # the proxy refused, or could not be reached
    TLS = "tls"  # no encrypted connection, for another reason than the certificate
    CERTIFICATE = "certificate"  # the store's is not trusted, or is for another name
    PROXY_CERTIFICATE = "proxy's certificate"  # the same of the proxy's
    FULL = "full"  # this process has no descriptor left for a connection
    TIME = "time"  # the request's time was over, or its errand has ended
    BROKEN = "broken"  # the connection ended, or what came is not HTTP
    LIMIT = "limit"  # the answer's head is over its limit, or the body of what is no success
    CREDENTIALS = "credentials"  # there is nothing to sign with
    PARAMETER = "parameter"  # a parameter cannot be written in a request
    UNREADABLE = "unreadable"  # the answer is not from S3, or answers another request
    LARGE = "large"  # the store's answer is longer than allowed, and will be so the next time
    BODY = "body"  # its file is too short, or cannot be read: at most a part of it was sent


_CODES = {Cause.LARGE: "TooLarge", Cause.BODY: "IncompleteBody"}
"""For causes the codes that callers go by."""


class Failure(Exception):
    """Why a request has not succeeded: `NoAnswer`, or the store's refusal."""

    cause: Cause | None  # why there is no answer; None: it is the store's
    sent: Sent
    why: str  # in words; of a `NoAnswer` without secrets
    where: str  # the scheme, host and port of what was not reached
    status: int  # of the answer, as far as there was one
    code: str
    request_id: str = ""

    def __str__(self) -> str:
        return self.why or self.code


@dataclass(eq=False)
class NoAnswer(Failure):
    """A request that got no answer that can be used."""

    cause: Cause
    sent: Sent
    why: str
    where: str = ""
    status: int = 0

    def __post_init__(self) -> None:
        self.code = _CODES.get(self.cause, "")


def unwritten(why: str) -> NoAnswer:
    """The failure of what cannot be written in a request."""
    return NoAnswer(Cause.PARAMETER, Sent.NEVER, why)


class Origin(NamedTuple):
    """Where a server is. ``netloc`` is the ``Host`` header; ``host`` and ``port`` are connected
    to."""

    scheme: str
    netloc: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}"


@lru_cache(maxsize=256)
def origin_of(url: str) -> Origin:
    """The origin of a URL. Its port is named in ``netloc`` if it is not the scheme's own."""
    parts = urlsplit(url)
    own = 443 if parts.scheme == "https" else 80
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    port = parts.port or own
    return Origin(parts.scheme, name if port == own else f"{name}:{port}", host, port)


@dataclass(slots=True)
class HttpRequest:
    """A request that is complete: its target is quoted, and it is signed. Only ``Host`` and the
    length are added."""

    method: str
    origin: Origin
    target: str
    headers: list[tuple[str, str]]
    body: bytes | PartBody = b""  # must not change until the request has ended
    bytes_max: int = DOCUMENT_BYTES_MAX  # a longer body of a success is not read: `Answer.excess`


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    status: int  # never 1xx
    headers: dict[str, str]  # names in lower case; repeated ones are joined by ", "
    body: bytes  # decoded from chunks; never from an encoding
    until_close: bool = False  # it ended where the connection did: nothing else says it is whole
    excess: str = ""  # how long the body is, in words, if it was too long: then it was not read
    parsed: Mapping[str, Any] | None = None  # what the SDK read in it, of a rare operation


class Deadline:
    """When one try of one request ends, at the latest: after ``wait_seconds`` for one wait, for
    sending the whole body, and then for receiving the whole answer; and after ``left_seconds`` for
    all of it. Moved bytes add time, but to one wait, and ``alive`` is called now and then while
    they move. The request ends with the ``errand``, too."""

    __slots__ = ("_alive", "_ends", "_phase_ends", "_silence_ends", "_unsaid", "_wait", "errand")

    def __init__(
        self,
        wait_seconds: float,
        left_seconds: float,
        *,
        errand: Errand | None = None,
        alive: Callable[[], None] | None = None,
    ) -> None:
        now = monotonic()
        self._wait = wait_seconds
        self._silence_ends = self._phase_ends = now + wait_seconds
        self._ends = now + left_seconds
        self.errand = errand
        self._alive = alive
        self._unsaid = 0

    @property
    def left(self) -> float:
        """Seconds for the next wait. 0 or less: none."""
        return min(self._silence_ends, self._phase_ends, self._ends) - monotonic()

    def look(self) -> None:
        """Raise `TimeoutError` if the time is over, or the errand is."""
        if self.left <= 0 or (self.errand is not None and self.errand.over):
            raise TimeoutError("the request's time is over")

    def receives(self) -> None:
        """Note that the request is sent: from now on it waits for its answer."""
        self._silence_ends = self._phase_ends = monotonic() + self._wait

    def moved(self, count: int) -> None:
        """Note that ``count`` bytes were sent or received."""
        self._silence_ends = monotonic() + self._wait
        earned = count / BYTES_PER_SECOND_MIN
        self._phase_ends += earned
        self._ends += earned
        if self._alive is not None:
            self._unsaid += count
            if self._unsaid >= SIGN_OF_LIFE_BYTES:
                self._unsaid = 0
                self._alive()


# Networks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """How a process connects."""

    connect_seconds_max: float = 5.0  # for a connection to one address, and then for TLS
    idle_max: int = 64  # how many idle connections are kept
    tls: ssl.SSLContext | None = None  # None: no encrypted connections
    bundle: str = ""  # the file of the authorities that ``tls`` trusts
    proxy: str = ""  # its URL, with user and password if it needs them; "": none

    @property
    def proxy_header(self) -> str:
        """The header ``Proxy-Authorization`` as a line; "": none."""
        parts = urlsplit(self.proxy)
        if parts.username is None:
            return ""
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        coded = base64.b64encode(user.encode()).decode()
        return f"Proxy-Authorization: Basic {coded}\r\n"


Address = tuple[socket.AddressFamily, Any]
Place = tuple[str, int, int]
"""Host, port, and the process: in a forked child no thread of its parent looks up anything."""
_addresses: dict[Place, tuple[float, list[Address]]] = {}
_lookups: dict[Place, Future[None]] = {}


def _addresses_of(origin: Origin, deadline: Deadline) -> list[Address]:
    """Where a host listens. Another thread asks: neither a signal nor a deadline ends a lookup, and
    a loop has other requests. Meanwhile what was found before serves, unless it is old."""
    place = (origin.host, origin.port, os.getpid())
    at, found = _addresses.get(place, (0.0, []))
    age = monotonic() - at
    if found and age < ADDRESS_SECONDS:
        return found
    lookup = _lookups.get(place)
    if lookup is None or lookup.done():
        lookup = _lookups[place] = BESIDE.submit(partial(_look_up, place))
    if found and age < OLD_ADDRESS_SECONDS:
        return found
    while not lookup.wait(SLICE_SECONDS):
        deadline.look()
    if (error := lookup.exception()) is not None:
        raise OSError(getattr(error, "errno", None), str(getattr(error, "strerror", "") or error))
    return _addresses[place][1]


def _look_up(place: Place) -> None:
    found = socket.getaddrinfo(*place[:2], type=socket.SOCK_STREAM)
    _addresses[place] = monotonic(), [(family, address) for family, _, _, _, address in found]


# Answers ------------------------------------------------------------------------------------------


class _Reading:
    """One answer, as llhttp reads it. ``began``: a byte of it has come; ``in_head``: its head, that
    of what is no 1xx, is not whole; ``ended``: it is whole; ``spoilt``: bytes stand behind it."""

    def __init__(self, method: str, bytes_max: int) -> None:
        self.parser: Any = httptools.HttpResponseParser(self)
        self._bodiless = method in ("HEAD", "CONNECT")
        self._bytes_max = bytes_max
        self._bytes = self.head_bytes = 0

        self._pieces: list[bytes] = []
        self._goes_on = False
        self._answer = Answer(0, {}, b"")
        self.in_head = True
        self.began = self.ended = self.spoilt = False

    def feed(self, piece: bytes) -> None:
        """Read on. Raises `ValueError` with the reason: what came is no answer."""
        self.began = True
        if self.in_head:
            self.head_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            raise ValueError("what came is not HTTP/1.1 any more") from None
        except httptools.HttpParserError as error:
            why = error.__context__ or error
            if not isinstance(why, Exception):  # Ctrl-C in a callback
                raise why.with_traceback(None) from None
            raise ValueError(f"what came is not HTTP: {str(why)[:80]}") from None
        if self.in_head and self.head_bytes > HEAD_BYTES_MAX:
            raise ValueError("the answer's head is too long")

    def hangs_up(self) -> None:
        """Note that the server has closed its side. Raises `ValueError`: the answer is cut."""
        if self._answer.until_close:
            self.ended = True
            return
        if not self.began:
            raise ValueError("the connection ended without an answer")
        where = "head" if self.in_head else f"body, after {self._bytes} bytes"
        raise ValueError(f"the connection ended in the answer's {where}")

    def answer(self) -> Answer:
        """The whole answer."""
        pieces = self._pieces
        self._answer.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return self._answer

    @property
    def keeps_open(self) -> bool:
        """Whether the connection may be used again."""
        return self._goes_on and not self.spoilt

    # What llhttp calls

    def on_message_begin(self) -> None:
        if self.ended:
            self.spoilt = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else it is of another answer, or behind the chunks
            headers, named, text = self._answer.headers, _named(name), value.decode("latin-1")
            headers[named] = f"{headers[named]}, {text}" if named in headers else text

    def on_headers_complete(self) -> None:
        if self.ended:
            return
        parser, answer = self.parser, self._answer
        status = answer.status = parser.get_status_code()
        version = parser.get_http_version()
        if version not in ("1.1", "1.0") or not 100 <= status <= 599:
            raise ValueError(f"HTTP/{version} {status}")
        if status < 200:  # what comes next is the answer
            answer.headers.clear()
            return
        self.in_head = False
        self._goes_on = parser.should_keep_alive()
        headers = answer.headers
        if self._bodiless:  # of which the parser does not know: it waits for the server's end
            kept = headers.get("connection", "").lower()
            self._goes_on = "close" not in kept and (version == "1.1" or "keep-alive" in kept)
            self.ended = True
            return
        if status != 200:
            self._bytes_max = max(self._bytes_max, DOCUMENT_BYTES_MAX)
        length = int(headers.get("content-length", 0))
        if length > self._bytes_max:
            self._is_too_long(f"{length} bytes, over {self._bytes_max}")
        answer.until_close = (
            "content-length" not in headers
            and "chunked" not in headers.get("transfer-encoding", "").lower()
            and status not in _BODILESS
        )

    def on_body(self, body: bytes) -> None:
        if self.ended:
            self.spoilt = True
            return
        self._bytes += len(body)
        self._pieces.append(body)
        if self._bytes > self._bytes_max:
            self._is_too_long(f"more than {self._bytes_max} bytes")

    def _is_too_long(self, why: str) -> None:
        """The body is not read on, and the connection not used again."""
        self._answer.excess = why
        self.ended = self.spoilt = True
        self._pieces = []

    def on_message_complete(self) -> None:
        self.ended = self.ended or not self.in_head


@lru_cache(maxsize=256)
def _named(said: bytes) -> str:
    """A header's name: it has no case."""
    return said.decode("latin-1").lower()


# Connections --------------------------------------------------------------------------------------

Waits = Generator["tuple[Connection, int] | float", int, R]
"""A work that waits for connections, and for time. It yields a connection with what its socket must
be ready for, and is sent what that is ready for: 0 or None after a slice; or it yields seconds."""


class _Tls:
    """A socket that encrypts. Many records leave in one send: `ssl.SSLSocket` gives each record of
    16 KiB to the kernel by itself, and lets other threads run between them."""

    def __init__(self, sock: socket.socket | _Tls, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._from, self._to, server_hostname=host)
        self._left = memoryview(b"")  # of what is encrypted
        self._sealed = 0
        self.fileno: Callable[[], int] = sock.fileno
        self.close: Callable[[], None] = sock.close
        self.setblocking: Callable[[bool], None] = sock.setblocking

    def do_handshake(self) -> None:
        """Go on with the handshake, until it must wait for the socket."""
        while True:
            try:
                self._tls.do_handshake()
                return self._flush()
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # shows the server why
                raise

    def send(self, view: memoryview) -> int:
        """Encrypt and send the first bytes of ``view``; give how many. Raises `BlockingIOError`: it
        must be called again, with the same bytes."""
        if not self._left:
            view = view[:SEALED_BYTES]
            while self._sealed < len(view):
                self._sealed += self._tls.write(view[self._sealed :])
        self._flush()
        sealed, self._sealed = self._sealed, 0
        return sealed

    def recv(self, size: int) -> bytes:
        """Receive and decrypt. b"": the server has said that it says no more."""
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._fill()

    def _fill(self) -> None:
        try:
            piece = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if piece:
            self._from.write(piece)
        else:
            self._from.write_eof()

    def _flush(self) -> None:
        if not self._left:
            self._left = memoryview(self._to.read())
        while self._left:
            self._left = self._left[self._sock.send(self._left) :]


class Connection:
    """One connection, for one request after the other.

    Attributes:
        is_open: it may be used for another request.
        watched, number, wanted, flight: of a loop: the socket as its selector knows it, for what,
            and which work waits for it; None: it is idle.
    """

    __slots__ = (
        "__weakref__", "_fails", "_given", "_network", "_since", "flight", "is_open", "number",
        "origin", "sock", "wanted", "watched",
    )  # fmt: skip

    def __init__(self, network: Network, origin: Origin) -> None:
        self._network = network
        self.origin = origin
        self._given = self.wanted = self.number = 0
        self._fails: Cause | None = None  # while it opens: what it is if the present step fails
        self._since = 0.0
        self.sock: socket.socket | _Tls | None = None
        self.watched: socket.socket | _Tls | None = None
        self.is_open = False
        self.flight: Any = None
        renewed_in_children(self, Connection.close)  # it is its parent's, idle or not

    @property
    def is_quiet(self) -> bool:
        """Whether it may be used again: it is young, and the server has said and done nothing."""
        sock = self.sock
        if sock is None or not self.is_open or monotonic() - self._since >= IDLE_SECONDS_MAX:
            return False
        try:
            sock.recv(1)
        except _NOT_YET:
            return True
        except OSError:
            pass
        return False

    def wait(self, wanted: int, seconds: float = SLICE_SECONDS) -> int:
        """Wait until the socket is ready. Gives for what; 0: for nothing in that time."""
        assert self.sock is not None
        with _Selector() as selector:
            selector.register(self.sock.fileno(), wanted)
            return next((ready for _, ready in selector.select(seconds)), 0)

    def close(self) -> None:
        """Close it, of which the server hears nothing in a forked child. Repeatable."""
        self.is_open = False
        sock, self.sock = self.sock, None
        if sock is not None:
            sock.close()

    def exchange(
        self, request: HttpRequest, head: bytes, deadline: Deadline, lender: Http
    ) -> Waits[Answer]:
        """Send a request, at most once, and receive its answer; then give this connection back.
        Raises `NoAnswer`."""
        pieces = _pieces(head, request.body)
        reading = _Reading(request.method, request.bytes_max)
        self._given = 0
        before = sys.exception()
        is_new, self.is_open = not self.is_open, False  # until the answer is whole
        try:
            if is_new:
                yield from self._open(deadline)
                self._given = 0
            self._fails = None
            whole = yield from self._send(pieces, deadline, reading, lender.may_block)
            deadline.receives()
            yield from self._receive(deadline, reading, waits=whole)
            answer = reading.answer()
            if not whole and answer.status < 300:
                raise ValueError("a success came for a part of the request")
            self.is_open = whole and reading.keeps_open
            self._since = monotonic()
            return answer
        except (OSError, ValueError, EOFError) as error:
            if (interrupt := of_handler(error, before)) is not None:
                raise interrupt from None
            raise self._no_answer(error, reading) from None
        finally:
            reading.parser = None  # it holds the reading
            pieces.close()
            if not self.is_open:
                self.close()
            lender.give_back(self)

    def _no_answer(self, error: Exception, reading: _Reading) -> NoAnswer:
        cause, why = self._fails or Cause.BROKEN, _words(error)
        opens = self._fails is not None
        where = (origin_of(self._network.proxy) if cause is Cause.PROXY else self.origin).url
        sent = Sent.NEVER if opens or not self._given else Sent.PERHAPS
        if reading.began:
            sent = Sent.ANSWERED
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = Cause.PROXY_CERTIFICATE if cause is Cause.PROXY else Cause.CERTIFICATE
            said = f"certificate verify failed: {error.verify_message}"
            why = f"{said} (trusted are the authorities in {self._network.bundle})"
        elif isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            cause = Cause.FULL
        elif isinstance(error, EOFError):
            cause, where = Cause.BODY, ""
        elif reading.in_head and reading.head_bytes > HEAD_BYTES_MAX:
            cause = Cause.LIMIT
        elif isinstance(error, TimeoutError) and error.errno is None:  # ours, and not the system's
            cause, why = (cause, "no connection in time") if opens else (Cause.TIME, why)
        return NoAnswer(cause, sent, why, where)

    def _open(self, deadline: Deadline) -> Waits[None]:
        """Connect to the store or its proxy; tunnel and encrypt as the URL asks for it. Nothing of
        the request is sent."""
        proxy = self._network.proxy
        self._fails = Cause.PROXY if proxy else Cause.CONNECT
        place = origin_of(proxy) if proxy else self.origin
        yield from self._connect(place, deadline)
        if proxy and place.scheme == "https":
            yield from self._encrypt(place.host, deadline)
        if self.origin.scheme == "https":
            if proxy:
                yield from self._tunnel(deadline)
            self._fails = Cause.TLS
            yield from self._encrypt(self.origin.host, deadline)

    def _connect(self, place: Origin, deadline: Deadline) -> Waits[None]:
        code = 0
        addresses = _addresses_of(place, deadline)
        for number, (family, address) in enumerate(addresses, 1):
            seconds = self._network.connect_seconds_max
            if number < len(addresses):
                seconds = min(seconds, NEXT_ADDRESS_SECONDS)
            until = monotonic() + seconds
            sock = self.sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SLICE)
            code = sock.connect_ex(address)
            if code in (errno.EINPROGRESS, errno.EAGAIN, errno.EWOULDBLOCK):
                in_time = yield from self._ready(WRITE, until, deadline)
                code = errno.ETIMEDOUT
                if in_time:
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not code:
                return
            self.close()
        if code == errno.ETIMEDOUT:
            raise TimeoutError
        raise OSError(code, os.strerror(code)) if code else OSError("the name has no address")

    def _tunnel(self, deadline: Deadline) -> Waits[None]:
        """Ask the proxy for a tunnel to the store."""
        place, port = self.origin.netloc, f":{self.origin.port}"
        place = place if place.endswith(port) else place + port
        extra = self._network.proxy_header
        head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{extra}\r\n".encode("ascii")
        reading = _Reading("CONNECT", DOCUMENT_BYTES_MAX)
        try:
            yield from self._send((memoryview(head),), deadline, reading)
            yield from self._receive(deadline, reading, waits=True)
            status = reading.answer().status
            if status != 200 or reading.spoilt:
                raise ValueError(f"the proxy answered {status}")
        finally:
            reading.parser = None

    def _encrypt(self, host: str, deadline: Deadline) -> Waits[None]:
        until = monotonic() + self._network.connect_seconds_max
        tls, raw = self._network.tls, self.sock
        assert tls is not None
        assert raw is not None
        sock = self.sock = _Tls(raw, tls, host)
        while True:
            try:
                return sock.do_handshake()
            except ssl.SSLWantReadError:
                wanted = READ
            except BlockingIOError:
                wanted = WRITE
            if not (yield from self._ready(wanted, until, deadline)):
                raise TimeoutError

    def _ready(self, wanted: int, until: float, deadline: Deadline) -> Waits[bool]:
        """Wait for the socket until that time, at most."""
        while not (yield self, wanted):
            deadline.look()
            if monotonic() >= until:
                return False
        return True

    def _send(
        self,
        pieces: Iterable[memoryview],
        deadline: Deadline,
        reading: _Reading,
        may_block: bool = False,
    ) -> Waits[bool]:
        """Send a request. Gives whether all of it was sent: a server may answer early, and may hang
        up then. What it has said is read all the same."""
        sock = self.sock
        assert sock is not None
        encrypted = isinstance(sock, _Tls)  # it may send a part, and fail
        try:
            for piece in pieces:
                view = piece
                if may_block and len(view) > JOINED_BYTES_MAX:
                    sock.setblocking(True)
                while view:
                    try:
                        self._given += encrypted
                        count = sock.send(view)
                    except _NOT_YET:
                        ready = (yield self, READ | WRITE) or 0
                        if not ready & WRITE:
                            deadline.look()
                        if ready & READ and self._hear(reading):
                            return False
                        continue
                    self._given += count
                    deadline.moved(count)
                    view = view[count:]
        except _HUNG_UP:
            if not self._given:
                raise
            return False
        finally:
            if may_block:
                sock.setblocking(False)
        return True

    def _hear(self, reading: _Reading) -> bool:
        """Read what the server says while the body goes out. False: no answer yet, e.g. only TLS's
        own words, or a 100 that nobody asked for."""
        try:
            piece = self.sock.recv(RECEIVE_BYTES)  # type: ignore[union-attr]
        except _NOT_YET:
            return False
        if piece:
            reading.feed(piece)
        return not piece or not reading.in_head

    def _receive(self, deadline: Deadline, reading: _Reading, *, waits: bool) -> Waits[None]:
        """Receive an answer to its end. ``waits``: nothing of it can be there yet."""
        sock = self.sock
        assert sock is not None
        while not reading.ended:
            while waits and not (yield self, READ):
                deadline.look()
            try:
                piece = sock.recv(RECEIVE_BYTES)
            except _NOT_YET:
                waits = True
                continue
            except ssl.SSLEOFError:
                piece = b""
            waits = False
            if not piece:
                return reading.hangs_up()
            deadline.moved(len(piece))
            reading.feed(piece)


def _head_of(request: HttpRequest, network: Network) -> bytes:
    """The head of a request. Raises `NoAnswer`: a header would be something else."""
    body, method = request.body, request.method
    length = body.length if isinstance(body, FileSlice) else len(body)
    target, extra = request.target, ""
    if network.proxy and request.origin.scheme == "http":
        target = f"{request.origin.url}{target}"
        extra = network.proxy_header
    if length or method in ("PUT", "POST"):
        extra += f"Content-Length: {length}\r\n"
    named = "".join([f"{name}: {value}\r\n" for name, value in request.headers])
    text = f"{method} {target} HTTP/1.1\r\nHost: {request.origin.netloc}\r\n{extra}{named}\r\n"
    lines = len(request.headers) + 3 + extra.count("\r\n")
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        raise unwritten("the request has a line break where none can be")
    if not text.isascii():
        raise unwritten("the request's head has a character that is not ASCII")
    return text.encode("ascii")


def _pieces(head: bytes, body: bytes | PartBody) -> Generator[memoryview, None, None]:
    """The bytes of a request, its head first. Raises `EOFError`, as `look_at_file`."""
    if not isinstance(body, FileSlice):
        if len(body) <= JOINED_BYTES_MAX:
            yield memoryview(head + body if body else head)
        else:
            yield memoryview(head)
            yield memoryview(body)
        return
    left = body.length
    look_at_file(body)
    yield memoryview(head)
    try:
        for piece in body.pieces():
            left -= len(piece)
            yield memoryview(piece)
    except OSError as error:
        raise EOFError(f"the file cannot be read: {error}") from None
    if left:
        raise EOFError(f"the file lost {left} of the slice's {body.length} bytes")


def look_at_file(body: FileSlice) -> None:
    """Raise `EOFError` if the file ends before the slice does, or is not there."""
    try:
        held = os.stat(body.path).st_size - body.offset
    except OSError as error:
        raise EOFError(f"the file cannot be read: {error}") from None
    if held < body.length:
        raise EOFError(f"the file holds {max(held, 0)} of the slice's {body.length} bytes")


def _words(error: Exception) -> str:
    """Why there was no answer: in the system's words, otherwise in the library's."""
    said = (error.strerror if isinstance(error, OSError) else "") or str(error) or "no connection"
    return said[0].lower() + said[1:]


# Connections of a process -------------------------------------------------------------------------


def waited(work: Waits[R], sleeps: Callable[[float], object] = sleep) -> R:
    """Do a work, for which this thread waits."""
    try:
        wanted = next(work)
        while True:
            if isinstance(wanted, float):
                sleeps(wanted)
                ready = 0
            else:
                ready = wanted[0].wait(wanted[1])
            wanted = work.send(ready)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        work.close()  # a signal's exception may have come


class Http:
    """The connections of one process to one store. Safe for many threads; only lists are shared,
    whose methods need no lock.

    Attributes:
        may_block: nothing else waits in the thread that sends: a large body leaves in one call of
            the kernel, `SLICE_SECONDS` at a time.
    """

    may_block = _Selector is not selectors.SelectSelector  # Windows has no `timeval`

    def __init__(self, network: Network) -> None:
        self.network = network
        self._idle: dict[Origin, list[Connection]] = {}
        self._end = weakref.finalize(self, _close_all, self._idle)

    def close(self) -> None:
        """Close what is idle, and from now on what comes back."""
        self._end()

    def exchange(self, request: HttpRequest, deadline: Deadline) -> Waits[Answer]:
        """Send a request at most once, as `Connection.exchange`. Raises `NoAnswer` at once, before
        there is a connection: it cannot be written."""
        head = _head_of(request, self.network)
        return self.take(request.origin).exchange(request, head, deadline, self)

    def take(self, origin: Origin) -> Connection:
        """A connection that may be used, or a new one."""
        idle = self._idle.get(origin)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_quiet:
                return connection
            self.leave(connection)
        return Connection(self.network, origin)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for later, if it is open and there are not too many. One that is too
        old, which nobody would use, is closed for it."""
        if not connection.is_open:
            return
        idle = self._idle.setdefault(connection.origin, [])
        oldest = next(iter(idle), connection)
        if monotonic() - oldest._since >= IDLE_SECONDS_MAX:
            with suppress(ValueError):  # another thread was faster
                idle.remove(oldest)
                oldest.close()
        if len(idle) < self.network.idle_max and self._end.alive:
            idle.append(connection)
        else:
            connection.close()

    def leave(self, connection: Connection) -> None:
        """Close a connection that may not be used again."""
        connection.close()


def _close_all(idle: dict[Origin, list[Connection]]) -> None:
    for connections in list(idle.values()):
        while connections:
            connections.pop().close()

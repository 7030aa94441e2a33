"""HTTP by libcurl, in one thread: a loop that sends many requests at once. It knows nothing of S3.

What libcurl must be told, so that it is safe here (each was found by running it):

* **It sends a request again by itself** when a connection that was used before ends without an
  answer. A body that cannot be rewound, and `_prereq`, which allows one start, forbid it.
* It takes an answer whose head was cut off for a whole one. `_head` waits for the empty line.
* Its own wait is ``select``, which ends at descriptor 1023. The loop waits by the platform's
  selector, and tells libcurl which socket is ready.
* It reads proxies from the environment, and adds headers of its own. It is told otherwise.
* It keeps a connection that the server has spoilt. An answer that is not in order ends its
  connection (`_ended_head`).
* It copies a body once more, in a callback, while no other thread of Python may run. A large one in
  memory goes past it (`_goes_direct`): libcurl sends a request that has no body for it, waits for
  the answer and reads it; the loop writes the body to the socket meanwhile. Until all of it is
  written the connection is not to be used again.
* It uses a connection again, within a second, that the server has closed meanwhile, or on which it
  has said what nobody asked for. `_prereq` looks before anything is sent; the loop then sends on
  another connection.

Invariants:

* A `CurlLoop` belongs to one thread, from its making to its end. Only `wake` may be called by
  others. **That thread must not be the main thread**: what a signal handler raises in a callback
  would be printed by pycurl, and lost.
* A request keeps its `Deadline`: the loop looks at each one every `SLICE_SECONDS`.
* A request that has ended, for whatever reason, holds neither its body nor its file any more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import selectors
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from time import monotonic
from typing import Any

from magic_committer._libcurl import pycurl
from magic_committer._patience import SLICE_SECONDS
from magic_committer.stores.base import FileSlice, PartBody, Pieces
from magic_committer.stores.s3.http import Cause, HTTPAnswer, HTTPRequest, NoAnswer, Sent
from magic_committer.stores.s3.sockets import Deadline

UPLOAD_BUFFER_BYTES = 2 * 1024**2
"""How much of a body libcurl takes at a time: its greatest. Larger pieces save turns."""
SMALL_BUFFER_BYTES = 64 * 1024
"""The same for bodies that fit into it: memory for a larger one costs time."""
RECEIVE_BUFFER_BYTES = 128 * 1024
CONNECTION_IDLE_SECONDS_MAX = 15
"""A connection that was idle for longer is not used again: the server may be about to close it."""
DNS_SECONDS = 30
"""How long an address is used without asking again. Balancers change theirs every minute."""
HANDLES_MAX = 256
"""Handles that are kept for later requests."""

# pycurl does not name these, or not in all releases that we take (curl.h)
_E_PROXY = 97
_E_TOO_LARGE = 100
_SUPPRESS_CONNECT_HEADERS = 265
_DISALLOW_USERNAME_IN_URL = 278
_NO_PARTIALCHAIN = 1 << 2

LARGE_BODY_BYTES = 256 * 1024
"""From this size on a body is sent by a thread of its own, and past libcurl if that can be."""
BODILESS = (204, 304)
"""Statuses of answers that have neither a body nor a length (RFC 9110)."""
REFUSE = -1
"""What a callback returns to end the request and its connection."""
_NOTHING = Pieces(())
PIECES_MAX = 512
"""Pieces of a body that are sent by one call of the system, which takes 1,024 (POSIX: 16)."""
_EMPTY = (b"\r\n", b"\n")
_NOT_SENT = ["Expect:", "Accept:"]
"""Headers that libcurl would add."""
_FORBIDDEN = re.compile(r"[\r\n\0]")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: |\r?$)")
_USER = re.compile(r"//[^/\s]*@")
"""The user in a URL."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


if pycurl is not None:
    _MASKS = {
        pycurl.POLL_NONE: 0,
        pycurl.POLL_IN: selectors.EVENT_READ,
        pycurl.POLL_OUT: selectors.EVENT_WRITE,
        pycurl.POLL_INOUT: selectors.EVENT_READ | selectors.EVENT_WRITE,
    }
    _CAUSES = {
        pycurl.E_COULDNT_RESOLVE_HOST: Cause.CONNECT,
        pycurl.E_COULDNT_CONNECT: Cause.CONNECT,
        pycurl.E_OPERATION_TIMEDOUT: Cause.CONNECT,  # we set no other time of libcurl's
        pycurl.E_COULDNT_RESOLVE_PROXY: Cause.PROXY,
        _E_PROXY: Cause.PROXY,
        _E_TOO_LARGE: Cause.LIMIT,
        pycurl.E_SSL_CONNECT_ERROR: Cause.TLS,
        pycurl.E_SSL_CIPHER: Cause.TLS,
        pycurl.E_SSL_CERTPROBLEM: Cause.TLS,
        pycurl.E_SSL_CACERT_BADFILE: Cause.CERTIFICATE,
        pycurl.E_PEER_FAILED_VERIFICATION: Cause.CERTIFICATE,
        pycurl.E_SSL_ISSUER_ERROR: Cause.CERTIFICATE,
    }
    _WORDS = {  # where libcurl has none, or they may hold a secret
        _E_TOO_LARGE: "the answer has a header that is too long",
        pycurl.E_URL_MALFORMAT: "the URL cannot be read",
        pycurl.E_LOGIN_DENIED: "the URL has a user",
        pycurl.E_COULDNT_RESOLVE_PROXY: "the proxy's name is not known, or its URL is wrong",
    }


@dataclass(frozen=True, slots=True)
class CurlSettings:
    """How libcurl connects.

    Attributes:
        connect_seconds_max: for a connection, with its name lookup and TLS.
        connections_max: connections of one loop at a time, and how many idle ones it keeps.
        ca_file: PEM file of the authorities that are trusted; None: those libcurl was built with.
        verify: check the server's certificate.
        client_cert: PEM file of a certificate with its key, or (certificate, key); None: none.
        proxy: URL of a proxy, with its user and password if it needs them; None: none. The
            environment is never asked.
        proxy_ca_file, proxy_client_cert: as above, for a proxy that is reached by TLS.
        head_bytes_max: an answer with a longer head is not read.
        keepalive: ask the kernel to find dead connections.
    """

    connect_seconds_max: float = 10.0
    connections_max: int = 64
    ca_file: str | None = None
    verify: bool = True
    client_cert: str | tuple[str, str] | None = None
    proxy: str | None = None
    proxy_ca_file: str | None = None
    proxy_client_cert: str | tuple[str, str] | None = None
    head_bytes_max: int = 64 * 1024
    keepalive: bool = False


class Transfer:
    """One request on one of libcurl's handles. The handle, with most of its options, serves one
    request after the other: setting an option costs more than sending it.

    Attributes:
        easy: the handle.
        key: what the caller of the loop knows the request by.
        direct: the loop sends the body, by `send_to`, as soon as the head is sent.
        port: the local port of its connection; 0 before there is one.
        socket: on which the loop sends the body. None before, and once libcurl has closed it.

    Args:
        settings: how it connects.
        spoilt: whether the connection from that local port must not be used again.
    """

    def __init__(self, settings: CurlSettings, spoilt: Callable[[int], bool]) -> None:
        self.easy = _new_handle(settings)
        self._spoilt = spoilt
        self.easy.transfer = self
        for option, function in (
            (pycurl.HEADERFUNCTION, self._head),
            (pycurl.WRITEFUNCTION, self._write),
            (pycurl.READFUNCTION, self._read),
            (pycurl.PREREQFUNCTION, self._prereq),
        ):
            self.easy.setopt(option, function)
        self._head_bytes_max = settings.head_bytes_max
        self._through_proxy = settings.proxy is not None
        self._set: dict[int, Any] = {}
        self._lines: list[bytes] = []
        self._pieces: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        """Hold nothing of a request."""
        self.key: Any = None
        self._deadline: Deadline | None = None
        self._memory = _NOTHING
        self._file: int | None = None
        self._offset = self._length = self._read_bytes = 0
        self._sent_bytes = self._got_bytes = 0
        self._starts = self._status = self._head_bytes = self._body_bytes = 0
        self._lines = []
        self._pieces = []
        self._headers = {}
        self._refused: tuple[Cause, str] | None = None
        self._again = False
        self.direct = False
        self.port = 0
        self.socket: int | None = None

    def begin(self, key: Any, request: HTTPRequest, deadline: Deadline) -> None:
        """Prepare the handle for a request.

        Raises:
            ValueError: the request cannot be sent as HTTP. It was not sent.
            EOFError, OSError: the body's file is too short, or cannot be read. It was not sent.
        """
        lines = [f"{name}: {value}" if value else f"{name};" for name, value in request.headers]
        if _FORBIDDEN.search(" ".join(lines)):
            raise ValueError("a header has a line break")
        uploads = request.method in ("PUT", "POST")
        self._open(request.body)
        if self._length and not uploads:
            self.end()
            raise ValueError(f"{request.method} has no body")
        self.key = key
        self._deadline = deadline
        self._answer_bytes_max = request.answer_bytes_max
        self._bodiless = request.method == "HEAD"
        self.direct = self._goes_direct(request)
        if self.direct:  # libcurl sends the head, and believes that this is all
            uploads = False
            lines.append(f"Content-Length: {self._length}")
        if uploads != self._set.get(pycurl.UPLOAD) or self._bodiless != self._set.get(
            pycurl.NOBODY
        ):
            self._set_kind(uploads)
        self._put(pycurl.CUSTOMREQUEST, request.method)
        self._put(pycurl.FORBID_REUSE, int(self.direct))
        if uploads:
            self._put(pycurl.INFILESIZE_LARGE, self._length)
            small = self._length <= SMALL_BUFFER_BYTES
            self._put(
                pycurl.UPLOAD_BUFFERSIZE, SMALL_BUFFER_BYTES if small else UPLOAD_BUFFER_BYTES
            )
        self.easy.setopt(pycurl.URL, request.url)
        self.easy.setopt(pycurl.HTTPHEADER, lines + _NOT_SENT)

    def _goes_direct(self, request: HTTPRequest) -> bool:
        """Whether the loop sends the body itself: it is large and in memory, and nothing stands
        between it and the socket, neither TLS nor a proxy. libcurl would copy all of it once more,
        while no other thread may run."""
        return (
            self._length >= LARGE_BODY_BYTES
            and self._file is None
            and not self._through_proxy
            and request.url.startswith("http://")
        )

    def send_to(self, fd: int) -> bool:
        """Send as much of the body as the socket takes. Gives whether there is more to send.

        A server that answers early, and closes, ends the sending. libcurl reads what it said.
        """
        try:
            self._read_bytes += _send(fd, self._memory.since(self._read_bytes)[:PIECES_MAX])
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self._read_bytes < self._length:
            return True
        self._put(pycurl.FORBID_REUSE, 0)
        return False

    def _set_kind(self, uploads: bool) -> None:
        self.easy.setopt(pycurl.NOBODY, 0)
        if uploads:
            self.easy.setopt(pycurl.UPLOAD, 1)
        else:
            self.easy.setopt(pycurl.HTTPGET, 1)
        if self._bodiless:
            self.easy.setopt(pycurl.NOBODY, 1)
        self._set = {pycurl.UPLOAD: uploads, pycurl.NOBODY: self._bodiless}

    def _put(self, option: int, value: Any) -> None:
        if self._set.get(option) != value:
            self.easy.setopt(option, value)
            self._set[option] = value

    def _open(self, body: bytes | PartBody) -> None:
        if not isinstance(body, FileSlice):
            self._memory = Pieces.of(body)
            self._length = self._memory.nbytes
            return
        file = os.open(body.path, os.O_RDONLY | os.O_CLOEXEC)
        held = os.fstat(file).st_size - body.offset
        if held < body.length:
            os.close(file)
            raise EOFError(f"the file holds {max(held, 0)} of the slice's {body.length} bytes")
        self._file, self._offset, self._length = file, body.offset, body.length

    def end(self) -> None:
        """Let go of the body, the file and the answer."""
        if self._file is not None:
            os.close(self._file)
        self._forget()

    def close(self) -> None:
        """Free the handle. It is used no more."""
        self.end()
        del self.easy.transfer
        self.easy.close()

    # What libcurl calls ---------------------------------------------------------------------------

    def _prereq(self, _peer: str, _here: str, _peer_port: int, port: int) -> int:
        """A request is about to be sent. The second time it would be sent twice."""
        if not self._starts and self._spoilt(port):
            self._again = True
            return int(pycurl.PREREQFUNC_ABORT)
        self._starts += 1
        self.port = port
        if self._starts > 1:
            return int(pycurl.PREREQFUNC_ABORT)
        return int(pycurl.PREREQFUNC_OK)

    def goes_again(self) -> bool:
        """Whether nothing was sent, because the connection was spoilt: it may be sent on another
        one, which ends this one."""
        again, self._again = self._again and not self._starts, False
        return again

    def _read(self, size: int) -> bytes | memoryview | int:
        """The next piece of the body. libcurl copies it."""
        begin = self._read_bytes
        if self._file is None:
            views = self._memory.since(begin)
            piece = views[0][:size] if views else b""
            self._read_bytes = begin + len(piece)
            return piece
        end = min(begin + size, self._length)
        try:
            held = os.pread(self._file, end - begin, self._offset + begin)
        except OSError as error:
            self._refused = Cause.BROKEN, f"the body cannot be read: {error.strerror}"
            return int(pycurl.READFUNC_ABORT)
        if begin < end and not held:
            self._refused = Cause.BROKEN, "the body's file has become shorter"
            return int(pycurl.READFUNC_ABORT)
        self._read_bytes = begin + len(held)
        return held

    def _head(self, line: bytes) -> int | None:
        """A line of the answer's head, of one before it (1xx), or a trailer."""
        self._head_bytes += len(line)
        if self._head_bytes > self._head_bytes_max:
            self._refused = Cause.LIMIT, f"a head of more than {self._head_bytes_max} bytes"
            return REFUSE
        self._lines.append(line)
        if line in _EMPTY and not self._status:
            return self._ended_head()
        return None

    def _ended_head(self) -> int | None:
        lines, self._lines = self._lines, []
        try:
            status, headers = read_head(lines)
            if status >= 200:
                check_framing(status, headers, bodiless=self._bodiless)
        except ValueError as error:
            self._lines = lines
            self._refused = Cause.BROKEN, str(error)
            return REFUSE
        if status >= 200:
            self._status, self._headers = status, headers
        return None

    def _write(self, piece: bytes) -> int | None:
        """A piece of the answer's body."""
        self._body_bytes += len(piece)
        if self._body_bytes > self._answer_bytes_max:
            self._refused = Cause.LIMIT, f"an answer of more than {self._answer_bytes_max} bytes"
            return REFUSE
        self._pieces.append(piece)
        return None

    # What the loop asks ---------------------------------------------------------------------------

    def look(self) -> None:
        """Tell the deadline what has moved, and ask it. Until the whole body is sent only the body
        counts: a server that answers before it has read all may not buy itself time with single
        bytes, nor with those of the body.

        Raises:
            TimeoutError: the time is over.
        """
        assert self._deadline is not None, "no request"
        if self.direct:
            sent = self._read_bytes - (_unsent(self.socket) if self.socket is not None else 0)
        else:
            sent = int(self.easy.getinfo(pycurl.SIZE_UPLOAD_T))
        if sent > self._sent_bytes:
            self._deadline.moved(sent - self._sent_bytes)
            self._sent_bytes = sent
        if self._starts and sent >= self._length:
            self._deadline.receives()
            got = self._head_bytes + int(self.easy.getinfo(pycurl.SIZE_DOWNLOAD_T))
            if got > self._got_bytes:
                self._deadline.moved(got - self._got_bytes)
                self._got_bytes = got
        self._deadline.slice()

    def sent(self) -> Sent:
        """Whether the server may have got the request, if there is no answer."""
        if self._status or (self._lines and self._lines[0].startswith(b"HTTP/")):
            return Sent.ANSWERED
        if self._starts or self._read_bytes:
            return Sent.PERHAPS
        return Sent.NEVER

    def answer(self) -> HTTPAnswer | NoAnswer:
        """What libcurl takes for a success."""
        if not self._status:
            return NoAnswer(Cause.BROKEN, self.sent(), "the connection ended in the answer's head")
        if self.direct and self._read_bytes < self._length and self._status < 300:
            why = "the answer says yes, and came before the whole body was sent"
            return NoAnswer(Cause.BROKEN, Sent.ANSWERED, why)
        length = self._headers.get("content-length")
        has_body = not self._bodiless and self._status not in BODILESS
        if has_body and length is not None and self._body_bytes != int(length):
            why = f"{self._body_bytes} bytes came of an answer of {length}"
            return NoAnswer(Cause.BROKEN, Sent.ANSWERED, why)
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        reused = self.easy.getinfo(pycurl.NUM_CONNECTS) == 0
        return HTTPAnswer(self._status, self._headers, body, reused)

    def failure(self, code: int, said: str) -> NoAnswer:
        """What libcurl takes for a failure.

        Args:
            code: libcurl's.
            said: its words.
        """
        sent = self.sent()
        if self._refused is not None:
            cause, why = self._refused
            return NoAnswer(cause, sent, why)
        if self._starts > 1:
            return NoAnswer(Cause.BROKEN, sent, "the connection was closed without an answer")
        cause = _CAUSES.get(code, Cause.BROKEN)
        if sent is Sent.NEVER and cause in (Cause.BROKEN, Cause.CONNECT):
            cause = Cause.PROXY if self._through_proxy else Cause.CONNECT
        words = _WORDS.get(code) or _USER.sub("//", said) or f"libcurl error {code}"
        if code == pycurl.E_COULDNT_CONNECT and (number := self.easy.getinfo(pycurl.OS_ERRNO)):
            system = os.strerror(number)
            words = system[0].lower() + system[1:]
        return NoAnswer(cause, sent, words)


def _send(fd: int, views: list[memoryview]) -> int:
    """Send as many bytes as the socket takes now. ``os.writev`` would end a program that takes
    SIGPIPE as it comes, when the server has closed."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        sock.settimeout(0)  # the program may have set another default
        return sock.sendmsg(views, (), socket.MSG_NOSIGNAL)
    finally:
        sock.detach()


def _unsent(fd: int) -> int:
    """Bytes that the system has taken, and the other end has not: megabytes, which a slow server
    reads for longer than it may take to answer. 0 where the system does not tell (not Linux)."""
    if sys.platform != "linux":
        return 0
    (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))
    return int(count)


def _pair(cert: str | tuple[str, str]) -> tuple[str, str]:
    return (cert, cert) if isinstance(cert, str) else cert


def _new_handle(settings: CurlSettings) -> Any:
    """A handle with the options that all requests have."""
    options: dict[int, Any] = {
        pycurl.NOSIGNAL: 1,
        pycurl.PATH_AS_IS: 1,
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
        pycurl.HTTP09_ALLOWED: 0,
        pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.HTTP_CONTENT_DECODING: 0,
        _DISALLOW_USERNAME_IN_URL: 1,
        pycurl.USERAGENT: "",
        pycurl.TCP_NODELAY: 1,
        pycurl.TCP_KEEPALIVE: int(settings.keepalive),
        pycurl.CONNECTTIMEOUT_MS: max(1, round(settings.connect_seconds_max * 1000)),
        pycurl.MAXAGE_CONN: CONNECTION_IDLE_SECONDS_MAX,
        pycurl.DNS_CACHE_TIMEOUT: DNS_SECONDS,
        pycurl.BUFFERSIZE: RECEIVE_BUFFER_BYTES,
        pycurl.PROXY: settings.proxy or "",
        pycurl.NOPROXY: "",
        pycurl.PROXYAUTH: pycurl.HTTPAUTH_BASIC,
        _SUPPRESS_CONNECT_HEADERS: 1,
        pycurl.SSL_VERIFYPEER: int(settings.verify),
        pycurl.SSL_VERIFYHOST: 2 if settings.verify else 0,
        pycurl.SSL_OPTIONS: _NO_PARTIALCHAIN,  # as the SDK: up to the root
    }
    easy = pycurl.Curl()
    if settings.ca_file is not None:
        options[pycurl.CAINFO] = settings.ca_file
        # Nobody else is trusted: pycurl, or who built libcurl, may have named the system's folder.
        easy.unsetopt(pycurl.CAPATH)
    if settings.client_cert is not None:
        options[pycurl.SSLCERT], options[pycurl.SSLKEY] = _pair(settings.client_cert)
    if settings.proxy_ca_file is not None:
        options[pycurl.PROXY_CAINFO] = settings.proxy_ca_file
    if settings.proxy_client_cert is not None:
        cert, key = _pair(settings.proxy_client_cert)
        options[pycurl.PROXY_SSLCERT], options[pycurl.PROXY_SSLKEY] = cert, key
    for option, value in options.items():
        easy.setopt(option, value)
    return easy


def read_head(lines: list[bytes]) -> tuple[int, dict[str, str]]:
    """The status and the headers of a head, which ends with an empty line. Pure.

    Raises:
        ValueError: it is not in order.
    """
    status = _STATUS.match(lines[0])
    if status is None:
        raise ValueError("the answer does not begin with a status of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:-1]:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise ValueError("the answer has a header without a name")
        name, value = name.lower(), value.strip(" \t\r\n")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(status[1]), headers


def check_framing(status: int, headers: Mapping[str, str], *, bodiless: bool) -> None:
    """Check that a head says in one way how long its body is. Pure.

    Raises:
        ValueError: it does not. Two programs would read two answers from it.
    """
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise ValueError("the answer has a length that is not one number")
    if coding is not None and (length is not None or coding.lower() != "chunked"):
        raise ValueError("the answer says in two ways, or in an unknown way, how long it is")
    if length is None and coding is None and not bodiless and status not in BODILESS:
        raise ValueError("the answer does not say how long it is")


class CurlLoop:
    """Sends requests, many at once, in the thread that calls `turn`.

    Args:
        settings: how it connects.
        inbox: while something is in it, `turn` does not wait.
    """

    def __init__(self, settings: CurlSettings, inbox: Sized = ()) -> None:
        self._settings = settings
        self._inbox = inbox
        try:
            self._multi = pycurl.CurlMulti()
        except pycurl.error as error:  # it has a pair of sockets
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_NOTHING)
        self._multi.setopt(pycurl.M_MAXCONNECTS, settings.connections_max)
        self._selector = selectors.DefaultSelector()
        self._awake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._watched: set[int] = set()
        self._unsent: list[Transfer] = []  # whose body the loop sends, once the head is sent
        self._bodies: dict[int, Transfer] = {}  # by sockets: those that it sends, to their end
        self._sockets: dict[int, int] = {}  # by local ports
        self._served: set[int] = set()  # local ports of connections that had a request
        self._asleep = False
        self._idle_since = monotonic()
        self._timer_at: float | None = None
        self._look_at = 0.0
        self._running = 0
        self._active: dict[Any, Transfer] = {}
        self._waiting: dict[Any, tuple[HTTPRequest, Deadline]] = {}
        self._free: deque[Transfer] = deque(maxlen=HANDLES_MAX)
        self._ended: list[tuple[Any, HTTPAnswer | Exception]] = []
        self._failed: Exception | None = None

    def __len__(self) -> int:
        """How many requests have not ended."""
        return len(self._active) + len(self._waiting)

    @property
    def idle_seconds(self) -> float:
        """For how long there has been no request."""
        return 0.0 if len(self) else monotonic() - self._idle_since

    def start(self, key: Any, request: HTTPRequest, deadline: Deadline) -> None:
        """Send a request, or let it wait for a connection. `turn` gives its outcome."""
        if len(self._active) >= self._settings.connections_max:
            self._waiting[key] = request, deadline
            return
        transfer = self._free.pop() if self._free else Transfer(self._settings, self._spoilt)
        try:
            transfer.begin(key, request, deadline)
        except Exception as error:
            self._free.append(transfer)
            self._ended.append((key, error))
            return
        if not self._active:
            self._look_at = monotonic() + SLICE_SECONDS
        self._active[key] = transfer
        if transfer.direct:
            self._unsent.append(transfer)
        self._multi.add_handle(transfer.easy)
        self._running += 1

    def cancel(self, key: Any) -> None:
        """End a request at once, if it has not ended. `turn` gives its outcome."""
        if self._waiting.pop(key, None) is not None:
            self._ended.append((key, NoAnswer(Cause.TIME, Sent.NEVER, "the request was given up")))
        elif key in self._active:
            self._give_up(self._active[key], "the request was given up")

    def turn(self, seconds_max: float) -> list[tuple[Any, HTTPAnswer | Exception]]:
        """Wait until something happens, and do what there is to do.

        Args:
            seconds_max: for the wait.

        Returns:
            The requests that have ended: their keys, each with its answer, or with a `NoAnswer`, or
            with the error for which it was not sent.
        """
        seconds = self._wait_seconds(seconds_max)
        self._asleep = True
        ready_now = self._selector.select(0 if self._inbox else seconds)
        self._asleep = False
        for ready, mask in ready_now:
            if ready.fd == self._awake:
                self._rest()
                continue
            if mask & selectors.EVENT_WRITE and (body := self._bodies.get(ready.fd)) is not None:
                if not body.send_to(ready.fd):
                    self._selector.modify(ready.fd, selectors.EVENT_READ)
                mask &= ~selectors.EVENT_WRITE
            if mask:
                self._act(ready.fd, mask)
        now = monotonic()
        if self._timer_at is not None and now >= self._timer_at:
            self._timer_at = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)
        if self._running < len(self._active):
            self._collect()
        if self._active and now >= self._look_at:
            self._look_at = now + SLICE_SECONDS
            self._look()
        while self._waiting and len(self._active) < self._settings.connections_max:
            key = next(iter(self._waiting))
            self.start(key, *self._waiting.pop(key))
        if self._failed is not None:
            raise self._failed
        ended, self._ended = self._ended, []
        return ended

    def wake(self) -> None:
        """End a wait of `turn`, from another thread, which has put something into the inbox."""
        if not self._asleep:
            return
        self._asleep = False
        try:
            os.write(self._waker, b"w")
        except BlockingIOError:
            return  # it is full of such calls

    def close(self) -> None:
        """Cancel everything and close all connections."""
        for transfer in self._active.values():
            self._multi.remove_handle(transfer.easy)
            transfer.close()
        for transfer in self._free:
            transfer.close()
        self._active.clear()
        self._free.clear()
        self._waiting.clear()
        self._multi.close()
        self._selector.close()
        os.close(self._awake)
        os.close(self._waker)

    # What libcurl calls ---------------------------------------------------------------------------

    def _watch(self, what: int, fd: int, *_: object) -> None:
        """libcurl wants to know when a socket is ready, or no more."""
        try:
            if what == pycurl.POLL_REMOVE:
                if (body := self._bodies.pop(fd, None)) is not None:
                    body.socket = None
                if fd in self._watched:
                    self._watched.discard(fd)
                    self._selector.unregister(fd)
                return
            mask = _MASKS[what]
            if what == pycurl.POLL_IN and self._direct_on(fd):  # the head is sent
                mask |= selectors.EVENT_WRITE
            if fd in self._watched:
                self._selector.modify(fd, mask)
            else:
                if what != pycurl.POLL_IN:  # it may be new
                    self._meet(fd)
                self._selector.register(fd, mask)
                self._watched.add(fd)
        except Exception as error:
            self._failed = error

    def _direct_on(self, fd: int) -> bool:
        """Whether a body is to be sent on this socket, on which libcurl now waits for an answer."""
        for transfer in self._unsent:
            if not transfer.port:  # it has no connection yet: this is libcurl's own
                continue
            self._meet(fd)
            if self._sockets.get(transfer.port) == fd:
                self._bodies[fd] = transfer
                transfer.socket = fd
                self._unsent.remove(transfer)
                break
        return fd in self._bodies

    def _meet(self, fd: int) -> None:
        """Note the local port of a socket."""
        met = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
        try:
            port = met.getsockname()[1]
        finally:
            met.detach()
        if self._sockets.get(port) != fd:
            self._sockets[port] = fd
            self._served.discard(port)

    def _spoilt(self, port: int) -> bool:
        """Whether a connection that had a request before has something to read now: its end, or
        what nobody asked for."""
        if port not in self._served:
            self._served.add(port)
            return False
        look = select.poll()
        look.register(self._sockets[port], select.POLLIN)
        return bool(look.poll(0))

    def _set_timer(self, milliseconds: int) -> None:
        self._timer_at = None if milliseconds < 0 else monotonic() + milliseconds / 1000

    # The loop's steps -----------------------------------------------------------------------------

    def _wait_seconds(self, seconds_max: float) -> float:
        if self._ended or self._running < len(self._active):
            return 0.0
        now = monotonic()
        if self._active:
            seconds_max = min(seconds_max, self._look_at - now)
        if self._timer_at is not None:
            seconds_max = min(seconds_max, self._timer_at - now)
        return max(0.0, seconds_max)

    def _rest(self) -> None:
        try:
            while os.read(self._awake, 4096):
                continue
        except BlockingIOError:
            return

    def _act(self, fd: int, mask: int) -> None:
        bits = 0
        if mask & selectors.EVENT_READ:
            bits |= pycurl.CSELECT_IN
        if mask & selectors.EVENT_WRITE:
            bits |= pycurl.CSELECT_OUT
        _, self._running = self._multi.socket_action(fd, bits)

    def _collect(self) -> None:
        while True:
            more, good, bad = self._multi.info_read(len(self._active))
            for easy in good:
                transfer = easy.transfer
                self._end(transfer, transfer.answer())
            for easy, code, said in bad:
                transfer = easy.transfer
                if transfer.goes_again():
                    self._multi.remove_handle(easy)
                    self._multi.add_handle(easy)
                    self._running += 1
                else:
                    self._end(transfer, transfer.failure(code, said))
            if not more:
                return

    def _end(self, transfer: Transfer, outcome: HTTPAnswer | NoAnswer) -> None:
        if transfer.direct:
            self._unsent = [one for one in self._unsent if one is not transfer]
            self._bodies = {fd: one for fd, one in self._bodies.items() if one is not transfer}
        self._multi.remove_handle(transfer.easy)
        key = transfer.key
        del self._active[key]
        transfer.end()
        self._free.append(transfer)
        self._ended.append((key, outcome))
        if not self._active:
            self._idle_since = monotonic()

    def _give_up(self, transfer: Transfer, why: str) -> None:
        self._end(transfer, NoAnswer(Cause.TIME, transfer.sent(), why))
        self._running -= 1

    def _look(self) -> None:
        """End what has no more time."""
        for transfer in tuple(self._active.values()):
            try:
                transfer.look()
            except TimeoutError as error:
                self._give_up(transfer, str(error))
        for key, (_, deadline) in tuple(self._waiting.items()):
            try:
                deadline.slice()
            except TimeoutError as error:
                del self._waiting[key]
                self._ended.append((key, NoAnswer(Cause.TIME, Sent.NEVER, str(error))))

"""Sockets that keep the deadline of a whole request. The SDK's time-outs are those of one ``recv``.

`Deadline.during` holds in the thread that sends the request: no ``send`` and no ``recv`` of that
thread waits longer than it says. So a reply that sends a byte now and then ends, and a request of
an errand that has ended (`_patience`) ends within a slice. Threads share nothing here: there is no
watchdog, and no socket is closed while another thread uses it.

The SDK offers no way to pass in a connection. `install` puts ours into the table from which its
HTTP session makes connections, client by client; other users of the SDK keep theirs. The sockets
are the system's own, with four methods that wait in slices.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import botocore
from botocore import awsrequest

from magic_committer._patience import SLICE_SECONDS, Errand

R = TypeVar("R")

BYTES_PER_SECOND_MIN = 16 * 1024
"""Bytes that move add time: a faster transfer is never cut off, however large. 64 parts at once
over a line of 8 Mbit/s are faster."""
SIGN_OF_LIFE_BYTES = 256 * 1024
"""After this many moved bytes the store counts as not silent."""
WAIT_SECONDS_MIN = 0.001

_log = logging.getLogger("magic_committer")


class Deadline:
    """When one try of one request ends, at the latest.

    Args:
        wait_seconds: for one ``send`` or ``recv``; for sending the whole body; and then for
            receiving the whole answer. Moved bytes add time to the last two.
        left_seconds: for all of it. Moved bytes add time.
        errand: the request ends when the errand ends.
        alive: called now and then while bytes move.
    """

    def __init__(
        self,
        wait_seconds: float,
        left_seconds: float,
        *,
        errand: Errand | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._wait = wait_seconds
        self._begun = self._moved_at = monotonic()
        self._until = self._begun + left_seconds
        self._errand = errand
        self._alive = alive
        self._receiving = False
        self._earned = self._earned_before = 0.0
        self._unsaid = 0

    @contextmanager
    def during(self) -> Iterator[None]:
        """What this thread sends and receives in the block keeps the deadline."""
        before = getattr(_of_thread, "deadline", None)
        _of_thread.deadline = self
        try:
            yield
        finally:
            _of_thread.deadline = before

    @property
    def left(self) -> float:
        """Seconds for the next ``send`` or ``recv``. 0 or less: none."""
        ends = min(
            self._moved_at + self._wait,
            self._begun + self._wait + self._earned,
            self._until + self._earned_before + self._earned,
        )
        return ends - monotonic()

    def slice(self) -> float:
        """Seconds until the next look.

        Raises:
            TimeoutError: the time is over.
        """
        left = self.left
        if left <= 0 or (self._errand is not None and self._errand.over):
            raise TimeoutError("the request's time is over")
        return max(WAIT_SECONDS_MIN, left if self._errand is None else min(left, SLICE_SECONDS))

    def receives(self) -> None:
        """Note that the request is sent: from now on the thread waits for the answer."""
        if not self._receiving:
            self._receiving = True
            self._begun = self._moved_at = monotonic()
            self._earned_before, self._earned = self._earned, 0.0

    def moved(self, count: int) -> None:
        """Note that so many bytes were sent or received."""
        self._moved_at = monotonic()
        self._earned += count / BYTES_PER_SECOND_MIN
        self._unsaid += count
        if self._unsaid >= SIGN_OF_LIFE_BYTES:
            self._unsaid = 0
            self._alive()


_of_thread = threading.local()


def deadline() -> Deadline | None:
    """The deadline that this thread keeps now; None: none."""
    found: Deadline | None = getattr(_of_thread, "deadline", None)
    return found


def _in_slices(sock: socket.socket, step: Callable[[], R], *, receiving: bool) -> R:
    """Do one step of a socket, for as long as the deadline says. A step that has timed out has
    moved nothing. It is done again with the same arguments, as TLS needs it."""
    kept = deadline()
    if kept is None:
        return step()
    if receiving:
        kept.receives()
    while True:
        sock.settimeout(kept.slice())
        try:
            done = step()
        except TimeoutError:
            continue
        kept.moved(done if isinstance(done, int) else len(done))  # type: ignore[arg-type]
        return done


class _InSlices(socket.socket):
    """Waits in slices. It comes before the socket's own class, whose methods do the steps."""

    def recv(self, *args: Any) -> bytes:
        step = super().recv
        return _in_slices(self, lambda: step(*args), receiving=True)

    def recv_into(self, *args: Any) -> int:
        step = super().recv_into
        return _in_slices(self, lambda: step(*args), receiving=True)

    def send(self, *args: Any) -> int:
        step = super().send
        return _in_slices(self, lambda: step(*args), receiving=False)


class _Socket(_InSlices):
    """A plain connection. Its own ``sendall`` would wait without slices."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view, flags) :]


class _TLSSocket(_InSlices, ssl.SSLSocket):
    """An encrypted connection. Its ``sendall`` uses ``send``."""


class _Connection:
    """What our connections add to the SDK's."""

    timeout: Any
    ssl_context: ssl.SSLContext | None = None

    def connect(self) -> None:
        kept = deadline()
        if kept is not None and isinstance(self.timeout, int | float):
            self.timeout = min(self.timeout, max(kept.left, WAIT_SECONDS_MIN))
        if self.ssl_context is not None:
            self.ssl_context.sslsocket_class = _TLSSocket
        super().connect()  # type: ignore[misc]

    def _new_conn(self) -> socket.socket:
        made: socket.socket = super()._new_conn()  # type: ignore[misc]
        timeout = made.gettimeout()
        ours = _Socket(made.family, made.type, made.proto, fileno=made.detach())
        ours.settimeout(timeout)
        return ours


class _HTTPConnection(_Connection, awsrequest.AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HTTPSConnection(_Connection, awsrequest.AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HTTPPool(awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPConnection


class _HTTPSPool(awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPSConnection


def install(client: Any) -> bool:
    """Let a client of the SDK connect by our sockets. It must not have sent anything yet.

    Returns:
        False, after a warning, if this release of the SDK keeps its connections elsewhere. The
        SDK's time-outs then hold, those of one ``recv``.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    table = getattr(session, "_pool_classes_by_scheme", None)
    if not isinstance(table, dict):
        _log.warning(
            "botocore %s is not known to magic-committer: a reply that comes byte by byte has no"
            " deadline, and Ctrl-C waits for requests in other threads",
            botocore.__version__,
        )
        return False
    table.update(http=_HTTPPool, https=_HTTPSPool)
    return True

"""Sessions of one SFTP connection, for many threads.

paramiko's `SFTPClient` is for one thread: of two that ask at once, each takes the other's answer
from the wire and throws it away, and both wait for ever. So a few sessions share the connection,
each is used by one thread at a time, and a file stays with the session that opened it.

A connection that is lost is made again by the next call. What was asked when it broke fails, and
may have taken effect; files that were open are lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import GeneratorType
from typing import Any

SESSIONS_MAX = 8
"""OpenSSH allows 10 for each connection (MaxSessions); where fewer are allowed, fewer are used."""
SOCKET_SECONDS = 60.0
"""How long a call waits for an answer; paramiko itself would wait for ever."""
_EXTENDED = 200
"""SSH_FXP_EXTENDED: a request that is named."""


class SftpSessions:
    """Stands for the `SFTPClient` of a connected ``SFTPFileSystem``: it has the same methods."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._sessions = [_Session(fs.ftp)]
        self._max = SESSIONS_MAX
        self._turns = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            session = self._session()
            result = session.run(name, *arguments, **named)
            return SessionFile(session, result) if name == "open" else result

        return call

    def hardlink(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free: what paramiko has no method for."""
        self._session().run("_request", _EXTENDED, "hardlink@openssh.com", old, new)

    def _session(self) -> _Session:
        """One that is free; else the one whose turn it is, and its user must be waited for."""
        with self._lock:
            if not self._fs.client.get_transport().is_active():
                self._connect()
            self._sessions = [session for session in self._sessions if not session.broken]
            for session in self._sessions:
                if session.is_free():
                    return session
            if len(self._sessions) < self._max:
                try:
                    self._sessions.append(_Session(self._fs.client.open_sftp()))
                    return self._sessions[-1]
                except Exception:
                    if not self._sessions:
                        raise
                    self._max = len(self._sessions)  # the server allows no more
            self._turns += 1
            return self._sessions[self._turns % len(self._sessions)]

    def _connect(self) -> None:
        self._fs.client.close()
        self._fs._connect()  # puts a client of its own into fs.ftp
        client, self._fs.ftp = self._fs.ftp, self
        self._sessions = [_Session(client)]
        self._max = SESSIONS_MAX


class _Session:
    """A paramiko client, and the lock of those who use it. ``broken``: an answer may still be on
    its way, or half of one was read: it is not used again."""

    def __init__(self, client: Any) -> None:
        client.get_channel().settimeout(SOCKET_SECONDS)
        self._client = client
        self._lock = threading.RLock()
        self.broken = False

    def is_free(self) -> bool:
        """Whether nobody uses it at this moment."""
        if not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def run(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the client. Its answer asks no more while it is read."""

        def ask() -> Any:
            answer = getattr(self._client, name)(*arguments, **named)
            return list(answer) if isinstance(answer, GeneratorType) else answer

        return self.told(ask)

    def told(self, ask: Callable[[], Any]) -> Any:
        """Ask something, alone."""
        with self._lock:
            try:
                return ask()
            except Exception as error:
                channel = self._client.get_channel()
                if isinstance(error, TimeoutError) or channel is None or channel.closed:
                    self.broken = True
                    self._client.close()
                raise


class SessionFile:
    """A file of a session: each call waits until nobody else uses the session."""

    def __init__(self, session: _Session, file: Any) -> None:
        self._session = session
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            return self._session.told(lambda: found(*arguments, **named))

        return call

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

"""Sessions of one SFTP connection: one thread at a time uses each, and a lost one is made again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from magic_committer.stores.trees.dialects import SESSIONS_MAX, SftpSessions
from tests.promises.hands import raises

JOIN_SECONDS_MAX = 300.0


class Client:
    """paramiko's client, which is for one thread: it notes when two use it at once."""

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self._used = threading.Lock()
        self.closed = False
        self.seconds: float | None = None

    def get_channel(self) -> Client:
        return self

    def settimeout(self, seconds: float) -> None:
        self.seconds = seconds

    def close(self) -> None:
        self.closed = True

    def stat(self, path: str) -> str:
        if not self._used.acquire(blocking=False):
            self._fs.mixed.append(path)
            return "another thread's answer"
        try:
            time.sleep(0.002)
            self._fs.used.add(self)
            if path in self._fs.errors:
                raise self._fs.errors.pop(path)
            return path
        finally:
            self._used.release()

    def listdir_iter(self, path: str) -> Iterator[str]:
        for name in ("a", "b"):
            yield self.stat(f"{path}/{name}")

    def open(self, path: str, mode: str) -> File:
        return File(self)

    def _request(self, kind: int, name: str, old: str, new: str) -> None:
        self._fs.requests.append((kind, name, old, new))


class File:
    """An open file, which asks by its client."""

    mode = "rb"

    def __init__(self, client: Client) -> None:
        self.client = client

    def read(self, path: str) -> str:
        return self.client.stat(path)

    def close(self) -> None:
        self.client.stat("close")


class Fs:
    """fsspec's file system, and its connection. ``allowed``: how many sessions the server takes."""

    def __init__(self, allowed: int = 99) -> None:
        self.allowed = allowed
        self.mixed: list[str] = []
        self.used: set[Client] = set()
        self.errors: dict[str, Exception] = {}
        self.requests: list[tuple[int, str, str, str]] = []
        self.connections = 0
        self.alive = True
        self._connect()
        self.client = self

    def _connect(self) -> None:
        self.connections += 1
        self.alive, self.sessions = True, 1
        self.ftp: Any = Client(self)

    def get_transport(self) -> Fs:
        return self

    def is_active(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False

    def open_sftp(self) -> Client:
        if self.sessions >= self.allowed:
            raise OSError("Administratively prohibited")
        self.sessions += 1
        return Client(self)


def by_threads(sessions: SftpSessions, count: int = 24) -> list[str]:
    """Ask by many threads at once; the answers."""
    answers: list[str] = []

    def ask(number: int) -> None:
        for turn in range(5):
            answers.append(sessions.stat(f"{number}-{turn}"))
        with sessions.open("f", "rb") as file:
            answers.append(file.read(f"{number}-read"))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS_MAX)
    return answers


@pytest.mark.parametrize("allowed", [1, 3, 99])
def test_each_thread_gets_its_own_answers(allowed: int) -> None:
    """However few sessions the server allows; never more than the library's own limit."""
    fs = Fs(allowed)
    answers = by_threads(SftpSessions(fs))
    expected = [f"{n}-{what}" for n in range(24) for what in (*range(5), "read")]
    assert fs.mixed == []
    assert sorted(answers) == sorted(expected)
    assert 1 <= len(fs.used) <= min(allowed, SESSIONS_MAX)


def test_a_listing_is_read_to_its_end_alone() -> None:
    """It asks while it is read: so it is whole when it is given."""
    assert [*SftpSessions(Fs()).listdir_iter("d")] == ["d/a", "d/b"]


def test_a_session_that_lost_its_place_is_not_used_again() -> None:
    """After a time-out half an answer may be on its way."""
    fs = Fs(allowed=1)
    first = fs.ftp
    sessions = SftpSessions(fs)
    assert first.seconds is not None
    fs.errors["late"] = TimeoutError()
    raises(TimeoutError, sessions.stat, "late")
    assert first.closed
    raises(OSError, sessions.stat, "a", match="prohibited")  # the server's, and not one of ours
    fs.allowed = 99
    assert sessions.stat("a") == "a"
    fs.used.clear()
    assert by_threads(sessions, 2)
    assert first not in fs.used


def test_a_lost_connection_is_made_again() -> None:
    """By the next call; the old one is closed, and the file system asks by us as before."""
    fs = Fs()
    fs.ftp = sessions = SftpSessions(fs)
    assert sessions.stat("a") == "a"
    fs.alive = False
    assert sessions.stat("b") == "b"
    assert fs.connections == 2
    assert fs.ftp is sessions


def test_a_hard_link_is_asked_for_by_its_name() -> None:
    """OpenSSH's extension, which paramiko has no method for."""
    fs = Fs()
    SftpSessions(fs).hardlink("old", "new")
    assert fs.requests == [(200, "hardlink@openssh.com", "old", "new")]


def test_an_answer_that_is_an_error_keeps_the_session() -> None:
    """A missing file says nothing against the session."""
    fs = Fs(allowed=1)
    sessions = SftpSessions(fs)
    fs.errors["gone"] = FileNotFoundError("gone")
    raises(FileNotFoundError, sessions.stat, "gone")
    assert sessions.stat("a") == "a"
    assert fs.connections == 1

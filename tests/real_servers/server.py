"""What all real servers have in common: a port of their own, a folder, one pair of keys; and that
they can be killed and started again on what they had stored."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from magic_committer.options import S3Options
from tests import servers
from tests.real_servers.keeper import ROOT, Kept, NoServer

__all__ = ["NoServer"]

ACCESS_KEY, SECRET_KEY, REGION = "testkey", "testsecret1", "us-east-1"
HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to clients: a server that is started again finds its port as it
left it."""
PORTS_TRIED = 20
STARTS_TRIED = 3


def options(url: str, **more: Any) -> S3Options:
    """The way to a server."""
    way = {"endpoint_url": url, "region": REGION, "access_key": ACCESS_KEY}
    return S3Options(**{**way, "secret_key": SECRET_KEY, **more})


def environment(url: str) -> dict[str, str]:
    """The same for other processes."""
    return {
        "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


def command_line(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What somebody gets who runs our command, where the environment knows the store."""
    command = [sys.executable, "-m", "magic_committer", *words]
    env = {**os.environ, **environment(url)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def outside(url: str, s3: S3Options | None = None) -> Any:
    """S3's own client of a server; ``s3``: the way to one that has other keys."""
    return servers.outside(s3 or options(url))


def free_ports(count: int) -> list[int]:
    """Ports in a row on which nobody listens. Raises NoServer: none were found."""
    for _ in range(PORTS_TRIED):
        first = random.SystemRandom().choice(PORTS[:-count])
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind((HOST, port))
        except OSError:
            continue
        return list(range(first, first + count))
    raise NoServer(f"no {count} free ports in a row were found in {PORTS}")


class Server(ABC):
    """A server that runs; made by `running`. ``NAME``: its row in `tests.deviations`, and what it
    is called on the command line. ``READY_PATH``: answers with 200 once the server can work.
    ``url``: where it listens. The same after `restart`. ``folder``: all that it has."""

    NAME: ClassVar[str]
    READY_PATH: ClassVar[str] = "/"
    PORTS: ClassVar[int] = 1

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.folder = folder
        self.ports = ports
        self.url = f"http://{HOST}:{ports[0]}"
        self._kept: Kept | None = None

    @classmethod
    @abstractmethod
    def get(cls) -> object:
        """Build or find it, once for each machine. Raises NoServer: it cannot be had here."""

    @abstractmethod
    def command(self) -> tuple[list[str], Mapping[str, str]]:
        """What serves the folder; and its environment."""

    def prepare(self) -> None:
        """Make what the server needs before its first start: by default its folder is enough."""
        return

    def release(self) -> None:
        """End what `prepare` has started."""
        return

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises NoServer: it ended at once, or was not ready
        in time."""
        command, env = self.command()
        self._kept = Kept(command, env=env, log=self.folder / "server.log")
        self._kept.wait_for(self._answers)

    def _answers(self) -> bool:
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(self.url + self.READY_PATH, timeout=5).close()
            return True
        return False

    def kill(self) -> None:
        """Kill it with SIGKILL, whatever it is doing."""
        assert self._kept is not None
        self._kept.kill()

    def restart(self) -> None:
        """Start it again, after `kill`: same port, same folder."""
        self.start()

    def end(self) -> None:
        """End it; repeatable."""
        if self._kept is not None:
            self._kept.end()


@contextmanager
def running(kind: type[Server]) -> Iterator[Server]:
    """Run a server on ports of its own. All that it stored is gone afterwards. Raises NoServer: it
    cannot be had here, or it did not start."""
    kind.get()
    for tried in range(1, STARTS_TRIED + 1):
        with tempfile.TemporaryDirectory(prefix=f"{kind.NAME}-", dir=_quick()) as folder:
            server = kind(Path(folder), free_ports(kind.PORTS))
            try:
                server.prepare()
                server.start()
            except NoServer:
                server.end()
                server.release()
                if tried == STARTS_TRIED:
                    raise
                continue  # somebody else may have the port by now
            try:
                yield server
            finally:
                server.end()
                server.release()
            return


def _quick() -> str | None:
    """Where the servers' files are: memory, if there is some; a kill loses none of it."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 2 * 1024**3:
            return str(memory)
    return None

"""What the tests of this folder share: a store, a store that fails in mid-file, fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.chaos.faults import HANG_UP, Fault, error
from tests.chaos.proxy import Line, Proxy, Request, proxy
from tests.chaos.silent import Mood
from tests.servers import moto_server
from tools.moto_server import CREDENTIALS

ROOT = Path(__file__).resolve().parent.parent.parent
HANG_SECONDS = 600.0
"""A process that runs for longer hangs."""

Trouble = Literal["", "refused", "dies", "silent"]
"""What a store does from the second part of a file on: refuses each, is gone, or says nothing."""
REFUSED = Fault("refused", "never", "with this", error("403 Forbidden", "AccessDenied"))
SILENT = Fault("silent", "never", "with this", mood=Mood.SILENT)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """moto's server with a bucket ``bucket``, one for all tests of a process; gives its URL."""
    with moto_server("bucket") as url:
        yield url


class Troubled(Line):
    """The way to a store that works until the second part of a file comes."""

    proxy: Proxy

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self._trouble = trouble
        self._struck = False

    def meets(self, request: Request) -> Fault | None:
        later_part = request.query.get("partNumber", ["1"]) != ["1"]
        if later_part and not self._struck and self._trouble == "dies":
            self.proxy.server.shutdown()
            self.proxy.server.socket.close()
        self._struck = self._struck or later_part
        if self._trouble == "refused":
            return REFUSED if later_part else None
        fault = HANG_UP if self._trouble == "dies" else SILENT
        return fault if self._struck else None


@contextmanager
def failing(upstream: str, trouble: Trouble) -> Iterator[str]:
    """A store that gets into trouble; gives its URL."""
    line = Troubled(trouble)
    with proxy(upstream, line) as line.proxy:
        yield line.url


@dataclass(frozen=True)
class Ended:
    """A process that has ended: how, and what it wrote."""

    code: int
    said: str
    errors: str

    def __str__(self) -> str:
        how = signal.Signals(-self.code).name if self.code < 0 else f"code {self.code}"
        return f"{how}\n{self.said}\n{self.errors[-6000:]}"


def environment(url: str) -> dict[str, str]:
    """Of a process that finds this checkout, and its store, by it alone."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    return {**inherited, **CREDENTIALS, "AWS_ENDPOINT_URL": url, "PYTHONPATH": str(ROOT)}


def fresh(url: str, *command: str) -> Ended:
    """Run Python with this command line in a process of its own, and wait for its end. ``url``: of
    the store that it finds in its environment."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        ran = subprocess.run(  # files, not pipes: what it starts may hold them for longer
            [sys.executable, "-X", "faulthandler", *command], cwd=ROOT, env=environment(url),
            stdin=subprocess.DEVNULL, stdout=said, stderr=errors, timeout=HANG_SECONDS,
        )  # fmt: skip
        for file in (said, errors):
            file.seek(0)
        return Ended(ran.returncode, said.read(), errors.read())

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
from urllib.parse import urlsplit

import pytest

from tests.servers import moto_server
from tests.serving import Answering, asked_of, serving
from tools.moto_server import CREDENTIALS

ROOT = Path(__file__).resolve().parent.parent.parent
HANG_SECONDS = 300.0
"""A process that runs for longer hangs."""

Trouble = Literal["", "refused", "dies", "silent"]
"""What a store does from the second part of a file on: refuses each, is gone, or says nothing."""


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """moto's server with a bucket ``bucket``, one for all tests of a process; gives its URL."""
    with moto_server("bucket") as url:
        yield url


@contextmanager
def failing(upstream: str, trouble: Trouble) -> Iterator[str]:
    """A proxy before a server that works, until the second part of a file comes; gives its URL."""
    refusal = b"<Error><Code>AccessDenied</Code><Message>as the test wants</Message></Error>"
    host = urlsplit(upstream).netloc
    struck = False

    class Handler(Answering):
        def answer(self) -> None:
            nonlocal struck
            body = self.body()
            later_part = "partNumber=" in self.path and "partNumber=1&" not in f"{self.path}&"
            struck = struck or later_part
            if trouble == "refused" and later_part:
                self.send_response_only(403)
                self.send_header("Content-Length", str(len(refusal)))
                self.end_headers()
                self.wfile.write(refusal)
            elif trouble == "silent" and struck:
                self.close_connection = True
                self.rfile.read(1)  # until the client hangs up
            elif trouble == "dies" and struck:
                self.close_connection = True
                served.shutdown()
                served.socket.close()
            else:
                self.tell(*asked_of(host, self.command, self.path, self.headers.items(), body))

    with serving(Handler) as served:
        yield served.url


@dataclass(frozen=True)
class Ended:
    """A process that has ended: how, and what it wrote."""

    code: int
    said: str
    errors: str

    def __str__(self) -> str:
        how = signal.Signals(-self.code).name if self.code < 0 else f"code {self.code}"
        return f"{how}\n{self.said}\n{self.errors[-6000:]}"


def fresh(url: str, module: str, *words: str, **environment: str) -> Ended:
    """Run ``python -m module words`` in a process of its own, and wait for its end.

    Args:
        url: the store that the process finds in its environment.
        module: below this checkout, as ``tests.process.writing``.
        words: the command line behind it.
        environment: more of it.
    """
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        ran = subprocess.run(  # files, not pipes: what it starts may hold them for longer
            [sys.executable, "-X", "faulthandler", "-m", module, *words],
            cwd=ROOT,
            env={**inherited, **CREDENTIALS, "AWS_ENDPOINT_URL": url, **environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=errors,
            timeout=HANG_SECONDS,
        )
        for file in (said, errors):
            file.seek(0)
        return Ended(ran.returncode, said.read(), errors.read())

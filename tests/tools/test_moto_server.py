"""`tools.moto_server`: an S3 server that answers, and that ends with its parent."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.tidy.sources import ROOT


def refused(url: str) -> bool:
    where = urlsplit(url)
    with socket.socket() as attempt:
        return attempt.connect_ex((where.hostname, where.port)) != 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_ends_when_its_parent_is_killed() -> None:
    """kill -9 of the process that runs it ends it, too."""
    script = (
        "from tools import moto_server; import signal\n"
        "with moto_server.running() as url: print(url, flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
        server = os.pidfd_open(int(children))
        assert not refused(url)
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        ended, _, _ = select.select([server], [], [], 300)
        os.close(server)
    assert ended
    assert refused(url)

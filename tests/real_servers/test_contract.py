"""The contract suite on real servers: S3's rules, but for the lines of `tests.deviations`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.contract import stores
from tests.real_servers.keeper import ROOT
from tests.real_servers.server import Server, environment

TESTS_MIN = 55
"""How many tests of the suite a real server passes, at the least."""


def test_the_server_keeps_the_contract(server: Server, bucket: str) -> None:
    """Every test of the suite passes, or fails where the table says that it does."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", "-k", "real", "tests/contract"],
        cwd=ROOT,
        env={
            **os.environ, **environment(server.url), stores.ENDPOINT: server.url,
            stores.BUCKET: bucket, stores.STORE: server.NAME,
        },
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-10_000:]
    (passed,) = re.findall(r"(\d+) passed", run.stdout)
    assert int(passed) >= TESTS_MIN, run.stdout

"""The contract suite on versitygw: S3's rules, but for the lines of `tests/contract/stores.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.contract import stores
from tests.real_servers import versitygw

TESTS_MIN = 75
"""How many tests of the suite a real server runs, at the least."""


def test_the_server_keeps_the_contract(url: str, bucket: str) -> None:
    """Every test of the suite passes, or fails where the table says that it does."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", "-k", "real", "tests/contract"],
        cwd=versitygw.ROOT,
        env={
            **os.environ,
            **versitygw.environment(url),
            stores.ENDPOINT: url,
            stores.BUCKET: bucket,
            stores.STORE: "versitygw",
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-10_000:]
    (passed,) = re.findall(r"(\d+) passed", run.stdout)
    assert int(passed) >= TESTS_MIN, run.stdout

"""The contract suite on real servers: S3's rules, but for the lines of `tests.deviations`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.contract import stores
from tests.real_servers import kinds
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
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-10_000:]
    (passed,) = re.findall(r"(\d+) passed", run.stdout)
    assert int(passed) >= TESTS_MIN, run.stdout


def test_a_server_that_cannot_be_had_is_skipped_loudly(tmp_path: Path) -> None:
    """Without its programs Ceph is skipped: the build says so, and so do the run's last lines."""
    env = {**os.environ, kinds.ON: "ceph", "PATH": str(tmp_path)}
    env.pop("MAGIC_COMMITTER_TEST_INSTALL", None)
    get = [sys.executable, "-m", "tests.real_servers", "--get"]
    ran = subprocess.run(get, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (ran.returncode, "!!! ceph is not here" in ran.stdout) == (0, True)
    one = "tests/real_servers/test_modes.py::test_without_conditions_a_job_works_everywhere"
    pytest_run = [sys.executable, "-m", "pytest", "--quiet", one]
    ran = subprocess.run(pytest_run, cwd=ROOT, env=env, capture_output=True, text=True)
    assert ran.returncode == 0
    assert "1 skipped" in ran.stdout
    assert "NOT RUN: ceph" in ran.stdout

"""What starts the servers: nothing outlives us, and what cannot be had is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_gone, pids_in
from tests.real_servers import kinds
from tests.real_servers.keeper import ROOT, Kept

PARENT = """
import pathlib, sys, time
from tests.real_servers.keeper import Kept
Kept(["sh", "-c", "echo $$; exec sleep 600"], log=pathlib.Path(sys.argv[1]))
time.sleep(600)
"""


def test_a_server_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the process that started it ends the server."""
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(log)], cwd=ROOT)
    (pid,) = pids_in(log)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert is_gone(pid)


@pytest.mark.parametrize("killed", [True, False])
def test_a_server_that_was_ended_is_gone(tmp_path: Path, killed: bool) -> None:
    """Killing and ending wait until the process is gone; ending twice does no harm."""
    kept = Kept(["sh", "-c", "echo $$; exec sleep 600"], log=tmp_path / "log")
    (pid,) = pids_in(tmp_path / "log")
    assert kept.runs
    (kept.kill if killed else kept.end)()
    assert not kept.runs
    assert is_gone(pid)
    kept.end()


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

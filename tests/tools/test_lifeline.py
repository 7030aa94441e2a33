"""`tools.lifeline`: nothing of a command outlives the one that ran it.

Every process of a command holds the standard output that it was started with: when reading it comes
to an end, all of them are gone. The tests wait for that, never for a while.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.tidy.sources import ROOT
from tools import lifeline

GONE_SECONDS = 10.0
"""Within this all must be gone, however they ended."""
LIFELINE = (sys.executable, "-m", "tools.lifeline")
FAMILY = ("sh", "-c", "sleep 600 & sleep 600 & echo ready; wait")
"""A command with children of its own."""


def start(*command: str) -> subprocess.Popen[bytes]:
    """Start a command; leave it by ``with``."""
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0)


def line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line that a command says."""
    assert process.stdout is not None
    return process.stdout.readline()


def left_behind(process: subprocess.Popen[bytes]) -> bool:
    """Whether anybody still holds a command's output after the time allowed. Eats what they say."""
    output = process.stdout
    assert output is not None
    deadline = time.monotonic() + GONE_SECONDS
    while select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not output.read(4096):
            return False
    return True


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9)])
def test_a_commands_exit_code_is_given_back(script: str, code: int) -> None:
    """`run` returns the exit code, or the negative number of the signal that ended the command."""
    assert lifeline.run(["sh", "-c", script]) == code


def test_what_a_command_leaves_running_is_killed() -> None:
    """Children that outlive their command end with it."""
    with start(*LIFELINE, "sh", "-c", "sleep 600 & exit 7") as process:
        assert not left_behind(process)
        assert process.wait() == 7


def test_a_command_past_its_time_is_killed() -> None:
    """A command that runs too long is killed with all its children, and the code says so."""
    script = f"from tools import lifeline; exit(lifeline.run({FAMILY!r}, seconds_max=0.1))"
    with start(sys.executable, "-c", script) as process:
        assert not left_behind(process)
        assert process.wait() == lifeline.TIMED_OUT


def test_kill_9_takes_the_command_along() -> None:
    """When the process that runs a command is killed with -9, the command's family dies."""
    with start(*LIFELINE, *FAMILY) as process:
        assert line(process) == b"ready\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not left_behind(process)


def test_the_death_of_the_parent_takes_the_command_along() -> None:
    """When the parent of the process that runs a command is killed with -9, all of them die."""
    with start("sh", "-c", f"{shlex.join([*LIFELINE, *FAMILY])}; true") as parent:
        assert line(parent) == b"ready\n"
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        assert not left_behind(parent)


def test_a_make_that_died_before_we_looked_is_missed() -> None:
    """``MAKE_PID`` names a process that is gone: nothing is started."""
    with subprocess.Popen("true") as dead:
        dead.wait()
    process = subprocess.run(
        [*LIFELINE, *FAMILY],
        cwd=ROOT,
        env={**os.environ, "MAKE_PID": str(dead.pid)},
        capture_output=True,
        timeout=GONE_SECONDS,
    )
    assert process.returncode == 1
    assert process.stdout == b""
    assert b"the parent is gone" in process.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_the_command_end_by_itself(sent: signal.Signals) -> None:
    """SIGINT and SIGTERM reach the command as SIGINT, and its own ending is waited for."""
    script = "import time\nprint('ready', flush=True)\ntry: time.sleep(600)\nfinally: print('bye')"
    with start(*LIFELINE, sys.executable, "-c", script) as process:
        assert line(process) == b"ready\n"
        process.send_signal(sent)
        assert line(process) == b"bye\n"
        assert process.wait() == 130

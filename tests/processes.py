"""Processes that a test may not wait for, others' children: which they are, and that they end."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

GONE_SECONDS_MAX = 300.0


def is_gone(pid: int) -> bool:
    """Whether a process ends in time, if it has not ended. One that nobody has waited for yet has
    ended, too."""
    until = time.monotonic() + GONE_SECONDS_MAX
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _is_zombie(pid):
            return True
        time.sleep(0.05)
    return False


def pids_in(file: Path) -> list[int]:
    """The process ids that somebody writes into a file, in a whole line."""
    until = time.monotonic() + GONE_SECONDS_MAX
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < until, f"nobody has written {file}"
        time.sleep(0.05)
    return [int(word) for word in file.read_text().split()]


def _is_zombie(pid: int) -> bool:
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return told.stdout.strip().startswith("Z") or not told.stdout.strip()

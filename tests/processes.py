"""Whether a process that a test may not wait for, another's child, has ended."""

from __future__ import annotations

import os
import subprocess
import time

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


def _is_zombie(pid: int) -> bool:
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return told.stdout.strip().startswith("Z") or not told.stdout.strip()

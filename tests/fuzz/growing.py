"""By how much a process grows that reads a hostile document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MiB = 1024**2
STATUS = Path("/proc/self/status")
ROOT = Path(__file__).parents[2]
FRAME = """
import sys
def peak():
    told = open("/proc/self/status").read()
    return int(told.partition("VmHWM:")[2].split()[0]) * 1024
data = sys.stdin.buffer.read()
{imports}
before = peak()
{body}
print(peak() - before, met)
"""


def growth(data: bytes, imports: str, body: str) -> tuple[int, str]:
    """Run ``body`` in a new process, with ``data``: by how many bytes it grew at its peak, and what
    ``met`` was then. Skips where the system does not tell a peak of one's own."""
    if not STATUS.exists():
        pytest.skip("this system tells no process its own peak of memory")
    script = FRAME.format(imports=imports, body=body)
    ran = subprocess.run(
        [sys.executable, "-c", script], input=data, capture_output=True, cwd=ROOT, check=True
    )
    grown, _, met = ran.stdout.decode().partition(" ")
    return int(grown), met.strip()

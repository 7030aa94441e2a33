"""Each kind of destination, the store in memory behind the public calls, and its machine."""

from __future__ import annotations

from tests.destinations import disk, there
from tests.in_memory import buried, clock, machine, s3

__all__ = ["buried", "clock", "disk", "machine", "s3", "there"]

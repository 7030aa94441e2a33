"""The in-memory store behind the public calls, and a few hands to work it with."""

from __future__ import annotations

from tests.in_memory import buried, clock, machine, s3

__all__ = ["buried", "clock", "machine", "s3"]

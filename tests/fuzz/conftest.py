"""The in-memory store, and jobs on it whose driver died."""

from __future__ import annotations

from tests.in_memory import buried, clock, fresh, kind, machine, s3

__all__ = ["buried", "clock", "fresh", "kind", "machine", "s3"]

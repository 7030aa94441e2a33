"""Processes that a test may not wait for, others' children: which they are, and that they end
(Linux: /proc)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GONE_SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Process:
    """A process that is alive; a zombie is not. ``session``: its leader's id. ``command``: its
    words."""

    pid: int
    parent: int
    session: int
    command: tuple[str, ...]

    def environment(self) -> set[str]:
        """As ``NAME=value``; empty if it has just ended, or is somebody else's."""
        with suppress(OSError):
            return {*Path(f"/proc/{self.pid}/environ").read_text(errors="replace").split("\0")}
        return set()


def living() -> Iterator[Process]:
    """Every process."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            state, parent, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_text(errors="replace").split("\0")
            if state not in "ZX":
                yield Process(int(entry.name), int(parent), int(session), tuple(command))


def is_gone(pid: int) -> bool:
    """Whether a process ends in time, if it has not ended. One that nobody has waited for yet has
    ended, too."""
    until = time.monotonic() + GONE_SECONDS_MAX
    while any(one.pid == pid for one in living()):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True

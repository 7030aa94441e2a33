"""The processes of one run, found by a mark in their environment (Linux: /proc)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "MAGIC_COMMITTER_DEMO_RUN"
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Process:
    """A process that is alive; a zombie is not."""

    pid: int
    parent: int
    command: str


def of_run(mark: str) -> list[Process]:
    """Every live process whose environment holds the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        # Processes come and go while we look.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if state != "Z":
                    found.append(Process(int(folder.name), int(parent), command))
    return found


def until_gone(mark: str, ports: set[int], seconds_max: float) -> tuple[list[Process], set[int]]:
    """Wait until a run has no process and nobody listens on its ports; what is left of both after
    ``seconds_max``. A dying Java may keep its ports for a moment after it is seen no more."""
    deadline = time.monotonic() + seconds_max
    while True:
        left = of_run(mark), ports & {port for _, port in _listeners()}
        if not any(left) or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_SECONDS)


def listening_ports(processes: list[Process]) -> set[int]:
    """The TCP ports that processes listen on."""
    sockets = {inode for process in processes for inode in _sockets(process.pid)}
    return {port for inode, port in _listeners() if inode in sockets}


def _sockets(pid: int) -> Iterator[str]:
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    yield target.removeprefix("socket:[").removesuffix("]")


def _listeners() -> Iterator[tuple[str, int]]:
    """Inode and port of every TCP socket that listens."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError), open(table) as file:
            for fields in (line.split() for line in list(file)[1:]):
                if fields[3] == "0A":
                    yield fields[9], int(fields[1].rpartition(":")[2], 16)

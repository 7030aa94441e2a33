"""A program as a child that cannot outlive us, and that can be killed at any moment.

Between us and the program stands a small process, the keeper. It ends the program when its own
standard input ends: that is a pipe of which only we hold the other end, so it ends with us, however
we end. It is the program's parent: a process id is never used after its process is gone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 10.0
"""How long the program may take to end after SIGTERM before it is killed."""
KILL = b"9"
READY_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05


class NoServer(RuntimeError):
    """A server cannot be had here, or it did not start; says why."""


class Kept:
    """A program that runs under a keeper."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path
    ) -> None:
        """Start it. ``command``: the program and its arguments. ``env``: what is added to our
        environment. ``log``: a file to which all that it says is appended."""
        self.log = log
        with log.open("ab") as said:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.real_servers.keeper", *command], cwd=ROOT,
                env={**os.environ, **(env or {})}, stdin=subprocess.PIPE, stdout=said, stderr=said,
            )  # fmt: skip

    @property
    def runs(self) -> bool:
        return self._keeper.poll() is None

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self._tell(KILL)

    def end(self) -> None:
        """Ask it to end with SIGTERM, and wait until it is gone. Repeatable."""
        self._tell(b"")

    def last_words(self) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-2000:]

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready. Raises NoServer: it ended, or was not ready in time."""
        until = time.monotonic() + READY_SECONDS_MAX
        while self.runs and time.monotonic() < until:
            if ready() and self.runs:  # else it was somebody else who answered
                return
            time.sleep(LOOK_SECONDS)
        self.end()
        raise NoServer(f"a server did not start:\n{self.last_words()}")

    def _tell(self, word: bytes) -> None:
        pipe: IO[bytes] | None = self._keeper.stdin
        assert pipe is not None
        if not pipe.closed:
            with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                pipe.write(word)
                pipe.flush()
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._keeper.wait()


def keep(command: Sequence[str]) -> int:
    """Be the keeper of a program until it ends; its exit code."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end_it() -> None:
        if os.read(0, 1) == KILL:
            program.kill()
            return
        program.terminate()
        try:
            program.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=end_it, daemon=True).start()
    return program.wait()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))

"""Processes that are killed with SIGKILL, at a request of theirs or whenever a test says."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from tests.chaos.proxy import Moment, Striker

END_SECONDS_MAX = 300.0
"""A process that takes longer hangs."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.chaos.disks", "tests.chaos.judge", "tests.chaos.victims"])


class Victim:
    """A process that runs ``work`` with the arguments, and tells what that gives; if it is a
    generator, each thing.

    Args:
        line: its way to the store, where it is killed at a request.
        moment: which; None: nobody does.
    """

    def __init__(
        self, work: Callable[..., Any], *arguments: object, line: Striker | None = None,
        moment: Moment | None = None,
    ) -> None:  # fmt: skip
        self._line = line
        self._heard, tell = context.Pipe(duplex=False)
        self._process = context.Process(target=_working, args=(tell, work, arguments))
        self._started = threading.Event()
        if line is not None and moment is not None:
            line.arm(moment, self._kill_at_once)
        self._process.start()
        self._started.set()
        tell.close()

    def _kill_at_once(self) -> None:
        assert self._started.wait(END_SECONDS_MAX)
        if self._line is not None:
            self._line.release(over=True)
        self._process.kill()

    def kill(self) -> None:
        """Kill it, if it lives, and wait until it is gone."""
        self._kill_at_once()
        self._process.join()

    def lives(self, seconds: float) -> bool:
        """Whether it is still there after so long."""
        self._process.join(seconds)
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def killed(self) -> bool:
        return self._process.exitcode == -signal.SIGKILL

    def told(self, seconds: float = 0.0) -> bool:
        """Whether it has told something that nobody has heard yet, or has ended; or does so
        soon."""
        return self._heard.poll(seconds)

    def hear(self) -> Any:
        """The next that it tells. Raises EOFError: it has ended, and so has all that it forked."""
        assert self._heard.poll(END_SECONDS_MAX), "it tells nothing"
        return self._heard.recv()

    def end(self) -> Any:
        """What it told last; None if nothing. It has ended by then, as it must: by itself without
        error, or killed."""
        last = None
        with suppress(EOFError):
            while True:
                last = self.hear()
        self._process.join(END_SECONDS_MAX)
        assert self.killed or self._process.exitcode == 0, f"{self._process.exitcode}: {last}"
        if self._line is not None:
            self._line.settle()
        return last


def _working(tell: Connection, work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    try:
        gave = work(*arguments)
        for one in gave if isinstance(gave, Iterator) else [gave]:
            tell.send(one)
    except BaseException:
        tell.send(traceback.format_exc())
        raise

"""Waiting until a server that was started can work."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.real_servers.keeper import Kept
from tests.real_servers.server import NoServer

READY_SECONDS_MAX = 90.0
LOOK_SECONDS = 0.05


def wait_for(ready: Callable[[], bool], server: Kept) -> None:
    """Wait until it is ready. Raises NoServer: it ended, or was not ready in time."""
    until = time.monotonic() + READY_SECONDS_MAX
    while server.runs and time.monotonic() < until:
        if ready():
            return
        time.sleep(LOOK_SECONDS)
    raise NoServer(f"a server did not start:\n{server.last_words()}")

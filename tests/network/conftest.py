"""A store that works, and what stands before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.server import Server, running
from tests.silent import MoodyProxy, moody_proxy


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A store that works."""
    with running() as started:
        yield started


@pytest.fixture
def proxy(server: Server) -> Iterator[MoodyProxy]:
    """What stands before it, empty: it begins to be silent when a test says so."""
    server.reset(verify=False)
    with moody_proxy(server.url) as moody:
        yield moody

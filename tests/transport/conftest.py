"""A store on a server that answers as the test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magic_committer.stores.s3 import S3Store
from tests.servers import TRANSPORT, HurriedClock, ScriptedServer, scripted_server, way


@pytest.fixture(scope="module", params=["boto3", "fast"])
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test once by boto3 and once by the fast way, which must not fall back."""
    before = TRANSPORT.set(request.param)
    yield request.param
    TRANSPORT.reset(before)


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, transport: str
) -> Iterator[tuple[ScriptedServer, S3Store]]:
    """A server, and a store on it that waits for nothing and asks as often as the module's
    ``TRIES`` says; once where it says nothing."""
    tries = getattr(request.module, "TRIES", 1)
    with scripted_server() as running:
        options = way(running.url, retry_attempts_max=tries)
        yield running, S3Store("b", options, clock=HurriedClock())


@pytest.fixture
def server(shared: tuple[ScriptedServer, S3Store]) -> ScriptedServer:
    """The server, asked nothing yet."""
    shared[0].asked.clear()
    return shared[0]


@pytest.fixture
def store(shared: tuple[ScriptedServer, S3Store], server: ScriptedServer) -> S3Store:
    """The store on it."""
    return shared[1]

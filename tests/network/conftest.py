"""A store that works, and what stands before it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.servers import make_bucket, moto_server
from tests.silent import MoodyProxy, moody_proxy

BUCKET = "network"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A store that works; gives its URL."""
    with moto_server() as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[MoodyProxy]:
    """What stands before it, empty: it begins to be silent when a test says so."""
    forget = urllib.request.Request(f"{server}/moto-api/reset", method="POST")
    urllib.request.urlopen(forget, timeout=300).close()
    make_bucket(server, BUCKET)
    with moody_proxy(server) as moody:
        yield moody

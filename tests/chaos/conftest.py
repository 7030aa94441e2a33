"""A store that works, and the ways to it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import Silence, through
from tests.servers import make_bucket, moto_server

BUCKET = "bucket"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """moto's server with a bucket; gives its URL."""
    with moto_server(BUCKET) as url:
        yield url


@pytest.fixture
def silence(url: str) -> Iterator[Silence]:
    """What stands before it, empty: it begins to be silent when a test says so."""
    forget = urllib.request.Request(f"{url}/moto-api/reset", method="POST")
    urllib.request.urlopen(forget, timeout=300).close()
    make_bucket(url, BUCKET)
    with through(Silence(), url) as line:
        yield line

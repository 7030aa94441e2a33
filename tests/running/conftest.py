"""A real server, found by every process through the environment alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers import moto_server
from tools.moto_server import CREDENTIALS


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """moto's server; gives its URL."""
    with moto_server("bucket") as url:
        before = dict(os.environ)
        os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=url)
        try:
            yield url
        finally:
            os.environ.clear()
            os.environ.update(before)

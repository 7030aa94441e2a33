"""One server of each kind for all tests of this folder, and an empty bucket for each test.

A server that cannot be had is skipped, and the last lines of the run say so; but for versitygw.
Where the tests run in two processes, all of a server run in the same: it is started once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.base import objects, uploads
from magic_committer.stores.s3 import S3Store
from tests import deviations
from tests.real_servers import kinds, server
from tests.real_servers.getting import say_missing
from tests.real_servers.server import NoServer, Server

_numbers = itertools.count(1)
_missing: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(name): on this server alone")
    config.addinivalue_line("markers", "xdist_group(name): pytest-xdist's: in one process")
    config.addinivalue_line("markers", "long: on every server only where the run asks for it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only")
    long = metafunc.definition.get_closest_marker("long") is not None
    names = [
        name
        for name in kinds.CHOICE.wanted()
        if (only is None or name in only.args) and (not long or kinds.is_long(name))
    ]
    servers = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]
    metafunc.parametrize("kept_server", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def kept_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server, started once."""
    name: str = request.param
    try:
        with server.running(kinds.KINDS[name]) as one:
            yield one
    except NoServer as error:
        if name == kinds.NEEDED:
            raise  # what all else is compared with: without it the run fails
        _missing[name] = str(error)
        pytest.skip(f"{name}: {error}")


@pytest.fixture(name="server")
def known_server(kept_server: Server, request: pytest.FixtureRequest) -> Server:
    """The server; a test that it is known to fail must fail."""
    test = request.node.originalname
    if reason := deviations.deviation(kept_server.NAME, test):
        # What a server does in some runs only may pass: then nothing is proved, and nothing claimed
        # (the table in docs/stores.md marks it).
        strict = not deviations.by_chance(kept_server.NAME, test)
        request.applymarker(
            pytest.mark.xfail(reason=f"{kept_server.NAME}: {reason}", strict=strict)
        )
    return kept_server


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def bucket(url: str) -> str:
    """An empty bucket of the test's own."""
    name = f"bucket-{next(_numbers)}"
    client = server.outside(url)
    client.create_bucket(Bucket=name)
    client.close()
    return name


class SeenStore(S3Store):
    """The test's bucket, ``dest`` in it, and the way there."""

    def __init__(self, bucket: str, s3: mc.S3Options) -> None:
        super().__init__(bucket, s3)
        self.s3, self.dest = s3, f"s3://{bucket}/t"

    def write(self, **more: Any) -> mc.Writing:
        """A job of the library's there."""
        return mc.write(self.dest, **{"s3": self.s3, **more})

    def visible(self) -> dict[str, bytes]:
        """What a reader sees, but markers; nothing hidden may be left, and no upload."""
        keys = [one.key for one in objects(self, "")]
        assert not [key for key in keys if "__magic" in key]
        assert list(uploads(self, "")) == []
        data = [key for key in keys if not key.endswith("_SUCCESS")]
        return {key: self.get(key, max_bytes=1000).body for key in data}


@pytest.fixture
def store(url: str, bucket: str) -> SeenStore:
    return SeenStore(bucket, server.options(url))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """pytest-xdist writes the summary in a process that runs no test: it is told what was not."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["missing"] = _missing


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _missing.update(getattr(node, "workeroutput", {}).get("missing", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    say_missing(terminalreporter, _missing)

"""A real server, a proxy that notes and stops, and a JVM of each release of Hadoop.

Where the jars cannot be had every test is skipped, with the reason, and the last lines of the run
say so. In CI that is a failure, unless ``MAGIC_COMMITTER_WITHOUT_HADOOP=1`` allows it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from magic_committer.stores.s3 import S3Store
from tests.chaos.proxy import through
from tests.interop import jars, jvm
from tests.interop.lake import BUCKET, Lake
from tests.interop.wire import Wire
from tests.real_servers.kinds import versitygw
from tests.real_servers.server import NoServer, environment, options

_missing: list[str] = []
logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it cannot say goodbye to a JVM that is dead


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud that nothing was proved."""
    for reason in _missing[:1]:
        terminalreporter.write_line(f"NO REAL HADOOP WAS RUN: {reason}", red=True)


def without(reason: str) -> None:
    """Skip, or in CI fail."""
    _missing.append(reason)
    if os.environ.get("CI") and os.environ.get(jars.WITHOUT) != "1":
        pytest.fail(f"{reason}\n{jars.WITHOUT}=1 allows CI to pass without it", pytrace=False)
    pytest.skip(f"no real Hadoop: {reason}")


@pytest.fixture(scope="session")
def wired() -> Iterator[Wire]:
    for release in jars.RELEASES:
        try:
            jars.class_path(release)
        except NoServer as error:
            without(str(error))
    patched = pytest.MonkeyPatch.context()
    with versitygw() as url, through(Wire(), url) as wired, patched as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
            patch.delenv(name, raising=False)
        for name, value in environment(wired.url).items():
            patch.setenv(name, value)
        yield wired


@pytest.fixture(scope="session")
def lake(wired: Wire) -> Lake:
    """A bucket, and what anybody sees of it."""
    lake = Lake(wired.url)
    lake.client.create_bucket(Bucket=BUCKET)
    return lake


@pytest.fixture
def store(lake: Lake) -> S3Store:
    return S3Store(BUCKET, options(lake.url))


@pytest.fixture(scope="session", params=jars.RELEASES)
def hadoop(request: pytest.FixtureRequest, wired: Wire, lake: Lake) -> Iterator[jvm.Jvm]:
    """A JVM that lives, of each release."""
    with jvm.running(request.param, wired.url) as running:
        yield running

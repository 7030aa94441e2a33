"""One Spark and one S3 server for all tests of this folder; a destination of its own for each."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_store
from tests.servers import make_bucket, moto_server
from tests.spark.lake import BUCKET, Disk, Gate, Lake, Place, builder
from tools import java
from tools.moto_server import CREDENTIALS

ZOMBIE_MILLISECONDS = 600_000
"""How long Spark lets a Python worker live whose task it gave up (2 s by default): tests that need
such a worker must not race with its end."""


@pytest.fixture(scope="session")
def environment() -> Iterator[str]:
    """A server with a bucket, and the environment that leads every client to it: this process, and
    Spark's, which inherit it. Gives the server's URL."""
    with moto_server() as url, java.for_spark() as settings, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
            patch.delenv(name, raising=False)
        # Workers import this folder's modules; the root is not on their path.
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        for name, value in {
            **settings,
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": url,
            "PYTHONPATH": path,
        }.items():
            patch.setenv(name, value)
        make_bucket(url, BUCKET)
        yield url


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark logs its events."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(environment: str, event_log: Path) -> Iterator[SparkSession]:
    """Two tasks at a time, each tried up to three times."""
    session: SparkSession = (
        builder("local[2,3]")
        .appName("magic-committer tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", event_log.as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.sql.warehouse.dir", tempfile.gettempdir())
        .config("spark.python.task.killTimeout", f"{ZOMBIE_MILLISECONDS}ms")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    """An empty store in memory."""
    with memory_store() as store:
        yield store


@pytest.fixture
def lake(environment: str, request: pytest.FixtureRequest) -> Lake:
    """An empty destination, and a look at what the server has under it."""
    module = request.node.module.__name__.rpartition(".")[2]
    return Lake(environment, re.sub(r"\W+", "-", f"{module}-{request.node.name}").strip("-"))


@pytest.fixture(params=["lake", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A destination on S3, or on a disk."""
    if request.param == "disk":
        return Disk(tmp_path / "table")
    lake: Lake = request.getfixturevalue("lake")
    return lake


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Lets a task and the test wait for each other."""
    return Gate(str(tmp_path))


@pytest.fixture
def via(tmp_path: Path) -> Iterator[str]:
    """An empty directory, for ``via=``, in which nothing is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder.as_uri()
    assert os.listdir(folder) == []

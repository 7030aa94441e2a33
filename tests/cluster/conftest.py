"""One cluster, one application with speculation, and one S3 server for all tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.machines import WORKER_HOSTS, cluster, executor_of_this_task, executors
from tests.spark.conftest import ZOMBIE_MILLISECONDS, environment, gate, lake
from tests.spark.lake import builder, until

__all__ = ["environment", "gate", "lake"]


@pytest.fixture(scope="session")
def master(environment: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster with two hosts."""
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="session")
def session(master: str) -> Iterator[SparkSession]:
    """An application with an executor of one core on each host. A copy of a task is begun as soon
    as half of all tasks have ended and it takes a little longer than they."""
    made: SparkSession = (
        builder(master)
        .appName("magic-committer cluster tests")
        .config("spark.cores.max", len(WORKER_HOSTS))
        .config("spark.executor.cores", 1)
        .config("spark.executor.memory", "700m")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config("spark.locality.wait", "0")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
        .config("spark.shuffle.io.maxRetries", 1)
        .config("spark.shuffle.io.retryWait", "200ms")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.sql.warehouse.dir", tempfile.gettempdir())
        .config("spark.python.task.killTimeout", f"{ZOMBIE_MILLISECONDS}ms")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def spark(session: SparkSession) -> SparkSession:
    """That application, with an executor on each host again, whatever the last test killed."""
    context = session.sparkContext
    until(lambda: set(executors(context.applicationId).values()) == set(WORKER_HOSTS))

    # Tasks with a barrier run all at a time, and have no twins: each executor gets one.
    tasks = context.parallelize(range(len(WORKER_HOSTS)), len(WORKER_HOSTS)).barrier()
    assert set(tasks.mapPartitions(workplace).collect()) == set(executors(context.applicationId))
    return session


def workplace(rows: Iterable[int]) -> list[int]:
    """Which executor runs this task."""
    return [executor_of_this_task()]


@pytest.fixture
def via(tmp_path: Path) -> str:
    """An empty directory, for ``via=``. A slow attempt of Spark's may write into it again later."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder.as_uri()

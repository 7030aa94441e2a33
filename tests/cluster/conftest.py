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
    settings = {
        "spark.cores.max": len(WORKER_HOSTS), "spark.executor.cores": 1,
        "spark.executor.memory": "700m", "spark.sql.shuffle.partitions": 4,
        "spark.sql.adaptive.enabled": False, "spark.speculation": True,
        "spark.speculation.interval": "100ms", "spark.speculation.multiplier": 1.1,
        "spark.speculation.quantile": 0.5, "spark.speculation.minTaskRuntime": "500ms",
        "spark.locality.wait": 0, "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 300,
        "spark.shuffle.io.maxRetries": 1, "spark.shuffle.io.retryWait": "200ms",
        "spark.deploy.maxExecutorRetries": -1, "spark.sql.warehouse.dir": tempfile.gettempdir(),
        "spark.python.task.killTimeout": f"{ZOMBIE_MILLISECONDS}ms",
    }  # fmt: skip
    made: SparkSession = builder(master).config(map=settings).getOrCreate()
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

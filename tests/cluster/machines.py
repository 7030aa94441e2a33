"""A Spark cluster of this machine: a standalone Master and two Workers, on two addresses.

Two addresses, because Spark runs a speculative copy of a task on another host only; and
``local-cluster`` has one host. Nothing outlives its parent (`tools.lifeline`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.processes import living
from tests.spark.lake import SOON

MASTER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS_MAX = 90.0
CORES_OF_A_WORKER = 2
"""One for the executor of the tests' application, one for that which takes its place."""
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = "CoarseGrainedExecutorBackend"
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class ClusterFailed(RuntimeError):
    """A Master or Worker did not start; its log is in the message."""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a cluster with its logs in a folder; gives the Master's URL. Raises ClusterFailed: it did
    not start."""
    with ExitStack() as stack:
        log = folder / "master.log"
        args = ("--host", MASTER_HOST, "--port", "0", "--webui-port", "0")
        stack.enter_context(daemon(log, "org.apache.spark.deploy.master.Master", *args))
        url = awaited(log, _MASTER_URL)
        for host in WORKER_HOSTS:
            stack.enter_context(worker(folder, host, url))
        yield url


@contextmanager
def worker(folder: Path, host: str, url: str) -> Iterator[None]:
    """Run a Worker of a Master on an address. Raises ClusterFailed: it did not start."""
    log = folder / f"worker-{host}.log"
    size = ("--cores", str(CORES_OF_A_WORKER), "--memory", "3g")
    place = ("--host", host, "--webui-port", "0", "--work-dir", str(folder / host))
    with daemon(log, "org.apache.spark.deploy.worker.Worker", *place, *size, url):
        awaited(log, re.compile(f"({_REGISTERED})"))
        yield


@contextmanager
def daemon(log: Path, *command: str) -> Iterator[None]:
    """Run a class of Spark's until the block ends, or this process."""
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SOON}
    environment = {**os.environ, **small, "SPARK_NO_DAEMONIZE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.lifeline", str(SPARK_CLASS), *command],
            cwd=Path(__file__).resolve().parents[2], env=environment,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def awaited(log: Path, wanted: re.Pattern[str]) -> str:
    """What a log says of something, as soon as it does."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not (found := wanted.search(log.read_text(errors="replace"))):
        if time.monotonic() > deadline:
            raise ClusterFailed(f"{log.name}: no {wanted.pattern!r}:\n{log.read_text()[-4000:]}")
        time.sleep(0.1)
    return found[1]


def executors(application: str) -> dict[int, str]:
    """The processes of an application's executors, and the host of each."""
    return {
        one.pid: one.command[one.command.index("--hostname") + 1]
        for one in living()
        if any(word.endswith(EXECUTOR) for word in one.command) and application in one.command
    }


def executor_of_this_task() -> int:
    """The process of the executor that runs the Python worker that asks: the parent of Spark's
    daemon, which is the worker's."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pid: int) -> None:
    """Kill a process of this cluster at once."""
    os.kill(pid, signal.SIGKILL)

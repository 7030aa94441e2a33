"""Drivers of streams, which are killed: each leads a session, whose processes are killed or paused
together, and has a proxy of its own before the store.

``python -m tests.chaos.spark_drivers`` is one. It reads orders from its standard input, one line of
JSON each, and answers each with one: how the query ended that was ordered. It ends with its input.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.chaos.proxy import Striker, through
from tests.processes import Process, living
from tools import java
from tools.moto_server import CREDENTIALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
FACES = ("format", "foreach_batch")
FILES_A_BATCH = 2
ANSWER_SECONDS_MAX = 240.0
GONE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
CHARACTERS_MAX = 4_000
"""Of a driver's log or error, in what tells of it."""


@dataclass(frozen=True)
class Order:
    """A query that is to be run until all its input is written. ``face``: one of `FACES`.
    ``source``: the directory of its input: `FILES_A_BATCH` files of JSON for each batch.
    ``checkpoint``: its checkpoint location. ``dest``: where it writes."""

    face: str
    source: str
    checkpoint: str
    dest: str


@dataclass(frozen=True)
class Answer:
    """How a query ended, and why it failed; or that Spark has started."""

    outcome: str
    error: str = ""


READY, DONE = Answer("ready"), Answer("done")


# In the driver ------------------------------------------------------------------------------------


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Spark prints goes to the log
    spark = session()
    tell(answers, READY)
    for line in sys.stdin:
        tell(answers, run(spark, Order(**json.loads(line))))


def tell(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(asdict(answer)) + "\n")
    answers.flush()


def session() -> SparkSession:
    """A Spark that starts soon: many are killed. A partition for each file of the input."""
    from pyspark.sql import SparkSession

    settings: dict[str, Any] = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.files.openCostInBytes": "1", "spark.sql.files.maxPartitionBytes": "1",
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }  # fmt: skip
    made = SparkSession.builder.master("local[2,3]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def run(spark: SparkSession, order: Order) -> Answer:
    """Run a query by its face."""
    from pyspark.errors import StreamingQueryException

    from magic_committer.spark import foreach_batch

    read = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", FILES_A_BATCH)
    writer = read.json(order.source).writeStream
    if order.face == "format":
        writer = writer.format("magic").option("path", order.dest)
    else:
        writer = writer.foreachBatch(foreach_batch(order.dest))
    query: Any = None
    try:
        writer = writer.option("checkpointLocation", order.checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    except StreamingQueryException as error:
        return Answer("failed", str(error)[:CHARACTERS_MAX])
    finally:
        if query is not None:
            query.stop()
    return DONE


# Who has them -------------------------------------------------------------------------------------


class DriverFailed(AssertionError):
    """A driver ended, or did not answer, though nobody had killed it; its log is in the message."""


def in_session(leader: int) -> list[Process]:
    """The living processes of a session."""
    return [one for one in living() if one.session == leader]


class DriverProcess:
    """A driver, from its start to its end. ``line``: its way to the store."""

    def __init__(self, line: Striker, environment: dict[str, str], log: Path) -> None:
        self.line = line
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.spark_drivers"], cwd=ROOT,
                env={**environment, "AWS_ENDPOINT_URL": line.url}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=file, start_new_session=True, text=True,
            )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def starts(self) -> None:
        """Wait until its Spark has started."""
        if self.answer() != READY:
            raise DriverFailed(f"a driver did not start:\n{self._end_of_log()}")

    def begin(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()

    def answer(self, unless: Callable[[], bool] = lambda: False) -> Answer | None:
        """How the ordered query ended; None: the driver is dead, or something has happened. Raises
        `DriverFailed`: it did not answer in time."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not unless():
            with suppress(queue.Empty):
                line = self._lines.get(timeout=LOOK_SECONDS)
                return Answer(**json.loads(line)) if line else None
            if time.monotonic() > deadline:
                raise DriverFailed(f"no answer:\n{self._end_of_log()}")
        return None

    def kill(self) -> None:
        """Kill all of it with SIGKILL: Python, JVM, workers. Returns when all are gone."""
        self.line.release(over=True)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while there := in_session(self._process.pid):
            self.send(signal.SIGKILL)
            if time.monotonic() > deadline:
                raise DriverFailed(f"these do not end: {there}")
            time.sleep(0.01)
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def kill_workers(self) -> None:
        """Kill the Python processes that Spark has started with SIGKILL; Spark and the driver's own
        process live on."""
        for one in in_session(self._process.pid):
            if one.pid != self._process.pid and "python" in one.command[0]:
                _send(one.pid, signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        for one in in_session(self._process.pid):
            _send(one.pid, number)

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-CHARACTERS_MAX:]


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Drivers:
    """Starts drivers; keeps those that are free. One more is started beside the one that works, so
    that nobody waits for it."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        """``url``: of the store. ``folder``: for their logs. ``stack``: ends them."""
        self._stack, self._url, self._folder = stack, url, folder
        self._writing = threading.Lock()
        kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        self._environment = {
            **kept, **CREDENTIALS, **stack.enter_context(java.for_spark()),
            "PYTHONPATH": os.pathsep.join(path),
        }  # fmt: skip
        self._free: list[DriverProcess] = []
        self._starting: list[DriverProcess] = []
        self.started = 0

    def take(self) -> DriverProcess:
        """A driver that has started; of those that wait the one that has worked already."""
        while len(self._free) + len(self._starting) < 2:
            self._start()
        if not self._free:
            one = self._starting.pop(0)
            one.starts()
            self._free.append(one)
        return self._free.pop()

    def give_back(self, driver: DriverProcess) -> None:
        self._free.append(driver)

    def _start(self) -> None:
        self.started += 1
        line = self._stack.enter_context(through(Striker(), self._url, self._writing))
        log = self._folder / f"driver-{self.started}.log"
        driver = DriverProcess(line, self._environment, log)
        self._stack.callback(driver.kill)
        self._starting.append(driver)


@contextmanager
def drivers(url: str, folder: Path) -> Iterator[Drivers]:
    """Drivers of a store, all of which end with the block."""
    with ExitStack() as stack:
        yield Drivers(url, folder, stack)


if __name__ == "__main__":
    main()

"""Drivers of streams, which are killed: each leads a session, whose processes are killed or paused
together, and has a proxy of its own before the store."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.chaos.proxy import Striker, through
from tests.chaos.victims import Victim, context
from tests.processes import Process, living
from tools import java
from tools.moto_server import CREDENTIALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
FACES = ("format", "foreach_batch")
FILES_A_BATCH = 2
ANSWER_SECONDS_MAX = 240.0
GONE_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05
CHARACTERS_MAX = 4_000
"""Of a driver's log or error, in what tells of it."""


class Order(NamedTuple):
    """A query that is to be run until all its input is written. ``face``: one of `FACES`.
    ``source``: the directory of its input: `FILES_A_BATCH` files of JSON for each batch.
    ``checkpoint``: its checkpoint location. ``dest``: where it writes."""

    face: str
    source: str
    checkpoint: str
    dest: str


class Answer(NamedTuple):
    """How a query ended, and why it failed; or that Spark has started."""

    outcome: str
    error: str = ""


READY, DONE = Answer("ready"), Answer("done")


# In the driver ------------------------------------------------------------------------------------


def drive(environment: dict[str, str], log: Path, orders: Connection) -> Iterator[Answer]:
    """Start Spark in a session of its own, and run queries as they are ordered, until nobody orders
    any more."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    with log.open("w") as file:  # whatever Spark prints
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    spark = session()
    yield READY
    with suppress(EOFError):
        while True:
            yield run(spark, orders.recv())


def session() -> SparkSession:
    """A Spark of which many are killed. A partition for each file of the input."""
    from tests.spark.lake import builder

    settings = {
        "spark.driver.memory": "512m", "spark.sql.files.openCostInBytes": "1",
        "spark.sql.files.maxPartitionBytes": "1", "spark.sql.files.minPartitionNum": "1",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }  # fmt: skip
    made: SparkSession = builder("local[2,3]").config(map=settings).getOrCreate()
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
    """A driver did not answer, though nobody had killed it; its log is in the message."""


class DriverProcess(Victim):
    """A driver, from its start to its end. ``line``: its way to the store."""

    def __init__(self, line: Striker, environment: dict[str, str], log: Path) -> None:
        self.line, self._log = line, log
        taken, self._orders = context.Pipe(duplex=False)
        told = {**environment, "AWS_ENDPOINT_URL": line.url}
        super().__init__(drive, told, log, taken, line=line)
        taken.close()

    def begin(self, order: Order) -> None:
        self._orders.send(order)

    def answer(self, unless: Callable[[], bool] = lambda: False) -> Answer | None:
        """How the ordered query ended; None: the driver is dead, or something has happened. Raises
        `DriverFailed`: it did not answer in time, or ended by an error."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not unless():
            with suppress(EOFError):
                told = self.hear() if self.told(LOOK_SECONDS) else None
                if isinstance(told, Answer):
                    return told
                if told is not None or time.monotonic() > deadline:
                    log = self._log.read_text(errors="replace")[-CHARACTERS_MAX:]
                    raise DriverFailed(f"no answer: {told}\n{log}")
                continue
            return None
        return None

    def _kill_at_once(self) -> None:
        """With SIGKILL: Python, JVM, workers. Returns when all are gone."""
        self.line.release(over=True)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while there := self._processes():
            self.send(signal.SIGKILL)
            if time.monotonic() > deadline:
                raise DriverFailed(f"these do not end: {there}")
            time.sleep(0.01)
        self._orders.close()

    def kill_workers(self) -> None:
        """Kill the Python processes that Spark has started with SIGKILL; Spark and the driver's own
        process live on."""
        for one in self._processes():
            if one.pid != self.pid and "python" in one.command[0]:
                _send(one.pid, signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        for one in self._processes():
            _send(one.pid, number)

    def _processes(self) -> list[Process]:
        """Its own, and all of its session."""
        return [one for one in living() if self.pid in (one.pid, one.session)]


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
            assert one.answer() == READY
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

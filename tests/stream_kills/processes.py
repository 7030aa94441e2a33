"""Drivers as the runner has them: each leads a session, whose processes are killed or paused
together, and has a proxy of its own before the store."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.stream_kills.driver import READY, Answer, Order
from tests.striker import Striker, striker
from tools import java
from tools.moto_server import CREDENTIALS

ROOT = Path(__file__).resolve().parents[2]
ANSWER_SECONDS_MAX = 240.0
GONE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
LOG_CHARACTERS = 4_000
"""Of a driver's log, in the error that tells of it."""


class DriverFailed(AssertionError):
    """A driver ended, or did not answer, though nobody had killed it; its log is in the message."""


@dataclass(frozen=True)
class Found:
    pid: int
    program: str


def in_session(leader: int) -> list[Found]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(Found(int(entry.name), (entry / "cmdline").read_text()))
    return found


class DriverProcess:
    """A driver, from its start to its end. ``proxy``: stands before its store."""

    def __init__(self, proxy: Striker, environment: Mapping[str, str], log: Path) -> None:
        self.proxy = proxy
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.stream_kills.driver"], cwd=ROOT,
                env={**environment, "AWS_ENDPOINT_URL": proxy.url}, stdin=subprocess.PIPE,
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
        if self.answer() != Answer(READY):
            raise DriverFailed(f"a driver did not start:\n{self._end_of_log()}")

    def begin(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order.line())
        self._process.stdin.flush()

    def answer(self) -> Answer | None:
        """How the ordered query ended; None: the driver is dead. Raises `DriverFailed`: it did not
        answer in time."""
        return self.answer_unless(lambda: False)

    def answer_unless(self, happens: Callable[[], bool]) -> Answer | None:
        """As `answer`; None, too, as soon as something happens."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not happens():
            with suppress(queue.Empty):
                line = self._lines.get(timeout=LOOK_SECONDS)
                return Answer(**json.loads(line)) if line else None
            if time.monotonic() > deadline:
                raise DriverFailed(f"no answer:\n{self._end_of_log()}")
        return None

    def kill(self) -> None:
        """Kill all of it with SIGKILL: Python, JVM, workers. Returns when all are gone."""
        self.proxy.end()
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
            if one.pid != self._process.pid and "python" in one.program.split("\0")[0]:
                _send(one.pid, signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        for one in in_session(self._process.pid):
            _send(one.pid, number)

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_CHARACTERS:]


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Drivers:
    """Starts drivers; keeps those that are free. One more is started beside the one that works, so
    that nobody waits for it."""

    def __init__(self, url: str, folder: Path, stack: ExitStack, spare: int) -> None:
        """Args:
        url: of the store.
        folder: for their logs.
        stack: ends their proxies, and them.
        spare: how many are ready or starting, at least.
        """
        self._stack = stack
        self._url = url
        self._folder = folder
        self._spare = spare
        self._writing = threading.Lock()
        self._environment = environment(stack)
        self._free: list[DriverProcess] = []
        self._starting: list[DriverProcess] = []
        self.started = 0

    def take(self) -> DriverProcess:
        """A driver that has started; of those that wait the one that has worked already."""
        while len(self._free) + len(self._starting) < 1 + self._spare:
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
        proxy = self._stack.enter_context(striker(self._url, self._writing))
        log = self._folder / f"driver-{self.started}.log"
        driver = DriverProcess(proxy, self._environment, log)
        self._stack.callback(driver.kill)
        self._starting.append(driver)


@contextmanager
def drivers(url: str, folder: Path, *, spare: int) -> Iterator[Drivers]:
    """Drivers of a store, all of which end with the block."""
    with ExitStack() as stack:
        yield Drivers(url, folder, stack, spare)


def environment(stack: ExitStack) -> dict[str, str]:
    """What a driver finds: a Java, credentials, this tree; no account of this machine."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    return {
        **kept, **CREDENTIALS, **stack.enter_context(java.for_spark()),
        "PYTHONPATH": os.pathsep.join(path),
    }  # fmt: skip

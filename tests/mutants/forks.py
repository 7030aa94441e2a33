"""Children side by side: forked, watched, ended when they are late, and never left behind."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.mutants import children
from tests.mutants.children import Answer, Work
from tests.mutants.source import Mutant

R = TypeVar("R")
Steps = Generator[tuple[Mutant | None, Work], Answer, R]
"""Asks for children one after the other, is sent their answers, and returns what they come to."""

PRELOADED = (
    "boto3", "botocore.session", "click", "concurrent.futures.process", "greenlet",
    "multiprocessing", "orjson", "pytest", "rich.console", "rich.progress", "rich.table",
    "s3transfer.manager", "tenacity", "unittest.mock",
)  # fmt: skip
"""Loaded once, before the first fork; the library is not among them."""
WALL_SECONDS = 1800.0
"""After this a child is killed."""


class BrokenError(RuntimeError):
    """A child gave no answer, for a fault of the suite's own."""


@dataclass
class _Running(Generic[R]):
    steps: Steps[R]
    work: Work
    pid: int
    scratch: Path
    deadline: float


class Forks:
    """Runs steps, some at once. A context manager: at its end no child is left, and no file."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: dict[int, _Running[Any]] = {}
        self._selector = selectors.DefaultSelector()
        self._scratch = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._number = 0
        self._parent = os.pipe()

    def __enter__(self) -> Forks:
        for name in PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, running in list(self._running.items()):
            self._end(pipe, running)
        self._selector.close()
        for end in self._parent:
            os.close(end)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, all_steps: Iterable[Steps[R]], until: float = float("inf")) -> Iterator[R]:
        """Results as they come; those that have not begun by ``until`` (monotonic) do not begin."""
        waiting = iter(all_steps)
        more = True
        while True:
            while more and len(self._running) < self._jobs:
                steps = next(waiting, None) if time.monotonic() < until else None
                if steps is None:
                    more = False
                    break
                yield from self._go_on(steps, None)
            if not self._running:
                return
            for pipe in self._ready():
                running = self._running[pipe]
                yield from self._go_on(running.steps, self._answer(pipe, running))

    def _go_on(self, steps: Steps[R], answer: Answer | None) -> Iterator[R]:
        try:
            wanted = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            yield end.value
            return
        self._fork(steps, *wanted)

    def _fork(self, steps: Steps[Any], mutant: Mutant | None, work: Work) -> None:
        self._number += 1
        scratch = self._scratch / str(self._number)
        scratch.mkdir()
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            os.close(self._parent[1])
            children.live(mutant, work, theirs, self._parent[0], scratch)
        os.close(theirs)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # as the child does: whoever is first
        self._selector.register(ours, selectors.EVENT_READ)
        deadline = time.monotonic() + WALL_SECONDS
        self._running[ours] = _Running(steps, work, pid, scratch, deadline)

    def _ready(self) -> list[int]:
        while True:
            found = [key.fd for key, _ in self._selector.select(timeout=0.2)]
            now = time.monotonic()
            found += [p for p, one in self._running.items() if one.deadline < now]
            if found:
                return list(dict.fromkeys(found))

    def _answer(self, pipe: int, running: _Running[Any]) -> Answer:
        if running.deadline < time.monotonic():
            self._end(pipe, running)
            return Answer(True, f"it does not end ({running.work.name})")
        told = b""
        while not told.endswith(b"\n") and (some := os.read(pipe, 65536)):
            told += some
        if told.endswith(b"\n"):
            self._end(pipe, running)
            answer = Answer(**json.loads(told))
        else:  # it died: the pipe has ended with it
            code = self._end(pipe, running, patience=5.0)
            if code in (-signal.SIGXCPU, -signal.SIGKILL):
                return Answer(True, f"it does not end ({running.work.name})")
            answer = Answer(broken=f"a child ended with {code}")
        if answer.broken:
            answer.broken += "\n" + _tail(running.scratch / "log")
        shutil.rmtree(running.scratch, ignore_errors=True)
        return answer

    def _end(self, pipe: int, running: _Running[Any], patience: float = 0.0) -> int:
        """Kill a child, if it does not end by itself, and all that it started; its exit code."""
        del self._running[pipe]
        self._selector.unregister(pipe)
        os.close(pipe)
        until = time.monotonic() + patience
        found, status = os.waitpid(running.pid, os.WNOHANG)
        while not found and time.monotonic() < until:
            time.sleep(0.01)
            found, status = os.waitpid(running.pid, os.WNOHANG)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, signal.SIGKILL)
        if not found:
            _, status = os.waitpid(running.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-2000:]
    except OSError:
        return ""

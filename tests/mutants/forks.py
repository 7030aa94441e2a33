"""Children side by side: forked, watched, ended when they are late, and never left behind."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
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
    process: BaseProcess
    scratch: Path
    deadline: float


class Forks:
    """Runs steps, some at once. A context manager: at its end no child is left, and no file."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: dict[Any, _Running[Any]] = {}
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
        for end in self._parent:
            os.close(end)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, all_steps: Iterable[Steps[R]], until: float = float("inf")) -> Iterator[R]:
        """Results as they come; those that have not begun by ``until`` (monotonic) do not begin."""
        waiting = iter(all_steps)
        more = True
        while more or self._running:
            while more and len(self._running) < self._jobs:
                steps = next(waiting, None) if time.monotonic() < until else None
                more = steps is not None
                if steps is not None:
                    yield from self._go_on(steps, None)
            ready = list(wait(list(self._running), timeout=0.2))
            late = [p for p, one in self._running.items() if one.deadline < time.monotonic()]
            for pipe in dict.fromkeys([*ready, *late]):
                running = self._running[pipe]
                yield from self._go_on(running.steps, self._answer(pipe, running))

    def _go_on(self, steps: Steps[R], answer: Answer | None) -> Iterator[R]:
        try:
            mutant, work = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            yield end.value
            return
        self._number += 1
        scratch = self._scratch / str(self._number)
        scratch.mkdir()
        ours, theirs = Pipe(duplex=False)
        process = get_context("fork").Process(
            target=children.live, args=(mutant, work, theirs, self._parent, scratch)
        )
        process.start()
        theirs.close()
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(process.pid or 0, process.pid or 0)  # as the child does: whoever is first
        deadline = time.monotonic() + WALL_SECONDS
        self._running[ours] = _Running(steps, work, process, scratch, deadline)

    def _answer(self, pipe: Any, running: _Running[Any]) -> Answer:
        late = running.deadline < time.monotonic()
        answer = None
        with contextlib.suppress(EOFError):  # it died: the pipe has ended with it
            answer = None if late else pipe.recv()
        code = self._end(pipe, running, patience=0.0 if late or answer else 5.0)
        if answer is None and (late or code in (-signal.SIGXCPU, -signal.SIGKILL)):
            return Answer(True, f"it does not end ({running.work.name})")
        answer = answer or Answer(broken=f"a child ended with {code}")
        if answer.broken:
            answer.broken += "\n" + _tail(running.scratch / "log")
        shutil.rmtree(running.scratch, ignore_errors=True)
        return answer

    def _end(self, pipe: Any, running: _Running[Any], patience: float = 0.0) -> int | None:
        """Kill a child, if it does not end by itself, and all that it started; its exit code."""
        del self._running[pipe]
        pipe.close()
        running.process.join(patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.process.pid or 0, signal.SIGKILL)
        running.process.join()
        return running.process.exitcode


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-2000:]
    except OSError:
        return ""

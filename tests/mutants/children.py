"""What one process finds out about one mutant: it is forked, changes the library, runs tests or
schedules, writes its answer into a pipe, and ends.

A fork, because Python, pytest and the SDK are loaded once, and what a mutant does to its process is
gone with it. A process group of its own, killed when it is late and when the parent is gone, so
that nothing is left of it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from tests.mutants import loading
from tests.mutants.source import ROOT, Mutant

PYTEST = ("-q", "-p", "no:cacheprovider")
IDLE_SECONDS = 90.0
IDLE_CPU_SECONDS = 0.05
"""A child that uses less of its processor in that time waits for ever."""
NO_TESTS = 5
"""pytest's exit code where no test was found."""


@dataclass(frozen=True, kw_only=True)
class Work(ABC):
    """What a child does. ``name``: in a word. wall_seconds: after this it is killed.
    ``cpu_seconds``: of its processor: not so much the machine's load."""

    name: str
    wall_seconds: float = 1800.0
    cpu_seconds: int = 150

    @abstractmethod
    def done(self, scratch: Path) -> Answer:
        """Do it, in this process."""


@dataclass(frozen=True)
class TestRun(Work):
    """Run tests until one fails. ``order``: their node ids, the likeliest first; those that are not
    there are passed over. ``whole_files``: they are modules, and all their tests are meant."""

    order: tuple[str, ...]
    whole_files: bool = False

    def done(self, scratch: Path) -> Answer:
        plugin = Order(self.order, self.whole_files)
        try:
            code = run_pytest(self.order, scratch, plugin)
        except Exception:  # its end fails too, where a failed test has left something open
            if not plugin.failed:
                raise
        if plugin.failed:
            return Answer(True, plugin.failed, plugin.ran)
        if code not in (0, NO_TESTS):
            return Answer(broken=f"pytest ended with {code}, and no test failed")
        return Answer(ran=plugin.ran)


@dataclass(frozen=True)
class Schedules(Work):
    """Run the simulator's schedules until a promise breaks. ``seeds``: ranges of seeds, each with
    the name of what they go for ("": everything)."""

    seeds: tuple[tuple[str, int, int], ...]
    _: KW_ONLY
    name: str = "simulation"
    cpu_seconds: int = 200

    def done(self, scratch: Path) -> Answer:
        from tests.simulation.tally import quietly

        known = foci()
        ran = 0
        for name, first, count in self.seeds:
            seed = first
            try:
                for result in quietly(first, count, known[name]) if name in known else ():
                    ran += 1
                    seed = result.seed
                    if result.violations:
                        return _shown(name, seed, result.violations[0].promise, ran)
                    seed += 1
            except Exception as error:
                return _shown(name, seed, type(error).__name__, ran)
        return Answer(ran=ran)


@dataclass
class Answer:
    """What came of one process's work. ``killed``: something failed. by: what: a test's node id, or
    a schedule. ``ran``: how many tests, or schedules. ``broken``: why there is no answer: the fault
    is the suite's own. ``extra``: of work that measures."""

    killed: bool = False
    by: str = ""
    ran: int = 0
    broken: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def live(mutant: Mutant | None, work: Work, answer_to: int, parent: int, scratch: Path) -> None:
    """The whole life of a child; does not return. ``parent``: the end of a pipe that ends with the
    parent."""
    code = 1
    try:
        os.setpgid(0, 0)
        threading.Thread(target=_end_with, args=(parent, scratch.parent), daemon=True).start()
        threading.Thread(target=_end_idle, daemon=True).start()
        log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ["TMPDIR"] = str(scratch)
        os.chdir(ROOT)
        limit = work.cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        gc.collect()
        gc.freeze()
        if mutant is not None:
            loading.install(mutant)
        answer = work.done(scratch)
        with os.fdopen(answer_to, "wb") as pipe:
            pipe.write(json.dumps(answer.__dict__).encode() + b"\n")
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _end_idle() -> None:
    """End a process that does nothing: a deadlock, told from a machine with much else to do."""
    used = -1.0
    while (now := time.process_time()) - used > IDLE_CPU_SECONDS:
        used = now
        time.sleep(IDLE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _end_with(parent: int, all_scratch: Path) -> None:
    while os.read(parent, 1):
        continue
    shutil.rmtree(all_scratch, ignore_errors=True)  # a parent that was killed could not
    os.killpg(0, signal.SIGKILL)


# Tests --------------------------------------------------------------------------------------------


class Order:
    """A plugin of pytest: the wanted tests only, in the wanted order; and which failed."""

    def __init__(self, order: Sequence[str], whole_files: bool = False) -> None:
        self._place = {name: number for number, name in enumerate(order)}
        self._whole_files = whole_files
        self.failed = ""
        self.ran = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out what is not wanted."""
        if self._whole_files:
            return
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        """A test module that cannot be imported."""
        if report.failed and not self.failed:
            self.failed = f"import of {report.nodeid}"

    def pytest_runtest_logreport(self, report: Any) -> None:
        """The end of a test, or of its set-up."""
        if report.failed and not self.failed:
            self.failed = report.nodeid
        self.ran += report.when == "call"


def run_pytest(order: Sequence[str], scratch: Path, *plugins: object, stop: bool = True) -> int:
    """Run the modules of some tests in this process, until one fails."""
    import pytest

    files = list(dict.fromkeys(name.partition("::")[0] for name in order))
    there = [name for name in files if (ROOT / name).is_file()]
    if not there:
        return NO_TESTS
    options = [*PYTEST, *(["-x"] if stop else []), f"--basetemp={scratch / 'pytest'}"]
    return int(pytest.main([*options, *there], plugins))


# Schedules ----------------------------------------------------------------------------------------


def foci() -> Mapping[str, Any]:
    """What schedules may go for, by a name that stays: everything, and each focus of a rule."""
    from tests.simulation.drawing import EVERYTHING
    from tests.simulation.rules import RULES

    by_name = {"": EVERYTHING}
    for rule in RULES:
        if rule.focus not in by_name.values():
            by_name[rule.name] = rule.focus
    return by_name


def _shown(focus: str, seed: int, broken: str, ran: int) -> Answer:
    going_for = f" of {focus!r}" if focus else ""
    return Answer(
        True, f"seed {seed}{going_for}: {broken}", ran, extra={"focus": focus, "seed": seed}
    )

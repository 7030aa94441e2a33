"""What one process finds out about one mutant: it is forked, changes the library, runs tests or
schedules, writes its answer into a pipe, and ends.

A fork, because Python, pytest and the SDK are loaded once, and what a mutant does to its process is
gone with it. A process group of its own, killed when it is late and when the parent is gone, so
that nothing is left of it.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.mutants.source import PACKAGE, ROOT, Mutant

IDLE_SECONDS = 90.0
IDLE_CPU_SECONDS = 0.05
"""A child that uses less of its processor in that time waits for ever."""
NO_TESTS = (4, 5)
"""pytest's exit codes where no test was found."""


@dataclass(frozen=True)
class TestRun:
    """Run tests until one fails. ``order``: their node ids, or modules, the likeliest first.
    ``cpu_seconds``: of its processor: not so much the machine's load."""

    order: tuple[str, ...]
    _: KW_ONLY
    name: str
    cpu_seconds: int = 300

    def done(self, scratch: Path) -> Answer:
        """Do it, in this process."""
        import pytest

        failed = Failed()
        options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={scratch / 'pytest'}"]
        try:
            code = int(pytest.main([*options, *self.order], [failed]))
        except Exception:  # its end fails too, where a failed test has left something open
            if not failed.name:
                raise
        if failed.name:
            return Answer(True, failed.name)
        if code not in (0, *NO_TESTS):
            return Answer(broken=f"pytest ended with {code}, and no test failed")
        return Answer()


@dataclass(frozen=True)
class Schedules:
    """Run the simulator's schedules until a promise breaks. ``seeds``: ranges of seeds, each with
    the name of the rule whose focus they have ("": everything)."""

    seeds: tuple[tuple[str, int, int], ...]
    name: str = "simulation"
    cpu_seconds: int = 200

    def done(self, scratch: Path) -> Answer:
        """Do it, in this process."""
        from tests.simulation.drawing import EVERYTHING
        from tests.simulation.rules import RULES
        from tests.simulation.tally import quietly

        foci = {"": EVERYTHING, **{rule.name: rule.focus for rule in RULES}}
        for name, first, count in self.seeds:
            seed, broken = first, ""
            try:
                for result in quietly(first, count, foci[name]) if name in foci else ():
                    if result.violations:
                        seed, broken = result.seed, result.violations[0].promise
                        break
                    seed = result.seed + 1
            except Exception as error:
                broken = type(error).__name__
            if broken:
                by = f"seed {seed}{f' of {name!r}' if name else ''}: {broken}"
                return Answer(True, by, extra={"focus": name, "seed": seed})
        return Answer()


Work = TestRun | Schedules


@dataclass
class Answer:
    """What came of one process's work. ``killed``: something failed. by: what: a test's node id, or
    a schedule, which is in ``extra``. ``broken``: why there is no answer: the fault is the suite's
    own."""

    killed: bool = False
    by: str = ""
    broken: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def live(
    mutant: Mutant | None, work: Work, answer_to: Connection, parent: tuple[int, int], scratch: Path
) -> None:
    """The whole life of a child; does not return. ``parent``: a pipe that ends with the parent."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.close(parent[1])
        threading.Thread(target=_end_with, args=(parent[0], scratch.parent), daemon=True).start()
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
            install(mutant)
        answer_to.send(work.done(scratch))
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


class _Changed(MetaPathFinder, Loader):
    """Finds the mutant's module, and no other, and runs its changed code in place of the file's."""

    def __init__(self, mutant: Mutant) -> None:
        self._module, self._file = mutant.module, ROOT / PACKAGE / mutant.path
        self._code = compile(mutant.tree(), str(self._file), "exec", dont_inherit=True)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The changed module's spec."""
        if fullname != self._module:
            return None
        package = [str(self._file.parent)] if self._file.name == "__init__.py" else None
        return spec_from_file_location(
            fullname, self._file, loader=self, submodule_search_locations=package
        )

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def install(mutant: Mutant) -> None:
    """From now on, importing the mutant's module gives the changed one, in this process."""
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE)
    if loaded:
        raise AssertionError(f"{loaded[0]} is imported already: the change would not be seen")
    sys.meta_path.insert(0, _Changed(mutant))


class Failed:
    """A plugin of pytest: the test that failed first."""

    name = ""

    def pytest_collectreport(self, report: Any) -> None:
        """A test module that cannot be imported."""
        if report.failed:
            self.name = self.name or f"import of {report.nodeid}"

    def pytest_runtest_logreport(self, report: Any) -> None:
        """The end of a test, or of its set-up."""
        if report.failed:
            self.name = self.name or report.nodeid

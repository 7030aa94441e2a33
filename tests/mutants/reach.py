"""Which tests run which lines: all of them once, traced, so that a mutant meets only the tests that
can see it. Kept in a file that is named for all that it depends on."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from tests.mutants.children import Answer, Work, run_pytest
from tests.mutants.forks import BrokenError, Forks, Steps
from tests.mutants.source import ALONE, FOLDERS, PACKAGE, ROOT, Mutant

KEPT = ROOT / ".mutants"
FORM = b"1"
"""Of the file that is kept: another one, where what is in it changes."""
SUITES = ("promises", "unit", "fuzz", "cli")
"""Folders of tests that may kill a mutant, the first of them first."""
ELSEWHERE = (
    "cli/test_readme.py", "cli/test_manners.py", "promises/test_processes.py",
    "promises/test_other_process.py",
)  # fmt: skip
"""Their tests start other processes, which import the library as it is, or are forks of a fork."""
MENTIONS = tuple(f"{PACKAGE}.{folder}" for folder in FOLDERS)


def test_files() -> list[str]:
    """The test modules that may kill a mutant: of units only those of the mutated packages."""
    found = []
    for suite in SUITES:
        for file in sorted((ROOT / "tests" / suite).glob("test_*.py")):
            words = file.read_text(encoding="utf-8")
            if f"{suite}/{file.name}" in ELSEWHERE:
                continue
            if suite != "unit" or any(mention in words for mention in MENTIONS):
                found.append(file.relative_to(ROOT).as_posix())
    return found


@dataclass
class Reach:
    """What each test runs: lines by module, and its seconds."""

    lines: dict[str, dict[str, frozenset[int]]]
    seconds: dict[str, float]

    def order(self, mutant: Mutant, suites: tuple[str, ...]) -> list[str]:
        """The tests of some suites that run the mutant's lines, the quickest first."""
        found = [
            test
            for test, modules in self.lines.items()
            if test.split("/")[1] in suites
            and test.partition("::")[0].removeprefix("tests/") not in ELSEWHERE
            and mutant.path in modules
            and (not mutant.lines or mutant.lines & modules[mutant.path])
        ]
        return sorted(found, key=lambda test: self.seconds.get(test, 0.0))


class Tracer:
    """A plugin of pytest: what each test runs of the mutated packages."""

    def __init__(self) -> None:
        home = ROOT / PACKAGE
        folders = tuple(f"{home / folder}/" for folder in FOLDERS)
        self._prefixes = (*folders, *(f"{home / name}" for name in ALONE))
        self._home = len(str(home)) + 1
        self._now: dict[str, set[int]] = {}
        self._files: dict[str, str | None] = {}
        self.lines: dict[str, dict[str, list[int]]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._now = {}
        self._began = time.perf_counter()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)
        self.lines[nodeid] = {path: sorted(lines) for path, lines in self._now.items()}
        self.seconds[nodeid] = round(time.perf_counter() - self._began, 4)

    def _call(self, frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            mine = name.startswith(self._prefixes)
            self._files[name] = name[self._home :] if mine else None
        path = self._files[name]
        if path is None:
            return None
        add = self._now.setdefault(path, set()).add
        add(frame.f_lineno)

        def line(frame: Any, event: str, arg: Any) -> Any:
            add(frame.f_lineno)
            return line

        return line


@dataclass(frozen=True)
class Trace(Work):
    """Run some test modules, traced."""

    files: tuple[str, ...]
    into: str
    _: KW_ONLY
    name: str = "trace"
    cpu_seconds: int = 900

    def done(self, scratch: Path) -> Answer:
        tracer = Tracer()
        code = run_pytest(self.files, scratch, tracer, stop=False)
        if tracer.failed:
            return Answer(broken=f"these fail without any mutant: {tracer.failed[:5]}")
        if code:
            return Answer(broken=f"pytest ended with {code} on {self.files}")
        Path(self.into).write_text(json.dumps([tracer.lines, tracer.seconds]))
        return Answer(ran=len(tracer.lines))


def measured(forks: Forks) -> Reach:
    """What the tests run: as kept, or found out anew. Raises `BrokenError`: a test fails without
    any mutant."""
    files = test_files()
    kept = KEPT / f"reach-{_state_of_all()}.json"
    if not kept.exists():
        KEPT.mkdir(exist_ok=True)
        parts = [kept.with_suffix(f".{number}") for number in range(len(files))]
        chunks = [f"{part}" for part in parts]
        steps = (_trace((file,), into) for file, into in zip(files, chunks, strict=True))
        for answer in forks.run(steps):
            if answer.broken:
                raise BrokenError(answer.broken)
        lines: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        for part in parts:
            some = json.loads(part.read_text())
            lines.update(some[0])
            seconds.update(some[1])
            part.unlink()
        for old in KEPT.glob("reach-*"):
            old.unlink()
        kept.write_text(json.dumps([lines, seconds]))
    lines, seconds = json.loads(kept.read_text())
    return Reach(
        {
            test: {path: frozenset(found) for path, found in modules.items()}
            for test, modules in lines.items()
        },
        seconds,
    )


def _trace(files: tuple[str, ...], into: str) -> Steps[Answer]:
    answer = yield None, Trace(files, into)
    return answer


def _state_of_all() -> str:
    seen = hashlib.blake2b(FORM, digest_size=8)
    for file in sorted(_sources()):
        seen.update(file.as_posix().encode() + file.read_bytes())
    return seen.hexdigest()


def _sources() -> Iterator[Path]:
    yield from (ROOT / PACKAGE).rglob("*.py")
    for suite in SUITES:
        yield from (ROOT / "tests" / suite).rglob("*.py")
    yield from (ROOT / "tests").glob("*.py")

"""What becomes of a mutant: the test that killed it last time, then the promises, then units and
commands, then the simulator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.children import Schedules, TestRun
from tests.mutants.forks import Forks, Steps
from tests.mutants.source import FOLDERS, PACKAGE, ROOT, Mutant

KILLERS = Path(__file__).with_name("killers.json")
SUITES = ("promises", "unit", "fuzz", "cli")
"""Folders of tests that may kill a mutant, the first of them first."""
ELSEWHERE = (
    "cli/test_readme.py", "cli/test_manners.py", "promises/test_processes.py",
    "promises/test_other_process.py",
)  # fmt: skip
"""Their tests start other processes, which import the library as it is, or are forks of a fork."""
OPERATORS = ("maintenance/",)
"""What the commands call, and their tests hold."""
ADAPTER = "stores/s3/"
"""What only tests with a server of their own see."""
ADAPTER_TESTS = ("tests/transport/test_*.py", "tests/chaos/test_deadlines.py")
SEEDS = 1500
SEEDS_OF_A_FOCUS = 250
FOCI = (
    "plan of one try", "hands off", "retried Create", "set up, then look",
    "delete If-Match", "fail by If-None-Match", "abort, HEAD, delete",
    "withdraw by aborting", "a young job is left", "uploads, then records", "ours by token",
)  # fmt: skip
"""Rules of the simulation whose focus is tried after everything; unknown names are passed over."""

Killer = Mapping[str, Any]
"""``{"test": node id}``, or ``{"focus": name, "seed": number}``."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant. ``by``: what killed it, in words; "" for a survivor. ``killer``:
    the same, to be tried first the next time. ``broken``: why there is no verdict: the fault is the
    suite's own."""

    mutant: Mutant
    by: str
    killer: Killer
    seconds: float
    broken: str = ""

    @property
    def killed(self) -> bool:
        return bool(self.by)


def known_killers() -> dict[str, Killer]:
    """What killed each mutant the last time: only a guess what to try first."""
    return dict(json.loads(KILLERS.read_text())) if KILLERS.exists() else {}


def keep_killers(verdicts: Iterable[Verdict], names: set[str]) -> None:
    """Note what killed mutants, and forget those that are gone."""
    kept = {name: killer for name, killer in known_killers().items() if name in names}
    for verdict in verdicts:
        if verdict.killer:
            kept[verdict.mutant.id] = verdict.killer
        elif not verdict.killed:
            kept.pop(verdict.mutant.id, None)
    body = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    KILLERS.write_text(f"{{\n{body}\n}}\n")


def judge(mutant: Mutant, killer: Killer | None, *, killer_only: bool = False) -> Steps[Verdict]:
    """Try a mutant on all that may kill it, the likeliest modules first. ``killer_only``: try only
    what killed it the last time, twice if need be."""
    began = time.monotonic()
    works = _works(mutant, killer)
    for work in [next(works)] * 2 if killer_only else works:
        answer = yield mutant, work
        again: TestRun | Schedules | None = None
        if answer.killed and "::" in answer.by:
            again = TestRun((answer.by,), name="its killer, once more")
            twice = yield mutant, again  # a test may fail by the machine's load
            if not twice.killed and not twice.broken:
                answer = yield mutant, work
            if killer and killer.get("test") == answer.by:
                again = None
        elif answer.extra:
            again = Schedules(((answer.extra["focus"], answer.extra["seed"], 1),))
        broken = answer.broken
        if answer.killed and again is not None and not broken:  # new: is it green without?
            without = yield None, again
            if without.killed or without.broken:
                broken = f"without the mutant: {without.by}{without.broken}"
        if answer.killed or broken:
            found = answer.extra or ({"test": answer.by} if "::" in answer.by else {})
            seconds = time.monotonic() - began
            if broken:
                return Verdict(mutant, "", {}, seconds, broken)
            return Verdict(mutant, answer.by, found, seconds)
    return Verdict(mutant, "", {}, time.monotonic() - began)


def _works(mutant: Mutant, killer: Killer | None) -> Iterator[TestRun | Schedules]:
    if killer and "test" in killer:
        yield TestRun((killer["test"],), name="its killer")
    elif killer:
        yield Schedules(((killer["focus"], killer["seed"], 1),), name="its killer")
    if mutant.path.startswith(ADAPTER):
        found = (file for pattern in ADAPTER_TESTS for file in sorted(ROOT.glob(pattern)))
        files = tuple(file.relative_to(ROOT).as_posix() for file in found)
        yield TestRun(files, name="the adapter's own")
    rest = SUITES[1:] if mutant.path.startswith(OPERATORS) else SUITES[1:3]
    yield TestRun(tuple(_files(mutant, *SUITES[:1])), name="promises")
    yield TestRun(tuple(_files(mutant, *rest)), name="units and commands")
    yield Schedules((("", 0, SEEDS), *((name, 0, SEEDS_OF_A_FOCUS) for name in FOCI)))


def _files(mutant: Mutant, *suites: str) -> list[str]:
    """Test modules, of units only those of the mutated packages: those whose names share a word
    with the mutant's module first."""
    words = set(mutant.path.removesuffix(".py").replace("/", "_").split("_"))
    mentions = [f"{PACKAGE}.{folder}" for folder in FOLDERS]
    found = []
    for suite in suites:
        for file in sorted((ROOT / "tests" / suite).glob("test_*.py")):
            text = file.read_text(encoding="utf-8") if suite == "unit" else mentions[0]
            if f"{suite}/{file.name}" not in ELSEWHERE and any(one in text for one in mentions):
                found.append(file.relative_to(ROOT).as_posix())
    return sorted(found, key=lambda name: not words & set(Path(name).stem.split("_")))


def unchanged(killers: Iterable[Killer]) -> Steps[str]:
    """See that what killed mutants is green without any; else what failed."""
    tests = tuple(sorted({killer["test"] for killer in killers if "test" in killer}))
    if not tests:
        return ""
    answer = yield None, TestRun(tests, name="the killers, unchanged", cpu_seconds=600)
    return answer.broken or answer.by


def all_verdicts(
    forks: Forks, mutants: Iterable[Mutant], until: float, *, killer_only: bool
) -> Iterator[Verdict]:
    killers = known_killers()
    each = (judge(m, killers.get(m.id), killer_only=killer_only) for m in mutants)
    return forks.run(each, until)

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
from tests.mutants.reach import SUITES, Reach, test_files
from tests.mutants.source import ROOT, Mutant

KILLERS = Path(__file__).with_name("killers.json")
OPERATORS = ("maintenance/", "doctor/")
"""What the commands call, and their tests hold."""
ADAPTER = "stores/s3/"
"""What only tests with a server of their own see."""
ADAPTER_TESTS = ("tests/transport/test_*.py", "tests/chaos/test_deadlines.py")
SEEDS = 1500
SEEDS_OF_A_FOCUS = 250

Killer = Mapping[str, Any]
"""``{"test": node id}``, or ``{"focus": name, "seed": number}``."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant. ``by``: what killed it, in words; "" for a survivor. ``killer``:
    the same, to be tried first the next time. ``ran``: how many tests and schedules it met.
    ``broken``: why there is no verdict: the fault is the suite's own."""

    mutant: Mutant
    by: str
    killer: Killer
    ran: int
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


def judge(
    mutant: Mutant, reach: Reach | None, killer: Killer | None, schedules: bool = True,
    killer_only: bool = False,
) -> Steps[Verdict]:  # fmt: skip
    """Try a mutant on all that may kill it. ``schedules``: the simulator too. ``reach``: which
    tests see it; None: not measured, all are tried, the likeliest modules first. ``killer_only``:
    try only what killed it the last time, twice if need be."""
    began = time.monotonic()
    ran = 0
    works = _works(mutant, reach, killer, schedules)
    for work in [next(works)] * 2 if killer_only else works:
        answer = yield mutant, work
        ran += answer.ran
        if answer.killed and "::" in answer.by:  # a test may fail by the machine's load
            again = yield mutant, TestRun((answer.by,), name="its killer, once more")
            if not again.killed and not again.broken:
                answer = yield mutant, work
        broken = answer.broken
        if answer.killed and "::" in answer.by and not (killer and killer.get("test") == answer.by):
            without = yield None, TestRun((answer.by,), name="a new killer, unchanged")
            if without.killed or without.broken:
                broken = f"without the mutant: {without.by}{without.broken}"
        if answer.extra and not broken:  # see that the same schedule is green without the mutant
            seed = (answer.extra["focus"], answer.extra["seed"], 1)
            without = yield None, Schedules((seed,), name="the same schedule, unchanged")
            if without.killed or without.broken:
                broken = f"without the mutant: {without.by}{without.broken}"
        if answer.killed or broken:
            found = answer.extra or ({"test": answer.by} if "::" in answer.by else {})
            by = "" if broken else answer.by
            seconds = time.monotonic() - began
            return Verdict(mutant, by, {} if broken else found, ran, seconds, broken)
    return Verdict(mutant, "", {}, ran, time.monotonic() - began)


def _works(
    mutant: Mutant, reach: Reach | None, killer: Killer | None, schedules: bool
) -> Iterator[TestRun | Schedules]:
    if killer and "test" in killer:
        yield TestRun((killer["test"],), name="its killer")
    elif killer:
        yield Schedules(((killer["focus"], killer["seed"], 1),), name="its killer")
    if mutant.path.startswith(ADAPTER):
        yield TestRun(adapter_tests(), name="the adapter's own", whole_files=True)
    first, rest = SUITES[:1], SUITES[1:] if mutant.path.startswith(OPERATORS) else SUITES[1:3]
    if reach is None:
        yield TestRun(tuple(_of(first, mutant)), name="promises", whole_files=True)
        yield TestRun(tuple(_of(rest, mutant)), name="units and commands", whole_files=True)
    else:
        if seen := reach.order(mutant, first):
            yield TestRun(tuple(seen), name="promises")
        if seen := reach.order(mutant, rest):
            yield TestRun(tuple(seen), name="units and commands")
    if schedules:
        yield Schedules((("", 0, SEEDS), *((name, 0, SEEDS_OF_A_FOCUS) for name in FOCI)))


FOCI = (
    "plan of one try †", "hands off †", "retried Create †", "set up, then look †",
    "delete If-Match †", "fail by If-None-Match", "abort, HEAD, delete †",
    "withdraw by aborting", "a young job is left", "uploads, then records", "ours by token",
)  # fmt: skip
"""Rules of the simulation whose focus is tried after everything; unknown names are passed over."""


def adapter_tests() -> tuple[str, ...]:
    """The test modules of the S3 adapter."""
    found = (file for pattern in ADAPTER_TESTS for file in sorted(ROOT.glob(pattern)))
    return tuple(file.relative_to(ROOT).as_posix() for file in found)


def _of(suites: tuple[str, ...], mutant: Mutant) -> list[str]:
    """Test modules, those whose names share a word with the mutant's module first."""
    words = set(mutant.path.removesuffix(".py").replace("/", "_").split("_"))
    files = [file for file in test_files() if file.split("/")[1] in suites]
    return sorted(files, key=lambda f: not words & set(Path(f).stem.split("_")))


def unchanged(killers: Iterable[Killer]) -> Steps[str]:
    """See that what killed mutants is green without any; else what failed."""
    tests = tuple(sorted({killer["test"] for killer in killers if "test" in killer}))
    if not tests:
        return ""
    answer = yield None, TestRun(tests, name="the killers, unchanged", cpu_seconds=600)
    return answer.broken or answer.by


def all_verdicts(
    forks: Forks, mutants: Iterable[Mutant], reach: Reach | None, until: float, schedules: bool,
    killer_only: bool,
) -> Iterator[Verdict]:  # fmt: skip
    killers = known_killers()
    each = (judge(m, reach, killers.get(m.id), schedules, killer_only) for m in mutants)
    return forks.run(each, until)

"""Counts over many schedules, and how they are printed."""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.simulation.drawing import EVERYTHING, Focus
from tests.simulation.faults import CELLS, FAULTS, may_strike
from tests.simulation.judge import CASES, ENOUGH_SCHEDULES
from tests.simulation.kinds import KINDS
from tests.simulation.schedule import Result, simulate

CHUNK = 250
"""Schedules that a process runs at once."""
FAILURES_KEPT = 5
COLLECT_EVERY = 50
STATES = (
    "running", "committing", "completed", "reverting", "reverted", "aborting", "closed", "absent",
)  # fmt: skip


@dataclass
class Tally:
    """What schedules came to, added up. ``failures``: the first results with violations. ``cases``:
    in how many schedules each checker had a case in which it could have failed."""

    schedules: int = 0
    requests: int = 0
    violations: int = 0
    faults: int = 0
    states: Counter[str] = field(default_factory=Counter)
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def count(self, result: Result) -> None:
        self.schedules += 1
        self.requests += result.requests
        self.faults += len(result.struck)
        self.states.update(result.states)
        self.struck.update(result.struck)
        self.cases.update(result.cases)
        if result.violations:
            self.violations += 1
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append(result)

    def add(self, other: Tally) -> None:
        for name in ("schedules", "requests", "violations", "faults", "states", "struck", "cases"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures = sorted((*self.failures, *other.failures), key=lambda r: r.seed)
        del self.failures[FAILURES_KEPT:]

    @property
    def never_struck(self) -> list[tuple[str, str]]:
        """Cells of the table that are zero, of those that make sense."""
        return [cell for cell in CELLS if not self.struck[cell]]

    @property
    def too_few(self) -> list[str]:
        """Checkers that had fewer cases than `judge.CASES` states; none is named where there are
        too few schedules to tell."""
        if self.schedules < ENOUGH_SCHEDULES:
            return []
        return [
            f"{case.promise} {name}: {self.cases[name]} in {self.schedules:,} schedules, at least"
            f" {case.least} in 1,000 are stated"
            for name, case in CASES.items()
            if self.cases[name] * 1000 < case.least * self.schedules
        ]


def run_seeds(first: int, count: int) -> Tally:
    tally = Tally()
    for result in quietly(first, count):
        tally.count(result)
    return tally


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's log, and with garbage collected by nobody: a finalizer that ran at some
    moment of its own would be chance that no seed controls."""
    disabled, enabled = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.collect()
    gc.freeze()  # what is there before is not looked through again
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # killed processes drop their files
            yield
            gc.collect()
    finally:
        logging.disable(disabled)
        if enabled:
            gc.enable()


def quietly(first: int, count: int, focus: Focus = EVERYTHING) -> Iterator[Result]:
    """Schedules, with garbage collected between them only."""
    with quiet():
        for seed in range(first, first + count):
            yield simulate(seed, focus)
            if seed % COLLECT_EVERY == 0:
                gc.collect()


def run_many(first: int, count: int, processes: int, seconds_max: float | None) -> Tally:
    """Run schedules in several processes, until they are done or the time is up."""
    tally = Tally()
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    chunks = iter(range(first, first + count, CHUNK))
    with ProcessPoolExecutor(processes) as pool:
        running: set[Future[Tally]] = set()
        while True:
            while len(running) <= processes:
                late = deadline is not None and time.monotonic() > deadline
                start = None if late else next(chunks, None)
                if start is None:
                    break
                running.add(pool.submit(run_seeds, start, min(CHUNK, first + count - start)))
            if not running:
                return tally
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                tally.add(future.result())


# Printing -----------------------------------------------------------------------------------------


def table(tally: Tally) -> str:
    width = max(map(len, KINDS)) + 1
    lines = [
        " " * width + "".join(f"{word:>9}" for word in words)
        for words in zip_longest(*map(str.split, FAULTS), fillvalue="")
    ]
    for kind in KINDS:
        cells = "".join(
            f"{tally.struck[kind, fault]:>9,}" if may_strike(fault, kind) else f"{'.':>9}"
            for fault in FAULTS
        )
        lines.append(f"{kind:<{width}}{cells}")
    return "\n".join(lines)


def cases(tally: Tally) -> str:
    """How often each checker had a case, in 1,000 schedules, and how often it must."""
    lines = [f"{'promise':<8} {'in 1,000':>9} {'least':>6}  a case"]
    for name, case in CASES.items():
        often = tally.cases[name] * 1000 / max(1, tally.schedules)
        lines.append(f"{case.promise:<8} {often:>9.1f} {case.least:>6}  {case.words}")
    return "\n".join(lines)


def closing(tally: Tally, seconds: float) -> str:
    mean = tally.requests / max(1, tally.schedules)
    states = ", ".join(f"{state} {tally.states[state]:,}" for state in STATES)
    return (
        f"{tally.schedules:,} schedules, {tally.violations:,} violations, mean {mean:.1f} requests,"
        f" {tally.faults:,} faults | states: {states} |"
        f" {tally.schedules / max(seconds, 1e-9):,.0f} seeds a second"
        f" | cells of request × fault never struck: {len(tally.never_struck)}"
        f" of {len(CELLS)} | checkers with too few cases: {len(tally.too_few)} of {len(CASES)}"
    )


def story(result: Result) -> str:
    return "\n".join(
        (
            f"seed {result.seed}: {result.shape}",
            *(f"  {violation}" for violation in result.violations),
            f"  the last {len(result.calls)} calls:",
            *(f"    {call}" for call in result.calls),
            f"  replay: make simulate SEED={result.seed}",
        )
    )

"""Counts over many schedules, and how they are printed."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.tally import quiet
from tests.tree_simulation.cases import CASES
from tests.tree_simulation.schedule import Result, simulate

CHUNK = 250
"""Schedules that a process runs at once."""
ENOUGH_SCHEDULES = 1000
"""With fewer schedules nothing is said of cases: chance alone could be short."""
FAILURES_KEPT = 5
COLLECT_EVERY = 50


@dataclass
class Tally:
    """What schedules came to, added up.

    Attributes:
        struck: verb and fault. cases: in how many schedules each checker had a case.
        failures: the first results with violations.
    """

    schedules: int = 0
    verbs: int = 0
    violations: int = 0
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def count(self, result: Result) -> None:
        """Add one schedule."""
        self.schedules += 1
        self.verbs += result.verbs
        self.struck.update(result.struck)
        self.cases.update(result.cases)
        if result.violations:
            self.violations += 1
            self._keep([result])

    def add(self, other: Tally) -> None:
        """Add another tally."""
        self.schedules += other.schedules
        self.verbs += other.verbs
        self.violations += other.violations
        self.struck += other.struck
        self.cases += other.cases
        self._keep(other.failures)

    def _keep(self, failures: list[Result]) -> None:
        self.failures = sorted((*self.failures, *failures), key=lambda r: r.seed)[:FAILURES_KEPT]

    @property
    def too_few(self) -> list[str]:
        """Checkers that had fewer cases than `cases.CASES` states."""
        if self.schedules < ENOUGH_SCHEDULES:
            return []
        return [
            f"{case.promise} {name}: {self.cases[name]} in {self.schedules:,} schedules, at least"
            f" {case.least} in 1,000 are stated"
            for name, case in CASES.items()
            if self.cases[name] * 1000 < case.least * self.schedules
        ]


def quietly(first: int, last: int, *, exclusive: bool = True) -> Iterator[Result]:
    """Schedules from the first seed to before the last one."""
    with quiet():
        for seed in range(first, last):
            yield simulate(seed, exclusive=exclusive)
            if seed % COLLECT_EVERY == 0:
                gc.collect()


def run_seeds(first: int, last: int) -> Tally:
    """Run schedules in this process."""
    tally = Tally()
    for result in quietly(first, last):
        tally.count(result)
    return tally


def run_many(first: int, last: int, processes: int, seconds_max: float) -> Tally:
    """Run schedules in several processes, until they are done or the time is up."""
    tally, until = Tally(), time.monotonic() + seconds_max
    starts = range(first, last, CHUNK)
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(run_until, at, min(at + CHUNK, last), until) for at in starts]
        for future in running:
            tally.add(future.result())
    return tally


def run_until(first: int, last: int, until: float) -> Tally:
    """Run schedules, unless the time is up. The clock of all processes is the machine's."""
    return run_seeds(first, last) if time.monotonic() < until else Tally()


# Printing -----------------------------------------------------------------------------------------


def table(tally: Tally) -> str:
    """Faults by verb, and how often each checker had a case in 1,000 schedules."""
    verbs = sorted({verb for verb, _ in tally.struck})
    faults = sorted({fault for _, fault in tally.struck})
    lines = [f"{'':<26}" + "".join(f"{verb[:10]:>11}" for verb in verbs)]
    for fault in faults:
        cells = "".join(f"{tally.struck[verb, fault]:>11,}" for verb in verbs)
        lines.append(f"{fault:<26}{cells}")
    lines.append(f"{'promise':<8} {'in 1,000':>9} {'least':>6}  a case")
    for name, case in CASES.items():
        often = tally.cases[name] * 1000 / max(1, tally.schedules)
        lines.append(f"{case.promise:<8} {often:>9.1f} {case.least:>6}  {case.words}")
    return "\n".join(lines)


def closing(tally: Tally, seconds: float) -> str:
    """The closing line."""
    return (
        f"{tally.schedules:,} schedules, {tally.violations:,} violations,"
        f" mean {tally.verbs / max(1, tally.schedules):.1f} verbs,"
        f" {sum(tally.struck.values()):,} faults,"
        f" {tally.schedules / max(seconds, 1e-9):,.0f} seeds a second"
        f" | checkers with too few cases: {len(tally.too_few)} of {len(CASES)}"
    )


def story(result: Result) -> str:
    """A failure, for people."""
    return "\n".join(
        (
            f"seed {result.seed}: {result.shape}",
            *(f"  {violation}" for violation in result.violations),
            f"  the last {len(result.calls)} verbs:",
            *(f"    {call}" for call in result.calls),
            f"  replay: python -m tests.tree_simulation --seeds {result.seed} --verbs 2000",
        )
    )

"""Rounds: every contender of a measurement once, in an order that turns, and then again; so a burst
of somebody else's work falls on more than one.

Before them each contender runs once with little. That run is verified where it can be, fills
caches, and tells how much of the full amount fits into `Settings.run_seconds`: a slow contender is
measured with less, and the table says with how much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.hadoop import NoHadoop
from benchmarks.measure import Machine, Run
from benchmarks.plan import Contender, Failed, Measurement, MiB, title

T = TypeVar("T")
PILOT = 20
"""The first run of each has this part of the amount."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done. ``run_seconds``: how long one run may take, about. ``quick``: only what is
    quick, with the small amounts. ``budget_seconds``: shared evenly among all measurements, each of
    which has as many rounds as fit, one at least. ``scale``: commits have so many times the files.
    """

    rounds: int = 5
    run_seconds: float = 8.0
    quick: bool = False
    budget_seconds: float = float("inf")
    scale: int = 1


QUICK = Settings(rounds=3, run_seconds=1.0, quick=True, budget_seconds=100.0)


@dataclass(slots=True)
class Outcome:
    """A measurement that was made. ``amounts``: how much each contender did that could run.
    ``runs``: all of all rounds. left_out: contenders that could not run, and why. ``failed``: those
    of them that could have. ``load``: the machine's, before and after."""

    measurement: Measurement
    amounts: dict[str, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    load: tuple[float, float] = (0.0, 0.0)

    def leave_out(self, one: Contender, error: Exception) -> None:
        """Note that a contender cannot run."""
        self.amounts.pop(one.name, None)
        self.left_out[one.name] = str(error)
        if isinstance(error, Failed):
            self.failed.append(one.name)


def pick(measurements: Sequence[Measurement], only: str, *, quick: bool) -> list[Measurement]:
    """Return those whose group, or group and name, is among the words of ``only``; if it is empty
    all, or with ``quick`` those that are quick. Raises ValueError: a word names none."""
    words = set(only.replace(",", " ").split())
    known = {word for one in measurements for word in (one.group, one.whole_name)}
    if unknown := sorted(words - known):
        raise ValueError(
            f"no measurement {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    if not words:
        return [one for one in measurements if one.quick or not quick]
    return [one for one in measurements if {one.group, one.whole_name} & words]


def turns(names: Sequence[T], number: int) -> list[T]:
    """All of them, begun by another one in each round."""
    turn = number % max(1, len(names))
    return [*names[turn:], *names[:turn]]


def measure_all(
    machine: Machine, measurements: Sequence[Measurement], settings: Settings,
    say: Callable[[str], None],
) -> list[Outcome]:  # fmt: skip
    """Make measurements, one after the other."""
    began, share = time.monotonic(), settings.budget_seconds / max(1, len(measurements))
    return [
        _Measuring(machine, settings, Outcome(one), say).run(began + share * number)
        for number, one in enumerate(measurements, 1)
    ]


@dataclass(frozen=True)
class _Measuring:
    machine: Machine
    settings: Settings
    outcome: Outcome
    say: Callable[[str], None]

    def run(self, until: float) -> Outcome:
        outcome, settings, say = self.outcome, self.settings, self.say
        measurement, before = outcome.measurement, os.getloadavg()[0]
        say(f"{title(measurement.group, measurement.column)} …")
        contenders = [one for one in measurement.contenders if one.quick or not settings.quick]
        for one in contenders:
            self._pilot(one)
        for number in range(settings.rounds if measurement.unit.cpu else 1):
            started = time.monotonic()
            for one in turns([c for c in contenders if c.name in outcome.amounts], number):
                try:
                    run = self.machine.run(measurement, one, outcome.amounts[one.name])
                except (Failed, NoHadoop) as error:
                    self._leave_out(one, error)
                else:
                    outcome.runs.append(run)
                    figure = f"{run.figure(measurement.unit):,.4g} {measurement.unit.name}"
                    say(f"  {number + 1}/{settings.rounds} {one.name}: {figure}")
            if time.monotonic() + (time.monotonic() - started) > until:
                break
        outcome.load = (before, os.getloadavg()[0])
        return outcome

    def _pilot(self, one: Contender) -> None:
        """Find out how much a contender will do; if it cannot run, leave it out."""
        outcome, settings, measurement = self.outcome, self.settings, self.outcome.measurement
        full = measurement.quick_amount if settings.quick else measurement.amount
        if measurement.work == "commit":
            full *= settings.scale
        outcome.amounts[one.name] = full
        little = max(measurement.least, full // PILOT)
        try:
            for _ in range(2):  # what is the same for every amount hides how fast it is: once more
                if little == full:
                    return
                verify = measurement.work == "stream"
                run = self.machine.run(measurement, one, little, verify=verify)
                fitting = int(little * settings.run_seconds * settings.scale / run.seconds)
                outcome.amounts[one.name] = little = amount_of(full, fitting, measurement.least)
        except (Failed, NoHadoop) as error:
            self._leave_out(one, error)

    def _leave_out(self, one: Contender, error: Exception) -> None:
        self.outcome.leave_out(one, error)
        self.say(f"  {one.name} is left out: {error}")


def amount_of(full: int, fitting: int, least: int) -> int:
    """What one does: all, or as much of it as fits, as a round number and not less than the least;
    of bytes, so many times the least."""
    if fitting >= full:
        return full
    scale = least if least >= MiB else int("1" + "0" * (len(str(fitting)) - 1))
    return max(least, fitting // scale * scale)

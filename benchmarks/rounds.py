"""Rounds: every contender of a measurement once, in an order that turns, and then again.

Before them each contender runs once with little. That run is verified where it can be, fills
caches, and tells how much of the full amount fits into `Settings.run_seconds`: a slow contender is
measured with less, and the table says with how much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.hadoop import NoHadoop
from benchmarks.measure import Machine, Run
from benchmarks.plan import Contender, Failed, Measurement
from benchmarks.writers import MiB

PILOT = 20
"""The first run of each has this part of the amount."""
START_SECONDS = 1.5
"""What a run takes beside what is measured: a process, its imports, a warm-up."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done.

    Attributes:
        rounds: of each measurement.
        run_seconds: how long one run may take, about.
        quick: only what is quick, with the small amounts.
        budget_seconds: shared among the contenders of all measurements: there are as many rounds
            as fit. What has no time left at all is left out. None: no limit.
        scale: the amounts of commits are multiplied with it.
    """

    rounds: int = 5
    run_seconds: float = 8.0
    quick: bool = False
    budget_seconds: float | None = None
    scale: int = 1


QUICK = Settings(rounds=3, run_seconds=1.0, quick=True, budget_seconds=100.0)


@dataclass(slots=True)
class Outcome:
    """A measurement that was made.

    Attributes:
        runs: all of all rounds. left_out: contenders that could not run, and why.
        failed: those of them that could have.
        load: the machine's, before and after.
    """

    measurement: Measurement
    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    load: tuple[float, float] = (0.0, 0.0)


def pick(measurements: Sequence[Measurement], only: str, *, quick: bool) -> list[Measurement]:
    """Those whose group, or group and name, is among the words of ``only``; all of them if it is
    empty. With ``quick`` those that are quick, unless they are named.

    Raises:
        ValueError: a word names none.
    """
    words = only.replace(",", " ").split()
    known = {word for one in measurements for word in (one.group, f"{one.group}-{one.name}")}
    if unknown := sorted(set(words) - known):
        raise ValueError(
            f"no measurement {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    if not words:
        return [one for one in measurements if one.quick or not quick]
    return [one for one in measurements if {one.group, f"{one.group}-{one.name}"} & set(words)]


def contenders(measurement: Measurement, *, quick: bool) -> list[Contender]:
    """Who takes part."""
    return [one for one in measurement.contenders if one.quick or not quick]


def forecast(measurements: Sequence[Measurement], settings: Settings) -> float:
    """About how many seconds it will take."""
    seconds = 0.0
    for one in measurements:
        rounds = settings.rounds if one.timed else 1
        typical = settings.run_seconds * 0.4 if one.timed else 0.5
        each = START_SECONDS + rounds * (START_SECONDS + typical)
        seconds += each * len(contenders(one, quick=settings.quick))
    if settings.budget_seconds is not None:
        seconds = min(seconds, settings.budget_seconds)
    return seconds


def measure_all(
    machine: Machine,
    measurements: Sequence[Measurement],
    settings: Settings,
    say: Callable[[str], None],
) -> list[Outcome]:
    """Make measurements, one after the other."""
    began = time.monotonic()
    left = sum(len(contenders(one, quick=settings.quick)) for one in measurements)
    made = []
    for one in measurements:
        weight = len(contenders(one, quick=settings.quick))
        until = end = float("inf")
        if settings.budget_seconds is not None:
            end = began + settings.budget_seconds
            until = time.monotonic() + (end - time.monotonic()) * weight / left
        left -= weight
        if time.monotonic() > end:
            say(f"{one.title}: left out, no time is left")
            made.append(Outcome(one, left_out={"all": "no time was left"}))
            continue
        made.append(_measure(machine, one, settings, until, say))
    return made


def _measure(
    machine: Machine,
    measurement: Measurement,
    settings: Settings,
    until: float,
    say: Callable[[str], None],
) -> Outcome:
    outcome = Outcome(measurement)
    before = os.getloadavg()[0]
    say(f"{measurement.title} …")
    amounts = _pilots(machine, measurement, settings, outcome, say)
    for number in range(settings.rounds if measurement.timed else 1):
        started = time.monotonic()
        taking_part = [one for one in measurement.contenders if one.name in amounts]
        turn = number % max(1, len(taking_part))
        for one in (*taking_part[turn:], *taking_part[:turn]):
            try:
                run = machine.run(measurement, one, amounts[one.name])
            except (Failed, NoHadoop) as error:
                _leave_out(outcome, amounts, one, error, say)
            else:
                outcome.runs.append(run)
                figure = f"{run.figure(measurement.unit):,.4g} {measurement.unit.name}"
                say(f"  {number + 1}/{settings.rounds} {one.name}: {figure}")
        if time.monotonic() + (time.monotonic() - started) > until:
            break
    outcome.load = (before, os.getloadavg()[0])
    return outcome


def _pilots(
    machine: Machine,
    measurement: Measurement,
    settings: Settings,
    outcome: Outcome,
    say: Callable[[str], None],
) -> dict[str, int]:
    """How much each contender will do; who cannot run is left out."""
    full = measurement.quick_amount if settings.quick else measurement.amount
    if measurement.work == "commit":
        full *= settings.scale
    amounts: dict[str, int] = {}
    for one in contenders(measurement, quick=settings.quick):
        amounts[one.name] = full
        if full == measurement.least:
            continue
        little = max(measurement.least, full // PILOT)
        stream = measurement.work == "stream"
        try:
            for _ in range(2):  # what is the same for every amount hides how fast it is: once more
                run = machine.run(measurement, one, little, verify=stream)
                fitting = int(little * settings.run_seconds * settings.scale / run.seconds)
                amounts[one.name] = little = amount_of(full, fitting, measurement.least)
                if little == full:
                    break
        except (Failed, NoHadoop) as error:
            _leave_out(outcome, amounts, one, error, say)
    return amounts


def amount_of(full: int, fitting: int, least: int) -> int:
    """What one does: all, or as much of it as fits, as a round number and not less than the least;
    of bytes, so many times the least."""
    if fitting >= full:
        return full
    if least >= MiB:
        return max(least, fitting // least * least)
    scale = int("1" + "0" * (len(str(fitting)) - 1))
    return max(least, fitting // scale * scale)


def _leave_out(
    outcome: Outcome,
    amounts: dict[str, int],
    one: Contender,
    error: Exception,
    say: Callable[[str], None],
) -> None:
    amounts.pop(one.name, None)
    outcome.left_out[one.name] = str(error)
    if isinstance(error, Failed):
        outcome.failed.append(one.name)
    say(f"  {one.name} is left out: {error}")

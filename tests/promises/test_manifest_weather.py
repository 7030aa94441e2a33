"""Jobs of renames in bad weather: many faults drawn by seed, in the driver and in those who recover
its job. Whatever is told holds, and the end is all or nothing."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from magic_committer.errors import JobNotRunning, MagicError, StoreError
from magic_committer.maintenance.trees import abort_tree, inspect_tree, recover_tree
from tests.faulty_tree import Died, Fault, FaultyTree, Weather, drawn
from tests.tree_jobs import World, write

OLD = {"dt=1/old.csv": b"old", "same.csv": b"before"}
NEW = {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b", "same.csv": b"after"}
KEPT = tuple(fault for fault in Fault if fault is not Fault.FORGED)
"""The faults that the port allows."""
SEEDS = 150


@dataclass
class Told:
    """What a schedule ended in.

    Attributes:
        before, after: the data without the job, and with it.
        data: what is there at the end.
        outcomes: what processes were told, in order.
        befell: how many faults there were.
    """

    before: dict[str, bytes]
    after: dict[str, bytes]
    data: dict[str, bytes] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    befell: int = 0


def play(seed: int, faults: tuple[Fault, ...], share: float) -> Told:
    """One schedule: a driver, up to three recoveries with faults, and one without."""
    chance = random.Random(f"weather {seed}")
    mode = chance.choice(["append", "fail", "replace"])
    world = World(directories=chance.random() < 0.6)
    for name, data in OLD.items() if mode != "fail" else ():
        world.put(name, data)
    old = OLD if mode != "fail" else {}
    told = Told(old, NEW if mode != "append" else {**OLD, **NEW})
    weather = Weather(seed, chance.choice([0, 0, 4, 12]))
    driver = FaultyTree(world.tree, drawn(f"{seed} driver", share, faults), weather)
    try:
        job = world.start(driver, mode=mode)
        first = write(job, "1", {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b"})
        second = write(job, "2", {"same.csv": b"after"})
        told.outcomes.append(job.commit_job([first, second]).outcome)
    except JobNotRunning as error:
        told.outcomes.append(error.outcome)
    except (MagicError, OSError, Died):
        pass
    told.befell = len(driver.befell)
    for number in range(chance.randrange(4)):
        draw = drawn(f"{seed} recovery {number}", share, faults)
        told.befell += recovered(world, FaultyTree(world.tree, draw, weather), told)
    early = chance.random() < 0.5
    if early:
        weather.settle()
    recovered(world, None, told)
    told.data = world.data()
    weather.settle()
    assert world.data() == told.data, f"seed {seed}: a request that came late changed the data"
    return told


def recovered(world: World, seen: FaultyTree | None, told: Told) -> int:
    """Recover what an operator finds, and note what he is told. How many faults there were."""
    parts = world.parts(seen)
    try:
        for one in list(inspect_tree(parts, 0.0)):
            if one.kind == "ours":
                told.outcomes.append(recover_tree(parts, one.id, dead_after=0.0).outcome)
    except (StoreError, Died):
        if seen is None:
            raise
    except MagicError:
        if seen is None:
            raise
    return len(seen.befell) if seen is not None else 0


@pytest.mark.parametrize("share", [0.01, 0.02, 0.04])
def test_a_job_in_any_weather_is_all_or_nothing(share: float, seed: int) -> None:
    """Lost and late answers, retries of the client, full disks, missing rights, deaths and listings
    that lag: whoever is told an outcome was told the truth, and the data are the old or the new."""
    ends = set()
    for number in range(seed, seed + SEEDS):
        told = play(number, KEPT, share)
        known = {outcome for outcome in told.outcomes if outcome}
        assert len(known) <= 1, f"seed {number}: {told.outcomes}"
        if "committed" in known:
            assert told.data == told.after, f"seed {number}: {told}"
        elif known:
            assert told.data == told.before, f"seed {number}: {told}"
        else:
            assert told.data in (told.before, told.after), f"seed {number}: {told}"
        ends.add((*known, told.data == told.after))
    assert ("committed", True) in ends
    assert ("aborted", False) in ends


@pytest.mark.parametrize("number", [3748])
def test_a_file_that_was_replaced_does_not_come_back(number: int) -> None:
    """A sweep that was cut after its plans were gone left a replaced file in the trash, and the
    next one took it for another program's new file."""
    told = play(number, KEPT, 0.02)
    assert set(told.outcomes) == {"committed"}
    assert told.data == told.after


def meeting(number: int, forged: bool) -> tuple[str, str, dict[str, bytes]]:
    """A driver commits while another process aborts its job, and is paused at one of its requests:
    what both were told, and the data. ``forged``: their creates are not exclusive."""
    world = World(directories=False)
    told: list[str] = []

    def forging(asked: int, verb: str, path: str) -> Fault | None:
        return Fault.FORGED if forged and verb == "create" else None

    job = world.start(FaultyTree(world.tree, forging))
    result = write(job, "1", {"a": b"1", "b": b"2"})

    def paused(asked: int, verb: str, path: str) -> Fault | None:
        if asked == number:
            with suppress(MagicError):
                told.append(job.commit_job([result]).outcome)
        return forging(asked, verb, path)

    outcome = ""
    with suppress(MagicError):
        abort_tree(world.parts(FaultyTree(world.tree, paused)), job.job.id, revert=False)
        outcome = "aborted"
    return outcome, "".join(told), world.data()


def test_the_judge_sees_a_create_that_is_not_exclusive() -> None:
    """At each request of an abort the driver commits: with exclusive creates they agree; without
    them one is told a commit, and the other an abort."""
    agreed = [meeting(number, forged=False) for number in range(1, 40)]
    assert not [one for one in agreed if contradicts(one)]
    assert {("", "committed"), ("aborted", "")} <= {one[:2] for one in agreed}
    assert [one for one in (meeting(n, forged=True) for n in range(1, 40)) if contradicts(one)]


def contradicts(met: tuple[str, str, dict[str, bytes]]) -> bool:
    """Whether two processes were told different things, or something else than is there."""
    outcome, told, data = met
    if outcome and told:
        return outcome != told
    return bool(outcome or told) and data != ({"a": b"1", "b": b"2"} if told else {})

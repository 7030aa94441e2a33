"""Real processes killed with SIGKILL at a request drawn by chance: another process ends their job.

What is then on the store: all files or none, byte for byte; no upload; no control object but a
closed record; a marker exactly if the files are visible.
"""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import magic_committer as mc
from tests.kills import drivers
from tests.nightly import most
from tests.outside import Outside, etag
from tests.servers import moto_options, moto_server
from tests.striker import Moment, Victim, striker, struck

KILLS_MIN = most(6, 3)
"""Kills in each state."""
TRIES_MAX = 2 * KILLS_MIN + 2
REQUESTS_MIN = 8
"""A recovery sends so many, and one more for each open upload."""

Seen = Mapping[Any, int]
"""Requests in each phase: while the store has accepted so many versions of the record."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)


class Field:
    """A bucket on moto's server, and jobs on it."""

    def __init__(self, url: str, chance: random.Random, kills: Counter[str]) -> None:
        self.url = url
        self.chance = chance
        self.kills = kills
        self.s3 = moto_options(url)
        self.bucket = Outside(self.s3, "bucket")

    def dest(self) -> str:
        """A destination that nobody has used."""
        return f"s3://bucket/t{self.chance.getrandbits(48):012x}"

    def moment(self, phase: int | None, requests: int) -> Moment:
        """Somewhere in a phase of so many requests; None: in all."""
        return Moment(phase, self.chance.randint(1, requests), self.chance.random() < 0.5)

    def killed(
        self, work: Callable[..., None], dest: str, *more: str, moment: Moment | None
    ) -> bool:
        """Run a process until it ends or is killed. Gives whether it was."""
        return struck(context, self.url, moment, work, dest, *more)

    def only_job(self, dest: str) -> mc.FoundJob | None:
        """The job under a destination; None if its record is gone."""
        found = mc.inspect(dest, s3=self.s3)
        assert len(found) <= 1
        return found[0] if found else None

    def finish(self, dest: str, job_id: str) -> None:
        """End a job from another process: recover it, clean up, or have it undone."""
        work = self.chance.choice([drivers.recover, drivers.cleanup, drivers.abort])
        assert not self.killed(work, dest, job_id, moment=None)

    def check(self, dest: str) -> None:
        """All or nothing, and nothing left; whatever was done."""
        name = dest.removeprefix("s3://bucket/")
        assert self.bucket.left(name) == []
        files = self.bucket.files(name)
        assert files in ({}, EXPECTED)
        assert ("_SUCCESS" in self.bucket.objects(name)) == bool(files)


EXPECTED = {drivers.name(n): etag(drivers.content(n)) for n in range(drivers.FILES)}
"""Names and ETags of the files of a committed job."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """moto's server with an empty bucket."""
    with moto_server("bucket") as url:
        yield url


@pytest.fixture
def field(url: str, chance: random.Random, kills: Counter[str]) -> Field:
    """Where this test's jobs run."""
    return Field(url, chance, kills)


@pytest.fixture(scope="module")
def requests(url: str) -> Seen:
    """How many requests a driver that nobody kills sends in each phase."""
    field = Field(url, random.Random(0), Counter())
    dest = field.dest()
    with striker(url) as proxy:
        victim = Victim(context, drivers.drive, proxy, dest)
        victim.start(None)
        assert not victim.end()
    field.check(dest)
    assert field.only_job(dest) is None
    assert proxy.seen[1] > 2 * drivers.FILES
    assert proxy.seen[2] >= drivers.FILES
    return proxy.seen


def kill_a_recovery(field: Field, dest: str, job: mc.FoundJob) -> bool:
    """Recover a job, and be killed on the way. False if it was done before."""
    uploads = field.bucket.uploads(dest.removeprefix("s3://bucket/"))
    moment = field.moment(None, REQUESTS_MIN + len(uploads))
    killed = field.killed(drivers.recover, dest, job.id, moment=moment)
    field.kills["recovering"] += killed
    return killed


@pytest.mark.parametrize(("phase", "state"), [(1, "running"), (2, "committing"), (3, "completed")])
def test_a_killed_driver_s_job_is_ended_by_another_process(
    field: Field, phase: int, state: str, requests: Seen
) -> None:
    """I2 to I5, I8: while it was running nothing was visible, and nothing is left; while it was
    committing some files were: all become so, or none stays, as the operator says; when it was
    completed all were: the marker comes, and the rest goes. Every second recovery is killed too."""
    killed = recoveries = 0
    for number in range(TRIES_MAX):
        if killed == KILLS_MIN:
            break
        dest = field.dest()
        if not field.killed(drivers.drive, dest, moment=field.moment(phase, requests[phase])):
            field.check(dest)
            continue
        job = field.only_job(dest)
        found = job.state if job is not None else "absent"
        field.kills[found] += 1
        killed += found == state
        if job is None:
            field.check(dest)
            continue
        if number % 2:
            recoveries += kill_a_recovery(field, dest, job)
        field.finish(dest, job.id)
        field.check(dest)
    assert killed == KILLS_MIN
    assert recoveries >= KILLS_MIN // 3


def test_two_drivers_of_one_job_one_or_both_killed(field: Field, requests: Seen) -> None:
    """I2, I5: two processes commit one job at once, and one or both are killed: the other, or who
    recovers, ends it as one would have."""
    for number in range(KILLS_MIN):
        dest = field.dest()
        job = mc.start(dest, s3=field.s3)
        drivers.write_tasks(job)
        whole = drivers.FILES + drivers.TASKS
        moments = field.moment(None, whole // 2), field.moment(None, whole) if number % 2 else None
        with striker(field.url) as first, striker(field.url) as second:
            both = [
                Victim(context, drivers.commit, proxy, dest, job.id) for proxy in (first, second)
            ]
            for victim, moment in zip(both, moments, strict=True):
                victim.start(moment)
            field.kills["two drivers"] += sum([victim.end() for victim in both])
        field.finish(dest, job.id)
        field.check(dest)
    assert field.kills["two drivers"] >= KILLS_MIN


def test_there_were_enough(kills: Counter[str]) -> None:
    """Each state was met nearly as often as it was drawn, and with two drivers."""
    for state in ("running", "committing", "completed", "recovering"):
        assert kills[state] >= KILLS_MIN - 1
    assert kills.total() >= 5 * KILLS_MIN

"""Real processes killed with SIGKILL at a request drawn by chance: another process ends their job.

What is then on the store: all files or none, byte for byte; no upload; no control object but a
closed record; a marker exactly if the files are visible.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import magic_committer as mc
from tests.kills import drivers
from tests.kills.field import Field, context, expected
from tests.nightly import most
from tests.servers import moto_options, moto_server
from tests.striker import Victim, striker

KILLS_MIN = most(6, 3)
"""Kills in each state."""
TRIES_MAX = 2 * KILLS_MIN + 2
REQUESTS_MIN = 8
"""A recovery sends so many, and one more for each open upload."""

Seen = Mapping[Any, int]
"""Requests in each phase: while the store has accepted so many versions of the record."""

context.set_forkserver_preload(drivers.PRELOADED)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with moto_server("bucket") as url:
        yield url


@pytest.fixture
def field(url: str, chance: random.Random) -> Field:
    """Where this test's jobs run."""
    return Field(moto_options, url, "bucket", chance)


def check(field: Field, dest: str) -> None:
    """All or nothing, and nothing left; whatever was done."""
    assert field.files(dest) in ({}, expected(drivers.FILES))


@pytest.fixture(scope="module")
def requests(url: str) -> Seen:
    """How many requests a driver that nobody kills sends in each phase."""
    field = Field(moto_options, url, "bucket", random.Random(0))
    dest = field.dest()
    with striker(url) as proxy:
        victim = Victim(context, field.work(drivers.drive), proxy, dest)
        victim.start(None)
        assert not victim.end()
    check(field, dest)
    assert field.bucket.left(field.name(dest), closed=True) == []
    assert proxy.seen[1] > 2 * drivers.FILES
    assert proxy.seen[2] >= drivers.FILES
    return proxy.seen


@pytest.mark.parametrize(("phase", "state"), [(1, "running"), (2, "committing"), (3, "completed")])
def test_a_killed_driver_s_job_is_ended_by_another_process(
    field: Field, kills: Counter[str], phase: int, state: str, requests: Seen
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
            check(field, dest)
            continue
        job = field.only_job(dest)
        found = job.state if job is not None else "absent"
        kills[found] += 1
        killed += found == state
        if job is None:
            check(field, dest)
            continue
        if number % 2:
            requests_of = REQUESTS_MIN + len(field.bucket.uploads(field.name(dest)))
            moment = field.moment(None, requests_of)  # it may be done before
            again = field.killed(drivers.recover, dest, job.id, moment=moment)
            kills["recovering"] += again
            recoveries += again
        field.finish(dest, job.id)
        check(field, dest)
    assert killed == KILLS_MIN
    assert recoveries >= KILLS_MIN // 3


def test_two_drivers_of_one_job_one_or_both_killed(field: Field, kills: Counter[str]) -> None:
    """I2, I5: two processes commit one job at once, and one or both are killed: the other, or who
    recovers, ends it as one would have."""
    for number in range(KILLS_MIN):
        dest = field.dest()
        job = mc.start(dest, s3=field.s3)
        drivers.write_tasks(job)
        whole = drivers.FILES + drivers.TASKS
        moments = field.moment(None, whole // 2), field.moment(None, whole) if number % 2 else None
        with striker(field.url) as first, striker(field.url) as second:
            work = field.work(drivers.commit)
            both = [Victim(context, work, proxy, dest, job.id) for proxy in (first, second)]
            for victim, moment in zip(both, moments, strict=True):
                victim.start(moment)
            kills["two drivers"] += sum([victim.end() for victim in both])
        field.finish(dest, job.id)
        check(field, dest)
    assert kills["two drivers"] >= KILLS_MIN


def test_there_were_enough(kills: Counter[str]) -> None:
    """Each state was met nearly as often as it was drawn, and with two drivers."""
    for state in ("running", "committing", "completed", "recovering"):
        assert kills[state] >= KILLS_MIN - 1
    assert kills.total() >= 5 * KILLS_MIN

"""Real processes killed with SIGKILL at a request drawn by chance: another process ends their job.

What is then on the store: all files or none, byte for byte; no upload; no control object but a
closed record; a marker exactly if the files are visible.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import magic_committer as mc
from tests.kills import drivers
from tests.kills.proxy import Killer, Trigger, killer
from tests.servers import moto_options, moto_server, outside

KILLS_MIN = 6
"""Kills in each state."""
TRIES_MAX = 14
REQUESTS_MIN = 8
"""A recovery sends so many, and one more for each open upload."""
END_SECONDS_MAX = 60
RUNNING, COMMITTING, COMPLETED = 1, 2, 3
"""Phases of a driver: how many versions of the record were accepted."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)


class Field:
    """A bucket on moto's server, and jobs on it."""

    def __init__(self, url: str, chance: random.Random, kills: Counter[str]) -> None:
        self.url = url
        self.chance = chance
        self.kills = kills
        self.s3 = moto_options(url)
        self._client = outside(self.s3)

    def dest(self) -> str:
        """A destination that nobody has used."""
        return f"s3://bucket/t{self.chance.getrandbits(48):012x}"

    def trigger(self, phase: int | None, requests: int) -> Trigger:
        """Somewhere in a phase of so many requests; None: in all."""
        return Trigger(phase, self.chance.randint(1, requests), self.chance.random() < 0.5)

    def run(
        self, work: Callable[..., None], dest: str, *more: str, trigger: Trigger | None
    ) -> Killer:
        """Run a process behind a proxy until it ends or is killed."""
        with killer(self.url, trigger) as proxy:
            process = start(work, proxy, dest, *more)
            end(process, proxy)
        return proxy

    def only_job(self, dest: str) -> mc.FoundJob | None:
        """The job under a destination; None if its record is gone."""
        found = mc.inspect(dest, s3=self.s3)
        assert len(found) <= 1
        return found[0] if found else None

    def finish(self, dest: str, job_id: str) -> None:
        """End a job from another process: recover it, clean up, or have it undone."""
        work = self.chance.choice([drivers.recover, drivers.cleanup, drivers.abort])
        assert not self.run(work, dest, job_id, trigger=None).killed

    def open_uploads(self, dest: str) -> list[str]:
        """Keys of the open uploads below a destination; moto gives them on one page."""
        prefix = dest.removeprefix("s3://bucket/") + "/"
        listed = self._client.list_multipart_uploads(Bucket="bucket", Prefix=prefix)
        return [upload["Key"] for upload in listed.get("Uploads", [])]

    def check(self, dest: str) -> None:
        """All or nothing, and nothing left; whatever was done."""
        prefix = dest.removeprefix("s3://bucket/") + "/"
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket="bucket", Prefix=prefix
        )
        etags = {
            entry["Key"].removeprefix(prefix): entry["ETag"].strip('"')
            for page in pages
            for entry in page.get("Contents", [])
        }
        assert self.open_uploads(dest) == []
        control = [key for key in etags if key.startswith("__magic")]
        assert [key.rpartition("/")[2] for key in control] in ([], ["_job.json"])
        for key in control:
            body = self._client.get_object(Bucket="bucket", Key=prefix + key)["Body"].read()
            assert json.loads(body)["state"] == "closed"
        files = {
            re.sub(r"-mcj[0-9a-f]{32}\.txt", "", key): etag
            for key, etag in etags.items()
            if key not in control and key != "_SUCCESS"
        }
        assert files in ({}, expected())
        assert ("_SUCCESS" in etags) == bool(files)


def expected() -> dict[str, str]:
    """Names and ETags of the files of a committed job: one part each."""

    def etag(body: bytes) -> str:
        return hashlib.md5(hashlib.md5(body).digest()).hexdigest() + "-1"

    return {drivers.name(n): etag(drivers.content(n)) for n in range(drivers.FILES)}


def start(work: Callable[..., None], proxy: Killer, *arguments: str) -> Any:
    """Start a process whose store is the proxy."""
    process = context.Process(target=work, args=(proxy.url, *arguments), daemon=True)
    process.start()
    assert process.pid is not None
    proxy.aim(process.pid)
    return process


def end(process: Any, proxy: Killer) -> None:
    """Wait until a process has ended, as it must: by itself without error, or killed."""
    process.join(END_SECONDS_MAX)
    assert process.exitcode == (-9 if proxy.killed else 0)
    proxy.settle()


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
def requests(url: str) -> Counter[int]:
    """How many requests a driver that nobody kills sends in each phase."""
    field = Field(url, random.Random(0), Counter())
    dest = field.dest()
    proxy = field.run(drivers.drive, dest, trigger=None)
    field.check(dest)
    assert field.only_job(dest) is None
    assert proxy.seen[RUNNING] > 2 * drivers.FILES
    assert proxy.seen[COMMITTING] >= drivers.FILES
    return proxy.seen


def kill_drivers(field: Field, phase: int, requests: Counter[int], state: str) -> None:
    """Kill drivers in one state of their jobs; kill every second recovery of these as well."""
    killed = recoveries = 0
    for number in range(TRIES_MAX):
        if killed == KILLS_MIN:
            break
        dest = field.dest()
        if not field.run(drivers.drive, dest, trigger=field.trigger(phase, requests[phase])).killed:
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
    assert recoveries >= 2


def kill_a_recovery(field: Field, dest: str, job: mc.FoundJob) -> bool:
    """Recover a job, and be killed on the way. False if it was done before."""
    trigger = field.trigger(None, REQUESTS_MIN + len(field.open_uploads(dest)))
    proxy = field.run(drivers.recover, dest, job.id, trigger=trigger)
    field.kills["recovering"] += proxy.killed
    return proxy.killed


def test_a_driver_killed_while_its_job_is_running(field: Field, requests: Counter[int]) -> None:
    """I3, I4, I5: nothing was visible, and nothing is left."""
    kill_drivers(field, RUNNING, requests, "running")


def test_a_driver_killed_while_its_job_is_committing(field: Field, requests: Counter[int]) -> None:
    """I2, I5: some files were visible; all become so, or none stays, as the operator says."""
    kill_drivers(field, COMMITTING, requests, "committing")


def test_a_driver_killed_when_its_job_is_completed(field: Field, requests: Counter[int]) -> None:
    """I5, I8: all files were visible; the marker comes, and the rest goes."""
    kill_drivers(field, COMPLETED, requests, "completed")


def test_two_drivers_of_one_job_one_or_both_killed(field: Field, requests: Counter[int]) -> None:
    """I2, I5: two processes commit one job at once, and one or both are killed: the other, or who
    recovers, ends it as one would have."""
    for number in range(KILLS_MIN):
        dest = field.dest()
        job = mc.start(dest, s3=field.s3)
        drivers.write_tasks(job)
        with ExitStack() as stack:
            whole = drivers.FILES + drivers.TASKS
            first = stack.enter_context(killer(field.url, field.trigger(None, whole // 2)))
            one = field.trigger(None, whole) if number % 2 else None
            second = stack.enter_context(killer(field.url, one))
            both = [start(drivers.commit, proxy, dest, job.id) for proxy in (first, second)]
            for process, proxy in zip(both, (first, second), strict=True):
                end(process, proxy)
        field.kills["two drivers"] += first.killed + second.killed
        field.finish(dest, job.id)
        field.check(dest)
    assert field.kills["two drivers"] >= KILLS_MIN


def test_there_were_enough(kills: Counter[str]) -> None:
    """At least five kills in each state, thirty in all."""
    for state in ("running", "committing", "completed", "recovering"):
        assert kills[state] >= 5
    assert kills.total() >= 30

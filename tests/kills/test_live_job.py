"""A job of another process lives through cleanups every second with limits of one second, while a
dead one beside it is taken away; and two cleanups in two processes share the work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.fence import SignOfLife
from tests.kills import drivers
from tests.outside import Outside, etag
from tests.servers import make_bucket, moto_options, moto_server
from tools.moto_server import CREDENTIALS

DEST = "s3://bucket/table"
SIGN_SECONDS = 0.3
LIMIT_SECONDS = 1.0
LIVES_SECONDS = 8.0
PACE_SECONDS = 0.85
"""Between cleanups: a bit less than a second, so that they fall on all parts of the store's."""
END_SECONDS_MAX = 60
STALLED_SECONDS = 0.8
"""A process that was silent for so long had no time from the machine: its job may be taken."""
RUNS_MAX = 3
"""The first that was not stalled counts."""
FILES = 6

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)


# The processes ------------------------------------------------------------------------------------


def live(url: str, go: Any, told: Any) -> None:
    """A driver that signs every 0.3 s, waits with one file open and two tasks not committed, then
    commits; tells how often it signed before, and how long it was silent at most."""
    signs = [time.monotonic()]
    give = SignOfLife.give

    def timed(sign: SignOfLife) -> bool:
        going_on = give(sign)
        signs.append(time.monotonic())
        return going_on

    with (
        patch("magic_committer.job.ALIVE_SECONDS", SIGN_SECONDS),
        patch.object(SignOfLife, "give", timed),
    ):
        job = mc.start(DEST, track="s3", accept="results", s3=moto_options(url))
        silence = job.keep_alive()
        tasks = [job.task(number) for number in range(FILES)]
        files = [task.open(drivers.name(n), unique=True) for n, task in enumerate(tasks)]
        for number, file in enumerate(files):
            file.write(drivers.content(number))
        for file in files[1:]:
            file.close()
        results = [task.commit() for task in tasks[2:]]
        told.send(job.uuid)
        go.wait(END_SECONDS_MAX)
        gaps = [after - before for before, after in pairwise(signs)]
        try:
            files[0].close()
            results += [task.commit() for task in tasks[:2]]
            outcome = job.commit(results).outcome
        except mc.MagicError as error:
            outcome = repr(error)
        silence()
    told.send((outcome, len(gaps), max(gaps)))


def doomed(url: str, told: Any) -> None:
    """A driver that is killed with files written, and one still open."""
    job = mc.start(DEST, track="s3", accept="results", s3=moto_options(url))
    with job.task(0) as task:
        for number in range(FILES):
            with task.open(f"doomed-{number}", unique=True) as file:
                file.write(b"x")
    with job.task(1).open("doomed-open", unique=True) as open_file:
        open_file.write(b"x" * 9 * 2**20)  # a part of it is on its way
        told.send(job.uuid)
        threading.Event().wait(END_SECONDS_MAX)


@dataclass(frozen=True)
class Ended:
    """How the live job ended, how often it signed, and for how many seconds it did not at most."""

    outcome: str
    signs: int
    silent: float


# The operator -------------------------------------------------------------------------------------


class Bucket(Outside):
    """The bucket on moto's server, and who cleans it."""

    def __init__(self, url: str) -> None:
        make_bucket(url, "bucket")
        self.url = url
        super().__init__(moto_options(url), "bucket")

    def start_cleanup(self) -> subprocess.Popen[bytes]:
        """The command, in a process of its own, for which all is old."""
        limits = [f"--{of}=0s" for of in ("dead-after", "leftover-after", "forget-after")]
        command = [sys.executable, "-m", "magic_committer", "cleanup", DEST, "--format=json"]
        env = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": self.url}
        return subprocess.Popen([*command, *limits], env=env, stdout=subprocess.PIPE)

    def clean(self) -> mc.CleanupReport:
        """By the library, with all limits at one second."""
        limits = dict.fromkeys(("dead_after", "leftover_after", "forget_after"), LIMIT_SECONDS)
        report = mc.cleanup(DEST, **limits, s3=moto_options(self.url))  # type: ignore[arg-type]
        assert report.errors == ()
        return report


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with moto_server() as url:
        yield Bucket(url)


def test_a_live_job_is_untouched_and_a_dead_one_goes(bucket: Bucket, kills: Counter[str]) -> None:
    """I6: for 8 s a process cleans every second with all limits at 1 s. A job that signs every
    0.3 s keeps each upload and commits whole; one whose process was killed is gone by then."""
    for _ in range(RUNS_MAX):
        ended = beside_cleanups(bucket, kills)
        if ended.outcome == "committed" or ended.silent < STALLED_SECONDS:
            break
    assert ended.outcome == "committed", ended
    assert ended.signs > LIVES_SECONDS / SIGN_SECONDS / 2
    assert bucket.files("table") == {
        drivers.name(n): etag(drivers.content(n)) for n in range(FILES)
    }
    assert bucket.uploads() == []


def beside_cleanups(bucket: Bucket, kills: Counter[str]) -> Ended:
    """Run a live job and a dead one beside cleanups every second; how the live one ended."""
    bucket.empty()  # of a run that does not count
    go = context.Event()
    from_live, to_us = context.Pipe(duplex=False)
    from_doomed, also_to_us = context.Pipe(duplex=False)
    lives = context.Process(target=live, args=(bucket.url, go, to_us))
    dies = context.Process(target=doomed, args=(bucket.url, also_to_us))
    try:
        dies.start()
        lives.start()
        dead, alive = heard(from_doomed), heard(from_live)
        assert dies.pid is not None
        os.kill(dies.pid, signal.SIGKILL)
        dies.join(END_SECONDS_MAX)
        kills["beside a live job"] += 1
        clean_beside(bucket, alive, dead)
        go.set()
        began = time.monotonic()
        while not from_live.poll():  # it commits, and we go on
            assert time.monotonic() - began < END_SECONDS_MAX
            bucket.clean()
        return Ended(*from_live.recv())
    finally:
        for process in (lives, dies):
            process.kill()
            process.join(END_SECONDS_MAX)


def clean_beside(bucket: Bucket, alive: str, dead: str) -> None:
    """Clean every second, for 8 s at least and until the dead job is gone; the live one keeps what
    it has, or has lost all of it."""
    pace, began = threading.Event(), time.monotonic()
    recovered: set[str] = set()
    while time.monotonic() - began < LIVES_SECONDS or dead not in recovered:
        assert time.monotonic() - began < END_SECONDS_MAX
        before = time.monotonic()
        recovered |= {recovery.uuid for recovery in bucket.clean().recovered}
        if alive in recovered:
            return
        assert sum(alive in key for key in bucket.uploads()) == FILES
        pace.wait(max(0.0, PACE_SECONDS - (time.monotonic() - before)))
    assert not [key for key in bucket.uploads() if dead in key]


def heard(pipe: Any) -> Any:
    assert pipe.poll(END_SECONDS_MAX)
    return pipe.recv()


def test_two_cleanups_in_two_processes_share_the_work(bucket: Bucket) -> None:
    """I5: two commands at once on eight dead jobs: both end with 0, together they tell of each job,
    and nothing is left but closed records."""
    jobs = [mc.start(DEST, track="s3", s3=moto_options(bucket.url)) for _ in range(8)]
    for job in jobs:
        with job.task(0) as task, task.open("file", unique=True) as file:
            file.write(b"x")
    assert len(bucket.uploads()) == len(jobs)
    both = [bucket.start_cleanup() for _ in range(2)]
    ran = [process.communicate(timeout=END_SECONDS_MAX)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    rows = [orjson.loads(out)["rows"][0] for out in ran]
    recovered = {job["job_id"] for row in rows for job in row["recovered"]}
    assert recovered == {job.id for job in jobs}
    assert bucket.uploads() == []
    assert {key.rpartition("/")[2] for key in bucket.objects()} <= {"_job.json"}

"""The soak: mixed jobs, one after the other, on a real server; drivers, workers and the server are
killed by a plan that is drawn from a seed, and each job is judged.

How far a process has come when it is killed depends on the machine; so a seed gives the same plan
again, not the same run.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import random
import statistics
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, get_args

from botocore.exceptions import BotoCoreError, ClientError

from magic_committer.options import Transport
from tests.chaos import jobs
from tests.chaos.jobs import Ending, Kind, Round, Told, Way
from tests.chaos.judge import NotEnded, Operator, lies
from tests.chaos.victims import Victim
from tests.outside import Outside, words
from tests.real_servers import server as servers
from tests.real_servers.kinds import Versitygw
from tests.real_servers.server import Server, outside

BUCKET = "bucket"
MORE_OFTEN: tuple[Kind, ...] = ("listing", "listing", "memory")
"""They have the most processes to kill."""
FILES_MIN, FILES_MAX = 4, 60
DRIVER_KILLED_SHARE, WORKER_KILLED_SHARE = 0.45, 0.6
KILL_SECONDS_MAX = 1.6
"""Of a driver, after its start: a job takes about so long."""
SERVER_QUIET_SECONDS = (4.0, 12.0)
"""Between two kills of the server."""
SERVER_DOWN_SECONDS = (0.1, 3.0)
DRIVER_SECONDS_MAX = 300.0
"""A driver that takes longer hangs."""
RSS_GROWTH_MAX, RSS_BYTES_MAX = 0.1, 8 * 1024**2
"""How much more memory this process, which writes, ends and reads jobs, may have at last."""
DESCRIPTORS_MORE_MAX = 4
"""By how many the fewest open files, pipes and selectors at a time may grow: what leaks stays open.
"""
SOCKETS_MAX = 64 + 32
"""Sockets at a time. The pool of connections (64 at most) fills and empties by chance, so growth of
a few says nothing of them."""
SAMPLES_MIN = 9
"""Of fewer nothing is said."""
M_ARENA_MAX = -8
"""glibc's malloc.h."""


class Sample(NamedTuple):
    """What this process has. ``descriptors``: but for sockets."""

    rss_bytes: int
    descriptors: int
    sockets: int


def sampled() -> Sample:
    """What it has now."""
    gc.collect()
    rss_pages = int(Path("/proc/self/statm").read_text().split()[1])
    kinds: Counter[bool] = Counter()
    for one in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of the listing itself
            kinds[os.readlink(f"/proc/self/fd/{one}").startswith("socket:")] += 1
    return Sample(rss_pages * os.sysconf("SC_PAGE_SIZE"), kinds[False], kinds[True])


def _one_heap() -> None:
    """Let glibc keep one heap for all threads. By default it keeps some for each of many threads,
    and blocks that were freed in each. A leak of ours shows in either."""
    with contextlib.suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def rounds(seed: int) -> Iterator[Round]:
    """The jobs of a seed, without an end."""
    chance = random.Random(f"rounds {seed}")
    number = 0
    while True:
        killed = chance.random() < DRIVER_KILLED_SHARE
        worker = chance.random() < WORKER_KILLED_SHARE
        yield Round(
            number=number,
            kind=chance.choice((*get_args(Kind), *MORE_OFTEN)),
            files=chance.randint(FILES_MIN, FILES_MAX),
            seed=chance.getrandbits(64),
            driver_lives=chance.uniform(0.02, KILL_SECONDS_MAX) if killed else None,
            worker_killed=chance.randint(0, 2) if worker else None,
            worker_lives=chance.uniform(0.0, 0.5),
            ending=chance.choice(get_args(Ending)),
        )
        number += 1


@dataclass
class Figures:
    """What happened.

    Attributes:
        told: what drivers were told, and how often; ``killed``: those that heard nothing.
        ended: what became of the jobs.
        wrong: every lie, loss and leak, in words. Empty: the soak has passed.
        late: destinations in which something was left that only a later sweep took: what was on
            its way when its sender was killed (docs/protocol.md, "What is not promised").
    """

    jobs: int = 0
    files: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    late: int = 0
    wrong: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"jobs {self.jobs}, files visible at the end {self.files}"
        yield f"kill -9: {self.kills.total()} in all: {words(self.kills)}"
        yield f"drivers were told: {words(self.told)}"
        yield f"ended by others: {words(self.endings)}"
        yield f"became: {words(self.ended)}; files the server lost, and we said so: {self.lost}"
        yield f"left for a later sweep: {self.late} destinations"
        if len(self.samples) >= SAMPLES_MIN:
            (rss, more_rss), (fewest, more) = self._growth()
            yield (
                f"this process, after {len(self.samples)} jobs: memory"
                f" {rss / 2**20:.0f}, then {more_rss / 2**20:.0f} MiB; descriptors"
                f" at least {fewest}, then {more}, sockets at most {self._sockets()}"
            )
        yield f"lies, losses, leaks: {len(self.wrong)}"
        yield from (f"  WRONG: {one}" for one in self.wrong)

    def judge_growth(self) -> None:
        """Hold the memory and descriptors of this process against its own past."""
        if len(self.samples) < SAMPLES_MIN:
            return
        (rss, more_rss), (fewest, more) = self._growth()
        if more_rss > rss * (1 + RSS_GROWTH_MAX) + RSS_BYTES_MAX:
            self.wrong.append(f"memory grew from {rss:.0f} to {more_rss:.0f} bytes")
        if more > fewest + DESCRIPTORS_MORE_MAX:
            self.wrong.append(f"open descriptors grew from {fewest} to {more}")
        if self._sockets() > SOCKETS_MAX:
            self.wrong.append(f"{self._sockets()} sockets were open at a time")

    def _sockets(self) -> int:
        return max(one.sockets for one in self.samples)

    def _growth(self) -> tuple[list[float], list[int]]:
        """The memory, and the fewest descriptors, of the second and of the last third of the
        jobs."""
        third = len(self.samples) // 3
        thirds = self.samples[third : 2 * third], self.samples[2 * third :]
        return (
            [statistics.median(one.rss_bytes for one in some) for some in thirds],
            [min(one.descriptors for one in some) for some in thirds],
        )


def soak(seed: int, seconds: float, *, transport: Transport = "auto") -> Figures:
    """Run jobs for so long, and judge each; gives the figures.

    Args:
        seed: draws the jobs and the kills.
        seconds: no job is begun later.
        transport: what sends the library's requests.
    """
    _one_heap()
    with ExitStack() as running:
        server = running.enter_context(servers.running(Versitygw))
        outside(server.url).create_bucket(Bucket=BUCKET)
        run = _Run(server, seed, Way(server.url, transport))
        with run.server_killed():
            deadline = time.monotonic() + seconds
            for job in rounds(seed):
                if time.monotonic() > deadline:
                    break
                run.one(job)
                run.figures.samples.append(sampled())
    run.figures.endings = run.operator.used
    run.figures.judge_growth()
    return run.figures


class _Run:
    def __init__(self, server: Server, seed: int, way: Way) -> None:
        self.server = server
        self.seed = seed
        self.way = way
        self.figures = Figures()
        self.operator = Operator(BUCKET, way.s3())
        self._bucket = Outside(Way(server.url).s3(), BUCKET)
        self._up = threading.Lock()  # held while the server is down, and while the checker reads

    def one(self, job: Round) -> None:
        """Run one job in a process of its own, kill it if the plan says so, and judge it. Of those
        that nobody kills, and that have no workers of their own, each second is run here."""
        with self._up:
            for name, body in job.old.items():
                key = f"{job.dest}/{name}"
                self._bucket.client.put_object(Bucket=BUCKET, Key=key, Body=body)
        if job.driver_lives is None and job.kind != "listing" and job.number % 2:
            self._judge(job, self._run_here(job))
            return
        driver = Victim(jobs.run, self.way, BUCKET, job)
        if driver.lives(DRIVER_SECONDS_MAX if job.driver_lives is None else job.driver_lives):
            driver.kill()
            self.figures.kills["driver"] += 1
            if job.driver_lives is None:
                self._wrong(job, f"its driver hung for {DRIVER_SECONDS_MAX:.0f} s")
        told: Told | None = None
        try:
            told = driver.end()
        except AssertionError as error:
            self._wrong(job, f"its driver ended and told nothing: {error}")
        self._judge(job, told)

    def _run_here(self, job: Round) -> Told | None:
        """Run one in this process, so that what writers leave shows as growth."""
        faulthandler.dump_traceback_later(DRIVER_SECONDS_MAX, exit=True)
        try:
            return jobs.run(self.way, BUCKET, job)
        except Exception:
            self._wrong(job, f"it failed here: {traceback.format_exc()}")
            return None
        finally:
            faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def server_killed(self) -> Iterator[None]:
        """Kill the server and start it again, all the time."""
        over, chance = threading.Event(), random.Random(f"server {self.seed}")

        def kill_again_and_again() -> None:
            while not over.wait(chance.uniform(*SERVER_QUIET_SECONDS)):
                with self._up:
                    self.server.kill()
                    self.figures.kills["server"] += 1
                    time.sleep(chance.uniform(*SERVER_DOWN_SECONDS))
                    self.server.restart()

        thread = threading.Thread(target=kill_again_and_again)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _judge(self, job: Round, told: Told | None) -> None:
        figures, outcome = self.figures, told.outcome if told else ""
        figures.jobs += 1
        figures.told[outcome or "killed"] += 1
        figures.kills["worker"] += told.workers_killed if told else 0
        try:
            if outcome == "committed":
                self._check(job, outcome)  # before anybody repairs anything
            ended, lost = self.operator.end(job, outcome)
            figures.ended[ended or "nobody was told"] += 1
            figures.lost += len(lost)
            figures.files += self._check(job, ended, lost)
            self._check_leaks(job)
        except NotEnded as error:
            self._wrong(job, str(error))
        except (ClientError, BotoCoreError) as error:
            self._wrong(job, f"the checker could not read: {error!r}")

    def _check(self, job: Round, told: str, lost: tuple[str, ...] = ()) -> int:
        """How many of its files are visible; says what is not as it was told."""
        with self._up:
            found = self._bucket.look(job.dest)
        if lie := lies(told, found, job, lost):
            self._wrong(job, lie)
        return len(found.files.keys() & job.contents().keys())

    def _check_leaks(self, job: Round) -> None:
        with self._up:
            if not self._bucket.left(job.dest):
                return
            self.figures.late += 1
            self.operator.sweep(job.dest)
            left = self._bucket.left(job.dest)
        for what in left:
            self._wrong(job, f"left for ever: {what}")

    def _wrong(self, job: Round, what: str) -> None:
        self.figures.wrong.append(f"{job.dest} ({job.kind}, {job.files} files): {what}")

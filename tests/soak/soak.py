"""The soak itself: jobs beside each other on a real server, and three who kill."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from magic_committer.options import Transport
from tests.outside import Outside, words
from tests.real_servers import server as servers
from tests.real_servers.server import Server, options, outside
from tests.real_servers.versitygw import Versitygw
from tests.soak import jobs, plan
from tests.soak.jobs import Steady, Told, Way
from tests.soak.judging import NotEnded, Operator, expected, lies, look
from tests.soak.plan import Round
from tests.soak.weather import weather

BUCKET = "bucket"
DRIVER_SECONDS_MAX = 300.0
"""A driver that takes longer hangs."""
UNJUDGED_MAX = 4
"""So many jobs the driver that lives on may be ahead of the judge. It is faster: without a limit
the judge would never be done."""
RSS_GROWTH_MAX, RSS_BYTES_MAX = 0.1, 8 * 1024**2
"""The driver that lives on: how much more memory its last jobs may take than those before."""
DESCRIPTORS_MORE_MAX = 24
"""By how many the fewest that were open at a time may grow. A leak stays open, so it shows there.
Pools of connections (64 at most) fill and empty by chance, more so in bad weather: samples were
between 27 and 60 there, and the medians of two thirds of a run 37 and 59."""
SAMPLES_MIN = 9
"""Of fewer nothing is said."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.soak.jobs"])


@dataclass
class Figures:
    """What happened.

    Attributes:
        told: what drivers were told, and how often; ``killed``: those that heard nothing.
        ended: what became of the jobs.
        wrong: every lie, loss and leak, in words. Empty: the soak has passed.
        late: destinations in which something was left that only a later sweep took: what was on
            its way when its sender was killed (docs/protocol.md, "What is not promised").
        weather: what was done to requests on their way; empty if there was no weather.
    """

    jobs: int = 0
    files: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    late: int = 0
    weather: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    steady: list[Steady] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"jobs {self.jobs}, files visible at the end {self.files}"
        yield f"kill -9: {self.kills.total()} in all: {words(self.kills)}"
        yield f"drivers were told: {words(self.told)}"
        yield f"ended by others: {words(self.endings)}"
        yield f"became: {words(self.ended)}; files the server lost, and we said so: {self.lost}"
        yield f"left for a later sweep: {self.late} destinations"
        if self.weather:
            yield f"requests on their way: {words(self.weather)}"
        if len(self.steady) >= SAMPLES_MIN:
            _, middle, last = _thirds(self.steady)
            yield (
                f"the driver that lived on: {len(self.steady)} jobs; memory"
                f" {_rss(middle) / 2**20:.0f}, then {_rss(last) / 2**20:.0f} MiB; descriptors"
                f" at least {_descriptors(middle)}, then {_descriptors(last)}"
            )
        yield f"lies, losses, leaks: {len(self.wrong)}"
        yield from (f"  WRONG: {one}" for one in self.wrong)

    def judge_growth(self) -> None:
        """Hold the memory and descriptors of the driver that lived on against its own past."""
        if len(self.steady) < SAMPLES_MIN:
            return
        _, middle, last = _thirds(self.steady)
        if _rss(last) > _rss(middle) * (1 + RSS_GROWTH_MAX) + RSS_BYTES_MAX:
            self.wrong.append(f"memory grew from {_rss(middle):.0f} to {_rss(last):.0f} bytes")
        if _descriptors(last) > _descriptors(middle) + DESCRIPTORS_MORE_MAX:
            more = f"{_descriptors(middle)} to {_descriptors(last)}"
            self.wrong.append(f"open descriptors grew from {more}")


def _thirds(samples: list[Steady]) -> tuple[list[Steady], list[Steady], list[Steady]]:
    third = len(samples) // 3
    return samples[:third], samples[third : 2 * third], samples[2 * third :]


def _rss(samples: list[Steady]) -> float:
    return statistics.median(one.rss_bytes for one in samples)


def _descriptors(samples: list[Steady]) -> int:
    return min(one.descriptors for one in samples)


def soak(
    seed: int, seconds: float, *, transport: Transport = "auto", stormy: bool = False
) -> Figures:
    """Run jobs for so long, and judge each.

    Args:
        seed: draws the jobs, the kills and the weather.
        seconds: no job is begun later.
        transport: what sends the library's requests.
        stormy: `weather` stands between the library and the server.

    Returns:
        The figures, judged.
    """
    with ExitStack() as running:
        server = running.enter_context(servers.running(Versitygw))
        outside(server.url).create_bucket(Bucket=BUCKET)
        between = running.enter_context(weather(server.url, seed)) if stormy else None
        run = _Run(server, seed, Way(between.url if between else server.url, transport))
        with run.long_living_driver(), run.server_killed():
            deadline = time.monotonic() + seconds
            for job in plan.rounds(seed):
                if time.monotonic() > deadline:
                    break
                run.one(job)
                run.judge_steady()
        run.judge_steady()
    run.figures.endings = run.operator.used
    if between is not None:
        run.figures.weather = between.met
    run.figures.judge_growth()
    return run.figures


class _Run:
    def __init__(self, server: Server, seed: int, way: Way) -> None:
        self.server = server
        self.seed = seed
        self.way = way
        self.figures = Figures()
        self.operator = Operator(BUCKET, way.s3())
        # A sweep is not repeated before it is judged: it goes where no weather is.
        self._sweeper = Operator(BUCKET, Way(server.url, way.transport).s3())
        self._bucket = Outside(options(server.url), BUCKET)
        self._up = threading.Lock()  # held while the server is down, and while the checker reads
        self._steady: Any = None
        self._room = context.Semaphore(UNJUDGED_MAX)

    def one(self, job: Round) -> None:
        """Run one job in a process of its own, kill it if the plan says so, and judge it."""
        self._put_old(job)
        ours, theirs = context.Pipe(duplex=False)
        driver = context.Process(target=jobs.drive, args=(self.way, BUCKET, job, theirs))
        driver.start()
        theirs.close()
        driver.join(DRIVER_SECONDS_MAX if job.driver_lives is None else job.driver_lives)
        killed = driver.is_alive()
        if killed:
            driver.kill()
            driver.join()
            self.figures.kills["driver"] += 1
            if job.driver_lives is None:
                self._wrong(job, f"its driver hung for {DRIVER_SECONDS_MAX:.0f} s")
        told = None
        with contextlib.suppress(EOFError):
            while ours.poll(DRIVER_SECONDS_MAX):  # until its workers, too, are gone
                told = ours.recv()
        if told is None and not killed:
            self._wrong(job, f"its driver ended with code {driver.exitcode} and told nothing")
        self._judge(job, told)

    def judge_steady(self) -> None:
        """Judge what the driver that lives on has done since."""
        with contextlib.suppress(EOFError):
            for _ in range(UNJUDGED_MAX):
                if not self._steady.poll():
                    return
                sample: Steady = self._steady.recv()
                self.figures.steady.append(sample)
                self._judge(sample.job, sample.told)
                self._room.release()

    @contextlib.contextmanager
    def long_living_driver(self) -> Iterator[None]:
        """One driver that nobody kills."""
        stop = context.Event()
        self._steady, theirs = context.Pipe(duplex=False)
        arguments = (self.way, BUCKET, stop, theirs, self._room)
        driver = context.Process(target=jobs.steady, args=arguments, daemon=True)
        driver.start()
        theirs.close()
        try:
            yield
        finally:
            stop.set()
            driver.join(DRIVER_SECONDS_MAX)
            if driver.exitcode != 0:
                self.figures.wrong.append(f"the driver that lives on ended with {driver.exitcode}")
            driver.kill()

    @contextlib.contextmanager
    def server_killed(self) -> Iterator[None]:
        """Kill the server and start it again, all the time."""
        over = threading.Event()

        def kill_again_and_again() -> None:
            for lives, down in plan.server_kills(self.seed):
                if over.wait(lives):
                    return
                with self._up:
                    self.server.kill()
                    self.figures.kills["server"] += 1
                    time.sleep(down)
                    self.server.restart()

        thread = threading.Thread(target=kill_again_and_again)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _put_old(self, job: Round) -> None:
        with self._up:
            client = outside(self.server.url)
            for name, body in job.old.items():
                client.put_object(Bucket=BUCKET, Key=f"{job.dest}/{name}", Body=body)
            client.close()

    def _judge(self, job: Round, told: Told | None) -> None:
        figures = self.figures
        figures.jobs += 1
        figures.told[told.outcome if told else "killed"] += 1
        figures.kills["worker"] += told.workers_killed if told else 0
        try:
            if told is not None and told.outcome == "committed":
                self._check(job, "committed")  # before anybody repairs anything
            ended = self.operator.end(job, told.outcome if told else "")
            figures.ended[ended.outcome or "nobody was told"] += 1
            figures.lost += len(ended.lost)
            figures.files += self._check(job, ended.outcome, ended.lost)
            self._check_leaks(job)
        except NotEnded as error:
            self._wrong(job, str(error))
        except (ClientError, BotoCoreError) as error:
            self._wrong(job, f"the checker could not read: {error!r}")

    def _check(self, job: Round, told: str, lost: tuple[str, ...] = ()) -> int:
        """How many of its files are visible; says what is not as it was told."""
        with self._up:
            found = look(self._bucket, job.dest)
        if lie := lies(told, found, job, lost):
            self._wrong(job, lie)
        return len(found.files.keys() & expected(job).keys())

    def _check_leaks(self, job: Round) -> None:
        with self._up:
            found = look(self._bucket, job.dest)
            if not found.uploads and not found.control:
                return
            self.figures.late += 1
            self._sweeper.sweep(job)
            found = look(self._bucket, job.dest)
        for what in (*found.uploads, *found.control):
            self._wrong(job, f"left for ever: {what}")

    def _wrong(self, job: Round, what: str) -> None:
        self.figures.wrong.append(f"{job.dest} ({job.kind}, {job.files} files): {what}")

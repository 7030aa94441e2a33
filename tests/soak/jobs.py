"""What the processes of a soak do: drivers, workers, and one driver that lives on and on."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us
from magic_committer.options import Accept, Mode, Track, Transport
from tests.real_servers.server import options
from tests.soak.plan import Kind, Round

TASKS = 3
WORKER_SECONDS_MAX = 60
WORKER_TRIES_MAX = 5
M_ARENA_MAX = -8
"""glibc's malloc.h."""
ROOM_LOOK_SECONDS = 0.5
STEADY_FIRST = 500_000
"""The first number of a job of the driver that lives on; the others begin at 0."""
STEADY_KINDS: tuple[Kind, ...] = ("memory", "write", "fail", "raise")
STEADY_FILES, STEADY_SEED = 30, 0
BLOCKS = mc.Options(block_bytes=5 * 1024**2)

context = multiprocessing.get_context("fork")
"""Workers are forked by a driver that has not opened anything yet."""


class Told(NamedTuple):
    """What a driver was told of its job.

    Attributes:
        outcome: ``committed``, ``aborted``, ``incomplete`` (decided, not done), ``not started``
            (nothing of it can be visible), or ``unknown``: the store gave no answer, and the record
            tells.
        workers_killed: how many of its workers it has killed.
    """

    outcome: str
    workers_killed: int = 0


class Steady(NamedTuple):
    """What the long-living driver tells after each job."""

    job: Round
    told: Told
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True)
class Way:
    """How the library's processes reach the store. ``url``: of the server, or of the weather before
    it. ``transport``: what sends requests; as in `S3Options`."""

    url: str
    transport: Transport = "auto"

    def s3(self) -> mc.S3Options:
        """The options. Made in each process: the keys do not travel."""
        return options(self.url, transport=self.transport)


class Failed(Exception):
    """What the body of a job of kind ``raise`` raises."""


def run(way: Way, bucket: str, job: Round, s3: mc.S3Options | None = None) -> Told:
    """Run one job to its end; what was told of it."""
    dest, s3 = f"s3://{bucket}/{job.dest}", s3 or way.s3()
    started = False
    killed = 0
    try:
        if job.kind in ("listing", "memory"):
            track, accept = _WAYS[job.kind]
            handle = mc.start(dest, accept=accept, track=track, s3=s3, options=BLOCKS)
            started = True
            if job.kind == "listing":
                killed = _run_workers(way, dest, handle.id, job)
                return Told(handle.commit(expect=TASKS).outcome, killed)
            with ThreadPoolExecutor(TASKS) as threads:
                tasks = threads.map(lambda task: _write_task(handle, task, job), range(TASKS))
                results = list(tasks)
            return Told(handle.commit(results).outcome)
        writing = mc.write(dest, mode=_mode(job.kind), s3=s3, options=BLOCKS)
        with writing:
            started = True
            for name, body in job.contents().items():
                with writing.open(f"{name}.txt", unique=True) as file:
                    file.write(body)
            if job.kind == "raise":
                raise Failed
        return Told(writing.report.outcome)
    except Failed as error:
        # A failed abort is a note: whether all of it is undone is then the record's to tell.
        return Told("unknown" if getattr(error, "__notes__", ()) else "aborted")
    except mc.CommitIncomplete:
        return Told("incomplete", killed)
    except mc.MagicError:
        return Told("unknown" if started else "not started", killed)


_WAYS: dict[str, tuple[Track, Accept]] = {
    "listing": ("s3", "listing"),
    "memory": ("memory", "results"),
}


def _mode(kind: Kind) -> Mode:
    modes: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    return modes.get(kind, "append")


def _write_task(handle: mc.Job, task: int, job: Round) -> mc.TaskCommit:
    """One task: every third file."""
    mine = list(job.contents().items())[task::TASKS]
    with handle.task(task) as attempt:
        for name, body in mine:
            with attempt.open(f"{name}.txt", unique=True) as file:
                file.write(body)
    return attempt.result


def _run_workers(way: Way, dest: str, job_id: str, job: Round) -> int:
    """Workers in processes of their own; one may be killed, and its task is run again by another.
    How many were killed."""

    def started(task: int) -> Any:
        process = context.Process(target=work, args=(way, dest, job_id, task, job))
        process.start()
        return process

    workers = [started(task) for task in range(TASKS)]
    killed = 0
    if job.worker_killed is not None:
        victim = workers[job.worker_killed]
        victim.join(job.worker_lives)
        killed = int(victim.is_alive())
        victim.kill()
    for task, worker in enumerate(workers):
        worker.join(WORKER_SECONDS_MAX)
        for _ in range(WORKER_TRIES_MAX):
            if worker.exitcode == 0:
                break
            worker.kill()
            worker = started(task)
            worker.join(WORKER_SECONDS_MAX)
    return killed


def work(way: Way, dest: str, job_id: str, task: int, job: Round) -> None:
    """A worker: it knows the job by name. Its exit code says whether the task is committed."""
    try:
        handle = mc.attach(dest, job_id, s3=way.s3(), options=BLOCKS)
        _write_task(handle, task, job)
    except mc.MagicError:
        os._exit(1)  # the store was down, or the job is over: the driver starts another, or not


def drive(way: Way, bucket: str, job: Round, tell: Any) -> None:
    """A driver's process. Its workers hold the pipe as well: it ends when all are gone."""
    tell.send(run(way, bucket, job))


def steady(way: Way, bucket: str, stop: Any, tell: Any, room: Any) -> None:
    """A driver that lives as long as the soak: one job after the other, and nobody kills it; after
    each it tells what it was told, its memory and its open descriptors.

    Args:
        way, bucket: the way to the server, and the bucket.
        stop: an event that ends it.
        tell: a pipe to who judges the jobs.
        room: a semaphore that the judge releases after each job: it is slower than this driver.
    """
    _one_heap()
    for number in itertools.count(STEADY_FIRST):
        while not stop.is_set() and not room.acquire(timeout=ROOM_LOOK_SECONDS):
            continue
        if stop.is_set():
            return
        kind = STEADY_KINDS[number % len(STEADY_KINDS)]
        # The same bytes again and again: what memory grows by is no larger file.
        job = Round(number, kind, STEADY_FILES, STEADY_SEED, None, None, 0.0, "recover")
        told = run(way, bucket, job)
        gc.collect()
        tell.send(Steady(job, told, rss_bytes(), open_descriptors()))


def _one_heap() -> None:
    """Let glibc keep one heap for all threads. By default it keeps some for each of many threads,
    and blocks of 5 MiB that were freed in each: 66 MiB more after 20 jobs, while with one heap the
    memory did not change at all. A leak of ours shows in either."""
    with contextlib.suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))

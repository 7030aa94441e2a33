"""What the processes do that are struck, and those that come after them: whole jobs and their
workers, on any S3 server."""

from __future__ import annotations

import multiprocessing
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us
from magic_committer.filesystem import put
from magic_committer.options import Accept, Mode, Track, Transport
from magic_committer.stores.base import PART_BYTES_MIN
from magic_committer.upload import stream
from tests.outside import etag
from tests.real_servers.server import options

Kind = Literal[
    "memory", "s3", "listing", "write", "fail", "fail_partitions", "replace", "replace_partitions",
    "raise",
]  # fmt: skip
"""``memory`` and ``s3``: a track, and results; ``listing``: workers in processes of their own,
found by listing; ``write`` and the modes: one process; ``raise``: its body raises, so it is
aborted."""
BY_TASKS: dict[str, tuple[Track, Accept]] = {
    "memory": ("memory", "results"), "s3": ("s3", "results"), "listing": ("s3", "listing"),
}  # fmt: skip
Ending = Literal["recover", "abort", "cleanup"]
EMPTY_SHARE, LARGE_SHARE = 0.1, 0.02
WORKER_SECONDS_MAX = 60
WORKER_TRIES_MAX = 5
BLOCKS = mc.Options(block_bytes=5 * 1024**2)

fork = multiprocessing.get_context("fork")
"""Workers are forked by a driver that has not opened anything yet."""


@dataclass(frozen=True)
class Round:
    """One job.

    Attributes:
        number: names its destination.
        seed: of the files' bytes.
        ending: what an operator does where a killed driver's job is left.
        tasks: how many. threads: that write them; 1: one after the other, until one fails.
        bytes_each: of a file; 0: some are empty, some have parts.
        driver_lives: seconds until its driver is killed; None: nobody kills it.
        worker_killed: which task's first process is killed, of a job of kind ``listing``.
        worker_lives: seconds until then.
        named: its destination, where its number does not name it.
    """

    number: int
    kind: Kind = "memory"
    files: int = 30
    seed: int = 0
    ending: Ending = "recover"
    tasks: int = 3
    threads: int = 3
    bytes_each: int = 0
    driver_lives: float | None = None
    worker_killed: int | None = None
    worker_lives: float = 0.0
    named: str = ""

    @property
    def dest(self) -> str:
        """Where it writes; nobody else does."""
        return self.named or f"t{self.number:06}"

    @property
    def old(self) -> dict[str, bytes]:
        """What is there before: of the modes that replace it all must go, or all must stay."""
        return {"dt=0/old.csv": b"old %d" % self.number} if self.kind.startswith("replace") else {}

    def contents(self) -> dict[str, bytes]:
        """Its files: names, and bytes that no other job has."""
        chance = random.Random(self.seed)
        made = {}
        for number in range(self.files):
            size = self.bytes_each or self._size(chance)
            body = b"" if size == 0 else (b"%016x\n" % chance.getrandbits(64)) * (size // 17 + 1)
            made[f"dt={number % 3}/part-{number:03}"] = body
        return made

    def _size(self, chance: random.Random) -> int:
        drawn = chance.random()
        size = 0 if drawn < EMPTY_SHARE else chance.randint(1, 2000)
        return 6 * 1024**2 if EMPTY_SHARE <= drawn < EMPTY_SHARE + LARGE_SHARE else size

    def expected(self) -> dict[str, str]:
        """Names and ETags of its files, when it has committed."""
        return {name: etag(body, BLOCKS.block_bytes) for name, body in self.contents().items()}


class Told(NamedTuple):
    """What a driver was told of its job.

    Attributes:
        outcome: ``committed``, ``aborted``, ``refused``, ``incomplete`` (decided, not done),
            ``undecided``, ``not started`` (nothing of it can be visible), or ``unknown``: the store
            gave no answer, and the record tells.
        why: the error's text.
        workers_killed: how many of its workers it has killed.
    """

    outcome: str
    why: str = ""
    workers_killed: int = 0


@dataclass(frozen=True)
class Way:
    """How the library's processes reach the store: the URL of the server, or of what stands before
    it; what sends requests, as in `S3Options`."""

    url: str
    transport: Transport = "auto"

    def s3(self, **more: Any) -> mc.S3Options:
        """The options. Made in each process: the keys do not travel."""
        return options(self.url, transport=self.transport, **more)


class Failed(Exception):
    """What the body of a job of kind ``raise`` raises."""


def run(way: Way, bucket: str, job: Round, s3: mc.S3Options | None = None) -> Told:
    """Run one job to its end; what was told of it."""
    dest = f"s3://{bucket}/{job.dest}"
    if job.kind in BY_TASKS:
        return _by_tasks(way, dest, job, s3 or way.s3())
    return _by_write(dest, job, s3 or way.s3())


def _by_tasks(way: Way, dest: str, job: Round, s3: mc.S3Options) -> Told:
    track, accept = BY_TASKS[job.kind]
    try:
        handle = mc.start(dest, accept=accept, track=track, s3=s3, options=BLOCKS)
    except mc.MagicError as error:
        return Told("not started", str(error))
    killed, results = 0, None
    try:
        if accept == "listing":
            killed = _run_workers(way, dest, handle.id, job)
        else:
            results = write_tasks(handle, job)
    except mc.MagicError as error:
        return _aborted(handle, error)
    try:
        report = handle.commit(results, expect=None if results else job.tasks)
    except mc.MagicError as error:
        return Told(_word(error), str(error), killed)
    assert report.files == job.files, report
    return Told(report.outcome, "; ".join(report.warnings), killed)


def _aborted(handle: mc.Job, error: mc.MagicError) -> Told:
    try:
        handle.abort()
    except mc.MagicError as failure:
        return Told("undecided", f"{error} | {failure}")
    return Told("aborted", str(error))


def _word(error: mc.MagicError) -> str:
    """What a failed commit has told."""
    words = {mc.CommitIncomplete: "incomplete", mc.CommitRefused: "refused"}
    words[mc.OutcomeUnknown] = "unknown"
    return next((word for kind, word in words.items() if isinstance(error, kind)), "undecided")


def _by_write(dest: str, job: Round, s3: mc.S3Options) -> Told:
    mode: Mode = next((mode for mode in get_args(Mode) if mode == job.kind), "append")
    writing, started = mc.write(dest, mode=mode, s3=s3, options=BLOCKS), False
    try:
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
    except mc.CommitIncomplete as error:
        return Told("incomplete", str(error))
    except mc.MagicError as error:
        return Told("unknown" if started else "not started", str(error))


def write_tasks(handle: mc.Job, job: Round) -> list[mc.TaskCommit]:
    """All tasks of a job."""
    if job.threads == 1:
        return [_write_task(handle, task, job) for task in range(job.tasks)]
    with ThreadPoolExecutor(job.threads) as threads:
        return list(threads.map(lambda task: _write_task(handle, task, job), range(job.tasks)))


def _write_task(handle: mc.Job, task: int, job: Round) -> mc.TaskCommit:
    """One task: every n-th file."""
    with handle.task(task) as attempt:
        for name, body in list(job.contents().items())[task :: job.tasks]:
            with attempt.open(f"{name}.txt", unique=True) as file:
                file.write(body)
    return attempt.result


def _run_workers(way: Way, dest: str, job_id: str, job: Round) -> int:
    """Workers in processes of their own; one may be killed, and its task is run again by another.
    How many were killed."""

    def started(task: int) -> Any:
        process = fork.Process(target=_work, args=(way, dest, job_id, task, job))
        process.start()
        return process

    workers = [started(task) for task in range(job.tasks)]
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


def _work(way: Way, dest: str, job_id: str, task: int, job: Round) -> None:
    """A worker: it knows the job by name. Its exit code says whether the task is committed."""
    try:
        _write_task(mc.attach(dest, job_id, s3=way.s3(), options=BLOCKS), task, job)
    except mc.MagicError:
        os._exit(1)  # the store was down, or the job is over: the driver starts another, or not


def commit(way: Way, dest: str, job_id: str, tasks: int) -> None:
    """A driver of a job that is written already."""
    mc.attach(dest, job_id, s3=way.s3()).commit(expect=tasks)


def promote(way: Way, source: str, dest: str) -> None:
    """Objects that are there become a job. A part has the least bytes that it may have."""
    stream.COPY_PART_BYTES = PART_BYTES_MIN
    put.COPY_PART_BYTES = PART_BYTES_MIN  # type: ignore[attr-defined]
    with mc.write(dest, s3=way.s3()) as job:
        job.copy(source, unique=True)

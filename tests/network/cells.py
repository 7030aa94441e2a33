"""Cells: one small job each, struck by one fault in one phase; what it was told, what is there.

A job of two tasks with two files each runs through the proxy. When it has been told its end, the
checker reads the bucket past the proxy and compares. Then the network heals, what was late arrives,
an operator recovers and cleans up, and the checker looks again:

* told "committed": all files are there, then and later;
* told "aborted", "refused" or "not started": none is, then and later;
* told that nothing was decided: none is there then, and recovery aborts it;
* told "incomplete": recovery makes all of them visible;
* told "unknown": either, but wholly, once it is recovered;
* afterwards no upload, no control object, and a marker exactly beside the files.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import SimpleQueue

import magic_committer as mc
from tests.network.faults import FAULTS, PATIENCE_SECONDS, Extent, Fault
from tests.network.proxy import PHASES, Line, Proxy, proxy
from tests.nightly import NIGHTLY
from tests.outside import Outside, etag
from tests.servers import make_bucket, moto_options, moto_server

TRACKS: tuple[mc.options.Track, ...] = ("s3", "memory")
WAYS: tuple[mc.options.Transport, ...] = ("fast", "boto3")
TASKS = 2
FILES = 2
FILE_BYTES = 96 * 1024
"""More than one packet: a body can be cut in its middle."""
RETRY_ATTEMPTS_MAX = 3
RETRY_SECONDS_MAX = 4.0
JOB_SECONDS_MAX = 60.0
"""A job's time under any fault, aborts included, with this suite's time-outs."""
WORKERS = 8
"""Cells at once: most of the time they wait."""
NOTHING_TOLD = ("aborted", "refused", "not started")


@dataclass
class Cell:
    """One job under one fault.

    Attributes:
        told: what the library said of the job's end, in one word.
        why: the error's text, or "".
        seconds: until that was said.
        broken: promises that were not kept, in words.
        struck: how often the fault struck.
        settled: whether the files were there in the end.
    """

    track: mc.options.Track
    phase: str
    fault: Fault
    extent: Extent
    number: int
    way: mc.options.Transport = "auto"
    told: str = ""
    why: str = ""
    seconds: float = 0.0
    struck: int = 0
    settled: str = ""
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.fault.name} {self.extent} in {self.phase}, track {self.track}, by {self.way}"

    @cached_property
    def token(self) -> str:
        """Part of every key of the job."""
        return f"cell-{self.number:012x}"


def cells(only: str = "", *, every_way: bool = False) -> list[Cell]:
    """Every fault in every phase; those whose name holds a word.

    What sends the requests takes turns too, so that each fault meets each way in half the phases;
    with ``every_way`` each cell runs by each.

    What lasts runs on both tracks. What strikes once is told by the same code on both: the tracks
    take turns, so that each fault meets each track and each phase. But for at night, how often
    a fault strikes takes turns as well, and so do the tracks of what lasts.
    """
    whole = NIGHTLY or every_way or bool(only)
    drawn = [
        Cell(track, phase, fault, extent, 0)
        for row, fault in enumerate(FAULTS)
        for column, phase in enumerate(PHASES)
        for turn, extent in enumerate(fault.extents)
        if whole or (row + column // 2) % len(fault.extents) == turn
        for number, track in enumerate(TRACKS)
        if (whole and extent != "once") or (row + column) % len(TRACKS) == number
    ]
    for cell in drawn:
        # The tracks alternate within a phase, or from phase to phase: the ways do so in pairs.
        row, column = FAULTS.index(cell.fault), PHASES.index(cell.phase)
        cell.way = WAYS[(row + column // 2 + (cell.track == "s3")) % len(WAYS)]
    if every_way:
        drawn = [replace(cell, way=way, broken=[]) for cell in drawn for way in WAYS]
    for number, cell in enumerate(drawn, 1):
        cell.number = number
    return [cell for cell in drawn if only in str(cell)]


def content(task: int, number: int) -> bytes:
    """A file's bytes."""
    return f"file {task} {number} ".encode().ljust(FILE_BYTES, b".")


def expected() -> dict[str, str]:
    """Names and ETags of the files of a committed job: one part each."""
    return {
        f"dt={number}/part-{task}": etag(content(task, number))
        for task in range(TASKS)
        for number in range(FILES)
    }


class Driver:
    """Runs cells, one after the other, on connections of its own."""

    def __init__(self, made: Proxy, upstream: str, number: int) -> None:
        self._proxy = made
        # A bucket of its own: moto's listing walks all keys of one, and trips where another job
        # deletes some.
        self._name = f"driver-{number}"
        make_bucket(upstream, self._name)
        self._bucket = Outside(moto_options(upstream), self._name)
        base = replace(
            moto_options(made.url),
            connect_seconds_max=PATIENCE_SECONDS,
            read_seconds_max=PATIENCE_SECONDS,
            complete_seconds_max=PATIENCE_SECONDS,
            retry_attempts_max=RETRY_ATTEMPTS_MAX,
            retry_seconds_max=RETRY_SECONDS_MAX,
            user_agent=f"driver-{number}",
        )
        self._ways = {way: replace(base, transport=way) for way in WAYS}
        self._s3 = base

    def warm(self) -> None:
        """Let the library ask the store what it can, before anything strikes."""
        for way, options in self._ways.items():
            mc.start(f"s3://{self._name}/warm-{way}", s3=options).abort()

    def run(self, cell: Cell) -> None:
        """Run a cell and judge it."""
        self._s3 = self._ways[cell.way]
        line = Line(cell.fault, cell.phase, cell.extent)
        self._proxy.lay(cell.token, line)
        dest = f"s3://{self._name}/{cell.token}"
        began = time.monotonic()
        try:
            cell.told, cell.why = self._drive(dest, cell)
        except Exception as error:  # what is no MagicError is what this suite looks for
            cell.told, cell.why = "nothing true", f"{type(error).__name__}: {error}"
            cell.broken.append(f"a bare error: {traceback.format_exc()}")
        cell.seconds = time.monotonic() - began
        self._compare(cell, "when it was told")
        self._proxy.heal(line)
        cell.struck = line.struck
        self._compare(cell, "when what was late had come")
        self._settle(dest, cell)
        self._bucket.empty(cell.token)

    def _drive(self, dest: str, cell: Cell) -> tuple[str, str]:
        """One job; what it was told, and why."""
        try:
            job = mc.start(dest, accept="results", track=cell.track, s3=self._s3)
        except mc.MagicError as error:
            return "not started", str(error)
        try:
            results = [self._write(job, task) for task in range(TASKS)]
        except mc.MagicError as error:
            return self._abort(job, error)
        try:
            report = job.commit(results)
        except mc.CommitIncomplete as error:
            return "incomplete", str(error)
        except mc.CommitRefused as error:
            return "refused", str(error)
        except mc.OutcomeUnknown as error:
            return "unknown", str(error)
        except mc.MagicError as error:
            return "undecided", str(error)
        if report.outcome != "committed" or report.files != TASKS * FILES:
            cell.broken.append(f"the report says {report.outcome}, {report.files} files")
        return "committed", "; ".join(report.warnings)

    def _abort(self, job: mc.Job, error: mc.MagicError) -> tuple[str, str]:
        try:
            job.abort()
        except mc.MagicError as failure:
            return "undecided", f"{error} | {failure}"
        return "aborted", str(error)

    def _write(self, job: mc.Job, task: int) -> mc.TaskCommit:
        with job.task(task) as attempt:
            for number in range(FILES):
                with attempt.open(f"dt={number}/part-{task}", unique=True) as file:
                    file.write(content(task, number))
        return attempt.result

    def _compare(self, cell: Cell, when: str) -> None:
        """What is visible, against what was told."""
        files = self._bucket.files(cell.token)
        wanted = expected()
        if strange := {n: e for n, e in files.items() if wanted.get(n) != e}:
            cell.broken.append(f"{when}: strange files {strange}")
        if cell.told == "committed" and files != wanted:
            cell.broken.append(f"{when}: told committed, and {len(files)} files are there")
        if cell.told in (*NOTHING_TOLD, "undecided") and files:
            cell.broken.append(f"{when}: told {cell.told}, and {len(files)} files are there")

    def _settle(self, dest: str, cell: Cell) -> None:
        """Recover and clean up what is left, look for the last time."""
        if self._bucket.left(cell.token, closed=True):
            try:
                self._recover(dest, cell)
            except Exception as error:
                cell.broken.append(f"recovery failed: {type(error).__name__}: {error}")
        self._compare(cell, "in the end")
        files, objects = self._bucket.files(cell.token), self._bucket.objects(cell.token)
        cell.settled = "all" if files == expected() else "none" if not files else "some"
        wanted = {"committed": "all", "incomplete": "all", "undecided": "none"}
        wanted |= dict.fromkeys(NOTHING_TOLD, "none")
        if cell.settled == "some" or wanted.get(cell.told, cell.settled) != cell.settled:
            cell.broken.append(f"told {cell.told}, and in the end {cell.settled} of it is there")
        if ("_SUCCESS" in objects) != bool(files):
            cell.broken.append("the marker does not go with the files")
        if left := self._bucket.left(cell.token, closed=True):
            cell.broken.append(f"left after all: {left}")

    def _recover(self, dest: str, cell: Cell) -> None:
        for found in mc.inspect(dest, s3=self._s3):
            if found.state not in ("closed", "absent"):
                mc.recover(dest, found.id, dead_after=0, s3=self._s3)
        report = mc.cleanup(dest, dead_after=0, leftover_after=0, forget_after=0, s3=self._s3)
        cell.broken += [f"cleanup failed: {error}" for error in report.errors]


def run(wanted: Sequence[Cell], workers: int = WORKERS) -> None:
    """Run cells beside each other: one server, one proxy, a driver for each worker."""
    # What could not be aborted is tried again as the interpreter exits, and nobody listens then.
    logging.getLogger("magic_committer").addHandler(logging.NullHandler())
    with (
        moto_server() as upstream,
        proxy(upstream) as made,
        ThreadPoolExecutor(workers) as threads,
    ):
        free: SimpleQueue[Driver] = SimpleQueue()
        for number in range(workers):
            driver = Driver(made, upstream, number)
            driver.warm()
            free.put(driver)

        def one(cell: Cell) -> None:
            driver = free.get()
            try:
                driver.run(cell)
            finally:
                free.put(driver)

        list(threads.map(one, wanted))

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
from functools import partial
from queue import SimpleQueue

import magic_committer as mc
from magic_committer.options import Transport
from tests.chaos.faults import FAULTS, PATIENCE_SECONDS, Extent, Fault
from tests.chaos.jobs import Kind, Round, Told, Way, run
from tests.chaos.judge import Operator, lies
from tests.chaos.proxy import PHASES, Line, Proxy, Struck, proxy
from tests.nightly import NIGHTLY
from tests.outside import Outside
from tests.servers import make_bucket, moto_server

TRACKS: tuple[Kind, ...] = ("s3", "memory")
WAYS: tuple[Transport, ...] = ("fast", "boto3")
SMALL = Round(0, files=4, tasks=2, threads=1, bytes_each=96 * 1024)
"""A body of more than one packet can be cut in its middle."""
PATIENCE = {
    **dict.fromkeys(("connect_seconds_max", "read_seconds_max"), PATIENCE_SECONDS),
    "complete_seconds_max": PATIENCE_SECONDS, "retry_attempts_max": 3, "retry_seconds_max": 4.0,
}  # fmt: skip
JOB_SECONDS_MAX = 120.0
"""A job's time under any fault, aborts included, with this suite's time-outs."""
WORKERS = 8
"""Cells at once: most of the time they wait."""
NOTHING_TOLD = ("aborted", "refused", "not started", "undecided")


@dataclass
class Cell:
    """One job under one fault.

    Attributes:
        track, way: the job's, and what sends its requests.
        told: what the library said of the job's end.
        seconds: until that was said.
        broken: promises that were not kept, in words.
        struck: how often the fault struck.
        stalled: the store itself, on a busy machine, hardly answered in the library's patience.
    """

    track: Kind
    phase: str
    fault: Fault
    extent: Extent
    way: Transport = "auto"
    told: Told = field(default_factory=partial(Told, ""))
    seconds: float = 0.0
    struck: int = 0
    stalled: bool = False
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.fault.name} {self.extent} in {self.phase}, track {self.track}, by {self.way}"


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
        # The tracks alternate within a phase, or from phase to phase: the ways do so in pairs.
        Cell(track, phase, fault, extent, WAYS[(row + column // 2 + (track == "s3")) % len(WAYS)])
        for row, fault in enumerate(FAULTS)
        for column, phase in enumerate(PHASES)
        for turn, extent in enumerate(fault.extents)
        if whole or (row + column // 2) % len(fault.extents) == turn
        for number, track in enumerate(TRACKS)
        if (whole and extent != "once") or (row + column) % len(TRACKS) == number
    ]
    if every_way:
        drawn = [replace(cell, way=way, broken=[]) for cell in drawn for way in WAYS]
    return [cell for cell in drawn if only in str(cell)]


class Driver:
    """Runs cells, one after the other, on connections of its own."""

    def __init__(self, made: Proxy, upstream: str, number: int) -> None:
        self._proxy = made
        # A bucket of its own: moto's listing walks all keys of one, and trips where another job
        # deletes some.
        self._name = f"driver-{number}"
        make_bucket(upstream, self._name)
        self._bucket = Outside(Way(upstream).s3(), self._name)
        self._ways = {way: Way(made.url, way).s3(**PATIENCE, user_agent=self._name) for way in WAYS}
        for way, s3 in self._ways.items():  # it asks the store what it can, before anything strikes
            mc.start(f"s3://{self._name}/warm-{way}", s3=s3).abort()

    def run(self, cell: Cell, number: int) -> None:
        """Run a cell and judge it."""
        job = replace(SMALL, kind=cell.track, seed=number, named=f"cell-{number:012x}")
        line, s3 = Struck(cell.fault, cell.phase, cell.extent), self._ways[cell.way]
        self._proxy.lay(job.dest, line)
        began = time.monotonic()
        try:
            cell.told = run(Way(""), self._name, job, s3)
        except Exception as error:  # what is no MagicError is what this suite looks for
            cell.told = Told("nothing true", f"{type(error).__name__}: {error}")
            cell.broken.append(f"a bare error: {traceback.format_exc()}")
        cell.seconds = time.monotonic() - began
        self._compare(cell, job, "when it was told")
        line.heal()
        cell.struck, cell.stalled = line.struck, line.slowest > PATIENCE_SECONDS / 2
        self._compare(cell, job, "when what was late had come")
        self._settle(cell, job, s3)
        self._bucket.empty(job.dest)

    def _compare(self, cell: Cell, job: Round, when: str) -> None:
        """What is visible, against what was told. The marker may still be missing."""
        found, told = self._bucket.look(job.dest), cell.told.outcome
        if told not in ("committed", *NOTHING_TOLD):
            told = "going on"
        found = found._replace(marked=told == "committed")
        cell.broken += [f"{when}: {lie}" for lie in [lies(told, found, job)] if lie]

    def _settle(self, cell: Cell, job: Round, s3: mc.S3Options) -> None:
        """Recover and clean up what is left, look for the last time."""
        if self._bucket.left(job.dest, closed=True):
            operator = Operator(self._name, s3)
            try:
                operator.end(job, cell.told.outcome)
                cell.broken += [f"cleanup failed: {error}" for error in operator.sweep(job.dest)]
            except Exception as error:
                cell.broken.append(f"recovery failed: {type(error).__name__}: {error}")
        found, told = self._bucket.look(job.dest, closed=True), cell.told.outcome
        told = {"incomplete": "committed", "unknown": "", "nothing true": ""}.get(told, told)
        if lie := lies(told, found, job):
            cell.broken.append(f"in the end: {lie}")
        if found.left:
            cell.broken.append(f"left after all: {found.left}")


def run_cells(wanted: Sequence[Cell], workers: int = WORKERS) -> None:
    """Run cells beside each other: one server, one proxy, a driver for each worker."""
    # What could not be aborted is tried again as the interpreter exits, and nobody listens then.
    logging.getLogger("magic_committer").addHandler(logging.NullHandler())
    with (
        moto_server() as upstream,
        proxy(upstream, Line()) as made,
        ThreadPoolExecutor(workers) as threads,
    ):
        free: SimpleQueue[Driver] = SimpleQueue()
        for number in range(workers):
            free.put(Driver(made, upstream, number))

        def one(number: int, cell: Cell) -> None:
            driver = free.get()
            try:
                driver.run(cell, number)
            finally:
                free.put(driver)

        list(threads.map(one, range(1, len(wanted) + 1), wanted))

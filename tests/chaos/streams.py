"""Streams whose drivers are killed at drawn requests, and a judge who reads the rows.

A stream is a query in lives: each life has a batch or two more of input, and is killed at a drawn
moment, or shared with a second driver, or ends by itself; then, at times, the last entry of Spark's
commit log goes. After each life no row is there twice, and none that was not given. After each one
that ended well all rows are there. At the end nothing is left but data, `_SUCCESS`, the ledger, and
records that are closed.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pyarrow.parquet

import magic_committer as mc
from tests.chaos.jobs import Way
from tests.chaos.judge import Operator
from tests.chaos.proxy import Moment
from tests.chaos.spark_drivers import (
    DONE,
    FACES,
    FILES_A_BATCH,
    Answer,
    DriverProcess,
    Drivers,
    Order,
    drivers,
)
from tests.outside import Outside, words
from tests.servers import moto_server
from tests.spark_faces.feed import Feed

BUCKET = "killed-streams"
ROWS_A_FILE = 2
ROWS_A_BATCH = FILES_A_BATCH * ROWS_A_FILE
LIVES = 8
"""Lives of a stream; its last one is not disturbed."""
SETTLED_SECONDS_MAX = 10.0
"""Within these, what tasks and requests of earlier lives still do has ended."""
STARTS_AGAIN_MAX = 3

KINDS: dict[str | None, int] = {
    None: 45, "GET ledger": 3, "PUT ledger": 2, "GET record": 8, "PUT record": 3,
    "DELETE record": 1, "PUT plan": 1, "Create": 2, "UploadPart": 2, "Complete": 2, "PUT marker": 1,
}  # fmt: skip
"""Where a blow may fall: kinds of requests, each with how many of them a batch has; None: any."""


@dataclass
class Stream(Feed):
    """A query by one of the faces: its input, its checkpoint, where it writes."""

    face: str = ""
    files_a_batch = FILES_A_BATCH
    rows_a_file = ROWS_A_FILE

    @property
    def order(self) -> Order:
        dest = f"s3://{BUCKET}/{self.directory.name}"
        return Order(self.face, str(self.directory / "in"), str(self.checkpoint), dest)

    def may_forget(self) -> bool:
        """Whether the last batch is in Spark's commit log: of older ones it runs none again."""
        commits = self.entries("commits")
        return bool(commits) and commits[-1] == self.entries("offsets")[-1]

    def query(self) -> str:
        """The id that Spark gave it."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])


@dataclass
class Tally:
    """What a run met: a check that could not have failed proves nothing."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    twins: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    batches: int = 0
    replays: int = 0
    passed_by: int = 0
    late: int = 0
    drivers: int = 0

    def lines(self) -> Iterator[str]:
        yield f"kill -9: {self.kills.total()} in all: {words(self.kills)}"
        yield f"at: {words(self.moments)}"
        yield f"two drivers at once: {self.twins.total()}: {words(self.twins)}"
        yield (
            f"streams {self.streams}, batches {self.batches}, all rows there once;"
            f" {self.replays} replays of a batch that was done; drivers started {self.drivers}"
        )
        yield (
            f"lives that ended before their moment: {self.passed_by}; streams that left something"
            f" to `cleanup`: {self.late}"
        )


class Run:
    """Streams under kills, on one store. Raises AssertionError: a promise is broken."""

    def __init__(self, url: str, there: Drivers, folder: Path, chance: random.Random) -> None:
        self.tally = Tally()
        self._s3 = Way(url).s3()
        self._bucket = Outside(self._s3, BUCKET)  # what anybody who asks the store finds
        self._drivers, self._folder, self._chance = there, folder, chance

    def one_stream(self, lives: int, over: Callable[[], bool]) -> None:
        """A stream from its first batch to its last; shorter if all is over."""
        number = self.tally.streams
        self.tally.streams += 1
        face = FACES[number % len(FACES)]
        stream = Stream(self._folder / f"{face.replace('_', '-')}-{number}", face=face)
        for _ in range(lives):
            if over():
                break
            stream.give(self._chance.randint(1, 2))
            self._life(stream)
        stream.give(1)
        self._last_life(stream)
        self.tally.batches += stream.given

    def _life(self, stream: Stream) -> None:
        drawn = self._chance.random()
        if drawn < 0.12:
            ended = self._twins(stream)
        elif drawn < (0.5 if stream.face == "format" else 0.8):
            ended = self._struck(stream, "driver")
        else:
            ended = self._struck(stream, "workers")
        self._judge(stream, all_there=ended == DONE)
        if self._chance.random() < 0.3 and stream.may_forget():
            stream.forget_last_commit()
            self.tally.replays += 1

    def _last_life(self, stream: Stream) -> None:
        driver, name = self._drivers.take(), stream.directory.name
        for _ in range(STARTS_AGAIN_MAX):
            ended = self._run(driver, stream)
            if ended == DONE:
                break
        assert ended == DONE, f"{stream}: it does not end, though nobody disturbs it: {ended}"
        self._drivers.give_back(driver)
        self._judge(stream, all_there=True)
        state = mc.read_stream(stream.order.dest, stream.query(), s3=self._s3)
        assert state is not None, stream
        assert state.done == stream.given - 1, f"{stream}: the ledger says {state}"
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while self._bucket.left(name) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left := self._bucket.left(name):  # by requests that landed after their job's end
            self.tally.late += 1
            print(f"left in {stream.order.dest}: {left}", flush=True)
            assert Operator(BUCKET, self._s3).sweep(name) == ()
        assert self._bucket.left(name) == [], f"{stream}: left for ever"
        self._judge(stream, all_there=True)

    def _judge(self, stream: Stream, *, all_there: bool = False) -> None:
        """Read the rows of its visible files."""
        name, found = stream.directory.name, list[int]()
        for file in self._bucket.objects(name):
            if not file.startswith(("_", ".")):
                body = self._bucket.body(name, file)
                found += pyarrow.parquet.read_table(BytesIO(body))["id"].to_pylist()
        wrong = wrong_rows(found, stream.given, all_there=all_there)
        assert not wrong, f"{stream}: {wrong}"

    # Blows ----------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        kind = self._chance.choice(list(KINDS))
        return Moment(kind, self._chance.randint(1, KINDS[kind]), self._chance.random() < 0.5)

    def _passed_by(self, stream: Stream, ended: Answer | None) -> None:
        self.tally.passed_by += 1
        assert ended == DONE, f"{stream}: nobody disturbed it: {ended}"

    def _struck(self, stream: Stream, victim: str) -> Answer | None:
        """Run it, and kill the whole driver or its workers at a drawn moment."""
        driver, moment = self._drivers.take(), self._moment()
        driver.line.arm(moment, driver.kill if victim == "driver" else driver.kill_workers)
        ended = self._run(driver, stream)
        driver.line.disarm()
        driver.line.settle()
        if (struck := driver.line.struck) is None:
            self._passed_by(stream, ended)
            self._drivers.give_back(driver)
            return ended
        self.tally.kills[f"{victim} ({stream.face})"] += 1
        self.tally.moments[f"{'after' if moment.after else 'before'} {struck}"] += 1
        assert ended or victim == "driver", f"{stream}: its driver died, and nobody had killed it"
        driver.kill()  # a JVM whose workers were killed gives dead ones to its next query
        return ended

    def _twins(self, stream: Stream) -> Answer | None:
        """A driver is paused at a drawn moment, and its request held; another one runs the query to
        its end; then the first wakes."""
        first, second = self._drivers.take(), self._drivers.take()
        paused, moment = threading.Event(), self._moment()

        def pause() -> None:
            first.send(signal.SIGSTOP)  # as a machine that is suspended
            paused.set()

        first.line.arm(moment, pause, hold=True)
        first.begin(stream.order)
        ended = first.answer(unless=paused.is_set)
        if ended is not None:
            first.line.disarm()
            self._passed_by(stream, ended)
        else:
            ended = self._run(second, stream)
            self._judge(stream)
            first.send(signal.SIGCONT)
            first.line.release()
            woken = first.answer()
            self._judge(stream)
            self.tally.twins[f"{stream.face}, the first {woken.outcome if woken else 'died'}"] += 1
            self.tally.moments[f"paused at {first.line.struck}"] += 1
        self._drivers.give_back(first)
        self._drivers.give_back(second)
        return ended

    def _run(self, driver: DriverProcess, stream: Stream) -> Answer | None:
        driver.begin(stream.order)
        return driver.answer()


def wrong_rows(found: list[int], batches: int, *, all_there: bool = False) -> str:
    """What is wrong with the rows that a reader finds; "" if nothing is. Pure. ``found``: the rows.
    ``batches``: how many were given. ``all_there``: whether all must be there."""
    counts, given = Counter(found), range(batches * ROWS_A_BATCH)
    twice = [row for row, count in counts.items() if count > 1]
    strange = [row for row in counts if row not in given]
    missing = [row for row in given if row not in counts] if all_there else []
    names = {"there twice": twice, "never given": strange, "missing": missing}
    return "; ".join(f"{name}: {rows}" for name, rows in names.items() if rows)


def kills(
    seed: int, count: int, folder: Path, *, seconds_max: float = float("inf"), lives: int = LIVES,
    tell: Callable[[Tally], None] = lambda _: None,
) -> Tally:  # fmt: skip
    """Run streams until so many kills have been made. Raises AssertionError: a promise is broken,
    or a driver ended that nobody had killed.

    Args:
        seed: draws the moments, the victims, the batches.
        count: how many kills, at the least; of drivers and of workers.
        folder: an empty directory, for input, checkpoints and logs.
        seconds_max: no stream is begun later, and none goes on.
        lives: of a stream.
        tell: called after each stream.
    """
    began = time.monotonic()
    with moto_server(BUCKET) as url, drivers(url, folder) as there:
        run = Run(url, there, folder, random.Random(seed))

        def over() -> bool:
            killed = run.tally.kills
            both = len({name.partition(" ")[0] for name in killed}) > 1
            return (killed.total() >= count and both) or time.monotonic() - began > seconds_max

        while not over():
            run.one_stream(lives, over)
            run.tally.drivers = there.started
            tell(run.tally)
        return run.tally

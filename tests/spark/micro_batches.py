"""Spark's part in a stream, without a Spark: micro-batches that are run, killed and run again, each
of Spark's processes with a pickle of its own. For tests of the stream writer, by a seed."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql.types import LongType, StructField, StructType

import magic_committer as mc
from magic_committer.job import Job, Task
from magic_committer.spark import driver as runs
from magic_committer.spark import source
from magic_committer.spark.driver import QUERY_PROPERTY
from magic_committer.spark.source import MagicSource, MagicWriter, WrittenPartition
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from magic_committer.upload import sender
from tests.promises.hands import DEST, visible

SCHEMA = StructType([StructField("n", LongType())])
QUERY = "6a3b3a1e-query"
CHECKPOINT = "s3a://bucket/checkpoints/q"
PARTITIONS = 2
ROWS = 3
"""Rows of each partition of each batch."""
REQUESTS_MAX = 40
"""A kill comes before or after a request up to this one: a run of a batch has some thirty."""


class Killed(BaseException):
    """The process is gone."""


def rows_of(batch: int) -> list[int]:
    """The rows of a batch: always the same, whoever runs it."""
    return list(range(batch * PARTITIONS * ROWS, (batch + 1) * PARTITIONS * ROWS))


@dataclass
class Driver:
    """One driver of the query: its source, and what a task of it is told."""

    overwrite: bool = False
    attempt: int = 0

    def planned(self) -> MagicWriter:
        """The planner's writer: the job is started."""
        return self._writer(MagicSource(self._options()))

    def committing(self) -> MagicWriter:
        """The writer of the process that commits or aborts."""
        made = self._writer(pickle.loads(pickle.dumps(MagicSource(self._options()))))
        assert made.sink is None
        return made

    def _options(self) -> dict[str, str]:
        return {"path": DEST, "checkpointlocation": CHECKPOINT}

    def _writer(self, source: MagicSource) -> MagicWriter:
        made = source.streamWriter(SCHEMA, self.overwrite)
        assert isinstance(made, MagicWriter)
        return made

    def written(
        self, writer: MagicWriter, batch: int, rows: Sequence[int] | None = None
    ) -> list[WrittenPartition]:
        """What the tasks send; other ``rows`` than the batch has, if they are given."""
        rows = rows_of(batch) if rows is None else rows
        messages = []
        for partition in range(PARTITIONS):
            self.attempt += 1
            mine = rows[partition * ROWS : (partition + 1) * ROWS]
            with in_task(partition, self.attempt):
                there: MagicWriter = pickle.loads(pickle.dumps(writer))
                numbers = pyarrow.array(mine, pyarrow.int64())
                message = there.write(iter([pyarrow.record_batch({"n": numbers})]))
            messages.append(pickle.loads(pickle.dumps(message)))
        return messages

    def run(self, batch: int) -> None:
        """Run a batch; when its commit raises, abort it, as Spark does."""
        messages = self.written(self.planned(), batch)
        try:
            self.committing().commit(messages, batch)
        except Exception:
            self.committing().abort(messages, batch)
            raise


def new_driver(*, overwrite: bool = False) -> Driver:
    """A driver whose planner has not looked for earlier runs."""
    runs.end_earlier_runs.cache_clear()
    return Driver(overwrite, attempt=1000)


class Context:
    """A task's context."""

    def getLocalProperty(self, key: str) -> str | None:
        """The query's id."""
        return QUERY if key == QUERY_PROPERTY else None


@contextmanager
def in_task(partition: int, attempt: int) -> Iterator[None]:
    """This thread runs a task."""

    def spark_attempt(job: Job) -> Task:
        return job._sole_task(str(partition), f"t{attempt}")

    with (
        patch.object(source, "spark_attempt", spark_attempt),
        patch.object(TaskContext, "get", staticmethod(Context)),
    ):
        yield


def rows_in(store: MemoryStore) -> list[int]:
    """What a reader finds."""
    return sorted(
        n
        for body in visible(store).values()
        for n in pyarrow.parquet.read_table(pyarrow.BufferReader(body))["n"].to_pylist()
    )


def killed_at(store: MemoryStore, number: int, *, after: bool) -> None:
    """Kill the process at its ``number``-th request from now on, before it is sent or after it took
    effect. All later requests fail too, until the hooks are taken away."""
    sent = 0

    def before(request: Request) -> None:
        nonlocal sent
        sent += 1
        if sent > number or (sent == number and not after):
            raise Killed

    def later(request: Request, answer: Any) -> None:
        if sent >= number and after:
            raise Killed

    store.before, store.after = before, later


@dataclass
class Tally:
    """What a run of `kills` met: a check that never could have failed proves nothing."""

    kills: int = 0
    replays_of_done: int = 0
    twins: int = 0
    phases: set[str] = field(default_factory=set)


def kills(seed: int, count: int, *, batches: int = 4) -> Tally:
    """Run streams of some batches until ``count`` processes have been killed at drawn requests.
    After each kill the batch runs again, at times also the one before (Spark lost the last entry of
    its log), and at times a second driver, which runs the same batch, commits first.

    Raises:
        AssertionError: rows are missing or there twice.
    """
    chance = random.Random(seed)
    tally = Tally()
    while tally.kills < count:
        with memory_store() as store:
            _one_stream(store, chance, tally, batches)
    return tally


def _one_stream(store: MemoryStore, chance: random.Random, tally: Tally, batches: int) -> None:
    driver = Driver()
    batch = 0
    while batch < batches:
        if chance.random() < 0.5:
            runs.end_earlier_runs.cache_clear()  # the next batch is a new process's
        if chance.random() < 0.6:
            _kill_one(store, driver, batch, chance, tally)
            if batch and chance.random() < 0.3:
                batch -= 1
                tally.replays_of_done += 1
            continue
        if chance.random() < 0.3:  # a second driver of the batch commits while the first one pauses
            paused = Driver(attempt=100)
            messages = paused.written(paused.planned(), batch)
            driver.run(batch)
            paused.committing().commit(messages, batch)  # the batch is done: that is no error
            tally.twins += 1
        else:
            driver.run(batch)
        expected = [n for number in range(batch + 1) for n in rows_of(number)]
        found = rows_in(store)
        # A batch that runs again may come when later ones are published.
        assert found[: len(expected)] == expected, (batch, found)
        assert len(found) == len(set(found)), found
        batch += 1
    expect_rows(store, range(batches))


def _kill_one(
    store: MemoryStore, driver: Driver, batch: int, chance: random.Random, tally: Tally
) -> None:
    """Kill a run of a batch. If only its commit died, Spark aborts, in another process."""
    phase, messages = "plan", []
    killed_at(store, chance.randint(1, REQUESTS_MAX), after=chance.random() < 0.5)
    try:
        writer = driver.planned()
        phase = "tasks"
        messages = driver.written(writer, batch)
        phase = "commit"
        driver.committing().commit(messages, batch)
        phase = "over"
    except (Killed, mc.MagicError):
        tally.kills += 1
    sender._unsettled.clear()  # a killed process ends none of its uploads
    store.before = store.after = None
    tally.phases.add(phase)
    if phase == "commit" and chance.random() < 0.5:
        with suppress(mc.MagicError):
            driver.committing().abort(messages, batch)


def expect_rows(store: MemoryStore, batches: Sequence[int]) -> None:
    """The rows of these batches are there, once."""
    assert rows_in(store) == sorted(n for batch in batches for n in rows_of(batch))

"""Spark's part in a stream, without a Spark: micro-batches that are run, killed and run again, each
of Spark's processes with a pickle of its own. For tests of the stream writer, by a seed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql.types import LongType, StructField, StructType

from magic_committer.job import Job, Task
from magic_committer.spark import driver as runs
from magic_committer.spark import source
from magic_committer.spark.driver import QUERY_PROPERTY
from magic_committer.spark.source import MagicSource, MagicWriter, WrittenPartition
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, visible

SCHEMA = StructType([StructField("n", LongType())])
QUERY = "6a3b3a1e-query"
CHECKPOINT = "s3a://bucket/checkpoints/q"
PARTITIONS = 2
ROWS = 3
"""Rows of each partition of each batch."""


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

    def run(self, batch: int, messages: list[Any] | None = None) -> None:
        """Run a batch; when its commit raises, abort it, as Spark does. ``messages`` takes those of
        the tasks."""
        messages = [] if messages is None else messages
        messages[:] = self.written(self.planned(), batch)
        try:
            self.committing().commit(messages, batch)
        except Exception:
            self.committing().abort(messages, batch)
            raise


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
    bodies = (pyarrow.BufferReader(body) for body in visible(store).values())
    return sorted(n for b in bodies for n in pyarrow.parquet.read_table(b)["n"].to_pylist())


def new_driver(*, overwrite: bool = False) -> Driver:
    """A driver whose planner has not looked for earlier runs."""
    runs.end_earlier_runs.cache_clear()
    return Driver(overwrite, attempt=1000)


def expect_rows(store: MemoryStore, batches: Sequence[int]) -> None:
    """The rows of these batches are there, once."""
    assert rows_in(store) == sorted(n for batch in batches for n in rows_of(batch))

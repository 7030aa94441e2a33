"""The input of a stream in a test, one file for each micro-batch, and how the query is run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 4
"""Rows of a batch."""
FIRST_SECONDS = 1_795_000_000
STREAM_SECONDS = 600
"""A query that takes longer hangs."""


@dataclass
class Feed:
    """A stream of files, one for each micro-batch, and its checkpoint."""

    directory: Path
    given: int = 0
    files_a_batch: ClassVar[int] = 1
    rows_a_file: ClassVar[int] = ROWS

    @property
    def checkpoint(self) -> Path:
        """The checkpoint location."""
        return self.directory / "checkpoint"

    def named(self, query: str) -> str:
        """What `foreach_batch` calls the checkpoint of a query that has run."""
        ident = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return f"query:{query} {ident} at file:{self.checkpoint}"

    def give(self, batches: int) -> None:
        """Add input for so many batches: the next numbers."""
        folder, files = self.directory / "in", self.files_a_batch
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(self.given * files, (self.given + batches) * files):
            rows = range(number * self.rows_a_file, (number + 1) * self.rows_a_file)
            hidden = folder / f".{number:04d}"
            hidden.write_text("".join(json.dumps({"id": n}) + "\n" for n in rows))
            os.utime(hidden, (FIRST_SECONDS + number,) * 2)  # Spark takes the oldest first
            hidden.rename(folder / f"{number:04d}.json")
        self.given += batches

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream: one file a batch."""
        read = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        return read.json(str(self.directory / "in"))

    def run(self, writer: DataStreamWriter, dest: str = "") -> None:
        """Run the query until all input is written."""
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start(dest or None)
        try:
            assert query.awaitTermination(STREAM_SECONDS)
        finally:
            query.stop()

    def entries(self, log: str) -> list[int]:
        """The numbers in one of the checkpoint's logs."""
        folder = self.checkpoint / log
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def forget_last_commit(self) -> int:
        """Delete the last entry of Spark's commit log, as if the driver had died before it."""
        last = self.entries("commits")[-1]
        log = self.checkpoint / "commits"
        (log / str(last)).unlink()
        (log / f".{last}.crc").unlink(missing_ok=True)
        return last


def magic(df: DataFrame) -> DataStreamWriter:
    """The stream's writer."""
    return df.writeStream.format("magic")

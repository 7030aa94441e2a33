"""A driver of streams, which is killed: ``python -m tests.stream_kills.driver``.

Reads orders from its standard input, one line of JSON each, and answers each with one: how the
query ended that was ordered. Ends with its input. It leads a session, which its JVM and Spark's
workers join: who kills the session leaves nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from magic_committer.spark import foreach_batch

FACES = ("format", "foreach_batch")
FILES_A_BATCH = 2
READY, DONE, FAILED = "ready", "done", "failed"
ERROR_CHARACTERS_MAX = 2_000


@dataclass(frozen=True)
class Order:
    """A query that is to be run until all its input is written. ``face``: one of `FACES`.
    ``source``: the directory of its input: `FILES_A_BATCH` files of JSON for each batch.
    ``checkpoint``: its checkpoint location. ``dest``: where it writes."""

    face: str
    source: str
    checkpoint: str
    dest: str

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class Answer:
    """How a query ended: `DONE`, or `FAILED` and why. `READY`: Spark has started."""

    outcome: str
    error: str = ""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Spark prints goes to the log
    spark = session()
    tell(answers, Answer(READY))
    for line in sys.stdin:
        tell(answers, run(spark, Order(**json.loads(line))))


def tell(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(asdict(answer)) + "\n")
    answers.flush()


def session() -> SparkSession:
    """A Spark that starts soon: many are killed. A partition for each file of the input."""
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    made = (
        SparkSession.builder.master("local[2,3]")
        .appName("magic-committer, killed streams")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", quick)
        .config("spark.sql.files.openCostInBytes", "1")
        .config("spark.sql.files.maxPartitionBytes", "1")
        .config("spark.sql.files.minPartitionNum", "1")
        .config("spark.sql.warehouse.dir", tempfile.gettempdir())
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def run(spark: SparkSession, order: Order) -> Answer:
    query: Any = None
    try:
        writer = writer_of(spark, order).option("checkpointLocation", order.checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    except StreamingQueryException as error:
        return Answer(FAILED, str(error)[:ERROR_CHARACTERS_MAX])
    finally:
        if query is not None:
            query.stop()
    return Answer(DONE)


def writer_of(spark: SparkSession, order: Order) -> DataStreamWriter:
    """The query's writer, by its face."""
    read = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", FILES_A_BATCH)
    rows = read.json(order.source)
    if order.face == "format":
        return rows.writeStream.format("magic").option("path", order.dest)
    return rows.writeStream.foreachBatch(foreach_batch(order.dest))


if __name__ == "__main__":
    main()

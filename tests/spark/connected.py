"""A client of Spark Connect, with a server on this machine: run by a test, with a destination.

The server has the environment of the test. The client's is then changed: what fails tells which of
the two asks the store.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import magic_committer as mc
from magic_committer.spark import foreach_batch, register, write_dataframe
from tests.spark.lake import SETTINGS

NOBODY = "http://127.0.0.1:9"
"""An endpoint that nobody listens at."""
SOON = mc.S3Options(retry_seconds_max=2.0, retry_attempts_max=1)
"""Other options than those of the first call, so that the client reads its environment again."""
QUERY = "clicks"
BATCHES = 2
BATCH_ROWS = 3
STREAM_SECONDS = 300


def main(dest: str) -> None:
    """Write by each face, and print what became of it, as JSON."""
    spark = SparkSession.builder.remote("local[2]").config(map=dict(SETTINGS)).getOrCreate()
    rows = spark.range(0, 6, 1, 2)
    told: dict[str, object] = {"client": type(spark).__module__}

    def by_call(to: str, s3: mc.S3Options | None = None) -> object:
        return write_dataframe(rows, to, s3=s3).outcome

    def by_format(to: str) -> object:
        rows.write.format("magic").mode("append").save(to)
        return "saved"

    told["call"] = by_call(f"{dest}/call")
    told["format"] = by_format(f"{dest}/format")
    register(spark)
    told["registered"] = by_format(f"{dest}/registered")
    told["refused"] = attempt(lambda: misspelt(rows, dest))
    os.environ["AWS_ENDPOINT_URL"] = NOBODY
    told["call, client without a store"] = attempt(lambda: by_call(f"{dest}/nowhere", SOON))
    told["format, client without a store"] = attempt(lambda: by_format(f"{dest}/server"))
    with tempfile.TemporaryDirectory(prefix="magic-committer-connect-") as folder:
        told.update(streams(spark, dest, Path(folder)))
    print(json.dumps(told))
    spark.stop()


def streams(spark: SparkSession, dest: str, folder: Path) -> dict[str, object]:
    """Run queries of `BATCHES` batches, by a client that does not reach the store: by the format,
    by a function for each batch, by one that names no query. Then the first two once more, of which
    Spark has forgotten the last batch."""
    source = folder / "in"
    source.mkdir()
    for number in range(BATCHES):
        rows = range(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        (source / f"{number}.json").write_text("".join(f'{{"id": {n}}}\n' for n in rows))

    def run(name: str, function: Callable[[DataFrame, int], None] | None = None) -> object:
        rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        writer = rows.json(str(source)).writeStream
        writer = writer.foreachBatch(function) if function else writer.format("magic")
        writer = writer.option("checkpointLocation", str(folder / name))
        query = writer.trigger(availableNow=True).start(None if function else f"{dest}/{name}")
        try:
            if not query.awaitTermination(STREAM_SECONDS):
                return f"it runs after {STREAM_SECONDS} s"
            if (failed := query.exception()) is not None:
                raise failed
        finally:
            query.stop()
        return "written"

    by_function = foreach_batch(f"{dest}/batches", query=QUERY)
    nameless = foreach_batch(f"{dest}/nameless")
    told = {
        "stream": attempt(lambda: run("stream")),
        "batches": attempt(lambda: run("batches", by_function)),
        "nameless": attempt(lambda: run("nameless", nameless)),
    }
    for name in ("stream", "batches"):
        (folder / name / "commits" / str(BATCHES - 1)).unlink()
        (folder / name / "commits" / f".{BATCHES - 1}.crc").unlink(missing_ok=True)
    told["stream again"] = attempt(lambda: run("stream"))
    told["batches again"] = attempt(lambda: run("batches", by_function))
    return told


def misspelt(rows: DataFrame, dest: str) -> None:
    """A write with an option that nobody knows."""
    rows.write.format("magic").mode("append").option("partition", "id").save(dest)


def attempt(action: Callable[[], object]) -> object:
    """What an action gives, or the name and text of its error."""
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(*sys.argv[1:])

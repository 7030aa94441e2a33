"""A client of Spark Connect, with a server on this machine: run by a test, with a destination.

The server has the environment of the test. The client's is then changed: what fails tells which of
the two asks the store.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

import magic_committer as mc
from magic_committer.spark import register, write_dataframe

NOBODY = "http://127.0.0.1:9"
"""An endpoint that nobody listens at."""
SOON = mc.S3Options(retry_seconds_max=2.0, retry_attempts_max=1)
"""Other options than those of the first call, so that the client reads its environment again."""


def main(dest: str) -> None:
    """Write by each face, and print what became of it, as JSON."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
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
    print(json.dumps(told))
    spark.stop()


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

"""A driver that saves by ``format("magic")`` and gets Ctrl-C meanwhile: run by a test, with a
directory for a gate and a destination."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

from tests.spark.lake import Gate

SLOW_SECONDS = 5.0


def main(directory: str, dest: str) -> None:
    """Save, be interrupted, and live on until the test has looked."""
    gate = Gate(directory)

    def slow(number: int) -> int:
        gate.note("writing")
        time.sleep(SLOW_SECONDS / 4)
        return number

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    rows = spark.range(0, 4, 1, 1).select(
        udf(lambda number: slow(number), "bigint")(col("id")).alias("id")
    )
    try:
        rows.write.format("magic").mode("append").save(dest)
        gate.note("saved")
    except KeyboardInterrupt:
        gate.note("interrupted")
    gate.wait("looked")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

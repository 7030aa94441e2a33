"""``df.write.parquet("s3a://…")`` by Spark's own writer and Hadoop's magic committer, beside
`write_dataframe`: the same DataFrame, the same rows, the same schema."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from magic_committer.hadoop.documents import decode_success
from magic_committer.spark import write_dataframe
from tests.interop import jars
from tests.interop.lake import BUCKET, Lake
from tests.interop.wire import Wire
from tests.real_servers.kinds import s3a
from tests.spark.lake import builder
from tools import java

ROWS = 1_000
PARTS = 2
CLOUD = "org.apache.spark.internal.io.cloud."


@pytest.fixture(scope="module")
def spark(wired: Wire) -> Iterator[SparkSession]:
    """Spark with S3A and its magic committer."""
    root = str(Path(__file__).resolve().parents[2])
    settings: dict[str, Any] = {
        "spark.driver.memory": "1g",
        "spark.jars": ",".join(map(str, sorted(jars.fetched("3.5.0").glob("*.jar")))),
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
        "spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": 2,
        "spark.sql.sources.commitProtocolClass": f"{CLOUD}PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{CLOUD}BindingParquetOutputCommitter",
        **{f"spark.hadoop.{name}": value for name, value in s3a(wired.url).items()},
    }  # fmt: skip
    with java.for_spark() as environment, pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        for name, value in {**environment, "PYTHONPATH": path}.items():
            patch.setenv(name, value)
        session: SparkSession = builder("local[2]").config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def frame(spark: SparkSession) -> DataFrame:
    """Every common type, nulls, something nested, some partitions."""
    return spark.range(0, ROWS, 1, PARTS).selectExpr(
        "id", "cast(id % 7 as int) as small", "if(id % 5 = 0, null, concat('row ', id)) as name",
        "id / 3 as fraction", "cast(id as decimal(20, 4)) as price", "id % 2 = 0 as even",
        "date_add(date '2026-01-01', cast(id % 365 as int)) as day",
        "timestamp '2026-03-29 00:30:00' + make_interval(0, 0, 0, 0, cast(id as int)) as moment",
        "array(id, id + 1) as pair", "named_struct('a', id, 'b', cast(id as string)) as both",
        "map(cast(id as string), id) as index",
    )  # fmt: skip


def rows(df: DataFrame) -> list[Any]:
    """All rows, in the order of their ids."""
    return df.orderBy("id").collect()


def test_both_writers_publish_the_same_table(spark: SparkSession, lake: Lake) -> None:
    """Rows and schema are equal, read by Spark from either; both leave a `_SUCCESS` that says
    "magic", as many files, and nothing else."""
    df = frame(spark)
    df.write.parquet(f"s3a://{BUCKET}/spark/theirs")
    report = write_dataframe(df, f"s3://{BUCKET}/spark/ours")
    theirs = spark.read.parquet(f"s3a://{BUCKET}/spark/theirs")
    ours = spark.read.parquet(f"s3a://{BUCKET}/spark/ours")
    assert ours.schema == theirs.schema
    assert rows(ours) == rows(theirs) == rows(df)
    assert report.files == PARTS == len(lake.visible("spark/theirs"))
    for dest in ("spark/theirs", "spark/ours"):
        marker = decode_success(lake.read(f"{dest}/_SUCCESS"), dest)
        assert marker.committer == "magic"
        assert sorted(marker.filenames) == [f"/{key}" for key in sorted(lake.visible(dest))]
        assert (lake.control(dest), lake.open_uploads(dest)) == ([], [])


def test_both_writers_append_to_one_table(spark: SparkSession, lake: Lake) -> None:
    """Spark appends to what we wrote, we to what Spark wrote: all files of all three are there."""
    df = frame(spark)
    dest = f"{BUCKET}/spark/both"
    write_dataframe(df, f"s3://{dest}")
    df.write.mode("append").parquet(f"s3a://{dest}")
    write_dataframe(df, f"s3://{dest}", mode="append")
    assert spark.read.parquet(f"s3a://{dest}").count() == 3 * ROWS
    assert len(lake.visible("spark/both")) == 3 * PARTS

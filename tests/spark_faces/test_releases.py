"""What each release of Spark from 3.5 on can do, and what it says instead. `make apart` runs this
file on each of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, LongType

import magic_committer as mc
from magic_committer.spark import foreach_batch, register, types, write_dataframe, write_partitions
from magic_committer.spark.driver import release
from tests.spark.lake import Lake, attempt_number
from tests.spark_faces.feed import ROWS, Feed, magic

APART = os.environ.get("MAGIC_COMMITTER_TEST_APART", "")
pytestmark = pytest.mark.skipif(
    not APART, reason="the other files try this release: make apart ONLY=spark-3.5"
)

BATCH_FORMAT = (4, 0)
STREAM_FORMAT = (4, 1)
VIA = (4, 1)


class FailsOnce:
    """The first attempt of each partition fails when its rows are written."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches
        if attempt_number() == 0:
            raise RuntimeError("the first attempt fails")


@pytest.fixture
def plain(spark: SparkSession) -> DataFrame:
    """Sixty rows in two partitions."""
    return spark.range(0, 60, 1, 2).selectExpr(
        "id", "cast(id AS string) AS text", "id % 3 AS day", "array(id, null) AS many",
        "cast(id AS decimal(9,2)) AS price", "date'2026-11-24' AS at", "timestamp_seconds(id) AS t",
    )  # fmt: skip


@pytest.fixture
def rows(plain: DataFrame) -> DataFrame:
    """The same, with attempts that fail."""
    return plain.mapInArrow(FailsOnce(), plain.schema)


def test_a_dataframe_is_there_once(
    plain: DataFrame, rows: DataFrame, lake: Lake, tmp_path: Path
) -> None:
    """Attempts fail; Spark reads the same schema and the same rows as from its own files."""
    assert f"spark-{pyspark.__version__}" == f"{APART}.0"  # what `make apart` has installed
    with pytest.raises(mc.OptionError, match=r"'many'.*which no path can tell"):
        write_dataframe(plain, lake.dest, partition_by=["many"])
    assert lake.is_untouched()
    assert write_dataframe(rows, lake.dest, mode="append").files == 2
    assert lake.ids() == list(range(60))
    lake.copied(tmp_path / "ours")
    plain.write.parquet(str(tmp_path / "theirs"))
    read = plain.sparkSession.read
    ours, theirs = (read.parquet(str(tmp_path / who)) for who in ("ours", "theirs"))
    assert ours.schema.json() == theirs.schema.json()
    assert sorted(ours.collect()) == sorted(theirs.collect())
    with pytest.raises(mc.DestinationExists):
        write_dataframe(rows, lake.dest)


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "text", "orc", "arrow"])
def test_each_format_takes_partitions(plain: DataFrame, lake: Lake, format: str) -> None:
    """One file of each task in each directory, as Spark names them."""
    kept = plain.select("text", "day")
    write_dataframe(
        kept, lake.dest, format, "overwrite_partitions", partition_by=["day"], sort_by=["text"]
    )
    assert {key.rpartition("/")[0] for key in lake.data()} == {"day=0", "day=1", "day=2"}
    if format in ("csv", "text"):
        assert sorted(b"".join(lake.data().values()).split(), key=int) == [
            b"%d" % number for number in range(60)
        ]


def test_partitions_of_an_rdd_are_there_once(spark: SparkSession, lake: Lake) -> None:
    """What the function returned is in the report; attempts that failed count nowhere."""

    def write(task: mc.Task, numbers: Iterable[int]) -> int:
        with task.open(f"{task.task_id}.txt", "w", unique=True) as file:
            file.write("".join(f"{number}\n" for number in numbers))
        if attempt_number() == 0:
            raise RuntimeError("the first attempt fails")
        return int(task.task_id)

    report = write_partitions(spark.sparkContext.parallelize(range(60), 2), lake.dest, write)
    assert report.returned == (0, 1)
    lines = b"".join(lake.data().values()).split()
    assert sorted(map(int, lines)) == list(range(60))
    assert lake.open_uploads() == []


def test_batches_of_a_stream_are_there_once(spark: SparkSession, lake: Lake, feed: Feed) -> None:
    """By ``foreach_batch``; also where Spark has lost the last entry of its log."""
    feed.give(2)
    for _ in range(2):
        feed.run(feed.rows(spark).writeStream.foreachBatch(foreach_batch(lake.dest)))
        feed.forget_last_commit()
    assert lake.ids() == list(range(2 * ROWS))


def says(least: tuple[int, int], what: str) -> Any:
    """What a release below ``least`` says, as our error or in Spark's."""
    needed = ".".join(map(str, least))
    told = rf"{what} needs Spark {needed} or newer, and this is {pyspark.__version__}\. Call"
    return pytest.raises(Exception, match=re.compile(told))


def test_the_format_magic(spark: SparkSession, rows: DataFrame, lake: Lake) -> None:
    """From 4.0 on. Spark 3.5 has no data sources in Python: it does not know the format."""
    if release() < BATCH_FORMAT:
        with says(BATCH_FORMAT, r'format\("magic"\)') as error:
            register(spark)
        assert error.type is mc.OptionError
        return
    rows.write.format("magic").mode("append").save(f"{lake.dest}")
    register(spark)
    with pytest.raises(Exception, match="misspelt"):
        rows.write.format("magic").mode("append").option("misspelt", 1).save(lake.dest)
    assert lake.ids() == list(range(60))


def test_streams_of_the_format_magic(spark: SparkSession, lake: Lake, feed: Feed) -> None:
    """From 4.1 on: 4.0 has writers of streams that take rows only, none that takes Arrow's."""
    if release() < BATCH_FORMAT:
        pytest.skip("there is no format")
    feed.give(2)
    if release() < STREAM_FORMAT:
        with says(STREAM_FORMAT, r'writeStream\.format\("magic"\)'):
            feed.run(magic(feed.rows(spark)), lake.dest)
        assert lake.is_untouched()
        return
    feed.run(magic(feed.rows(spark)), lake.dest)
    assert lake.ids() == list(range(2 * ROWS))


def test_files_of_spark_s_own_writer(rows: DataFrame, lake: Lake, tmp_path: Path) -> None:
    """From 4.1 on; before that nothing is started."""

    def write() -> object:
        return write_dataframe(rows, lake.dest, via=tmp_path.as_uri())

    if release() < VIA:
        with says(VIA, "via=") as error:
            write()
        assert error.type is mc.OptionError
        assert lake.is_untouched()
        return
    write()
    assert lake.ids() == list(range(60))


def test_types_that_a_release_lacks_are_no_other_types() -> None:
    """The tables of types hold for every release: a type that it lacks is nobody's."""
    there = {*types.PLAIN, *types.NEVER}
    assert not any(isinstance(DataType(), kind) or isinstance(LongType(), kind)
                   for kind in there - {LongType})  # fmt: skip

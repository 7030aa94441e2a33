"""Streams in a real Spark: each micro-batch is there once, whatever is killed, replayed or lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, udf

import magic_committer as mc
from magic_committer.spark import foreach_batch
from magic_committer.spark.driver import RUN_PROPERTY
from tests.spark.lake import Gate, Lake, Place, until
from tests.spark_faces.feed import ROWS, Feed, magic


def nothing_open(place: Place) -> bool:
    """No upload, and no job that runs."""
    running = any(job.state == "running" for job in mc.inspect(place.dest))
    return place.open_uploads() == [] and not running


Run = Callable[..., None]


@pytest.fixture(params=["format", "function"])
def run(request: pytest.FixtureRequest, spark: SparkSession, place: Place) -> Run:
    """Runs a query that writes a feed there, by ``format("magic")`` or by `foreach_batch`, with its
    checkpoint or another feed's."""

    def run(feed: Feed, other: Feed | None = None) -> None:
        rows = feed.rows(spark)
        if request.param == "format":
            (other or feed).run(magic(rows), place.dest)
        else:
            (other or feed).run(rows.writeStream.foreachBatch(foreach_batch(place.dest)))

    return run


ON_S3 = pytest.mark.parametrize("place", ["lake"], indirect=True)


def test_a_batch_that_failed_leaves_nothing_and_is_run_again(
    spark: SparkSession, lake: Lake, feed: Feed
) -> None:
    """The query fails, its job is aborted; the next start of the query writes the batch."""
    feed.give(2)
    broken = feed.rows(spark).select("id", expr(f"1 / ({ROWS + 1} - id) AS x"))
    with pytest.raises(StreamingQueryException, match="DIVIDE_BY_ZERO"):
        feed.run(magic(broken), lake.dest)
    assert lake.ids() == list(range(ROWS))
    until(lambda: nothing_open(lake))
    feed.run(magic(feed.rows(spark)), lake.dest)
    assert lake.ids() == list(range(2 * ROWS))


def test_a_query_that_is_stopped_in_mid_batch_leaves_nothing_open(
    spark: SparkSession, lake: Lake, feed: Feed, gate: Gate
) -> None:
    """Spark aborts that batch; the next start writes it."""

    def waits(number: int) -> int:
        gate.note("writing")
        gate.wait("released")
        return number

    feed.give(1)
    slowly = udf(lambda number: waits(number), "bigint")
    rows = feed.rows(spark).select(slowly(col("id")).alias("id"))
    query = magic(rows).option("checkpointLocation", str(feed.checkpoint)).start(lake.dest)
    gate.notes("writing", 1)
    query.stop()
    gate.open("released")
    mc.abort_stream(lake.dest, str(feed.checkpoint))
    until(lambda: nothing_open(lake))
    assert lake.data() == {}
    feed.run(magic(feed.rows(spark)), lake.dest)
    assert lake.ids() == list(range(ROWS))


@pytest.mark.parametrize(("ours", "beginnings"), [(False, {"part"}), (True, {"odd="})])
def test_sparks_partition_by_is_ignored_and_ours_is_not(
    spark: SparkSession, lake: Lake, feed: Feed, ours: bool, beginnings: set[str]
) -> None:
    """As the documentation says: ``.partitionBy`` of a stream does not reach a data source."""
    feed.give(1)
    writer = magic(feed.rows(spark).select("id", expr("id % 2 AS odd")))
    feed.run(writer.option("partitionBy", "odd") if ours else writer.partitionBy("odd"), lake.dest)
    assert {name[:4] for name in lake.data()} == beginnings


@ON_S3
def test_a_copied_checkpoint_loses_no_row_in_silence(
    run: Run, place: Place, feed: Feed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its query has the id of the first one, and perhaps other rows: it fails at a number that the
    first one has published, also the last one, and says what to do; the first one goes on."""
    feed.give(1)
    run(feed)
    copy = Feed(tmp_path_factory.mktemp("copy"))
    shutil.copytree(feed.checkpoint, copy.checkpoint)
    feed.give(1)
    run(feed)
    with pytest.raises(StreamingQueryException, match="another checkpoint has published"):
        run(feed, copy)
    feed.give(1)
    run(feed)
    assert place.ids() == list(range(3 * ROWS))


def test_foreach_batch_ends_what_a_killed_driver_has_left(
    spark: SparkSession, lake: Lake, feed: Feed
) -> None:
    """With its uploads, by the first batch of the next run; another query's job lives on. A batch
    of a checkpoint that was made again is not passed over."""
    write = foreach_batch(lake.dest, query="clicks")
    feed.give(1)
    feed.run(feed.rows(spark).writeStream.foreachBatch(write))
    feed.give(1)
    left = {}
    for query in ("clicks", "orders"):
        job = mc.start(lake.dest, track="memory", checkpoint=feed.named(query))
        with job.task(0) as task, task.open("a.json", "w", unique=True) as file:
            file.write("{}")
        left[query] = job
    assert len(lake.open_uploads()) == 2
    feed.run(feed.rows(spark).writeStream.foreachBatch(write))
    assert len(lake.open_uploads()) == 1
    with pytest.raises(mc.JobNotRunning):
        left["clicks"].commit([], expect=0, batch=mc.StreamBatch("clicks", 2))
    left["orders"].abort()
    assert lake.ids() == list(range(2 * ROWS))
    shutil.rmtree(feed.checkpoint)
    with pytest.raises(StreamingQueryException, match="another checkpoint has published"):
        feed.run(feed.rows(spark).writeStream.foreachBatch(write))


def test_foreach_batch_looks_again_when_the_query_is_started_again(
    spark: SparkSession, lake: Lake, feed: Feed
) -> None:
    """Of another driver that was killed, the first batch of the next start here aborts what it
    left: Spark names each start, in the thread that calls."""
    runs: list[str] = []
    append = foreach_batch(lake.dest, query="clicks")

    def write(df: DataFrame, number: int) -> None:
        runs.append(df.sparkSession.sparkContext.getLocalProperty(RUN_PROPERTY) or "")
        append(df, number)

    feed.give(2)
    feed.run(feed.rows(spark).writeStream.foreachBatch(write))
    left = mc.start(lake.dest, checkpoint=feed.named("clicks"))
    feed.give(1)
    feed.run(feed.rows(spark).writeStream.foreachBatch(write))
    with pytest.raises(mc.JobNotRunning):
        left.commit([], expect=0, batch=mc.StreamBatch("clicks", 3))
    assert runs[0] == runs[1] != runs[2]
    assert "" not in runs
    assert lake.ids() == list(range(3 * ROWS))

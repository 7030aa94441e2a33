"""``format("magic")`` in a real Spark: save modes, SQL, what fails, and what Spark says then."""

from __future__ import annotations

import signal

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.functions import col, expr, udf

import magic_committer as mc
from magic_committer.spark import register
from tests.spark.drivers import driver
from tests.spark.half_committed import HalfCommitted
from tests.spark.lake import Disk, Gate, Lake, until

PROMPT_SECONDS = 60.0


def magic(df: DataFrame, mode: str = "append", **options: str) -> DataFrameWriter:
    """The writer, up to its save."""
    return df.write.format("magic").mode(mode).options(**options)


def settled(place: Lake | Disk) -> bool:
    """Whether nothing but files and the marker is there."""
    names = place.keys() if isinstance(place, Lake) else place.names()
    control = [name for name in names if name.startswith("__magic")]
    return control == [] and place.open_uploads() == []


def test_the_format_is_known_without_registering_and_appends(
    spark: SparkSession, lake: Lake
) -> None:
    """Spark finds the format by itself; each save is one job, whose record goes. `register` may be
    called all the same, and again."""
    for begin in (0, 5):
        magic(spark.range(begin, begin + 5, 1, 2)).save(lake.dest)
        register(spark)
    assert lake.ids() == list(range(10))
    assert len(lake.data()) == 4
    assert "_SUCCESS" in lake.keys()
    assert settled(lake)


def test_options_of_any_case_reach_the_writer(spark: SparkSession, lake: Lake) -> None:
    """``markSuccess`` and ``mark_success`` are one option."""
    magic(spark.range(3), markSuccess="false", Compression="zstd").save(lake.dest)
    assert lake.ids() == [0, 1, 2]
    assert "_SUCCESS" not in lake.keys()


def test_a_dataframe_without_rows_becomes_a_file_with_its_schema(
    spark: SparkSession, lake: Lake
) -> None:
    """No partition has rows; also where there is no partition."""
    magic(spark.range(4).where("id > 9")).save(lake.dest)
    (table,) = lake.tables()
    assert (table.schema.names, table.num_rows) == (["id"], 0)


def by_day(days: str, begin: int = 0) -> tuple[list[tuple[int, str | None]], str]:
    """Rows of some days, one letter each, in this order; and their schema."""
    return [(begin + n, day) for n, day in enumerate(days)], "id bigint, day string"


def test_partitions_are_an_option_and_may_be_replaced_alone(
    spark: SparkSession, lake: Lake
) -> None:
    """Rows of partitions that come mixed go where they belong; ``overwrite_partitions`` replaces
    those that are written."""
    mixed = spark.createDataFrame(*by_day("abcabcabc")).coalesce(1)
    magic(mixed, partitionBy="day").save(lake.dest)
    assert {key.split("/")[0] for key in lake.data()} == {"day=a", "day=b", "day=c"}
    assert spark_free_read(lake) == [(n, "abc"[n % 3]) for n in range(9)]
    newer = spark.createDataFrame(*by_day("bb", 20)).coalesce(1)
    magic(newer, "overwrite", partition_by="day", if_exists="overwrite_partitions").save(lake.dest)
    kept = [(n, "abc"[n % 3]) for n in range(9) if n % 3 != 1]
    assert spark_free_read(lake) == sorted([*kept, (20, "b"), (21, "b")])
    assert settled(lake)


def spark_free_read(lake: Lake) -> list[tuple[int, str]]:
    """Column ``id`` of each file, with the day of its directory."""
    days = [key.split("/")[0].removeprefix("day=") for key in lake.data()]
    return sorted(
        (n, day)
        for day, table in zip(days, lake.tables(), strict=True)
        for n in table["id"].to_pylist()
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "s3://lake/x", "s3.access_key": "hunter2"}, "is a secret"),
        ({"path": "ftp://host/x"}, "PathError"),
    ],
)
def test_mistakes_are_told_through_sparks_exception(
    spark: SparkSession, given: dict[str, str], told: str
) -> None:
    """Spark's exception holds our message and hint; no job was started."""
    with pytest.raises(AnalysisException, match=f"(?s){told}") as raised:
        magic(spark.range(1), **given).save()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("mode", [None, "error", "ignore"])
def test_sparks_other_modes_are_refused_by_spark(
    spark: SparkSession, lake: Lake, mode: str | None
) -> None:
    """As the documentation says: a Python data source has append and overwrite only."""
    writer = spark.range(1).write.format("magic").mode(mode)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save(lake.dest)
    assert lake.is_untouched()


def test_sparks_partition_by_is_refused_by_spark(spark: SparkSession, lake: Lake) -> None:
    """As the documentation says: it is an option here."""
    with pytest.raises(PySparkException, match="partitioning or clustering columns do not match"):
        magic(spark.range(1)).partitionBy("id").save(lake.dest)


# SQL ----------------------------------------------------------------------------------------------


def test_sql_inserts_with_options(spark: SparkSession, lake: Lake) -> None:
    """INSERT INTO and INSERT OVERWRITE take the path by WITH."""
    spark.sql("CREATE TABLE magic_sql (id BIGINT) USING magic")
    try:
        where = f"WITH (path = '{lake.dest}')"
        spark.sql(f"INSERT INTO magic_sql {where} SELECT id FROM range(3)")
        spark.sql(f"INSERT INTO magic_sql {where} VALUES (7L)")
        assert lake.ids() == [0, 1, 2, 7]
        spark.sql(f"INSERT OVERWRITE magic_sql {where} VALUES (8L)")
        assert lake.ids() == [8]
        with pytest.raises(AnalysisException, match="has no path"):
            spark.sql("INSERT INTO magic_sql VALUES (9L)")
        spark.range(2).writeTo("magic_sql").option("path", lake.dest).append()
        assert lake.ids() == [0, 1, 8]
    finally:
        spark.sql("DROP TABLE magic_sql")


def test_tables_are_made_by_calls_that_take_a_path(spark: SparkSession, lake: Lake) -> None:
    """`saveAsTable` passes its options on; CREATE TABLE AS SELECT does not, and is refused."""
    with pytest.raises(AnalysisException, match="has no path"):
        spark.sql(
            f"CREATE TABLE magic_ctas USING magic OPTIONS (path '{lake.dest}') AS SELECT 1L AS id"
        )
    assert not spark.catalog.tableExists("magic_ctas")
    try:
        magic(spark.range(3), path=lake.dest).saveAsTable("magic_saved")
        assert lake.ids() == [0, 1, 2]
    finally:
        spark.sql("DROP TABLE IF EXISTS magic_saved")


# What fails ---------------------------------------------------------------------------------------


def test_cut_input_publishes_nothing(spark: SparkSession, place: Lake | Disk) -> None:
    """Spark fails above a task, which sees its input end: no file, no upload, no record."""
    cut = spark.range(0, 100_000, 1, 1).select("id", expr("1 / (90000 - id) AS x"))
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        magic(cut).save(place.dest)
    assert place.becomes_untouched()


def test_a_task_that_fails_is_retried_and_seen_once(
    spark: SparkSession, place: Lake | Disk, gate: Gate
) -> None:
    """The rows of each partition are there once."""

    def fails_once(number: int) -> int:
        if number == 7 and not gate.notes("failed"):
            gate.note("failed")
            raise RuntimeError("as the test wants")
        return number

    flaky = udf(lambda number: fails_once(number), "bigint")
    magic(spark.range(0, 10, 1, 2).select(flaky(col("id")).alias("id"))).save(place.dest)
    assert gate.notes("failed") == [""]
    assert place.ids() == list(range(10))
    assert settled(place)


def test_a_commit_that_dies_after_the_decision_is_finished_by_recover(
    spark: SparkSession, place: Lake | Disk
) -> None:
    """The process that commits is killed when the job is decided. Spark's abort comes in another
    process and undoes nothing; `recover` makes all files visible."""
    spark.dataSource.register(HalfCommitted)
    with pytest.raises(Exception, match=r"Writing job failed|exited unexpectedly|crashed"):
        spark.range(0, 6, 1, 2).write.format("half_committed").mode("append").save(place.dest)
    assert place.data() == {}
    (job,) = mc.inspect(place.dest)
    assert (job.state, job.files, job.visible) == ("committing", 2, 0)
    assert mc.recover(place.dest, job.id).outcome == "committed"
    assert place.ids() == list(range(6))
    assert place.open_uploads() == []


def test_ctrl_c_does_not_stop_a_save(environment: str, lake: Lake, gate: Gate) -> None:
    """As the documentation says: PySpark raises KeyboardInterrupt, and the write goes on and
    commits. (`write_dataframe` cancels.)"""
    with driver("save", gate, lake) as running:
        gate.notes("writing", 1)
        running.send_signal(signal.SIGINT)
        gate.notes("interrupted", 1)
        assert lake.data() == {}
        until(lambda: lake.ids() == [0, 1, 2, 3] and settled(lake))
        gate.open("looked")
        running.communicate(timeout=PROMPT_SECONDS)
    assert not gate.notes("saved")

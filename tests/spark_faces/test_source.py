"""``format("magic")`` in a real Spark: save modes, SQL, what fails, and what Spark says then."""

from __future__ import annotations

import signal

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from magic_committer.spark import register
from tests.spark.drivers import driver
from tests.spark.lake import Gate, Lake, Place, until

PROMPT_SECONDS = 300.0


def magic(df: DataFrame, mode: str = "append", **options: str) -> DataFrameWriter:
    """The writer, up to its save."""
    return df.write.format("magic").mode(mode).options(**options)


def settled(place: Place) -> bool:
    """Whether nothing but files and the marker is there."""
    names = place.keys()
    control = [name for name in names if name.startswith("__magic")]
    return control == [] and place.open_uploads() == []


def test_the_format_is_known_without_registering_and_appends(
    spark: SparkSession, lake: Lake
) -> None:
    """Each save is one job; options are known in any case; no rows are a schema."""
    for begin in (0, 5):
        magic(spark.range(begin, begin + 5, 1, 2), Compression="zstd").save(lake.dest)
        register(spark)
    assert lake.ids() == list(range(10))
    assert len(lake.data()) == 4
    assert "_SUCCESS" in lake.keys()
    assert settled(lake)
    empty = Lake(lake.endpoint, f"{lake.name}-empty")
    magic(spark.range(4).where("id > 9"), markSuccess="false").save(empty.dest)
    (table,) = empty.tables()
    assert (table.schema.names, table.num_rows) == (["id"], 0)
    assert "_SUCCESS" not in empty.keys()


def by_day(lake: Lake) -> list[tuple[int, str]]:
    """Column ``id`` of each file, with the day of its directory."""
    days = [key.split("/")[0].removeprefix("day=") for key in lake.data()]
    files = zip(days, lake.tables(), strict=True)
    return sorted((n, day) for day, table in files for n in table["id"].to_pylist())


def test_partitions_are_an_option_and_may_be_replaced_alone(
    spark: SparkSession, lake: Lake
) -> None:
    """Mixed rows go where they belong; ``overwrite_partitions`` replaces those that are written."""
    schema = "id bigint, day string"
    rows = [(n, "abc"[n % 3]) for n in range(9)]
    magic(spark.createDataFrame(rows, schema).coalesce(1), partitionBy="day").save(lake.dest)
    assert {key.split("/")[0] for key in lake.data()} == {"day=a", "day=b", "day=c"}
    assert by_day(lake) == rows
    newer = [(20, "b"), (21, "b")]
    options = {"partition_by": "day", "if_exists": "overwrite_partitions"}
    magic(spark.createDataFrame(newer, schema).coalesce(1), "overwrite", **options).save(lake.dest)
    assert by_day(lake) == [*(row for row in rows if row[1] != "b"), *newer]
    assert settled(lake)


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


@pytest.mark.parametrize("mode", [None, "error", "ignore", "partitioned"])
def test_sparks_other_modes_are_refused_by_spark(
    spark: SparkSession, lake: Lake, mode: str | None
) -> None:
    """As the documentation says: append and overwrite only; `partitionBy` is an option here."""
    saves = spark.range(1).write.format("magic")
    told = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE|partitioning or clustering columns do not match"
    partitioned = mode == "partitioned"
    saves = saves.mode("append").partitionBy("id") if partitioned else saves.mode(mode)
    with pytest.raises(PySparkException, match=told):
        saves.save(lake.dest)
    assert lake.is_untouched()


def test_sql_inserts_with_options(spark: SparkSession, lake: Lake) -> None:
    """INSERT takes the path by WITH; CREATE TABLE AS SELECT does not pass it on."""
    spark.sql("CREATE TABLE magic_sql (id BIGINT) USING magic")
    try:
        where = f"WITH (path = '{lake.dest}')"
        spark.sql(f"INSERT INTO magic_sql {where} SELECT id FROM range(3)")
        spark.sql(f"INSERT INTO magic_sql {where} VALUES (7L)")
        assert lake.ids() == [0, 1, 2, 7]
        spark.sql(f"INSERT OVERWRITE magic_sql {where} VALUES (8L)")
        assert lake.ids() == [8]
        spark.range(2).writeTo("magic_sql").option("path", lake.dest).append()
        assert lake.ids() == [0, 1, 8]
        for refused in (
            "INSERT INTO magic_sql VALUES (9L)",
            f"CREATE TABLE magic_ctas USING magic OPTIONS (path '{lake.dest}') AS SELECT 1L AS id",
        ):
            with pytest.raises(AnalysisException, match="has no path"):
                spark.sql(refused)
        assert not spark.catalog.tableExists("magic_ctas")
        saved = Lake(lake.endpoint, f"{lake.name}-saved")
        magic(spark.range(3), path=saved.dest).saveAsTable("magic_saved")
        assert saved.ids() == [0, 1, 2]
    finally:
        for table in ("magic_sql", "magic_saved"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_ctrl_c_does_not_stop_a_save(environment: str, lake: Lake, gate: Gate) -> None:
    """As the documentation says: PySpark raises, and the write goes on and commits."""
    with driver("save", gate, lake) as running:
        gate.notes("writing", 1)
        running.send_signal(signal.SIGINT)
        gate.notes("interrupted", 1)
        assert lake.data() == {}
        gate.open("go on")
        until(lambda: lake.ids() == [0, 1, 2, 3] and settled(lake))
        gate.open("looked")
        running.communicate(timeout=PROMPT_SECONDS)
    assert not gate.notes("saved")

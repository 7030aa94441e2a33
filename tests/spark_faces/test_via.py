"""`write_dataframe` with ``via=``: Spark's own files, all or none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, udf

import magic_committer as mc
from magic_committer.spark import via as module
from magic_committer.spark import write_dataframe
from tests.spark.drivers import interrupted
from tests.spark.lake import Gate, Lake


def native(df: DataFrame, tmp_path: Path, format: str, **options: Any) -> list[bytes]:
    """The bytes of the files that Spark alone writes."""
    df.write.format(format).options(**options).save(f"file://{tmp_path}/native")
    return [path.read_bytes() for path in sorted((tmp_path / "native").glob("part-*"))]


def people(spark: SparkSession, rows: int = 20, partitions: int = 3) -> DataFrame:
    """Rows that each format takes."""
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "concat('näme ', id) AS name", "id % 3 AS team", "id / 8 AS score"
    )


FORMATS: dict[str, dict[str, Any]] = {
    "parquet": {"compression": "zstd"},
    "orc": {"compression": "zlib"},
    "csv": {"header": True, "sep": "|", "compression": "gzip"},
    "json": {"ignoreNullFields": False},
    "xml": {"rowTag": "person"},
    "text": {"lineSep": "\r\n"},
}


@pytest.mark.parametrize("format", FORMATS)
def test_the_files_are_sparks_own(
    spark: SparkSession, lake: Lake, via: str, tmp_path: Path, format: str
) -> None:
    """Byte for byte, under names that carry the job; the scratch directory is gone."""
    df = people(spark)
    if format == "text":
        df = df.selectExpr("name AS value")
    options = FORMATS[format]
    report = write_dataframe(df, lake.dest, format.upper(), via=via, writer_options=options)
    data = lake.data()
    expected = native(df, tmp_path, format, **options)
    assert len(data) == report.files == 3
    assert [data[name] for name in sorted(data)] == expected
    assert all(name.startswith("part-0000") and f"mcj{report.uuid}-c000." in name for name in data)
    assert report.bytes == sum(map(len, expected))
    assert lake.open_uploads() == []


def test_types_that_arrow_does_not_have_are_kept(
    spark: SparkSession, lake: Lake, via: str, tmp_path: Path
) -> None:
    """With metadata; also of shuffled rows, whose counts are elsewhere in Spark's plan."""
    df = spark.range(4).select(
        "id",
        expr("parse_json('{\"a\": 1}')").alias("doc", metadata={"comment": "a document"}),
        expr("INTERVAL '1 02:03:04' DAY TO SECOND AS span"),
        expr("CAST('x' AS string COLLATE UNICODE_CI) AS word"),
    )
    shuffled = people(spark).repartition(2).groupBy("team").count()
    for number, frame in enumerate((df, shuffled)):
        write_dataframe(frame, lake.dest, via=via, mode="overwrite")
        found = spark.read.parquet(lake.copied(tmp_path / f"found-{number}"))
        assert sorted(map(str, found.collect())) == sorted(map(str, frame.collect()))
        if frame is df:
            assert len(native(df, tmp_path, "parquet")) == len(lake.data())
            assert found.schema == spark.read.parquet(f"{tmp_path}/native").schema
            assert [field.dataType for field in found.schema] == [f.dataType for f in df.schema]
            assert found.schema["doc"].metadata["comment"] == "a document"


@pytest.mark.parametrize(("format", "partitioned"), [("csv", False), ("parquet", True)])
def test_an_empty_dataframe_gives_what_spark_gives(
    spark: SparkSession, lake: Lake, via: str, tmp_path: Path, format: str, partitioned: bool
) -> None:
    """A file with the schema where Spark writes one, else none; the job commits all the same."""
    df, header = people(spark).where("id < 0"), {"header": True}
    by = ("team",) if partitioned else ()
    report = write_dataframe(df, lake.dest, format, via=via, writer_options=header, partition_by=by)
    df.write.options(**header).partitionBy(*by).format(format).save(f"{tmp_path}/native")
    expected = [path.read_bytes() for path in (tmp_path / "native").glob("part-*")]
    assert list(lake.data().values()) == expected
    assert (report.outcome, report.files) == ("committed", len(expected))


def test_partitions_become_directories_that_can_be_replaced(
    spark: SparkSession, lake: Lake, via: str
) -> None:
    """Spark's own; `overwrite_partitions` replaces those that are written, and no other."""
    teams = expr("CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a/b' END")
    df = people(spark).withColumn("team", teams)
    first = write_dataframe(df, lake.dest, via=via, partition_by=["TEAM"])
    folders = {name.rpartition("/")[0] for name in lake.data()}
    assert folders == {"team=__HIVE_DEFAULT_PARTITION__", "team=a%2Fb"}
    again = df.where("team IS NOT NULL").withColumn("id", expr("id + 100"))
    more: Any = {"mode": "overwrite_partitions", "via": via, "partition_by": ["team"]}
    second = write_dataframe(again, lake.dest, **more)
    assert {name.partition("/")[0] for name in lake.data() if second.uuid in name} == {"team=a%2Fb"}
    assert all(first.uuid in name for name in lake.data() if "__HIVE" in name)
    assert lake.ids() == sorted(row + 100 if row % 3 == 1 else row for row in range(20))


def test_files_are_cut_and_sorted(spark: SparkSession, lake: Lake, via: str) -> None:
    """`max_records_per_file` begins another file, `sort_by` sorts the rows of each."""
    df = spark.range(0, 10, 1, 1).selectExpr("9 - id AS `a.id`")
    write_dataframe(df, lake.dest, via=via, max_records_per_file=4, sort_by=["a.id"])
    found = [table["a.id"].to_pylist() for table in lake.tables()]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_ctrl_c_while_spark_writes_leaves_nothing(
    spark: SparkSession, lake: Lake, via: str, gate: Gate
) -> None:
    """Spark's write is cancelled, the job aborted, and the directory removed."""

    @udf(returnType="long", useArrow=False)
    def waits(row: int) -> int:
        gate.note("writing")
        gate.wait("released")
        return row

    try:
        with interrupted(gate, "writing"):
            df = spark.range(0, 4, 1, 1).select(waits("id").alias("id"))
            write_dataframe(df, lake.dest, via=via)
    finally:
        gate.open("released")
    assert lake.becomes_untouched()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"partition_by": "id"}, r"Pass partition_by=\['id'\]"),
        ({"sort_by": ["x"]}, "sort_by: there is no column 'x'"),
        ({"max_records_per_file": 0}, "max_records_per_file=0: it is 1 or more"),
        ({"format": "delta"}, r"no format 'delta' with via=; there is avro, csv"),
        ({"writer_options": {"Path": "/x"}}, "the option 'Path' is the library's own"),
        ({"writer_options": {"compression": ["x"]}}, r"option compression=\['x'\] is neither text"),
        ({"via": "file:///no/such/place"}, "there is no such directory on the driver"),
        ({"is_remote": True}, "needs classic Spark.*Leave via out"),
        ({"format": "text"}, "(?i)text"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    spark: SparkSession, lake: Lake, via: str, monkeypatch: pytest.MonkeyPatch,
    wrong: dict[str, Any], told: str,
) -> None:  # fmt: skip
    """It costs no Spark job and no request; with Spark Connect the driver's files are elsewhere;
    what Spark's writer does not take is Spark's error, and the job is aborted."""
    monkeypatch.setattr(module, "is_remote", lambda: "is_remote" in wrong)
    given = {name: value for name, value in wrong.items() if name != "is_remote"}
    error = AnalysisException if given.get("format") == "text" else mc.OptionError
    with pytest.raises(error, match=told):
        write_dataframe(spark.range(3), lake.dest, **{"via": via, **given})
    assert lake.becomes_untouched()

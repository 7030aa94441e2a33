"""`write_dataframe(partition_by=…)`: the directories of Spark's own writer, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

import magic_committer as mc
from magic_committer.spark import write_dataframe
from magic_committer.spark.files import DEFAULT_PARTITION, FrameFiles, Partitioning, value_text
from tests.spark.lake import Lake

KEYS = {
    "text": "id % 3 AS p",
    "odd characters": "concat('a', chr(cast(id AS int) + 32), 'ü=/%') AS p",
    "null and empty": "CASE id % 3 WHEN 0 THEN null WHEN 1 THEN '' ELSE 'x' END AS p",
    "boolean": "id % 2 = 0 AS p",
    "date": "date_add(date'1582-10-01', cast(id % 20 AS int)) AS p",
    "instant": "timestamp'2026-10-25 01:00:00 UTC' + make_dt_interval(0, 0, id % 7 * 30, 0.5) AS p",
    "wall clock": "timestamp_ntz'2026-03-29 02:30:00' + make_dt_interval(0, 0, id, 0.123) AS p",
    "decimal": "cast(id % 4 / 1000000 AS decimal(20,10)) AS p",
    "double": "id % 5 / 3D * power(10, id % 5 * 4) AS p",
    "interval": "make_ym_interval(1, cast(id % 3 AS int)) AS p",
    "binary": "cast(concat('b', id % 2) AS binary) AS p",
    "an odd name": "id % 2 AS `P.2 = ü`",
}
"""Expressions that make partition columns of a number below 90."""


def by_directory(files: Mapping[str, bytes]) -> dict[str, list[Any]]:
    """Rows by the directory that they are in, sorted."""
    found: dict[str, list[Any]] = {}
    for name, body in files.items():
        rows = pyarrow.parquet.ParquetFile(BytesIO(body)).read().to_pylist()
        found.setdefault(name.rpartition("/")[0], []).extend(rows)
    return {name: sorted(rows, key=str) for name, rows in found.items()}


def of_sparks(df: DataFrame, columns: list[str], where: Path) -> dict[str, list[Any]]:
    """The same of what Spark's own writer makes."""
    df.write.partitionBy(*columns).parquet(str(where))
    files = where.rglob("*.parquet")
    return by_directory({str(file.relative_to(where)): file.read_bytes() for file in files})


@pytest.mark.parametrize("kind", KEYS)
def test_directories_and_rows_are_those_of_sparks_writer(
    spark: SparkSession, lake: Lake, tmp_path: Path, kind: str
) -> None:
    """Letter for letter, one file of each task; none if there are no rows."""
    df = spark.range(0, 90, 1, 2).selectExpr("id", KEYS[kind], "concat('row ', id) AS text")
    columns = [name for name in df.columns if name not in ("id", "text")]
    write_dataframe(df, lake.dest, partition_by=columns)
    theirs = of_sparks(df, columns, tmp_path / "theirs")
    assert len(theirs) > 1
    assert by_directory(lake.data()) == theirs
    assert len(lake.data()) <= 2 * len(theirs)
    none = write_dataframe(df.where("id < 0"), lake.dest, mode="overwrite", partition_by=columns)
    assert (none.outcome, none.files, lake.keys()) == ("committed", 0, ["_SUCCESS"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (f"IF(id % 2 = 0, null, '{DEFAULT_PARTITION}')", DEFAULT_PARTITION),
        (
            "timestamp'2026-10-25 00:30:00 UTC' + make_dt_interval(0, cast(id % 2 AS int))",
            "2026-10-25 02%3A30%3A00",
        ),
    ],
    ids=["null and its name", "two instants of one wall clock"],
)
def test_values_of_one_path_are_one_partition(
    spark: SparkSession, lake: Lake, value: str, text: str
) -> None:
    """All rows are there, where Spark's own writer fails with "File already exists"."""
    df = spark.range(0, 10, 1, 1).selectExpr("id", f"{value} AS p")
    write_dataframe(df, lake.dest, partition_by=["p"])
    rows = [{"id": number} for number in range(10)]
    assert by_directory(lake.data()) == {f"p={text}": rows}


def test_spark_escapes_what_we_escape(spark: SparkSession) -> None:
    """Every ASCII character in a column's name and value, beside the JVM's own function."""
    jvm: Any = spark.sparkContext._jvm
    utils = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    for code in [*range(1, 128), 0x80, 0xE4, 0x4E2D, 0x1F600]:
        text = f"a{chr(code)}b"
        rows = pyarrow.record_batch({"p": [text], "x": [1]})
        ((found, _),) = Partitioning((text,), (0,)).split(rows)
        assert found == f"{utils.getPartitionPathString(text, text)}/"


def test_columns_are_found_as_spark_finds_them(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Whatever their case; the directory has the user's spelling, the order is partition_by's."""
    df = spark.range(6).selectExpr("id", "id % 2 AS `First`", "id % 3 AS second")
    write_dataframe(df, lake.dest, partition_by=["SECOND", "first"])
    theirs = of_sparks(df, ["SECOND", "first"], tmp_path / "theirs")
    assert by_directory(lake.data()) == theirs


@pytest.mark.parametrize("columns", [[], ["p"]])
def test_no_file_has_more_rows_than_it_may(
    spark: SparkSession, lake: Lake, columns: list[str]
) -> None:
    """Over the ends of batches too; by default as Spark's own limit says."""
    df = spark.range(0, 25_000, 1, 1).selectExpr("id", "id % 2 AS p")
    write_dataframe(df, lake.dest, partition_by=columns, max_records_per_file=6_000)
    sizes = sorted(table.num_rows for table in lake.tables())
    assert sizes == ([500] * 2 if columns else [1_000]) + [6_000] * 4
    assert lake.ids() == list(range(25_000))
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "4")
    try:
        report = write_dataframe(spark.range(0, 10, 1, 1), lake.dest, mode="overwrite")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert report.files == 3


def test_rows_of_a_file_are_sorted(spark: SparkSession, lake: Lake) -> None:
    """``sort_by`` sorts the rows of each file, within its partition."""
    df = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 3 AS p", "hash(id) AS h")
    write_dataframe(df, lake.dest, partition_by=["p"], sort_by=["h"])
    for table in lake.tables():
        hashes = table["h"].to_pylist()
        assert hashes == sorted(hashes)
        assert len(hashes) > 100


SCHEMA = StructType([StructField("id", LongType()), StructField("p", StringType())])


class Written(BytesIO):
    """A file that keeps its bytes, and how it ended."""

    ended: BaseException | None = None

    def __exit__(self, *why: Any) -> None:
        self.ended = why[1]


class Task:
    """A task without a job: the third."""

    task_id = "3"

    def __init__(self) -> None:
        self.files: dict[str, Written] = {}

    def open(self, name: str, *, unique: bool) -> Written:
        """Open a name once."""
        assert unique
        assert name not in self.files
        self.files[name] = Written()
        return self.files[name]

    def ids(self) -> dict[str, list[int]]:
        """The rows of each file, by its directory and what follows the task's number."""
        return {
            name.replace("part-00003.", "").removesuffix("parquet"): pyarrow.parquet.read_table(
                BytesIO(file.getvalue())
            )["id"].to_pylist()
            for name, file in self.files.items()
        }


def planned(schema: StructType = SCHEMA, **more: Any) -> FrameFiles:
    """Files of a face that cannot change the plan."""
    arguments: dict[str, Any] = {"partition_by": ["p"], "conf": lambda key: None, **more}
    return FrameFiles.plan(schema, "parquet", {}, prepared=False, **arguments)


def batch(*keys: str | None) -> Any:
    """Rows numbered from 0, of these partitions."""
    return pyarrow.record_batch({"id": range(len(keys)), "p": pyarrow.array(keys, "string")})


def test_mixed_rows_go_to_their_partitions() -> None:
    """Rows that come unsorted, in several batches: one file for each partition, in their order."""
    task: Any = Task()
    planned().write(task, [batch("a", "b", "a", None, ""), batch(), batch("b", "a")])
    assert task.ids() == {"p=a/": [0, 2, 1], "p=b/": [1, 0], f"p={DEFAULT_PARTITION}/": [3, 4]}


def test_a_bounded_number_of_files_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that comes again gets another file; who would write files without end is told."""
    monkeypatch.setattr("magic_committer.spark.files.OPEN_FILES_MAX", 2)
    task: Any = Task()
    planned().write(task, [batch("a", "b"), batch("c", "b"), batch("a")])
    assert task.ids() == {"p=a/": [0], "p=b/": [1, 1], "p=c/": [0], "p=a/c001.": [0]}
    monkeypatch.setattr("magic_committer.spark.files.FILES_PER_TASK_MAX", 3)
    endless: Any = Task()
    with pytest.raises(mc.OptionError, match=r"more than 3 files.*columns of fewer values"):
        planned().write(endless, [batch("a", "b", "c", "d")])


def test_no_file_is_closed_as_if_it_were_whole_after_an_error() -> None:
    """An error of the input gives up all open files."""

    def batches() -> Any:
        yield batch("a", "b")
        raise LookupError("the input")

    task: Any = Task()
    with pytest.raises(LookupError):
        planned().write(task, batches())
    assert [type(file.ended) for file in task.files.values()] == [LookupError] * 2


def test_texts_of_values_are_the_jvms(spark: SparkSession) -> None:
    """For each type that is taken where no plan can be changed."""
    row = spark.sql(
        "SELECT true AS a, -7 AS b, 0.0000001 AS c, cast(12 AS decimal(38,10)) AS d,"
        " date'0987-01-02' AS e, timestamp'2026-07-01 10:00:00.120 UTC' AS f,"
        " timestamp'2026-07-01 10:00:00 UTC' AS g, timestamp_ntz'1999-12-31 23:59:59.000001' AS h"
    )
    values = row.toArrow().to_pylist()[0]
    texts = row.selectExpr(*(f"cast({name} AS string)" for name in row.columns)).collect()[0]
    assert [value_text(value, "Europe/Berlin") for value in values.values()] == list(texts)


def test_void_inside_of_an_array_is_refused() -> None:
    """Spark sends lists of nothing with a wrong length, at any depth; void alone is kept."""
    for kind in (ArrayType(NullType()), MapType(StringType(), ArrayType(NullType()))):
        with pytest.raises(mc.OptionError, match="void inside an array or map"):
            planned(StructType([StructField("v", kind)]), partition_by=[])
    assert planned(StructType([StructField("v", NullType())]), partition_by=[])


def test_what_only_the_jvm_knows_is_refused_there() -> None:
    """Doubles and intervals have texts of Java's own."""

    def schema(kind: Any) -> StructType:
        return StructType([StructField("id", LongType()), StructField("p", kind)])

    for kind in (DoubleType(), YearMonthIntervalType()):
        with pytest.raises(mc.OptionError, match=r"JVM knows|year-month"):
            planned(schema(kind))
    for taken in (DateType(), TimestampType(), DecimalType(5, 2)):
        assert planned(schema(taken)).partitioning.columns == ("p",)

"""Every type of Spark 4.3, in every format that has a schema: as Spark's own writer keeps it, or
refused before the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.types import DataType

import magic_committer as mc
from magic_committer.spark import write_dataframe
from magic_committer.spark.types import file_schema
from tests.spark.lake import Lake

POINT = "x'0101000000000000000000f03f0000000000000040'"
TYPES: dict[str, tuple[type[DataType], str]] = {
    "boolean": (types.BooleanType, "true"),
    "byte": (types.ByteType, "-7Y"),
    "short": (types.ShortType, "300S"),
    "int": (types.IntegerType, "-70000"),
    "long": (types.LongType, "9000000000L"),
    "float": (types.FloatType, "float('1.5')"),
    "double": (types.DoubleType, "double('-0.1')"),
    "decimal(9,2)": (types.DecimalType, "cast(-12.34 AS decimal(9,2))"),
    "decimal(18,6)": (types.DecimalType, "cast(123456789012.345678 AS decimal(18,6))"),
    "decimal(38,10)": (types.DecimalType, "cast(-1e20 AS decimal(38,10))"),
    "string": (types.StringType, "'ü 中'"),
    "collation": (types.StringType, "'Aa' COLLATE UTF8_LCASE"),
    "binary": (types.BinaryType, "x'00ff'"),
    "date": (types.DateType, "date'1500-02-28'"),
    "timestamp": (types.TimestampType, "timestamp'1883-11-18 12:03:57.123456 UTC'"),
    "timestamp_ntz": (types.TimestampNTZType, "timestamp_ntz'2026-03-29 02:30:00.000001'"),
    "time(6)": (types.TimeType, "time'23:59:59.999999'"),
    "time(0)": (types.TimeType, "cast(time'10:11:12' AS time(0))"),
    "day-time interval": (types.DayTimeIntervalType, "interval '-3 04:05:06.7' day to second"),
    "hours": (types.DayTimeIntervalType, "interval '30' hour"),
    "year-month interval": (types.YearMonthIntervalType, "interval '-1-2' year to month"),
    "years": (types.YearMonthIntervalType, "interval '5' year"),
    "calendar interval": (types.CalendarIntervalType, "make_interval(1, 2)"),
    "array": (types.ArrayType, "array(1, null)"),
    "map": (types.MapType, "map('k', 1.5BD)"),
    "struct": (types.StructType, "named_struct('x', 1, 'y z', array('a'))"),
    "void": (types.NullType, "null"),
    "variant": (types.VariantType, """parse_json('{"a": [1, null, 2.5, "x"]}')"""),
    "geometry": (types.GeometryType, f"st_geomfromwkb({POINT})"),
    "geography": (types.GeographyType, f"st_geogfromwkb({POINT})"),
}
"""A value of each type, as SQL."""
OTHERWISE = {
    "CharType": "a column of it is one of strings, with its length in the metadata: below",
    "VarcharType": "the same",
    "DataType": "no type of its own",
    "StructField": "no type of its own",
}

CHARS = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps the length of a column of char or varchar."""

REFUSED = {"calendar interval", "geometry", "geography"}
REFUSED_INSIDE = {*REFUSED, "year-month interval", "years", "void"}
"""Types that are refused in Parquet: as a column, and inside other types."""


@pytest.fixture(autouse=True)
def _with_time(spark: SparkSession) -> Iterator[None]:
    """TIME is off in Spark 4.3 unless it is asked for."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


def told(df: DataFrame) -> tuple[str, list[str]]:
    """The schema in Spark's words, metadata included, and the rows as text, sorted."""
    return df.schema.json(), sorted(row[0] for row in df.selectExpr("to_json(struct(*))").collect())


def rows_of(spark: SparkSession, values: Mapping[str, str]) -> DataFrame:
    """Three rows: the values, nulls, and the values; a column for each."""
    columns = (f"IF(id = 1, null, {value}) AS `{name}`" for name, value in values.items())
    return spark.range(0, 3, 1, 1).selectExpr("id", *columns)


INSIDE = {
    "column": "{}",
    "array": "array({}, null)",
    "map": "map('k', {})",
    "struct": "named_struct('inner', array(named_struct('x', {})))",
}


@pytest.mark.parametrize("place", INSIDE)
def test_parquet_keeps_each_type_as_spark_does_or_refuses_it(
    spark: SparkSession, lake: Lake, tmp_path: Path, place: str
) -> None:
    """Read back by Spark: schema, metadata and rows are those of ``df.write.parquet``."""
    values = {name: INSIDE[place].format(value) for name, (_, value) in TYPES.items()}
    for name in REFUSED if place == "column" else REFUSED_INSIDE:
        with pytest.raises(mc.OptionError, match=f"column {name}"):
            write_dataframe(rows_of(spark, {name: values.pop(name)}), lake.dest)
    assert lake.is_untouched()
    df = rows_of(spark, values)
    write_dataframe(df, lake.dest)
    df.write.parquet(str(tmp_path / "theirs"))
    lake.copied(tmp_path / "ours")
    ours, theirs = (spark.read.parquet(str(tmp_path / who)) for who in ("ours", "theirs"))
    assert told(ours) == told(theirs)


def test_every_type_of_spark_has_its_line() -> None:
    """The table has each type that this PySpark has: a new one is not forgotten."""
    all_ = {name: getattr(types, name) for name in types.__all__}
    there = {n for n, kind in all_.items() if isinstance(kind, type) and issubclass(kind, DataType)}
    tried = {kind.__name__ for kind, _ in TYPES.values()}
    assert tried <= there
    assert there - tried == set(OTHERWISE) & there


def schema(name: str, kind: DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind)])


def test_a_type_that_nobody_knows_is_refused() -> None:
    """A type of a later Spark is an error, and does not become another one."""

    class Quaternion(DataType):
        pass

    with pytest.raises(mc.OptionError, match=r"column q: the type quater.* is not known"):
        file_schema(schema("q", Quaternion()), {})


def test_lengths_metadata_and_user_types_come_back(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """char and varchar, comments and other metadata of columns, vectors of Spark ML."""
    from pyspark.ml.linalg import Vectors, VectorUDT

    text, field = types.StringType(), types.StructField
    fields = [
        field("c", text, True, {CHARS: "char(4)"}),
        field("vc", text, True, {CHARS: "varchar(9)"}),
        field("n", types.LongType(), False, {"comment": "a number", "ml_attr": {"k": [1]}}),
        field("vector", VectorUDT()),
    ]
    rows = [("ab", "cd", 1, Vectors.dense([1.0, 2.0])), (None, "x", 2, Vectors.sparse(3, {1: 2.0}))]
    df = spark.createDataFrame(rows, types.StructType(fields)).coalesce(1)
    write_dataframe(df, lake.dest)
    df.write.parquet(str(tmp_path / "theirs"))
    lake.copied(tmp_path / "ours")
    ours, theirs = (spark.read.parquet(str(tmp_path / who)) for who in ("ours", "theirs"))
    assert ours.schema.json() == theirs.schema.json()
    assert "ml_attr" in ours.schema.json()
    assert ours.collect() == theirs.collect()


def test_a_year_month_interval_may_have_a_dot_in_its_name() -> None:
    """Inside another type it is refused; a field that is called void is none."""
    months = types.YearMonthIntervalType()
    assert file_schema(schema("a.b", months), {}).names == ["a.b"]
    with pytest.raises(mc.OptionError, match=r"column a\.element: a year-month interval inside"):
        file_schema(schema("a", types.ArrayType(months)), {})
    inner = types.ArrayType(schema("void", types.LongType()))
    assert file_schema(schema("v", inner), {}).names == ["v"]

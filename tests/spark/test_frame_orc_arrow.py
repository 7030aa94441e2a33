"""`write_dataframe` as ORC and Arrow IPC files."""

from __future__ import annotations

import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import ipc, orc
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import magic_committer as mc
from magic_committer.spark import write_dataframe
from magic_committer.spark.formats import FORMATS
from tests.spark.lake import Lake

READERS = {
    "arrow": lambda body: ipc.open_file(BytesIO(body)).read_all(),
    "orc": lambda body: orc.read_table(BytesIO(body)),
}


def read(lake: Lake, format: str) -> Any:
    """The rows of the one file, by pyarrow."""
    ((name, body),) = lake.data().items()
    assert name.endswith(f".{format}")
    return READERS[format](body)


@pytest.mark.parametrize(
    ("format", "codec"),
    [("Arrow", "none"), ("Arrow", "lz4"), ("arrow", "ZSTD"), ("ORC", "none"), ("orc", "Snappy")],
)
def test_a_file_holds_the_rows(spark: SparkSession, lake: Lake, format: str, codec: str) -> None:
    """Rows and types are those that `toArrow` gives, or none; an interval is Arrow's duration."""
    df = spark.range(0, 30_000, 1, 1).selectExpr(
        *("id", "concat('text ', id % 9) AS text", "timestamp_seconds(id) AS at"),
        "named_struct('a', array(id)) AS deep",
    )
    if format == "Arrow":
        df = df.selectExpr("*", "make_dt_interval(0, 0, id) AS lasts")
    write_dataframe(df, lake.dest, format, writer_options={"compression": codec})
    found = read(lake, format.lower())
    assert found.schema.field("at").type.tz == "UTC"
    assert found.to_pylist() == df.toArrow().to_pylist()
    (body,) = lake.data().values()
    assert (len(body) < found.nbytes) == (codec != "none" or format == "ORC")
    write_dataframe(df.where("id < 0"), lake.dest, format, mode="overwrite")
    empty = read(lake, format.lower())
    assert (empty.num_rows, empty.schema) == (0, found.schema)


def test_spark_reads_orc_as_its_own(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Values and types, in the time zone of any session."""
    made = (
        "SELECT * FROM VALUES (TIMESTAMP'{}', CAST(1.5 AS decimal(38, 10)), DATE'1582-10-15',"
        " X'00ff', map('k', array(1Y, NULL))), (NULL, NULL, NULL, NULL, NULL)"
        " AS t(at, price, day, bytes, deep)"
    )
    df = spark.sql(
        f"{made.format('1969-12-31 23:59:59')} UNION ALL {made.format('2026-7-1 1:2:3.4')}"
    )
    write_dataframe(df, lake.dest, "orc")
    files = lake.copied(tmp_path / "ours")
    for zone in ("America/New_York", "Europe/Berlin"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        found = spark.read.orc(files)
        assert found.schema.simpleString() == df.schema.simpleString()
        assert sorted(map(str, found.collect())) == sorted(map(str, df.collect()))


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (TimestampType(), "1969-12-31 23:59:59.5", "no fraction of a second before 1970"),
        (TimestampType(), "1500-01-01 00:00:00", "no day before 1582-10-15"),
        (DateType(), "1582-10-14", "no day before 1582-10-15"),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_what_java_would_read_as_another_day_or_not_at_all_fails_the_file(
    kind: DataType, value: str, told: str, deep: bool
) -> None:
    """As pyarrow writes it; also inside of maps."""
    moment: Any = datetime.datetime.fromisoformat(value)
    moment = moment.date() if isinstance(kind, DateType) else moment.replace(tzinfo=datetime.UTC)
    of = MapType(StringType(), kind) if deep else kind
    files: Any = FORMATS["orc"](StructType([StructField("v", of)]), {}, lambda key: None)
    column = pyarrow.array([[("k", moment)] if deep else moment], files.schema.field(0).type)
    with pytest.raises(mc.OptionError, match=told), files.begin(BytesIO()) as add:
        add(pyarrow.RecordBatch.from_arrays([column], ["v"]))

"""What `write_dataframe` refuses, before anything is started: one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe
from tests.spark.lake import Lake

ODD = (
    "id", "array(id) AS list", "id AS _hidden", "'a' COLLATE UTF8_LCASE AS text",
    "parse_json('1') AS v", "make_ym_interval(1) AS m", "make_dt_interval(1) AS lasts",
    "NULL AS n", "TIME'12:00' AS t", "TIMESTAMP_NTZ'2026-01-01' AS wall",
    "current_timestamp() AS at", "make_interval(1) AS calendar",
)  # fmt: skip
"""Columns of which no table has all."""
Row = tuple[str, dict[str, Any], str]
"""Columns of `ODD`, or expressions; what the call gets beside them; what the error says."""

FRAMES: tuple[Row, ...] = (
    ("", {}, "no columns"),
    ("id, id", {}, "two columns of one name: id"),
    ("id AS a, id AS A", {}, "two columns of one name: A, a"),
    ("id", {"format": "xlsx"}, "there is parquet, csv, json, text, orc, arrow"),
    ("calendar", {}, "column calendar: the type interval cannot be kept"),
    ("named_struct('a', 1, 'a', 2) AS v", {}, "column v: .*two fields of one name: a"),
    ("struct() AS v", {}, "column v: .*without fields"),
    ("id", {"max_records_per_file": 0}, "1 or more"),
    ("id", {"max_records_per_file": True}, "whole number"),
    ("id", {"max_records_per_file": "5"}, "whole number"),
)
PARTITIONS: tuple[tuple[Any, str], ...] = (
    (["nope"], "there is no column 'nope'"),
    (["id", "ID"], "names the column 'id' twice"),
    (["list"], "array<bigint>, which no path can tell"),
    (["v"], "variant, which no path can tell"),
    (["_hidden"], "for hidden ones"),
    (["text"], "has a collation"),
    ("id", r"Pass partition_by=\['id'\]"),
    ([1], "not of int"),
)
OPTIONS: dict[str, tuple[Row, ...]] = {
    "parquet": (
        ("id", {"compression": "lzo"}, "compressed by 'lzo'"),
        ("id", {"compression": 7}, "compressed by '7'"),
        ("id", {"parquet.block.size": "a lot"}, "not a number of bytes"),
        ("id", {"parquet.block.size": 2**40}, "not a number of bytes"),
        ("id", {"parquet.page.size": "-1"}, "not a number of bytes"),
    ),
    "csv": (
        ("id, at", {"sepp": ";"}, "no option 'sepp'.*Did you mean 'sep'"),
        ("id, at", {"encoding": "UTF-16"}, "UTF-8 only"),
        ("id, at", {"compression": "snappy"}, "'snappy'.*There are none"),
        ("id, list", {}, "column list: the type array<bigint>"),
    ),
    "json": (
        ("id", {"header": True}, "no option 'header'"),
        ("id", {"lineSep": ""}, "lineSep is empty"),
    ),
    "text": (("id, at", {}, "one column of strings"), ("id", {}, "one column of strings")),
    "orc": (
        ("n", {}, "the type void"),
        ("lasts", {}, "the type interval day to second"),
        ("t", {}, "the type time"),
        ("wall", {}, "the type timestamp_ntz"),
    ),
    "arrow": (),
}
BINARY: tuple[Row, ...] = (
    ("v", {}, "column v: the type variant"),
    ("m", {}, "column m: the type interval year to month"),
    ("id", {"header": "true"}, "no option 'header'"),
    ("id", {"compression": "brotli"}, "compressed by 'brotli'"),
)
"""Of ORC and Arrow."""


def _rows() -> Iterator[Row]:
    yield from FRAMES
    for by, told in PARTITIONS:
        yield "id, list, _hidden, text, v", {"partition_by": by}, told
    yield "id", {"partition_by": ["id"]}, "no column would be left"
    for format, rows in OPTIONS.items():
        for columns, options, told in (*rows, *(BINARY if format in ("orc", "arrow") else ())):
            yield columns, {"format": format, "writer_options": options}, told


def chosen(spark: SparkSession, columns: str) -> DataFrame:
    """A table of some columns."""
    odd = {one.rpartition(" ")[2]: one for one in ODD}
    there = [odd.get(name, name) for name in columns.split(", ")] if "(" not in columns else None
    frame = spark.range(2)
    return frame.selectExpr(*(there or [columns])) if columns else frame.select()


def test_what_cannot_be_written_is_refused_before_anything_starts(
    spark: SparkSession, lake: Lake
) -> None:
    """An error that says what it is, and no job: of tables, partitions, options and types that a
    format does not keep. An option that only pyarrow or the JVM knows is their own error."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        for columns, given, told in _rows():
            with pytest.raises(mc.OptionError, match=f"(?s){told}"):
                write_dataframe(chosen(spark, columns), lake.dest, **given)
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
    with pytest.raises(mc.OptionError, match="foreachBatch"):
        write_dataframe(spark.readStream.format("rate").load(), lake.dest)
    with pytest.raises(TypeError, match="no_such_option"):
        write_dataframe(spark.range(3), lake.dest, writer_options={"no_such_option": 1})
    at = chosen(spark, "id, at")
    with pytest.raises(Exception, match=r"(?i)pattern"):
        write_dataframe(at, lake.dest, "csv", writer_options={"timestampFormat": "bbbb"})
    assert lake.is_untouched()

"""What `write_dataframe` refuses, before anything is started: one table."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe
from tests.spark.lake import Lake


def of(format: str, **options: Any) -> dict[str, Any]:
    """A format, with options of its writer."""
    return {"format": format, "writer_options": options}


def by(*columns: Any) -> dict[str, Any]:
    return {"partition_by": list(columns)}


AT, LIST, DOCUMENT = "current_timestamp() AS at", "array(id) AS list", "parse_json('1') AS v"
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("id; id", {}, "two columns of one name: id"),
    ("id AS a; id AS A", {}, "two columns of one name: A, a"),
    ("id", {"format": "xlsx"}, "there is parquet, csv, json, text, orc, arrow"),
    ("make_interval(1) AS lasts", {}, "column lasts: the type interval cannot be kept"),
    ("named_struct('a', 1, 'a', 2) AS v", {}, "column v: .*two fields of one name: a"),
    ("struct() AS v", {}, "column v: .*without fields"),
    ("id", {"max_records_per_file": 0}, "1 or more"),
    ("id", {"max_records_per_file": True}, "whole number"),
    ("id", {"max_records_per_file": "5"}, "whole number"),
    # Partitions.
    ("id", by("nope"), "there is no column 'nope'"),
    (f"id; {AT}", by("id", "ID"), "names the column 'id' twice"),
    (f"id; {LIST}", by("list"), "array<bigint>, which no path can tell"),
    (f"id; {DOCUMENT}", by("v"), "variant, which no path can tell"),
    ("id; id AS _hidden", by("_hidden"), "for hidden ones"),
    ("id; 'a' COLLATE UTF8_LCASE AS text", by("text"), "has a collation"),
    (f"id; {AT}", {"partition_by": "id"}, r"Pass partition_by=\['id'\]"),
    ("id", by(1), "not of int"),
    ("id", by("id"), "no column would be left"),
    # Formats, and options of theirs.
    ("id", of("parquet", compression="lzo"), "compressed by 'lzo'"),
    ("id", of("parquet", compression=7), "compressed by '7'"),
    ("id", of("parquet", **{"parquet.block.size": "a lot"}), "not a number of bytes"),
    ("id", of("parquet", **{"parquet.block.size": 2**40}), "not a number of bytes"),
    ("id", of("parquet", **{"parquet.page.size": "-1"}), "not a number of bytes"),
    ("id", of("csv", sepp=";"), "no option 'sepp'.*Did you mean 'sep'"),
    ("id", of("csv", encoding="UTF-16"), "UTF-8 only"),
    ("id", of("csv", compression="snappy"), "'snappy'.*There are none"),
    (LIST, of("csv"), "column list: the type array<bigint>"),
    ("id", of("json", header=True), "no option 'header'"),
    ("id", of("json", lineSep=""), "lineSep is empty"),
    (f"id; {AT}", of("text"), "one column of strings"),
    ("id", of("text"), "one column of strings"),
    ("NULL AS n", of("orc"), "the type void"),
    ("make_dt_interval(1) AS lasts", of("orc"), "the type interval day to second"),
    ("TIME'12:00' AS t", of("orc"), "the type time"),
    ("TIMESTAMP_NTZ'2026-01-01' AS wall", of("orc"), "the type timestamp_ntz"),
    *((DOCUMENT, of(format), "column v: the type variant") for format in ("orc", "arrow")),
    *(("make_ym_interval(1) AS m", of(format), "interval year to month")
      for format in ("orc", "arrow")),
    *(("id", of(format, header="true"), "no option 'header'") for format in ("orc", "arrow")),
    *(("id", of(format, compression="brotli"), "compressed by 'brotli'")
      for format in ("orc", "arrow")),
)  # fmt: skip
"""Columns, what the call gets beside them, and what the error says."""


def test_what_cannot_be_written_is_refused_before_anything_starts(
    spark: SparkSession, lake: Lake
) -> None:
    """An error that says what it is, and no job. An option that only pyarrow or the JVM knows is
    their own error."""
    numbers, stream = spark.range(2), spark.readStream.format("rate").load()
    for columns, given, told in REFUSED:
        with pytest.raises(mc.OptionError, match=f"(?s){told}"):
            write_dataframe(numbers.selectExpr(*columns.split("; ")), lake.dest, **given)
    for frame, told in ((stream, "foreachBatch"), (numbers.select(), "no columns")):
        with pytest.raises(mc.OptionError, match=told):
            write_dataframe(frame, lake.dest)
    with pytest.raises(TypeError, match="no_such_option"):
        write_dataframe(numbers, lake.dest, **of("parquet", no_such_option=1))
    with pytest.raises(Exception, match=r"(?i)pattern"):
        write_dataframe(numbers.selectExpr(AT), lake.dest, **of("csv", timestampFormat="bbbb"))
    assert lake.is_untouched()

"""`write_dataframe` as CSV, JSON and text: to the byte what Spark's own writer writes."""

from __future__ import annotations

import bz2
import gc
import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from magic_committer.spark import write_dataframe
from magic_committer.spark.formats import text_files
from tests.spark.lake import Lake

ROWS = """
    SELECT * FROM VALUES
        (1L, 'plain', 1.50BD, 2.5D, true, date'2026-11-23', timestamp'2026-03-29 01:30:00 UTC'),
        (2L, 'a,b;c|d', -0.01BD, double('NaN'), false, date'0999-01-02',
            timestamp'1883-01-01 00:00:00.123456 UTC'),
        (3L, 'say "hi" \\\\ there', null, double('-Infinity'), null, null, null),
        (4L, '  spaces  ', 0BD, 1e-7D, true, date'1970-01-01', timestamp'2026-10-25 01:00:00 UTC'),
        (5L, 'two\\nlines', 1BD, 1e300D, true, date'9999-12-31', timestamp'1970-01-01 00:00:00'),
        (6L, '', 1BD, 0D, false, date'2026-11-23', timestamp'2026-07-01 00:00:00.1'),
        (7L, null, null, null, null, null, null),
        (8L, '#comment', 1BD, -0D, true, date'2026-11-23', timestamp'2026-07-01 00:00:00'),
        (9L, 'ünï 中 😀\\t\\r', 1BD, 3.3D, true, date'2026-11-23', timestamp'2026-07-01 00:00:00')
        AS t(id, `the, text`, price, `dou.ble`, flag, day, instant)
"""

CSV: dict[str, dict[str, Any]] = {
    "default": {},
    "header": {"header": True},
    "header as text, odd case": {"HEADER": "True", "Sep": ";"},
    "delimiter": {"delimiter": "|", "header": "true"},
    "two letters between": {"sep": "::"},
    "quote": {"quote": "'", "escape": "'"},
    "quote all": {"quoteAll": True, "header": True},
    "escape": {"escape": '"', "escapeQuotes": "false"},
    "nothing": {"nullValue": "NULL", "emptyValue": "EMPTY"},
    "dates": {"dateFormat": "dd/MM/yyyy", "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS XXX"},
    "zone": {"timeZone": "Asia/Kolkata"},
    "line ends": {"lineSep": "\r\n", "header": True},
    "spaces": {"ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False},
    "comment": {"comment": "#"},
}
JSON: dict[str, dict[str, Any]] = {
    "default": {},
    "nulls": {"ignoreNullFields": False},
    "dates": {"dateFormat": "dd/MM/yyyy", "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSS"},
    "zone": {"timeZone": "America/New_York"},
    "line ends": {"lineSep": "\r\n"},
    "ascii": {"writeNonAsciiCharacterAsCodePoint": True},
}


def ours(lake: Lake) -> bytes:
    """The only file of the destination."""
    (body,) = lake.data().values()
    return body


def sparks(df: DataFrame, format: str, options: dict[str, Any], where: Path) -> bytes:
    """The only file that Spark's own writer makes."""
    df.write.format(format).options(**options).save(str(where))
    (file,) = where.glob("part-*")
    return file.read_bytes()


NESTED = (
    *("struct(id AS x, array(id, null) AS y) AS nested", "map('k', id) AS m"),
    *("parse_json('{\"a\": [1, 2.5]}') AS v", "cast('raw' AS binary) AS raw", "null AS nothing"),
    *("make_dt_interval(1, 2) AS lasts", "make_ym_interval(1, 2) AS months"),
    "timestamp_ntz'2026-03-29 02:30:00' AS wall",
)
TEXT = {"lineSep": "\r\n"}
FRAMES: dict[str, tuple[int, tuple[str, ...], str, dict[str, Any]]] = {
    "nested json": (5, NESTED, "json", {}),
    "text": (12_000, ("IF(id % 7 = 0, null, concat('ü ', id)) AS line",), "text", TEXT),
    "no csv": (0, ("cast(id AS string) AS `a;b`",), "csv", {}),
    "no csv, header": (0, ("cast(id AS string) AS `a;b`",), "csv", {"header": True}),
    "no json": (0, ("cast(id AS string) AS `a;b`",), "json", {}),
    "no text": (0, ("cast(id AS string) AS `a;b`",), "text", {}),
}
"""Of numbers from 0 so many, columns, format and options."""


@pytest.mark.parametrize("name", FRAMES)
def test_files_are_sparks_to_the_byte(
    spark: SparkSession, lake: Lake, tmp_path: Path, name: str
) -> None:
    """All that nests, nulls over the end of a batch, and no rows."""
    rows, columns, format, options = FRAMES[name]
    df = spark.range(0, rows, 1, 1).selectExpr(*columns)
    write_dataframe(df, lake.dest, format, writer_options=options)
    assert ours(lake) == sparks(df, format, options, tmp_path / "theirs")


@pytest.mark.parametrize(
    ("format", "options"),
    [("csv", one) for one in CSV.values()] + [("json", one) for one in JSON.values()],
    ids=[f"csv {name}" for name in CSV] + [f"json {name}" for name in JSON],
)
def test_lines_are_sparks_to_the_byte(
    spark: SparkSession, lake: Lake, tmp_path: Path, format: str, options: dict[str, Any]
) -> None:
    """With each option: odd texts, instants and numbers."""
    df = spark.sql(ROWS).coalesce(1).sortWithinPartitions("id")
    write_dataframe(df, lake.dest, format.upper(), writer_options=options)
    theirs = sparks(df, format, options, tmp_path / "theirs")
    assert theirs.count(b"\n") >= 9
    assert ours(lake) == theirs


@pytest.mark.parametrize(
    ("format", "codec"),
    [("csv", "none"), ("text", "gzip"), ("csv", "bzip2"), ("json", "deflate"), ("json", "zstd")],
)
def test_compressed_files_are_named_as_sparks_and_hold_the_same(
    spark: SparkSession, lake: Lake, format: str, codec: str
) -> None:
    """The name's end is Spark's, and a program that is not ours reads the lines."""
    readers: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip.decompress,
        "bzip2": bz2.decompress,
        "deflate": zlib.decompress,
        "zstd": lambda data: pyarrow.CompressedInputStream(BytesIO(data), "zstd").read(),
    }
    df = spark.range(0, 3, 1, 1).selectExpr("concat('v', id) AS c")
    write_dataframe(df, lake.dest, format, writer_options={"compression": codec.upper()})
    (name,) = lake.data()
    end = {"gzip": ".gz", "bzip2": ".bz2", "deflate": ".deflate", "zstd": ".zst"}.get(codec, "")
    assert name.partition(".")[2] == {"text": "txt"}.get(format, format) + end
    line = '{{"c":"v{}"}}\n' if format == "json" else "v{}\n"
    assert readers[codec](ours(lake)) == "".join(line.format(n) for n in range(3)).encode()


def test_after_an_error_a_compressor_writes_nothing() -> None:
    """What it holds is not written when it is collected: the file may be gone."""
    rows = StructType([StructField("value", StringType())])
    file, lines = BytesIO(), pyarrow.record_batch({"value": ["a", "b"]})
    files = text_files("text", rows, {"compression": "zstd"}, lambda _: None)

    def fail() -> None:
        with suppress(LookupError), files.begin(file) as add:
            add(lines)
            raise LookupError

    fail()
    gc.collect()
    assert file.getvalue() == b""


def test_each_file_has_the_header(spark: SparkSession, lake: Lake) -> None:
    """Every file of a partitioned CSV begins with the names of the columns that it holds."""
    df = spark.range(0, 10, 1, 1).selectExpr("id", "id % 2 AS p", "'x' AS last")
    cut: dict[str, Any] = {"partition_by": ["p"], "max_records_per_file": 3, "sort_by": ["id"]}
    report = write_dataframe(df, lake.dest, "csv", writer_options={"header": True}, **cut)
    assert report.files == 4
    assert sorted((name.partition("/")[0], body) for name, body in lake.data().items()) == [
        ("p=0", b"id,last\n0,x\n2,x\n4,x\n"),
        ("p=0", b"id,last\n6,x\n8,x\n"),
        ("p=1", b"id,last\n1,x\n3,x\n5,x\n"),
        ("p=1", b"id,last\n7,x\n9,x\n"),
    ]

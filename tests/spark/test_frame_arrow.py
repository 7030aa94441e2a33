"""`write_dataframe` as Arrow IPC files."""

from __future__ import annotations

from io import BytesIO

import pyarrow
import pytest
from pyarrow import ipc
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe
from tests.spark.lake import Lake


@pytest.mark.parametrize("codec", ["none", "lz4", "ZSTD"])
def test_an_arrow_file_holds_the_rows(spark: SparkSession, lake: Lake, codec: str) -> None:
    """Rows and types are those that `toArrow` gives, instants in UTC; codecs are heeded."""
    df = spark.range(0, 30_000, 1, 1).selectExpr(
        *("id", "concat('text ', id % 9) AS text", "timestamp_seconds(id) AS at"),
        *("named_struct('a', array(id)) AS deep", "make_dt_interval(0, 0, id) AS lasts"),
    )
    write_dataframe(df, lake.dest, "Arrow", writer_options={"compression": codec})
    ((name, body),) = lake.data().items()
    assert name.endswith(".arrow")
    found = ipc.open_file(BytesIO(body)).read_all()
    assert found.schema.field("at").type == pyarrow.timestamp("us", "UTC")
    assert found.to_pylist() == df.toArrow().to_pylist()
    assert (len(body) < found.nbytes) == (codec != "none")


def test_no_rows_are_a_schema(spark: SparkSession, lake: Lake) -> None:
    """A DataFrame without rows is a file with its schema."""
    write_dataframe(spark.range(0).selectExpr("id", "'x' AS text"), lake.dest, "arrow")
    (body,) = lake.data().values()
    found = ipc.open_file(BytesIO(body)).read_all()
    assert (found.num_rows, found.schema.names) == (0, ["id", "text"])


def test_what_arrow_files_do_not_keep_is_refused(spark: SparkSession, lake: Lake) -> None:
    """Types that only Spark knows, unknown options and codecs: refused before anything starts."""
    df = spark.range(1).selectExpr("id", "parse_json('1') AS v", "make_ym_interval(1) AS m")
    for columns, options, told in (
        (["v"], {}, "column v: the type variant"),
        (["m"], {}, "column m: the type interval year to month"),
        (["id"], {"header": "true"}, "no option 'header'"),
        (["id"], {"compression": "snappy"}, "compressed by 'snappy'"),
    ):
        with pytest.raises(mc.OptionError, match=told):
            write_dataframe(df.select(columns), lake.dest, "arrow", writer_options=options)
    with pytest.raises(mc.OptionError, match="no format 'orc'"):
        write_dataframe(df.select("id"), lake.dest, "orc")
    assert lake.is_untouched()

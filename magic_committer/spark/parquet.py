"""Parquet files, encoded by pyarrow.

Invariants:

* The footer holds the schema in Spark's words, so that Spark reads back the types that it wrote.
* What is written is Spark's own in codec, in decimals as integers, and in the index of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import exp
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.types import StructType

from magic_committer.errors import OptionError
from magic_committer.spark.row_groups import ROW_GROUP_BYTES, GroupedBody, file_without_rows
from magic_committer.spark.types import as_months, file_schema, is_months, spark_metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW_GROUP_BYTES_MAX = 1024**3
"""The largest ``parquet.block.size`` in bytes: a task holds two of them in memory."""
DICTIONARY_BYTES_MAX = 1024**2
"""Bytes of a column's dictionary at which pyarrow gives it up, unless it is told otherwise."""
SAMPLE_ROWS = 10_000
"""Rows of the first row group that are looked at to see how many values a column has. A file with
fewer rows is not looked at."""
SAMPLE_DICTIONARIES = 2
"""Of wide rows only so many bytes are looked at as this many dictionaries hold: a dictionary holds
few wide values, and twice as many rows tell whether a column has more."""
SAMPLE_ROWS_MIN = 2_000
"""But so many rows, for the narrow columns beside the wide ones."""

GOLDEN = 0.6180339887498949
"""Multiples of the golden ratio are spread evenly between whole numbers, and never repeat."""

CODECS = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
"""Spark's names of Parquet's codecs, and pyarrow's."""
CODEC_CONF = "spark.sql.parquet.compression.codec"

_SPARKS_OPTIONS: dict[str, str] = {
    "parquet.compression": "compression",
    "parquet.page.size": "data_page_size",
    "parquet.dictionary.page.size": "dictionary_pagesize_limit",
    "parquet.enable.dictionary": "use_dictionary",
}
"""Options of Spark's Parquet writer, and pyarrow's names of them."""
BLOCK_SIZE = "parquet.block.size"


def parquet_files(
    schema: StructType, options: Mapping[str, Any], conf: Callable[[str], str | None]
) -> ParquetFiles:
    """Plan the Parquet files of a schema.

    Args:
        schema: the columns of the files.
        options: arguments for pyarrow's ParquetWriter, or Spark's options ``compression``,
            ``parquet.block.size``, ``parquet.page.size``, ``parquet.dictionary.page.size``,
            ``parquet.enable.dictionary``.
        conf: reads Spark's configuration.

    Raises:
        OptionError: a type cannot be kept, or an option has a wrong value.
    """
    import pyarrow

    given = {_SPARKS_OPTIONS.get(name.lower(), name): value for name, value in options.items()}
    group = next((given.pop(name) for name in list(given) if name.lower() == BLOCK_SIZE), None)
    for name in ("data_page_size", "dictionary_pagesize_limit"):
        if isinstance(given.get(name), str):
            given[name] = _whole(name, given[name], ROW_GROUP_BYTES_MAX)
    if isinstance(given.get("use_dictionary"), str):
        given["use_dictionary"] = given["use_dictionary"].lower() == "true"
    given["compression"] = _codec(given.get("compression") or conf(CODEC_CONF) or "snappy")
    # Decimals of up to 18 digits as integers, and an index of pages: as Spark's own writer does.
    given = {"store_decimal_as_integer": True, "write_page_index": True, **given}
    return ParquetFiles(
        file_schema(
            schema,
            {},
            duration=pyarrow.int64(),
            metadata=spark_metadata(schema, pyspark.__version__),
        ),
        given,
        ROW_GROUP_BYTES if group is None else _whole(BLOCK_SIZE, group, ROW_GROUP_BYTES_MAX),
        frozenset(n for n, field in enumerate(schema) if is_months(field.dataType)),
    )


def _codec(name: Any) -> Any:
    if not isinstance(name, str):
        return name  # pyarrow takes a codec for each column
    if name.lower() not in CODECS:
        raise OptionError(
            f"Parquet files cannot be compressed by {name!r} here",
            hint=f"There are {', '.join(CODECS)}",
        )
    return CODECS[name.lower()]


def _whole(name: str, value: Any, most: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 0 < number <= most:
        raise OptionError(f"{name} is {value!r}, not a number of bytes from 1 to {most}")
    return number


@dataclass(frozen=True)
class ParquetFiles:
    """How to write Parquet files of one schema.

    Attributes:
        schema: the Arrow schema, with the keys of the footer as its metadata.
        options: arguments for pyarrow's ParquetWriter.
        row_group_bytes: bytes of Arrow data in a row group.
        months: the places of columns that are year-month intervals.
    """

    schema: Any
    options: Mapping[str, Any]
    row_group_bytes: int = ROW_GROUP_BYTES
    months: frozenset[int] = frozenset()

    @property
    def extension(self) -> str:
        """What the files' names end with."""
        return ".parquet"

    def begin(self, file: Any) -> GroupedBody:
        """Begin a file; ``file`` stays open."""
        return GroupedBody(self, file)

    def columns(self, given: Sequence[Column], names: Sequence[str]) -> list[Column]:
        """The columns as pyarrow can take them."""
        return [as_months(one) if place in self.months else one for place, one in enumerate(given)]

    def bound(self, df: DataFrame) -> ParquetFiles:
        """Itself: no session is needed."""
        return self

    def without_rows(self) -> bytes:
        """Give the bytes of a file that holds only the schema."""
        return file_without_rows(self)

    def writer(self, sink: Any, first: Any) -> Any:
        """Begin a file."""
        from pyarrow.parquet import ParquetWriter

        options = self.options if first is None else self.options_for(first)
        return ParquetWriter(sink, self.schema, **options)

    def write_table(self, writer: Any, table: Any) -> None:
        """Write a row group. pyarrow would begin another one after 1,048,576 rows, however narrow
        they are."""
        writer.write_table(table, row_group_size=table.num_rows or None)

    def options_for(self, first: Any) -> Mapping[str, Any]:
        """The writer's options: no dictionary for columns of too many values, unless the user
        chose."""
        if "use_dictionary" in self.options or "column_encoding" in self.options:
            return self.options
        many = columns_of_many_values(
            first, self.options.get("dictionary_pagesize_limit") or DICTIONARY_BYTES_MAX
        )
        if not many:
            return self.options
        from pyarrow.parquet import ParquetFile

        leaves = ParquetFile(BytesIO(self.without_rows())).schema
        paths = [leaves.column(n).path for n in range(len(leaves)) if n not in many]
        return {**self.options, "use_dictionary": paths or False}


def columns_of_many_values(table: Any, dictionary_bytes_max: int) -> set[int]:
    """The numbers of those columns of a file whose dictionary would be given up, or would save
    nothing; columns inside of nested ones are counted as Parquet does, from left to right.

    pyarrow begins each column chunk with a dictionary, and hashes every value until the dictionary
    has outgrown its limit: for keys and measures a fifth of all the encoding, and a file that is up
    to a fifth larger. A sample tells: if a column had just so many values as a dictionary can hold,
    all equally frequent, the sample would hold a certain number of them. It holds more: the column
    has more. Where some values are more frequent than others the sample holds fewer, and the
    dictionary is tried. Pure.
    """
    import pyarrow

    if table.num_rows < SAMPLE_ROWS:
        return set()
    rows = sample_rows(table.num_rows, table.nbytes, dictionary_bytes_max)
    sample = table.take(pyarrow.array(_spread(table.num_rows, rows))).combine_chunks()
    columns = [leaf for column in sample.columns for leaf in _leaves(column.combine_chunks())]
    return {
        number
        for number, column in enumerate(columns)
        if _has_many_values(column, table.num_rows / rows, dictionary_bytes_max)
    }


def sample_rows(rows: int, size: int, dictionary_bytes_max: int) -> int:
    """How many rows to look at of a table of at least `SAMPLE_ROWS`, with ``size`` bytes. Pure."""
    wanted = SAMPLE_DICTIONARIES * dictionary_bytes_max * rows // max(size, 1)
    return max(SAMPLE_ROWS_MIN, min(SAMPLE_ROWS, wanted))


def _has_many_values(column: Any, times: float, dictionary_bytes_max: int) -> bool:
    """Whether a column has more values than its dictionary holds. There are ``times`` as many as in
    the sample."""
    from pyarrow import compute

    values = len(column) - column.null_count
    if not values or not _is_flat(column.type):
        return False
    held_max = min(dictionary_bytes_max * values / column.nbytes, times * values / 2)
    distinct: int = compute.count_distinct(column).as_py()
    return bool(distinct > held_max * (1 - exp(-values / held_max)))


def _leaves(column: Any) -> Iterator[Any]:
    """The columns of a Parquet file that a column becomes, in their order."""
    from pyarrow import types

    kind = column.type
    if types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif types.is_list(kind):
        yield from _leaves(column.flatten())
    else:
        yield column


def _is_flat(kind: Any) -> bool:
    """Whether a column of this type is one column of a Parquet file, with a dictionary."""
    from pyarrow import types

    tests = (
        types.is_integer, types.is_floating, types.is_decimal, types.is_temporal, types.is_string,
        types.is_large_string, types.is_binary, types.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _spread(rows: int, count: int) -> list[int]:
    """``count`` numbers below ``rows``, spread without a period: data often has one."""
    step = rows // count
    return [number * step + int(number * GOLDEN % 1 * step) for number in range(count)]

"""The formats of files: how the rows of one schema become the bytes of a file.

Invariants:

* An encoder is a value: immutable, and pickled into each task.
* An option is honoured or refused before the job starts; so is a type that a format cannot keep.
* Parquet, ORC and Arrow are encoded by pyarrow, in groups of `ROW_GROUP_BYTES`, not of Spark's
  batches of 10,000 rows. A thread of the pool encodes a group while the task reads Spark's next
  batches: at most two groups of a file are in memory, and one thread at a time uses the file.
* A Parquet footer holds the schema in Spark's words, so that Spark reads back the types that it
  wrote. Codec, decimals as integers and the index of pages are as Spark's own writer has them.
* A line of CSV or JSON is what Spark's own writer writes, to the byte: the plan makes it with
  ``to_csv`` or ``to_json``, which are that writer's generators with that writer's options. Lines
  are compressed as ordinary files; Hadoop's own framings are refused. They wait for nothing.
"""

from __future__ import annotations

import bz2
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from io import BytesIO
from math import exp
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import numpy
import pyarrow
import pyspark
from pyarrow import compute, ipc, parquet
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from magic_committer.errors import OptionError
from magic_committer.runtime import wiring
from magic_committer.runtime.threads import Future
from magic_committer.spark.types import (
    NEVER,
    ROW_METADATA,
    SPARK_VERSION,
    Refusals,
    TimeType,
    VariantType,
    file_schema,
    inside,
    is_months,
)

ROW_GROUP_BYTES = 32 * 1024**2
"""Bytes of Arrow data that a task gathers for a row group, unless an option says another number."""
ROW_GROUP_BYTES_MAX = 1024**3
"""The largest ``parquet.block.size`` in bytes: a task holds two of them in memory."""
DICTIONARY_BYTES_MAX = 1024**2
"""Bytes of a column's dictionary at which pyarrow gives it up, unless an option says another."""
SAMPLE_ROWS = 1_000
"""Rows of the first row group that tell how many values a column has. Fewer tell nothing."""

Conf = Callable[[str], str | None]
"""Reads a key of Spark's configuration; None: it is not set."""


class FileEncoder(Protocol):
    """How the rows of one schema become a file. `begin` is a block that gets what adds a record
    batch; the file itself stays open, and after an error in the block nothing uses it any more.
    `prepare` gives the encoder with what only the session knows, and what the JVM makes of the
    columns before a task gets them."""

    @property
    def extension(self) -> str: ...
    def begin(self, file: Any) -> AbstractContextManager[Callable[[Any], None]]: ...
    def prepare(self, df: DataFrame, columns: Sequence[str], names: Sequence[str]) -> Prepared: ...

    def without_rows(self) -> bytes:
        """The bytes of a file without rows."""
        file = BytesIO()
        with self.begin(file):
            pass
        return file.getvalue()


Prepared = tuple[FileEncoder, Sequence[str | Column]]
"""An encoder, and the columns that tasks get: by name as they are, or as the JVM makes them."""


# Groups of rows -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnFiles(FileEncoder):
    """Files of groups of rows, by a writer of pyarrow with its ``options``. The metadata of the
    Arrow ``schema`` are the keys of the footer."""

    schema: Any
    options: Mapping[str, Any]
    row_group_bytes: int = ROW_GROUP_BYTES

    @contextmanager
    def begin(self, file: Any) -> Iterator[Callable[[Any], None]]:
        body = GroupedBody(self, file)
        try:
            yield body.add
            body.end()
        except BaseException as error:
            body.give_up(error)
            raise

    def prepare(self, df: DataFrame, columns: Sequence[str], names: Sequence[str]) -> Prepared:
        # The JVM makes numbers of year-month intervals: pyarrow cannot read Arrow's.
        months = {field.name for field in df.schema if is_months(field.dataType)}
        month, named = spark_types.YearMonthIntervalType(1, 1), zip(columns, names, strict=True)
        cast = (
            functions.col(one).cast(month).cast("int") if n in months else one for one, n in named
        )
        return self, list(cast)

    @abstractmethod
    def writer(self, sink: Any, first: Any) -> Any:
        """pyarrow's writer of a file whose first group is given; None: there are no rows."""

    def write_group(self, writer: Any, table: Any) -> None:
        writer.write(table)


class GroupedBody:
    """The rows of a file of groups, as they come."""

    def __init__(self, encoder: ColumnFiles, file: Any) -> None:
        self._encoder = encoder
        self._file = file
        self._writer: Any = None
        self._group: list[Any] = []
        self._gathered = 0
        self._encoding: Future[None] | None = None

    def add(self, batch: Any) -> None:
        """A group that is full is encoded beside the caller; what the encoding of the one before
        raised is raised here, once."""
        self._group.append(batch)
        self._gathered += batch.nbytes
        if self._gathered >= self._encoder.row_group_bytes:
            self._send()

    def end(self) -> None:
        if self._group:
            self._send()
        self._wait()
        self._begun(None).close()

    def give_up(self, why: BaseException) -> None:
        try:
            self._wait()
        except Exception as failed:
            why.add_note(f"what was under way failed too: {failed}")
        try:
            if self._writer is not None:
                self._writer.close()  # else it would write its footer whenever it is collected
        except Exception as failed:
            why.add_note(f"the file could not be closed: {failed}")

    def _send(self) -> None:
        group, self._group, self._gathered = self._group, [], 0
        self._wait()
        self._encoding = wiring.pool.submit(partial(self._write_group, group))

    def _wait(self) -> None:
        if (running := self._encoding) is not None:
            try:
                running.result()
            finally:
                if running.done():  # not so after Ctrl-C
                    self._encoding = None

    def _begun(self, first: Any) -> Any:
        if self._writer is None:
            sink = pyarrow.PythonFile(self._file, mode="w")
            self._writer = self._encoder.writer(sink, first)
        return self._writer

    def _write_group(self, group: list[Any]) -> None:
        schema = self._encoder.schema
        table = pyarrow.Table.from_batches(group).rename_columns(schema.names).cast(schema)
        group.clear()  # so that its memory is freed where the cast made other arrays
        self._encoder.write_group(self._begun(table), table)


# Parquet ------------------------------------------------------------------------------------------

PARQUET_CODECS = {
    **{name: name for name in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}
"""Spark's names of Parquet's codecs, and pyarrow's."""
CODEC_CONF = "spark.sql.{}.compression.codec"
BLOCK_SIZE = "parquet.block.size"
PARQUET_OPTIONS = {
    BLOCK_SIZE: BLOCK_SIZE,
    "parquet.compression": "compression",
    "parquet.page.size": "data_page_size",
    "parquet.dictionary.page.size": "dictionary_pagesize_limit",
    "parquet.enable.dictionary": "use_dictionary",
}
"""Options of Spark's Parquet writer, and pyarrow's names of them."""


def parquet_files(schema: StructType, options: Mapping[str, Any], conf: Conf) -> ParquetFiles:
    """Plan Parquet files. Options: arguments of pyarrow's ParquetWriter, or Spark's."""
    given = {PARQUET_OPTIONS.get(name.lower(), name): value for name, value in options.items()}
    size = given.pop(BLOCK_SIZE, None)
    group = ROW_GROUP_BYTES if size is None else _whole(BLOCK_SIZE, size)
    for name, text in [(name, value) for name, value in given.items() if isinstance(value, str)]:
        if name in ("data_page_size", "dictionary_pagesize_limit"):
            given[name] = _whole(name, text)
        elif name == "use_dictionary":
            given[name] = text.lower() == "true"
    codec = given.get("compression") or conf(CODEC_CONF.format("parquet")) or "snappy"
    if not isinstance(codec, Mapping):  # a codec for each column
        codec = _codec("Parquet", str(codec), PARQUET_CODECS)
    metadata = {ROW_METADATA: schema.json(), SPARK_VERSION: pyspark.__version__}
    kept = file_schema(schema, {}, duration=pyarrow.int64(), metadata=metadata)
    as_spark = {"store_decimal_as_integer": True, "write_page_index": True}
    return ParquetFiles(kept, {**as_spark, **given, "compression": codec}, group)


def _codec(files: str, name: str, known: Mapping[str, Any], more: str = "") -> Any:
    if name.lower() not in known:
        raise OptionError(
            f"{files} files cannot be compressed by {name!r} here",
            hint=f"There are {', '.join(known)}{more}",
        )
    return known[name.lower()]


def _whole(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    most = ROW_GROUP_BYTES_MAX
    if not 0 < number <= most:
        raise OptionError(f"{name} is {value!r}, not a number of bytes from 1 to {most}")
    return number


@dataclass(frozen=True)
class ParquetFiles(ColumnFiles):
    """Parquet files."""

    extension = ".parquet"

    def writer(self, sink: Any, first: Any) -> Any:
        options = self.options if first is None else self.options_for(first)
        return parquet.ParquetWriter(sink, self.schema, **options)

    def write_group(self, writer: Any, table: Any) -> None:
        # As one group: pyarrow would begin another one after 1,048,576 narrow rows.
        writer.write_table(table, table.num_rows or None)

    def options_for(self, first: Any) -> Mapping[str, Any]:
        """The writer's options: no dictionary for columns of too many values, unless the user
        chose. pyarrow begins each column with a dictionary, and hashes every value until that
        outgrows its limit: half and more of the encoding of keys and measures, and larger files."""
        chosen = "use_dictionary" in self.options or "column_encoding" in self.options
        if chosen or first.num_rows < SAMPLE_ROWS:
            return self.options
        # At random, as data often has a period; always the same rows.
        generator = numpy.random.default_rng(0)
        sample = first.take(generator.choice(first.num_rows, SAMPLE_ROWS, False, shuffle=False))
        schema = parquet.ParquetFile(BytesIO(self.without_rows())).schema
        limit = self.options.get("dictionary_pagesize_limit") or DICTIONARY_BYTES_MAX
        paths = [
            schema.column(number).path
            for number, leaf in enumerate(_leaves(sample.columns))
            if not _has_many_values(leaf, first.num_rows, limit)
        ]
        return {**self.options, "use_dictionary": paths or False}


def _leaves(columns: Iterable[Any]) -> Iterator[Any]:
    """The columns of a file that a table's columns become, in their order."""
    for column in columns:
        one = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        if pyarrow.types.is_struct(one.type):
            yield from _leaves(one.flatten())
        elif pyarrow.types.is_map(one.type):
            yield from _leaves((one.keys, one.items))
        elif pyarrow.types.is_list(one.type):
            yield from _leaves((one.flatten(),))
        else:
            yield one


def _has_many_values(sample: Any, rows: int, dictionary_bytes_max: int) -> bool:
    """Whether the dictionary of a column would be given up, or would save nothing: whether the
    sample has more values than if the column had as many as a dictionary can hold, all equally
    frequent. Where some are more frequent it has fewer, and the dictionary is tried."""
    values = len(sample) - sample.null_count
    if not values:
        return False
    held_max = min(dictionary_bytes_max * values / sample.nbytes, rows * values / SAMPLE_ROWS / 2)
    found: int = compute.count_distinct(sample).as_py()
    return bool(found > held_max * (1 - exp(-values / held_max)))


# ORC and Arrow ------------------------------------------------------------------------------------

LASTING: Refusals = {
    VariantType: "Write Parquet, or to_json of it",
    spark_types.YearMonthIntervalType: "Cast it to a number of months",
    spark_types.UserDefinedType: "Write Parquet",
}
"""What files do not keep whose readers know nothing of Spark."""


@dataclass(frozen=True)
class ArrowFiles(ColumnFiles):
    """Arrow IPC files ("Feather V2")."""

    extension = ".arrow"
    refusals: ClassVar = LASTING
    codecs: ClassVar = {"none": None, "uncompressed": None, "lz4": "lz4", "zstd": "zstd"}

    def writer(self, sink: Any, first: Any) -> Any:
        return ipc.new_file(sink, self.schema, options=ipc.IpcWriteOptions(**self.options))


FIRST_DAYS = -141_427
"""1582-10-15, the first day of the calendar that pyarrow counts by, from 1970."""


@dataclass(frozen=True)
class OrcFiles(ColumnFiles):
    """ORC files."""

    extension = ".orc"
    refusals: ClassVar = {
        **LASTING,
        spark_types.DayTimeIntervalType: "Cast it to a number",
        spark_types.NullType: "Cast it to another type",
        spark_types.TimestampNTZType: "Cast it to timestamp, or write Parquet",
        TimeType: "Cast it to string",
    }
    codecs: ClassVar = {
        **{name: name for name in ("zstd", "snappy", "zlib", "lz4", "uncompressed")},
        "none": "uncompressed",
    }

    def writer(self, sink: Any, first: Any) -> Any:
        from pyarrow import orc  # some builds of pyarrow lack it

        writer = orc.ORCWriter(sink, **self.options)
        writer.write(self.schema.empty_table())  # the schema, also where no rows come
        return writer

    def write_group(self, writer: Any, table: Any) -> None:
        for leaf in _leaves(table.columns):
            day = pyarrow.types.is_date32(leaf.type)
            if not day and not pyarrow.types.is_timestamp(leaf.type):
                continue
            values = leaf.drop_null().view("int32" if day else "int64").to_numpy()
            why = ""
            if (values < (FIRST_DAYS if day else FIRST_DAYS * 86_400_000_000)).any():
                why = "day before 1582-10-15: Java's readers take it for one of the Julian calendar"
            elif not day and ((values < 0) & (values % 1_000_000 != 0)).any():
                why = "fraction of a second before 1970: Java's readers fail"
            if why:
                raise OptionError(
                    f"orc files by pyarrow hold no {why}",
                    hint="Write Parquet, or ORC by Spark's own writer (via=)",
                )
        writer.write(table)


def column_files(
    kind: type[ArrowFiles | OrcFiles], schema: StructType, options: Mapping[str, Any], conf: Conf
) -> ColumnFiles:
    """Plan ORC or Arrow files. Options: ``compression``, by default the first of the codecs."""
    name = kind.extension[1:]
    default = conf(CODEC_CONF.format(name)) or next(iter(kind.codecs))
    codec = known_options(name, options).get("compression", default)
    packed = {"compression": _codec(name, codec, kind.codecs)}
    return kind(file_schema(schema, kind.refusals), packed)


# Lines --------------------------------------------------------------------------------------------

LINE_CODECS: Mapping[str, tuple[str, Callable[[], Any] | None]] = {
    "none": ("", None),
    "uncompressed": ("", None),
    "gzip": (".gz", partial(zlib.compressobj, wbits=16 + zlib.MAX_WBITS)),
    "bzip2": (".bz2", bz2.BZ2Compressor),
    "deflate": (".deflate", zlib.compressobj),
    "zstd": (".zst", None),
}
"""Compressions of lines: how names end, and what makes a compressor; that of zstd is pyarrow's."""

_LINES = ("lineSep", "encoding", "charset", "compression", "codec")
_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeFormat", "timeZone", "locale")
OPTIONS: dict[str, tuple[str, ...]] = {
    "parquet": ("compression", *sorted({*PARQUET_OPTIONS} - {"parquet.compression"})),
    "csv": (
        *(*_LINES, *_TIMES, "header", "sep", "delimiter", "quote", "quoteAll", "escape"),
        *("escapeQuotes", "charToEscapeQuoteEscaping", "nullValue", "emptyValue", "comment"),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
    ),
    "json": (*_LINES, *_TIMES, "ignoreNullFields", "pretty", "writeNonAsciiCharacterAsCodePoint"),
    "text": _LINES,
    "orc": ("compression",),
    "arrow": ("compression",),
}
"""The options of each format, as Spark has them, in any case; of Parquet also pyarrow's."""


@dataclass(frozen=True)
class TextFiles(FileEncoder):
    """Files of lines: of ``kind`` ``"csv"``, ``"json"`` or ``"text"``. ``options`` are for the
    JVM's generator, ``codec`` is one of `LINE_CODECS`; the JVM makes the ``header``."""

    kind: str
    options: Mapping[str, str]
    line_end: bytes
    codec: str
    with_header: bool = False
    header: bytes = b""

    @property
    def extension(self) -> str:
        return ("." + {"text": "txt"}.get(self.kind, self.kind)) + LINE_CODECS[self.codec][0]

    @contextmanager
    def begin(self, file: Any) -> Iterator[Callable[[Any], None]]:
        end = pyarrow.scalar(self.line_end, pyarrow.large_binary())
        make = LINE_CODECS[self.codec][1]
        packer = make() if make else None

        def write(data: Any) -> None:
            file.write(packer.compress(data) if packer else data)

        # pyarrow closes what it writes to, and the file stays open.
        kept = SimpleNamespace(write=file.write, close=lambda: None, closed=False)
        if self.codec == "zstd":
            stream = pyarrow.CompressedOutputStream(pyarrow.PythonFile(kept, mode="w"), "zstd")
            write = stream.write
        if self.header:
            write(self.header)

        def add(batch: Any) -> None:
            """The first and only column is lines. Null is an empty one."""
            if batch.num_rows:
                lines = batch.column(0).cast(pyarrow.large_string()).cast(pyarrow.large_binary())
                one = pyarrow.ListArray.from_arrays([0, len(lines)], lines.fill_null(b""))
                write(compute.binary_join(one, end)[0].as_buffer())
                write(self.line_end)

        try:
            yield add
        except BaseException:
            kept.write = len  # what pyarrow still holds goes nowhere
            raise
        if self.codec == "zstd":
            stream.close()
        elif packer:
            file.write(packer.flush())

    def prepare(self, df: DataFrame, columns: Sequence[str], names: Sequence[str]) -> Prepared:
        """Lines, and the encoder with its header. The JVM tries the options on a row of nulls."""
        if self.kind == "text":
            return self, columns

        def line(columns: Iterable[Column]) -> Column:
            make = functions.to_csv if self.kind == "csv" else functions.to_json
            return make(functions.struct(*columns), dict(self.options))

        kinds = {field.name: field.dataType for field in df.schema}
        nulls = line(functions.lit(None).cast(kinds[name]).alias(name) for name in names)
        header = line(functions.lit(name).alias(f"c{n}") for n, name in enumerate(names))
        one = df.sparkSession.range(0, 1, 1, 1)
        (row,) = one.select(nulls.alias("t"), header.alias("h")).collect()
        first = row.h.encode() + self.line_end if self.with_header else b""
        named = zip(columns, names, strict=True)
        return replace(self, header=first), [line(functions.col(c).alias(n) for c, n in named)]


def text_files(kind: str, schema: StructType, options: Mapping[str, Any], conf: Conf) -> TextFiles:
    """Plan files of ``"csv"``, ``"json"`` or ``"text"``."""
    given = known_options(kind, options)
    if kind != "text":
        # The types that Spark's own writer of this format refuses.
        flat = spark_types.AtomicType | spark_types.NullType | spark_types.UserDefinedType
        for path, of in (one for field in schema for one in inside(field.dataType, field.name)):
            if isinstance(of, tuple(NEVER)) or (kind == "csv" and not isinstance(of, flat)):
                raise OptionError(
                    f"column {path}: the type {of.simpleString()} cannot be kept in {kind} files",
                    hint="Cast it to string, or make text of it: to_json(...)",
                )
    elif len(schema) != 1 or not isinstance(schema[0].dataType, spark_types.StringType):
        raise OptionError(
            f"a text file holds one column of strings, not {schema.simpleString()}",
            hint="Make one: df.select(concat_ws(',', *df.columns)); or write csv",
        )
    encoding = given.pop("encoding", given.pop("charset", "UTF-8"))
    if encoding.lower() not in ("utf-8", "utf8"):
        raise OptionError(
            f"{kind} files are written in UTF-8 only, not in {encoding!r}",
            hint="Leave the option out, and convert the files afterwards",
        )
    codec = given.pop("compression", given.pop("codec", "none")).lower()
    _codec(kind, codec, LINE_CODECS, ". Hadoop frames lz4 and snappy in its own way")
    line_end = given.get("linesep", "\n")
    if not line_end:
        raise OptionError("lineSep is empty: nothing would separate lines")
    header = given.pop("header", "false").lower() == "true"
    return TextFiles(kind, given, line_end.encode(), codec, header)


def meant(word: str, known: Mapping[str, str]) -> str:
    """The beginning of a hint: which option a misspelt one may be, in lower case."""
    near = get_close_matches(word, known, 1, 0.75)
    return f"Did you mean {known[near[0]]!r}? " if near else ""


def known_options(kind: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The options in Spark's form: names in lower case, values as text."""
    known = {name.lower(): name for name in OPTIONS[kind]}
    given = {}
    for name, value in options.items():
        if name.lower() not in known:
            raise OptionError(
                f"the {kind} writer has no option {name!r}",
                hint=f"{meant(name.lower(), known)}There is {', '.join(OPTIONS[kind])}",
            )
        if value is not None:
            given[name.lower()] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


# All of them --------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[StructType, Mapping[str, Any], Conf], FileEncoder]] = {
    "parquet": parquet_files,
    "csv": partial(text_files, "csv"),
    "json": partial(text_files, "json"),
    "text": partial(text_files, "text"),
    "orc": partial(column_files, OrcFiles),
    "arrow": partial(column_files, ArrowFiles),
}
"""The formats, by their names in lower case, each with what plans its files, or refuses."""

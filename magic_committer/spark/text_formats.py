"""CSV, JSON and text: files of lines, encoded by the JVM, compressed and written here.

Invariants:

* A line is what Spark's own writer writes, to the byte: the plan makes it with ``to_csv`` or
  ``to_json``, which are that writer's generators with that writer's options. Nothing is encoded in
  Python, so no option and no type is only nearly Spark's.
* An option is honoured or refused before the job starts. ``bound`` lets the JVM try them once.
* Compressed files are ordinary ones: gzip, bzip2, zlib, zstd. Hadoop's own framings are refused.
* Memory is that of a batch: lines are written as they come.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from magic_committer.errors import OptionError
from magic_committer.spark.types import NEVER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COMPRESSION_LEVEL = 6
"""The level of gzip and deflate: zlib's own default, and Hadoop's."""

CODECS = {
    "none": "",
    "uncompressed": "",
    "gzip": ".gz",
    "bzip2": ".bz2",
    "deflate": ".deflate",
    "zstd": ".zst",
}
"""Compressions of lines, and what their files' names end with."""

_LINES = ("lineSep", "encoding", "charset", "compression", "codec")
_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeFormat", "timeZone", "locale")
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (
        *(*_LINES, *_TIMES, "header", "sep", "delimiter", "quote", "quoteAll", "escape"),
        *("escapeQuotes", "charToEscapeQuoteEscaping", "nullValue", "emptyValue", "comment"),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
    ),
    "json": (*_LINES, *_TIMES, "ignoreNullFields", "pretty", "writeNonAsciiCharacterAsCodePoint"),
    "text": _LINES,
}
"""The options of each format, as Spark has them. Upper and lower case are the same."""

_UTF_8 = ("utf-8", "utf8")


@dataclass(frozen=True)
class TextFiles:
    """How to write files of lines.

    Attributes:
        kind: ``"csv"``, ``"json"`` or ``"text"``.
        names: the columns.
        options: the options for the JVM's generator.
        line_end: the bytes after each line.
        codec: one of `CODECS`.
        with_header: whether a CSV file begins with the names of its columns.
        header: that line, once the JVM has made it.
    """

    kind: str
    names: tuple[str, ...]
    options: Mapping[str, str]
    line_end: bytes
    codec: str
    with_header: bool = False
    header: bytes = b""

    @property
    def extension(self) -> str:
        """What the files' names end with, as Spark's do."""
        return ("." + {"text": "txt"}.get(self.kind, self.kind)) + CODECS[self.codec]

    def begin(self, file: Any) -> LineBody:
        """Begin a file; ``file`` stays open."""
        return LineBody(self, file)

    def without_rows(self) -> bytes:
        """Give the bytes of a file without rows: of its header, if it has one."""
        file = BytesIO()
        self.begin(file).end()
        return file.getvalue()

    def columns(self, given: Sequence[Column], names: Sequence[str]) -> list[Column]:
        """The lines, made by the JVM."""
        if self.kind == "text":
            return list(given)
        return [self._line([one.alias(name) for one, name in zip(given, names, strict=True)])]

    def bound(self, df: DataFrame) -> TextFiles:
        """The same with its header. The JVM tries the options on a row of nulls.

        Raises:
            What Spark raises for options or types that its writer does not take.
        """
        if self.kind == "text":
            return self
        from pyspark.sql import functions

        kinds = {field.name: field.dataType for field in df.schema}
        nulls = [functions.lit(None).cast(kinds[name]).alias(name) for name in self.names]
        names = [functions.lit(name).alias(f"c{n}") for n, name in enumerate(self.names)]
        one = df.sparkSession.range(0, 1, 1, 1)
        (row,) = one.select(self._line(nulls).alias("t"), self._line(names).alias("h")).collect()
        return replace(self, header=row.h.encode() + self.line_end if self.with_header else b"")

    def _line(self, columns: Sequence[Column]) -> Column:
        from pyspark.sql import functions

        make = functions.to_csv if self.kind == "csv" else functions.to_json
        return make(functions.struct(*columns), dict(self.options))


class LineBody:
    """The lines of one file, as they come."""

    def __init__(self, files: TextFiles, file: Any) -> None:
        self._files = files
        self._sink = _compressed(file, files.codec)
        if files.header:
            self._sink.write(files.header)

    def add(self, batch: Any) -> None:
        """Write lines: the first and only column."""
        import pyarrow
        from pyarrow import compute

        lines = batch.column(0).cast(pyarrow.large_string()).cast(pyarrow.large_binary())
        end = pyarrow.scalar(self._files.line_end, pyarrow.large_binary())
        nothing = pyarrow.scalar(b"", pyarrow.large_binary())
        # Joined with an end of line between the line and nothing: one buffer holds all, in order.
        joined = compute.binary_join_element_wise(
            lines, nothing, end, null_handling="replace", null_replacement=b""
        )
        self._sink.write(memoryview(joined.buffers()[2])[: _bytes_of(joined)])

    def end(self) -> None:
        """Write the end of what is compressed. The file stays open."""
        self._sink.close()

    def give_up(self, why: BaseException) -> None:
        """Nothing: lines are written by the caller's thread."""


def _bytes_of(lines: Any) -> int:
    import numpy

    return int(numpy.frombuffer(lines.buffers()[1], dtype=numpy.int64)[len(lines)])


class _Kept:
    """A file that its user cannot close."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """The file's owner closes it."""


class _Deflated(_Kept):
    """A file of zlib's format."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._compressor = zlib.compressobj(COMPRESSION_LEVEL)

    def write(self, data: Any) -> int:
        self._file.write(self._compressor.compress(data))
        return len(data)

    def close(self) -> None:
        """Write the end."""
        self._file.write(self._compressor.flush())


def _compressed(file: Any, codec: str) -> Any:
    """A file that compresses what is written into another one, which it does not close."""
    if codec == "gzip":
        return gzip.GzipFile(
            filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=_Kept(file), mtime=0
        )
    if codec == "bzip2":
        return bz2.BZ2File(_Kept(file), "wb")
    if codec == "deflate":
        return _Deflated(file)
    if codec == "zstd":
        import pyarrow

        return pyarrow.CompressedOutputStream(pyarrow.PythonFile(_Kept(file), mode="w"), "zstd")
    return _Kept(file)


# The plan -----------------------------------------------------------------------------------------


def text_plan(
    kind: str,
) -> Callable[[StructType, Mapping[str, Any], Callable[[str], str | None]], TextFiles]:
    """Give the function that plans files of ``"csv"``, ``"json"`` or ``"text"``."""

    def plan(
        schema: StructType, options: Mapping[str, Any], conf: Callable[[str], str | None]
    ) -> TextFiles:
        given = known_options(kind, options)
        _refuse_types(kind, schema)
        encoding = given.pop("encoding", given.pop("charset", "UTF-8"))
        if encoding.lower() not in _UTF_8:
            raise OptionError(
                f"{kind} files are written in UTF-8 only, not in {encoding!r}",
                hint="Leave the option out, and convert the files afterwards",
            )
        codec = given.pop("compression", given.pop("codec", "none")).lower()
        if codec not in CODECS:
            raise OptionError(
                f"{kind} files cannot be compressed by {codec!r} here",
                hint=f"There are {', '.join(CODECS)}. Hadoop frames lz4 and snappy in its own way",
            )
        line_end = given.get("linesep", "\n")
        if not line_end:
            raise OptionError("lineSep is empty: lines could not be told apart")
        header = given.pop("header", "false").lower() == "true"
        return TextFiles(kind, tuple(schema.names), given, line_end.encode(), codec, header)

    return plan


def known_options(kind: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The options as Spark takes them: names in lower case, values as text.

    Raises:
        OptionError: the format has no such option.
    """
    known = {name.lower(): name for name in OPTIONS[kind]}
    given = {}
    for name, value in options.items():
        if name.lower() not in known:
            nearest = get_close_matches(name.lower(), known, 1)
            raise OptionError(
                f"the {kind} writer has no option {name!r}",
                hint=(f"Did you mean {known[nearest[0]]!r}? " if nearest else "")
                + f"There are {', '.join(OPTIONS[kind])}",
            )
        if value is not None:
            given[name.lower()] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


def _refuse_types(kind: str, schema: StructType) -> None:
    """Refuse the types that Spark's own writer of this format refuses."""
    if kind == "text":
        if len(schema) != 1 or not isinstance(schema[0].dataType, spark_types.StringType):
            raise OptionError(
                f"a text file holds one column of strings, not {schema.simpleString()}",
                hint="Make one: df.select(concat_ws(',', *df.columns)); or write csv",
            )
        return
    for field in schema:
        _refuse_type(kind, field.dataType, field.name)


def _refuse_type(kind: str, of: DataType, path: str) -> None:
    if isinstance(of, spark_types.UserDefinedType):
        _refuse_type(kind, of.sqlType(), path)
    elif isinstance(of, tuple(NEVER)) or (
        kind == "csv" and not isinstance(of, spark_types.AtomicType | spark_types.NullType)
    ):
        raise OptionError(
            f"column {path}: the type {of.simpleString()} cannot be kept in {kind} files",
            hint="Cast it to string, or make text of it: to_json(...)",
        )
    elif isinstance(of, spark_types.StructType):
        for field in of:
            _refuse_type(kind, field.dataType, f"{path}.{field.name}")
    elif isinstance(of, spark_types.ArrayType):
        _refuse_type(kind, of.elementType, f"{path}.element")
    elif isinstance(of, spark_types.MapType):
        _refuse_type(kind, of.keyType, f"{path}.key")
        _refuse_type(kind, of.valueType, f"{path}.value")

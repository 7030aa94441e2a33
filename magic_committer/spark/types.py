"""Spark's types as Arrow's in files: the schema of a file, and what is refused. Pure.

Invariants:

* Every Spark type is either kept or refused before the job starts; nothing silently becomes another
  type. A type that nobody has thought of is refused.
* Everything may be null, at every depth: Spark reads all files so, whatever they say. "Not null"
  inside a struct is not true where the struct itself is null, as after a left join, and pyarrow's
  writer refuses such rows. The exception is the keys of maps, where Arrow allows no null.
* Instants are in UTC, in every time zone of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from magic_committer.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column


def release() -> tuple[int, int]:
    """Which PySpark this is: (4, 3)."""
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def needs(least: tuple[int, int], what: str, hint: str) -> None:
    """Say so where this PySpark is too old for something (`OptionError`)."""
    if release() < least:
        raise OptionError(
            f"{what} needs Spark {least[0]}.{least[1]} or newer, and this is {pyspark.__version__}",
            hint=hint,
        )


class _Lacking(DataType):
    """Stands for a type that this release of Spark lacks: no column is of it."""


def _type(name: str) -> type[DataType]:
    kind: type[DataType] = getattr(spark_types, name, _Lacking)
    return kind


CalendarIntervalType = _type("CalendarIntervalType")  # from 4.0 on
VariantType = _type("VariantType")  # from 4.0 on
TimeType = _type("TimeType")  # from 4.1 on
GeometryType = _type("GeometryType")  # from 4.1 on
GeographyType = _type("GeographyType")  # from 4.1 on

Refusals = Mapping[type[DataType], str]
"""Types that a format cannot keep, each with what to do about it."""

ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark's own Parquet writer keeps the schema in Spark's words. Spark reads it back: lengths
of char and varchar, intervals, user-defined types, collations, variants, metadata of columns."""
SPARK_VERSION = "org.apache.spark.version"
"""Which Spark wrote the file; by it Spark knows the calendar of its dates."""
FIELD_ID = "parquet.field.id"
"""The key in a column's metadata that is the id of the column in Parquet files."""

NEVER: Refusals = {
    CalendarIntervalType: "No file format of Spark's has it. Cast it to text",
    GeometryType: "Write ST_AsBinary of it, and keep its SRID",
    GeographyType: "Write ST_AsBinary of it, and keep its SRID",
}
"""What no format here keeps."""


def file_schema(
    schema: StructType, refusals: Refusals, *, duration: Any = None, metadata: Any = None
) -> Any:
    """The Arrow schema of the files of a DataFrame, whose partition columns are left out.

    ``refusals`` are the types that the format cannot keep, beside those of `NEVER`; ``duration`` is
    the Arrow type of a day-time interval (Arrow's own by default).
    """
    import pyarrow

    convert = _Convert({**NEVER, **refusals}, duration or pyarrow.duration("us"))
    fields = [convert.field(field, field.name) for field in schema]
    return pyarrow.schema(fields, metadata=metadata)


def spark_metadata(schema: StructType, version: str) -> dict[str, str]:
    """The keys of a Parquet footer by which Spark finds its own types again."""
    return {ROW_METADATA: schema.json(), SPARK_VERSION: version}


def is_months(kind: DataType) -> bool:
    """Whether it is a year-month interval. It travels as months: pyarrow cannot read Arrow's."""
    return isinstance(kind, spark_types.YearMonthIntervalType)


def as_months(column: Column) -> Column:
    """A year-month interval as the number of its months. The JVM computes it."""
    return column.cast(spark_types.YearMonthIntervalType(1, 1)).cast("int")


class _Convert:
    """From Spark's types to Arrow's, at every depth."""

    def __init__(self, refusals: Refusals, duration: Any) -> None:
        self.refusals = refusals
        self.duration = duration

    def field(self, field: spark_types.StructField, path: str) -> Any:
        import pyarrow

        ident = field.metadata.get(FIELD_ID) if field.metadata else None
        metadata = {"PARQUET:field_id": str(ident)} if isinstance(ident, int) else None
        return pyarrow.field(field.name, self.type(field.dataType, path), metadata=metadata)

    def type(self, kind: DataType, path: str) -> Any:
        """The Arrow type; ``path`` names the column for errors."""
        import pyarrow

        self._refuse(kind, path)
        if isinstance(kind, spark_types.UserDefinedType):
            return self.type(kind.sqlType(), path)
        if isinstance(kind, spark_types.StructType):
            self._refuse_fields(kind, path)
            return pyarrow.struct([self.field(one, f"{path}.{one.name}") for one in kind])
        if isinstance(kind, spark_types.ArrayType | spark_types.MapType):
            _refuse_void_inside(kind, path)
        if isinstance(kind, spark_types.ArrayType):
            element = self.type(kind.elementType, f"{path}.element")
            return pyarrow.list_(pyarrow.field("element", element))
        if isinstance(kind, spark_types.MapType):
            key = self.type(kind.keyType, f"{path}.key")
            value = self.type(kind.valueType, f"{path}.value")
            return pyarrow.map_(
                pyarrow.field("key", key, nullable=False), pyarrow.field("value", value)
            )
        if isinstance(kind, spark_types.DecimalType):
            return pyarrow.decimal128(kind.precision, kind.scale)
        if isinstance(kind, spark_types.DayTimeIntervalType):
            return self.duration
        made = next((make() for of, make in _plain() if isinstance(kind, of)), None)
        if made is None:
            raise OptionError(
                f"column {path}: the type {kind.simpleString()} is not known here",
                hint="Cast the column to another type",
            )
        return made

    def _refuse(self, kind: DataType, path: str) -> None:
        for refused, advice in self.refusals.items():
            if isinstance(kind, refused):
                raise OptionError(
                    f"column {path}: the type {kind.simpleString()} cannot be kept in this format",
                    hint=advice,
                )
        if isinstance(kind, spark_types.YearMonthIntervalType) and "." in path:
            raise OptionError(
                f"column {path}: a year-month interval inside another type cannot be kept",
                hint="Make it a column of its own, or a number of months",
            )

    def _refuse_fields(self, kind: StructType, path: str) -> None:
        if not kind.names:
            raise OptionError(f"column {path}: a struct without fields cannot be kept")
        twice = sorted({name for name in kind.names if kind.names.count(name) > 1})
        if twice:
            raise OptionError(
                f"column {path}: the struct has two fields of one name: {', '.join(twice)}"
            )


def _refuse_void_inside(kind: DataType, path: str) -> None:
    """Spark 4.3 sends Arrow lists of nothing with a wrong length, at any depth."""
    if _holds_void(kind):
        raise OptionError(
            f"column {path}: the type {kind.simpleString()} cannot be kept: void inside an array or"
            " map",
            hint="Cast it to another type",
        )


def _holds_void(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_void(field.dataType) for field in kind)
    if isinstance(kind, spark_types.ArrayType):
        return _holds_void(kind.elementType)
    if isinstance(kind, spark_types.MapType):
        return _holds_void(kind.keyType) or _holds_void(kind.valueType)
    return isinstance(kind, spark_types.NullType)


def _plain() -> tuple[tuple[type[DataType], Callable[[], Any]], ...]:
    """The types that nest nothing and have no parameters. Variants are a struct of two values."""
    import pyarrow

    return (
        (spark_types.BooleanType, pyarrow.bool_),
        (spark_types.ByteType, pyarrow.int8),
        (spark_types.ShortType, pyarrow.int16),
        (spark_types.IntegerType, pyarrow.int32),
        (spark_types.LongType, pyarrow.int64),
        (spark_types.FloatType, pyarrow.float32),
        (spark_types.DoubleType, pyarrow.float64),
        (spark_types.StringType, pyarrow.string),
        (spark_types.CharType, pyarrow.string),
        (spark_types.VarcharType, pyarrow.string),
        (spark_types.BinaryType, pyarrow.binary),
        (spark_types.DateType, pyarrow.date32),
        (spark_types.TimestampType, lambda: pyarrow.timestamp("us", "UTC")),
        (spark_types.TimestampNTZType, lambda: pyarrow.timestamp("us")),
        (TimeType, lambda: pyarrow.time64("us")),
        (spark_types.YearMonthIntervalType, pyarrow.int32),
        (spark_types.NullType, pyarrow.null),
        (VariantType, _variant),
    )


def _variant() -> Any:
    import pyarrow

    return pyarrow.struct([("value", pyarrow.binary()), ("metadata", pyarrow.binary())])

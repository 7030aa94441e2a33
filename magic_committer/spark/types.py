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

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, DecimalType, StructType

from magic_committer.errors import OptionError


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


PLAIN: Mapping[type[DataType], Any] = {
    spark_types.BooleanType: pyarrow.bool_(),
    spark_types.ByteType: pyarrow.int8(),
    spark_types.ShortType: pyarrow.int16(),
    spark_types.IntegerType: pyarrow.int32(),
    spark_types.LongType: pyarrow.int64(),
    spark_types.FloatType: pyarrow.float32(),
    spark_types.DoubleType: pyarrow.float64(),
    spark_types.StringType: pyarrow.string(),
    spark_types.CharType: pyarrow.string(),
    spark_types.VarcharType: pyarrow.string(),
    spark_types.BinaryType: pyarrow.binary(),
    spark_types.DateType: pyarrow.date32(),
    spark_types.TimestampType: pyarrow.timestamp("us", "UTC"),
    spark_types.TimestampNTZType: pyarrow.timestamp("us"),
    TimeType: pyarrow.time64("us"),
    spark_types.YearMonthIntervalType: pyarrow.int32(),
    spark_types.NullType: pyarrow.null(),
    VariantType: pyarrow.struct([("value", pyarrow.binary()), ("metadata", pyarrow.binary())]),
}
"""The types that nest nothing and have no parameters, as Arrow's."""


def file_schema(
    schema: StructType, refusals: Refusals, *, duration: Any = None, metadata: Any = None
) -> Any:
    """The Arrow schema of files. ``refusals``: what the format cannot keep, beside `NEVER`;
    ``duration``: the type of a day-time interval (Arrow's own by default)."""
    plain = {**PLAIN, spark_types.DayTimeIntervalType: duration or pyarrow.duration("us")}
    for field in schema:
        for path, kind in inside(field.dataType, field.name):
            _refuse(kind, path, {**NEVER, **refusals}, tuple(plain))
            if is_months(kind) and kind is not field.dataType:
                told = f"column {path}: a year-month interval inside another type cannot be kept"
                raise OptionError(told, hint="Make it a column of its own, or a number of months")

    def made(kind: DataType) -> Any:
        if isinstance(kind, spark_types.UserDefinedType):
            return made(kind.sqlType())
        if isinstance(kind, StructType):
            return pyarrow.struct(fields(kind))
        if isinstance(kind, spark_types.ArrayType):
            return pyarrow.list_(pyarrow.field("element", made(kind.elementType)))
        if isinstance(kind, spark_types.MapType):
            key = pyarrow.field("key", made(kind.keyType), nullable=False)
            return pyarrow.map_(key, pyarrow.field("value", made(kind.valueType)))
        if isinstance(kind, DecimalType):
            return pyarrow.decimal128(kind.precision, kind.scale)
        return next(arrow for of, arrow in plain.items() if isinstance(kind, of))

    def fields(of: StructType) -> Iterator[Any]:
        for field in of:
            ident = field.metadata.get(FIELD_ID) if field.metadata else None
            kept = {"PARQUET:field_id": str(ident)} if isinstance(ident, int) else None
            yield pyarrow.field(field.name, made(field.dataType), metadata=kept)

    return pyarrow.schema(fields(schema), metadata=metadata)


def inside(kind: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """A type and those inside of it, at every depth, each with its path and before its parts."""
    yield path, kind
    if isinstance(kind, spark_types.UserDefinedType):
        yield from inside(kind.sqlType(), path)
    elif isinstance(kind, StructType):
        for field in kind:
            yield from inside(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, spark_types.ArrayType):
        yield from inside(kind.elementType, f"{path}.element")
    elif isinstance(kind, spark_types.MapType):
        yield from inside(kind.keyType, f"{path}.key")
        yield from inside(kind.valueType, f"{path}.value")


def is_months(kind: DataType) -> bool:
    """Whether it is a year-month interval. It travels as months: pyarrow cannot read Arrow's."""
    return isinstance(kind, spark_types.YearMonthIntervalType)


def _refuse(kind: DataType, path: str, refusals: Refusals, known: tuple[type, ...]) -> None:
    """Refuse what the format cannot keep, and what nothing can."""
    name, advice, why = kind.simpleString(), "", ""
    if refused := next((one for one in refusals if isinstance(kind, one)), None):
        why, advice = f"the type {name} cannot be kept in this format", refusals[refused]
    elif isinstance(kind, StructType):
        if twice := sorted({name for name in kind.names if kind.names.count(name) > 1}):
            why = f"the struct has two fields of one name: {', '.join(twice)}"
        elif not kind.names:
            why = "a struct without fields cannot be kept"
    elif isinstance(kind, spark_types.ArrayType | spark_types.MapType):
        # Spark 4.3 sends Arrow lists of nothing with a wrong length, at any depth.
        if any(isinstance(one, spark_types.NullType) for _, one in inside(kind, path)):
            why = f"the type {name} cannot be kept: void inside an array or map"
            advice = "Cast it to another type"
    elif not isinstance(kind, (spark_types.UserDefinedType, DecimalType, *known)):
        why, advice = f"the type {name} is not known here", "Cast the column to another type"
    if why:
        raise OptionError(f"column {path}: {why}", hint=advice)

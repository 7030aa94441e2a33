"""`write_dataframe` and "not null": all is written as nullable, at every depth."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magic_committer.spark import write_dataframe
from magic_committer.spark.types import file_schema
from tests.spark.lake import Lake


def every_field(fields: Any) -> list[Any]:
    """All fields of a schema or struct, those inside included; a map's own keys are left out."""
    found = []
    for field in fields:
        found.append(field)
        kind = field.type
        if pyarrow.types.is_map(kind):
            found += every_field([kind.item_field])
            found += every_field([kind.key_field])[1:]
        elif pyarrow.types.is_struct(kind):
            found += every_field([kind.field(n) for n in range(kind.num_fields)])
        elif hasattr(kind, "value_field"):
            found += every_field([kind.value_field])
    return found


def leaves(fields: list[Any]) -> list[str]:
    """The types that nest nothing, whole: with precision and time zone."""
    return [str(field.type) for field in fields if not pyarrow.types.is_nested(field.type)]


X = StructType([StructField("x", LongType(), False), StructField("y", StringType(), False)])
KINDS: dict[str, DataType] = {
    "plain": DecimalType(12, 3),
    "instant": TimestampType(),
    "struct": X,
    "list": ArrayType(X, containsNull=False),
    "map": MapType(X, X, valueContainsNull=False),
    "struct in list in map": MapType(
        StringType(),
        ArrayType(StructType([StructField("inner", X, False)]), containsNull=False),
        valueContainsNull=False,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_field_at_every_depth_may_be_null(name: str) -> None:
    """Nothing of a schema stays "not null" but the keys of maps, which Parquet demands."""
    given = StructType([StructField("column", KINDS[name], False)])
    fields = every_field(file_schema(given, {}))
    before = every_field(to_arrow_schema(given, timezone="UTC"))
    assert [field.name for field in fields if not field.nullable] == []
    assert not all(field.nullable for field in before)
    assert [field.name for field in fields] == [field.name for field in before]
    assert leaves(fields) == leaves(before)
    maps = [field.type for field in fields if pyarrow.types.is_map(field.type)]
    assert not any(kind.key_field.nullable for kind in maps)


LEFT = "SELECT id FROM range(4)"
RIGHT = """
    SELECT id,
        named_struct('x', id, 'y', 'text') AS plain,
        array(named_struct('x', id)) AS listed,
        map('a', named_struct('x', id)) AS mapped,
        map('a', array(named_struct('inner', named_struct('x', id)))) AS deep
    FROM range(2)
"""


def test_a_left_join_of_structs_is_written(spark: SparkSession, lake: Lake, tmp_path: Any) -> None:
    """Structs that must have fields are missing where it finds nothing, nested ones too."""
    df = spark.sql(f"SELECT * FROM ({LEFT}) LEFT JOIN ({RIGHT}) USING (id)")
    plain: Any = df.schema["plain"].dataType
    assert not plain.fields[0].nullable  # else this test could not fail
    write_dataframe(df, lake.dest)
    found = spark.read.parquet(lake.copied(tmp_path / "ours"))
    assert sorted(found.collect(), key=lambda one: one.id) == sorted(
        df.collect(), key=lambda one: one.id
    )
    assert [row.plain for row in found.collect() if row.id >= 2] == [None, None]

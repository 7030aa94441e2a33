"""`write_dataframe`: what is in the files, and what it refuses."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from threading import Event
from time import sleep
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from magic_committer.spark import formats, write_dataframe
from magic_committer.spark.formats import ROW_GROUP_BYTES, ColumnFiles, GroupedBody
from magic_committer.spark.types import file_schema
from tests.spark.lake import Lake

EVERY_TYPE = """
    id long NOT NULL, flag boolean, tiny byte, small short, whole int, single float, double double,
    price decimal(12,3), big decimal(38,0), text string, raw binary, day date, instant timestamp,
    wall timestamp_ntz, numbers array<int>, names map<string,int>,
    nested struct<at: timestamp, inner: array<struct<x: decimal(5,2), y: string>>>, nothing void,
    `a.dotted name` string, `ünïcode` int
"""


def row(number: int) -> tuple[Any, ...]:
    """A row of `EVERY_TYPE`; every third has nothing in it but its id."""
    if number % 3 == 0:
        return (number, *[None] * 19)
    instant = datetime.datetime(2026, 3, 29, 0, 59, 59, number, tzinfo=datetime.UTC)
    return (
        *(number, number % 2 == 0, -number, number, -number, number / 4, number / 8),
        *(Decimal(number) / 1000, Decimal(10**37 + number), f"ü{number}", bytes([0, number])),
        *(datetime.date(1900, 1, 1) + datetime.timedelta(days=number), instant),
        *(datetime.datetime(2026, 3, 29, 2, 30, 0, number), [number, None], {"a": number}),
        (instant, [(Decimal(number) / 100, None), None]),
        *(None, f"dotted {number}", number),
    )


def as_arrow(names: list[str], number: int) -> dict[str, Any]:
    """The same row as Arrow gives it back."""
    found = dict(zip(names, row(number), strict=True))
    if found["names"]:
        found["names"] = list(found["names"].items())
    if found["nested"]:
        at, inner = found["nested"]
        found["nested"] = {"at": at, "inner": [x and {"x": x[0], "y": x[1]} for x in inner]}
    return found


def test_what_is_read_back_equals_the_dataframe(spark: SparkSession, lake: Lake) -> None:
    """All types with nulls, nested ones, a change of the clocks, odd column names."""
    df = spark.createDataFrame([row(number) for number in range(20)], EVERY_TYPE).repartition(3)
    report = write_dataframe(df, lake.dest)
    tables = lake.tables()
    assert len(tables) == report.files == 3
    whole = pyarrow.concat_tables(tables)
    found = sorted(whole.to_pylist(), key=lambda one: one["id"])
    assert found == [as_arrow(df.columns, number) for number in range(20)]
    assert whole.schema.remove_metadata().equals(file_schema(df.schema, {}))


def test_names_tell_partition_and_job(spark: SparkSession, lake: Lake) -> None:
    """A partition with rows becomes one file, one without becomes none."""
    df = spark.range(0, 40, 1, 4).where("id < 10 OR id >= 30")
    report = write_dataframe(df, lake.dest)
    assert sorted(lake.data()) == [
        f"part-{number:05d}-mcj{report.uuid}.parquet" for number in (0, 3)
    ]
    assert report.files == 2


@pytest.mark.parametrize("rows", ["no partition", "no rows"])
def test_an_empty_dataframe_becomes_its_schema(spark: SparkSession, lake: Lake, rows: str) -> None:
    """It becomes one file with its schema: the same as that of files with rows."""
    full = spark.createDataFrame([row(number) for number in range(2)], EVERY_TYPE)
    empty = full.limit(0) if rows == "no partition" else full.where("id < 0").repartition(2)
    assert write_dataframe(empty, lake.dest).files == 1
    write_dataframe(full.coalesce(1), lake.dest, mode="append")
    without, with_rows = sorted(lake.tables(), key=lambda table: table.num_rows)
    assert (without.num_rows, with_rows.num_rows) == (0, 2)
    assert without.schema.equals(with_rows.schema, check_metadata=True)


class Recorder(ColumnFiles):
    """An encoder that keeps the groups it is given. ``use``: called for each, by its number."""

    extension = ""

    def __init__(self, use: Callable[[int], object] = lambda number: None) -> None:
        super().__init__(pyarrow.schema({"x": pyarrow.binary()}), {})
        vars(self).update(seen=[], use=use)

    def writer(self, sink: Any, first: Any) -> Any:
        return self

    def write_group(self, writer: Any, table: Any) -> None:
        seen = vars(self)["seen"]
        seen.append(table.num_rows)
        vars(self)["use"](len(seen))

    def close(self) -> None:
        vars(self)["seen"].append("closed")


def full(rows: int = 1) -> pyarrow.RecordBatch:
    """A batch that fills a group."""
    return pyarrow.RecordBatch.from_pydict({"y": [bytes(ROW_GROUP_BYTES // rows)] * rows})


def recorded(recorder: Recorder) -> tuple[GroupedBody, list[Any]]:
    """A file's body by an encoder, and what that sees: rows of groups, and the end of the file."""
    return GroupedBody(recorder, BytesIO()), vars(recorder)["seen"]


def test_a_row_group_of_narrow_rows_is_one_row_group() -> None:
    """Its size is its bytes: pyarrow's own limit of 1,048,576 rows does not split it."""
    batch = pyarrow.RecordBatch.from_pydict({"x": pyarrow.array(bytes(1_200_000), "int8")})
    written = written_by(pyarrow.Table.from_batches([batch]), rows=1_200_000).metadata
    assert [written.row_group(0).num_rows, written.num_row_groups] == [1_200_000, 1]


def written_by(table: pyarrow.Table, rows: int = 10_000, **options: Any) -> Any:
    """The file that a table's batches of so many rows become."""
    file = BytesIO()
    with formats.ParquetFiles(table.schema, options).begin(file) as add:
        for batch in table.to_batches(rows):
            add(batch)
    return pyarrow.parquet.ParquetFile(file)


def with_dictionary(file: Any) -> list[str]:
    """The columns of the first row group that begin with a dictionary."""
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [one.path_in_schema for one in columns if one.has_dictionary_page]


MANY_ROWS = 400_000


def many_kinds() -> pyarrow.Table:
    """Columns of many values and of few, flat and nested; `periodic` has each value again after
    10,000 rows."""
    rows = range(MANY_ROWS)
    keys = pyarrow.array(rows, "int64")
    few = pyarrow.array([row % 1000 for row in rows], "int32")
    each = pyarrow.array(range(MANY_ROWS + 1), "int32")
    inner = pyarrow.StructArray.from_arrays([keys, few], ["key", "few"])
    lists = pyarrow.ListArray.from_arrays(each, inner)
    columns = {
        "key": keys,
        "price": keys.cast(pyarrow.decimal128(19, 0)).cast(pyarrow.decimal128(22, 1)),
        "name": pyarrow.array([f"name {row:020}" for row in rows]),
        "some": pyarrow.array([row * 7919 % 50_000 for row in rows], "int64"),
        "few": few,
        "day": few.cast(pyarrow.date32()),
        "periodic": pyarrow.array([f"{row % 10_000:020}" for row in rows]),
        "sparse": pyarrow.array([row if row % 4 == 0 else None for row in rows], "int64"),
        "nothing": pyarrow.nulls(MANY_ROWS, "int64"),
        "flag": pyarrow.array([row % 2 == 0 for row in rows]),
        "nested.key": pyarrow.StructArray.from_arrays([keys], ["key"]),
        "deep": pyarrow.MapArray.from_arrays(each, keys, lists),
    }
    return pyarrow.table(columns)


def test_only_columns_of_few_values_get_a_dictionary() -> None:
    """Also after a period, and nested; rows and schema are those that were given."""
    table = many_kinds()
    file = written_by(table)
    assert with_dictionary(file) == [
        "some", "few", "day", "periodic", "nothing", "deep.key_value.value.list.element.few"
    ]  # fmt: skip
    assert file.metadata.num_row_groups > 1
    assert file.read().equals(table)
    small = written_by(table.slice(0, formats.SAMPLE_ROWS - 1))  # fewer rows than a sample
    assert len(with_dictionary(small)) == small.metadata.num_columns - 1  # a flag never has one


@pytest.mark.parametrize(("values", "dictionary"), [(34_000, False), (3_000, False), (500, True)])
def test_a_sample_of_wide_rows_tells(values: int, dictionary: bool) -> None:
    """Of values of 970 bytes a dictionary holds 1,080: a column of more gets none."""
    rows = range(34_000)
    columns = {
        "key": pyarrow.array(rows, "int64"),
        "few": pyarrow.array([row % 100 for row in rows], "int32"),
        "body": pyarrow.array([b"%0970d" % (row * 7919 % values) for row in rows]),
    }
    file = written_by(pyarrow.table(columns))
    assert with_dictionary(file) == (["few", "body"] if dictionary else ["few"])


@pytest.mark.parametrize(("chosen", "held"), [(True, ["key", "name"]), (["name"], ["name"])])
def test_a_users_choice_of_dictionaries_holds(chosen: Any, held: list[str]) -> None:
    """Where the user says which columns get a dictionary, nothing is chosen."""
    table = many_kinds().select(["key", "name"])
    assert with_dictionary(written_by(table, use_dictionary=chosen)) == held


def test_the_next_group_is_taken_while_one_is_encoded() -> None:
    """A group ends with the batch that fills it; one at a time is encoded, in order."""
    taken = Event()
    body, seen = recorded(Recorder(lambda number: number > 1 or taken.wait(300)))
    body.add(full(1))  # its encoding goes on while the next ones are taken
    body.add(full(2).slice(0, 1))
    taken.set()
    body.add(full(3))
    body.add(full(9).slice(0, 1))
    body.end()
    assert seen == [1, 4, 1, "closed"]


def test_nothing_is_in_use_after_an_error_of_the_input() -> None:
    """After an error of the input the group before is done with, and its own error is a note."""

    def use(number: int) -> None:
        sleep(0.05)
        raise ValueError("the use")

    (body, seen), error = recorded(Recorder(use)), LookupError("the input")
    body.add(full())
    body.give_up(error)
    assert seen == [1, "closed"]
    assert error.__notes__ == ["what was under way failed too: the use"]


def test_an_error_of_a_group_ends_the_input() -> None:
    """It is raised for the next one, once; that one is not used."""

    def use(number: int) -> None:
        raise ValueError(f"the use of {number}")

    (body, seen), error = recorded(Recorder(use)), ValueError()
    body.add(full())
    with pytest.raises(ValueError, match="the use of 1"):
        body.add(full())
    body.give_up(error)
    assert seen == [1, "closed"]
    assert not hasattr(error, "__notes__")

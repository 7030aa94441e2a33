"""`write_dataframe`: what is in the files, and what it refuses."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from decimal import Decimal
from io import BytesIO
from threading import Event
from time import sleep
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import formats, write_dataframe
from magic_committer.spark.formats import ROW_GROUP_BYTES, ColumnFiles, GroupedBody
from magic_committer.spark.types import file_schema
from tests.spark.lake import BUCKET, Lake

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
    """All types with nulls, nested ones, instants around a change of the clocks, odd column names:
    pyarrow reads back the rows that Spark had, in files of one schema."""
    df = spark.createDataFrame([row(number) for number in range(20)], EVERY_TYPE).repartition(3)
    report = write_dataframe(df, lake.dest)
    tables = lake.tables()
    assert len(tables) == report.files == 3
    whole = pyarrow.concat_tables(tables)
    found = sorted(whole.to_pylist(), key=lambda one: one["id"])
    assert found == [as_arrow(df.columns, number) for number in range(20)]
    assert whole.schema.remove_metadata().equals(file_schema(df.schema, {}))


def test_names_tell_partition_and_job(spark: SparkSession, lake: Lake) -> None:
    """A partition with rows becomes one file, named for partition and job; one without becomes
    none."""
    df = spark.range(0, 40, 1, 4).where("id < 10 OR id >= 30")
    report = write_dataframe(df, lake.dest)
    assert sorted(lake.data()) == [
        f"part-{number:05d}-mcj{report.uuid}.parquet" for number in (0, 3)
    ]
    assert report.files == 2


@pytest.mark.parametrize("rows", ["no partition", "no rows"])
def test_an_empty_dataframe_becomes_its_schema(spark: SparkSession, lake: Lake, rows: str) -> None:
    """A DataFrame without rows, with partitions or without, becomes one file with its schema: the
    same as that of files with rows."""
    full = spark.createDataFrame([row(number) for number in range(2)], EVERY_TYPE)
    empty = full.limit(0) if rows == "no partition" else full.where("id < 0").repartition(2)
    report = write_dataframe(empty, lake.dest)
    write_dataframe(full.coalesce(1), lake.dest, mode="append")
    assert report.files == 1
    without, with_rows = sorted(lake.tables(), key=lambda table: table.num_rows)
    assert (without.num_rows, with_rows.num_rows) == (0, 2)
    assert without.schema.equals(with_rows.schema, check_metadata=True)


def test_ignore_heeds_data_that_comes_meanwhile(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that comes after `ignore` first looked is left alone too."""
    lake.client.put_object(Bucket=BUCKET, Key=f"{lake.name}/old", Body=b"old")
    monkeypatch.setattr("magic_committer.spark.driver.Order.finds_data", lambda order: False)
    assert write_dataframe(spark.range(3), lake.dest, mode="ignore").skipped
    assert lake.keys() == ["old"]


class Recorder(ColumnFiles):
    """An encoder that keeps the groups it is given. ``use``: called for each, by its number."""

    extension = ""

    def __init__(self, use: Callable[[int], object] = lambda number: None) -> None:
        super().__init__(pyarrow.schema({"x": pyarrow.binary()}), {})
        vars(self).update(groups=[], closed=[], use=use)

    def writer(self, sink: Any, first: Any) -> Any:
        """Itself."""
        return self

    def write_group(self, writer: Any, table: Any) -> None:
        """Keep how many rows a group has."""
        vars(self)["groups"].append(table.num_rows)
        vars(self)["use"](len(vars(self)["groups"]))

    def close(self) -> None:
        """The end of the file."""
        vars(self)["closed"].append(True)

    def seen(self) -> tuple[list[int], bool]:
        """The rows of each group, and whether the file was ended."""
        return vars(self)["groups"], bool(vars(self)["closed"])


def full(rows: int = 1) -> pyarrow.RecordBatch:
    """A batch that fills a group."""
    return pyarrow.RecordBatch.from_pydict({"y": [bytes(ROW_GROUP_BYTES // rows)] * rows})


def test_batches_are_gathered_by_size() -> None:
    """A row group ends with the batch that fills it; nothing is lost; the file is ended."""
    small = pyarrow.RecordBatch.from_pydict({"y": [b"small"]})
    large = pyarrow.RecordBatch.from_pydict({"y": [bytes(ROW_GROUP_BYTES // 2)]})
    recorder = Recorder()
    body = GroupedBody(recorder, BytesIO())
    for batch in (large, large, small, large, large, small):
        body.add(batch)
    body.end()
    assert recorder.seen() == ([2, 3, 1], True)


def test_a_row_group_of_narrow_rows_is_one_row_group() -> None:
    """The size of a row group is its bytes: pyarrow's own limit of 1,048,576 rows does not split
    it."""
    batch = pyarrow.RecordBatch.from_pydict({"x": pyarrow.array(bytes(1_200_000), "int8")})
    written = written_by(formats.ParquetFiles(batch.schema, {}), [batch])
    assert [written.row_group(0).num_rows, written.num_row_groups] == [1_200_000, 1]


def write(files: formats.ParquetFiles, file: BytesIO, batches: Iterable[Any]) -> None:
    """Write a whole file."""
    with files.begin(file) as add:
        for batch in batches:
            add(batch)


def written_by(files: formats.ParquetFiles, batches: Iterable[Any]) -> Any:
    """The metadata of the file that the batches become."""
    file = BytesIO()
    write(files, file, batches)
    return pyarrow.parquet.ParquetFile(file).metadata


def with_dictionary(metadata: Any) -> list[str]:
    """The columns of the first row group that begin with a dictionary."""
    group = metadata.row_group(0)
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
    return pyarrow.table(
        {
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
            "deep": pyarrow.MapArray.from_arrays(
                each, keys, pyarrow.ListArray.from_arrays(each, inner)
            ),
        }
    )


NESTED_FEW = ["deep.key_value.value.list.element.few"]
"""Columns inside of `many_kinds` that have few values."""


def test_only_columns_of_few_values_get_a_dictionary() -> None:
    """A column whose dictionary would be given up is written without one; few values get one, also
    where they come again after a period; the same inside of nested columns."""
    table = many_kinds()
    metadata = written_by(formats.ParquetFiles(table.schema, {}), table.to_batches(10_000))
    assert with_dictionary(metadata) == ["some", "few", "day", "periodic", "nothing", *NESTED_FEW]


@pytest.mark.parametrize(("values", "dictionary"), [(34_000, False), (3_000, False), (500, True)])
def test_a_sample_of_wide_rows_tells(values: int, dictionary: bool) -> None:
    """Of values of 970 bytes a dictionary holds 1,080: a column of more gets none, one of fewer
    does, and the narrow columns beside it are told as ever."""
    rows = range(34_000)
    table = pyarrow.table(
        {
            "key": pyarrow.array(rows, "int64"),
            "few": pyarrow.array([row % 100 for row in rows], "int32"),
            "body": pyarrow.array([b"%0970d" % (row * 7919 % values) for row in rows]),
        }
    )
    metadata = written_by(formats.ParquetFiles(table.schema, {}), table.to_batches(10_000))
    assert with_dictionary(metadata) == (["few", "body"] if dictionary else ["few"])


def test_a_file_without_a_chosen_dictionary_holds_the_same_rows() -> None:
    """Rows, their order and the schema are those that were given, over the end of a row group."""
    table = many_kinds()
    file = BytesIO()
    write(formats.ParquetFiles(table.schema, {}), file, table.to_batches(10_000))
    assert pyarrow.parquet.ParquetFile(file).metadata.num_row_groups > 1
    assert pyarrow.parquet.read_table(file).equals(table)


@pytest.mark.parametrize(("chosen", "held"), [(True, ["key", "name"]), (["name"], ["name"])])
def test_a_users_choice_of_dictionaries_holds(chosen: Any, held: list[str]) -> None:
    """Where the user says which columns get a dictionary, nothing is chosen."""
    table = many_kinds().select(["key", "name"])
    files = formats.ParquetFiles(table.schema, {"use_dictionary": chosen})
    assert with_dictionary(written_by(files, table.to_batches(10_000))) == held


def test_a_small_file_gets_dictionaries_as_ever() -> None:
    """Of a file with fewer rows than a sample nothing is chosen."""
    table = many_kinds().slice(0, formats.SAMPLE_ROWS - 1)
    metadata = written_by(formats.ParquetFiles(table.schema, {}), [table.to_batches()[0]])
    assert len(with_dictionary(metadata)) == metadata.num_columns - 1  # a flag never has one


def test_the_next_group_is_taken_while_one_is_encoded() -> None:
    """Each group is encoded while the next one is being taken, one at a time and in order."""
    taken = Event()
    recorder = Recorder(lambda number: number > 1 or taken.wait(300))
    body = GroupedBody(recorder, BytesIO())
    body.add(full(1))  # its encoding goes on while the next ones are taken
    body.add(full(2).slice(0, 1))
    taken.set()
    body.add(full(3))
    body.end()
    assert recorder.seen() == ([1, 4], True)


def test_nothing_is_in_use_after_an_error_of_the_input() -> None:
    """After an error of the input the group before is done with, and its own error is a note."""

    def use(number: int) -> None:
        sleep(0.05)
        raise ValueError("the use")

    recorder, error = Recorder(use), LookupError("the input")
    body = GroupedBody(recorder, BytesIO())
    body.add(full())
    body.give_up(error)
    assert recorder.seen() == ([1], True)
    assert error.__notes__ == ["what was under way failed too: the use"]


def test_an_error_of_a_group_ends_the_input() -> None:
    """An error in the encoding of a group is raised for the next one, once; that one is not
    used."""

    def use(number: int) -> None:
        raise ValueError(f"the use of {number}")

    recorder, error = Recorder(use), ValueError()
    body = GroupedBody(recorder, BytesIO())
    body.add(full())
    with pytest.raises(ValueError, match="the use of 1"):
        body.add(full())
    body.give_up(error)
    assert recorder.seen() == ([1], True)
    assert not hasattr(error, "__notes__")


def test_what_cannot_be_written_is_refused_before_anything_starts(
    spark: SparkSession, lake: Lake
) -> None:
    """Formats that are not built, streams, columns of one name, no columns, types that Arrow does
    not have, options that its writer does not know: an error, and no job."""
    numbers = spark.range(3)
    stream = spark.readStream.format("rate").load()
    for df, told in (
        (stream, "foreachBatch"),
        (numbers.select("id", "id"), "two columns of one name: id"),
        (numbers.select(), "no columns"),
    ):
        with pytest.raises(mc.OptionError, match=told):
            write_dataframe(df, lake.dest)
    with pytest.raises(mc.OptionError, match="there is parquet, csv, json, text, orc, arrow"):
        write_dataframe(numbers, lake.dest, "xlsx")
    with pytest.raises(mc.OptionError, match="column lasts: the type interval cannot be kept"):
        write_dataframe(spark.sql("SELECT make_interval(1) AS lasts"), lake.dest)
    with pytest.raises(TypeError, match="no_such_option"):
        write_dataframe(numbers, lake.dest, writer_options={"no_such_option": 1})
    assert lake.is_untouched()

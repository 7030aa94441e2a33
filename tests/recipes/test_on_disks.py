"""The recipes with a destination of files: a local disk in place of S3, and nothing else."""

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from examples.recipes import directories, with_pandas, with_polars, with_pyarrow

DAYS = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})


class Broken(Exception):
    """The writer gave up."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A destination that is not there yet; the blank must be encoded in URLs."""
    return tmp_path / "a table"


def names(table: Path) -> list[str]:
    """What is there, without the job's UUID; records of ended jobs and markers left out."""
    found = (path.relative_to(table).as_posix() for path in table.rglob("*") if path.is_file())
    shown = [name for name in found if name != "_SUCCESS"]
    return sorted(re.sub(r"-mcj[0-9a-f]{32}", "", name) for name in shown)


def numbers(table: Path) -> list[int]:
    """The column ``n`` of all Parquet files."""
    read = [pq.read_table(io.BytesIO(path.read_bytes())) for path in table.rglob("*.parquet")]
    return sorted(number for one in read for number in one["n"].to_pylist())


def test_pandas_replaces_the_days_that_it_writes(table: Path) -> None:
    """The recipe of S3, as it is; another export of one day replaces that day."""
    sales = pd.DataFrame({"day": ["1", "1", "2"], "n": [1, 2, 3]})
    with_pandas.export(sales, table.as_uri())
    with_pandas.export(pd.DataFrame({"day": ["2"], "n": [9]}), table.as_uri())
    assert numbers(table) == [1, 2, 9]
    kinds = ("csv", "parquet")
    assert names(table) == [f"day={day}/part-0.{kind}" for day in "12" for kind in kinds]


def test_pandas_writes_through_the_file_system(table: Path) -> None:
    """One file by its name, and a directory of partitions."""
    frame = DAYS.to_pandas()
    with mc.write(table.as_uri()) as job:
        frame.to_parquet("one/x.parquet", filesystem=job.filesystem())
        frame.to_parquet("many", filesystem=job.filesystem(), partition_cols=["day"])
        read = pd.read_parquet("one/x.parquet", filesystem=job.filesystem())
        assert read["n"].tolist() == [1, 2, 3]
        assert not (table / "one").exists()
    assert pd.read_parquet(table / "many")["n"].tolist() == [1, 2, 3]
    assert pd.read_parquet(table / "one")["day"].tolist() == ["a", "a", "b"]


def test_pandas_writes_to_a_url_of_the_open_block(table: Path) -> None:
    """``magic://`` and the path; fsspec finds it by the package's entry point."""
    import_module("fsspec").register_implementation(
        "magic", "magic_committer.filesystem.urls.MagicUrls", clobber=True
    )
    with mc.write(table.as_uri()):
        DAYS.to_pandas().to_csv(f"magic://{table}/x.csv", index=False)
        assert not (table / "x.csv").exists()
    assert pd.read_csv(table / "x.csv")["n"].tolist() == [1, 2, 3]


def test_pyarrow_writes_a_dataset(table: Path) -> None:
    """A directory for each day, twice: the second run replaces what it writes."""
    for _ in range(2):
        directories.partitions(DAYS, table.as_uri())
    assert names(table) == ["day=a/part-0.parquet", "day=b/part-0.parquet"]
    assert numbers(table) == [1, 2, 3]


def test_a_dataset_that_fails_half_way_is_not_there(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has written and closed its files: nothing of them is left anywhere."""
    real = ds.write_dataset

    def breaks(*args: object, **named: object) -> None:
        real(*args, **named)
        raise Broken

    monkeypatch.setattr(ds, "write_dataset", breaks)
    with pytest.raises(Broken):
        directories.partitions(DAYS, table.as_uri())
    assert names(table) == []


def test_pyarrow_publishes_nothing_when_the_source_breaks(table: Path) -> None:
    """pyarrow closes its file when an exception leaves it; nothing appears all the same."""
    schema = pa.schema([("n", pa.int64())])

    def batches() -> object:
        yield pa.record_batch([[1]], schema=schema)
        raise Broken

    with pytest.raises(Broken):
        with_pyarrow.export(schema, batches(), table.as_uri())  # type: ignore[arg-type]
    assert names(table) == []


def test_polars_writes_partitions(table: Path) -> None:
    """A file for each day, by the streaming engine."""
    with_polars.partitions(pl.from_arrow(DAYS).lazy(), "day", table.as_uri())  # type: ignore[union-attr]
    assert names(table) == ["day=a/part-00000.parquet", "day=b/part-00000.parquet"]
    assert numbers(table) == [1, 2, 3]


@pytest.mark.parametrize("bad", [False, True])
def test_duckdb_writes_partitions(table: Path, bad: bool) -> None:
    """COPY … PARTITION_BY, all of it; of a query that fails half-way nothing."""
    duckdb = pytest.importorskip("duckdb")
    recipe = import_module("examples.recipes.with_duckdb")
    query = "select 'd' || (n % 2) as day, n from range(100) t(n)"
    if bad:
        query += " union all select 'd9', error('bad row')::bigint"
    with duckdb.connect() as connection:
        if bad:
            with pytest.raises(duckdb.Error, match="bad row"):
                recipe.export(connection, query, f"file://{table}")
        else:
            recipe.export(connection, query, f"file://{table}")
    assert numbers(table) == ([] if bad else list(range(100)))
    assert len(names(table)) == (0 if bad else len(list(table.glob("day=*/*"))))


def test_a_directory_that_is_there_is_published(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces what was there; what is left out is told."""
    source = tmp_path / "source"
    (source / "v1").mkdir(parents=True)
    (source / "v1" / "model.bin").write_bytes(b"123")
    (source / ".git").mkdir()
    table.mkdir()
    (table / "old").touch()
    directories.publish(source, table.as_uri())
    assert names(table) == ["v1/model.bin"]
    assert capsys.readouterr().out == "1 file, 3 bytes; left out: .git\n"


def test_a_database_is_published(table: Path) -> None:
    """A library that seeks: a local file, copied to its place when it is closed."""
    directories.database([("a", 1)], table.as_uri())
    assert names(table) == ["sales.db"]

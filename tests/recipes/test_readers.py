"""Readers of a table of ours: each reads the rows that were published, and nothing else.

`make apart ONLY=recipes` installs Dask, DuckDB and Hugging Face's datasets; Spark reads the same
tables in tests/spark/test_readers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pytest

import magic_committer as mc
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.testing import MemoryStore, memory_store
from tests.nightly import library

DEST = "s3://bucket/t"
ROWS = pd.DataFrame({"x": [1, 2, 3]})


def one_task(job: mc.Job, name: str) -> mc.TaskCommit:
    """A committed task with one file of three rows."""
    with job.task("1") as task, task.open(name) as file:
        ROWS.to_parquet(file)
    return task.result


def by_write(store: MemoryStore) -> None:
    """By the driver that started it: no control object but `_SUCCESS` remains."""
    with mc.write(DEST) as job, job.open("a.parquet") as file:
        ROWS.to_parquet(file)


def by_another_process(store: MemoryStore) -> None:
    """A closed record remains."""
    job = mc.start(DEST)
    result = one_task(job, "a.parquet")
    mc.Job.from_dict(job.to_dict()).commit([result])


def by_given_ids(store: MemoryStore) -> None:
    """A closed record of each id remains."""
    job = mc.start(DEST, job_id="2026-11-24")
    job.commit([one_task(job, "a.parquet")])
    mc.start(DEST, job_id="2026-11-25").abort()


def by_a_stream(store: MemoryStore) -> None:
    """The query's ledger remains."""
    job = mc.start(DEST, checkpoint="s3://bucket/checkpoint")
    job.commit([one_task(job, "a.parquet")], batch=mc.StreamBatch("query", 7))


def beside_a_job_at_work(store: MemoryStore) -> None:
    """With a committed task, a task that is not, a sign of life and a plan."""
    by_write(store)
    job = mc.start(DEST, job_id="at-work")
    one_task(job, "b.parquet")
    with job.task("2").open("c.parquet") as file:
        ROWS.to_parquet(file)
    paths = JobPaths(Destination.parse(DEST), job.id)
    for key in (paths.alive, paths.plan("nonce")):
        store.put_object(key, b"{}")


TABLES = (by_write, by_another_process, by_given_ids, by_a_stream, beside_a_job_at_work)


def mirrored(make: Callable[[MemoryStore], None], folder: Path) -> str:
    """A table that was written to a store in memory, as a directory with the same names."""
    with memory_store() as store:
        make(store)
        for key in store.keys("t/"):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(store.body(key))
    return f"{folder}/t"


def hugging_face(table: str) -> int:
    load = library("datasets").load_dataset
    files = f"{table}/*.parquet"
    return len(load("parquet", data_files=files, split="train", cache_dir=f"{table}-cache"))


def duckdb(table: str) -> int:
    return len(library("duckdb").sql(f"from '{table}/*.parquet'").fetchall())


PL_DIRECTORY = "polars, a directory"
READERS: dict[str, Callable[[str], int]] = {
    PL_DIRECTORY: lambda t: pl.scan_parquet(f"{t}/", hidden_file_prefix="_").collect().height,
    "polars, a pattern": lambda t: pl.scan_parquet(f"{t}/*.parquet").collect().height,
    "pandas": lambda t: len(pd.read_parquet(t)),
    "pyarrow": lambda t: int(ds.dataset(t).count_rows()),
    "duckdb": duckdb,
    "dask": lambda t: len(library("dask.dataframe").read_parquet(t)),
    "hugging face": hugging_face,
}


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("reader", READERS)
def test_readers_find_the_published_rows(
    reader: str, make: Callable[[MemoryStore], None], tmp_path: Path
) -> None:
    """Each by the call that its recipe names, whatever control objects stand beside the data."""
    if (reader, make) == (PL_DIRECTORY, beside_a_job_at_work):
        pytest.skip("a `.pending` has Hadoop's name")
    assert READERS[reader](mirrored(make, tmp_path)) == 3


@pytest.mark.parametrize("make", TABLES)
def test_control_objects_have_names_that_readers_skip(
    make: Callable[[MemoryStore], None],
) -> None:
    """They begin with ``_``, but for a ``.pending`` and its marker of no bytes."""
    with memory_store() as store:
        written: set[str] = set()
        store.before = lambda request: written.add(request.key) if request.verb == "put" else None
        make(store)
    names = {key.rpartition("/")[2] for key in written}
    assert len(names) > 2
    hadoops = {name for name in names if name.endswith(".pending")}
    hadoops |= {name.removesuffix(".pending") for name in hadoops}
    assert not [name for name in names - hadoops if not name.startswith("_")]

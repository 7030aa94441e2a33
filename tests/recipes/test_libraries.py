"""Recipes with libraries that `make test` does not install (the dependency group ``recipes``): each
writes what its page says, and publishes nothing when it fails half-way.

    pip install --group recipes; python -m pytest tests/recipes/test_libraries.py
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore
from tests.destinations import InBucket, There
from tests.servers import moto_in_the_environment, outside
from tests.servers import moto_options as way

TABLE = "s3://bucket/table"
pytestmark = pytest.mark.filterwarnings("default")  # other libraries warn of each other


class Broken(Exception):
    """The store gave up."""


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """moto's server, which workers find by the environment: what S3's own client sees of it."""
    with moto_in_the_environment() as url:
        yield outside(way(url))


def recipe(name: str, *needs: str) -> ModuleType:
    """A recipe, if its libraries are installed."""
    for library in needs:
        pytest.importorskip(library)
    return import_module(f"examples.recipes.{name}")


def breaks(store: MemoryStore, files: int = 2) -> None:
    """Let the store refuse the next file after so many."""
    seen = 0

    def refuse(request: Request) -> None:
        nonlocal seen
        seen += request.verb == "create_upload"
        if request.verb == "create_upload" and seen > files:
            raise mc.errors.PermissionDenied("no", operation=request.verb, key=request.key)

    store.before = refuse


def left(store: MemoryStore) -> tuple[object, ...]:
    store.before = None
    return (*store.keys(), *store.open_uploads())


def parquet(store: MemoryStore, column: str) -> list[Any]:
    """A column of all files of the table."""
    keys = [key for key in sorted(store.keys("table/")) if key.endswith(".parquet")]
    return [v for k in keys for v in pq.read_table(io.BytesIO(store.body(k)))[column].to_pylist()]


# Writers of directories ---------------------------------------------------------------------------


DAYS = "select 'd' || (i % 4) as day, i as n from range(1000) t(i)"


def rows_of(there: There) -> list[int]:
    """The column ``n`` of all files."""
    files = [body for name, body in there.data().items() if name.endswith(".parquet")]
    return sorted(n for one in files for n in pq.read_table(io.BytesIO(one))["n"].to_pylist())


def test_duckdb_writes_partitions(there: There) -> None:
    """COPY … PARTITION_BY: a directory for each day; a second run replaces it."""
    duck = recipe("with_duckdb", "duckdb")
    for _ in range(2):
        with import_module("duckdb").connect() as connection:
            duck.export(connection, DAYS, there.url)
    assert rows_of(there) == list(range(1000))
    assert {name.split("/")[0] for name in there.data()} == {f"day=d{n}" for n in range(4)}


@pytest.mark.parametrize("by", ["the query", "the store"])
def test_duckdb_publishes_nothing_when_it_fails(there: There, by: str) -> None:
    """Half-way."""
    duck, query = recipe("with_duckdb", "duckdb"), DAYS
    if by == "the query":
        query = f"{DAYS} union all select 'd9', error('bad row')::bigint"
    elif isinstance(there, InBucket):
        breaks(there.store)
    else:
        pytest.skip("a disk refuses elsewhere")
    with import_module("duckdb").connect() as connection, pytest.raises(Exception) as told:  # noqa: PT011  # DuckDB's, or ours
        duck.export(connection, query, there.url)
    assert ("bad row" in str(told.value)) == (by == "the query")
    assert there.names() == there.left() == []


def test_dask_writes_a_frame(memory_s3: MemoryStore) -> None:
    """Three partitions, by threads."""
    with_dask = recipe("with_dask", "dask.dataframe", "distributed")
    frame = import_module("dask.dataframe").from_pandas(
        pd.DataFrame({"n": range(9)}), npartitions=3
    )
    with_dask.export_from_here(frame, TABLE)
    assert parquet(memory_s3, "n") == list(range(9))


def test_dask_publishes_nothing_when_it_fails(memory_s3: MemoryStore) -> None:
    """A partition that cannot be written."""
    with_dask = recipe("with_dask", "dask.dataframe", "distributed")
    frame = import_module("dask.dataframe").from_pandas(
        pd.DataFrame({"n": range(9)}), npartitions=3
    )
    breaks(memory_s3)
    with pytest.raises(mc.UploadFailed):
        with_dask.export_from_here(frame, TABLE)
    assert left(memory_s3) == ()


def test_zarr_writes_chunks(memory_s3: MemoryStore, tmp_path: Path) -> None:
    """All chunks and the metadata, which zarr itself reads."""
    with_zarr = recipe("with_zarr", "zarr")
    array = np.arange(1000).reshape(100, 10)
    with_zarr.export(array, 30, TABLE)
    for key in memory_s3.keys("table/a.zarr"):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(memory_s3.body(key))
    read = import_module("zarr").open_array(tmp_path / "table" / "a.zarr", mode="r")
    assert (read[:] == array).all()


def test_zarr_publishes_nothing_when_it_fails(memory_s3: MemoryStore) -> None:
    """A chunk that cannot be written."""
    with_zarr = recipe("with_zarr", "zarr")
    breaks(memory_s3)
    with pytest.raises(mc.UploadFailed):
        with_zarr.export(np.arange(1000).reshape(100, 10), 30, TABLE)
    assert left(memory_s3) == ()


def test_h5py_writes_a_file(memory_s3: MemoryStore) -> None:
    """It seeks in a local file; h5py reads what was published."""
    with_h5py = recipe("with_h5py", "h5py")
    with_h5py.export({"x": np.arange(10)}, TABLE)
    (key,) = memory_s3.keys("table/arrays")
    with import_module("h5py").File(io.BytesIO(memory_s3.body(key))) as data:
        assert data["x"][:].tolist() == list(range(10))


def test_h5py_publishes_nothing_when_it_fails(memory_s3: MemoryStore) -> None:
    """The second array is none."""
    with_h5py = recipe("with_h5py", "h5py")
    with pytest.raises(TypeError):
        with_h5py.export({"x": np.arange(10), "y": object()}, TABLE)
    assert left(memory_s3) == ()


def words(rows: int = 1000) -> Any:
    """A data set of Hugging Face."""
    return import_module("datasets").Dataset.from_dict(
        {"n": list(range(rows)), "word": [f"word {n}" for n in range(rows)]}
    )


def to_disk(store: MemoryStore, path: Path) -> Path:
    """Copy what is visible of the table, under its keys."""
    for key in store.keys("table/"):
        there = path / key
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(store.body(key))
    return path / "table"


def test_huggingface_saves_to_disk(memory_s3: MemoryStore, tmp_path: Path) -> None:
    """A data set, or one of splits, which `load_from_disk` reads; the second replaces the first."""
    huggingface = recipe("with_huggingface", "datasets")
    datasets = import_module("datasets")
    huggingface.save(words(), TABLE)
    assert datasets.load_from_disk(str(to_disk(memory_s3, tmp_path / "a")))[999]["n"] == 999
    splits = datasets.DatasetDict({"train": words(9), "test": words(3)})
    report = huggingface.save(splits, TABLE)
    read = datasets.load_from_disk(str(to_disk(memory_s3, tmp_path / "b")))
    assert {name: len(part) for name, part in read.items()} == {"train": 9, "test": 3}
    assert report.outcome == "committed"
    assert "table/state.json" not in memory_s3.keys()


def test_huggingface_publishes_nothing_when_it_fails(memory_s3: MemoryStore) -> None:
    """A file that cannot be written, the third; and processes of its own, which do not know the
    block: an error, and nothing is there."""
    huggingface = recipe("with_huggingface", "datasets")
    breaks(memory_s3)
    with pytest.raises((mc.UploadFailed, mc.StoreError)):
        huggingface.save(words(), TABLE)
    assert left(memory_s3) == ()
    with pytest.raises(Exception, match=r"no job writes|write\("), mc.write(TABLE):
        words().save_to_disk("magic://bucket/table", num_proc=2)
    assert left(memory_s3) == ()


def test_huggingface_shards_are_written_by_processes(server: Any) -> None:
    """Three shards by two processes, with all rows; one that fails finally publishes nothing."""
    huggingface = recipe("with_huggingface", "datasets")
    make = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))
    report = huggingface.save_shards(words(10), "s3://bucket/shards", 3, make)
    assert report.returned == (4, 3, 3)
    assert len(visible(server, "shards/data-")) == 3
    with pytest.raises(mc.TaskFailed, match=r"item 2 .*failed 3 times: IndexError"):
        huggingface.save_shards(words(2), "s3://bucket/too-many", 3, make)
    assert not visible(server, "too-many/data-")
    assert not is_open(server, "")


# Clusters -----------------------------------------------------------------------------------------


def visible(client: Any, prefix: str) -> list[str]:
    """Keys below a prefix, without the UUID of the job."""
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return sorted(one["Key"] for one in found)


def is_open(client: Any, prefix: str) -> list[str]:
    found = client.list_multipart_uploads(Bucket="bucket", Prefix=prefix)
    return [one["Key"] for one in found.get("Uploads", [])]


def killed_once(mark: str, number: int) -> None:
    """Kill this process, the first time."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_joblib_replaces_a_killed_worker(server: Any, tmp_path: Path) -> None:
    """loky's pool breaks; run() gets another one, and every model is there once."""
    joblib = recipe("with_joblib", "joblib")
    fit, mark = joblib.fit, str(tmp_path / "killed")

    def fit_or_die(task: mc.Task, seed: int) -> float:  # cloudpickle takes it to the worker
        if seed == 3:
            killed_once(mark, seed)
        done: float = fit(task, seed)
        return done

    report = mc.run(
        "s3://bucket/models", fit_or_die, range(8),
        executor=lambda: joblib.get_reusable_executor(max_workers=2),
    )  # fmt: skip
    assert report.returned == tuple(seed * 5.0 for seed in range(8))
    assert report.tries > 8
    assert len(visible(server, "models/model-")) == 8
    assert joblib.train(range(3), "s3://bucket/more").files == 3
    assert not is_open(server, "")


def test_dask_workers_write(server: Any) -> None:
    """Tasks on a local cluster of processes; an item that always fails publishes nothing."""
    with_dask = recipe("with_dask", "dask.dataframe", "distributed")
    distributed = import_module("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        report = with_dask.on_a_cluster(client, [range(5), range(3)], "s3://bucket/dasked")
        assert (report.files, report.returned) == (2, (10, 6))
        with pytest.raises(mc.TaskFailed, match="failed 3 times"):
            with_dask.on_a_cluster(client, [range(5), 7], "s3://bucket/dask-failed")
    assert len(visible(server, "dasked/part-")) == 2
    assert not visible(server, "dask-failed")
    assert not is_open(server, "")


def test_ray_workers_write(server: Any, tmp_path: Path) -> None:
    """Tasks of Ray; a worker that is killed is a failed try; a final failure publishes nothing."""
    with_ray = recipe("with_ray", "ray")
    ray = import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    try:
        assert with_ray.export(range(4), "s3://bucket/rayed").returned == (2, 2, 2, 2)
        mark, write = str(tmp_path / "killed"), with_ray.write_part

        def write_or_die(task: mc.Task, number: int) -> int:
            if number == 2:
                killed_once(mark, number)
            done: int = write(task, number)
            return done

        executor = with_ray.RayExecutor()
        report = mc.run("s3://bucket/ray-killed", write_or_die, range(4), executor=executor)
        assert (report.files, report.tries) == (4, 5)
        with pytest.raises(mc.TaskFailed, match="failed 3 times"):
            mc.run("s3://bucket/ray-failed", lambda task, n: 1 / n, [1, 0], executor=executor)
    finally:
        ray.shutdown()
    assert len(visible(server, "rayed/part-")) == 4
    assert not visible(server, "ray-failed")
    assert not is_open(server, "")

"""Recipes with libraries that `make apart ONLY=recipes` installs: each writes what its page says,
and publishes nothing when it fails half-way."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from magic_committer.testing import MemoryStore
from tests.destinations import InBucket, There
from tests.engines.seen import Bucket, killed_once
from tests.nightly import library
from tests.promises.hands import raising
from tests.servers import moto_in_the_environment, outside
from tests.servers import moto_options as way

TABLE = "s3://bucket/table"
pytestmark = pytest.mark.filterwarnings("default")  # other libraries warn of each other


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    """moto's server, which workers find by the environment: what S3's own client sees of it."""
    with moto_in_the_environment() as url:
        yield Bucket(outside(way(url)))


def recipe(name: str, *needs: str) -> ModuleType:
    """A recipe, if its libraries are installed."""
    for need in needs:
        library(need)
    return import_module(f"examples.recipes.{name}")


@contextmanager
def broken(store: MemoryStore, *errors: type[Exception]) -> Iterator[None]:
    """The store refuses the third file of the block: an error comes out, and nothing is left."""
    number = count()
    refused = mc.errors.PermissionDenied("no")
    store.before = raising(lambda r: r.verb == "create_upload" and next(number) >= 2, refused)
    with pytest.raises(errors or mc.UploadFailed):
        yield
    store.before = None
    nothing_is_left(store)


def nothing_is_left(store: MemoryStore) -> None:
    assert (*store.keys("table/"), *store.open_uploads()) == ()


DAYS = "select 'd' || (i % 4) as day, i as n from range(1000) t(i)"


def test_duckdb_writes_partitions(there: There) -> None:
    """A second run replaces the days; a query that fails half-way publishes nothing."""
    duck = recipe("with_duckdb", "duckdb")
    with import_module("duckdb").connect() as connection:
        with pytest.raises(Exception, match="bad row"):
            bad = f"{DAYS} union all select 'd9', error('bad row')::bigint"
            duck.export(connection, bad, there.url)
        assert there.names() == there.left() == []
        if isinstance(there, InBucket):
            with broken(there.store, Exception):
                duck.export(connection, DAYS, there.url)
            assert there.names() == []
        for _ in range(2):
            duck.export(connection, DAYS, there.url)
    files = [body for name, body in there.data().items() if name.endswith(".parquet")]
    found = [n for one in files for n in pq.read_table(io.BytesIO(one))["n"].to_pylist()]
    assert sorted(found) == list(range(1000))
    assert {name.split("/")[0] for name in there.data()} == {f"day=d{n}" for n in range(4)}


def test_dask_writes_from_here(memory_s3: MemoryStore) -> None:
    """Three partitions, by threads; one that cannot be written publishes nothing."""
    with_dask = recipe("with_dask", "dask.dataframe", "distributed")
    numbers = pd.DataFrame({"n": range(9)})
    frame = import_module("dask.dataframe").from_pandas(numbers, npartitions=3)
    with broken(memory_s3):
        with_dask.export_from_here(frame, TABLE)
    with_dask.export_from_here(frame, TABLE)
    files = [memory_s3.body(key) for key in memory_s3.keys("table/") if key.endswith(".parquet")]
    found = [n for one in files for n in pq.read_table(io.BytesIO(one))["n"].to_pylist()]
    assert sorted(found) == list(range(9))


def to_disk(store: MemoryStore, path: Path) -> Path:
    """Copy what is visible of the table, under its keys."""
    for key in store.keys("table/"):
        there = path / key
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(store.body(key))
    return path / "table"


def test_zarr_writes_chunks(memory_s3: MemoryStore, tmp_path: Path) -> None:
    """All chunks and the metadata, which zarr itself reads, or nothing."""
    with_zarr = recipe("with_zarr", "zarr")
    array = np.arange(1000).reshape(100, 10)
    with broken(memory_s3):
        with_zarr.export(array, 30, TABLE)
    with_zarr.export(array, 30, TABLE)
    read = import_module("zarr").open_array(to_disk(memory_s3, tmp_path) / "a.zarr", mode="r")
    assert (read[:] == array).all()


def test_h5py_writes_a_file(memory_s3: MemoryStore) -> None:
    """It seeks in a local file; an array that is none publishes nothing."""
    with_h5py = recipe("with_h5py", "h5py")
    with pytest.raises(TypeError):
        with_h5py.export({"x": np.arange(10), "y": object()}, TABLE)
    nothing_is_left(memory_s3)
    with_h5py.export({"x": np.arange(10)}, TABLE)
    (key,) = memory_s3.keys("table/arrays")
    with import_module("h5py").File(io.BytesIO(memory_s3.body(key))) as data:
        assert data["x"][:].tolist() == list(range(10))


def words(rows: int = 1000) -> Any:
    """A data set of Hugging Face."""
    texts = [f"word {n}" for n in range(rows)]
    return import_module("datasets").Dataset.from_dict({"n": list(range(rows)), "word": texts})


def test_huggingface_saves_to_disk(memory_s3: MemoryStore, tmp_path: Path) -> None:
    """A data set, or one of splits, which `load_from_disk` reads; the second replaces the first."""
    huggingface = recipe("with_huggingface", "datasets")
    datasets = import_module("datasets")
    with broken(memory_s3, mc.UploadFailed, mc.StoreError):
        huggingface.save(words(), TABLE)
    with pytest.raises(Exception, match=r"no job writes|write\("), mc.write(TABLE):
        words().save_to_disk("magic://bucket/table", num_proc=2)
    nothing_is_left(memory_s3)
    huggingface.save(words(), TABLE)
    assert datasets.load_from_disk(str(to_disk(memory_s3, tmp_path / "a")))[999]["n"] == 999
    splits = datasets.DatasetDict({"train": words(9), "test": words(3)})
    report = huggingface.save(splits, TABLE)
    read = datasets.load_from_disk(str(to_disk(memory_s3, tmp_path / "b")))
    assert {name: len(part) for name, part in read.items()} == {"train": 9, "test": 3}
    assert report.outcome == "committed"
    assert "table/state.json" not in memory_s3.keys()


def test_huggingface_shards_are_written_by_processes(server: Bucket) -> None:
    """Three shards by two processes, with all rows; one that fails finally publishes nothing."""
    huggingface = recipe("with_huggingface", "datasets")
    make = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))
    report = huggingface.save_shards(words(10), "s3://bucket/shards", 3, make)
    assert report.returned == (4, 3, 3)
    assert len([name for name in server.data("shards") if name.startswith("data-")]) == 3
    with pytest.raises(mc.TaskFailed, match=r"item 2 .*failed 3 times: IndexError"):
        huggingface.save_shards(words(2), "s3://bucket/too-many", 3, make)
    assert server.left("too-many") == server.open_beginning("") == []


def test_joblib_replaces_a_killed_worker(server: Bucket, tmp_path: Path) -> None:
    """loky's pool breaks; run() gets another one, and every model is there once."""
    joblib = recipe("with_joblib", "joblib")
    fit, mark = joblib.fit, str(tmp_path / "killed")

    def fit_or_die(task: mc.Task, seed: int) -> float:  # cloudpickle takes it to the worker
        if seed == 3:
            killed_once(mark)
        done: float = fit(task, seed)
        return done

    def pool() -> Any:
        return joblib.get_reusable_executor(max_workers=2)

    report = mc.run("s3://bucket/models", fit_or_die, range(8), executor=pool)
    assert report.returned == tuple(seed * 5.0 for seed in range(8))
    assert report.tries > 8
    assert len(server.data("models")) == 8
    assert joblib.train(range(3), "s3://bucket/more").files == 3
    assert not server.open_beginning("")


def test_dask_workers_write(server: Bucket) -> None:
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
    assert len(server.data("dasked")) == 2
    assert server.left("dask-failed") == server.open_beginning("") == []


def test_ray_workers_write(server: Bucket, tmp_path: Path) -> None:
    """Tasks of Ray; a worker that is killed is a failed try; a final failure publishes nothing."""
    with_ray = recipe("with_ray", "ray")
    ray = import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    try:
        assert with_ray.export(range(4), "s3://bucket/rayed").returned == (2, 2, 2, 2)
        mark, write = str(tmp_path / "killed"), with_ray.write_part

        def write_or_die(task: mc.Task, number: int) -> int:
            if number == 2:
                killed_once(mark)
            done: int = write(task, number)
            return done

        executor = with_ray.RayExecutor()
        report = mc.run("s3://bucket/ray-killed", write_or_die, range(4), executor=executor)
        assert (report.files, report.tries) == (4, 5)
        with pytest.raises(mc.TaskFailed, match="failed 3 times"):
            mc.run("s3://bucket/ray-failed", lambda task, n: 1 / n, [1, 0], executor=executor)
    finally:
        ray.shutdown()
    assert len(server.data("rayed")) == 4
    assert server.left("ray-failed") == server.open_beginning("") == []

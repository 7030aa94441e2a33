"""`write_delayed` and `to_parquet` by Dask's own schedulers, and on a local cluster of processes
whose workers are killed; nothing half-way is ever visible."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from magic_committer.testing import MemoryStore
from tests.engines.seen import Bucket, die, killed_once, until_open
from tests.nightly import library

dask = library("dask")
dd = library("dask.dataframe")

from magic_committer.engines.dask import to_parquet, write_delayed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own
TABLE = "s3://bucket/table"
HERE = {"scheduler": "sync"}


def frame(rows: int = 9, parts: int = 3) -> Any:
    """A data frame of numbers, each with its day."""
    days = pd.DataFrame({"n": range(rows), "day": [f"d{n % 2}" for n in range(rows)]})
    return dd.from_pandas(days, npartitions=parts)


def parquet(store: MemoryStore, part: str = "") -> list[int]:
    """The numbers in all files whose key contains a text."""
    keys = [key for key in store.keys() if key.endswith(".parquet") and part in key]
    return sorted(
        n for k in keys for n in pq.read_table(io.BytesIO(store.body(k)))["n"].to_pylist()
    )


def write_text(task: mc.Task, part: Any) -> int:
    """A user's function: a file for each part; a part below 0 cannot be written."""
    with task.open(f"{task.task_id}.csv", "w", unique=True) as file:
        file.write("half of it\n")
        if part < 0:
            raise ValueError("bad part")
        return file.write(f"{part}\n")


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_each_partition_is_a_task(memory_s3: MemoryStore, scheduler: str) -> None:
    """A file for each that has rows; what was returned is in the order of the parts."""
    way = {"scheduler": scheduler}
    report = to_parquet(frame(), TABLE, compute=way)
    assert (report.outcome, report.tasks, report.files) == ("committed", 3, 3)
    assert parquet(memory_s3) == list(range(9))
    few = frame().map_partitions(lambda part: part[part["n"] < 3], meta=frame()._meta)
    assert few.npartitions == 3
    assert to_parquet(few, f"{TABLE}-few", compute=way).files == 1
    assert parquet(memory_s3, "table-few/") == [0, 1, 2]
    parts = [dask.delayed(7), 10, dask.delayed(lambda: 100)()]
    report = write_delayed(parts, TABLE, write_text, compute=way)
    assert (report.returned, report.files, report.tries) == ((2, 3, 4), 3, 0)


def test_the_columns_of_a_frame_become_directories(memory_s3: MemoryStore) -> None:
    """A second write replaces the days that it has."""
    to_parquet(frame(), TABLE, partition_on=["day"], compute=HERE)
    only = frame()[frame()["n"] == 1]
    to_parquet(only, TABLE, partition_on=["day"], mode="overwrite_partitions", compute=HERE)
    assert parquet(memory_s3, "day=d0/") == [0, 2, 4, 6, 8]
    assert parquet(memory_s3, "day=d1/") == [1]


def test_pandas_gets_what_is_for_it(memory_s3: MemoryStore) -> None:
    """The codec; and the index becomes a column."""
    to_parquet(frame(), TABLE, write_index=True, of_format={"compression": "zstd"}, compute=HERE)
    read = pq.ParquetFile(io.BytesIO(memory_s3.body(memory_s3.keys("table/part")[0])))
    assert read.schema_arrow.names == ["n", "day", "__index_level_0__"]
    assert read.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: write_delayed([], TABLE, write_text), "no part to write"),
        (lambda: write_delayed("abc", TABLE, write_text), "a list of delayed values"),
        (lambda: write_delayed(frame(), TABLE, write_text), "not DataFrame"),  # names of columns
        (lambda: write_delayed([1], TABLE, cast(Any, 7)), "needs a function"),
        (lambda: write_delayed([1], "table", write_text), "not an S3 URL"),
        (lambda: to_parquet(pd.DataFrame({"n": [1]}), TABLE), "a data frame of Dask"),
        (lambda: to_parquet(frame().n, TABLE), "a data frame of Dask, not Series"),
        (lambda: to_parquet(frame()[["day"]], TABLE, partition_on=["day"]), "no rows"),
        (lambda: to_parquet(frame()[[]], TABLE), "no columns, and no rows"),
        (lambda: to_parquet(frame(), TABLE, partition_on="day"), "a list of columns"),
        (lambda: to_parquet(frame(), TABLE, partition_on=["dya"]), "no column 'dya'"),
        (lambda: to_parquet(frame(), TABLE, of_format={"engine": "x"}), "'engine' is decided"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(
    memory_s3: MemoryStore, wrong: Callable[[], object], told: str
) -> None:
    """The error shows what it got; no job is started."""
    with pytest.raises(mc.MagicError, match=told):
        wrong()
    assert memory_s3.keys() == ()


def test_the_recipe_of_its_page(memory_s3: MemoryStore) -> None:
    """A frame and a bag, each all or nothing."""
    from examples.recipes import with_dask

    with dask.config.set(scheduler="sync"):
        with_dask.export(frame(), TABLE)
        assert parquet(memory_s3, "day=d1/") == [1, 3, 5, 7]
        lines = import_module("dask.bag").from_sequence(["a", "b", "c"], npartitions=2)
        assert sum(with_dask.export_lines(lines, TABLE).returned) == 6
        assert parquet(memory_s3) == []
        bad = lines.map(lambda line: 1 / (line != "c"))
        with pytest.raises(ZeroDivisionError):
            with_dask.export_lines(bad, "s3://bucket/bad")
    assert memory_s3.keys("bad/") == ()
    assert not memory_s3.open_uploads()


NO_WORKERS = "distributed.scheduler.no-workers-timeout"
PATIENT = {
    NO_WORKERS: "300s",
    "distributed.comm.timeouts.connect": "300s",
    # Else a worker's nanny is closed for good if the worker is away 15 s after a death of it.
    "distributed.deploy.lost-worker-timeout": "300s",
}


@pytest.fixture(scope="module")
def cluster(server: Bucket) -> Iterator[Bucket]:
    """Two worker processes, and the bucket that they write to."""
    distributed = library("distributed")
    with (
        dask.config.set(PATIENT),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        distributed.Client(workers),
    ):
        yield server


def test_a_call_that_no_worker_is_left_for_ends(memory_s3: MemoryStore) -> None:
    """As soon as Dask gives it up: the job is aborted."""
    distributed = library("distributed")
    with (
        dask.config.set({NO_WORKERS: "1s"}),
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as none,
        distributed.Client(none),
        pytest.raises(distributed.scheduler.NoWorkerError),
    ):
        write_delayed([1], TABLE, write_text)
    assert memory_s3.keys() == ()


@pytest.mark.parametrize("when", ["in the middle", "after the attempt"])
def test_a_killed_worker_is_replaced(cluster: Bucket, tmp_path: Path, when: str) -> None:
    """In the middle of its file, or when its attempt has committed and Dask does not know of it:
    each part is there once, and nothing is open."""
    mark = str(tmp_path / "killed")
    prefix = f"dask-killed-{when.split()[-1]}"

    def write(task: mc.Task, number: int) -> int:
        with task.open(f"{number}.csv", unique=True) as file:
            file.write(b"x" * 9_000_000)  # more than a block
            if number == 2 and when == "in the middle":
                until_open(f"{prefix}/2")
                killed_once(mark)
        if number == 2 and when == "after the attempt":
            task.commit()
            killed_once(mark)
        return number

    report = write_delayed(range(6), f"s3://bucket/{prefix}", write)
    assert Path(mark).exists()
    assert (report.files, report.tasks, report.returned) == (6, 6, tuple(range(6)))
    assert cluster.left(prefix) == [f"{number}.csv" for number in range(6)]


def test_a_call_that_raises_is_tried_again_if_dask_is_told_so(
    cluster: Bucket, tmp_path: Path
) -> None:
    """With retries; without them the job is aborted."""

    def write(task: mc.Task, mark: str) -> None:
        with task.open("a.csv", "w", unique=True) as file:
            file.write("half of it\n")
            if not Path(mark).exists():
                Path(mark).touch()
                raise OSError("not this time")

    dest = "s3://bucket/dask-tries"
    with pytest.raises(OSError, match="not this time"):
        write_delayed([str(tmp_path / "a")], dest, write)
    assert cluster.left("dask-tries") == []
    report = write_delayed([str(tmp_path / "b")], dest, write, compute={"retries": 1})
    assert (report.files, cluster.left("dask-tries")) == (1, ["a.csv"])
    framed = to_parquet(frame(100, 5), f"{dest}/frame", partition_on=["day"])
    assert framed.tasks == 5
    assert cluster.column("dask-tries/frame", "n") == list(range(100))


def test_a_call_that_always_kills_its_worker_publishes_nothing(cluster: Bucket) -> None:
    """Dask gives it up after the deaths that it allows."""

    def write(task: mc.Task, number: int) -> None:
        with task.open(f"{number}.csv", unique=True) as file:
            file.write(b"x" * 9_000_000)
            if number == 1:
                until_open("dask-crashes/1")
                die()

    with pytest.raises(import_module("distributed").KilledWorker):
        write_delayed(range(2), "s3://bucket/dask-crashes", write)
    assert cluster.left("dask-crashes") == []

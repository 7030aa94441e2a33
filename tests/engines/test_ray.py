"""`MagicDatasink` in a real local cluster of Ray, and call by call: killed workers, tasks that
fail, a driver that dies; nothing half-way is ever visible."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore
from tests.engines.seen import Bucket, die, killed_once, until_open
from tests.nightly import library

ray = library("ray.data")

from magic_committer.engines.ray import MagicDatasink, write_datasink  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own
ROOT = Path(__file__).resolve().parents[2]
TABLE = "s3://bucket/table"


@pytest.fixture(scope="module")
def cluster(server: Bucket) -> Iterator[Bucket]:
    """A cluster of Ray with two workers, and the bucket that they write to."""
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100 * 1024**2,
        configure_logging=False,
    )  # fmt: skip
    try:
        yield server
    finally:
        ray.shutdown()


def numbers(rows: int, blocks: int) -> Any:
    """A dataset of numbers, each with its day."""
    days = ray.range(rows, override_num_blocks=blocks)
    return days.map(lambda row: {"n": row["id"], "day": f"d{row['id'] % 2}"})


def test_a_dataset_is_written(cluster: Bucket) -> None:
    """Each write task is a task of the job; each row is there once."""
    sink = MagicDatasink("s3://bucket/whole", job_id="whole-1")
    numbers(100, 4).write_datasink(sink)
    assert cluster.column("whole", "n") == list(range(100))
    assert sink.report is not None
    assert (sink.report.outcome, sink.report.tasks, sink.report.job_id) == (
        "committed", 4, "whole-1",
    )  # fmt: skip
    assert cluster.open_uploads("whole") == []


def test_a_second_write_replaces_the_partitions_that_it_has(cluster: Bucket) -> None:
    """A directory for each value; another day stays."""
    dest = "s3://bucket/days"
    numbers(10, 2).write_datasink(MagicDatasink(dest, partition_by=["day"]))
    only = numbers(10, 2).filter(lambda row: row["day"] == "d1" and row["n"] < 4)
    again = MagicDatasink(dest, partition_by=["day"], mode="overwrite_partitions")
    report = write_datasink(only, again, concurrency=1)
    assert report.outcome == "committed"
    assert {name.split("/")[0] for name in cluster.data("days")} == {"day=d0", "day=d1"}
    assert cluster.column("days", "n") == [0, 1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize("when", ["in the middle", "after the attempt"])
def test_a_killed_worker_is_replaced(cluster: Bucket, tmp_path: Path, when: str) -> None:
    """In the middle of its file, or when its attempt has committed and Ray does not know of it:
    each row is there once, and nothing is open."""
    mark = str(tmp_path / "killed")
    prefix = f"killed-{when.split()[-1]}"

    def write(task: mc.Task, tables: Iterable[pa.Table]) -> None:
        with task.open(f"{task.task_id}.csv", unique=True) as file:
            file.write(b"x" * 9_000_000)  # more than a block
            if task.task_id == "1" and when == "in the middle":
                until_open(f"{prefix}/1")
                killed_once(mark)
            for table in tables:
                file.write("".join(f"{n}\n" for n in table["n"].to_pylist()).encode())
        if task.task_id == "1" and when == "after the attempt":
            task.commit()
            killed_once(mark)

    report = write_datasink(numbers(40, 4), MagicDatasink(f"s3://bucket/{prefix}", write=write))
    assert Path(mark).exists()
    assert (report.files, report.tasks) == (4, 4)
    assert cluster.left(prefix) == ["0.csv", "1.csv", "2.csv", "3.csv"]


def test_a_task_that_always_kills_its_worker_publishes_nothing(cluster: Bucket) -> None:
    """Ray tries it again as often as it is told, and gives up: the job is aborted."""

    def write(task: mc.Task, tables: Iterable[pa.Table]) -> None:
        with task.open(f"{task.task_id}.csv", unique=True) as file:
            file.write(b"x" * 9_000_000)
            if task.task_id == "1":
                until_open("crashes/1")
                die()

    sink = MagicDatasink("s3://bucket/crashes", write=write)
    with pytest.raises(Exception, match=r"died|crash"):
        write_datasink(numbers(40, 2), sink, concurrency=1, ray_remote_args={"max_retries": 1})
    assert sink.report is not None
    assert sink.report.outcome == "aborted"
    assert cluster.left("crashes") == []


def test_a_dataset_without_rows_empties_what_it_replaces(cluster: Bucket) -> None:
    """With blocks that are empty, and without a block, for which Ray starts no write."""
    for empty in (numbers(4, 2).filter(lambda row: False), ray.from_items([])):
        numbers(4, 2).write_datasink(MagicDatasink("s3://bucket/empty"))
        assert cluster.data("empty")
        report = write_datasink(empty, MagicDatasink("s3://bucket/empty", mode="overwrite"))
        assert (report.outcome, report.files) == ("committed", 0)
        assert cluster.left("empty") == []


def test_ray_may_leave_nothing_out(cluster: Bucket) -> None:
    """A write that Ray would call complete without its failed tasks is refused."""
    context = ray.DataContext.get_current()
    context.max_errored_blocks = 2
    try:
        told = numbers(40, 4)
        with pytest.raises(mc.OptionError, match="max_errored_blocks"):
            told.write_datasink(MagicDatasink("s3://bucket/loose"))
    finally:
        context.max_errored_blocks = 0
    with pytest.raises(mc.OptionError, match="max_errored_blocks"):
        told.write_datasink(MagicDatasink("s3://bucket/loose"))  # its own context says so still
    assert cluster.left("loose") == []


def test_the_recipe_of_its_page(cluster: Bucket) -> None:
    """All or nothing: the user sees the error of a row that fails."""
    from examples.recipes import with_ray_data

    assert with_ray_data.export(numbers(10, 2), "s3://bucket/recipe").tasks == 2
    assert cluster.column("recipe", "n") == list(range(10))
    with_ray_data.export_lines(numbers(10, 2), "s3://bucket/recipe")
    assert cluster.data("recipe") == ["part-0.jsonl", "part-1.jsonl"]
    bad = numbers(10, 2).map(lambda row: {"n": 1 // (9 - row["n"])})
    with pytest.raises(Exception, match="division"):
        with_ray_data.export_lines(bad, "s3://bucket/recipe-bad")
    assert cluster.left("recipe-bad") == []


def written(sink: MagicDatasink, task: int, rows: int = 2) -> str:
    """What a write task of Ray does, here."""
    at_worker = pickle.loads(pickle.dumps(sink))
    block = pa.table({"n": list(range(rows))})
    text: str = at_worker.write([block], SimpleNamespace(task_idx=task, kwargs={}))
    return text


def complete(sink: MagicDatasink, *texts: str) -> None:
    """What Ray does at the end."""
    sink.on_write_complete(SimpleNamespace(write_returns=list(texts)))


@pytest.fixture
def started(memory_s3: MemoryStore) -> Callable[..., MagicDatasink]:
    """Makes a sink whose write was started."""

    def start(*format: str, **more: Any) -> MagicDatasink:
        sink = MagicDatasink(TABLE, *format, **more)
        sink.on_write_start()
        return sink

    return start


Started = Callable[..., MagicDatasink]


def parquet(store: MemoryStore) -> list[list[int]]:
    """The numbers in each file."""
    keys = [key for key in sorted(store.keys()) if key.endswith(".parquet")]
    return [pq.read_table(io.BytesIO(store.body(key)))["n"].to_pylist() for key in keys]


def test_ctrl_c_while_the_job_starts_leaves_no_job(memory_s3: MemoryStore) -> None:
    """Ray starts it in a thread of its own, which goes on when the caller's is interrupted."""
    sink = MagicDatasink(TABLE)

    def interrupt(request: Request) -> None:
        memory_s3.before = None
        sink.on_write_failed(KeyboardInterrupt())

    memory_s3.before = interrupt
    with pytest.raises(mc.MagicError, match="was interrupted"):
        sink.on_write_start()
    assert mc.inspect(TABLE) == []
    assert not memory_s3.keys()


def test_a_sink_writes_once(memory_s3: MemoryStore, started: Started) -> None:
    """A second write with the same sink is refused; what the first has published stays."""
    sink = started(rows_per_file_max=2)
    complete(sink, written(sink, 0, rows=5))
    with pytest.raises(mc.MagicError, match="one write") as told:
        sink.on_write_start()
    sink.on_write_failed(told.value)
    assert sorted(parquet(memory_s3)) == [[0, 1], [2, 3], [4]]


def test_a_write_whose_results_are_missing_publishes_nothing(
    memory_s3: MemoryStore, started: Started
) -> None:
    """Ray has left out all tasks: as each one refuses to write where one may be left out."""
    sink = started()
    with pytest.raises(mc.IncompleteJob, match="max_errored_blocks") as told:
        complete(sink)
    sink.on_write_failed(told.value)
    assert sink.report is not None
    assert sink.report.outcome == "aborted"
    assert not memory_s3.keys()
    assert not memory_s3.open_uploads()


def test_no_secret_and_no_function_of_the_driver_travels() -> None:
    """What a worker gets of a sink holds neither keys nor `progress`."""
    secret = mc.S3Options(access_key="AK", secret_key="a-secret-key", region="r")
    sink = MagicDatasink(TABLE, s3=secret, progress=lambda said: None)  # a lambda does not pickle
    assert b"a-secret-key" not in pickle.dumps(sink)


def test_blocks_that_differ_become_one_file(memory_s3: MemoryStore, started: Started) -> None:
    """Columns in another order, and a column of nulls: what Ray gives when rows differ."""
    sink = started()
    blocks = [
        pa.table({"n": [1], "text": ["a"]}),
        pa.table({"text": pa.nulls(1), "n": [2]}),
        pa.table({"n": pa.array([], pa.int64())}),
    ]
    complete(sink, sink.write(blocks, SimpleNamespace(task_idx=0)))
    assert parquet(memory_s3) == [[1, 2]]


def test_files_without_columns_are_refused(memory_s3: MemoryStore, started: Started) -> None:
    """If all columns are directories, pyarrow writes files without rows: they would be lost."""
    sink = started(partition_by=["day", "hour"])
    rows = pa.table({"hour": [1, 2], "day": ["a", "a"]})
    with pytest.raises(mc.OptionError, match="partition_by has all columns, hour, day"):
        sink.write([rows], SimpleNamespace(task_idx=0))
    sink.on_write_failed(ValueError())
    assert not memory_s3.keys()


@pytest.mark.parametrize(
    ("format", "options", "start"),
    [("csv", {"include_header": False}, b"0\n1\n"), ("feather", None, b"ARROW1")],
)
def test_other_formats(
    memory_s3: MemoryStore, started: Started, format: str, options: Any, start: bytes
) -> None:
    """CSV and Arrow files, with options of theirs."""
    sink = started(format, of_format=options)
    complete(sink, written(sink, 0))
    (key,) = memory_s3.keys("table/part")
    assert memory_s3.body(key).startswith(start)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: MagicDatasink(TABLE, "orc"), "no format 'orc'"),
        (lambda: MagicDatasink(TABLE, partition_by="day"), "a list of columns"),
        (lambda: MagicDatasink(TABLE, of_format={"compresion": "zstd"}), "of_format of 'parquet'"),
        (lambda: MagicDatasink(TABLE, rows_per_file_max=0), "rows_per_file_max=0"),
        (lambda: MagicDatasink(TABLE, rows_per_file_min=True), "rows_per_file_min is a whole"),
        (lambda: MagicDatasink(TABLE, write=cast(Any, 7)), "write is a function"),
        (lambda: MagicDatasink(TABLE, "csv", write=print), "not for a function of yours"),
        (lambda: MagicDatasink(TABLE, mode=cast(Any, "overwite")), "overwite"),
        (lambda: MagicDatasink("bucket/table"), "not an S3 URL"),
        (lambda: write_datasink(None, cast(Any, TABLE)), "sink is a MagicDatasink"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(
    memory_s3: MemoryStore, wrong: Callable[[], object], told: str
) -> None:
    """The error shows what it got; no job is started."""
    with pytest.raises(mc.MagicError, match=told):
        wrong()
    assert memory_s3.keys() == ()

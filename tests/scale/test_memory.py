"""A commit's memory does not grow with the job, nor a task's with what it has closed; that of a
look at open uploads little."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import magic_committer as mc
from benchmarks import server
from benchmarks.writers import BUCKET
from magic_committer.committers.magic import Attempt
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.base import Attributes
from magic_committer.stores.s3.client import connect
from magic_committer.upload import UploadStream
from magic_committer.upload.sender import PartSender
from tests.servers import way

KiB, MiB = 1024, 1024**2
FILES_A_TASK = 30
"""Ten times as many files take a quarter of an hour."""
PEAK_MAX = 8 * MiB
TASK_MAX = 4 * KiB
PARTITIONS, ROWS = 200, 10
FILE_BYTES_MAX = 2 * KiB
KEEP_BYTES_MAX = 256 * KiB
"""Two files in each partition fill it already."""
REST_BYTES_MAX = 1 * MiB
"""What the job, the store's client and pyarrow keep."""
LOOK_BYTES_MAX, PLAN_BYTES_MAX, MOMENT_BYTES_MAX, NAMED_BYTES_MAX = 128, 192, 256, 640
"""For each upload, what is kept of it, with a plan, for a moment, and if a set names it: figures
of docs/performance.md, and what else is kept."""


@pytest.fixture(scope="module")
def s3() -> Iterator[mc.S3Options]:
    """The way to a store in a process of its own: the memory of one side is measured."""
    with server.fast() as there:
        yield way(there.url)


def started(s3: mc.S3Options) -> mc.Job:
    return mc.start(f"s3://{BUCKET}/t", track="memory", accept="results", s3=s3)


def commit_peak(s3: mc.S3Options, tasks: int) -> int:
    """Peak of what Python allocates while a job of 30 files a task is committed, in bytes. The job
    is started and its tasks run before."""
    job = started(s3)
    results = [_task(job, number) for number in range(tasks)]
    tracemalloc.start()
    try:
        assert job.commit(results).files == tasks * FILES_A_TASK
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _task(job: mc.Job, number: int) -> TaskCommit:
    with job.task(number) as task:
        for n in range(FILES_A_TASK):
            with task.open(f"part-{number:05d}-{n:03d}.csv") as f:
                f.write(b"1")
    return task.result


def test_ten_times_the_files_take_hardly_more_memory(s3: mc.S3Options) -> None:
    """3,000 files in 100 tasks are committed in 8 MiB at the peak; each task more, with its 30
    files, takes less than 4 KiB. A file that is held takes half of a KiB."""
    small, large = commit_peak(s3, 100), commit_peak(s3, 1000)
    assert small <= PEAK_MAX
    assert large - small < 900 * TASK_MAX, f"{small / MiB:.1f} MiB, then {large / MiB:.1f} MiB"


def held(s3: mc.S3Options, files: int) -> tuple[int, int]:
    """What a task holds that has written 200 partitions with so many files in each, before the
    commit: Python's bytes, and how many streams and senders."""
    days = pa.array([day for day in range(PARTITIONS) for _ in range(files * ROWS)], pa.int32())
    table = pa.table({"day": days, "n": pa.array(range(len(days)), pa.int64())})
    tracemalloc.start()
    try:
        job = started(s3)
        with job.task("1") as task:
            ds.write_dataset(
                table, "/", format="parquet", partitioning=["day"],
                filesystem=task.filesystem(keep_bytes_max=KEEP_BYTES_MAX),
                max_rows_per_file=ROWS, max_rows_per_group=ROWS,
            )  # fmt: skip
            assert isinstance(task._attempt, Attempt)
            task._attempt._closings.settle()  # of what is still being sent each has its block
            gc.collect()
            live = sum(type(one) in (UploadStream, PartSender) for one in gc.get_objects())
            found = tracemalloc.get_traced_memory()[0], live
        assert job.commit([task.result]).files == PARTITIONS * files
    finally:
        tracemalloc.stop()
    return found


def test_a_closed_file_holds_two_kibibytes_at_most(s3: mc.S3Options) -> None:
    """Of 2,000 files a task holds what completes them, and no stream; what is kept of them for
    reading is within its budget."""
    held(s3, 1)  # modules are imported, threads are there
    (few, _), (many, live) = held(s3, 2), held(s3, 10)
    each = (many - few) / (8 * PARTITIONS)
    assert each <= FILE_BYTES_MAX, f"{each:.0f} bytes for each further file"
    assert many <= PARTITIONS * 10 * FILE_BYTES_MAX + KEEP_BYTES_MAX + REST_BYTES_MAX
    assert live == 0


def looked_at(s3: mc.S3Options, below: str) -> tuple[int, int, int]:
    """What Python holds of a look at uploads, then with a plan to abort them, and the peak."""
    gc.collect()
    tracemalloc.start()
    try:
        found = mc.uploads(f"s3://{BUCKET}/{below}", older_than=0, s3=s3)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        plan = found.abort(foreign=True)
        gc.collect()
        assert plan.rows is not None
        return kept, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_a_look_at_open_uploads_keeps_few_bytes_of_each(s3: mc.S3Options) -> None:
    """Of 11,000 uploads more, for which the table has just grown; of 1,500 a set names half a KiB
    each."""
    store, more = connect(BUCKET, s3), 11_000
    for below, count in (("few", 1000), ("many", 1000 + more)):
        for number in range(count):
            store.create_upload(f"{below}/{number:05}.csv", attributes=Attributes())
    looked_at(s3, "few")  # modules are imported, threads are there
    few, many = looked_at(s3, "few"), looked_at(s3, "many")
    each = [(after - before) / more for before, after in zip(few, many, strict=True)]
    most = (LOOK_BYTES_MAX, PLAN_BYTES_MAX, MOMENT_BYTES_MAX)
    assert all(one <= limit for one, limit in zip(each, most, strict=True)), each
    job = mc.start(f"s3://{BUCKET}/named", track="memory", accept="results", s3=s3)
    for number in range(50):
        _task(job, number)
    named = looked_at(s3, "named")[0] / (50 * FILES_A_TASK)
    job.abort()
    assert named <= NAMED_BYTES_MAX, f"{named:.0f} bytes for each upload that a set names"

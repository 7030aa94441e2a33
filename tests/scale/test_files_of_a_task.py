"""What a task keeps of its closed files: 200 partitions with 10 files each, by `write_dataset`."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

import magic_committer as mc
from magic_committer._wiring import register_store, unregister_store
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.upload import UploadStream
from magic_committer.upload.sender import PartSender
from tests.scale.bucket_process import far_store

KiB = 1024
PARTITIONS, ROWS = 200, 10
FILE_BYTES_MAX = 2 * KiB
KEEP_BYTES_MAX = 256 * KiB
"""Two files in each partition fill it already."""
REST_BYTES_MAX = 1 * KiB * KiB
"""What the job, the store's client and pyarrow keep."""


@dataclass(frozen=True)
class Held:
    """What is held after all files were written, before the commit: Python's bytes, and objects."""

    bytes: int
    streams: int
    senders: int


def live(kind: type) -> int:
    """How many objects of this kind there are."""
    return sum(type(one) is kind for one in gc.get_objects())


def held(files: int) -> Held:
    """What a task holds that has written 200 partitions with so many files in each."""
    days = pa.array([day for day in range(PARTITIONS) for _ in range(files * ROWS)], pa.int32())
    table = pa.table({"day": days, "n": pa.array(range(len(days)), pa.int64())})
    with far_store() as store:
        register_store(store)  # verbs by __getattr__
        tracemalloc.start()
        try:
            job = mc.start("s3://bucket/table", track="memory", accept="results")
            with job.task("1") as task:
                ds.write_dataset(
                    table, "/", format="parquet", partitioning=["day"],
                    filesystem=task.filesystem(keep_bytes_max=KEEP_BYTES_MAX),
                    max_rows_per_file=ROWS, max_rows_per_group=ROWS,
                )  # fmt: skip
                assert isinstance(task._attempt, Attempt)
                task._attempt._closings.settle()  # of what is still being sent each has its block
                gc.collect()
                found = Held(
                    tracemalloc.get_traced_memory()[0], live(UploadStream), live(PartSender)
                )
            assert job.commit([task.result]).files == PARTITIONS * files
        finally:
            tracemalloc.stop()
            unregister_store(store)
    return found


def test_a_closed_file_holds_two_kibibytes_at_most() -> None:
    """Of 2,000 files a task holds what completes them, and no stream; what is kept of them for
    reading is within its budget."""
    held(1)  # modules are imported, threads are there
    few, many = held(2), held(10)
    each = (many.bytes - few.bytes) / (8 * PARTITIONS)
    assert each <= FILE_BYTES_MAX, f"{each:.0f} bytes for each further file"
    assert many.bytes <= PARTITIONS * 10 * FILE_BYTES_MAX + KEEP_BYTES_MAX + REST_BYTES_MAX
    assert (many.streams, many.senders) == (0, 0)

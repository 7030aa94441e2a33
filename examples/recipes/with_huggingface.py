"""Hugging Face datasets: `save_to_disk` by the job's URL; and Parquet shards by
many processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from datasets import Dataset, DatasetDict

import magic_committer as mc


def save(data: Dataset | DatasetDict, dest: str) -> mc.JobReport | None:
    """Replace what `load_from_disk` reads. One process writes: num_proc cannot
    be given."""
    with mc.write(dest, mode="overwrite") as job:
        data.save_to_disk(dest.replace("s3://", "magic://", 1))
    return job.report


def write_shard(data: Dataset, shards: int, task: mc.Task, shard: int) -> int:
    """Runs in a worker: a shard as a Parquet file."""
    rows = data.shard(shards, shard, contiguous=True)
    with task.open(
        f"data-{shard:05d}-of-{shards:05d}.parquet", unique=True
    ) as file:
        rows.to_parquet(file)
    return len(rows)


def save_shards(
    data: Dataset, dest: str, shards: int, executor: Callable[[], Executor]
) -> mc.RunReport[int]:
    """Replace a data set of Parquet files."""
    write = partial(write_shard, data, shards)
    return mc.run(
        dest, write, range(shards), executor=executor, mode="overwrite"
    )

"""Dask: a data frame or another collection, each partition a task, on a cluster
or here; a data frame by Dask's own writer, through the job as a file system;
and tasks on a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import dask
import dask.bag
import dask.dataframe as dd
from distributed import Client

import magic_committer as mc
from magic_committer.engines.dask import to_parquet, write_delayed


def export(frame: dd.DataFrame, dest: str) -> mc.JobReport:
    """Replace the days that the frame has. Workers of a cluster write, if there
    is one."""
    return to_parquet(
        frame, dest, partition_on=["day"], mode="overwrite_partitions"
    )


def write_lines(task: mc.Task, lines: Iterable[str]) -> int:
    """Runs where Dask computes."""
    with task.open(f"part-{task.task_id}.txt", "w", unique=True) as file:
        return file.write("".join(f"{line}\n" for line in lines))


def export_lines(bag: dask.bag.Bag, dest: str) -> mc.RunReport[int]:
    """Replace all data by files that a function of yours writes."""
    return write_delayed(bag.to_delayed(), dest, write_lines, mode="overwrite")


def export_from_here(frame: dd.DataFrame, dest: str) -> mc.JobReport | None:
    """Write a data frame from this process: the file system of a job does not
    travel."""
    with (
        mc.write(dest, mode="overwrite") as job,
        dask.config.set(scheduler="threads"),
    ):
        frame.to_parquet(
            dest,
            filesystem=job.filesystem(unique=True),
            write_index=False,
            compute=True,
        )
    return job.report


def write_part(task: mc.Task, rows: range) -> int:
    """Runs on a worker of the cluster."""
    with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
        return file.write("".join(f"{row}\n" for row in rows))


def on_a_cluster(
    client: Client, parts: list[range], dest: str
) -> mc.RunReport[int]:
    """Write a file for each part on the workers; one that is killed is replaced
    by Dask."""
    executor = client.get_executor(pure=False, retries=0)
    return mc.run(dest, write_part, parts, executor=executor)

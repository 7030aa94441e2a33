"""Dask: a data frame by threads of this process, through the job as a file system; and tasks on a
cluster, each of which writes its own files."""

from __future__ import annotations

import dask
import dask.dataframe as dd
from distributed import Client

import magic_committer as mc


def export(frame: dd.DataFrame, dest: str) -> mc.JobReport | None:
    """Write a data frame from this process: the file system of a job does not travel."""
    with mc.write(dest, mode="overwrite") as job, dask.config.set(scheduler="threads"):
        frame.to_parquet(
            dest, filesystem=job.filesystem(unique=True), write_index=False, compute=True
        )
    return job.report


def write_part(task: mc.Task, rows: range) -> int:
    """Runs on a worker of the cluster."""
    with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file:
        return file.write("".join(f"{row}\n" for row in rows))


def on_a_cluster(client: Client, parts: list[range], dest: str) -> mc.RunReport[int]:
    """Write a file for each part on the workers; one that is killed is replaced by Dask."""
    executor = client.get_executor(pure=False, retries=0)
    return mc.run(dest, write_part, parts, executor=executor)

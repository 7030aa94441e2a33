"""PyTorch: a checkpoint of many ranks, by torch.distributed.checkpoint: each
rank writes its own files, and one of them commits."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import fsspec_filesystem

import magic_committer as mc


class TaskFiles(fsspec_filesystem._FileSystem):  # type: ignore[misc]
    """A task, as PyTorch's fsspec writer sees it. That writes its metadata
    under another name and then renames it; here nothing is visible before the
    commit, so it gets its name at once."""

    def create_stream(self, path: Any, mode: str) -> Any:
        return super().create_stream(os.fspath(path).removesuffix(".tmp"), mode)

    def rename(self, path: Any, new_path: Any) -> None:
        """Nothing is left to do."""

    def exists(self, path: Any) -> bool:
        return False  # else the writer removes its metadata before a rename


class TaskWriter(dcp.FileSystemWriter):  # type: ignore[misc]
    """Writes a rank's part of a checkpoint into a task of a job."""

    def __init__(self, task: mc.Task) -> None:
        super().__init__("", sync_files=False)
        self.fs = TaskFiles()
        self.fs.fs = task.filesystem(keep_bytes_max=0)
        self.path = ""


def write_rank(job: mc.Job, state: dict[str, Any]) -> dict[str, Any]:
    """Write what this rank has of the state."""
    with job.task(dist.get_rank()) as task:
        dcp.save(state, storage_writer=TaskWriter(task))
    return task.result.to_dict()


def from_rank_0(value: Any = None) -> Any:
    """Send rank 0's value to all others."""
    told = [value]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def save(state: dict[str, Any], dest: str) -> dict[str, Any]:
    """Save a checkpoint into a directory of its own:
    ``s3://bucket/run-7/step-1000``. Every rank calls it. It returns when the
    files of all ranks are visible."""
    if dist.get_rank() != 0:
        dist.gather_object(write_rank(mc.Job.from_dict(from_rank_0()), state))
        told: dict[str, Any] = from_rank_0()
        return told
    # The readers know the names of the files: no unique=True.
    with mc.start(dest, mode="fail", accept="results", track="memory") as job:
        from_rank_0(job.to_dict())
        answers: list[Any] = [None] * dist.get_world_size()
        dist.gather_object(write_rank(job, state), answers)
        report = job.commit(answers, expect=len(answers))
    told = from_rank_0(report.to_dict())
    return dict(told)

"""zarr: a store of chunks, through the job as a file system."""

from __future__ import annotations

import numpy as np
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.storage import FsspecStore

import magic_committer as mc


def export(
    array: np.ndarray, chunk_rows: int, dest: str
) -> mc.JobReport | None:
    """Write an array of two dimensions: readers see all chunks and the
    metadata, or nothing."""
    with mc.write(dest, mode="overwrite") as job:
        store = FsspecStore(
            AsyncFileSystemWrapper(job.filesystem(), asynchronous=True),
            path="a.zarr",
        )
        chunks = (chunk_rows, array.shape[1])
        written = zarr.create_array(
            store, shape=array.shape, chunks=chunks, dtype=array.dtype
        )
        for row in range(0, array.shape[0], chunk_rows):
            written[row : row + chunk_rows] = array[row : row + chunk_rows]
    return job.report

"""h5py: HDF5 seeks while it writes. It gets a local file, which is uploaded
when it is closed."""

from __future__ import annotations

from collections.abc import Mapping

import h5py
import numpy as np

import magic_committer as mc


def export(arrays: Mapping[str, np.ndarray], dest: str) -> mc.JobReport | None:
    """Write arrays into one HDF5 file."""
    with (
        mc.write(dest) as job,
        job.local_file("arrays.h5", unique=True) as file,
        h5py.File(file.path, "w") as data,
    ):
        for name, array in arrays.items():
            data[name] = array
    return job.report

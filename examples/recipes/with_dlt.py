"""dlt: each file of a load is a task. Commit when `run` has loaded all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dlt

import magic_committer as mc


def magic(job: dict[str, Any]) -> Any:
    """A destination of dlt, for ``mc.start(...).to_dict()``."""

    @dlt.destination(batch_size=0, loader_file_format="parquet")
    def files(path: str, table: dict[str, Any]) -> None:
        name = Path(path).name
        with (
            mc.Job.from_dict(job).task(name) as task,
            task.open(f"{table['name']}/{name}", unique=True) as target,
            open(path, "rb") as source,
        ):
            shutil.copyfileobj(source, target)

    return files


def publish(job: dict[str, Any]) -> int:
    return mc.Job.from_dict(job).commit().files

"""Airflow: the steps of a DAG as plain functions. What travels between them is
JSON."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import magic_committer as mc

RUNS_MAX = 20
"""How often one run of the DAG may be cleared and run again."""


def start(dest: str, run_id: str) -> dict[str, Any]:
    """Start a job, or take the one that an earlier try of this step has
    started.

    A job id is used once. If the run is cleared after its job has ended, the
    next id is taken.
    """
    name = re.sub(r"[^A-Za-z0-9._=-]", "-", run_id)[:64]
    for number in range(RUNS_MAX):
        with contextlib.suppress(mc.JobNotRunning):
            return mc.start(
                dest,
                job_id=f"{name}-{number}",
                exist_ok=True,
                mode="replace_partitions",
                accept="results",
                track="memory",
            ).to_dict()
    raise RuntimeError(
        f"{RUNS_MAX} jobs of run {run_id} have ended; start a new run"
    )


def write_part(job: dict[str, Any], part: str) -> dict[str, Any]:
    """Write one part. Airflow may run it again, or twice: one attempt of each
    part counts."""
    with mc.Job.from_dict(job).task(part) as task:
        with task.open(f"day={part}/sales.csv", "w", unique=True) as f:
            for amount in range(3):
                f.write(f"{part},{amount}\n")
    return task.result.to_dict()


def commit(job: dict[str, Any], results: Iterable[dict[str, Any]]) -> int:
    """Make all parts visible. It may be repeated: a committed job stays
    committed."""
    report = mc.Job.from_dict(job).commit(results)
    return report.files


def abort(job: dict[str, Any]) -> None:
    """For a run that failed. What is committed stays."""
    handle = mc.Job.from_dict(job)
    try:
        handle.abort()
    except mc.JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        mc.recover(handle.dest, handle.id)

"""Airflow: the steps of a DAG as plain functions. What travels between them is JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import magic_committer as mc

RUNS_MAX = 20
"""How often one run of the DAG may be cleared and run again."""


def start(dest: str, run_id: str) -> dict[str, str]:
    """Start a job, or find the one that an earlier try of this step has started.

    A job id is used once. If the run is cleared after its job has ended, the next id is taken.
    """
    name = re.sub(r"[^A-Za-z0-9._=-]", "-", run_id)[:100]
    for number in range(RUNS_MAX):
        job_id = f"{name}-{number}"
        try:
            job = mc.start(
                dest, job_id=job_id, mode="replace_partitions", accept="results", track="memory"
            )
        except mc.JobExists:
            job = mc.attach(dest, job_id)
        if job.state == "running":
            return {"dest": dest, "job_id": job_id}
    raise RuntimeError(f"{RUNS_MAX} jobs of run {run_id} have ended; start a new run")


def write_part(job: dict[str, str], part: str) -> dict[str, Any]:
    """Write one part. Airflow may run it again, or twice: one attempt of each part counts."""
    with mc.attach(job["dest"], job["job_id"]).task(part) as task:
        with task.open(f"day={part}/sales.csv", "w", unique=True) as f:
            for amount in range(3):
                f.write(f"{part},{amount}\n")
    return task.result.to_dict()


def commit(job: dict[str, str], results: Iterable[dict[str, Any]]) -> int:
    """Make all parts visible. It may be repeated: a committed job stays committed."""
    accepted = [mc.TaskCommit.from_dict(result) for result in results]
    report = mc.attach(job["dest"], job["job_id"]).commit(accepted)
    return report.files


def abort(job: dict[str, str]) -> None:
    """For a run that failed. What is committed stays; a job that is gone is no error."""
    try:
        mc.abort(job["dest"], job["job_id"])
    except mc.JobNotFound:
        return
    except mc.JobNotRunning as decided:
        if decided.outcome != "committed":
            raise
        mc.recover(job["dest"], job["job_id"])

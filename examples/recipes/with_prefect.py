"""Prefect: tasks that pass JSON."""

from __future__ import annotations

import airflow_steps as steps
from prefect import flow, task


@flow
def sales(dest: str, run_id: str) -> int:
    job = task(steps.start, retries=2)(dest, run_id)
    result = task(steps.write_part, retries=2)(job, "2026-11-21")
    return task(steps.commit, retries=2)(job, [result])

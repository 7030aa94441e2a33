"""Airflow: the DAG. The steps are those of airflow_steps.py, in the same
folder."""

from __future__ import annotations

from typing import Any

import airflow_steps as steps
from airflow.sdk import dag, get_current_context, task

DEST = "s3://bucket/sales"


@task(retries=3)
def start() -> dict[str, Any]:
    return steps.start(DEST, get_current_context()["run_id"])


@task(retries=3)
def write_part(job: dict[str, Any], part: str) -> dict[str, Any]:
    return steps.write_part(job, part)


@task(retries=3)
def commit(job: dict[str, Any], results: Any) -> int:
    return steps.commit(job, results)


@task(retries=3)
def abort(job: dict[str, Any]) -> None:
    steps.abort(job)


@dag(schedule=None)
def sales() -> None:
    job = start()
    results = write_part.partial(job=job).expand(
        part=["2026-11-21", "2026-11-22"]
    )
    # A teardown runs whatever happened, and does not make a failed run look
    # like a good one.
    commit(job, results) >> abort(job).as_teardown(setups=job)


sales()

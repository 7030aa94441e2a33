"""Dagster: ops that pass JSON."""

import airflow_steps as steps
from dagster import OpExecutionContext, RetryPolicy, job, op

DEST = "s3://bucket/sales"


@op(retry_policy=RetryPolicy(max_retries=2))
def write(context: OpExecutionContext) -> dict:
    started = steps.start(DEST, context.run_id)
    result = steps.write_part(started, "2026-11-21")
    return {"job": started, "results": [result]}


@op(retry_policy=RetryPolicy(max_retries=2))
def publish(written: dict) -> int:
    return steps.commit(**written)


@job
def sales() -> None:
    publish(write())

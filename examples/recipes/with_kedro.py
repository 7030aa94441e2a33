"""Kedro: nodes that pass JSON. Keep `written` in a JSONDataset."""

from __future__ import annotations

from typing import Any

import airflow_steps as steps
from kedro.pipeline import node, pipeline


def write(dest: str, run_id: str) -> dict[str, Any]:
    job = steps.start(dest, run_id)
    return {"job": job, "results": [steps.write_part(job, "2026-11-21")]}


def publish(written: dict[str, Any]) -> int:
    return steps.commit(**written)


sales = pipeline(
    [
        node(write, ["params:dest", "params:run_id"], "written"),
        node(publish, "written", "files"),
    ]
)

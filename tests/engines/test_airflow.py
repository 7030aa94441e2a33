"""The recipe's DAG, run by Airflow itself, with steps whose answers are lost and one that fails.
(What any request of a step may do is walked in tests/recipes, without Airflow.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.seen import Bucket
from tests.nightly import library

library("airflow", "airflow")
ROOT = Path(__file__).resolve().parents[2]
DAYS = ["day=2026-11-21/sales.csv", "day=2026-11-22/sales.csv"]
PARTS = ("write_part 2026-11-21", "write_part 2026-11-22")


@pytest.fixture(scope="module")
def airflow(server: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Airflow with a database of its own: runs the DAG, and gives the last line of its output."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "recipes"),
    }

    def run(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", *words],
            env=env, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout

    run("airflow", "db", "migrate")
    return lambda how: json.loads(run("tests.engines.run_airflow", how).splitlines()[-1])


def test_each_step_is_tried_again(server: Bucket, airflow: Callable[[str], Any]) -> None:
    """The first answer of a step is lost: each part is there once."""
    said = airflow("lost")
    assert said["state"] == "success"
    assert said["calls"] == dict.fromkeys(("start", *PARTS, "commit", "abort"), 2)
    assert server.data("sales") == DAYS
    assert server.open_uploads("sales") == []


def test_a_run_with_a_part_that_fails_changes_nothing(
    server: Bucket, airflow: Callable[[str], Any]
) -> None:
    """Airflow gives it up after its tries, and tears the job down."""
    before = [key for key in server.keys("sales") if key.endswith(".csv")]
    said = airflow("fails")
    assert said["state"] == "failed"
    assert said["calls"] == {"start": 1, PARTS[0]: 1, PARTS[1]: 4, "abort": 1}
    assert [key for key in server.keys("sales") if key.endswith(".csv")] == before
    assert server.open_uploads("sales") == []
